// Case family `hybrid_stack`: hidden states as they come out of the layers of a hybrid stack [L,L,L,F] and its next layer; decode = prefill = resume in each.
// There to catch what an ordinary hidden state hides: sums of residuals that grow, and outputs of a softmax attention in between.
#include "reference/stack.h"
#include "suites/families/fill.h"
#include "suites/families/layer_fill.h"
#include "suites/families/relate.h"
#include "suites/family.h"
#include "suites/hybrid.h"

namespace gdn {
namespace {

using I = std::int64_t;

struct HybridFamily final : Family {
  std::string name() const override { return "hybrid_stack"; }
  std::string profile() const override { return "layer"; }
  std::string rationale() const override {
    return "Three layers of the rule, a softmax attention and the layer after it: each gets the sum of all that came before, computed in fp32 to nearest, as its hidden states, and starts fresh; whole, cut once, and token by token. "
           "The attention itself is no operation of a kernel here: `gdn-cts experiments hybrid_paths` runs the whole stack.";
  }
  std::string own_fault() const override { return "layer_hidden_square_sum_limited"; }
  std::vector<std::string> kinds() const override { return {"saturation-wrong", "conv-state-wrong", "final-state-wrong", "unwanted-normalisation"}; }
  std::vector<Problem> problems(Level level) const override {
    if (level == Level::smoke) return fill::problems({"layer_prefill/n1_t4_h1_hv2_k8_v8/fp32/hidden=16,conv=4"});   // layer_steps has its faults there
    return fill::problems({"layer_prefill/n1_t7_h1_hv2_k8_v8/fp32/hidden=16,conv=4", "layer_prefill/n1_t7_h1_hv2_k8_v8/bf16/hidden=16,conv=4"});
  }
  Case make(const Problem& p, std::uint64_t seed) const override {
    fill::require_layer(name(), p);
    if (p.initial_state || p.padding || p.sequences() != 1 || !p.split.empty()) throw std::invalid_argument("family " + name() + " is about one fresh sequence, not '" + to_string(p) + "'");
    const I D = p.hidden, T = p.lengths[0];
    Stack stack = drawn_stack(p, 4, 2, 4, seed);
    // Massive activations, as trained models have them: one channel of a few tokens is hundreds of times the others, and stays so through all layers.
    for (I t = 0; t < T; t += 3) stack.x.set(t * D + 2, t % 2 ? 300 : -300);
    const TensorSet last = stack.layers.back();
    stack.layers.pop_back();
    const auto after = simulate_stack(parse_contract("fp32-recurrent"), stack);
    Case c;
    for (std::size_t layer = 0; layer < 4; ++layer) {
      TensorSet inputs = layer < 3 ? stack.layers[layer] : last;
      Tensor x(p.io, {T, D});
      for (I i = 0; i < T * D; ++i) x.set(i, layer == 0 ? stack.x.at(i) : after[layer < 3 ? layer - 1 : 3][static_cast<std::size_t>(i)]);
      inputs["x"] = std::move(x);
      std::size_t base = 0;
      if (layer == 0) c = fill::single(name(), p, seed, std::move(inputs));
      else base = relate::add_run(c, layer < 3 ? "layer " + std::to_string(layer + 1) : "layer after the attention", [&](Run& r) { r.inputs = std::move(inputs); }, true);
      const auto same = [base](const std::vector<TensorSet>& results) { return results[base]; };
      const TensorSet own = c.runs[base].inputs;
      const std::string title = layer == 0 ? "layer 1" : c.runs[base].name;
      if (T > 1) {
        const std::size_t cut = relate::add_run(c, title + ", cut", [&](Run& r) { r.inputs = own, r.problem.split = {(T + 1) / 2}; }, true);
        relate::add(c, 21, RelationClass::recurrent, cut, "a sequence cut anywhere goes on with the same numbers, state and history handed over", same);
      }
      if (T < 1) continue;
      const std::size_t steps = relate::add_run(c, title + ", token by token", [&](Run& r) { r.inputs = own, r.problem.operation = Operation::layer_decode; }, true);
      relate::add(c, 37, RelationClass::steps_as_prefill, steps, "decoded token by token, the layer gives what its prefill gives", same);
    }
    return c;
  }
};

const HybridFamily family;
const RegisterFamily registered(&family);

}  // namespace
}  // namespace gdn
