// Case family `layer_gates`: decay and write strength of the layer in their tails, A_log and dt_bias in fp32 and in 16 bits.
// There to catch softplus formulas that overflow or vanish, signs and domains of A_log, biases at the wrong place and sigmoids in 16 bits.
#include "suites/families/fill.h"
#include "suites/families/layer_fill.h"
#include "suites/family.h"

namespace gdn {
namespace {

using I = std::int64_t;

struct LayerGates final : Family {
  std::string name() const override { return "layer_gates"; }
  std::string profile() const override { return "layer"; }
  std::string rationale() const override {
    return "Each value head has gates of its own kind: softplus far below 0 beside a large rate and far above 0 beside a small one, so that e^x alone would be 0 or infinite and the decay is ordinary; a slow memory; the middle, where "
           "softplus is no straight line. Write strengths lie near 0, in the middle and near 1. The gate's parameters come in fp32 and in bf16.";
  }
  std::string own_fault() const override { return "layer_softplus_overflows"; }
  std::vector<std::string> kinds() const override {
    return {"raw-gate-overflow", "raw-gate-underflow", "sign-wrong", "gate-domain-mixed", "gate-ignored", "beta-narrowed", "gate-narrowed", "beta-clamped"};
  }
  std::vector<Problem> problems(Level level) const override {
    if (level == Level::smoke)
      return fill::problems({"layer_prefill/n1_t8_h1_hv6_k8_v4/fp32/h0,hidden=16,conv=2", "layer_prefill/n1_t8_h1_hv6_k8_v4/bf16/h0,g=bf16,hidden=16,conv=2"});
    return fill::problems({"layer_prefill/n1_t8_h2_hv12_k16_v8/fp32/h0,hidden=32,conv=4", "layer_prefill/n1_t8_h2_hv12_k16_v8/bf16/h0,hidden=32,conv=4", "layer_prefill/n1_t8_h1_hv6_k8_v8/fp32/h0,g=bf16,hidden=32,conv=4",
                           "layer_prefill/n1_t7_h1_hv6_k8_v8/bf16/h0,g=bf16,hidden=32,conv=4", "layer_decode/n1_t5_h1_hv6_k8_v8/fp32/h0,g=fp16,hidden=32,conv=4"});
  }
  Case make(const Problem& p, std::uint64_t seed) const override {
    if (!p.layer()) fill::require_layer(name(), p);
    TensorSet t = fill::layer_inputs(p, seed);
    const Random r(seed, "gates");
    //                          bias   A_log  what it is
    constexpr double kinds[][2] = {{-34, 32},      // rate e^(A+x): ordinary, e^x below the last digit of 1
                                   {-86, 84},      // both factors near the ends of fp32
                                   {100, -6},      // e^x is infinite in fp32
                                   {3, -1.5},      // no straight line yet
                                   {-1, -4},       // slow
                                   {0.5, 0.25}};
    for (I h = 0; h < p.value_heads; ++h) {
      t.at("dt_bias").set(h, kinds[h % 6][0] + r.uniform(static_cast<std::uint64_t>(2 * h), -0.5, 0.5));
      t.at("A_log").set(h, kinds[h % 6][1] + r.uniform(static_cast<std::uint64_t>(2 * h + 1), -0.25, 0.25));
    }
    return fill::single(name(), p, seed, std::move(t));
  }
};

const LayerGates family;
const RegisterFamily registered(&family);

}  // namespace
}  // namespace gdn
