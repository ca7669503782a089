// Kernels of the layer: the two CPU kernels pass their profile, every fault of the layer is caught by a family of it, and what fails is named.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "kernels/faulty/faults.h"
#include "suites/power.h"
#include "suites/runner.h"
#include "suites/simulated.h"
#include "suites/self/catch.h"

using namespace gdn;

namespace {
std::vector<std::string> layer_families() {
  std::vector<std::string> list;
  for (const Family* f : families())
    if (f->profile() == "layer") list.push_back(f->name());
  return list;
}
}  // namespace

TEST_CASE("the CPU kernels of the layer pass its profile, with conventions and without") {
  for (const char* name : {"cpu_layer_fp32", "cpu_layer_bf16"}) {
    const auto session = open_inline(name, {});
    GateOptions o;
    o.level = Level::ci;
    o.profiles = {"layer"};
    o.families = layer_families();
    const GateResult r = run_gate(o, *session, [](std::size_t, std::size_t, const Record&) {});
    std::string objections;
    for (const std::string& line : r.objections) objections += line + "\n";
    INFO(name << ": " << r.summary << "\n" << objections);
    CHECK(r.exit_status == 0);
    CHECK(std::any_of(r.records.begin(), r.records.end(), [](const Record& record) { return record.verdict == "PASSED" && record.problem.find("layer_decode") == 0; }));
  }
}

TEST_CASE("every fault of the layer is caught and named, and no twin fails") {
  PowerOptions o;
  o.level = Level::smoke;
  o.measure_survivors = false;
  o.identify = true;
  o.families = layer_families();
  for (const Fault& f : fault_bank())
    if (f.stage == kLayerFault) o.faults.push_back(f.name);
  REQUIRE(o.faults.size() > 30);
  const PowerResult r = measure_power(o);
  INFO(power_table(r));
  CHECK(r.alarms.empty());
  for (const FaultPower& f : r.faults) {
    INFO(f.fault->name);
    CHECK(f.killed());
    CHECK(f.compared() > 0);
    CHECK(f.named() == f.compared());
  }
}

TEST_CASE("a failing layer names its fault") {
  const Case c = make_case(parse_case_id("layer_typical:layer_prefill/n1_t9_h2_hv4_k8_v8/fp32/h0,hidden=24,conv=4:1"));
  const Golden g = make_golden(c);
  for (const char* fault : {"layer_gate_before_norm", "layer_conv_taps_reversed", "layer_packing_flat"}) {
    const auto session = open_inline(std::string("faulty/") + fault + "/recurrent-fp32", {});
    const Record r = judge_case(g, c, *session);
    CAPTURE(fault, r.resembles);
    CHECK(r.verdict == "FAILED");
    CHECK(r.resembles.find(fault) == 0);
  }
}

TEST_CASE("a layer in a program passes through the adapter package") {
  if (std::system("/usr/bin/python3 -c 'import h5py, numpy' >/dev/null 2>&1") != 0) {
    WARN("SKIPPED: /usr/bin/python3 cannot import h5py and numpy");
    return;
  }
  SessionOptions options;
  options.python_path = std::string(GDN_SOURCE_DIR) + "/tools/adapters";
  const auto session = open_process("/usr/bin/python3 '" + options.python_path + "/numpy_layer.py'", options);
  for (const char* id : {"layer_typical:layer_prefill/n1_t9_h2_hv4_k8_v8/fp32/h0,hidden=24,conv=4:1", "layer_typical:layer_prefill/n1_t9_h2_hv4_k8_v8/bf16/h0,hidden=24,conv=4:1",
                         "layer_packing:layer_prefill/n3_t4+2+5_h1_hv2_k8_v8/fp32/pad=2,hidden=16,conv=4:1", "layer_steps:layer_prefill/n1_t6_h1_hv2_k8_v8/fp32/h0,hidden=16,conv=4:1",
                         "layer_gates:layer_prefill/n1_t8_h1_hv6_k8_v4/fp32/h0,hidden=16,conv=2:1", "layer_norms:layer_prefill/n1_t6_h1_hv2_k8_v8/bf16/h0,hidden=16,conv=2,l2=max:1"}) {
    const Case c = make_case(parse_case_id(id));
    const Record r = judge_case(make_golden(c), c, *session);
    INFO(id << ": " << r.reason);
    CHECK(r.verdict == "PASSED");
  }
}

namespace {
// What transformers does in bf16: every module output is rounded.
const char* const kRounded = "fp32-recurrent;beta=bf16;x_norm=bf16;proj=bf16;conv_sum=bf16;conv=bf16;core=bf16;normal=bf16;normed=bf16";
// The same with projections in 8 bits.
const char* const kCoarse = "fp32-recurrent;beta=bf16;x_norm=bf16;proj=fp8_e4m3;conv_sum=bf16;conv=bf16;core=bf16;normal=bf16;normed=bf16";
}  // namespace

TEST_CASE("layers that round hidden states and projections are judged by the size of their errors: correct ones pass, faults do not") {
  const Contract contract = parse_contract(kRounded);
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    const Case c = make_case(parse_case_id("layer_typical:layer_prefill/n1_t9_h2_hv4_k8_v8/bf16/h0,hidden=24,conv=4:" + std::to_string(seed)));
    const Golden g = make_golden(c);
    const Record r = judge_case(g, c, *open_simulated(contract, contract));
    INFO(seed << ": " << r.reason);
    CHECK(r.verdict == "PASSED");
    if (seed > 1) continue;
    // One place that is coarser than declared, and faults of the bank, whose other arithmetic is finer than the contract.
    CHECK(judge_case(g, c, *open_simulated(parse_contract(kCoarse), contract)).verdict == "FAILED");
    for (const char* fault : {"layer_conv_shifted", "layer_conv_taps_reversed", "layer_activation_before_conv", "layer_gate_before_norm", "layer_norm_weight_plus_one", "layer_A_log_sign", "layer_packing_flat", "layer_dt_bias_missing",
                              "layer_l2norm_by_mean"}) {
      const auto faulty = open_inline(std::string("faulty/") + fault + "/recurrent-fp32", {});
      Execution e = faulty->run(c.runs[0], case_id(c));
      REQUIRE(e.outcome == Outcome::ok);
      const LayerNull null = layer_null(for_problem(contract, c.runs[0].problem), c.runs[0], g.truths[0], c.seed);
      REQUIRE(null.why_not == "");
      std::int64_t judged = 0;
      const std::vector<double> values = layer_values(null, g.truths[0], e.outputs, judged);
      bool seen = false;
      for (std::size_t s = 0; s < values.size(); ++s) seen = seen || values[s] > null.limits[s];
      CAPTURE(fault);
      CHECK(judged > 500);
      CHECK(seen);
    }
  }
}

namespace {
// No hidden state or projection is rounded, but the last operand is, so coarsely that the bound of y exceeds it: as that of fp32 does at the size of models.
const char* const kVague = "fp32-recurrent;normed=fp8_e5m2";
const char* const kVagueCase = "layer_typical:layer_prefill/n1_t5_h4_hv8_k32_v64/fp32/noht,hidden=256,conv=1:";

const RecordCheck& check_of(const Record& r, const char* name) {
  return *std::find_if(r.checks.begin(), r.checks.end(), [&](const RecordCheck& c) { return c.check == name; });
}
}  // namespace

TEST_CASE("layers whose bound exceeds the signal are judged by the size of their errors and no longer mistrusted") {
  const Contract contract = parse_contract(kVague);
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    const Case c = make_case(parse_case_id(kVagueCase + std::to_string(seed)));
    const Golden g = make_golden(c);
    const auto verdict = [&](const char* carried_out) {
      const Record r = judge_case(g, c, *open_simulated(parse_contract(carried_out), contract), {false, {}});
      INFO(carried_out << ": " << r.reason);
      const RecordCheck& vacuity = check_of(r, "anti_vacuity");
      CHECK(2 * vacuity.vacuous > vacuity.judged);
      CHECK(vacuity.status == "PASSED");
      CHECK(check_of(r, "bound").status == "PASSED");
      return r.verdict;
    };
    CHECK(verdict(kVague) == "PASSED");
    CHECK(verdict("fp32-recurrent") == "PASSED");          // finer than declared
    // What a fault changes is no larger than the bound in most elements, and far larger than rounding scatters.
    const KernelInfo info = open_simulated(contract, contract)->info();
    for (const char* fault : {"layer_gate_before_norm", "layer_norm_weight_plus_one", "layer_A_log_sign", "layer_packing_flat", "layer_heads_tiled", "layer_dt_bias_missing", "layer_activation_missing_on_values"}) {
      CAPTURE(fault);
      const auto faulty = open_inline(std::string("faulty/") + fault + "/recurrent-fp32", {});
      const Record r = judge_results(g, c, info, {faulty->run(c.runs[0], case_id(c))}, {false, {}});
      CHECK(check_of(r, "layer_statistics").status == "FAILED");
      CHECK(r.verdict == "FAILED");
    }
  }
}

TEST_CASE("nulls of a layer are the same fresh and from the cache, and a damaged file is made again") {
  namespace fs = std::filesystem;
  const fs::path dir = fs::path(GDN_BINARY_DIR) / "test_layer_cache";
  fs::remove_all(dir);
  const Case c = make_case(parse_case_id(kVagueCase + std::string("1")));
  const Golden g = make_golden(c);
  const auto judged = [&](const char* contract) {
    const Record r = judge_case(g, c, *open_simulated(parse_contract(contract), parse_contract(contract)), {false, dir});
    CHECK(r.verdict == "PASSED");
    return check_of(r, "layer_statistics").metrics;
  };
  const auto files = [&] {
    std::vector<fs::path> list;
    for (const auto& f : fs::directory_iterator(dir))
      if (f.path().extension() == ".h5") list.push_back(f.path());
    return list;
  };
  auto fresh = judged(kVague), again = judged(kVague);
  CHECK(fresh.at("sigma_seconds") > 0);
  CHECK(again.at("sigma_seconds") == 0);
  fresh.erase("sigma_seconds"), again.erase("sigma_seconds");
  CHECK(fresh == again);
  REQUIRE(files().size() == 1);
  fs::resize_file(files()[0], 1000);
  CHECK(judged(kVague).at("sigma_seconds") > 0);
  judged("fp32-recurrent;normed=fp8_e5m2;normal=bf16");   // another contract, another file
  CHECK(files().size() == 2);
  fs::remove_all(dir);
}

TEST_CASE("a history of a layer in bf16 has the deviation of its rounding, also where all executions round a channel's three columns alike") {
  // Some of a thousand channels are such. Where their deviation comes from a mean's own rounding, or from the smallest of the three, the null does not apply.
  const Contract contract = parse_contract("bf16-recurrent;core=bf16;normed=bf16");
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    const Case c = make_case(parse_case_id("layer_typical:layer_prefill/n1_t3_h8_hv16_k64_v64/bf16/noht,hidden=32,conv=4:" + std::to_string(seed)));
    const LayerNull null = layer_null(for_problem(contract, c.runs[0].problem), c.runs[0], make_golden(c).truths[0], c.seed);
    CHECK(null.why_not == "");
    REQUIRE(null.names.size() == null.nearest.size());
    for (std::size_t i = 0; i < null.names.size(); ++i)
      if (null.names[i] == "rms of conv_state") CHECK(null.nearest[i] < 0.8);
  }
}
