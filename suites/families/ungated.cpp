// Case family `ungated`: the delta rule without a gate tensor, and the gated one with g = 0 (row 27).
// There to catch slips of the path that kernels take when no gates are given.
#include "suites/families/fill.h"
#include "suites/families/relate.h"
#include "suites/family.h"

namespace gdn {
namespace {

struct Ungated final : Family {
  std::string name() const override { return "ungated"; }
  std::string profile() const override { return "core"; }
  std::string rationale() const override {
    return "Kernels that do the ungated delta rule often do it on a path of their own, on which masks, decays and states that came with the "
           "gates have to come from elsewhere. The same inputs are run under rule delta and, with g = 0, under the gated rule; both are judged "
           "against the exact result, which is the same. Asked of kernels that declare rule delta.";
  }
  std::vector<std::string> kinds() const override { return {"mask-off-by-one", "initial-state-ignored", "cross-term-missing", "correction-missing", "state-leaks-into-next-sequence", "head-map-wrong"}; }
  std::vector<Problem> problems(Level level) const override {
    if (level == Level::smoke) return fill::problems({"prefill/n1_t66_h1_hv2_k32_v32/bf16/h0,rule=delta", "prefill/n1_t66_h1_hv2_k32_v32/fp32/h0,rule=delta"});
    return fill::problems({"prefill/n1_t130_h2_hv4_k64_v64/bf16/h0,rule=delta", "prefill/n1_t130_h2_hv4_k64_v64/fp32/h0,rule=delta",
                           "prefill/n1_t70_h1_hv2_k128_v128/bf16/h0,rule=delta", "prefill/n1_t1_h1_hv2_k64_v64/fp32/h0,rule=delta",
                           "prefill/n3_t70_h2_hv6_k32_v32/bf16/h0,rule=delta", "prefill/n3_t70_h2_hv6_k32_v32/fp32/h0,rule=delta"});
  }
  Case make(const Problem& p, std::uint64_t seed) const override {
    fill::require_prefill(name(), p);
    fill::Style style;
    style.gates = {fill::Gates::zero};
    style.betas = {fill::Betas::sparse};
    Case c = fill::single(name(), p, seed, fill::inputs(p, seed, style));
    if (p.rule == Rule::delta)
      relate::add_run(c, "gated with g = 0", [](Run& r) {
        r.problem.rule = Rule::gated_delta;
        r.inputs["g"] = Tensor(r.problem.gate, {r.problem.tokens() + r.problem.padding, r.problem.value_heads});
        fill::poison_padding(r.problem, r.inputs);
      }, true);
    relate::add_negated_values(c);
    return c;
  }
};

const Ungated family;
const RegisterFamily registered(&family);

}  // namespace
}  // namespace gdn
