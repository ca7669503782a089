// Case family `decode_steps`: hundreds of single steps one after the other, the state going through the pool each time.
// There to catch what a few steps hide: rounding of the state per step, small decays lost, drift, a step that is skipped.
#include "suites/families/pool.h"
#include "suites/family.h"

namespace gdn {
namespace {

using I = std::int64_t;

struct DecodeSteps final : Family {
  std::string name() const override { return "decode_steps"; }
  std::string profile() const override { return "decode"; }
  std::string rationale() const override {
    return "A sequence of hundreds of tokens is decoded one call at a time, and the pool takes the state through memory after "
           "every one of them. What a step does wrong by little adds up: a state stored in a shorter format than declared, "
           "a decay of one part in a thousand lost, a gate or beta rounded. Slow and ungated heads keep it all.";
  }
  std::string own_fault() const override { return "decode_checkpoint_in_bf16"; }
  std::vector<std::string> kinds() const override {
    return {"state-narrowed", "gate-tiny-lost", "gate-narrowed", "slot-wrong", "slot-reuse-leaks", "correction-before-decay", "decay-after-write"};
  }
  std::vector<Problem> problems(Level level) const override {
    if (level == Level::smoke)
      return fill::problems({"decode/n2_t60_h1_hv2_k32_v24/bf16/h0,slots=4", "decode/n2_t60_h1_hv2_k32_v24/fp32/h0,slots=4",
                             "decode/n1_t8_h1_hv2_k64_v64/bf16/h0,slots=2", "decode/n1_t8_h1_hv2_k64_v64/fp32/h0,slots=2",
                             "decode/n1_t4_h1_hv2_k128_v128/bf16/h0,slots=2", "decode/n1_t4_h1_hv2_k128_v128/fp32/h0,slots=2",
                             "decode/n1_t130_h1_hv2_k16_v16/fp32/h0,slots=2"});
    std::vector<Problem> list;
    for (const char* dtype : {"bf16", "fp32"})
      for (const char* text : {"n2_t300_h1_hv2_k32_v24/*/h0,slots=4", "n1_t100_h1_hv2_k64_v64/*/h0,slots=3", "n1_t60_h1_hv2_k128_v128/*/h0,slots=3",
                               "n1_t200_h1_hv2_k16_v16/*/h0,slots=2,state=bf16"}) {
        std::string t = text;
        t.replace(t.find('*'), 1, dtype);
        list.push_back(parse_problem("decode/" + t));
      }
    if (level != Level::ci)
      for (Problem& more : fill::problems({"decode/n2_t2000_h1_hv2_k64_v64/bf16/h0,slots=4", "decode/n2_t2000_h1_hv2_k64_v64/fp32/h0,slots=4",
                                           "decode/n2_t2000_h2_hv4_k128_v128/bf16/h0,slots=4"}))
        list.push_back(std::move(more));
    return list;
  }
  Case make(const Problem& p, std::uint64_t seed) const override {
    fill::require_pool(name(), p, Operation::decode);
    fill::Style style;
    style.gates = {fill::Gates::slow, fill::Gates::mild, fill::Gates::zero};
    style.betas = {fill::Betas::rare, fill::Betas::sparse};
    const I N = p.sequences(), calls = static_cast<I>(p.cuts().size()) + 1;
    const std::vector<I> slots = pool::live_slots(p, seed, N);
    Tensor indices(DType::i32, {calls, N});
    for (I c = 0; c < calls; ++c)
      for (I n = 0; n < N; ++n) indices.set(c * N + n, n < static_cast<I>(slots.size()) ? static_cast<double>(slots[static_cast<std::size_t>(n)]) : -1);
    return fill::single(name(), p, seed, pool::inputs(p, seed, style, indices));
  }
};

const DecodeSteps family;
const RegisterFamily registered(&family);

}  // namespace
}  // namespace gdn
