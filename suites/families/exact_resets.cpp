// Case family `exact_resets`: the dictionary of exact_dictionary, erased by g=-1000 at every row position of a chunk.
// There to catch decays taken from a wrong row and resets that erase too much, too little or the wrong chunk (row 5).
#include "suites/families/fill.h"
#include "suites/family.h"

namespace gdn {
namespace {

using I = std::int64_t;

struct ExactResets final : Family {
  std::string name() const override { return "exact_resets"; }
  std::string profile() const override { return "core"; }
  std::string rationale() const override {
    return "A gate of -1000 erases the state exactly and everything after it is a fresh start; all other gates are 0. Heads reset on "
           "both sides of every chunk border and, together, at every row position, so that a decay off by one row, an absorbed gate "
           "sum or a reset that also erases the token's own write gives a wrong integer, not a small error.";
  }
  std::string own_fault() const override { return "zero_decay_replaced"; }
  std::vector<std::string> kinds() const override {
    return {"gate-reset-lost", "gate-shifted", "gate-clamped", "gate-ignored", "gate-ratio-factored", "gate-mask-multiplied",
            "gate-mask-by-value", "tail-decay-wrong-row", "tail-gates-zeroed", "state-decay-wrong-at-chunk-border", "initial-state-decay-wrong",
            "decay-after-write", "sequence-gates-cross"};
  }
  bool exact_scale() const override { return true; }
  std::vector<Problem> problems(Level level) const override {
    if (level == Level::smoke)
      return fill::problems({"prefill/n1_t130_h2_hv4_k64_v16/bf16/h0", "prefill/n1_t130_h2_hv4_k64_v16/fp32/h0",
                             "prefill/n1_t130_h1_hv2_k64_v64/bf16/h0", "prefill/n1_t70_h1_hv2_k64_v64/fp32/h0",
                             "prefill/n1_t66_h1_hv1_k128_v128/bf16/h0,scale=0x1p-3", "prefill/n1_t66_h1_hv1_k128_v128/fp32/h0,scale=0x1p-3"});
    std::vector<Problem> p = fill::problems(
        {"prefill/n1_t200_h4_hv8_k64_v32/bf16/h0", "prefill/n1_t200_h4_hv8_k64_v32/fp32/h0", "prefill/n1_t257_h8_hv16_k16_v16/bf16/h0",
         "prefill/n1_t257_h8_hv16_k16_v16/fp32/h0", "prefill/n1_t130_h1_hv4_k128_v128/bf16/h0,scale=0x1p-3",
         "prefill/n1_t66_h2_hv4_k64_v64/bf16/h0", "prefill/n1_t66_h2_hv4_k64_v64/fp32/h0",
         "prefill/n1_t66_h1_hv4_k128_v128/fp32/h0,scale=0x1p-3", "prefill/n2_t65_h2_hv4_k64_v32/bf16/h0"});
    if (level != Level::ci)
      for (int t = 1; t <= 130; ++t)
        for (const char* dtype : {"bf16", "fp32"})
          p.push_back(parse_problem("prefill/n1_t" + std::to_string(t) + "_h2_hv8_k64_v16/" + dtype + "/h0"));
    return p;
  }
  Case make(const Problem& p, std::uint64_t seed) const override {
    fill::require_prefill(name(), p);
    TensorSet t = fill::dictionary(p, seed);
    if (const auto g = t.find("g"); g != t.end() && p.rule == Rule::gated_delta)
      for (std::size_t n = 0; n < p.lengths.size(); ++n)
        for (I hv = 0; hv < p.value_heads; ++hv)
          for (I i = 0; i < p.lengths[n]; ++i)
            if (resets(hv, i, seed)) g->second.set((p.offsets()[n] + i) * p.value_heads + hv, -1000);
    return fill::single(name(), p, seed, std::move(t));
  }

 private:
  // Heads 0 to 3: around multiples of 16, 32, 64 and 128, moving on with the seed; the others every 23rd row, shifted by 3 per head.
  static bool resets(I hv, I row, std::uint64_t seed) {
    const I s = hv + static_cast<I>(seed % 4);
    if (hv >= 4) return (row + 3 * s) % 23 == 0;
    switch (s % 4) {
      case 0: return row % 64 == 63;
      case 1: return row % 64 == 0 && row > 0;
      case 2: return row % 64 == 1 || row % 64 == 47;
      default: return row == 0 || row % 64 == 15 || row % 64 == 33 || row % 64 == 62;
    }
  }
};

const ExactResets family;
const RegisterFamily registered(&family);

}  // namespace
}  // namespace gdn
