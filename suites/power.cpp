// Kill matrix of the fault bank; see power.h. Cases outside, faults inside: golden, bounds and twins of a case are made
// once and shared by all faults, and only one case is in memory at a time.
#include "suites/power.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <limits>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>

#include "reference/parallel.h"
#include "reports/text.h"
#include "suites/check.h"
#include "suites/harness.h"
#include "suites/identify.h"
#include "suites/kinds.h"
#include "suites/runner.h"
#include "suites/standing.h"

namespace gdn {
namespace {

constexpr Form kForms[] = {Form::recurrent, Form::chunkwise};
constexpr FaultScalar kScalars[] = {FaultScalar::fp32, FaultScalar::bf16};

std::size_t variant_index(Form f, FaultScalar s) { return 2 * static_cast<std::size_t>(f) + static_cast<std::size_t>(s); }

bool is_certain(const char* kind) {
  for (const Kind& k : kKinds)
    if (std::string_view(kind) == k.slug) return k.certain;
  return false;
}

std::unique_ptr<KernelSession> open_variant(const Fault& f, Form form, FaultScalar scalar) {
  const gdn_kernel* k = faulty_kernel(f, form, scalar);
  return k ? open_inline(k->name, SessionOptions{}) : nullptr;
}

// Runs every run of the case, forgetting earlier cases first, so that the order of work does not matter.
std::vector<Execution> execute(const Case& c, KernelSession& kernel) {
  forget_calls();
  std::vector<Execution> all;
  const std::string id = case_id(c);
  for (const Run& run : c.runs) all.push_back(kernel.run(run, id));
  return all;
}

struct Judgement {
  Verdict verdict = Verdict::passed;
  std::string check, message;
  std::vector<std::string> others;
};

// The first check that fails, and with `every` the others that do. Checks see the shared bounds; anti-vacuity depends on the case alone
// and is left to the twin.
Judgement judge(const std::vector<const Check*>& all, const Golden& g, const Case& c, const KernelInfo& info, const Bounds& bounds,
                const Certificates& certificates, const Statistics& statistics, const std::vector<Execution>& executions, bool twin, bool every = false) {
  for (std::size_t i = 0; i < executions.size(); ++i) {
    const Execution& e = executions[i];
    const auto v = verdict_of(c.runs[i], e);
    if (!v) continue;
    if (*v == Verdict::failed) return {*v, "refusal", "carried out although it has to be refused", {}};
    return {e.outcome == Outcome::timeout ? Verdict::runtime_error : *v, *v == Verdict::runtime_error ? "runtime" : "", e.message, {}};
  }
  const CheckInput in{g, c.relations, info, executions, bounds, certificates, statistics};
  bool decided = false;
  Judgement failed;
  for (const Check* check : all) {
    if (!twin && check->name() == "anti_vacuity") continue;
    CheckResult r;
    try {
      r = check->run(in);
    } catch (const std::exception& e) {            // a defect of the suite, as in the runner
      return {Verdict::mistrusted, check->name(), e.what(), {}};
    }
    if (r.status == CheckStatus::failed && failed.check.empty()) {
      failed = {Verdict::failed, r.check, r.message, {}};
      if (!every) return failed;
    } else if (r.status == CheckStatus::failed) {
      failed.others.push_back(r.check);
    }
    if (r.status == CheckStatus::mistrusted && failed.check.empty()) return {Verdict::mistrusted, r.check, r.message, {}};
    decided = decided || (r.status == CheckStatus::passed && r.judged > 0 && check->order() > 20);
  }
  if (!failed.check.empty()) return failed;
  return {decided ? Verdict::passed : Verdict::untested, "", decided ? "" : "no check decided this case", {}};
}

struct Twin {
  std::unique_ptr<KernelSession> session;
  Judgement outcome;                                // of the case at hand
  std::unique_ptr<Bounds> bounds;                  // of the case, shared by all faults of the variant
  std::unique_ptr<Certificates> certificates;
  std::unique_ptr<Statistics> statistics;
  bool usable() const { return outcome.verdict == Verdict::passed; }
};

// Twin on the case; what it supports and does not pass is an alarm.
void run_twin(const std::vector<const Check*>& all, Twin& t, const Golden& g, const Case& c, std::vector<Execution>* keep = nullptr) {
  std::vector<Execution> executions = execute(c, *t.session);
  const bool supported = std::none_of(executions.begin(), executions.end(), [](const Execution& e) { return e.outcome == Outcome::not_supported; });
  t.bounds = std::make_unique<Bounds>(c, t.session->info().contract);
  t.certificates = std::make_unique<Certificates>(c, t.session->info().contract);
  t.statistics = std::make_unique<Statistics>(g, t.session->info().contract);
  for (std::size_t i = 0; i < c.runs.size() && supported; ++i)
    if (c.runs[i].truth) {
      t.bounds->of_run(i);
      t.certificates->of_run(i);
    }
  t.outcome = judge(all, g, c, t.session->info(), *t.bounds, *t.certificates, *t.statistics, executions, true);
  if (keep) *keep = std::move(executions);
}

// ---- signal-to-noise ratio of a survivor -----------------------------------------------------------------------------

struct Noise { std::vector<TensorSet> sigma; };    // per run, fp64

// Root mean square of the twin's own error over each row of V channels, at least half an ulp of the output.
Noise noise_of(const Golden& g, const Case& c, const std::vector<Execution>& executions) {
  Noise n;
  for (std::size_t i = 0; i < c.runs.size(); ++i) {
    TensorSet all;
    for (const auto& [name, t] : executions[i].outputs) {
      if (!c.runs[i].truth || i >= g.truths.size()) continue;
      const auto truth = g.truths[i].find(name);
      if (truth == g.truths[i].end()) continue;
      const std::int64_t V = t.shape.size() > 2 ? t.shape.back() : 1, rows = static_cast<std::int64_t>(truth->second.hi.size()) / V;
      Tensor sigma(DType::f64, {rows, V});
      const Format format = format_of(t.dtype);
      for (std::int64_t r = 0; r < rows; ++r) {
        double sum = 0, size = 0;
        for (std::int64_t v = 0; v < V; ++v) {
          const auto e = static_cast<std::size_t>(r * V + v);
          const double error = t.at(r * V + v) - truth->second.hi[e];
          if (std::isfinite(error)) sum += error * error;
          size = std::max(size, std::fabs(truth->second.hi[e]));
        }
        const double s = std::max(std::sqrt(sum / static_cast<double>(V)), 0.5 * ulp_at(size, format));
        for (std::int64_t v = 0; v < V; ++v) sigma.set(r * V + v, s);
      }
      all.emplace(name, std::move(sigma));
    }
    n.sigma.push_back(std::move(all));
  }
  return n;
}

// Adds what the fault does to the run, in double, to snr^2 and the greatest delta.
void add_delta(const TensorSet& with, const TensorSet& without, const TensorSet& sigma, const Problem& p, double& snr2, double& delta) {
  for (const auto& [name, s] : sigma) {
    const auto a = with.find(name), b = without.find(name);
    if (a == with.end() || b == without.end()) continue;
    const std::int64_t n = std::min(s.size(), name == "o" ? p.tokens() * p.value_heads * p.value_dim : s.size());
    for (std::int64_t e = 0; e < n; ++e) {
      const double x = a->second.at(e), y = b->second.at(e), d = std::fabs(x - y);
      if (!std::isfinite(y) || x == y) continue;
      if (!std::isfinite(x)) {
        snr2 = delta = std::numeric_limits<double>::infinity();
        return;
      }
      delta = std::max(delta, d);
      snr2 += d / s.at(e) * (d / s.at(e));
    }
  }
}

// Measured, and no number differs from the exact one.
bool unreached(const FaultPower& f) {
  return std::any_of(f.variants.begin(), f.variants.end(), [](const VariantPower& v) { return v.measured; }) &&
         std::all_of(f.variants.begin(), f.variants.end(), [](const VariantPower& v) { return v.delta == 0; });
}

}  // namespace

std::string VariantPower::name() const {
  return std::string(form == Form::recurrent ? "recurrent" : "chunk") + (scalar == FaultScalar::fp32 ? "-fp32" : "-bf16");
}

bool FaultPower::killed() const {
  return std::any_of(variants.begin(), variants.end(), [](const VariantPower& v) { return v.killed(); });
}
bool FaultPower::equivalent() const {
  if (killed() || certain) return false;
  bool changes = false;
  for (const VariantPower& v : variants) {
    if (v.snr >= 1) return false;
    changes = changes || v.delta > 0;
  }
  return changes;
}

std::size_t FaultPower::compared() const {
  std::size_t n = 0;
  for (const VariantPower& v : variants)
    for (const Kill& k : v.kills) n += k.naming != Naming::not_compared;
  return n;
}
std::size_t FaultPower::named() const {
  std::size_t n = 0;
  for (const VariantPower& v : variants)
    for (const Kill& k : v.kills) n += k.naming == Naming::right || k.naming == Naming::tied || k.naming == Naming::twin;
  return n;
}

std::size_t PowerResult::killed(bool certain_only) const {
  return static_cast<std::size_t>(std::count_if(faults.begin(), faults.end(), [&](const FaultPower& f) { return f.killed() && (f.certain || !certain_only); }) +
                                  std::count_if(harness.begin(), harness.end(), [](const HarnessPower& h) { return !h.noticed.empty(); }));
}
std::size_t PowerResult::counted(bool certain_only) const {
  return harness.size() +
         static_cast<std::size_t>(std::count_if(faults.begin(), faults.end(), [&](const FaultPower& f) { return !f.equivalent() && (f.certain || !certain_only); }));
}
double PowerResult::score(bool certain_only) const {
  const std::size_t n = counted(certain_only);
  return n ? static_cast<double>(killed(certain_only)) / static_cast<double>(n) : 1;
}

namespace {

bool lists(const Family* f, const char* kind) {
  const std::vector<std::string> kinds = f->kinds();
  return std::find(kinds.begin(), kinds.end(), kind) != kinds.end();
}

// Whether the fault is named; `id` is of a result of it.
void set_naming(Kill& k, const Fault& fault, const Identification& id) {
  const std::vector<Resemblance> best = named(id), without = named(id, fault.name);
  if (!without.empty()) k.without = without[0].name;
  if (!best.empty()) k.named = best[0].name;
  const auto is_fault = [&](const Resemblance& r) { return r.name == fault.name; };
  const auto own = std::find_if(id.ranked.begin(), id.ranked.end(), is_fault);
  if (!id.why_not.empty()) k.naming = Naming::not_compared;
  else if (best.empty()) k.naming = Naming::nothing;
  else if (is_fault(best[0])) k.naming = Naming::right;
  else if (std::any_of(best.begin(), best.end(), is_fault)) k.naming = Naming::tied;
  else k.naming = own != id.ranked.end() && own->correlation > kTwins ? Naming::twin : Naming::wrong;
}

// The kernel that cases of an operation are for; the layer's two go together in most cases.
std::string_view operation_of(const Problem& p) { return p.layer() ? "layer" : name(p.operation); }
// Asked of every kernel that has the operation.
bool is_basic(std::string_view operation, std::string_view profile) { return in_profile(profile, operation == "prefill" ? "core" : operation); }

// Who has caught a fault in one operation.
struct Catchers {
  std::set<std::string> basic;
  std::map<std::string, std::set<std::string>> more;             // by profile

  void add(std::string_view operation, const Family& f) { (is_basic(operation, f.profile()) ? basic : more[f.profile()]).insert(f.name()); }
  // Whether `f` catches it and nobody else that is asked of the same kernel.
  bool alone(std::string_view operation, const Family& f) const {
    if (is_basic(operation, f.profile())) return basic.size() == 1 && basic.count(f.name());
    const auto own = more.find(f.profile());
    return basic.empty() && own != more.end() && own->second.size() == 1 && own->second.count(f.name());
  }
  // Whether it still matters that `f` catches it.
  bool open(std::string_view operation, const Family& f) const {
    if (basic.size() > 1 || basic.count(f.name())) return false;
    if (is_basic(operation, f.profile())) return true;
    const auto own = more.find(f.profile());
    return basic.empty() && (own == more.end() || (own->second.size() < 2 && !own->second.count(f.name())));
  }
};

}  // namespace

PowerResult measure_power(const PowerOptions& o, const std::function<void(std::size_t, std::size_t)>& progress) {
  const auto start = std::chrono::steady_clock::now();
  PowerResult result;
  result.full = o.full;
  result.losses = o.losses;
  result.level = o.level;
  result.identified = o.identify;
  const std::vector<const Check*>& all_checks = o.checks.empty() ? checks() : o.checks;
  for (const std::string& name : o.faults) {
    const bool known = std::any_of(fault_bank().begin(), fault_bank().end(), [&](const Fault& f) { return name == f.name || name == f.kind; });
    if (!known) throw std::invalid_argument("unknown fault or kind of fault '" + name + "'");
  }
  // Level smoke is made to catch much with little, so it comes first; then small cases.
  std::vector<CaseId> ids;
  if (o.case_ids.empty()) ids = cases_of(o.level, o.seed, o.families);
  for (const std::string& id : o.case_ids) ids.push_back(parse_case_id(id));
  std::set<std::string> smoke;
  for (const CaseId& id : cases_of(Level::smoke, o.seed, o.families)) smoke.insert(id.family + ":" + to_string(id.problem));
  const auto first = [&](const CaseId& id) { return smoke.count(id.family + ":" + to_string(id.problem)) > 0; };
  std::stable_sort(ids.begin(), ids.end(), [&](const CaseId& a, const CaseId& b) {
    return first(a) != first(b) ? first(a) : a.problem.token_heads() < b.problem.token_heads();
  });

  if (o.shards > 1) ids = share_of(std::move(ids), o.shard, o.shards);

  struct Work { std::size_t fault, variant, twin; std::unique_ptr<KernelSession> session; bool done = false; std::vector<bool> tried; };
  std::vector<Work> work;
  for (const Fault& f : fault_bank()) {
    if (!o.faults.empty() && std::none_of(o.faults.begin(), o.faults.end(), [&](const std::string& n) { return n == f.name || n == f.kind; })) continue;
    FaultPower p;
    p.fault = &f;
    p.certain = is_certain(f.kind);
    for (const Form form : kForms)
      for (const FaultScalar scalar : kScalars)
        if (auto session = open_variant(f, form, scalar)) {
          work.push_back({result.faults.size(), p.variants.size(), variant_index(form, scalar), std::move(session), false, std::vector<bool>(ids.size())});
          VariantPower v;
          v.form = form;
          v.scalar = scalar;
          p.variants.push_back(v);
        }
    result.faults.push_back(std::move(p));
  }
  const Fault& none = *find_fault("none");
  std::vector<Twin> twins(4);
  for (const Form form : kForms)
    for (const FaultScalar scalar : kScalars) twins[variant_index(form, scalar)].session = open_variant(none, form, scalar);
  for (const CaseId& id : ids) {
    const Case c = make_case(id);
    PowerCase shown{case_id(c), c.family, 0};
    for (const Run& run : c.runs) shown.token_heads += run.problem.token_heads();
    result.cases.push_back(shown);
  }

  // One pass over the cases: every variant that is still to be caught and for which the case is `likely`.
  std::vector<std::map<std::string_view, Catchers>> caught(result.faults.size());   // by operation
  std::size_t passed = 0;
  const std::size_t passes = o.full ? 1 : 3;
  const auto pass = [&](auto likely) {
    for (std::size_t index = 0; index < ids.size(); ++index) {
      if (progress) progress(passed * ids.size() + index, passes * ids.size());
      std::vector<Work*> todo;
      for (Work& w : work)
        if (!w.done && !w.tried[index] && concerns(*result.faults[w.fault].fault, ids[index].problem) && likely(ids[index], *result.faults[w.fault].fault) &&
            (!o.losses || caught[w.fault][operation_of(ids[index].problem)].open(operation_of(ids[index].problem), *find_family(ids[index].family))))
          todo.push_back(&w);
      if (todo.empty()) continue;
      const Case c = make_case(ids[index]);
      const std::string id = result.cases[index].id;
      const Golden g = make_golden(c);
      std::set<std::size_t> needed;
      for (const Work* w : todo) needed.insert(w->twin);
      for (const std::size_t t : needed) {
        run_twin(all_checks, twins[t], g, c);
        const Judgement& out = twins[t].outcome;
        if (!twins[t].usable() && out.verdict != Verdict::not_supported &&
            std::none_of(result.alarms.begin(), result.alarms.end(), [&](const TwinAlarm& a) { return a.case_id == id && a.variant == twins[t].session->info().name; }))
          result.alarms.push_back({twins[t].session->info().name, id, name(out.verdict), out.check + ": " + out.message});
      }
      std::vector<Judgement> outcomes(todo.size());
      std::vector<std::vector<Execution>> executions(todo.size());
      parallel_for(static_cast<std::int64_t>(todo.size()), [&](std::int64_t at) {
        const auto i = static_cast<std::size_t>(at);
        todo[i]->tried[index] = true;
        const Twin& t = twins[todo[i]->twin];
        if (!t.usable()) return;
        try {
          std::vector<Execution> results = execute(c, *todo[i]->session);
          outcomes[i] = judge(all_checks, g, c, todo[i]->session->info(), *t.bounds, *t.certificates, *t.statistics, results, false, o.full);
          if (o.identify && outcomes[i].verdict == Verdict::failed && outcomes[i].check != "refusal") executions[i] = std::move(results);
        } catch (const std::exception& e) {
          throw std::runtime_error("power: " + todo[i]->session->info().name + " on " + id + ": " + e.what());
        }
      });
      std::vector<Identification> names(todo.size());
      if (o.identify) {
        std::vector<std::size_t> of;
        std::vector<std::unique_ptr<CheckInput>> inputs;
        std::vector<const CheckInput*> results;
        for (std::size_t i = 0; i < todo.size(); ++i) {
          if (executions[i].empty()) continue;
          const Twin& t = twins[todo[i]->twin];
          of.push_back(i);
          inputs.push_back(std::unique_ptr<CheckInput>(new CheckInput{g, c.relations, todo[i]->session->info(), executions[i], *t.bounds, *t.certificates, *t.statistics}));
          results.push_back(inputs.back().get());
        }
        std::vector<Identification> found = identify(results);
        for (std::size_t i = 0; i < of.size(); ++i) names[of[i]] = std::move(found[i]);
      }
      for (std::size_t i = 0; i < todo.size(); ++i) {
        Work& w = *todo[i];
        if (!twins[w.twin].usable()) continue;
        VariantPower& v = result.faults[w.fault].variants[w.variant];
        ++v.cases;
        const Verdict verdict = outcomes[i].verdict;
        if (verdict != Verdict::failed && verdict != Verdict::runtime_error) continue;
        Kill k;
        k.case_index = index;
        k.check = outcomes[i].check;
        if (v.kills.empty()) k.message = outcomes[i].message;
        k.others = outcomes[i].others;
        if (!executions[i].empty()) set_naming(k, *result.faults[w.fault].fault, names[i]);
        v.kills.push_back(std::move(k));
        w.done = !o.full && !o.losses;
        caught[w.fault][operation_of(c.problem)].add(operation_of(c.problem), *find_family(c.family));
      }
    }
    ++passed;
  };
  const auto any = [](const CaseId&, const Fault&) { return true; };
  if (!o.full) {
    pass([&](const CaseId& id, const Fault&) { return first(id); });
    pass([](const CaseId& id, const Fault& f) { return lists(find_family(id.family), f.kind); });
  }
  pass(any);
  if (o.harness && o.shard == 0)
    for (const HarnessFault& h : harness_faults()) result.harness.push_back({h.name, h.mechanism, h.noticed()});

  // What was not killed: is there anything to see?
  std::vector<const Work*> survivors;
  for (const Work& w : work)
    if (!result.faults[w.fault].killed()) survivors.push_back(&w);
  if (o.measure_survivors && !survivors.empty())
    for (const CaseId& id : ids) {
      const Case c = make_case(id);
      const Golden g = make_golden(c);
      std::map<std::size_t, Noise> noise;
      std::map<Form, std::vector<TensorSet>> exact;
      for (const Work* w : survivors) {
        const VariantPower& v = result.faults[w->fault].variants[w->variant];
        if (noise.count(w->twin)) continue;
        std::vector<Execution> executions;
        run_twin(all_checks, twins[w->twin], g, c, &executions);
        if (twins[w->twin].outcome.verdict == Verdict::not_supported || twins[w->twin].outcome.verdict == Verdict::runtime_error) continue;
        noise[w->twin] = noise_of(g, c, executions);
        if (!exact.count(v.form))
          for (const Run& run : c.runs) exact[v.form].push_back(run.truth ? run_fault(none, v.form, run) : TensorSet{});
      }
      parallel_for(static_cast<std::int64_t>(survivors.size()), [&](std::int64_t i) {
        const Work& w = *survivors[static_cast<std::size_t>(i)];
        FaultPower& f = result.faults[w.fault];
        if (!concerns(*f.fault, c.problem)) return;
        VariantPower& v = f.variants[w.variant];
        const auto n = noise.find(w.twin);
        if (n == noise.end()) return;
        v.measured = true;
        double snr2 = 0;
        for (std::size_t r = 0; r < c.runs.size(); ++r)
          if (c.runs[r].truth)
            add_delta(run_fault(*f.fault, v.form, c.runs[r]), exact.at(v.form)[r], n->second.sigma[r], c.runs[r].problem, snr2, v.delta);
        if (std::sqrt(snr2) > v.snr) {
          v.snr = std::sqrt(snr2);
          v.snr_case = case_id(c);
        }
      });
    }
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return result;
}

std::vector<std::size_t> greedy_cover(const PowerResult& r, const std::vector<CaseId>& given) {
  constexpr double kOverhead = 4;                  // token-heads that a case costs beside its own
  std::map<std::size_t, std::set<std::string>> killed_by;        // case -> what it catches
  std::set<std::string> open, basic;
  std::vector<std::string> operations, profiles;   // of the cases; profile empty where it is basic
  for (const PowerCase& c : r.cases) {
    operations.push_back("/" + std::string(operation_of(parse_case_id(c.id).problem)));
    const std::string profile = find_family(c.family)->profile();
    profiles.push_back(is_basic(operations.back().substr(1), profile) ? "" : "/" + profile);
  }
  for (const bool of_basic : {true, false})        // what a basic profile catches, no other need catch
    for (const FaultPower& f : r.faults)
      for (const VariantPower& v : f.variants)
        for (const Kill& k : v.kills) {
          if (profiles[k.case_index].empty() != of_basic) continue;
          const std::string what = f.fault->name + (r.full ? "/" + v.name() : "") + operations[k.case_index];
          if (of_basic) basic.insert(what);
          else if (basic.count(what)) continue;
          killed_by[k.case_index].insert(what + profiles[k.case_index]);
          open.insert(what + profiles[k.case_index]);
        }
  std::set<std::string> free;
  for (const CaseId& id : given) free.insert(case_id(id));
  for (std::size_t i = 0; i < r.cases.size(); ++i)
    if (free.count(r.cases[i].id)) {
      for (const std::string& v : killed_by[i]) open.erase(v);
      killed_by.erase(i);
    }
  const std::set<std::string> wanted = open;
  std::vector<std::size_t> chosen;
  while (!open.empty()) {
    std::size_t best = 0;
    double best_value = 0;
    for (const auto& [index, variants] : killed_by) {
      const auto fresh = std::count_if(variants.begin(), variants.end(), [&](const std::string& v) { return open.count(v) > 0; });
      const double value = static_cast<double>(fresh) / (r.cases[index].token_heads + kOverhead);
      if (value > best_value) {
        best = index;
        best_value = value;
      }
    }
    for (const std::string& v : killed_by[best]) open.erase(v);
    chosen.push_back(best);
  }
  // What later choices made needless, the most expensive first.
  std::map<std::string, std::size_t> times;
  for (const std::size_t c : chosen)
    for (const std::string& v : killed_by[c]) ++times[v];
  std::vector<std::size_t> by_size = chosen;
  std::stable_sort(by_size.begin(), by_size.end(), [&](std::size_t a, std::size_t b) { return r.cases[a].token_heads > r.cases[b].token_heads; });
  for (const std::size_t c : by_size) {
    const auto& variants = killed_by[c];
    if (std::any_of(variants.begin(), variants.end(), [&](const std::string& v) { return wanted.count(v) && times[v] < 2; })) continue;
    for (const std::string& v : variants) --times[v];
    std::erase(chosen, c);
  }
  return chosen;
}

std::vector<std::string> unproven_kinds(const PowerResult& r) {
  std::set<std::string> proven;                    // "family: kind"
  std::set<std::string> seen;
  for (const PowerCase& c : r.cases) seen.insert(c.family);
  for (const FaultPower& f : r.faults)
    for (const VariantPower& v : f.variants)
      for (const Kill& k : v.kills) proven.insert(r.cases[k.case_index].family + ": " + f.fault->kind);
  std::vector<std::string> missing;
  for (const Family* family : families()) {
    if (!seen.count(family->name())) continue;
    for (const std::string& kind : family->kinds())
      if (!proven.count(family->name() + ": " + kind)) missing.push_back(family->name() + ": " + kind);
  }
  return missing;
}

std::vector<FamilyPower> families_alone(const PowerResult& r) {
  std::map<std::string, FamilyPower> all;
  std::map<std::string, std::set<std::string_view>> operations;  // of a family
  std::vector<std::string_view> of_case;
  for (const PowerCase& c : r.cases) {
    FamilyPower& f = all[c.family];
    f.family = c.family;
    ++f.cases;
    of_case.push_back(operation_of(parse_case_id(c.id).problem));
    operations[c.family].insert(of_case.back());
  }
  for (const FaultPower& fault : r.faults) {
    std::map<std::string_view, Catchers> caught;
    std::set<std::string> families;
    for (const VariantPower& v : fault.variants)
      for (const Kill& k : v.kills) {
        const std::string& family = r.cases[k.case_index].family;
        families.insert(family);
        caught[of_case[k.case_index]].add(of_case[k.case_index], *find_family(family));
      }
    for (const std::string& family : families) {
      FamilyPower& f = all[family];
      ++f.killed;
      for (const auto& [operation, by] : caught)
        if (by.alone(operation, *find_family(family))) f.alone.push_back(std::string(fault.fault->name) + (operations[family].size() > 1 ? " in " + std::string(operation) : ""));
      if (r.full && families.size() == 1) f.anywhere.push_back(fault.fault->name);
    }
  }
  std::vector<FamilyPower> list;
  for (auto& [name, f] : all) list.push_back(std::move(f));
  return list;
}

std::vector<std::string> families_without_loss(const PowerResult& r) {
  std::vector<std::string> list;
  for (const FamilyPower& f : families_alone(r))
    if (f.alone.empty()) list.push_back(f.family);
  return list;
}

const char* name(Naming n) {
  constexpr const char* names[] = {"not compared", "right", "tied", "twin", "nothing known", "wrong"};
  return names[static_cast<int>(n)];
}

std::string smoke_text(const PowerResult& r) {
  std::string text =
      "# What level smoke runs beside the small problems of every family, which claims are tested by: the least set of cases, found greedily,\n"
      "# with which it kills every fault of the bank that level " + std::string(name(r.level)) + " kills, in each operation, and among the families of its basic profile where these do.\n"
      "# Made anew by: gdn-cts power --level " + name(r.level) + " --full --smoke suites/smoke.txt (every form and scalar); extended for new faults by --losses in place of --full\n";
  const std::vector<CaseId> own = own_cases_of(Level::smoke), all = cases_of(Level::smoke, 1);
  std::set<std::string> lines, owned;
  const auto line = [](const CaseId& id) { return id.family + " " + to_string(id.problem) + "\n"; };
  for (const CaseId& id : own) owned.insert(line(id));
  for (const CaseId& id : all)
    if (!r.full && !owned.count(line(id))) lines.insert(line(id));
  for (const std::size_t i : greedy_cover(r, r.full ? own : all)) lines.insert(line(parse_case_id(r.cases[i].id)));
  for (const std::string& l : lines) text += l;
  return text;
}

std::string power_table(const PowerResult& r) {
  std::string text;
  char line[400];
  std::map<std::string, int> by_check;
  std::map<std::string, std::set<std::string>> by_family;
  std::snprintf(line, sizeof line, "%-38s %-31s %-8s  %s\n", "fault", "kind", "killed", "by (first kill of each variant)");
  text += line;
  for (const FaultPower& f : r.faults) {
    std::size_t n = 0;
    std::map<std::string, std::string> how;        // "check at case" -> variants
    for (const VariantPower& v : f.variants) {
      n += v.killed();
      for (const Kill& k : v.kills) {
        by_family[r.cases[k.case_index].family].insert(f.fault->name);
        if (&k == &v.kills.front()) {
          ++by_check[k.check];
          how[k.check + " on " + r.cases[k.case_index].id] += (how[k.check + " on " + r.cases[k.case_index].id].empty() ? "" : ",") + v.name();
        }
      }
    }
    std::string by;
    for (const auto& [what, variants] : how) by += (by.empty() ? "" : "; ") + what;
    std::snprintf(line, sizeof line, "%-38s %-31s %zu/%zu%s  ", f.fault->name, f.fault->kind, n, f.variants.size(), f.certain ? " *" : "  ");
    text += line + (by.empty() ? std::string(f.equivalent() ? "EQUIVALENT" : unreached(f) ? "SURVIVES: changes nothing on these cases" : "SURVIVES") : by) + "\n";
    for (const VariantPower& v : f.variants)
      if (!f.killed() && v.measured && v.delta > 0)
        text += "    " + v.name() + ": SNR " + reports::short_number(v.snr) + ", delta " + reports::short_number(v.delta) + (v.snr_case.empty() ? "" : " on " + v.snr_case) + "\n";
  }
  for (const HarnessPower& h : r.harness) {
    std::snprintf(line, sizeof line, "%-38s %-31s %s *  ", h.name.c_str(), "harness", h.noticed.empty() ? "0/1" : "1/1");
    text += line + (h.noticed.empty() ? std::string("SURVIVES") : h.noticed) + "\n";
  }
  text += "\n* mask, boundary, layout or harness: must be caught whenever it changes anything\n";
  text += "variants killed first by check:";
  for (const auto& [check, n] : by_check) text += "  " + check + " " + std::to_string(n);
  text += "\nfaults killed by family:";
  for (const auto& [family, faults] : by_family) text += "  " + family + " " + std::to_string(faults.size());
  std::size_t variants = 0, variants_killed = 0;
  for (const FaultPower& f : r.faults)
    for (const VariantPower& v : f.variants) {
      ++variants;
      variants_killed += v.killed();
    }
  std::snprintf(line, sizeof line, "\nscore %.3f (%zu of %zu), mask, boundary, layout and harness %.3f (%zu of %zu), variants %zu of %zu, %zu cases, %.0f s\n", r.score(),
                r.killed(), r.counted(), r.score(true), r.killed(true), r.counted(true), variants_killed, variants, r.cases.size(), r.seconds);
  text += line;
  for (const TwinAlarm& a : r.alarms) text += "FALSE ALARM " + a.variant + " " + a.verdict + " on " + a.case_id + ": " + a.message + "\n";
  return text;
}

std::string family_table(const PowerResult& r) {
  std::string text = "without the family these faults survive in a kernel that claims its operation and profile (anywhere: in the whole suite):\n";
  char line[200];
  std::snprintf(line, sizeof line, "%-26s %6s %7s %6s %9s  %s\n", "family", "cases", "killed", "alone", "anywhere", "faults that it alone kills");
  text += line;
  for (const FamilyPower& f : families_alone(r)) {
    std::string list;
    for (std::size_t i = 0; i < f.alone.size(); ++i) list += (i ? ", " : "") + f.alone[i];
    std::snprintf(line, sizeof line, "%-26s %6zu %7zu %6zu %9s  ", f.family.c_str(), f.cases, f.killed, f.alone.size(), r.full ? std::to_string(f.anywhere.size()).c_str() : "-");
    text += line + list + "\n";
  }
  std::string idle;
  for (const std::string& f : families_without_loss(r)) idle += (idle.empty() ? "" : ", ") + f;
  return text + "families whose loss loses no fault: " + (idle.empty() ? "none" : idle) + "\n";
}

std::string naming_table(const PowerResult& r) {
  std::string text;
  char line[240];
  std::snprintf(line, sizeof line, "%-38s %8s %7s %6s %6s %8s %6s %7s  %s\n", "fault", "failing", "right", "tied", "twin", "nothing", "wrong", "named", "most often taken for");
  text += line;
  std::map<Naming, std::size_t> sum;
  std::size_t compared = 0, named = 0, faults = 0, enough = 0, left_out = 0, mistaken = 0, without_results = 0;
  double mean = 0;
  for (const FaultPower& f : r.faults) {
    std::map<Naming, std::size_t> n;
    std::map<std::string, std::size_t> others;
    for (const VariantPower& v : f.variants)
      for (const Kill& k : v.kills) {
        ++n[k.naming];
        ++sum[k.naming];
        if (k.naming == Naming::wrong) ++others[k.named];
        if (k.naming == Naming::not_compared) ++without_results;
        else ++left_out, mistaken += !k.without.empty();
      }
    if (!f.killed()) continue;
    const std::size_t all = f.compared();
    std::string most;
    std::size_t times = 0;
    for (const auto& [other, count] : others)
      if (count > times) most = other, times = count;
    if (all > 0) {
      ++faults;
      const double share = static_cast<double>(f.named()) / static_cast<double>(all);
      enough += share >= 0.9;
      mean += share;
      compared += all;
      named += f.named();
      std::snprintf(line, sizeof line, "%-38s %8zu %7zu %6zu %6zu %8zu %6zu %6.1f%%  %s\n", f.fault->name, all, n[Naming::right], n[Naming::tied], n[Naming::twin],
                    n[Naming::nothing], n[Naming::wrong], 100 * share, most.c_str());
    } else {
      std::snprintf(line, sizeof line, "%-38s        - fails without results to compare\n", f.fault->name);
    }
    text += line;
  }
  const auto percent = [](double a, double b) { return b > 0 ? 100 * a / b : 0; };
  std::snprintf(line, sizeof line, "named right, tied or as a twin: %.1f %% of %zu failing results (right %zu, tied %zu, twin %zu, nothing known %zu, wrong %zu)\n",
                percent(static_cast<double>(named), static_cast<double>(compared)), compared, sum[Naming::right], sum[Naming::tied], sum[Naming::twin], sum[Naming::nothing], sum[Naming::wrong]);
  text += line;
  std::snprintf(line, sizeof line, "mean over faults %.1f %%; at least 90 %% on %zu of %zu faults; %zu failures without results to compare\n", faults ? 100 * mean / static_cast<double>(faults) : 0.0, enough, faults, without_results);
  text += line;
  std::snprintf(line, sizeof line, "with the fault and its twins left out of the bank, nothing known: %.1f %%\n", 100 - percent(static_cast<double>(mistaken), static_cast<double>(left_out)));
  return text + line;
}

std::string power_json(const PowerResult& r) {
  using nlohmann::json;
  auto real = [](double x) { return std::isfinite(x) ? json(x) : json(std::isnan(x) ? "nan" : "inf"); };
  json j;
  j["schema"] = 3;
  j["level"] = name(r.level);
  j["score"] = r.score();
  j["score_certain"] = r.score(true);
  j["full"] = r.full;
  j["losses"] = r.losses;
  j["identified"] = r.identified;
  j["seconds"] = r.seconds;
  j["cases"] = json::array();
  for (const PowerCase& c : r.cases) j["cases"].push_back({{"id", c.id}, {"family", c.family}, {"token_heads", c.token_heads}});
  j["faults"] = json::array();
  for (const FaultPower& f : r.faults) {
    json fault{{"name", f.fault->name}, {"kind", f.fault->kind}, {"certain", f.certain}, {"killed", f.killed()}, {"equivalent", f.equivalent()},
               {"mechanism", f.fault->mechanism}, {"parameter", real(f.fault->parameter)}};
    if (r.identified) fault["compared"] = f.compared(), fault["named"] = f.named();
    fault["variants"] = json::array();
    for (const VariantPower& v : f.variants) {
      json variant{{"name", v.name()}, {"cases", v.cases}, {"snr", real(v.snr)}, {"delta", real(v.delta)}, {"snr_case", v.snr_case}, {"measured", v.measured}};
      variant["kills"] = json::array();
      for (const Kill& k : v.kills) {
        json kill{{"case", k.case_index}, {"check", k.check}};   // case: index into cases
        if (!k.message.empty()) kill["message"] = k.message;
        if (!k.others.empty()) kill["others"] = k.others;
        if (k.naming != Naming::not_compared) kill["naming"] = name(k.naming), kill["named"] = k.named, kill["without"] = k.without;
        variant["kills"].push_back(std::move(kill));
      }
      fault["variants"].push_back(std::move(variant));
    }
    j["faults"].push_back(std::move(fault));
  }
  j["harness"] = json::array();
  for (const HarnessPower& h : r.harness) j["harness"].push_back({{"name", h.name}, {"mechanism", h.mechanism}, {"noticed", h.noticed}});
  j["alarms"] = json::array();
  for (const TwinAlarm& a : r.alarms) j["alarms"].push_back({{"variant", a.variant}, {"case", a.case_id}, {"verdict", a.verdict}, {"message", a.message}});
  if (r.full) {
    j["cover"] = json::array();
    for (const std::size_t c : greedy_cover(r)) j["cover"].push_back(r.cases[c].id);
    j["families"] = json::array();
    for (const FamilyPower& f : families_alone(r))
      j["families"].push_back({{"family", f.family}, {"cases", f.cases}, {"killed", f.killed}, {"alone", f.alone}, {"anywhere", f.anywhere}});
  }
  return j.dump() + "\n";
}

void add_power_json(PowerResult& r, const std::string& text) {
  using nlohmann::json;
  const auto real = [](const json& x) {
    return x.is_number() ? x.get<double>() : x == "inf" ? std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
  };
  try {
    const json j = json::parse(text);
    if (j.at("schema") != 3) throw std::invalid_argument("written by another version");
    r.level = parse_level(j.at("level").get<std::string>());
    r.full = j.at("full");
    r.losses = j.at("losses");
    r.identified = j.at("identified");
    r.seconds += j.at("seconds").get<double>();
    const std::size_t before = r.cases.size();
    for (const json& c : j.at("cases")) r.cases.push_back({c.at("id"), c.at("family"), c.at("token_heads")});
    for (const json& f : j.at("faults")) {
      const Fault* fault = find_fault(f.at("name").get<std::string>());
      if (!fault) throw std::invalid_argument("fault '" + f.at("name").get<std::string>() + "' is not in the bank");
      auto at = std::find_if(r.faults.begin(), r.faults.end(), [&](const FaultPower& x) { return x.fault == fault; });
      if (at == r.faults.end()) {
        r.faults.push_back({fault, is_certain(fault->kind), {}});
        at = r.faults.end() - 1;
        for (const Form form : kForms)
          for (const FaultScalar scalar : kScalars)
            if (fault->has(form)) {
              at->variants.emplace_back();
              at->variants.back().form = form;
              at->variants.back().scalar = scalar;
            }
      }
      for (const json& x : f.at("variants")) {
        const auto v = std::find_if(at->variants.begin(), at->variants.end(), [&](const VariantPower& y) { return y.name() == x.at("name").get<std::string>(); });
        if (v == at->variants.end()) throw std::invalid_argument("fault '" + std::string(fault->name) + "' has no variant " + x.at("name").get<std::string>());
        v->cases += x.at("cases").get<std::size_t>();
        v->measured = v->measured || x.at("measured").get<bool>();
        v->delta = std::max(v->delta, real(x.at("delta")));
        if (real(x.at("snr")) > v->snr) {
          v->snr = real(x.at("snr"));
          v->snr_case = x.at("snr_case");
        }
        for (const json& y : x.at("kills")) {
          Kill k;
          k.case_index = before + y.at("case").get<std::size_t>();
          if (k.case_index >= r.cases.size()) throw std::invalid_argument("a kill of a case that is not there");
          k.check = y.at("check");
          k.message = y.value("message", "");
          k.others = y.value("others", std::vector<std::string>{});
          k.named = y.value("named", "");
          k.without = y.value("without", "");
          for (int n = 0; n <= static_cast<int>(Naming::wrong); ++n)
            if (y.value("naming", "not compared") == name(static_cast<Naming>(n))) k.naming = static_cast<Naming>(n);
          v->kills.push_back(std::move(k));
        }
      }
    }
    for (const json& h : j.at("harness")) r.harness.push_back({h.at("name"), h.at("mechanism"), h.at("noticed")});
    for (const json& a : j.at("alarms")) r.alarms.push_back({a.at("variant"), a.at("case"), a.at("verdict"), a.at("message")});
  } catch (const json::exception& e) {
    throw std::invalid_argument(std::string("not the JSON of gdn-cts power: ") + e.what());
  }
}

std::string power_page(const PowerResult& r) {
  using reports::xml_escape;
  char text[400];
  std::string s = "<p class=\"dim\">GDN-CTS, the suite's own power</p>\n<h1>Known faults at level " + std::string(name(r.level)) + "</h1>\n";
  std::snprintf(text, sizeof text, "<div class=\"banner%s\">%zu of %zu faults caught (score %.3f); of those that must be caught %zu of %zu</div>\n",
                r.killed() == r.counted() && r.alarms.empty() ? "" : " fail", r.killed(), r.counted(), r.score(), r.killed(true), r.counted(true));
  s += text;
  for (const TwinAlarm& a : r.alarms) s += "<p class=\"fail\">False alarm: " + xml_escape(a.variant + " " + a.verdict + " on " + a.case_id + ": " + a.message) + "</p>\n";
  std::vector<std::string> families;
  for (const PowerCase& c : r.cases) families.push_back(c.family);
  std::sort(families.begin(), families.end());
  families.erase(std::unique(families.begin(), families.end()), families.end());
  std::vector<std::string> letters;
  for (const Check* c : checks()) letters.push_back(c->name());
  for (const char* own : {"refusal", "runtime"}) letters.push_back(own);
  s += "<h2>Faults and families</h2>\n<p>A cell holds the first letters of the checks that catch the fault in the family";
  s += r.full ? ", on any of its cases" : "; a fault stops at its first catch, so that other cells are empty without meaning";
  s += ":";
  for (const std::string& l : letters)
    if (l != "anti_vacuity") s += " <b>" + l.substr(0, 3) + "</b>" + l.substr(3);
  s += "</p>\n<div class=\"scroll\"><table class=\"sortable\"><thead><tr><th>fault</th><th>kind</th><th>caught</th>";
  if (r.identified) s += "<th class=\"n\">named</th>";
  for (const std::string& f : families) s += "<th>" + xml_escape(f) + "</th>";
  s += "</tr></thead><tbody>\n";
  for (const FaultPower& f : r.faults) {
    std::map<std::string, std::set<std::string>> cells;
    std::size_t n = 0;
    for (const VariantPower& v : f.variants) {
      n += v.killed();
      for (const Kill& k : v.kills) {
        std::set<std::string>& cell = cells[r.cases[k.case_index].family];
        cell.insert(k.check);
        cell.insert(k.others.begin(), k.others.end());
      }
    }
    s += "<tr><th title=\"" + xml_escape(f.fault->mechanism) + "\">" + xml_escape(f.fault->name) + "</th><td>" + xml_escape(f.fault->kind) + (f.certain ? " *" : "") + "</td>";
    std::snprintf(text, sizeof text, "<td class=\"%s\">%zu/%zu%s</td>", f.killed() ? "pass" : f.equivalent() ? "warn" : "fail", n, f.variants.size(), f.equivalent() ? " equivalent" : "");
    s += text;
    if (r.identified) {
      const double share = f.compared() ? static_cast<double>(f.named()) / static_cast<double>(f.compared()) : 0;
      std::snprintf(text, sizeof text, "<td class=\"n %s\" data-k=\"%.4f\">%s</td>", share >= 0.9 ? "pass" : "warn", share, f.compared() ? (reports::short_number(100 * share) + "%").c_str() : "-");
      s += text;
    }
    for (const std::string& family : families) {
      std::string cell;
      for (const std::string& check : letters)
        if (cells[family].count(check)) cell += (cell.empty() ? "" : " ") + check.substr(0, 3);
      s += cell.empty() ? "<td></td>" : "<td class=\"cpass\">" + cell + "</td>";
    }
    s += "</tr>\n";
  }
  s += "</tbody></table></div>\n<p class=\"dim\">* must be caught whenever it changes anything. Point at a fault to read what it does.</p>\n";
  if (!r.harness.empty()) {
    s += "<h2>Faults of the suite itself</h2>\n<div class=\"scroll\"><table><thead><tr><th>fault</th><th>what it does</th><th>noticed by</th></tr></thead><tbody>\n";
    for (const HarnessPower& h : r.harness)
      s += "<tr><th>" + xml_escape(h.name) + "</th><td>" + xml_escape(h.mechanism) + "</td><td class=\"" + (h.noticed.empty() ? "fail\">nothing" : "pass\">" + xml_escape(h.noticed)) + "</td></tr>\n";
    s += "</tbody></table></div>\n";
  }
  if (r.full) {
    s += "<h2>Without a family</h2>\n<div class=\"scroll\"><table class=\"sortable\"><thead><tr><th>family</th><th class=\"n\">cases</th><th class=\"n\">faults caught</th>"
         "<th class=\"n\">by it alone</th><th class=\"n\">in the whole suite</th><th>faults that survive without it in a kernel that claims its operation and profile</th></tr></thead><tbody>\n";
    for (const FamilyPower& f : families_alone(r)) {
      std::string list;
      for (const std::string& fault : f.alone) list += (list.empty() ? "" : ", ") + fault;
      std::snprintf(text, sizeof text, "</th><td class=\"n\">%zu</td><td class=\"n\">%zu</td><td class=\"n\">%zu</td><td class=\"n\">%zu</td><td>", f.cases, f.killed, f.alone.size(), f.anywhere.size());
      s += "<tr><th>" + xml_escape(f.family) + text + xml_escape(list) + "</td></tr>\n";
    }
    s += "</tbody></table></div>\n<h2>Least set of cases with the same catches</h2>\n<pre>";
    for (const std::size_t c : greedy_cover(r)) s += xml_escape(r.cases[c].id) + "\n";
    s += "</pre>\n";
  }
  return reports::html_page("GDN-CTS: power at level " + std::string(name(r.level)), s);
}

}  // namespace gdn
