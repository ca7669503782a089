// Case family `layer_typical`: the layer around the rule on ordinary weights, prefill, ragged and packed.
// There to catch what is wrong for every token: a projection cut at the wrong place, an activation, a norm or a head in another order.
#include "suites/families/fill.h"
#include "suites/families/layer_fill.h"
#include "suites/family.h"

namespace gdn {
namespace {

struct LayerTypical final : Family {
  std::string name() const override { return "layer_typical"; }
  std::string profile() const override { return "layer"; }
  std::string rationale() const override {
    return "Everything from the hidden state to the layer's output, with states in and out, on weights of the size that trained ones have. Norm weights differ from channel to channel, heads are grouped, "
           "histories and states are random, so that nothing can be exchanged or left out unseen.";
  }
  std::string own_fault() const override { return "layer_history_needs_final_state"; }
  std::vector<std::string> kinds() const override {
    return {"conv-state-wrong", "activation-order-wrong", "gated-norm-wrong", "norm-order-wrong", "unwanted-normalisation", "projection-packing-wrong", "head-map-wrong", "sign-wrong", "gate-ignored",
            "initial-state-ignored", "final-state-wrong", "final-state-unwritten"};
  }
  std::vector<Problem> problems(Level level) const override {
    if (level == Level::smoke)
      return fill::problems({"layer_prefill/n1_t9_h2_hv4_k8_v8/fp32/h0,hidden=24,conv=4", "layer_prefill/n1_t9_h2_hv4_k8_v8/bf16/h0,hidden=24,conv=4", "layer_prefill/n1_t5_h1_hv2_k8_v8/fp32/h0,noht,hidden=16,conv=4"});
    std::vector<Problem> p = fill::problems({"layer_prefill/n1_t21_h2_hv4_k16_v16/fp32/h0,hidden=48,conv=4", "layer_prefill/n1_t17_h2_hv6_k16_v24/bf16/h0,hidden=40,conv=4",
                                             "layer_prefill/n1_t12_h1_hv1_k32_v16/fp16/h0,hidden=32,conv=4", "layer_prefill/n2_t33+4_h2_hv4_k32_v32/bf16/hidden=64,conv=4",
                                             "layer_prefill/n1_t5_h4_hv8_k64_v64/bf16/h0,hidden=256,conv=4", "layer_prefill/n1_t5_h4_hv8_k64_v64/fp32/hidden=256,conv=4",
                                             "layer_prefill/n1_t9_h2_hv4_k8_v8/fp32/h0,state=bf16,hidden=24,conv=4", "layer_prefill/n1_t9_h2_hv4_k8_v8/fp32/h0,noht,cu=i32,hidden=24,conv=4",
                                             "layer_prefill/n2_t9_h2_hv4_k8_v8/fp32/h0,strided,hidden=24,conv=4"});
    if (level >= Level::nightly)
      for (Problem& more : fill::problems({"layer_prefill/n1_t130_h4_hv8_k64_v64/bf16/h0,hidden=256,conv=4", "layer_prefill/n1_t130_h4_hv8_k64_v64/fp32/h0,hidden=256,conv=4"})) p.push_back(std::move(more));
    if (level == Level::exhaustive)                // the layer of a 35B model
      for (Problem& more : fill::problems({"layer_prefill/n1_t64_h16_hv32_k128_v128/bf16/h0,hidden=2048,conv=4", "layer_prefill/n1_t512_h16_hv32_k128_v128/fp32/hidden=2048,conv=4"})) p.push_back(std::move(more));
    return p;
  }
  Case make(const Problem& p, std::uint64_t seed) const override {
    fill::require_layer(name(), p);
    return fill::single(name(), p, seed, fill::layer_inputs(p, seed));
  }
};

const LayerTypical family;
const RegisterFamily registered(&family);

}  // namespace
}  // namespace gdn
