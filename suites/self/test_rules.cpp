// The limits between the rules: where one rule is another, their exact results agree within their radii.
#include <algorithm>
#include <cmath>

#include "reference/bound.h"
#include "reference/recurrence.h"
#include "reference/simulate.h"
#include "reference/truth.h"
#include "suites/family.h"
#include "suites/power.h"
#include "suites/runner.h"
#include "suites/self/catch.h"

using namespace gdn;

TEST_CASE("a rule is its neighbour's limit") {
  const Family* f = find_family("rules");
  REQUIRE(f != nullptr);
  std::size_t pairs = 0;
  std::vector<Problem> all = f->problems(Level::smoke);
  all.push_back(parse_problem("prefill/n1_t12_h1_hv2_k16_v8/fp32/h0,rule=complex_kda"));
  for (const Problem& p : all) {
    const Case c = f->make(p, 3);
    CAPTURE(to_string(p));
    REQUIRE(c.runs.size() >= 2);
    // Of some rules the base is none of the limits.
    const bool apart = p.rule == Rule::gated_linear || gate_per_key_channel(p.rule);
    const std::size_t first = apart ? 1 : 0, step = p.rule == Rule::gated_linear ? 2 : c.runs.size();   // runs that agree
    for (std::size_t from = first; from < c.runs.size(); from += step) {
      const Truth base = oracle(c.runs[from]);
      for (std::size_t r = from + 1; r < std::min(from + step, c.runs.size()); ++r) {
        if (c.runs[r].name == "values_negated") continue;
        CAPTURE(c.runs[from].name, c.runs[r].name);
        const Truth other = oracle(c.runs[r]);
        ++pairs;
        for (const auto& [name, t] : base) {
          const TruthTensor& x = other.at(name);
          for (std::size_t i = 0; i < t.hi.size(); ++i)
            REQUIRE(std::fabs((t.hi[i] - x.hi[i]) + (t.lo[i] - x.lo[i])) <= static_cast<double>(t.radius[i]) + static_cast<double>(x.radius[i]));
        }
      }
      if (apart) CHECK(oracle(c.runs[0]).at("o").hi != base.at("o").hi);
    }
  }
  CHECK(pairs == 10);
}

namespace {

Run turned(const char* problem, std::uint64_t seed) { return find_family("rules")->make(parse_problem(problem), seed).runs[0]; }
const char* const kTurned = "prefill/n1_t20_h1_hv2_k8_v4/fp32/h0,rule=complex_kda";

}  // namespace

TEST_CASE("complex decays: the oracle agrees with its audit, which sees one wrong element") {
  for (const char* problem : {kTurned, "prefill/n2_t9+0_h1_hv1_k2_v3/bf16/g=bf16,rule=complex_kda"}) {
    const Run run = turned(problem, 5);
    for (std::int64_t n = 0; n < run.problem.sequences(); ++n)
      for (std::int64_t h = 0; h < run.problem.value_heads; ++h) {
        const HeadInputs in = head_inputs(run, n, h);
        OracleStats stats;
        HeadTruth truth = oracle_head(in, &stats);
        CAPTURE(problem, n, h);
        CHECK(audit_head(in, truth) == "");
        CHECK(stats.balls == 0);
        if (in.T == 0) continue;
        truth.ht.hi[1] = std::nextafter(truth.ht.hi[1], 10.0);
        CHECK(audit_head(in, truth) != "");
      }
  }
}

TEST_CASE("complex decays: one quarter turn moves the real part into the imaginary one") {
  HeadInputs in;
  in.T = 1, in.K = 2, in.V = 1, in.rule = Rule::complex_kda;
  in.q = {0, 1}, in.k = {0, 0}, in.v = {0}, in.g = {-0.5f, -0.5f}, in.angle = {1.57079637f}, in.h0 = {3, 0};
  const HeadTruth t = oracle_head(in, nullptr);
  CHECK(std::fabs(t.ht.hi[1] - 3 * std::exp(-0.5)) < 1e-12);
  CHECK(std::fabs(t.ht.hi[0]) < 1e-6);
  CHECK(std::fabs(t.o.hi[0] - t.ht.hi[1]) < 1e-15);
}

TEST_CASE("complex decays: contracts carried out stay within the bound, a wrong angle does not") {
  for (const char* text : {"fp32-recurrent", "bf16-recurrent"}) {
    const Contract c = parse_contract(text);
    double most = 0;
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
      const Run run = turned(kTurned, seed);
      const Contract narrowed = for_problem(c, run.problem);
      const HeadInputs in = head_inputs(run, 0, 1);
      const HeadTruth truth = oracle_head(in, nullptr);
      const HeadResult bound = bound_head(narrowed, in), got = simulate(narrowed, in, SimulationMode::nearest, 1);
      for (std::size_t i = 0; i < got.o.size(); ++i) {
        REQUIRE(std::fabs(got.o[i] - truth.o.hi[i]) <= bound.o[i]);
        most = std::max(most, std::fabs(got.o[i] - truth.o.hi[i]) / bound.o[i]);
      }
      for (std::size_t i = 0; i < got.ht.size(); ++i) REQUIRE(std::fabs(got.ht[i] - truth.ht.hi[i]) <= bound.ht[i]);
      HeadInputs wrong = in;
      for (float& a : wrong.angle) a = -a;
      const HeadResult other = simulate(narrowed, wrong, SimulationMode::nearest, 1);
      bool seen = false;
      for (std::size_t i = 0; i < other.o.size(); ++i) seen = seen || std::fabs(other.o[i] - truth.o.hi[i]) > bound.o[i];
      CHECK(seen);
    }
    CHECK(most > 0.01);
  }
}

TEST_CASE("complex decays are asked of pairs of key channels and without raw gates, one line else") {
  for (const char* bad : {"prefill/n1_t4_h1_hv1_k3_v2/fp32/rule=complex_kda", "prefill/n1_t4_h1_hv1_k4_v2/fp32/raw,rule=complex_kda"}) CHECK_THROWS_AS(parse_problem(bad), std::invalid_argument);
  Run run = turned(kTurned, 1);
  run.inputs.at("angle").set(0, std::nan(""));
  CHECK_THROWS_AS(oracle(run), std::invalid_argument);
}

namespace {

PowerOptions channel_faults() {
  PowerOptions o;
  o.measure_survivors = false;
  for (const Fault& f : fault_bank())
    if (f.stage == kChannelFault) o.faults.push_back(f.name);
  return o;
}

}  // namespace

TEST_CASE("faults of gates per key channel and of complex channels are killed by family rules, and named") {
  PowerOptions o = channel_faults();
  o.case_ids = {"rules:prefill/n1_t12_h1_hv2_k16_v8/fp32/h0,rule=kda:1", "rules:prefill/n1_t12_h1_hv2_k16_v8/fp32/h0,rule=complex_kda:1", "rules:prefill/n1_t12_h2_hv4_k16_v8/bf16/h0,rule=complex_kda:1"};
  o.identify = true;
  REQUIRE(o.faults.size() == 7);
  const PowerResult r = measure_power(o);
  INFO(power_table(r));
  CHECK(r.alarms.empty());
  for (const FaultPower& f : r.faults) {
    CAPTURE(f.fault->name);
    CHECK(f.killed());
    bool named = false;
    for (const VariantPower& v : f.variants)
      for (const Kill& k : v.kills) named = named || k.naming == Naming::right;
    CHECK(named);
  }
}

TEST_CASE("faults of gates per key channel are seen step by step and with draft tokens, and correct kernels pass there and over cuts") {
  PowerOptions o = channel_faults();
  o.families = {"rules_pool"};
  const PowerResult r = measure_power(o);
  INFO(power_table(r));
  CHECK(r.alarms.empty());
  for (const FaultPower& f : r.faults) {
    CAPTURE(f.fault->name);
    CHECK(f.killed());
  }
  for (const char* id : {"rules:prefill/n2_t19+8_h1_hv2_k16_v8/fp32/h0,split=7,rule=complex_kda:1", "rules_pool:verify/n3_t10_h1_hv2_k16_v12/fp32/h0,slots=5,draft=3,rule=complex_kda:1"}) {
    const Case c = make_case(parse_case_id(id));
    const Record record = judge_case(make_golden(c), c, *open_inline("cpu_recurrent_fp32", {}));
    INFO(id << ": " << record.reason);
    CHECK(record.verdict == "PASSED");
  }
}
