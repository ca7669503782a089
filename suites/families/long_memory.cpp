// Case family `long_memory`: a thousand tokens and more with decays so slow that everything written stays.
// There to catch states that are dropped, narrowed or rounded on the way, and small decays that get lost.
#include "suites/families/fill.h"
#include "suites/families/relate.h"
#include "suites/family.h"

namespace gdn {
namespace {

struct LongMemory final : Family {
  std::string name() const override { return "long_memory"; }
  std::string profile() const override { return "core"; }
  std::string rationale() const override {
    return "Usual tests draw gates that erase the memory within a few tokens, so a state that is zeroed at every chunk border "
           "or kept in 16 bits passes them. Here decays are exactly 0 or around -1e-3 and only one token in "
           "sixteen writes, so that the initial state and the first tokens still show in the last output.";
  }
  std::string own_fault() const override { return "idle_stretch_not_decayed"; }
  std::vector<std::string> kinds() const override {
    return {"state-zeroed-at-chunk-border", "state-stale-at-chunk-border", "state-decay-wrong-at-chunk-border", "gate-narrowed",
            "gate-tiny-lost", "gate-ignored", "state-narrowed", "state-rounded-too-often", "initial-state-ignored",
            "correction-missing", "uncorrected-values", "cross-term-missing", "tail-tokens-dropped", "offset-overflow"};
  }
  std::vector<Problem> problems(Level level) const override {
    if (level == Level::smoke)
      return fill::problems({"prefill/n1_t130_h1_hv1_k128_v128/bf16/h0", "prefill/n1_t512_h1_hv2_k32_v32/bf16/h0",
                             "prefill/n1_t200_h1_hv2_k64_v64/fp32/h0", "prefill/n1_t70_h1_hv1_k128_v128/fp32/h0",
                             "prefill/n1_t130_h1_hv2_k64_v64/bf16/h0"});
    std::vector<Problem> p = fill::problems(
        {"prefill/n1_t1024_h1_hv2_k64_v64/bf16/h0", "prefill/n1_t1024_h1_hv2_k64_v64/fp32/h0",
         "prefill/n1_t500_h1_hv2_k128_v128/bf16/h0", "prefill/n1_t500_h1_hv1_k128_v128/fp32/h0",
         "prefill/n1_t2048_h1_hv2_k32_v32/fp32/h0", "prefill/n1_t2048_h1_hv2_k32_v32/bf16/h0",
         "prefill/n1_t4225_h1_hv1_k16_v16/fp32/h0", "prefill/n1_t4225_h1_hv1_k16_v16/bf16/h0",   // more than 64 chunks
         "prefill/n1_t600_h1_hv1_k128_v16/fp32/h0", "prefill/n1_t600_h1_hv1_k128_v16/bf16/h0",
         "prefill/n1_t500_h1_hv2_k32_v32/fp32/h0,state=bf16"});
    if (level != Level::ci)
      for (Problem& more : fill::problems({"prefill/n1_t8192_h2_hv4_k128_v128/bf16/h0", "prefill/n1_t8192_h1_hv2_k128_v128/fp32/h0",
                                           "prefill/n1_t65536_h1_hv2_k32_v32/fp32/h0"}))
        p.push_back(std::move(more));
    return p;
  }
  Case make(const Problem& p, std::uint64_t seed) const override {
    fill::require_prefill(name(), p);
    fill::Style style;
    style.gates = {fill::Gates::slow, fill::Gates::zero};
    style.betas = {fill::Betas::rare};
    style.keys = {fill::Keys::independent, fill::Keys::correlated};
    Case c = fill::single(name(), p, seed, fill::inputs(p, seed, style));
    relate::add_negated_values(c);
    return c;
  }
};

const LongMemory family;
const RegisterFamily registered(&family);

}  // namespace
}  // namespace gdn
