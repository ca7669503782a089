// Kernels of the layer: the two CPU kernels pass their profile, every fault of the layer is caught by a family of it, and what fails is named.
#include <algorithm>

#include "kernels/faulty/faults.h"
#include "suites/power.h"
#include "suites/runner.h"
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

TEST_CASE("every fault of the layer is caught, and no twin fails") {
  PowerOptions o;
  o.level = Level::smoke;
  o.measure_survivors = false;
  o.families = layer_families();
  for (const Fault& f : fault_bank())
    if (f.stage == kStages) o.faults.push_back(f.name);
  REQUIRE(o.faults.size() > 30);
  const PowerResult r = measure_power(o);
  INFO(power_table(r));
  CHECK(r.alarms.empty());
  for (const FaultPower& f : r.faults) {
    INFO(f.fault->name);
    CHECK(f.killed());
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
