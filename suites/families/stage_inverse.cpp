// Case family `stage_inverse`: M = (I+L)^-1 of given L, alone. There to catch inverses by log-depth products, blocks that are not merged,
// and rows that go wrong where M is large.
#include "suites/families/stage_fill.h"

#include "reference/rng.h"

namespace gdn {
namespace {

struct InverseStage final : Family {
  std::string name() const override { return "stage_inverse"; }
  std::string profile() const override { return "stages/inverse"; }
  std::string rationale() const override {
    return "Random keys are nearly orthogonal, L is small, and any series passes for an inverse. Key heads hold, in turn: one key for all tokens with beta .835, where the powers of L explode "
           "(a product of them errs by 1e+6, substitution by 1e-7); what a model asks for; sparse whole numbers, whose inverse is exact; an L that is no Gram matrix, whose inverse grows "
           "by half with every row, so that only the residual (I+L) X - I shows a row of low precision; a key and its opposite in turn with beta near 2; non-negative keys; strong gates. "
           "Ragged tails, packed sequences, chunks of 16 to 128.";
  }
  std::string own_fault() const override { return "stage_inverse_corner_in_tf32"; }
  std::vector<std::string> kinds() const override {
    return {"inverse-by-products", "inverse-wrong", "inverse-narrowed", "sign-wrong", "layout-transposed"};
  }
  std::vector<Problem> problems(Level level) const override {
    if (level == Level::smoke) return fill::stage_problems(Stage::inverse, {"n2_t37+18_h4_hv4_k4_v2/bf16/chunk=32",
            "n1_t68_h4_hv4_k4_v2/fp32/chunk=64"});
    std::vector<Problem> p = fill::stage_problems(Stage::inverse, {"n3_t70+0+33_h7_hv7_k16_v2/fp32/chunk=64,pad=3",
            "n3_t70+0+33_h7_hv7_k16_v2/bf16/chunk=64",
            "n1_t50_h7_hv7_k16_v2/bf16/chunk=16",
            "n1_t75_h7_hv7_k16_v2/fp16/chunk=32",
            "n1_t150_h4_hv4_k16_v2/fp32/chunk=128",
            "n1_t150_h4_hv4_k16_v2/bf16/chunk=128",
            "n1_t33_h7_hv14_k16_v2/fp32/chunk=16"});
    if (level != Level::ci)
      for (Problem& more : fill::stage_problems(Stage::inverse, {"n1_t500_h7_hv14_k64_v2/bf16/chunk=64",
            "n1_t500_h7_hv7_k64_v2/fp32/chunk=128"})) p.push_back(std::move(more));
    return p;
  }
  Case make(const Problem& p, std::uint64_t seed) const override {
    using enum fill::StageRegime;
    Case c = fill::stage_case(name(), Stage::inverse, p, seed, {equal, typical, integers, typical, opposite, wide, strong});
    if (p.io == DType::f16) return c;              // whose range such an inverse leaves
    Tensor& L = c.runs[0].inputs.at("L");          // the fourth of seven: growth
    const Random random(seed, "stage_inverse");
    const std::int64_t C = p.chunk, HV = p.value_heads, r = HV / p.heads;
    for (std::int64_t e = 0; e < p.tokens() * HV * C; ++e)
      if (e / C % HV / r % 7 == 3 && !by_definition(p, "L", e)) L.set(e, -0.5 - 0.25 * random.uniform(static_cast<std::uint64_t>(e)));
    return c;
  }
};

const InverseStage family;
const RegisterFamily registered(&family);

}  // namespace
}  // namespace gdn
