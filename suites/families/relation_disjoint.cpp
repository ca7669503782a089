// Case family `relation_disjoint`: queries that share no channel with any key read h0 (row 32).
// There to catch writes that land in wrong key channels, and reads that miss or exchange them.
#include <stdexcept>

#include "suites/families/fill.h"
#include "suites/families/relate.h"
#include "suites/family.h"

namespace gdn {
namespace {

using I = std::int64_t;

struct RelationDisjoint final : Family {
  std::string name() const override { return "relation_disjoint"; }
  std::string profile() const override { return "core"; }
  std::string rationale() const override {
    return "Keys live in the first half of the key channels, queries in the second, and nothing decays: whatever is "
           "written, the outputs are those of a run that writes nothing, bit for bit, and the rows of the final "
           "state that no key touches are h0.";
  }
  std::vector<std::string> kinds() const override {
    return {"initial-state-transposed", "final-state-transposed", "state-stride-wrong", "key-channels-dropped",
            "initial-state-ignored", "state-zeroed-at-chunk-border"};
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
    style.gates = {fill::Gates::zero};
    Case c = fill::single(name(), p, seed, fill::inputs(p, seed, style));
    const I rows = p.tokens() * p.heads, K = p.key_dim, V = p.value_dim, half = K / 2;
    if (K < 2 || !p.initial_state) throw std::invalid_argument("family relation_disjoint needs h0 and at least two key channels");
    for (I i = 0; i < rows; ++i)
      for (I d = 0; d < K; ++d) c.runs[0].inputs.at(d < half ? "q" : "k").set(i * K + d, 0);
    const std::size_t silent = relate::add_run(c, "nothing written", [&](Run& r) {
      if (const auto b = r.inputs.find("beta"); b != r.inputs.end()) b->second = Tensor(b->second.dtype, b->second.shape);
    });
    Relation& r = relate::add(c, 32, RelationClass::bit, silent, "what is written in other key channels does not matter", relate::base_times(silent, 1, 1));
    for (I s = 0; s < p.sequences() * p.value_heads; ++s)
      for (I e = 0; e < half * V; ++e) r.skip["ht"].push_back(s * K * V + e);
    return c;
  }
};

const RelationDisjoint family;
const RegisterFamily registered(&family);

}  // namespace
}  // namespace gdn
