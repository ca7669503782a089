// Case family `alternation`: one kernel called with other sizes, heads and dtypes in turn, and with the first again (row 36).
// There to catch workspaces, tables and dtypes that an earlier call left behind.
#include <utility>

#include "suites/families/fill.h"
#include "suites/families/relate.h"
#include "suites/family.h"

namespace gdn {
namespace {

using I = std::int64_t;

struct Alternation final : Family {
  std::string name() const override { return "alternation"; }
  std::string profile() const override { return "core"; }
  std::string rationale() const override {
    return "A model calls one kernel for layers and batches of different shape. The first call is small; then come longer sequences, more heads, K and V "
           "exchanged or another K and so another scale, in some cases another dtype; each is judged against its own exact result, and the first call again "
           "must give the same bits. What a kernel keeps by anything less than the whole problem shows in one of them. Kernels that declare "
           "none of the other sizes are exempt.";
  }
  std::string own_fault() const override { return "output_dtype_of_first_call"; }
  std::vector<std::string> kinds() const override { return {"workspace-stale", "nondeterministic"}; }
  std::vector<Problem> problems(Level level) const override {
    if (level == Level::smoke) return fill::problems({"prefill/n1_t20_h1_hv2_k32_v16/bf16/h0", "prefill/n1_t20_h1_hv2_k32_v16/fp32/h0", "prefill/n1_t20_h1_hv2_k16_v16/bf16/h0"});
    return fill::problems({"prefill/n1_t40_h1_hv2_k64_v32/bf16/h0", "prefill/n1_t40_h1_hv2_k64_v32/fp32/h0", "prefill/n1_t40_h1_hv2_k64_v64/bf16/h0",
                           "prefill/n1_t40_h1_hv2_k64_v64/fp32/h0", "prefill/n1_t40_h1_hv2_k64_v128/bf16/h0"});
  }
  Case make(const Problem& p, std::uint64_t seed) const override {
    fill::require_prefill(name(), p);
    fill::Style style;
    style.gates = {fill::Gates::mild, fill::Gates::slow};
    style.betas = {fill::Betas::sparse, fill::Betas::unit};
    Case c = fill::single(name(), p, seed, fill::inputs(p, seed, style));
    std::uint64_t other = seed;
    auto add = [&](const std::string& name, auto&& change) {
      other += 0x9e3779b97f4a7c15u;
      relate::add_run(c, name, [&](Run& r) {
        change(r.problem);
        r.inputs = fill::inputs(r.problem, other, style);
      }, true);
    };
    auto same = [&](const std::string& name) {
      const std::size_t again = relate::add_run(c, name, [](Run&) {});
      relate::add(c, 36, RelationClass::deterministic, again, "the same call gives the same bits, whatever ran between", relate::base_times(again, 1, 1));
    };
    same("at once again");
    add("longer", [](Problem& q) { for (I& length : q.lengths) length = 2 * length + 9; });
    const auto more_heads = [](Problem& q) { q.heads *= 2; q.value_heads *= 2; q.initial_state = !q.initial_state; };
    add("more heads", more_heads);
    add("more heads with other values", more_heads);   // a workspace that is cleared when it is made only
    if (p.key_dim != p.value_dim) add("dimensions exchanged", [](Problem& q) { std::swap(q.key_dim, q.value_dim); });
    else add("half the key dimension", [](Problem& q) { q.key_dim = (q.key_dim + 1) / 2; });
    // From 16 bits to 32 and back, or the other way; cases with K != V are for kernels of one dtype.
    if (p.key_dim == p.value_dim) add("another dtype", [](Problem& q) { q.io = q.io == DType::f32 ? DType::bf16 : DType::f32; });
    add("shorter", [](Problem& q) { for (I& length : q.lengths) length = (length + 1) / 2; });
    same("at last again");
    relate::add_negated_values(c);
    return c;
  }
};

const Alternation family;
const RegisterFamily registered(&family);

}  // namespace
}  // namespace gdn
