// Stages: truth against its audit, bounds and exactness against correct kernels, every fault of a stage against the families of that
// stage, and the way from a golden file to a verdict that says chunk, row and column.
#include <cmath>
#include <filesystem>
#include <limits>
#include <set>

#include <unistd.h>

#include <cstdlib>
#include <memory>

#include "golden/check.h"
#include "golden/store.h"
#include "kernels/faulty/faults.h"
#include "reference/stages.h"
#include "suites/exact_stage.h"
#include "suites/family.h"
#include "suites/runner.h"
#include "suites/self/catch.h"

using namespace gdn;

namespace {

struct Judged { Record record; std::map<std::string, RecordCheck> checks; };
Judged judge(const Golden& g, const Case& c, const std::string& kernel) {
  const auto session = open_inline(kernel, {});
  Judged j{judge_case(g, c, *session, {false, {}}), {}};
  for (const RecordCheck& check : j.record.checks) j.checks[check.check] = check;
  return j;
}

std::vector<CaseId> stage_cases(Level level, int stage = -1) {
  std::vector<std::string> names;
  for (const Family* f : families())
    if (in_profile(f->profile(), stage < 0 ? "stages" : std::string("stages/") + name(static_cast<Stage>(stage)))) names.push_back(f->name());
  return cases_of(level, 1, names);
}

}  // namespace

TEST_CASE("stage problems print and parse themselves, and contradictions are refused") {
  const char* text = "stages/n2_t70+33_h1_hv2_k64_v32/bf16/h0,stage=chunk_states,chunk=64";
  CHECK(to_string(parse_problem(text)) == text);
  CHECK(to_string(parse_problem("stages/n1_t7_h1_hv1_k4_v4/fp32/chunk=16,stage=output,scale=0x1p-1")) == "stages/n1_t7_h1_hv1_k4_v4/fp32/stage=output,chunk=16,scale=0x1p-1");
  for (const char* bad : {"stages/n1_t7_h1_hv1_k4_v4/fp32/chunk=16", "stages/n1_t7_h1_hv1_k4_v4/fp32/stage=inverse", "stages/n1_t7_h1_hv1_k4_v4/fp32/stage=solve,chunk=16",
                          "stages/n1_t7_h1_hv1_k4_v4/fp32/stage=inverse,chunk=16,h0", "stages/n1_t7_h1_hv1_k4_v4/fp32/stage=uw,chunk=16,split=3",
                          "prefill/n1_t7_h1_hv1_k4_v4/fp32/chunk=16", "prefill/n1_t7_h1_hv1_k4_v4/fp32/stage=inverse"})
    CHECK_THROWS_AS(parse_problem(bad), std::invalid_argument);
  CHECK_THROWS_AS(parse_capabilities("ops=stages"), std::invalid_argument);
  CHECK_THROWS_AS(parse_capabilities("ops=prefill;stages=inverse"), std::invalid_argument);
  CHECK(parse_capabilities("ops=stages;stages=inverse,uw;chunks=16,64").chunks.size() == 2);
}

TEST_CASE("the truth of every stage agrees with its audit, which notices one wrong element") {
  std::set<std::string> wrong_noticed;
  for (const CaseId& id : stage_cases(Level::smoke)) {
    const Case c = make_case(id);
    INFO(case_id(c));
    OracleStats stats;
    Truth truth = stage_oracle(c.runs[0], &stats);
    CHECK(audit_stage(c.runs[0], truth) == "");
    CHECK(stats.balls * 20 <= stats.elements);     // ties but for e^-1000
    for (auto& [name, t] : truth) {
      const std::size_t i = t.hi.size() / 3;
      const double before = t.hi[i];
      t.hi[i] += std::ldexp(std::max(std::fabs(before), 1e-6), -50);
      CHECK(audit_stage(c.runs[0], truth) != "");
      t.hi[i] = before;
    }
  }
}

TEST_CASE("G has to be finite where it is given, and every input has to be there") {
  Case c = make_case(stage_cases(Level::smoke, 1).at(0));
  c.runs[0].inputs.at("G").set(3, -std::numeric_limits<double>::infinity());
  CHECK_THROWS_AS(stage_oracle(c.runs[0]), std::invalid_argument);
  c.runs[0].inputs.erase("G");
  CHECK_THROWS_AS(stage_oracle(c.runs[0]), std::invalid_argument);
}

TEST_CASE("the bank's twins keep the bounds of every stage") {
  double worst = 0;
  for (const CaseId& id : stage_cases(Level::smoke)) {
    const Case c = make_case(id);
    const Golden g = make_golden(c);
    for (const char* kernel : {"cpu_chunk_fp32", "cpu_chunk_bf16", "faulty/none/chunk-fp32", "faulty/none/chunk-bf16"}) {
      const Judged j = judge(g, c, kernel);
      INFO(kernel << " " << case_id(c) << " " << j.record.reason);
      CHECK((j.record.verdict == "PASSED" || (j.record.verdict == "NOT_SUPPORTED" && c.problem.io != DType::bf16)));
      if (j.record.verdict == "PASSED") worst = std::max(worst, j.record.metrics.at("max_ratio"));
      if (j.record.verdict == "PASSED") CHECK(j.checks.at("exactness").judged > 0);
    }
  }
  CHECK(worst > 0.05);                             // not so loose as to be worthless
  CHECK(worst <= 1);
}

TEST_CASE("every fault of a stage is caught by the families of that stage, on a case that its twin passes") {
  std::map<int, std::vector<std::pair<Case, Golden>>> cases;
  for (int s = 0; s < kStages; ++s)
    for (const CaseId& id : stage_cases(Level::smoke, s)) {
      const Case c = make_case(id);
      cases[s].emplace_back(c, make_golden(c));
    }
  std::map<int, int> count;
  std::map<std::string, std::set<std::string>> killed;     // family -> kinds
  for (const Fault& f : fault_bank()) {
    if (f.stage < 0 || f.stage >= kStages) continue;   // those of the layer: test_layer_kernels
    ++count[f.stage];
    bool caught = false;
    for (const auto& [c, g] : cases[f.stage])
      for (const FaultScalar scalar : {FaultScalar::fp32, FaultScalar::bf16}) {
        const gdn_kernel* kernel = faulty_kernel(f, Form::chunkwise, scalar);
        REQUIRE(kernel);
        const bool here = judge(g, c, kernel->name).record.verdict == "FAILED";
        caught = caught || here;
        if (here) killed[c.family].insert(f.kind);
      }
    INFO(f.name);
    CHECK(caught);
  }
  for (int s = 0; s < kStages; ++s) CHECK(count[s] >= 5);
  for (const Family* f : families())
    if (in_profile(f->profile(), "stages"))
      for (const std::string& kind : f->kinds()) {
        INFO(f->name() << " " << kind);
        CHECK(killed[f->name()].count(kind) == 1);
      }
}

TEST_CASE("a product of powers is no inverse of equal keys: its error is not one of rounding") {
  const Case c = make_case(parse_case_id("stage_inverse:stages/n1_t64_h1_hv1_k16_v2/fp32/stage=inverse,chunk=64:1"));
  const Golden g = make_golden(c);
  const Judged bad = judge(g, c, "faulty/stage_inverse_by_doubling/chunk-fp32"), good = judge(g, c, "cpu_chunk_fp32");
  CHECK(bad.record.verdict == "FAILED");
  CHECK(bad.record.metrics.at("max_abs") > 1);
  CHECK(good.record.metrics.at("max_abs") < 1e-5);
  CHECK(good.record.verdict == "PASSED");
}

TEST_CASE("where M grows, only the residual shows a row of low precision") {
  const Case c = make_case(parse_case_id("stage_inverse:stages/n1_t128_h4_hv4_k16_v2/fp32/stage=inverse,chunk=128:1"));
  Case growth = c;                                 // the fourth head alone
  growth.runs[0].problem = growth.problem = parse_problem("stages/n1_t128_h1_hv1_k16_v2/fp32/stage=inverse,chunk=128");
  Tensor L(DType::f32, {128, 1, 128});
  for (std::int64_t t = 0; t < 128; ++t)
    for (std::int64_t j = 0; j < 128; ++j) L.set(t * 128 + j, c.runs[0].inputs.at("L").at((t * 4 + 3) * 128 + j));
  growth.runs[0].inputs.at("L") = std::move(L);
  const Golden g = make_golden(growth);
  const Judged bad = judge(g, growth, "faulty/stage_inverse_corner_in_tf32/chunk-fp32"), good = judge(g, growth, "faulty/none/chunk-fp32");
  CHECK(good.record.verdict == "PASSED");
  CHECK(bad.checks.at("bound").status == "PASSED");
  CHECK(bad.checks.at("residual").status == "FAILED");
  CHECK(bad.record.verdict == "FAILED");
}

TEST_CASE("a failing stage says chunk, row and column, and names the fault") {
  const Case c = make_case(parse_case_id("stage_gram:stages/n2_t37+18_h3_hv6_k8_v2/bf16/stage=gram,chunk=16:1"));
  const Golden g = make_golden(c);
  const auto session = open_inline("faulty/stage_gram_beta_of_column/chunk-fp32", {});
  const Record r = judge_case(g, c, *session, {true, {}});
  CHECK(r.verdict == "FAILED");
  CHECK(r.reason.find(" chunk ") != std::string::npos);
  CHECK(r.reason.find(" column ") != std::string::npos);
  CHECK(r.resembles.find("stage_gram_beta_of_column") == 0);
  CHECK(r.resembles.find("of what is not rounding") != std::string::npos);
  CHECK(to_string(locate(c.runs[0], 0, "L", ((37 + 17) * 6 + 4) * 16 + 0, 0)) == "sequence 1 chunk 1 row 1 column 0 head 4 (token 17)");
}

TEST_CASE("a kernel is asked for the stages it offers, in the chunks it takes") {
  const Case c = make_case(parse_case_id("stage_uw:stages/n1_t20_h1_hv1_k8_v8/bf16/stage=uw,chunk=16:1"));
  const Contract contract = parse_contract("bf16-chunk");
  const auto reason = [&](const char* text) { return unsupported_reason(parse_capabilities(text), contract, c.runs[0]); };
  CHECK(reason("ops=stages;stages=uw;chunks=16;varlen") == "");
  CHECK(reason("ops=stages;stages=inverse;chunks=16;varlen").find("stages=uw") != std::string::npos);
  CHECK(reason("ops=stages;stages=uw;varlen").find("chunk=16 not in declared chunk=64") != std::string::npos);
  CHECK(reason("ops=prefill;varlen").find("ops=stages") != std::string::npos);
}

TEST_CASE("stages reach kernels in a worker, and in a program through the adapter package") {
  const std::string adapters = std::string(GDN_SOURCE_DIR) + "/tools/adapters";
  std::vector<std::unique_ptr<KernelSession>> sessions;
  sessions.push_back(open_builtin("cpu_chunk_bf16", {}));
  SessionOptions options;
  options.python_path = adapters;
  if (std::system("/usr/bin/python3 -c 'import h5py, numpy' >/dev/null 2>&1") == 0)
    for (const char* what : {"", " inverse"}) sessions.push_back(open_process("/usr/bin/python3 '" + adapters + "/numpy_stages.py'" + what, options));
  else
    WARN("SKIPPED: /usr/bin/python3 cannot import h5py and numpy");
  for (const CaseId& id : stage_cases(Level::smoke)) {
    if (id.problem.io != DType::bf16) continue;
    const Case c = make_case(id);
    const Golden g = make_golden(c);
    for (std::size_t i = 0; i < sessions.size(); ++i) {
      const Record r = judge_case(g, c, *sessions[i], {false, {}});
      INFO(case_id(c) << " " << sessions[i]->info().name << ": " << r.reason);
      CHECK(r.verdict == (i < 2 || id.problem.stage == Stage::inverse ? "PASSED" : "NOT_SUPPORTED"));
    }
  }
}

TEST_CASE("conventions of stages: batches, states the other way round, a triangle that is left alone") {
  const Case c = make_case(parse_case_id("stage_chunk_states:stages/n2_t37_h2_hv4_k8_v16/fp32/h0,stage=chunk_states,chunk=16:1"));
  const Run& run = c.runs[0];
  const Convention other = parse_convention("layout=BHTD;state=VK;heads=tiled");
  const TensorSet in = to_kernel(other, run), out = output_shapes(other, run);
  CHECK(in.at("W").shape == std::vector<std::int64_t>{2, 4, 37, 8});
  CHECK(out.at("states").shape == std::vector<std::int64_t>{2, 4, 3, 16, 8});
  CHECK(out.at("ht").shape == std::vector<std::int64_t>{2, 4, 16, 8});
  // What a kernel in that convention would return of U is Vn, were W zero: and back.
  TensorSet made = out;
  made.at("Vn") = in.at("U");
  CHECK(from_kernel(other, run, made).at("Vn") == run.inputs.at("U"));
  CHECK_THROWS_AS(to_kernel(parse_convention("gate=log2"), run), std::invalid_argument);
  const Case inverse = make_case(parse_case_id("stage_inverse:stages/n1_t20_h1_hv1_k8_v2/fp32/stage=inverse,chunk=16:1"));
  TensorSet rough;
  rough["M"] = Tensor(DType::f32, {20, 1, 16});
  for (std::int64_t i = 0; i < rough.at("M").size(); ++i) rough.at("M").set(i, 5);
  const Tensor m = from_kernel(parse_convention("triangle=free"), inverse.runs[0], rough).at("M");
  CHECK(m.at(3 * 16 + 2) == 5);
  CHECK(m.at(3 * 16 + 3) == 1);
  CHECK(m.at(3 * 16 + 4) == 0);
  CHECK(m.at(19 * 16 + 3) == 1);
  CHECK(from_kernel({}, inverse.runs[0], rough).at("M").at(3 * 16 + 4) == 5);
}

TEST_CASE("stage goldens are written, read and audited") {
  const std::filesystem::path dir = std::filesystem::temp_directory_path() / ("gdn-test-stages-" + std::to_string(::getpid()));
  std::filesystem::create_directories(dir);
  for (const CaseId& id : stage_cases(Level::smoke)) {
    const Case c = make_case(id);
    const Golden g = make_golden(c);
    const auto file = write_golden(dir, g);
    const Golden back = read_golden(file);
    CHECK(content_hash(back) == content_hash(g));
    CHECK(back.the_case.runs[0].inputs == c.runs[0].inputs);
  }
  Golden wrong = make_golden(make_case(stage_cases(Level::smoke, 2).at(0)));
  wrong.truths[0].at("M").hi[1] += 1e-9;
  std::string complaint;
  const CheckSummary good = check_directory(dir, [&](const std::string& line) { complaint = line; });
  INFO(complaint);
  CHECK(good.problems == 0);
  CHECK(good.audited_heads > 0);
  write_golden(dir, wrong);
  CHECK(check_directory(dir, [&](const std::string& line) { complaint = line; }).problems > 0);
  CHECK(complaint.find("audit: M") != std::string::npos);
  std::filesystem::remove_all(dir);
}
