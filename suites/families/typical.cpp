// Case family `typical`: what a model really asks for, in shapes and values, with gates mixed over the heads.
// There to catch slips in the step itself, in heads and scale, and single wrong or missing elements.
#include "suites/families/fill.h"
#include "suites/family.h"

namespace gdn {
namespace {

struct Typical final : Family {
  std::string name() const override { return "typical"; }
  std::string profile() const override { return "core"; }
  bool random() const override { return false; }   // repeats keys and gates exactly
  std::string rationale() const override {
    return "Shapes and values as in models, but with decays mixed over the heads: gates of one size either erase the memory "
           "within a few tokens or hide every slip of a gate. Keys of norm 1 are correlated and sometimes repeated, because "
           "random ones are nearly orthogonal and make the correction trivial. Grouped heads, an initial state of real size "
           "that is not symmetric, and lengths that are no multiple of a chunk.";
  }
  std::string own_fault() const override { return "state_workspace_of_18_bits"; }
  std::vector<std::string> kinds() const override {
    return {"correction-before-decay", "correction-missing", "correction-wrong-weight", "decay-after-write", "read-before-write",
            "beta-clamped", "beta-shifted", "scale-wrong", "sign-wrong", "gate-clamped", "gate-ignored", "gate-shifted",
            "gate-base-mixed", "gate-domain-mixed", "gate-ratio-factored", "gate-mask-multiplied", "gate-mask-by-value",
            "gate-reset-lost", "double-decay", "mask-off-by-one", "local-term-wrong", "inverse-wrong", "uncorrected-values",
            "cross-term-missing", "head-map-wrong", "output-stride-wrong", "state-shared-between-heads", "tile-from-wrong-dim",
            "output-unwritten", "element-wrong", "nan-in-output", "out-of-bounds-write", "layout-transposed"};
  }
  std::vector<Problem> problems(Level level) const override {
    if (level == Level::smoke)
      return fill::problems({"prefill/n1_t35_h2_hv4_k128_v128/bf16/h0", "prefill/n1_t70_h2_hv4_k64_v64/fp32/h0",
                             "prefill/n1_t70_h2_hv4_k64_v64/bf16/h0", "prefill/n1_t21_h2_hv4_k128_v128/fp32/h0", "prefill/n1_t1_h16_hv32_k128_v128/bf16/h0",
                             "prefill/n1_t70_h1_hv1_k64_v64/fp16/h0", "prefill/n1_t70_h1_hv1_k64_v64/fp32/noht",
                             "prefill/n1_t2_h16_hv64_k16_v16/bf16/h0", "prefill/n1_t2_h16_hv64_k16_v16/fp32/h0"});   // as many heads as the largest models have
    std::vector<Problem> p = fill::problems(
        {"prefill/n1_t130_h2_hv4_k128_v128/bf16/h0", "prefill/n1_t130_h2_hv4_k128_v128/fp32/h0",
         "prefill/n1_t257_h2_hv4_k64_v64/bf16/h0", "prefill/n1_t257_h2_hv4_k64_v64/fp32/h0",
         "prefill/n1_t100_h3_hv6_k64_v96/bf16", "prefill/n1_t100_h3_hv6_k128_v64/fp32/h0",
         "prefill/n1_t100_h6_hv6_k32_v32/fp16/h0", "prefill/n1_t150_h1_hv4_k64_v64/fp16/h0",
         "prefill/n1_t200_h1_hv6_k32_v32/fp32/noht", "prefill/n1_t200_h1_hv6_k32_v32/bf16",
         "prefill/n1_t33_h16_hv32_k128_v128/bf16/h0", "prefill/n1_t5_h16_hv64_k16_v16/bf16/h0", "prefill/n1_t5_h16_hv64_k16_v16/fp32/h0"});
    if (level != Level::ci)
      for (Problem& more : fill::problems({"prefill/n1_t1000_h16_hv32_k128_v128/bf16/h0", "prefill/n1_t777_h4_hv12_k128_v128/fp32/h0",
                                           "prefill/n1_t500_h4_hv8_k96_v192/bf16/h0", "prefill/n1_t500_h2_hv4_k256_v256/fp32/h0"}))
        p.push_back(std::move(more));
    return p;
  }
  Case make(const Problem& p, std::uint64_t seed) const override {
    fill::require_prefill(name(), p);
    return fill::single(name(), p, seed, fill::inputs(p, seed, {}));
  }
};

const Typical family;
const RegisterFamily registered(&family);

}  // namespace
}  // namespace gdn
