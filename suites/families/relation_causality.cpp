// Case family `relation_causality`: later tokens do not change earlier outputs (rows 18, 19).
// There to catch masks that let the future through, exponents anchored on later rows, and sums over a whole chunk.
#include <algorithm>
#include <limits>

#include "suites/families/fill.h"
#include "suites/families/relate.h"
#include "suites/family.h"

namespace gdn {
namespace {

using I = std::int64_t;

struct RelationCausality final : Family {
  std::string name() const override { return "relation_causality"; }
  std::string profile() const override { return "core"; }
  std::string rationale() const override {
    return "Two runs share a prefix and differ in everything after it: keys, values, gates, beta; in one of them gates are strong. The outputs of the "
           "prefix must be the same numbers. The cut lies inside a chunk. A third run has NaN and Inf after the cut, "
           "for kernels that declare that their masks select.";
  }
  std::string own_fault() const override { return "mild_chunk_factored"; }
  std::vector<std::string> kinds() const override {
    return {"future-leaks", "gate-anchored-late", "mask-off-by-one", "gate-mask-multiplied",
            "nan-spreads"};
  }
  std::vector<Problem> problems(Level level) const override {
    if (level == Level::smoke) return fill::problems({"prefill/n1_t70_h1_hv2_k64_v32/bf16/h0",
                                                     "prefill/n1_t70_h1_hv2_k64_v32/fp32/h0"});
    return fill::problems({"prefill/n1_t130_h2_hv4_k64_v32/bf16/h0", "prefill/n1_t130_h2_hv4_k64_v32/fp32/h0",
                           "prefill/n1_t50_h1_hv2_k128_v128/bf16/h0", "prefill/n1_t22_h1_hv2_k64_v32/fp32"});
  }
  Case make(const Problem& p, std::uint64_t seed) const override {
    fill::require_prefill(name(), p);
    fill::Style style;
    style.gates = {fill::Gates::mild, fill::Gates::slow, fill::Gates::spikes, fill::Gates::zero};
    Case c = fill::single(name(), p, seed, fill::inputs(p, seed, style));
    // Cuts at 1/3 and 6/7 of every sequence; no output at or after a cut is compared.
    const TensorSet other = fill::inputs(p, seed + 0x9e3779b97f4a7c15u, style);
    const auto offsets = p.offsets();
    auto past = [&](int numerator, int denominator, const std::function<void(I)>& f) {
      for (std::size_t n = 0; n < p.lengths.size(); ++n)
        for (I t = p.lengths[n] * numerator / denominator; t < p.lengths[n]; ++t) f(offsets[n] + t);
    };
    auto skip_past = [&](Relation& r, int numerator, int denominator) {
      const I width = p.value_heads * p.value_dim;
      past(numerator, denominator, [&](I token) {
        for (I i = 0; i < width; ++i) r.skip["o"].push_back(token * width + i);
      });
    };
    auto outputs = [](const std::vector<TensorSet>& results) { return TensorSet{{"o", results[0].at("o")}}; };
    auto row = [&](Tensor& t) { return t.size() / std::max<I>(p.tokens() + p.padding, 1); };
    for (const auto& [numerator, denominator] : {std::pair{1, 3}, std::pair{6, 7}}) {
      const std::size_t future = relate::add_run(c, "another future from " + std::to_string(numerator) + " of " + std::to_string(denominator), [&](Run& r) {
        for (auto& [name, t] : r.inputs)
          if (name != "h0" && name != "cu_seqlens")
            past(numerator, denominator, [&, &name = name, &t = t](I token) {
              for (I i = token * row(t); i < (token + 1) * row(t); ++i) t.set_bits(i, other.at(name).bits(i));
            });
        // A kernel may choose a path by the sizes of gates: the later future is strong where the first was mild.
        if (const auto g = r.inputs.find("g"); g != r.inputs.end() && numerator == 6)
          past(numerator, denominator, [&](I token) {
            for (I i = token * row(g->second); i < (token + 1) * row(g->second); ++i) g->second.set(i, -20);
          });
      });
      skip_past(relate::add(c, 18, RelationClass::bit, future, "another future leaves the outputs before it", outputs), numerator, denominator);
    }
    const std::size_t broken = relate::add_run(c, "a future of NaN and Inf", [&](Run& r) {
      past(6, 7, [&](I token) {
        for (const char* name : {"q", "k", "v"}) {
          Tensor& t = r.inputs.at(name);
          for (I i = token * row(t); i < (token + 1) * row(t); ++i)
            t.set(i, i % 3 ? std::numeric_limits<double>::quiet_NaN() : std::numeric_limits<double>::infinity());
        }
      });
    });
    skip_past(relate::add(c, 19, RelationClass::masks_select, broken, "not even a future of NaN and Inf changes the outputs before it", outputs), 6, 7);
    return c;
  }
};

const RelationCausality family;
const RegisterFamily registered(&family);

}  // namespace
}  // namespace gdn
