// Case family `relation_steps`: decoded step by step, a sequence is what its prefill is (row 21).
// There to catch prefill and decode paths that do not go together: another state layout, another rounding, another step.
#include "suites/families/pool.h"
#include "suites/families/relate.h"
#include "suites/family.h"

namespace gdn {
namespace {

using I = std::int64_t;

struct RelationSteps final : Family {
  std::string name() const override { return "relation_steps"; }
  std::string profile() const override { return "continuation"; }
  std::string rationale() const override {
    return "The tokens of a few sequences are decoded one by one on a pool, and prefilled in one call from the same states. "
           "Both are judged by the bound, and a kernel that declares steps_as_prefill must return the same numbers twice. "
           "States are not symmetric and K differs from V, so two layouts of one state cannot agree.";
  }
  std::string own_fault() const override { return "query_scaled_first_in_decode"; }
  std::vector<std::string> kinds() const override {
    return {"initial-state-transposed", "final-state-transposed", "slot-wrong", "initial-state-ignored", "one-token-sequence-mishandled", "paths-differ"};
  }
  std::vector<Problem> problems(Level level) const override {
    if (level == Level::smoke)
      return fill::problems({"decode/n2_t9_h1_hv2_k32_v48/bf16/h0,slots=4", "decode/n2_t9_h1_hv2_k32_v48/fp32/h0,slots=4"});
    return fill::problems({"decode/n3_t40_h2_hv4_k32_v48/bf16/h0,slots=6", "decode/n3_t40_h2_hv4_k32_v48/fp32/h0,slots=6",
                           "decode/n2_t70_h1_hv2_k64_v64/bf16/h0,slots=3", "decode/n2_t70_h1_hv2_k64_v64/fp32/h0,slots=3",
                           "decode/n2_t20_h1_hv2_k128_v128/bf16/h0,slots=3", "decode/n2_t20_h1_hv2_k128_v128/fp32/h0,slots=3"});
  }
  Case make(const Problem& p, std::uint64_t seed) const override {
    fill::require_pool(name(), p, Operation::decode);
    if (p.slots < p.sequences()) throw std::invalid_argument("family " + name() + " needs a slot for every row: '" + to_string(p) + "'");
    fill::Style style;
    style.gates = {fill::Gates::mild, fill::Gates::slow, fill::Gates::zero};
    style.betas = {fill::Betas::sparse, fill::Betas::unit};
    const I N = p.sequences(), calls = static_cast<I>(p.cuts().size()) + 1, KV = p.value_heads * p.key_dim * p.value_dim;
    const std::vector<I> slots = pool::live_slots(p, seed, N);
    Tensor indices(DType::i32, {calls, N});
    for (I c = 0; c < calls; ++c)
      for (I n = 0; n < N; ++n) indices.set(c * N + n, static_cast<double>(slots[static_cast<std::size_t>(n)]));
    Case c = fill::single(name(), p, seed, pool::inputs(p, seed, style, indices));
    const std::size_t whole = relate::add_run(c, "prefilled", [&](Run& r) {
      r.problem.operation = Operation::prefill;
      r.problem.slots = 0;
      Tensor h0(p.state, {N, p.value_heads, p.key_dim, p.value_dim});
      for (I n = 0; n < N; ++n)
        for (I i = 0; i < KV; ++i) h0.set_bits(n * KV + i, r.inputs.at("h0").bits(slots[static_cast<std::size_t>(n)] * KV + i));
      r.inputs["h0"] = std::move(h0);
      r.inputs.erase("state_indices");
    }, true);
    relate::add(c, 21, RelationClass::steps_as_prefill, whole, "prefill gives what decoding step by step gives", [=](const std::vector<TensorSet>& results) {
      TensorSet e;
      e["o"] = results[0].at("o");
      const Tensor& states = results[0].at("ht");
      Tensor ht(states.dtype, {N, states.shape[1], states.shape[2], states.shape[3]});
      for (I n = 0; n < N; ++n)
        for (I i = 0; i < KV; ++i) ht.set_bits(n * KV + i, states.bits(slots[static_cast<std::size_t>(n)] * KV + i));
      e["ht"] = std::move(ht);
      return e;
    });
    return c;
  }
};

const RelationSteps family;
const RegisterFamily registered(&family);

}  // namespace
}  // namespace gdn
