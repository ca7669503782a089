// The runner and the rule of a gate: what makes it pass, and everything that must not.
#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <random>
#include <thread>

#include "reference/parallel.h"
#include "reference/standard.h"
#include "suites/features.h"
#include "suites/runner.h"
#include "suites/self/catch.h"
#include "suites/standing.h"

using namespace gdn;

namespace {

// A kernel that returns the truth, rounded once, within what it declares; `spoil` may change or refuse a result.
struct Perfect final : KernelSession {
  KernelInfo kernel;
  std::function<void(const Run&, const std::string&, Execution&)> spoil;
  int calls = 0;
  explicit Perfect(const char* capabilities = "") {
    kernel.name = "perfect";
    kernel.how = "--kernel perfect";
    kernel.contract = parse_contract("bf16-recurrent");
    kernel.capabilities = parse_capabilities(capabilities);
  }
  const KernelInfo& info() const override { return kernel; }
  Execution run(const Run& run, const std::string& id) override {
    ++calls;
    Execution e;
    for (const auto& [name, truth] : oracle(run)) {
      Tensor t(name == "ht" ? run.problem.state : run.problem.io, truth.shape);
      for (std::int64_t j = 0; j < t.size(); ++j)
        t.set(j, rounded(truth.hi[static_cast<std::size_t>(j)], truth.lo[static_cast<std::size_t>(j)], format_of(t.dtype)));
      e.outputs.emplace(name, std::move(t));
    }
    if (spoil) spoil(run, id, e);
    return e;
  }
};

GateResult gate(Perfect& k, GateOptions o = {}) { return run_gate(o, k, {}); }
bool objects(const GateResult& r, const std::string& text) {
  for (const std::string& o : r.objections)
    if (o.find(text) != std::string::npos) return true;
  return false;
}
GateOptions only(const char* family) {
  GateOptions o;
  o.families = {family};
  return o;
}

constexpr const char* kEverything = "io=fp32,bf16,fp16;varlen;h0;ht;noht;empty";

// The rule alone, on paper: what a kernel's declaration excludes is NOT_SUPPORTED, all else has the given verdict.
std::vector<std::string> on_paper(const KernelInfo& kernel, const GateOptions& o = {},
                                  const std::function<std::string(const Record&)>& verdict = {}) {
  std::vector<CaseId> ids = cases_of(o.level, o.seed);
  for (const Family* f : families())
    for (Problem& p : missing_problems(f->problems(o.level), kernel, f->exact_scale())) ids.push_back({f->name(), std::move(p), o.seed});
  std::vector<Record> records;
  for (const CaseId& id : ids) {
    Record r;
    r.case_id = id.family + ":" + to_string(id.problem) + ":1";
    r.family = id.family;
    r.profile = find_family(id.family)->profile();
    r.problem = to_string(id.problem);
    r.verdict = "PASSED";
    if (!exemption(id.problem, kernel).empty()) r.verdict = "NOT_SUPPORTED";
    for (const Run& run : make_case(id).runs)
      if (!unsupported_reason(kernel.capabilities, kernel.contract, run).empty()) r.verdict = "NOT_SUPPORTED";
    if (r.verdict == "PASSED" && verdict) r.verdict = verdict(r);
    records.push_back(std::move(r));
  }
  return objections(o, kernel, records);
}

bool any_of(const std::vector<std::string>& list, const std::string& text) {
  for (const std::string& l : list)
    if (l.find(text) != std::string::npos) return true;
  return false;
}

}  // namespace

TEST_CASE("a correct kernel passes a gate") {
  Perfect k(kEverything);
  GateOptions o;
  o.families = {"typical", "packed_sequences", "exact_resets"};
  const GateResult r = gate(k, o);
  CAPTURE(r.summary, r.objections);
  CHECK(r.exit_status == 0);
  CHECK(r.objections.empty());
  CHECK(k.calls > 10);
  CHECK(r.summary.find("PASS: ") == 0);
  CHECK(r.summary.find("reduced") != std::string::npos);
}

TEST_CASE("one session sees the cases in their order, one at a time, whatever the number of threads") {
  GateOptions o;
  o.families = {"typical", "chunk_boundary"};
  Perfect k(kEverything);
  std::vector<std::string> expected;
  for (const CaseId& id : gate_cases(o, k.kernel)) {
    REQUIRE(beside_others(id));
    expected.push_back(case_id(make_case(id)));
  }
  for (const int threads : {1, 4}) {
    const Threads limit(threads);
    std::vector<std::string> seen;
    std::atomic<int> inside{0};
    bool alone = true;
    k.spoil = [&](const Run&, const std::string& id, Execution&) {
      alone = ++inside == 1 && alone;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));   // for another to come in
      if (seen.empty() || seen.back() != id) seen.push_back(id);
      --inside;
    };
    CHECK(gate(k, o).exit_status == 0);
    CHECK(alone);
    CHECK(seen == expected);
  }
}

TEST_CASE("few dtypes and sizes are no ground to fail, in any level") {
  for (const Level level : {Level::ci, Level::smoke})
    for (const char* capabilities : {kEverything, "io=bf16;varlen;h0;ht;empty", "io=fp32;K=128;V=128;varlen;h0;ht;empty",
                                     "io=fp16;K=96;V=96;varlen;h0;ht;empty", "io=fp32,bf16;h0;ht"}) {
      if (level == Level::ci && std::string(capabilities).find("empty") != std::string::npos) continue;   // time
      GateOptions o;
      o.level = level;
      const auto against = on_paper(Perfect(capabilities).kernel, o);
      CAPTURE(capabilities, name(level), against);
      CHECK(against.empty());
    }
  Perfect fixed("io=bf16;K=128;V=128;varlen;h0;ht");   // no power of two can be had as scale
  fixed.kernel.convention.scale = ScaleHandling::fixed;
  const auto against = on_paper(fixed.kernel);
  CAPTURE(against);
  CHECK(against.empty());
  fixed.kernel.capabilities = parse_capabilities("io=fp32,bf16,fp16;varlen;h0;ht;empty");   // K=64 and others have one
  const auto any_size = on_paper(fixed.kernel);
  CAPTURE(any_size);
  CHECK(any_size.empty());
}

TEST_CASE("nothing passes by claiming nothing") {
  CHECK(any_of(on_paper(Perfect("io=fp32,bf16;varlen;ht;empty").kernel), "does not exempt"));       // no initial state
  CHECK(any_of(on_paper(Perfect("io=fp32,bf16;varlen;ht;empty").kernel), "no case PASSED"));
  CHECK(!on_paper(Perfect("io=fp32,bf16;varlen;h0;ht;empty;g_min=-2").kernel).empty());            // gates it cannot take
  CHECK(!on_paper(Perfect("io=fp32,bf16;varlen;h0;ht;empty;ratio=1..1").kernel).empty());          // no grouped heads
  GateOptions varlen;
  varlen.profiles = {"core", "varlen"};
  CHECK(!on_paper(Perfect("io=fp32,bf16;h0;ht").kernel, varlen).empty());
  const KernelInfo all = Perfect(kEverything).kernel;
  for (const char* v : {"FAILED", "MISTRUSTED", "UNTESTED", "RUNTIME_ERROR", "TIMEOUT", "SKIPPED", "NOT_SUPPORTED"})
    CHECK(any_of(on_paper(all, {}, [v](const Record&) { return std::string(v); }), "no case PASSED"));
  // One case of a profile that is not required: wrong results fail, undecided ones do not.
  for (const auto& [v, fails] : std::map<std::string, bool>{{"FAILED", true}, {"RUNTIME_ERROR", true}, {"TIMEOUT", true}, {"MISTRUSTED", false}, {"UNTESTED", false}})
    CHECK(on_paper(all, {}, [&, v = v](const Record& r) { return r.family == "packed_sequences" ? v : std::string("PASSED"); }).empty() != fails);
  // The only cases of a feature.
  CHECK(any_of(on_paper(all, {}, [](const Record& r) { return r.problem.find("split") == std::string::npos ? "PASSED" : "NOT_SUPPORTED"; }),
               "no PASSED case shows 'several calls'"));
  CHECK(!objections({}, all, {}).empty());
  GateOptions unknown;
  unknown.profiles = {"core", "nonsense"};
  Perfect k(kEverything);
  CHECK_THROWS_AS(gate(k, unknown), std::invalid_argument);
}

TEST_CASE("refusing every call is no pass, and fail-fast stops at the first wrong case") {
  Perfect k(kEverything);
  k.spoil = [](const Run&, const std::string&, Execution& e) { e = {Outcome::not_supported, "not today", {}, {}, 0}; };
  GateResult r = gate(k, only("packed_sequences"));
  CHECK(r.exit_status == 1);
  CHECK(objects(r, "no case PASSED"));
  const std::size_t all = r.records.size();
  k.spoil = [](const Run&, const std::string&, Execution& e) { e.outputs.at("ht").set(0, e.outputs.at("ht").at(0) + 1); };
  GateOptions o = only("packed_sequences");
  o.fail_fast = true;
  r = gate(k, o);
  CHECK(r.exit_status == 1);
  CHECK(r.records.size() < all);
  CHECK(r.records.back().verdict == "FAILED");
}

TEST_CASE("crashes, hangs and errors are verdicts and the run goes on") {
  for (const auto& [outcome, verdict] : std::map<Outcome, std::string>{
           {Outcome::crashed, "RUNTIME_ERROR"}, {Outcome::error, "RUNTIME_ERROR"}, {Outcome::timeout, "TIMEOUT"}}) {
    Perfect k(kEverything);
    int n = 0;
    k.spoil = [&, outcome = outcome](const Run&, const std::string&, Execution& e) {
      if (n++ == 1) e = {outcome, "signal 11", {}, {}, 0};
    };
    const GateResult r = gate(k, only("typical"));
    CHECK(r.exit_status == 1);
    CHECK(r.records[1].verdict == verdict);
    CHECK(r.records[1].reason.find("signal 11") != std::string::npos);
    CHECK(r.records.back().verdict == "PASSED");
  }
}

TEST_CASE("a narrowed gate says so, and one unsupported case is no pass") {
  Perfect k("io=bf16;varlen;h0;ht;empty");
  GateOptions o;
  o.case_ids = {"typical:prefill/n1_t5_h1_hv2_k16_v16/bf16/h0:3"};
  GateResult r = gate(k, o);
  CHECK(r.exit_status == 0);
  REQUIRE(r.records.size() == 1);
  CHECK(r.records[0].case_id == o.case_ids[0]);
  CHECK(r.summary.find("narrowed") != std::string::npos);
  o.case_ids = {"typical:prefill/n1_t5_h1_hv2_k16_v16/fp32/h0:3"};
  r = gate(k, o);
  CHECK(r.exit_status == 1);
  CHECK(r.records[0].verdict == "NOT_SUPPORTED");
  o.case_ids = {"nosuch:prefill/n1_t5_h1_hv2_k16_v16/fp32/h0:3"};
  CHECK_THROWS_AS(gate(k, o), std::invalid_argument);
  o.case_ids = {"typical"};
  CHECK_THROWS_AS(gate(k, o), std::invalid_argument);
}

TEST_CASE("records carry what a report needs") {
  Perfect k(kEverything);
  GateOptions o;
  o.case_ids = {"typical:prefill/n1_t5_h1_hv2_k16_v16/bf16/h0:3"};
  k.spoil = [](const Run&, const std::string&, Execution& e) { e.outputs.at("o").set(2 * 16 + 3, 100); };
  const Record r = gate(k, o).records.at(0);
  CHECK(r.verdict == "FAILED");
  CHECK(r.family == "typical");
  CHECK(r.profile == "core");
  CHECK(r.level == "smoke");
  CHECK(r.edition == kAccuracyEdition);
  CHECK(r.repro == "gdn-cts verify --kernel perfect --case 'typical:prefill/n1_t5_h1_hv2_k16_v16/bf16/h0:3'");
  CHECK(r.checks.size() == checks().size());
  const RecordCheck* bound = nullptr;
  for (const RecordCheck& c : r.checks)
    if (c.check == "bound") bound = &c;
  REQUIRE(bound);
  REQUIRE(bound->worst);
  CHECK(bound->worst->place == "sequence 0 token 1 head 0 channel 3");
  CHECK(bound->worst->got_bits == "0x42c8");
  CHECK(bound->worst->got_hex == "0x1.9p+6");
  CHECK(bound->worst->got == "100");
  CHECK(bound->worst->ratio > 1);
  CHECK(r.metrics.at("max_ratio") == bound->worst->ratio);
  CHECK(parse_record(to_json_line(r)).reason == r.reason);
}

TEST_CASE("the cache is read when it is valid, and replaced with a word when it is not") {
  const auto dir = std::filesystem::temp_directory_path() / ("gdn_cache_" + std::to_string(std::random_device{}()));
  const Case c = make_case({"typical", parse_problem("prefill/n2_t5_h1_hv2_k16_v16/bf16/h0"), 4});
  std::vector<std::string> notes;
  auto note = [&](const std::string& n) { notes.push_back(n); };
  const Golden made = obtain_golden(c, dir, note);
  const auto file = dir / (file_stem(case_id(c)) + ".h5");
  REQUIRE(std::filesystem::exists(file));
  const auto time = std::filesystem::last_write_time(file);
  const Golden read = obtain_golden(c, dir, note);
  CHECK(notes.empty());
  CHECK(std::filesystem::last_write_time(file) == time);
  CHECK(content_hash(read) == content_hash(made));
  // Inputs that the family no longer makes.
  Case other = c;
  other.runs[0].inputs.at("v").set(0, 7);
  CHECK(obtain_golden(other, dir, note).the_case.runs[0].inputs.at("v").at(0) == 7);
  REQUIRE(notes.size() == 1);
  CHECK(notes[0].find("inputs") != std::string::npos);
  // Another edition.
  Golden old = made;
  old.edition = "1999.1";
  write_golden(dir, old);
  CHECK(obtain_golden(c, dir, note).edition == kAccuracyEdition);
  CHECK(notes.size() == 2);
  // Damage.
  std::ofstream(file) << "this is no golden";
  CHECK(content_hash(obtain_golden(c, dir, note)) == content_hash(made));
  CHECK(notes.size() == 3);
  CHECK(content_hash(obtain_golden(c, dir, note)) == content_hash(made));
  CHECK(notes.size() == 3);
  std::filesystem::remove_all(dir);
}

TEST_CASE("cases of every family, with all their runs, survive the store") {
  const auto dir = std::filesystem::temp_directory_path() / ("gdn_store_" + std::to_string(std::random_device{}()));
  std::vector<std::string> notes;
  for (const Family* f : families()) {
    const Case c = f->make(f->problems(Level::smoke).back(), 5);
    const Golden made = obtain_golden(c, dir), read = obtain_golden(c, dir, [&](const std::string& n) { notes.push_back(n); });
    CHECK(content_hash(made) == content_hash(read));
    CHECK(read.the_case.relations.size() == c.relations.size());
  }
  CHECK(notes.empty());
  std::filesystem::remove_all(dir);
}

TEST_CASE("level smoke asks kernels of any dtype for several sequences without h0") {
  for (const char* declared : {"io=fp32;varlen;h0;ht;empty", "io=bf16;varlen;h0;ht;empty", "io=fp16;K=128;V=128;varlen;h0;ht;empty"}) {
    KernelInfo k;
    k.capabilities = parse_capabilities(declared);
    GateOptions o;
    bool asked = false;
    for (const CaseId& id : gate_cases(o, k)) {
      const Problem& p = id.problem;
      asked = asked || (id.family == "packed_sequences" && p.sequences() > 1 && !p.initial_state && p.split.empty() && exemption(p, k).empty());
    }
    INFO(declared);
    CHECK(asked);
  }
}

TEST_CASE("features and fitted problems") {
  const Problem p = parse_problem("prefill/n2_t65+0_h2_hv4_k64_v64/fp32/h0,split=3,pad=1");
  for (const char* f : {"h0", "final state", "grouped heads", "several calls", "several sequences", "zero length", "ragged tail",
                        "several chunks", "padding", "prefill"})
    CHECK(features(p).count(f) == 1);
  CHECK(features(p).size() == 10);
  KernelInfo k;
  k.capabilities = parse_capabilities("io=bf16;K=128;V=128;varlen;h0;ht;empty");
  CHECK(!exemption(p, k).empty());
  CHECK(to_string(fitted(p, k, true)) == "prefill/n2_t65+0_h2_hv4_k128_v128/bf16/h0,pad=1,split=3,scale=0x1p-3");
  CHECK(exemption(fitted(p, k, true), k).empty());
  CHECK(missing_problems({p}, k, true).size() == 1);
  CHECK(missing_problems({p, fitted(p, k, true)}, k, true).empty());
  k.convention.scale = ScaleHandling::fixed;
  CHECK(!exemption(fitted(p, k, true), k).empty());
  CHECK(missing_problems({p}, k, true).empty());
  k.capabilities = parse_capabilities("io=bf16;varlen;h0;ht;empty");   // another K brings a scale that is a power of two
  const Problem named = parse_problem("prefill/n1_t65_h2_hv4_k128_v128/fp32/scale=0x1p-3");
  CHECK(to_string(fitted(named, k, true)) == "prefill/n1_t65_h2_hv4_k64_v128/bf16");
  CHECK(exemption(fitted(named, k, true), k).empty());
  k.capabilities = parse_capabilities("io=fp32;h0;ht");
  CHECK(exemption(p, k).empty());                  // varlen is no ground of exemption
}

TEST_CASE("shards are the gate in parts") {
  const KernelInfo kernel = Perfect(kEverything).kernel;
  GateOptions o;
  const std::vector<CaseId> all = gate_cases(o, kernel);
  o.shards = 3;
  std::vector<std::string> seen(all.size());
  for (o.shard = 0; o.shard < 3; ++o.shard) {
    const std::vector<CaseId> part = gate_cases(o, kernel);
    for (std::size_t i = 0; i < part.size(); ++i) seen.at(3 * i + o.shard) = part[i].family + to_string(part[i].problem);
    CHECK(gate_summary(o, {}, {}).find("shard " + std::to_string(o.shard + 1) + " of 3") != std::string::npos);
  }
  for (std::size_t i = 0; i < all.size(); ++i) CHECK(seen[i] == all[i].family + to_string(all[i].problem));
  CHECK_THROWS_AS(gate_cases(o, kernel), std::invalid_argument);
}
