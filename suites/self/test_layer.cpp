// The layer: its oracle against the audit, what must hold between its runs, its bound against its contracts carried out.
#include <cmath>

#include "reference/layer.h"
#include "reference/rng.h"
#include "reference/strand.h"
#include "suites/families/fill.h"
#include "suites/families/layer_fill.h"
#include "suites/self/catch.h"
#include "suites/standing.h"

using namespace gdn;
using I = std::int64_t;

namespace {

Run layer_run(const char* problem, std::uint64_t seed = 1) {
  const Problem p = parse_problem(problem);
  return {"base", p, fill::layer_inputs(p, seed), true};
}

double at(const TruthTensor& t, I i) { return t.hi[static_cast<std::size_t>(i)]; }

// |a - b| within both radii, for rows of a tensor.
void same(const TruthTensor& a, I from, const TruthTensor& b, I to, I count) {
  for (I i = 0; i < count; ++i) {
    const auto x = static_cast<std::size_t>(from + i), y = static_cast<std::size_t>(to + i);
    REQUIRE(std::fabs((a.hi[x] - b.hi[y]) + (a.lo[x] - b.lo[y])) <= static_cast<double>(a.radius[x]) + static_cast<double>(b.radius[y]));
  }
}

}  // namespace

TEST_CASE("the layer's oracle agrees with its audit") {
  for (const char* problem : {"layer_prefill/n1_t9_h2_hv4_k8_v6/fp32/h0,hidden=12,conv=4", "layer_prefill/n3_t5+0+2_h1_hv3_k4_v8/bf16/pad=2,hidden=10,conv=4",
                              "layer_prefill/n1_t6_h1_hv1_k8_v8/fp32/hidden=8,conv=2,l2=max", "layer_prefill/n2_t7_h2_hv2_k4_v4/fp16/h0,hidden=8,conv=3,l2=none",
                              "layer_decode/n2_t5_h1_hv2_k8_v4/bf16/h0,state=bf16,hidden=8,conv=4", "layer_prefill/n1_t4_h1_hv2_k4_v4/fp32/g=bf16,hidden=6,conv=1"}) {
    CAPTURE(problem);
    const Run run = layer_run(problem);
    OracleStats stats;
    const Truth truth = oracle(run, &stats);
    CHECK(audit_layer(run, truth) == "");
    CHECK(stats.elements > 0);
    CHECK(stats.balls <= stats.elements / 100);
    // Radii are what certification needs: far below any rounding of fp32.
    for (const auto& [name, t] : truth)
      for (std::size_t i = 0; i < t.hi.size(); ++i)
        if (std::isfinite(t.radius[i])) REQUIRE(static_cast<double>(t.radius[i]) <= 0x1p-60 * std::max(std::fabs(t.hi[i]), 0x1p-20));
  }
}

TEST_CASE("the audit of the layer sees one wrong element") {
  const Run run = layer_run("layer_prefill/n1_t5_h1_hv2_k4_v4/fp32/h0,hidden=6,conv=3");
  for (const char* tensor : {"y", "ht", "conv_state"}) {
    Truth truth = oracle(run);
    double& x = truth.at(tensor).hi[3];
    x = std::nextafter(x, 10.0);
    CHECK(audit_layer(run, truth).find(tensor) != std::string::npos);
  }
}

TEST_CASE("a prefix is what the whole says of it, and decoding gives the same, to the radius") {
  const Run whole = layer_run("layer_prefill/n2_t6_h1_hv2_k8_v4/fp32/h0,hidden=8,conv=4");
  const Truth truth = oracle(whole);
  const Problem& p = whole.problem;
  const I rows = p.sequences(), T = p.lengths[0], D = p.hidden;
  for (I cut = 1; cut < T; ++cut) {
    Run first = whole;
    first.problem.lengths = {cut, cut};
    Tensor x(p.io, {2 * cut, D});
    for (I n = 0; n < rows; ++n)
      for (I i = 0; i < cut * D; ++i) x.set_bits(n * cut * D + i, whole.inputs.at("x").bits(n * T * D + i));
    first.inputs["x"] = x;
    const Truth part = oracle(first);
    for (I n = 0; n < rows; ++n) same(truth.at("y"), n * T * D, part.at("y"), n * cut * D, cut * D);
  }
  Run steps = whole;
  steps.problem.operation = Operation::layer_decode;
  const Truth stepped = oracle(steps);
  for (const auto& [name, t] : truth) same(t, 0, stepped.at(name), 0, static_cast<I>(t.hi.size()));
}

TEST_CASE("the history of the convolution is what the projection gave, not what it was activated to") {
  // W = 2, one tap on the token before: with w_conv = (1, 0) the channel is silu of the value before.
  Run run = layer_run("layer_prefill/n1_t1_h1_hv1_k2_v2/fp32/hidden=2,conv=2");
  const Truth t = oracle(run);
  const Problem& p = run.problem;
  // conv_state out is w_qkv u of the last token.
  double mean = 0;
  for (I i = 0; i < 2; ++i) mean += run.inputs.at("x").at(i) * run.inputs.at("x").at(i) / 2;
  const double scale = 1 / std::sqrt(mean + kLayerEps);
  for (I c = 0; c < layer_channels(p); ++c) {
    double m = 0;
    for (I i = 0; i < 2; ++i) m += run.inputs.at("w_qkv").at(c * 2 + i) * run.inputs.at("x").at(i) * scale * run.inputs.at("norm_in_w").at(i);
    CHECK(std::fabs(at(t.at("conv_state"), c) - m) < 1e-13 * std::max(1.0, std::fabs(m)));
  }
}

TEST_CASE("gates of the layer are right in both tails") {
  for (const float dt : {-300.0f, -90.0f, -20.0f, 0.0f, 20.0f, 95.0f, 300.0f}) {
    CAPTURE(dt);
    Run run = layer_run("layer_prefill/n1_t3_h1_hv1_k4_v4/fp32/h0,hidden=4,conv=2");
    run.inputs["dt_bias"].set(0, static_cast<double>(dt));
    run.inputs["A_log"].set(0, dt > 0 ? -8 : dt < -80 ? 80 : 1);
    const Truth truth = oracle(run);
    CHECK(audit_layer(run, truth) == "");
    for (const double x : truth.at("ht").hi) CHECK(std::isfinite(x));
  }
}

TEST_CASE("contracts carried out stay within the layer's bound, and are not far below it") {
  for (const char* problem : {"layer_prefill/n1_t12_h2_hv4_k8_v8/fp32/h0,hidden=16,conv=4", "layer_prefill/n2_t5+3_h1_hv2_k16_v8/bf16/h0,hidden=16,conv=4",
                              "layer_decode/n1_t6_h1_hv2_k8_v8/bf16/h0,hidden=16,conv=3", "layer_prefill/n1_t8_h1_hv1_k8_v8/fp32/hidden=16,conv=4,l2=max,split=3"})
    for (const char* contract : {"fp32-recurrent", "bf16-recurrent", "fp32-chunk", "bf16-recurrent;x_norm=bf16;proj=bf16;conv=bf16;core=bf16;normed=bf16", "bf16-chunk"}) {
      CAPTURE(problem, contract);
      const Run run = layer_run(problem);
      const Contract c = for_problem(parse_contract(contract), run.problem);
      const Truth truth = oracle(run);
      const StageBounds bound = layer_bound(c, run);
      const TensorSet got = simulate_layer(c, run);
      double most = 0;
      for (const StageTensor& t : layer_outputs(run.problem)) {
        const TruthTensor& want = truth.at(t.name);
        const Format into = format_of(t.dtype);
        for (std::size_t i = 0; i < want.hi.size(); ++i) {
          if (std::isinf(want.radius[i])) continue;
          const double x = rounded(got.at(t.name).at(static_cast<I>(i)), 0, into), error = std::fabs((x - want.hi[i]) - want.lo[i]), allowed = bound.at(t.name)[i];
          CAPTURE(t.name, i, x, want.hi[i], allowed);
          REQUIRE(error <= allowed + static_cast<double>(want.radius[i]));
          if (allowed > 0) most = std::max(most, error / allowed);
        }
      }
      CHECK(most > 1e-3);
    }
}

TEST_CASE("a problem of the layer is refused in one line") {
  for (const char* bad : {"layer_prefill/n1_t2_h1_hv1_k4_v4/fp32/conv=4", "layer_prefill/n1_t2_h1_hv1_k4_v4/fp32/hidden=4", "layer_decode/n2_t2+3_h1_hv1_k4_v4/fp32/hidden=4,conv=4",
                          "layer_prefill/n1_t2_h1_hv1_k4_v4/fp32/hidden=4,conv=4,l2=some", "prefill/n1_t2_h1_hv1_k4_v4/fp32/hidden=4", "layer_prefill/n1_t2_h1_hv1_k4_v4/fp32/hidden=4,conv=4,raw"}) {
    CAPTURE(bad);
    CHECK_THROWS_AS(parse_problem(bad), std::invalid_argument);
  }
  const char* good = "layer_prefill/n2_t9+4_h2_hv4_k16_v16/bf16/h0,hidden=32,conv=4,l2=max";
  CHECK(to_string(parse_problem(good)) == good);
  CHECK(to_string(parse_contract("bf16-recurrent;proj=bf16")) == "bf16-recurrent;proj=bf16");
}
