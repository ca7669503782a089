// Case family `many_sequences`: hundreds of short sequences in one buffer.
// There to catch sequence numbers, launch grids and tables that are too short, which a handful of sequences cannot show.
#include "suites/families/fill.h"
#include "suites/family.h"

namespace gdn {
namespace {

struct ManySequences final : Family {
  std::string name() const override { return "many_sequences"; }
  std::string profile() const override { return "varlen"; }
  std::string rationale() const override {
    return "More sequences than fit in 8 bits, and than in 12, most of one to three tokens, some empty, some of C-1, C and C+1 tokens in between, each with its own "
           "initial state, in a buffer longer than the last offset. Nothing is forgotten in one head, and the first token of a sequence decays "
           "its state, so that whatever crosses a border shows.";
  }
  std::string own_fault() const override { return "sequence_number_in_12_bits"; }
  std::vector<std::string> kinds() const override {
    return {"sequence-state-mixed", "output-unwritten", "state-leaks-into-next-sequence", "empty-sequence-mishandled", "one-token-sequence-mishandled",
            "chunks-cross-sequences", "padding-used", "sequence-border-off-by-one"};
  }
  std::vector<Problem> problems(Level level) const override {
    if (level == Level::smoke) return fill::problems({"prefill/n300_t1x100+2+0x9+1x150+2x40_h1_hv1_k8_v8/bf16/h0,pad=5", "prefill/n280_t2x20+0+1x259_h1_hv1_k8_v8/fp32/h0,pad=2"});
    std::vector<Problem> p;
    for (const char* dtype : {"bf16", "fp32"})
      for (const char* text : {"n400_t3x100+0x20+1x130+63+64+65+2x147_h1_hv2_k16_v16/*/h0,pad=7", "n520_t1x256+0+2x263_h1_hv2_k8_v16/*", "n257_t1_h1_hv1_k32_v32/*/h0",
                               "n4200_t1x4000+0x50+2x150_h1_hv1_k8_v8/*/h0,pad=3", "n70_t1x20+17+0+1x24+64+2x23_h1_hv2_k64_v64/*/h0"}) {
        std::string t = text;
        t.replace(t.find('*'), 1, dtype);
        p.push_back(parse_problem("prefill/" + t));
      }
    if (level != Level::ci)
      for (Problem& more : fill::problems({"prefill/n65536_t1_h1_hv1_k8_v8/fp32/h0", "prefill/n65536_t0x100+2x65436_h1_hv1_k8_v8/bf16/h0,pad=9", "prefill/n5000_t1x2500+33x2500_h1_hv2_k16_v16/fp32/h0"}))
        p.push_back(std::move(more));
    return p;
  }
  Case make(const Problem& p, std::uint64_t seed) const override {
    fill::require_prefill(name(), p);
    fill::Style style;
    style.gates = {fill::Gates::zero, fill::Gates::mild};
    style.betas = {fill::Betas::sparse, fill::Betas::unit};
    Case c = fill::single(name(), p, seed, fill::inputs(p, seed, style));
    if (const auto g = c.runs[0].inputs.find("g"); g != c.runs[0].inputs.end() && p.rule == Rule::gated_delta) {
      const auto offsets = p.offsets();
      for (std::size_t n = 0; n < p.lengths.size(); ++n)
        for (std::int64_t h = 0; p.lengths[n] > 0 && h < p.value_heads; ++h) g->second.set(offsets[n] * p.value_heads + h, n % 2 ? -0.25 : -0.625);
    }
    return c;
  }
};

const ManySequences family;
const RegisterFamily registered(&family);

}  // namespace
}  // namespace gdn
