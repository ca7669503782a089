// Case family `stage_gram`: L = beta (K K^T) o D below the diagonal, alone. There to catch masks, the weight of the wrong row, and decays
// of the wrong sign.
#include "suites/families/stage_fill.h"

namespace gdn {
namespace {

struct GramStage final : Family {
  std::string name() const override { return "stage_gram"; }
  std::string profile() const override { return "stages/gram"; }
  std::string rationale() const override {
    return "L is where masks and broadcasts meet: a diagonal that is let in, beta of the column for that of the row, a decay taken backwards (which overflows, or is lost where the gate is "
           "slow). Key heads hold, in turn: what a model asks for; one key for all tokens; whole numbers without decay, which must come out exactly; gates down to -1e4; a sum of -1e30; "
           "non-negative keys with beta up to 2. Several value heads to a key head, ragged tails, packed sequences, chunks of 16 to 128.";
  }
  std::string own_fault() const override { return "stage_gram_diagonal"; }
  std::vector<std::string> kinds() const override {
    return {"mask-off-by-one", "correction-wrong-weight", "sign-wrong", "head-map-wrong", "gate-ignored", "tail-tokens-dropped"};
  }
  std::vector<Problem> problems(Level level) const override {
    if (level == Level::smoke) return fill::stage_problems(Stage::gram, {"n2_t37+18_h3_hv6_k8_v2/bf16/chunk=16",
            "n1_t35_h3_hv3_k8_v2/fp32/chunk=32"});
    std::vector<Problem> p = fill::stage_problems(Stage::gram, {"n3_t70+0+33_h6_hv12_k32_v2/fp32/chunk=64,pad=3",
            "n3_t70+0+33_h6_hv12_k32_v2/bf16/chunk=64",
            "n1_t50_h6_hv6_k16_v2/bf16/chunk=16",
            "n1_t75_h6_hv6_k24_v2/fp16/chunk=32",
            "n1_t150_h3_hv3_k64_v2/fp32/chunk=128",
            "n1_t70_h3_hv6_k128_v2/bf16/chunk=64"});
    if (level != Level::ci)
      for (Problem& more : fill::stage_problems(Stage::gram, {"n1_t500_h6_hv12_k128_v2/bf16/chunk=64",
            "n1_t500_h6_hv6_k128_v2/fp32/chunk=128"})) p.push_back(std::move(more));
    return p;
  }
  Case make(const Problem& p, std::uint64_t seed) const override {
    using enum fill::StageRegime;
    return fill::stage_case(name(), Stage::gram, p, seed, {equal, typical, integers, strong, huge, wide});
  }
};

const GramStage family;
const RegisterFamily registered(&family);

}  // namespace
}  // namespace gdn
