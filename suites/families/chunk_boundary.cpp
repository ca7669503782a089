// Case family `chunk_boundary`: lengths on both sides of every usual chunk border.
// There to catch slips of ragged tails, of what one chunk hands to the next, and of the masks inside one.
#include "suites/families/fill.h"
#include "suites/families/relate.h"
#include "suites/family.h"

namespace gdn {
namespace {

struct ChunkBoundary final : Family {
  std::string name() const override { return "chunk_boundary"; }
  std::string profile() const override { return "core"; }
  std::string rationale() const override {
    return "T in {1, C-1, C, C+1, 2C-1, 2C+1} for chunks of C = 16, 32, 64 and 128: a tail of one row, a tail of all rows but one, "
           "and none. Gates change size exactly at the borders, with one head that forgets nothing, so that a decay taken from "
           "a neighbouring row and a state lost at a border both show in the final state. v and h0 negated must give the same bits "
           "negated, which decides where the bound of a coarse contract cannot.";
  }
  std::vector<std::string> kinds() const override {
    return {"tail-decay-wrong-row", "tail-gates-zeroed", "tail-tokens-dropped", "state-zeroed-at-chunk-border",
            "state-stale-at-chunk-border", "state-decay-wrong-at-chunk-border", "gate-shifted", "double-decay", "mask-off-by-one",
            "local-term-wrong", "inverse-wrong", "uncorrected-values", "cross-term-missing", "final-state-wrong",
            "beta-shifted", "output-unwritten"};
  }
  std::vector<Problem> problems(Level level) const override {
    std::vector<Problem> list;
    auto add = [&](std::initializer_list<int> lengths, const std::string& shape) {
      for (int t : lengths) list.push_back(parse_problem("prefill/n1_t" + std::to_string(t) + "_" + shape));
    };
    if (level == Level::smoke) {
      add({1, 64, 65}, "h1_hv2_k128_v128/bf16/h0");
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
    Case c = fill::single(name(), p, seed, fill::inputs(p, seed, style));
    // Every second head: the rows beside a border of 16 carry decays that differ from their neighbours'.
    if (const auto g = c.runs[0].inputs.find("g"); g != c.runs[0].inputs.end() && p.rule == Rule::gated_delta)
      for (std::size_t n = 0; n < p.lengths.size(); ++n)
        for (std::int64_t i = 0; i < p.lengths[n]; ++i)
          for (std::int64_t h = 1; h < p.value_heads; h += 2) {
            const std::int64_t at = (p.offsets()[n] + i) * p.value_heads + h, row = i % 16;
            if (row == 0) g->second.set(at, -0.5);
            if (row == 1) g->second.set(at, -0.03125);
            if (row == 15) g->second.set(at, -0.25);
          }
    relate::add_negated_values(c);
    return c;
  }
};

const ChunkBoundary family;
const RegisterFamily registered(&family);

}  // namespace
}  // namespace gdn
