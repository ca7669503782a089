// Case family `layer_norms`: the three norms of the layer where their epsilons count, and the two l2norms that kernels have, and none.
// There to catch norms in another order, of another axis or kind, and epsilons at the wrong place.
#include <algorithm>

#include "suites/families/fill.h"
#include "suites/families/layer_fill.h"
#include "suites/family.h"

namespace gdn {
namespace {

struct LayerNorms final : Family {
  std::string name() const override { return "layer_norms"; }
  std::string profile() const override { return "layer"; }
  std::string rationale() const override {
    return "Hidden states and keys of a size at which eps = 1e-6 is no small part of their squares, so that its place shows; q and k divided by sqrt(sum x^2 + eps), by max(|x|, eps), or not at all.";
  }
  std::string own_fault() const override { return "layer_l2norm_eps_outside"; }
  std::vector<std::string> kinds() const override { return {"l2norm-eps-wrong", "unwanted-normalisation", "norm-order-wrong", "gated-norm-wrong"}; }
  std::vector<Problem> problems(Level level) const override {
    if (level == Level::smoke)
      return fill::problems({"layer_prefill/n1_t6_h1_hv2_k8_v8/fp32/h0,hidden=16,conv=2", "layer_prefill/n1_t6_h1_hv2_k8_v8/bf16/h0,hidden=16,conv=2,l2=max"});
    return fill::problems({"layer_prefill/n1_t9_h2_hv4_k16_v8/fp32/h0,hidden=32,conv=4", "layer_prefill/n1_t9_h2_hv4_k16_v8/bf16/h0,hidden=32,conv=4", "layer_prefill/n1_t9_h2_hv4_k16_v8/fp32/h0,hidden=32,conv=4,l2=max",
                           "layer_prefill/n1_t9_h2_hv4_k16_v8/bf16/h0,hidden=32,conv=4,l2=max", "layer_prefill/n1_t9_h1_hv2_k16_v8/fp32/hidden=32,conv=4,l2=none", "layer_prefill/n1_t9_h1_hv2_k16_v8/bf16/hidden=32,conv=4,l2=none"});
  }
  Case make(const Problem& p, std::uint64_t seed) const override {
    if (!p.layer()) fill::require_layer(name(), p);
    fill::LayerStyle style;
    style.x = 0x1p-9;
    style.key = p.l2 == L2Form::none ? 0.5 : 0x1p-9;
    TensorSet t = fill::layer_inputs(p, seed, style);
    // The history would be far larger than the keys otherwise.
    Tensor& history = t.at("conv_state");
    const std::int64_t keys = 2 * p.heads * p.key_dim;
    for (std::int64_t i = 0; i < history.size(); ++i)
      if (i / std::max<std::int64_t>(1, p.conv - 1) % layer_channels(p) < keys) history.set(i, style.key * history.at(i));
    return fill::single(name(), p, seed, std::move(t));
  }
};

const LayerNorms family;
const RegisterFamily registered(&family);

}  // namespace
}  // namespace gdn
