// Case family `layer_steps`: decode = prefill = resume at every split (rows 21 and 37), with the state and the history of the convolution handed over.
// There to catch histories that are shifted, cut short or activated, and paths of prefill and decode that do not go together.
#include <algorithm>

#include "suites/families/fill.h"
#include "suites/families/layer_fill.h"
#include "suites/families/relate.h"
#include "suites/family.h"

namespace gdn {
namespace {

using I = std::int64_t;

struct LayerSteps final : Family {
  std::string name() const override { return "layer_steps"; }
  std::string profile() const override { return "layer"; }
  std::string rationale() const override {
    return "One sequence in one call, cut once at every token (so that calls of fewer tokens than the convolution reaches back come first and last), and token by token by layer_decode, with the widths that models have "
           "and others. A recurrent kernel that promises it must return the same numbers; all runs are judged against the exact result.";
  }
  std::string own_fault() const override { return "layer_history_of_first_row"; }
  std::vector<std::string> kinds() const override { return {"conv-state-wrong", "activation-order-wrong", "initial-state-ignored", "final-state-wrong"}; }
  std::vector<Problem> problems(Level level) const override {
    if (level == Level::smoke)
      return fill::problems({"layer_prefill/n1_t6_h1_hv2_k8_v8/fp32/h0,hidden=16,conv=4", "layer_prefill/n1_t6_h1_hv2_k8_v8/bf16/h0,hidden=16,conv=4",
                             "layer_decode/n2_t3_h1_hv2_k8_v8/fp32/h0,hidden=16,conv=4"});
    std::vector<Problem> p = fill::problems({"layer_prefill/n1_t9_h2_hv4_k8_v16/fp32/h0,hidden=24,conv=4", "layer_prefill/n1_t9_h2_hv4_k8_v16/bf16/h0,hidden=24,conv=4",
                                             "layer_prefill/n2_t7_h1_hv2_k16_v8/fp32/hidden=16,conv=3", "layer_prefill/n1_t5_h1_hv2_k8_v8/fp32/h0,hidden=16,conv=1",
                                             "layer_prefill/n1_t5_h1_hv2_k8_v8/bf16/h0,hidden=16,conv=2", "layer_prefill/n1_t11_h1_hv1_k8_v8/fp32/h0,hidden=16,conv=8",
                                             "layer_decode/n3_t4_h2_hv4_k16_v16/bf16/h0,hidden=32,conv=4", "layer_decode/n2_t4_h2_hv4_k16_v16/fp32/h0,hidden=32,conv=4"});
    if (level == Level::exhaustive) p.push_back(parse_problem("layer_decode/n1_t3_h16_hv32_k128_v128/bf16/h0,hidden=2048,conv=4"));
    return p;
  }
  Case make(const Problem& p, std::uint64_t seed) const override {
    if (!p.layer()) fill::require_layer(name(), p);
    Case c = fill::single(name(), p, seed, fill::layer_inputs(p, seed));
    if (p.operation == Operation::layer_decode || !p.split.empty()) return c;
    const I shortest = *std::min_element(p.lengths.begin(), p.lengths.end()), longest = *std::max_element(p.lengths.begin(), p.lengths.end());
    const auto same = [](const std::vector<TensorSet>& results) { return results[0]; };
    for (I cut = 1; cut < longest; ++cut) {
      const std::size_t at = relate::add_run(c, "cut at " + std::to_string(cut), [&](Run& r) { r.problem.split = {cut}; }, true);
      relate::add(c, 21, RelationClass::recurrent, at, "a sequence cut anywhere goes on with the same numbers, state and history handed over", same);
    }
    if (shortest != longest || shortest < 1 || p.padding) return c;
    const std::size_t steps = relate::add_run(c, "token by token", [&](Run& r) { r.problem.operation = Operation::layer_decode; }, true);
    relate::add(c, 37, RelationClass::steps_as_prefill, steps, "decoded token by token, the layer gives what its prefill gives", same);
    return c;
  }
};

const LayerSteps family;
const RegisterFamily registered(&family);

}  // namespace
}  // namespace gdn
