// Raw gates end to end: the truth against the same run with its gates written out, the bound of their formation against
// several ways to form them in fp32, the kernels and the faults. Exists because both tails of softplus leave fp32.
#include <cmath>
#include <limits>

#include "golden/check.h"
#include "golden/stream.h"
#include "reference/bound.h"
#include "reference/gates.h"
#include "reference/rng.h"
#include "reference/strand.h"
#include "suites/power.h"
#include "suites/runner.h"
#include "suites/self/catch.h"
#include "suites/self/golden_fixture.h"

using namespace gdn;

namespace {

constexpr float kNone = -std::numeric_limits<float>::infinity();

// x, A_log and the sum's parts, mostly where something happens.
struct Arguments { float a, A_log, dt_bias; };
Arguments arguments(std::uint64_t i) {
  const Random r(11, "raw");
  const float bias = static_cast<float>(r.uniform(3 * i, -2, 2));
  const float x = static_cast<float>(i % 3 ? r.uniform(3 * i + 1, -40, 40) : r.uniform(3 * i + 1, -210, 110));
  return {x - bias, static_cast<float>(i % 4 ? r.uniform(3 * i + 2, -20, 20) : r.uniform(3 * i + 2, -110, 110)), bias};
}

// Ways to form g in fp32, each right where its factors fit.
float by_product(Arguments v) {
  const float x = v.a + v.dt_bias;
  return -std::exp(v.A_log) * (std::fmax(x, 0.0f) + std::log1p(std::exp(-std::fabs(x))));
}
float by_product_base_2(Arguments v) {
  const float x = v.a + v.dt_bias, e = std::exp2(-std::fabs(x) * 1.44269504f);
  return -std::exp2(v.A_log * 1.44269504f) * (std::fmax(x, 0.0f) + std::log1p(e));
}
float by_exponent(Arguments v) {
  const float x = v.a + v.dt_bias;
  const float l = x < -15 ? x : std::log(std::fmax(x, 0.0f) + std::log1p(std::exp(-std::fabs(x))));
  return -std::exp(v.A_log + l);
}

}  // namespace

TEST_CASE("a run with raw gates has the truth of its exact gates") {
  const Case c = make_case(parse_case_id("raw_gates:prefill/n1_t40_h2_hv4_k8_v8/fp32/h0,raw:1"));
  for (std::int64_t hv = 0; hv < 4; ++hv) {
    const HeadInputs in = head_inputs(c.runs[0], 0, hv);
    REQUIRE(in.raw_g.size() == 40);
    const HeadTruth truth = oracle_head(in);
    CHECK(audit_head(in, truth) == "");
    // In plain doubles, with the gates straight from their arguments.
    std::vector<long double> S(in.h0.begin(), in.h0.end());
    for (std::int64_t t = 0; t < in.T; ++t) {
      const long double x = static_cast<long double>(in.a[static_cast<std::size_t>(t)]) + in.dt_bias;
      const long double g = -std::exp(static_cast<long double>(in.A_log)) * (std::max(x, 0.0L) + std::log1p(std::exp(-std::fabs(x))));
      CHECK(static_cast<double>(std::fabs(g - in.raw_g[static_cast<std::size_t>(t)])) <= 1e-15 * std::fabs(in.raw_g[static_cast<std::size_t>(t)]));
      const float cut = in.g[static_cast<std::size_t>(t)];
      CHECK(static_cast<double>(cut) >= in.raw_g[static_cast<std::size_t>(t)]);
      CHECK(cut < 0);
      for (std::int64_t v = 0; v < 8; ++v) {
        long double w = 0, o = 0;
        for (std::int64_t d = 0; d < 8; ++d) w += std::exp(g) * S[static_cast<std::size_t>(d * 8 + v)] * in.k[static_cast<std::size_t>(t * 8 + d)];
        const long double y = in.beta[static_cast<std::size_t>(t)] * (in.v[static_cast<std::size_t>(t * 8 + v)] - w);
        for (std::int64_t d = 0; d < 8; ++d) {
          long double& s = S[static_cast<std::size_t>(d * 8 + v)];
          s = std::exp(g) * s + in.k[static_cast<std::size_t>(t * 8 + d)] * y;
          o += s * in.q[static_cast<std::size_t>(t * 8 + d)];
        }
        CHECK(static_cast<double>(std::fabs(in.scale * o - truth.o.hi[static_cast<std::size_t>(t * 8 + v)])) < 1e-14);
      }
    }
  }
}

TEST_CASE("limits: no rate is no decay, exactly; tiny gates are not nothing") {
  HeadInputs in;
  in.T = in.K = in.V = 1;
  in.q = in.k = {1};
  in.v = {0};
  in.beta = {0};
  in.h0 = {3};
  in.a = {100};
  in.A_log = kNone;
  set_raw_gates(in);
  HeadTruth t = oracle_head(in);
  CHECK(t.ht.hi[0] == 3);
  CHECK(t.ht.lo[0] == 0);
  CHECK(certified(t.ht.hi[0], t.ht.lo[0], t.ht.radius[0], Format::fp64));
  in.A_log = 100;
  in.a = {-200};                                   // g = -e^-100: the decay is 1 to every format, and not exactly 1
  set_raw_gates(in);
  t = oracle_head(in);
  CHECK(in.g[0] < 0);
  CHECK(t.ht.hi[0] == 3);
  CHECK(t.ht.lo[0] < 0);
  CHECK(audit_head(in, t) == "");
}

TEST_CASE("no way to form a raw gate in fp32 leaves its bound") {
  const Contract c = parse_contract("fp32-recurrent");
  double worst = 0;
  for (std::uint64_t i = 0; i < 60000; ++i) {
    const Arguments v = arguments(i);
    const double g = raw_gate(v.a, v.A_log, v.dt_bias).hi, allowed = raw_gate_error(c, v.a, v.A_log, v.dt_bias);
    if (!(std::fabs(g) < 3e38)) continue;
    const auto within = [&](float got) {
      const double ratio = std::fabs(static_cast<double>(got) - g) / allowed;
      worst = std::max(worst, ratio);
      if (!(ratio <= 1)) FAIL_CHECK("a=" << v.a << " A_log=" << v.A_log << " dt_bias=" << v.dt_bias << ": " << got << " for " << g << ", allowed " << allowed);
    };
    within(by_exponent(v));
    if (v.A_log > 88) continue;                    // exp(A_log) does not fit
    within(by_product(v));
    within(by_product_base_2(v));
  }
  INFO("greatest share of the bound " << worst);
  CHECK(worst > 0.05);                             // it is not merely wide
  // What goes wrong in the field does leave it.
  const auto outside = [&](float a, float A_log, double got) { return std::fabs(got - raw_gate(a, A_log, 0).hi) > raw_gate_error(c, a, A_log, 0); };
  CHECK(outside(-18, 16.118f, 0));                 // log(1 + e^x) = 0
  CHECK(outside(89, -10, -std::numeric_limits<double>::infinity()));
  CHECK(outside(-102, 100, -std::numeric_limits<double>::infinity()));
}

TEST_CASE("the CPU kernels take raw gates, and one that does not is not asked") {
  for (const char* kernel : {"cpu_recurrent_fp32", "cpu_recurrent_bf16", "cpu_chunk_fp32", "cpu_chunk_bf16"}) {
    const auto session = open_inline(kernel, {});
    int passed = 0;
    for (const CaseId& id : cases_of(Level::smoke, 3, {"raw_gates", "raw_gates_decode", "raw_gate_extremes"})) {
      const Case c = make_case(id);
      const Record r = judge_case(make_golden(c), c, *session);
      INFO(kernel << " " << r.case_id << ": " << r.reason);
      CHECK((r.verdict == "PASSED" || r.verdict == "NOT_SUPPORTED"));
      passed += r.verdict == "PASSED";
    }
    CHECK(passed >= 5);
  }
  Capabilities plain = parse_capabilities("ops=prefill;h0;ht");
  const Run run = make_case(parse_case_id("raw_gates:prefill/n1_t40_h2_hv4_k8_v8/fp32/h0,raw:1")).runs[0];
  CHECK(unsupported_reason(plain, parse_contract("fp32-recurrent"), run) == "raw gates, raw_gates not declared");
  plain = parse_capabilities("ops=prefill;h0;ht;raw_gates;A_log_max=88");
  CHECK(unsupported_reason(plain, parse_contract("fp32-recurrent"), run) == "");
  CHECK(unsupported_reason(plain, parse_contract("fp32-recurrent"), make_case(parse_case_id("raw_gate_extremes:prefill/n1_t9_h1_hv2_k8_v8/fp32/h0,raw:1")).runs[0]) ==
        "A_log=100 above declared A_log_max=88");
  plain = parse_capabilities("ops=prefill;h0;ht;raw_gates;g_min=-1");
  CHECK(unsupported_reason(plain, parse_contract("fp32-recurrent"), run).find("below declared g_min=-1") != std::string::npos);
}

TEST_CASE("golden files of raw gates are written and audited") {
  for (const char* id : {"raw_gates:prefill/n2_t9+4_h1_hv8_k4_v4/bf16/h0,g=bf16,raw:1", "raw_gates_decode:decode/n2_t4_h1_hv4_k4_v4/fp32/h0,slots=3,raw:1"}) {
    const test::Scratch dir;
    const auto file = generate_golden(dir.path, make_case(parse_case_id(id)));
    const CheckSummary s = check_directory(dir.path, [](const std::string& line) { FAIL_CHECK(line); });
    CHECK(s.audited_heads == s.heads);
    CHECK(read_golden(file).the_case.runs[0].inputs.count("A_log") == 1);
  }
}

TEST_CASE("every fault of raw gates is caught by these families alone, and the twin passes") {
  PowerOptions o;
  o.level = Level::smoke;
  const std::vector<std::string> extreme{"raw_rate_overflows", "raw_rate_times_zero", "raw_softplus_vanishes", "raw_softplus_cut_off"},
      ordinary{"raw_softplus_overflows", "raw_softplus_vanishes", "raw_softplus_cut_off", "raw_softplus_linear_too_early", "raw_no_rate_nan",
               "raw_bias_left_out", "raw_bias_of_key_head", "raw_rate_of_first_head", "raw_rate_not_exponentiated", "raw_gate_sum_in_bf16"};
  for (const char* family : {"raw_gates", "raw_gates_decode", "raw_gate_extremes"}) {
    o.families = {family};
    o.faults = o.families[0] == "raw_gate_extremes" ? extreme : ordinary;
    const PowerResult r = measure_power(o);
    INFO(power_table(r));
    CHECK(r.alarms.empty());
    for (const FaultPower& f : r.faults) {
      INFO(f.fault->name);
      CHECK(f.killed());
    }
  }
}

TEST_CASE("no run of identity tokens where gates are formed from raw ones") {
  for (const char* id : {"chunk_boundary:prefill/n1_t65_h1_hv2_k32_v32/fp32/h0,raw:1", "state_handoff:prefill/n1_t70_h1_hv2_k32_v32/fp32/h0,raw:1"}) {
    INFO(id);
    const Case c = make_case(parse_case_id(id));
    const auto session = open_inline("cpu_recurrent_fp32", {});
    const Record r = judge_case(make_golden(c), c, *session, {false, {}});
    CAPTURE(r.reason);
    CHECK(r.verdict == "PASSED");
  }
}
