// Case family `stage_uw`: U = M (beta v) and W = M (beta e^G k) of given M, alone. There to catch weights on the wrong side and decays that
// are left out.
#include "suites/families/stage_fill.h"

namespace gdn {
namespace {

struct UwStage final : Family {
  std::string name() const override { return "stage_uw"; }
  std::string profile() const override { return "stages/uw"; }
  std::string rationale() const override {
    return "U and W differ by one factor, and a kernel that leaves the decay out of W, takes beta by the row of M, or reads the wrong operand, is right wherever gates are slow or M is "
           "nearly the identity. Key heads hold, in turn: one key for all tokens; what a model asks for; whole numbers, which must come out exactly; gates down to -1e4; beta up to 2. "
           "K below, equal to and above V, several value heads to a key head, ragged tails, packed sequences, chunks of 16 to 128.";
  }
  std::string own_fault() const override { return "stage_uw_u_from_keys"; }
  std::vector<std::string> kinds() const override {
    return {"gate-ignored", "correction-wrong-weight", "mask-off-by-one", "tile-from-wrong-dim", "tail-tokens-dropped"};
  }
  std::vector<Problem> problems(Level level) const override {
    if (level == Level::smoke) return fill::stage_problems(Stage::uw, {"n2_t37+18_h3_hv3_k8_v16/bf16/chunk=16",
            "n1_t35_h3_hv3_k16_v8/fp32/chunk=32"});
    std::vector<Problem> p = fill::stage_problems(Stage::uw, {"n3_t70+0+33_h5_hv10_k16_v32/fp32/chunk=64,pad=3",
            "n3_t70+0+33_h5_hv10_k32_v16/bf16/chunk=64",
            "n1_t50_h5_hv5_k16_v24/bf16/chunk=16",
            "n1_t75_h5_hv5_k24_v16/fp16/chunk=32",
            "n1_t150_h3_hv3_k32_v32/fp32/chunk=128",
            "n1_t70_h3_hv3_k128_v128/bf16/chunk=64"});
    if (level != Level::ci)
      for (Problem& more : fill::stage_problems(Stage::uw, {"n1_t500_h5_hv10_k128_v128/bf16/chunk=64",
            "n1_t500_h5_hv5_k128_v128/fp32/chunk=128"})) p.push_back(std::move(more));
    return p;
  }
  Case make(const Problem& p, std::uint64_t seed) const override {
    using enum fill::StageRegime;
    return fill::stage_case(name(), Stage::uw, p, seed, {equal, typical, integers, strong, wide});
  }
};

const UwStage family;
const RegisterFamily registered(&family);

}  // namespace
}  // namespace gdn
