// Case family `stage_gate_sum`: sums of gates inside chunks, alone. There to catch exclusive sums, and sums that do not
// start again where a chunk or a sequence does.
#include "suites/families/stage_fill.h"

#include <limits>

namespace gdn {
namespace {

struct GateSumStage final : Family {
  std::string name() const override { return "stage_gate_sum"; }
  std::string profile() const override { return "stages/gate_sum"; }
  std::string rationale() const override {
    return "A sum that leaves out the row itself, runs on over a chunk's border, or starts in the wrong row of a packed buffer, is wrong everywhere and yet close to right "
           "where gates are slow. Heads hold, in turn: mild gates; whole numbers, whose sums are exact; gates down to -1e4; one of -1e30, which swallows what follows it; "
           "-inf, after which the sum is -inf; zeros in half of the places. Ragged tails, packed sequences, an empty one, chunks of 16 to 128.";
  }
  std::string own_fault() const override { return "stage_sum_exclusive"; }
  std::vector<std::string> kinds() const override {
    return {"gate-shifted", "state-decay-wrong-at-chunk-border", "sequence-gates-cross", "gate-infinite", "tail-tokens-dropped"};
  }
  std::vector<Problem> problems(Level level) const override {
    if (level == Level::smoke) return fill::stage_problems(Stage::gate_sum, {"n3_t37+0+18_h6_hv6_k2_v2/bf16/chunk=16",
            "n1_t70_h6_hv6_k2_v2/fp32/chunk=64"});
    std::vector<Problem> p = fill::stage_problems(Stage::gate_sum, {"n3_t70+0+33_h6_hv12_k2_v2/fp32/chunk=64,pad=3",
            "n3_t70+0+33_h6_hv6_k2_v2/bf16/chunk=16",
            "n2_t130+65_h6_hv6_k2_v2/fp32/chunk=32",
            "n1_t300_h6_hv6_k2_v2/fp32/chunk=128",
            "n1_t70_h6_hv6_k2_v2/bf16/g=bf16,chunk=64"});
    if (level != Level::ci)
      for (Problem& more : fill::stage_problems(Stage::gate_sum, {"n5_t1000+1+64+63+65_h6_hv12_k2_v2/fp32/chunk=64",
            "n1_t3000_h6_hv6_k2_v2/bf16/chunk=128"})) p.push_back(std::move(more));
    return p;
  }
  Case make(const Problem& p, std::uint64_t seed) const override {
    using enum fill::StageRegime;
    Case c = fill::stage_case(name(), Stage::gate_sum, p, seed, {typical, integers, strong, huge, strong, wide});
    Tensor& g = c.runs[0].inputs.at("g");          // the fifth of six: -inf, now and then
    const std::int64_t HV = p.value_heads, r = HV / p.heads;
    for (std::int64_t i = 0; i < p.tokens() * HV; ++i)
      if (i % HV / r % 6 == 4 && i / HV % 11 == 5) g.set(i, -std::numeric_limits<double>::infinity());
    return c;
  }
};

const GateSumStage family;
const RegisterFamily registered(&family);

}  // namespace
}  // namespace gdn
