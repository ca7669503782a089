// Case family `gate_positive`: a gate above 0, which lies outside the operation and has to be refused (clause 1.3).
// There to catch kernels that say they refuse it and do not. Others are never given one.
#include "suites/families/fill.h"
#include "suites/family.h"

namespace gdn {
namespace {

struct GatePositive final : Family {
  std::string name() const override { return "gate_positive"; }
  std::string profile() const override { return "gate_edges"; }
  std::string rationale() const override {
    return "A state that grows by e^g per token is no memory, and a sign lost on the way to the kernel looks just like that. A kernel that declares "
           "refuses_growth must answer such a call by an error, be the gate one in the middle of a sequence or 1e-7 only.";
  }
  std::string own_fault() const override { return "positive_gate_accepted"; }
  std::vector<std::string> kinds() const override { return {"gate-positive"}; }
  std::vector<Problem> problems(Level level) const override {
    if (level == Level::smoke) return fill::problems({"prefill/n1_t9_h1_hv2_k16_v16/bf16/h0"});
    return fill::problems({"prefill/n1_t70_h1_hv2_k64_v64/bf16/h0", "prefill/n1_t70_h1_hv2_k64_v64/fp32/h0", "prefill/n1_t9_h1_hv2_k128_v128/bf16/h0"});
  }
  Case make(const Problem& p, std::uint64_t seed) const override {
    fill::require_prefill(name(), p);
    fill::Style style;
    style.gates = {fill::Gates::mild};
    Case c = fill::single(name(), p, seed, fill::inputs(p, seed, style));
    const auto g = c.runs[0].inputs.find("g");
    if (g == c.runs[0].inputs.end() || p.tokens() == 0) return c;
    // One gate, past the middle, in the last head; 1e-7 with every second seed, else 1/2.
    const std::int64_t width = p.rule == Rule::kda ? p.key_dim : 1;
    g->second.set(((p.tokens() * 5 / 8) * p.value_heads + p.value_heads - 1) * width, seed % 2 ? 0.5 : 1e-7);
    c.runs[0].refuse = true;
    c.runs[0].truth = false;
    return c;
  }
};

const GatePositive family;
const RegisterFamily registered(&family);

}  // namespace
}  // namespace gdn
