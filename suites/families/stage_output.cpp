// Case family `stage_output`: o of given corrected values and chunk states, alone. There to catch masks, scales and states of the wrong chunk.
#include "suites/families/stage_fill.h"

namespace gdn {
namespace {

struct OutputStage final : Family {
  std::string name() const override { return "stage_output"; }
  std::string profile() const override { return "stages/output"; }
  std::string rationale() const override {
    return "The two halves of the output hide each other's slips: a mask that leaves out the token itself, a scale that only one half gets, a state read one chunk late. Key heads hold, in turn: what "
           "a model asks for; whole numbers without decay and with a scale that is a power of two, which must come out exactly; gates down to -1e4; one key for all tokens; beta up to 2. "
           "K below, equal to and above V, several value heads to a key head, ragged tails, packed sequences, chunks of 16 to 128.";
  }
  std::string own_fault() const override { return "stage_output_mask_strict"; }
  std::vector<std::string> kinds() const override {
    return {"mask-off-by-one", "scale-wrong", "state-stale-at-chunk-border", "gate-ignored", "tail-tokens-dropped"};
  }
  std::vector<Problem> problems(Level level) const override {
    if (level == Level::smoke) return fill::stage_problems(Stage::output, {"n2_t37+18_h3_hv3_k16_v8/bf16/chunk=16",
            "n1_t35_h3_hv3_k16_v16/fp32/chunk=16"});
    std::vector<Problem> p = fill::stage_problems(Stage::output, {"n3_t150+0+33_h5_hv10_k16_v32/fp32/chunk=64,pad=3",
            "n3_t150+0+33_h5_hv10_k64_v16/bf16/chunk=64",
            "n1_t50_h5_hv5_k16_v24/bf16/chunk=16",
            "n1_t75_h5_hv5_k24_v16/fp16/chunk=32,scale=0x1p-2",
            "n1_t150_h3_hv3_k64_v32/fp32/chunk=128",
            "n1_t140_h2_hv4_k128_v128/bf16/chunk=64"});
    if (level != Level::ci)
      for (Problem& more : fill::stage_problems(Stage::output, {"n1_t500_h5_hv10_k128_v128/bf16/chunk=64",
            "n1_t500_h5_hv5_k128_v128/fp32/chunk=128"})) p.push_back(std::move(more));
    return p;
  }
  Case make(const Problem& p, std::uint64_t seed) const override {
    using enum fill::StageRegime;
    return fill::stage_case(name(), Stage::output, p, seed, {typical, integers, strong, equal, wide});
  }
};

const OutputStage family;
const RegisterFamily registered(&family);

}  // namespace
}  // namespace gdn
