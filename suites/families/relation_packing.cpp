// Case family `relation_packing`: packed sequences equal separate calls, in any order (rows 24, 25).
// There to catch results that depend on the other sequences, on their order, or on the batch size.
#include <stdexcept>

#include "suites/families/fill.h"
#include "suites/families/relate.h"
#include "suites/family.h"

namespace gdn {
namespace {

using I = std::int64_t;

struct RelationPacking final : Family {
  std::string name() const override { return "relation_packing"; }
  std::string profile() const override { return "varlen"; }
  std::string rationale() const override {
    return "Each sequence alone, and all of them in reverse order, must give the same numbers as in the packed call, "
           "where the kernel declares that the shape does not matter; every run is judged by the bound as well. "
           "Sequences of length 0 and 1 are among them.";
  }
  std::vector<std::string> kinds() const override {
    return {"state-leaks-into-next-sequence", "sequence-border-off-by-one", "chunks-cross-sequences", "sequence-gates-cross",
            "empty-sequence-mishandled", "sequence-state-mixed", "batch-dependent", "one-token-sequence-mishandled"};
  }
  std::vector<Problem> problems(Level level) const override {
    if (level == Level::smoke) return fill::problems({"prefill/n4_t33+0+1+40_h1_hv2_k64_v32/bf16/h0",
                                                     "prefill/n4_t33+0+1+40_h1_hv2_k64_v32/fp32/h0"});
    return fill::problems({"prefill/n4_t65+0+1+64_h2_hv4_k64_v32/bf16/h0", "prefill/n4_t65+0+1+64_h2_hv4_k64_v32/fp32/h0",
                           "prefill/n3_t17+2+30_h1_hv2_k64_v64/fp32"});
  }
  Case make(const Problem& p, std::uint64_t seed) const override {
    fill::require_prefill(name(), p);
    fill::Style style;
    style.gates = {fill::Gates::mild, fill::Gates::slow, fill::Gates::spikes, fill::Gates::zero};
    Case c = fill::single(name(), p, seed, fill::inputs(p, seed, style));
    const I N = p.sequences(), HV = p.value_heads, KV = p.key_dim * p.value_dim;
    const auto offsets = p.offsets();
    if (N > 8) throw std::invalid_argument("family relation_packing runs every sequence alone: at most 8 of them");
    // The run with these sequences of run 0, in this order, without padding.
    auto pick = [&](Run& run, const std::vector<I>& sequences) {
      Problem q = p;
      q.padding = 0;
      q.lengths.clear();
      std::vector<I> tokens;
      for (const I n : sequences) {
        q.lengths.push_back(p.lengths[static_cast<std::size_t>(n)]);
        for (I t = offsets[static_cast<std::size_t>(n)]; t < offsets[static_cast<std::size_t>(n) + 1]; ++t) tokens.push_back(t);
      }
      TensorSet picked = fill::allocate(q);
      for (auto& [name, t] : picked) {
        if (name == "cu_seqlens") continue;
        const Tensor& whole = run.inputs.at(name);
        const std::vector<I>& from = name == "h0" ? sequences : tokens;
        const I width = from.empty() ? 0 : t.size() / static_cast<I>(from.size());
        for (std::size_t i = 0; i < from.size(); ++i)
          for (I e = 0; e < width; ++e) t.set_bits(static_cast<I>(i) * width + e, whole.bits(from[i] * width + e));
      }
      run.problem = q;
      run.inputs = std::move(picked);
      return tokens;
    };
    auto relation = [&](const std::string& name, const std::string& statement, const std::vector<I>& sequences, int row) {
      std::vector<I> tokens;
      const std::size_t rhs = relate::add_run(c, name, [&](Run& run) { tokens = pick(run, sequences); }, true);
      const I width = HV * p.value_dim;
      relate::add(c, row, RelationClass::shape_invariant, rhs, statement, [=](const std::vector<TensorSet>& results) {
        TensorSet e;
        for (const auto& [tensor, t] : results[0]) {
          const bool state = tensor == "ht";
          const std::vector<I>& from = state ? sequences : tokens;
          auto shape = t.shape;
          shape[0] = static_cast<I>(from.size());
          const I w = state ? HV * KV : width;
          Tensor part(t.dtype, shape);
          for (std::size_t i = 0; i < from.size(); ++i)
            for (I j = 0; j < w; ++j) part.set_bits(static_cast<I>(i) * w + j, t.bits(from[i] * w + j));
          e.emplace(tensor, std::move(part));
        }
        return e;
      });
    };
    std::vector<I> reversed;
    for (I n = 0; n < N; ++n) {
      reversed.insert(reversed.begin(), n);
      relation("sequence " + std::to_string(n) + " alone", "a sequence alone gives what it gives in the pack", {n}, 24);
    }
    relation("sequences reversed", "sequences in another order give the same numbers in that order", reversed, 25);
    return c;
  }
};

const RelationPacking family;
const RegisterFamily registered(&family);

}  // namespace
}  // namespace gdn
