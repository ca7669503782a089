// Case family `relation_continuation`: appended identity tokens and aligned cuts change nothing (rows 20, 22).
// There to catch tails and continuations that take another path: final states of ragged chunks, states lost in the hand-over.
#include <algorithm>

#include "suites/families/fill.h"
#include "suites/families/relate.h"
#include "suites/family.h"

namespace gdn {
namespace {

using I = std::int64_t;

struct RelationContinuation final : Family {
  std::string name() const override { return "relation_continuation"; }
  std::string profile() const override { return "core"; }
  std::string rationale() const override {
    return "Tokens with beta=0 and g=0 at the end leave the outputs before them and the final state; a sequence cut "
           "at row 128, a multiple of every usual chunk, continues with the same numbers, where the kernel declares "
           "that the shape does not matter. Both runs are judged by the bound as well.";
  }
  std::vector<std::string> kinds() const override {
    return {"tail-decay-wrong-row", "tail-gates-zeroed", "final-state-wrong", "state-handoff-broken",
            "initial-state-ignored", "initial-state-decay-wrong"};
  }
  std::vector<Problem> problems(Level level) const override {
    if (level == Level::smoke) return fill::problems({"prefill/n1_t135_h1_hv2_k64_v16/bf16/h0",
                                                     "prefill/n1_t135_h1_hv2_k64_v16/fp32/h0"});
    return fill::problems({"prefill/n1_t150_h1_hv2_k64_v32/bf16/h0", "prefill/n1_t150_h1_hv2_k64_v32/fp32/h0",
                           "prefill/n1_t33_h1_hv2_k64_v32/bf16/h0", "prefill/n1_t61_h1_hv2_k64_v32/fp32"});
  }
  Case make(const Problem& p, std::uint64_t seed) const override {
    fill::require_prefill(name(), p);
    fill::Style style;
    style.gates = {fill::Gates::mild, fill::Gates::slow, fill::Gates::spikes, fill::Gates::zero};
    Case c = fill::single(name(), p, seed, fill::inputs(p, seed, style));
    if (p.sequences() == 1 && p.padding == 0 && p.split.empty()) {
      constexpr I more = 9;
      const std::size_t longer = relate::add_run(c, "identity tokens appended", [&](Run& r) {
        r.problem.lengths[0] += more;
        const TensorSet other = fill::inputs(r.problem, seed + 0x9e3779b97f4a7c15u, style);
        TensorSet grown = fill::allocate(r.problem);
        for (auto& [name, t] : grown) {
          if (name == "cu_seqlens") continue;
          const Tensor& old = r.inputs.at(name);
          for (I i = 0; i < t.size(); ++i) t.set_bits(i, i < old.size() ? old.bits(i) : name == "g" || name == "beta" ? 0 : other.at(name).bits(i));
        }
        r.inputs = std::move(grown);
      }, true);
      Relation& r = relate::add(c, 22, RelationClass::shape_invariant, longer, "appended tokens with beta = 0 and g = 0 leave the outputs before them and ht",
                                [](const std::vector<TensorSet>& results) {
                                  TensorSet e = results[0];
                                  Tensor o = results.at(1).at("o");
                                  const Tensor& base = e.at("o");
                                  for (I i = 0; i < base.size(); ++i) o.set_bits(i, base.bits(i));
                                  e["o"] = std::move(o);
                                  return e;
                                });
      for (I i = 0; i < more * p.value_heads * p.value_dim; ++i) r.skip["o"].push_back(p.tokens() * p.value_heads * p.value_dim + i);
    }
    if (p.split.empty() && *std::min_element(p.lengths.begin(), p.lengths.end()) > 128) {   // a call without tokens is another matter
      const std::size_t cut = relate::add_run(c, "cut at row 128", [](Run& r) { r.problem.split = {128}; }, true);
      relate::add(c, 20, RelationClass::shape_invariant, cut, "a sequence cut at row 128 continues with the same numbers", relate::base_times(cut, 1, 1));
    }
    return c;
  }
};

const RelationContinuation family;
const RegisterFamily registered(&family);

}  // namespace
}  // namespace gdn
