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
#include "suites/check.h"
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
};

// The first check that fails. Checks see the shared bounds; anti-vacuity depends on the case alone and is left to the twin.
Judgement judge(const std::vector<const Check*>& all, const Golden& g, const Case& c, const KernelInfo& info, const Bounds& bounds,
                const Certificates& certificates, const Statistics& statistics, const std::vector<Execution>& executions, bool twin) {
  for (std::size_t i = 0; i < executions.size(); ++i) {
    const Execution& e = executions[i];
    const auto v = verdict_of(c.runs[i], e);
    if (!v) continue;
    if (*v == Verdict::failed) return {*v, "refusal", "carried out although it has to be refused"};
    return {e.outcome == Outcome::timeout ? Verdict::runtime_error : *v, *v == Verdict::runtime_error ? "runtime" : "", e.message};
  }
  const CheckInput in{g, c.relations, info, executions, bounds, certificates, statistics};
  bool decided = false;
  for (const Check* check : all) {
    if (!twin && check->name() == "anti_vacuity") continue;
    CheckResult r;
    try {
      r = check->run(in);
    } catch (const std::exception& e) {            // a defect of the suite, as in the runner
      return {Verdict::mistrusted, check->name(), e.what()};
    }
    if (r.status == CheckStatus::failed) return {Verdict::failed, r.check, r.message};
    if (r.status == CheckStatus::mistrusted) return {Verdict::mistrusted, r.check, r.message};
    decided = decided || (r.status == CheckStatus::passed && r.judged > 0 && check->order() > 20);
  }
  return {decided ? Verdict::passed : Verdict::untested, "", decided ? "" : "no check decided this case"};
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
      const std::int64_t V = c.runs[i].problem.value_dim, rows = static_cast<std::int64_t>(truth->second.hi.size()) / V;
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

std::string number(double x) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g", x);
  return text;
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

std::size_t PowerResult::killed(bool certain_only) const {
  return static_cast<std::size_t>(std::count_if(faults.begin(), faults.end(), [&](const FaultPower& f) { return f.killed() && (f.certain || !certain_only); }));
}
std::size_t PowerResult::counted(bool certain_only) const {
  return static_cast<std::size_t>(std::count_if(faults.begin(), faults.end(), [&](const FaultPower& f) { return !f.equivalent() && (f.certain || !certain_only); }));
}
double PowerResult::score(bool certain_only) const {
  const std::size_t n = counted(certain_only);
  return n ? static_cast<double>(killed(certain_only)) / static_cast<double>(n) : 1;
}

PowerResult measure_power(const PowerOptions& o, const std::function<void(std::size_t, std::size_t)>& progress) {
  const auto start = std::chrono::steady_clock::now();
  PowerResult result;
  result.full = o.full;
  const std::vector<const Check*>& all_checks = o.checks.empty() ? checks() : o.checks;
  for (const std::string& name : o.faults) {
    const bool known = std::any_of(fault_bank().begin(), fault_bank().end(), [&](const Fault& f) { return name == f.name || name == f.kind; });
    if (!known) throw std::invalid_argument("unknown fault or kind of fault '" + name + "'");
  }
  // Small cases first: most faults die on them.
  std::vector<CaseId> ids;
  if (o.case_ids.empty()) ids = cases_of(o.level, o.seed, o.families);
  for (const std::string& id : o.case_ids) ids.push_back(parse_case_id(id));
  std::stable_sort(ids.begin(), ids.end(), [](const CaseId& a, const CaseId& b) { return a.problem.token_heads() < b.problem.token_heads(); });

  struct Work { std::size_t fault, variant, twin; std::unique_ptr<KernelSession> session; std::set<std::string> done; };
  std::vector<Work> work;
  for (const Fault& f : fault_bank()) {
    if (!o.faults.empty() && std::none_of(o.faults.begin(), o.faults.end(), [&](const std::string& n) { return n == f.name || n == f.kind; })) continue;
    FaultPower p;
    p.fault = &f;
    p.certain = is_certain(f.kind);
    for (const Form form : kForms)
      for (const FaultScalar scalar : kScalars)
        if (auto session = open_variant(f, form, scalar)) {
          work.push_back({result.faults.size(), p.variants.size(), variant_index(form, scalar), std::move(session), {}});
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

  for (std::size_t index = 0; index < ids.size(); ++index) {
    const Case c = make_case(ids[index]);
    PowerCase shown{case_id(c), c.family, 0};
    for (const Run& run : c.runs) shown.token_heads += run.problem.token_heads();
    result.cases.push_back(shown);
    std::vector<Work*> todo;
    for (Work& w : work)
      if (!w.done.count(o.full ? c.family : "")) todo.push_back(&w);
    if (!todo.empty()) {
      const Golden g = make_golden(c);
      std::set<std::size_t> needed;
      for (const Work* w : todo) needed.insert(w->twin);
      for (const std::size_t t : needed) {
        run_twin(all_checks, twins[t], g, c);
        const Judgement& out = twins[t].outcome;
        if (!twins[t].usable() && out.verdict != Verdict::not_supported)
          result.alarms.push_back({twins[t].session->info().name, shown.id, name(out.verdict), out.check + ": " + out.message});
      }
      std::vector<Judgement> outcomes(todo.size());
      parallel_for(static_cast<std::int64_t>(todo.size()), [&](std::int64_t at) {
        const auto i = static_cast<std::size_t>(at);
        const Twin& t = twins[todo[i]->twin];
        if (!t.usable()) return;
        try {
          outcomes[i] = judge(all_checks, g, c, todo[i]->session->info(), *t.bounds, *t.certificates, *t.statistics, execute(c, *todo[i]->session), false);
        } catch (const std::exception& e) {
          throw std::runtime_error("power: " + todo[i]->session->info().name + " on " + shown.id + ": " + e.what());
        }
      });
      for (std::size_t i = 0; i < todo.size(); ++i) {
        Work& w = *todo[i];
        if (!twins[w.twin].usable()) continue;
        VariantPower& v = result.faults[w.fault].variants[w.variant];
        ++v.cases;
        const Verdict verdict = outcomes[i].verdict;
        if (verdict != Verdict::failed && verdict != Verdict::runtime_error) continue;
        v.kills.push_back({index, outcomes[i].check, outcomes[i].message});
        w.done.insert(o.full ? c.family : "");
      }
    }
    if (progress) progress(index + 1, ids.size());
  }

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

std::vector<std::size_t> greedy_cover(const PowerResult& r) {
  std::map<std::size_t, std::set<std::size_t>> killed_by;        // case -> faults
  std::set<std::size_t> open;
  for (std::size_t f = 0; f < r.faults.size(); ++f)
    for (const VariantPower& v : r.faults[f].variants)
      for (const Kill& k : v.kills) {
        killed_by[k.case_index].insert(f);
        open.insert(f);
      }
  std::vector<std::size_t> chosen;
  while (!open.empty()) {
    std::size_t best = 0;
    double best_value = -1;
    for (const auto& [index, faults] : killed_by) {
      const auto fresh = std::count_if(faults.begin(), faults.end(), [&](std::size_t f) { return open.count(f) > 0; });
      const double value = static_cast<double>(fresh) / (r.cases[index].token_heads + 1);
      if (fresh > 0 && value > best_value) {
        best = index;
        best_value = value;
      }
    }
    for (const std::size_t f : killed_by[best]) open.erase(f);
    chosen.push_back(best);
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
        text += "    " + v.name() + ": SNR " + number(v.snr) + ", delta " + number(v.delta) + (v.snr_case.empty() ? "" : " on " + v.snr_case) + "\n";
  }
  text += "\n* mask, boundary or layout: must be caught whenever it changes anything\n";
  text += "variants killed by check:";
  for (const auto& [check, n] : by_check) text += "  " + check + " " + std::to_string(n);
  text += "\nfaults killed by family:";
  for (const auto& [family, faults] : by_family) text += "  " + family + " " + std::to_string(faults.size());
  std::size_t variants = 0, variants_killed = 0;
  for (const FaultPower& f : r.faults)
    for (const VariantPower& v : f.variants) {
      ++variants;
      variants_killed += v.killed();
    }
  std::snprintf(line, sizeof line, "\nscore %.3f (%zu of %zu), mask, boundary and layout %.3f (%zu of %zu), variants %zu of %zu, %zu cases, %.0f s\n", r.score(),
                r.killed(), r.counted(), r.score(true), r.killed(true), r.counted(true), variants_killed, variants, r.cases.size(), r.seconds);
  text += line;
  for (const TwinAlarm& a : r.alarms) text += "FALSE ALARM " + a.variant + " " + a.verdict + " on " + a.case_id + ": " + a.message + "\n";
  return text;
}

std::string power_json(const PowerResult& r) {
  using nlohmann::json;
  auto real = [](double x) { return std::isfinite(x) ? json(x) : json(std::isnan(x) ? "nan" : "inf"); };
  json j;
  j["schema"] = 1;
  j["score"] = r.score();
  j["score_certain"] = r.score(true);
  j["full"] = r.full;
  j["seconds"] = r.seconds;
  j["cases"] = json::array();
  for (const PowerCase& c : r.cases) j["cases"].push_back({{"id", c.id}, {"family", c.family}, {"token_heads", c.token_heads}});
  j["faults"] = json::array();
  for (const FaultPower& f : r.faults) {
    json fault{{"name", f.fault->name}, {"kind", f.fault->kind}, {"certain", f.certain}, {"killed", f.killed()}, {"equivalent", f.equivalent()},
               {"mechanism", f.fault->mechanism}, {"parameter", real(f.fault->parameter)}};
    fault["variants"] = json::array();
    for (const VariantPower& v : f.variants) {
      json variant{{"name", v.name()}, {"cases", v.cases}, {"snr", real(v.snr)}, {"delta", real(v.delta)}, {"snr_case", v.snr_case}};
      variant["kills"] = json::array();
      for (const Kill& k : v.kills) variant["kills"].push_back({{"case", r.cases[k.case_index].id}, {"check", k.check}, {"message", k.message}});
      fault["variants"].push_back(std::move(variant));
    }
    j["faults"].push_back(std::move(fault));
  }
  j["alarms"] = json::array();
  for (const TwinAlarm& a : r.alarms) j["alarms"].push_back({{"variant", a.variant}, {"case", a.case_id}, {"verdict", a.verdict}, {"message", a.message}});
  j["cover"] = json::array();
  for (const std::size_t c : greedy_cover(r)) j["cover"].push_back(r.cases[c].id);
  return j.dump(1) + "\n";
}

}  // namespace gdn
