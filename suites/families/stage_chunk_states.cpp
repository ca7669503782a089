// Case family `stage_chunk_states`: states before every chunk, corrected values and the final state, of given W and U, alone. There to catch
// states one chunk off, and decays of the wrong row of a ragged tail.
#include "suites/families/stage_fill.h"

namespace gdn {
namespace {

struct ChunkStatesStage final : Family {
  std::string name() const override { return "stage_chunk_states"; }
  std::string profile() const override { return "stages/chunk_states"; }
  std::string rationale() const override {
    return "A state that is stored after its chunk instead of before, a tail that decays by the last row of a whole chunk, an initial state that nobody reads: each is right in some chunk or for "
           "some length. Key heads hold, in turn: what a model asks for; whole numbers without decay, which must come out exactly; gates down to -1e4; one key for all tokens; beta up to 2. "
           "With and without an initial state, K below, equal to and above V, ragged tails, packed sequences, an empty one, chunks of 16 to 128.";
  }
  std::string own_fault() const override { return "stage_states_after_chunk"; }
  std::vector<std::string> kinds() const override {
    return {"state-stale-at-chunk-border", "tail-decay-wrong-row", "cross-term-missing", "initial-state-ignored", "tail-tokens-dropped"};
  }
  std::vector<Problem> problems(Level level) const override {
    if (level == Level::smoke) return fill::stage_problems(Stage::chunk_states, {"n2_t37+18_h3_hv3_k8_v16/bf16/chunk=16,h0",
            "n1_t35_h3_hv3_k16_v8/fp32/chunk=16,h0"});
    std::vector<Problem> p = fill::stage_problems(Stage::chunk_states, {"n3_t150+0+33_h5_hv10_k16_v32/fp32/chunk=64,h0,pad=3",
            "n3_t150+0+33_h5_hv10_k32_v16/bf16/chunk=64,h0",
            "n1_t50_h5_hv5_k16_v24/bf16/chunk=16",
            "n1_t75_h5_hv5_k24_v16/fp16/chunk=32,h0",
            "n1_t150_h3_hv3_k32_v32/fp32/chunk=128",
            "n1_t140_h2_hv2_k128_v128/bf16/chunk=64,h0"});
    if (level != Level::ci)
      for (Problem& more : fill::stage_problems(Stage::chunk_states, {"n1_t500_h5_hv10_k128_v128/bf16/chunk=64,h0",
            "n1_t500_h5_hv5_k128_v128/fp32/chunk=128,h0"})) p.push_back(std::move(more));
    return p;
  }
  Case make(const Problem& p, std::uint64_t seed) const override {
    using enum fill::StageRegime;
    return fill::stage_case(name(), Stage::chunk_states, p, seed, {typical, integers, strong, equal, wide});
  }
};

const ChunkStatesStage family;
const RegisterFamily registered(&family);

}  // namespace
}  // namespace gdn
