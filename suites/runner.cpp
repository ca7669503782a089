// The runner; see runner.h. The rule of a gate is written in suites/README.md.
#include "suites/runner.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstdio>
#include <iterator>
#include <map>
#include <mutex>
#include <numeric>
#include <optional>
#include <set>
#include <stdexcept>
#include <utility>

#include "golden/manifest.h"
#include "golden/stream.h"
#include "kernels/faulty/faults.h"
#include "reference/near_name.h"
#include "reference/parallel.h"
#include "reference/standard.h"
#include "suites/features.h"
#include "suites/identify.h"

namespace gdn {
namespace {

// The kernel's sessions. Cases are given one in their order, whoever is ready first: what a single session sees does not
// depend on how many threads make expected results and judge.
class Turns {
 public:
  explicit Turns(std::vector<KernelSession*> sessions) : free_(std::move(sessions)) {}

  // One case, by its place in the order; passes its turn on however it ends.
  class Turn {
   public:
    Turn(Turns& all, std::size_t place) : all_(all), place_(place) {}
    ~Turn() { done(); }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;
    KernelSession& wait() {
      session_ = all_.take(place_);
      return *session_;
    }
    void done() {
      if (!std::exchange(done_, true)) all_.pass(place_, session_);
    }

   private:
    Turns& all_;
    std::size_t place_;
    KernelSession* session_ = nullptr;
    bool done_ = false;
  };

 private:
  KernelSession* take(std::size_t place) {
    std::unique_lock held(mutex_);
    change_.wait(held, [&] { return next_ == place && !free_.empty(); });
    KernelSession* session = free_.back();
    free_.pop_back();
    passed_.insert(place);
    advance();
    return session;
  }
  void pass(std::size_t place, KernelSession* session) {
    const std::lock_guard held(mutex_);
    if (session) free_.push_back(session);
    else passed_.insert(place);
    advance();
  }
  void advance() {
    while (passed_.erase(next_)) ++next_;
    change_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable change_;
  std::vector<KernelSession*> free_;
  std::set<std::size_t> passed_;                   // got a session or ended without, while one before them is still to come
  std::size_t next_ = 0;
};

using Clock = std::chrono::steady_clock;
double since(Clock::time_point t) { return std::chrono::duration<double>(Clock::now() - t).count(); }

std::string print(const char* format, double x) {
  char text[64];
  std::snprintf(text, sizeof text, format, x);
  return text;
}

std::string hex_bits(std::uint64_t bits, DType t) {
  char text[32];
  std::snprintf(text, sizeof text, "0x%0*llx", static_cast<int>(2 * size_of(t)), static_cast<unsigned long long>(bits));
  return text;
}

RecordElement element(const Finding& f) {
  RecordElement e;
  e.run = f.where.run_name;
  e.tensor = f.where.tensor;
  e.place = to_string(f.where);
  e.got_bits = hex_bits(f.got_bits, f.dtype);
  e.got_hex = print("%a", f.got);
  e.got = print("%.9g", f.got);
  Tensor expected(f.dtype, {1});
  expected.set_bits(0, f.expected_bits);
  e.expected_bits = hex_bits(f.expected_bits, f.dtype);
  e.expected_hex = print("%a", expected.at(0));
  e.expected = print("%.9g", expected.at(0));
  e.exact = print("%.17g", f.expected_hi) + (f.expected_lo == 0 ? "" : print(" %+.9g", f.expected_lo));
  e.error = (f.got - f.expected_hi) - f.expected_lo;
  e.error_ulp = f.error_ulp;
  e.bound = f.bound;
  e.ratio = f.ratio;
  e.detail = f.detail;
  return e;
}

const char* name(CheckStatus s) {
  switch (s) {
    case CheckStatus::passed: return "PASSED";
    case CheckStatus::failed: return "FAILED";
    case CheckStatus::mistrusted: return "MISTRUSTED";
    case CheckStatus::not_applicable: return "NOT_APPLICABLE";
  }
  return "";
}

Record blank(const Golden& g, const KernelInfo& info) {
  Record r;
  const Case& c = g.the_case;
  r.kernel = info.name;
  r.kernel_version = info.version;
  r.how = info.how;
  r.contract = to_string(info.contract);
  r.convention = to_string(info.convention);
  r.module = info.module;
  r.device = info.device;
  r.packages = info.packages;
  r.case_id = case_id(c);
  r.family = c.family;
  if (const Family* f = find_family(c.family)) r.profile = f->profile();
  r.problem = to_string(c.problem);
  r.seed = c.seed;
  for (const Run& run : c.runs) r.token_heads += run.problem.token_heads();
  r.repro = "gdn-cts verify " + info.how + " --case '" + r.case_id + "'";
  r.suite_version = kSuiteVersion;
  r.edition = g.edition;
  r.golden_hash = g.content();
  return r;
}

void set(Record& r, Verdict v, const std::string& reason) {
  r.verdict = name(v);
  r.reason = reason;
}

// Soundness and anti-vacuity only clear the way; these decide.
bool decides(const CheckResult& c) {
  return c.check != "soundness" && c.check != "anti_vacuity" && c.status == CheckStatus::passed && c.judged > 0;
}

CheckInput check_input(const Golden& g, const std::vector<Relation>& relations, const KernelInfo& info, const std::vector<Execution>& executions, const JudgeOptions& o) {
  return {g, relations, info, executions, {g.the_case, info.contract}, {g.the_case, info.contract}, {g, info.contract, o.null_cache}};
}

// Compares the results of a case that FAILED with the fault bank, once its record is made.
void name_the_fault(Record& r, const Golden& g, const std::vector<Relation>& relations, const KernelInfo& info, const std::vector<Execution>& executions, const JudgeOptions& o) {
  const Clock::time_point start = Clock::now();
  try {
    r.resembles = resembles(check_input(g, relations, info, executions, o));
  } catch (const std::exception& e) {              // names nothing, but the verdict stands
    r.resembles = std::string("not compared: ") + e.what();
  }
  r.check_seconds += since(start);
}

// Failed by a check, and so by numbers that can be compared with those of faults.
bool nameable(const Record& r) {
  return r.verdict == name(Verdict::failed) && std::any_of(r.checks.begin(), r.checks.end(), [](const RecordCheck& c) { return c.status == name(CheckStatus::failed); });
}

void judge_into(Record& r, const Golden& g, const std::vector<Relation>& relations, const KernelInfo& info,
                const std::vector<Execution>& executions, const JudgeOptions& o) {
  const auto start = Clock::now();
  const CheckInput in = check_input(g, relations, info, executions, o);
  bool decided = false;
  std::string broken;
  const CheckResult* failed = nullptr;
  const CheckResult* mistrusted = nullptr;
  std::vector<CheckResult> results;
  results.reserve(checks().size());
  for (const Check* check : checks()) {
    try {
      results.push_back(check->run(in));
    } catch (const std::exception& e) {            // a defect of the suite: neither a pass nor the kernel's failure
      CheckResult defect;
      defect.check = check->name();
      defect.clause = check->clause();
      defect.status = CheckStatus::mistrusted;
      defect.message = std::string("the check itself failed: ") + e.what();
      broken = check->name() + ": " + defect.message;
      results.push_back(defect);
    }
    const CheckResult& c = results.back();
    decided = decided || decides(c);
    if (c.status == CheckStatus::failed && !failed) failed = &c;
    if (c.status == CheckStatus::mistrusted && !mistrusted) mistrusted = &c;
  }
  for (const CheckResult& c : results) {
    RecordCheck rc;
    rc.check = c.check;
    rc.status = name(c.status);
    rc.clause = c.clause;
    rc.message = c.message;
    if (c.worst) rc.worst = element(*c.worst);
    rc.judged = c.judged;
    rc.vacuous = c.vacuous;
    rc.failing = c.failing;
    rc.spread = c.spread;
    rc.metrics = c.metrics;
    rc.maps = c.maps;
    if (c.check == "bound") r.metrics.insert(c.metrics.begin(), c.metrics.end());
    if (c.status == CheckStatus::failed && c.first && c.first->chunk >= 0 && r.first_bad_chunk.empty()) r.first_bad_chunk = std::to_string(c.first->chunk);
    r.checks.push_back(std::move(rc));
  }
  if (!broken.empty()) set(r, Verdict::mistrusted, broken);
  else if (failed) set(r, Verdict::failed, failed->check + " (clause " + failed->clause + "): " + failed->message);
  else if (mistrusted) set(r, Verdict::mistrusted, mistrusted->check + " (clause " + mistrusted->clause + "): " + mistrusted->message);
  else if (!decided) set(r, Verdict::untested, "no check decided this case");
  else set(r, Verdict::passed, "");
  r.check_seconds = since(start);
}

// Whether its dtypes and sizes exempt a NOT_SUPPORTED record. Where the problem is declared a run of the case may still not be.
bool exempt(const Record& r, const Problem& p, const KernelInfo& kernel) {
  if (!exemption(p, kernel).empty()) return true;
  return find_family(r.family) && !exemption(make_case({r.family, p, r.seed}), kernel).empty();
}

// Whether two runs ask the same: cuts between calls, and whether a layer is decoded, change nothing in what is true (1.2, 12.4).
bool same_question(const Run& a, const Run& b) {
  const auto plain = [](Problem p) {
    p.split.clear();
    if (p.layer()) p.operation = Operation::layer_prefill;
    return p;
  };
  return plain(a.problem) == plain(b.problem) && a.inputs == b.inputs;
}

}  // namespace

Golden make_golden(const Case& c) {
  Golden g;
  g.the_case = c;
  g.edition = kAccuracyEdition;
  std::vector<OracleStats> stats(c.runs.size());
  for (std::size_t i = 0; i < c.runs.size(); ++i) {
    const Run& run = c.runs[i];
    std::size_t known = 0;                         // a run before it that asks the same
    while (known < i && !(run.truth && c.runs[known].truth && same_question(run, c.runs[known]))) ++known;
    if (!run.truth) g.truths.emplace_back();
    else if (known < i) g.truths.push_back(g.truths[known]), stats[i] = stats[known];
    else g.truths.push_back(oracle(run, &stats[i]));
    g.stats += stats[i];
  }
  return g;
}

Golden obtain_golden(const Case& c, const std::filesystem::path& cache, const std::function<void(const std::string&)>& note) {
  if (cache.empty()) return make_golden(c);
  const std::filesystem::path file = cache / (file_stem(case_id(c)) + ".h5");
  if (std::filesystem::exists(file)) {
    std::string why;
    try {
      GoldenReader stored(file);
      if (stored.edition() != kAccuracyEdition) why = "made for edition " + stored.edition() + " of the accuracy standard, this is " + kAccuracyEdition;
      else if (!stored.asks(c)) why = "its inputs are not those the family makes now";
      else {
        Golden g{c, {}, stored.edition(), stored.stats(), stored.content_hash()};
        for (std::size_t i = 0; i < c.runs.size(); ++i) g.truths.push_back(stored.truth(i));
        return g;
      }
    } catch (const BadInput& e) {
      why = e.what();
    }
    if (note) note("golden " + file.string() + " is stale and made again: " + why);
  }
  Golden g = make_golden(c);
  write_golden(cache, g, &g.hash);
  return g;
}

Record judge_results(const Golden& g, const Case& c, const KernelInfo& info, const std::vector<Execution>& executions, const JudgeOptions& o) {
  Record r = blank(g, info);
  if (executions.size() != c.runs.size()) {
    set(r, Verdict::untested, "results of " + std::to_string(executions.size()) + " runs for a case of " + std::to_string(c.runs.size()));
    return r;
  }
  for (std::size_t i = 0; i < executions.size(); ++i) {
    const Execution& e = executions[i];
    r.kernel_seconds += e.seconds;
    if (!r.verdict.empty()) continue;
    const auto v = verdict_of(c.runs[i], e);
    // That nothing was refused is all that there is to see of it.
    if (v && *v == Verdict::failed) r.resembles = std::string("positive_gate_accepted: ") + find_fault("positive_gate_accepted")->mechanism;
    if (v)
      set(r, *v, *v == Verdict::passed ? "" : "run '" + c.runs[i].name + "': " + (*v == Verdict::failed ? "carried out although it has to be refused (clause 1.3)" : e.message));
  }
  if (r.verdict.empty()) judge_into(r, g, c.relations, info, executions, o);
  if (o.name_fault && nameable(r)) name_the_fault(r, g, c.relations, info, executions, o);
  return r;
}

namespace {

// Runs the case as far as it goes: after a run that is not ok the others are left out.
std::vector<Execution> execute(const Case& c, KernelSession& kernel) {
  std::vector<Execution> executions;
  for (const Run& run : c.runs) {
    Execution e;
    e.message = unsupported_reason(kernel.info().capabilities, kernel.info().contract, run);
    if (!e.message.empty()) e.outcome = Outcome::not_supported;
    else e = kernel.run(run, case_id(c));
    const bool ok = e.outcome == Outcome::ok;
    executions.push_back(std::move(e));
    if (!ok) break;
  }
  executions.resize(c.runs.size());
  return executions;
}

// Of a case that is not asked: no truth is made, and what must be refused is not refused.
Record not_asked(const Case& c, const KernelInfo& info, const std::string& reason) {
  Golden none;
  none.the_case = c;
  none.edition = kAccuracyEdition;
  Record r = blank(none, info);
  r.golden_hash.clear();
  set(r, Verdict::not_supported, reason);
  return r;
}

std::string reason_against(const Case& c, const KernelInfo& info) {
  for (const Run& run : c.runs)
    if (std::string reason = unsupported_reason(info.capabilities, info.contract, run); !reason.empty()) return reason;
  return {};
}

}  // namespace

Record judge_case(const Golden& g, const Case& c, KernelSession& kernel, const JudgeOptions& o) {
  for (const Run& run : c.runs)
    if (std::string reason = unsupported_reason(kernel.info().capabilities, kernel.info().contract, run); run.refuse && !reason.empty()) return not_asked(c, kernel.info(), reason);
  const std::vector<Execution> executions = execute(c, kernel);
  return judge_results(g, c, kernel.info(), executions, o);
}

std::vector<std::string> objections(const GateOptions& o, const KernelInfo& kernel, const std::vector<Record>& records) {
  std::vector<std::string> list;
  const bool narrowed = !o.families.empty() || (!o.case_ids.empty() && !o.given);
  const auto claims = [&](const std::string& profile) { return std::any_of(o.profiles.begin(), o.profiles.end(), [&](const std::string& p) { return in_profile(profile, p); }); };
  struct Shown { std::set<std::string> wanted, passed; std::size_t cases = 0, passes = 0, exempt = 0, waived = 0; };
  std::map<std::string, Shown> required;
  if (!narrowed && !o.given && o.shards < 2)       // a shard has what it has
    for (const CaseId& id : cases_of(o.level, o.seed))
      if (claims(find_family(id.family)->profile())) required[id.family];
  for (const Record& r : records) {
    const bool claimed = narrowed || claims(r.profile);
    const Problem p = parse_problem(r.problem);
    if (claimed) {
      Shown& s = required[r.family];
      const bool left_out = !r.waived.empty() || (r.verdict == "NOT_SUPPORTED" && exempt(r, p, kernel));
      ++s.cases;
      s.exempt += left_out;
      s.waived += !r.waived.empty();
      if (!left_out) s.wanted.merge(features(p));  // fitted problems show what exempt ones would have, where they can
      if (r.verdict == "PASSED") {
        s.passed.merge(features(p));
        ++s.passes;
      }
    }
    const bool wrong = r.verdict == "FAILED" || r.verdict == "RUNTIME_ERROR" || r.verdict == "TIMEOUT";
    if (r.verdict == "PASSED" || !r.waived.empty()) continue;
    if (r.verdict == "NOT_SUPPORTED") {
      // Dtypes and sizes that the kernel does not declare are its own choice; everything else belongs to the profile.
      if (claimed && !exempt(r, p, kernel))
        list.push_back(r.case_id + " is NOT_SUPPORTED, which profile " + r.profile + " does not exempt: " + r.reason);
    } else if (wrong || claimed) {
      list.push_back(r.case_id + " is " + r.verdict + ": " + r.reason);
    }
  }
  for (const auto& [family, s] : required) {
    // Exempt altogether although problems were fitted: the convention cannot express what the family needs.
    if (!narrowed && s.cases > 0 && s.exempt == s.cases) continue;
    if (s.cases > 0 && s.waived == s.cases) continue;
    if (o.shards > 1) continue;                    // one shard cannot say what the others show
    if (s.passes == 0) {
      list.push_back("family " + family + ": no case PASSED");
      continue;
    }
    if (o.given) continue;                         // nobody fitted problems to the kernel
    for (const std::string& f : s.wanted)
      if (!s.passed.count(f)) list.push_back("family " + family + ": no PASSED case shows '" + f + "'");
  }
  if (o.shards < 2 && std::none_of(records.begin(), records.end(), [](const Record& r) { return r.verdict == "PASSED"; })) list.push_back("no case PASSED");
  return list;
}

std::string gate_summary(const GateOptions& o, const std::vector<Record>& records, const std::vector<std::string>& objections) {
  std::map<std::string, std::size_t> count;
  for (const Record& r : records) ++count[r.waived.empty() ? r.verdict : "waived"];
  std::string s = (objections.empty() ? "PASS: " : "FAIL: ") + std::to_string(records.size()) + " cases";
  for (const auto& [verdict, n] : count) s += ", " + std::to_string(n) + " " + verdict;
  s += std::string("; level ") + name(o.level);
  if (o.level == Level::smoke || o.level == Level::ci) s += " (reduced)";
  if (!o.families.empty() || !o.case_ids.empty()) {
    s += ", narrowed to the chosen cases";
  } else {
    s += ", required:";
    for (const std::string& p : o.profiles) s += " " + p;
  }
  if (o.shards > 1) s += ", shard " + std::to_string(o.shard + 1) + " of " + std::to_string(o.shards);
  return s;
}

void check_profiles(const std::vector<std::string>& profiles) {
  for (const std::string& profile : profiles)
    if (std::none_of(families().begin(), families().end(), [&](const Family* f) { return in_profile(f->profile(), profile); })) {
      std::set<std::string> known;
      std::string text;
      for (const Family* f : families()) known.insert(f->profile());
      for (const std::string& p : known) text += " " + p;
      throw std::invalid_argument("no case family belongs to profile '" + profile + "'" + did_you_mean(profile, {known.begin(), known.end()}) + "; there are:" + text);
    }
}

std::vector<CaseId> gate_cases(const GateOptions& o, const KernelInfo& kernel) {
  check_profiles(o.profiles);
  std::vector<CaseId> ids;
  if (!o.case_ids.empty()) {
    std::set<std::string> asked;                   // a case that is named twice is one case
    for (const std::string& text : o.case_ids) {
      CaseId id = parse_case_id(text);
      family_named(id.family);
      if (asked.insert(case_id(id)).second) ids.push_back(std::move(id));
    }
  } else {
    ids = cases_of(o.level, o.seed, o.families);
    // What a family is there to show must be seen at sizes and dtypes that this kernel declares.
    for (const Family* f : families()) {
      std::vector<Problem> all;
      for (const CaseId& id : ids)
        if (id.family == f->name()) all.push_back(id.problem);
      for (Problem& p : missing_problems(all, kernel, f->exact_scale())) ids.push_back({f->name(), std::move(p), o.seed});
    }
  }
  if (o.shards < 2) return ids;
  if (o.shard >= o.shards) throw std::invalid_argument("there is no shard " + std::to_string(o.shard + 1) + " of " + std::to_string(o.shards));
  return share_of(std::move(ids), o.shard, o.shards);
}

GateResult run_gate(const GateOptions& o, KernelSession& kernel,
                    const std::function<void(std::size_t, std::size_t, const Record&)>& progress,
                    const std::function<void(const std::string&)>& note) {
  const std::vector<CaseId> ids = gate_cases(o, kernel.info());
  const KernelInfo declared = kernel.info();       // an adapter says more after its first call, which session that is depends on the jobs
  const std::size_t jobs = std::max<std::size_t>(1, std::min(o.jobs, ids.size()));
  if (jobs > 1 && !o.open) throw std::invalid_argument("several jobs need a way to open more sessions");
  std::vector<std::unique_ptr<KernelSession>> others(jobs - 1);
  // Side by side: an adapter that imports a framework takes many seconds to start.
  parallel_for(static_cast<std::int64_t>(others.size()), static_cast<int>(others.size()), [&](std::int64_t i, int) { others[static_cast<std::size_t>(i)] = o.open(); }, [] {});
  std::vector<KernelSession*> sessions{&kernel};
  for (const auto& other : others) sessions.push_back(other.get());
  JudgeOptions judge{false, o.golden_dir.empty() ? std::filesystem::path() : o.golden_dir / kSigmaFolder};

  // Which faults failures resemble is asked at the end, of the first failing case of a family and of few families, so that it does not depend on the jobs.
  struct Kept { std::size_t index; Golden golden; Case the_case; std::vector<Execution> executions; };
  std::map<std::string, Kept> failing;
  std::vector<Record> records(ids.size());
  std::vector<bool> made(ids.size());
  std::size_t done = 0, last = ids.size();         // last: of the cases that count, one past
  std::mutex mutex;
  std::map<std::string, const Record*> earlier;
  for (const Record& r : o.done) earlier[r.case_id] = &r;
  std::vector<std::size_t> order(ids.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const std::size_t together = static_cast<std::size_t>(
      std::stable_partition(order.begin(), order.end(), [&](std::size_t i) { return beside_others(ids[i]); }) - order.begin());
  Turns turns(std::move(sessions));
  const auto take = [&](std::size_t place) {
    const std::size_t i = order[place];
    Turns::Turn turn(turns, place);
    {
      const std::lock_guard held(mutex);
      if (i >= last) return;
      if (const auto known = earlier.find(case_id(ids[i])); known != earlier.end()) {
        records[i] = *known->second;
        made[i] = true;
        if (progress) progress(++done, ids.size(), records[i]);
        return;
      }
    }
    const Case c = make_case(ids[i]);
    const auto start = Clock::now();
    Record r;
    std::optional<Kept> kept;
    if (const std::string reason = reason_against(c, declared); !reason.empty()) {
      r = not_asked(c, declared, reason);
    } else {
      const auto say = [&](const std::string& line) {
        const std::lock_guard held(mutex);
        if (note) note(line);
      };
      Golden g = obtain_golden(c, o.golden_dir, say);
      const double seconds = since(start);
      KernelSession& session = turn.wait();
      std::vector<Execution> executions = execute(c, session);
      const KernelInfo info = session.info();      // as it is after the call: an adapter says more then
      turn.done();
      r = judge_results(g, c, info, executions, judge);
      r.golden_seconds = seconds;
      if (nameable(r)) kept = Kept{i, std::move(g), c, std::move(executions)};
    }
    r.level = name(o.level);
    const std::lock_guard held(mutex);
    if (kept) {
      const auto was = failing.find(r.family);
      if (was == failing.end()) failing.emplace(r.family, std::move(*kept));
      else if (i < was->second.index) was->second = std::move(*kept);
    }
    if (o.fail_fast && (r.verdict == "FAILED" || r.verdict == "RUNTIME_ERROR" || r.verdict == "TIMEOUT")) last = std::min(last, i + 1);
    records[i] = std::move(r);
    made[i] = true;
    if (progress) progress(++done, ids.size(), records[i]);
  };
  const auto one = [&](std::int64_t place) {
    try {
      take(static_cast<std::size_t>(place));
    } catch (...) {                                // the suite cannot go on (a full disk): no further case is begun
      const std::lock_guard held(mutex);
      last = 0;
      throw;
    }
  };
  // More threads than processors: some wait for their turn.
  const std::size_t threads = max_threads() > 1 ? std::max(jobs, static_cast<std::size_t>(max_threads()) + 2) : jobs;
  parallel_for(static_cast<std::int64_t>(together), static_cast<int>(threads), [&](std::int64_t place, int) { one(place); }, [] {});
  for (std::size_t place = together; place < order.size() && !(o.fail_fast && last < ids.size()); ++place) one(static_cast<std::int64_t>(place));
  std::vector<const Kept*> first;
  for (const auto& [family, k] : failing)
    if (k.index < last) first.push_back(&k);
  std::sort(first.begin(), first.end(), [](const Kept* a, const Kept* b) { return a->index < b->index; });
  for (std::size_t i = 0; i < std::min(first.size(), kNamedFamilies); ++i)
    name_the_fault(records[first[i]->index], first[i]->golden, first[i]->the_case.relations, kernel.info(), first[i]->executions, judge);
  GateResult result;
  for (std::size_t i = 0; i < last; ++i)
    if (made[i]) result.records.push_back(std::move(records[i]));
  const bool whole = o.families.empty() && o.case_ids.empty() && o.shards < 2 && result.records.size() == ids.size();
  const std::vector<std::string> of_waivers = apply_waivers(o.waivers, result.records, whole, utc_today());
  result.objections = objections(o, kernel.info(), result.records);
  result.objections.insert(result.objections.end(), of_waivers.begin(), of_waivers.end());
  result.exit_status = result.objections.empty() ? 0 : 1;
  result.summary = gate_summary(o, result.records, result.objections);
  return result;
}

}  // namespace gdn
