// Case family `relation_zeros`: nothing in gives nothing out (row 7).
// There to catch outputs that are made of stale memory, of another head, or of a bias.
#include "suites/families/fill.h"
#include "suites/families/relate.h"
#include "suites/family.h"

namespace gdn {
namespace {

struct RelationZeros final : Family {
  std::string name() const override { return "relation_zeros"; }
  std::string profile() const override { return "core"; }
  std::string rationale() const override {
    return "Without values and without an initial state everything is zero, whatever keys and gates are; with "
           "queries of zero the outputs are zero and the final state is what it was. Anything else comes from memory "
           "that is not the problem's.";
  }
  std::vector<std::string> kinds() const override {
    return {"workspace-stale", "output-unwritten"};
  }
  std::vector<Problem> problems(Level level) const override {
    if (level == Level::smoke) return fill::problems({"prefill/n1_t70_h1_hv2_k64_v32/bf16/h0",
                                                     "prefill/n1_t70_h1_hv2_k64_v32/fp32/h0"});
    return fill::problems({"prefill/n1_t130_h2_hv4_k64_v32/bf16/h0", "prefill/n1_t130_h2_hv4_k64_v32/fp32/h0",
                           "prefill/n1_t50_h1_hv2_k128_v128/bf16/h0"});
  }
  Case make(const Problem& p, std::uint64_t seed) const override {
    fill::require_prefill(name(), p);
    fill::Style style;
    style.gates = {fill::Gates::mild, fill::Gates::slow, fill::Gates::spikes, fill::Gates::zero};
    Case c = fill::single(name(), p, seed, fill::inputs(p, seed, style));
    auto clear = [](Run& r, const char* tensor) {
      if (const auto it = r.inputs.find(tensor); it != r.inputs.end()) it->second = Tensor(it->second.dtype, it->second.shape);
    };
    const std::size_t nothing = relate::add_run(c, "no values", [&](Run& r) { clear(r, "v"); clear(r, "h0"); });
    relate::add(c, 7, RelationClass::bit, nothing, "v = 0 and h0 = 0 give o = 0 and ht = 0", relate::base_times(nothing, 0, 0));
    const std::size_t unasked = relate::add_run(c, "no queries", [&](Run& r) { clear(r, "q"); });
    relate::add(c, 7, RelationClass::bit, unasked, "q = 0 gives o = 0 and the same ht", relate::base_times(unasked, 0, 1));
    return c;
  }
};

const RelationZeros family;
const RegisterFamily registered(&family);

}  // namespace
}  // namespace gdn
