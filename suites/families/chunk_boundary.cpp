// Case family `chunk_boundary`: lengths on both sides of every usual chunk border; appended identity tokens and aligned cuts (rows 20, 22).
// There to catch slips of ragged tails, of what one chunk hands to the next, of the masks inside one, and tails that take another path.
#include <algorithm>
#include <numeric>

#include "suites/families/fill.h"
#include "suites/families/relate.h"
#include "suites/family.h"

namespace gdn {
namespace {

using I = std::int64_t;

struct ChunkBoundary final : Family {
  std::string name() const override { return "chunk_boundary"; }
  std::string profile() const override { return "core"; }
  std::string rationale() const override {
    return "T in {1, C-1, C, C+1, 2C-1, 2C+1} for chunks of C = 16, 32, 64 and 128: a tail of one row, a tail of all rows but one, "
           "and none. Gates change size exactly at the borders, with one head that forgets nothing, so that a decay taken from "
           "a neighbouring row and a state lost at a border both show in the final state. v and h0 negated must give the same bits "
           "negated, which decides where the bound of a coarse contract cannot. Tokens with beta=0 and g=0 at the end, which make another tail of it, leave the outputs before them and the final state; a "
           "sequence cut at row 128, a multiple of every usual chunk, continues with the same numbers, where the kernel declares that the shape does not matter.";
  }
  std::string own_fault() const override { return "ragged_tail_summed_backwards"; }
  std::vector<std::string> kinds() const override {
    return {"tail-decay-wrong-row", "tail-gates-zeroed", "tail-tokens-dropped", "state-zeroed-at-chunk-border",
            "state-stale-at-chunk-border", "state-decay-wrong-at-chunk-border", "gate-shifted", "double-decay", "mask-off-by-one",
            "local-term-wrong", "inverse-wrong", "uncorrected-values", "cross-term-missing", "final-state-wrong",
            "beta-shifted", "output-unwritten", "paths-differ"};
  }
  std::vector<Problem> problems(Level level) const override {
    std::vector<Problem> list;
    auto add = [&](std::initializer_list<int> lengths, const std::string& shape) {
      for (int t : lengths) list.push_back(parse_problem("prefill/n1_t" + std::to_string(t) + "_" + shape));
    };
    if (level == Level::smoke) {
      add({1, 65}, "h1_hv2_k128_v128/bf16/h0");
      add({64}, "h1_hv1_k128_v128/bf16/h0");
      add({1, 63, 64, 65}, "h1_hv2_k64_v64/fp32/h0");
      add({15, 129}, "h1_hv2_k64_v64/bf16/h0");
      add({17, 33, 127}, "h1_hv2_k32_v32/fp32/h0");
      return list;
    }
    add({1, 63, 64, 65, 127, 129}, "h1_hv2_k128_v128/bf16/h0");
    add({1, 63, 64, 65, 129}, "h1_hv2_k128_v128/fp32/h0");
    for (const char* shape : {"h1_hv2_k64_v64/bf16/h0", "h1_hv2_k64_v64/fp32/h0"})
      add({1, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129}, shape);
    add({2, 14, 18, 48, 96, 192, 255, 257}, "h1_hv2_k32_v32/fp32/h0");
    add({2, 47, 49, 95, 97, 191, 193, 255, 257}, "h1_hv2_k32_v32/bf16");
    if (level != Level::ci)
      for (int t = 1; t <= 260; ++t) {   // every tail
        add({t}, "h1_hv4_k48_v48/bf16/h0");
        add({t}, "h1_hv4_k48_v48/fp32/h0");
      }
    return list;
  }
  Case make(const Problem& p, std::uint64_t seed) const override {
    fill::require_prefill(name(), p);
    fill::Style style;
    style.gates = {fill::Gates::slow, fill::Gates::mild};
    style.betas = {fill::Betas::sparse, fill::Betas::unit};
    const TensorSet inputs = with_borders(p, fill::inputs(p, seed, style));
    Case c = fill::single(name(), p, seed, inputs);
    if (fill::takes_identity_tokens(c.runs[0]) && p.split.empty()) {
      constexpr I more = 9;
      std::vector<I> to(static_cast<std::size_t>(p.tokens()));
      std::iota(to.begin(), to.end(), I{0});
      const std::size_t longer = relate::add_run(c, "identity tokens appended", [&](Run& r) { fill::add_identity_tokens(r, to, p.tokens() + more, seed, style); }, true);
      Relation& r = relate::add(c, 22, RelationClass::shape_invariant, longer, "appended tokens with beta = 0 and g = 0 leave the outputs before them",
                                [longer](const std::vector<TensorSet>& results) {
                                  Tensor o = results.at(longer).at("o");
                                  const Tensor& base = results[0].at("o");
                                  for (I i = 0; i < base.size(); ++i) o.set_bits(i, base.bits(i));
                                  return TensorSet{{"o", std::move(o)}};
                                });
      for (I i = 0; i < more * p.value_heads * p.value_dim; ++i) r.skip["o"].push_back(p.tokens() * p.value_heads * p.value_dim + i);
      // A tree of gate sums has other branches to the end of a longer chunk.
      relate::add(c, 22, RelationClass::recurrent, longer, "appended tokens with beta = 0 and g = 0 leave ht", [](const std::vector<TensorSet>& results) {
        const auto ht = results[0].find("ht");
        return ht == results[0].end() ? TensorSet{} : TensorSet{*ht};
      });
    }
    if (p.split.empty() && *std::min_element(p.lengths.begin(), p.lengths.end()) > 128) {   // a call without tokens is another matter
      const std::size_t cut = relate::add_run(c, "cut at row 128", [](Run& r) { r.problem.split = {128}; }, true);
      relate::add(c, 20, RelationClass::shape_invariant, cut, "a sequence cut at row 128 continues with the same numbers", relate::base_times(cut, 1, 1));
    }
    relate::add_negated_values(c);
    return c;
  }

 private:
  static TensorSet with_borders(const Problem& p, TensorSet t) {
    // Every second head: the rows beside a border of 16 carry decays that differ from their neighbours'.
    if (const auto g = t.find("g"); g != t.end() && p.rule == Rule::gated_delta)
      for (std::size_t n = 0; n < p.lengths.size(); ++n)
        for (I i = 0; i < p.lengths[n]; ++i)
          for (I h = 1; h < p.value_heads; h += 2) {
            const I at = (p.offsets()[n] + i) * p.value_heads + h, row = i % 16;
            if (row == 0) g->second.set(at, -0.5);
            if (row == 1) g->second.set(at, -0.03125);
            if (row == 15) g->second.set(at, -0.25);
          }
    return t;
  }
};

const ChunkBoundary family;
const RegisterFamily registered(&family);

}  // namespace
}  // namespace gdn
