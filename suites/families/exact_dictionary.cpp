// Case family `exact_dictionary`: one-hot keys, small integers, nothing forgotten: the state is a dictionary.
// There to catch slips of masks, borders, tails, heads and algebra of any size: every value is exact (rows 1, 2 and 4).
#include "suites/families/fill.h"
#include "suites/family.h"

namespace gdn {
namespace {

struct ExactDictionary final : Family {
  std::string name() const override { return "exact_dictionary"; }
  std::string profile() const override { return "core"; }
  std::string rationale() const override {
    return "With one-hot keys, beta 0 or 1 and g=0 the state is a dictionary and the output a look-up; all values are exact "
           "in formats of 8 digits, and need them, in the recurrent and in the chunkwise form. Keys are often written twice in a row (the inverse is "
           "I minus its subdiagonal); some heads replace only half (beta=1/2), some erase and write with a weight of 8 digits.";
  }
  std::vector<std::string> kinds() const override {
    return {"correction-missing", "correction-wrong-weight", "read-before-write", "beta-shifted", "scale-wrong", "sign-wrong",
            "gate-mask-by-value", "state-zeroed-at-chunk-border", "state-stale-at-chunk-border", "tail-tokens-dropped", "mask-off-by-one", "local-term-wrong", "inverse-wrong", "uncorrected-values", "cross-term-missing",
            "initial-state-ignored", "initial-state-transposed", "final-state-transposed", "final-state-wrong", "head-map-wrong",
            "key-channels-dropped", "value-channels-dropped", "element-wrong"};
  }
  bool exact_scale() const override { return true; }
  std::vector<Problem> problems(Level level) const override {
    if (level == Level::smoke)
      return fill::problems({"prefill/n1_t70_h1_hv4_k64_v64/bf16/h0", "prefill/n1_t66_h2_hv4_k64_v64/fp32/h0",
                             "prefill/n1_t66_h1_hv2_k128_v64/bf16/h0,scale=0x1p-3", "prefill/n1_t66_h1_hv1_k128_v128/fp32/h0,scale=0x1p-3",
                             "prefill/n1_t9_h1_hv2_k64_v16/bf16/h0,scale=0x1p+0"});
    std::vector<Problem> p = fill::problems(
        {"prefill/n1_t200_h2_hv4_k64_v64/bf16/h0", "prefill/n1_t200_h2_hv4_k64_v64/fp32/h0", "prefill/n1_t129_h1_hv4_k16_v40/bf16/h0",
         "prefill/n1_t129_h1_hv4_k16_v40/fp32", "prefill/n1_t130_h1_hv4_k128_v128/bf16/h0,scale=0x1p-3",
         "prefill/n1_t66_h1_hv4_k128_v128/fp32/h0,scale=0x1p-3", "prefill/n1_t70_h1_hv4_k64_v32/fp16/h0",
         "prefill/n1_t66_h1_hv4_k64_v64/bf16/h0,split=17.64",
         "prefill/n1_t40_h1_hv4_k64_v32/bf16/h0,scale=0x1p+0"});
    if (level != Level::ci)
      for (int t = 1; t <= 130; ++t)
        for (const char* dtype : {"bf16", "fp32"})
          p.push_back(parse_problem("prefill/n1_t" + std::to_string(t) + "_h1_hv4_k64_v16/" + dtype + "/h0"));
    return p;
  }
  Case make(const Problem& p, std::uint64_t seed) const override {
    fill::require_prefill(name(), p);
    return fill::single(name(), p, seed, fill::dictionary(p, seed));
  }
};

const ExactDictionary family;
const RegisterFamily registered(&family);

}  // namespace
}  // namespace gdn
