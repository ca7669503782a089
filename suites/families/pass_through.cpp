// Case family `pass_through`: beta=0 and g=0, so that h0 travels through the kernel unchanged (row 6).
// There to catch states that are narrowed, transposed, mis-strided or mixed up on the way, by their very bits.
#include <cmath>

#include "suites/families/fill.h"
#include "suites/family.h"

namespace gdn {
namespace {

using I = std::int64_t;

struct PassThrough final : Family {
  std::string name() const override { return "pass_through"; }
  std::string profile() const override { return "core"; }
  std::string rationale() const override {
    return "Nothing is written and nothing decays: ht must be h0 bit for bit, as the contract stores it, and a query with one entry reads "
           "one row of it, rounded once. h0 holds random numbers of all 24 digits and sizes from 2^-20 to 2^10, so a state in 16 bits or "
           "tf32, a transposed tile or a wrong stride shows at once, without any tolerance. One sequence is 1100 tokens long, for what is done to the "
           "state now and then only; a scale of 2^-130 makes outputs subnormal, and with one of 2^120 the states are.";
  }
  std::string own_fault() const override { return "subnormal_states_flushed"; }
  std::vector<std::string> kinds() const override {
    return {"state-narrowed", "state-stride-wrong", "initial-state-ignored", "initial-state-transposed", "final-state-transposed",
            "final-state-unwritten", "state-shared-between-heads", "state-zeroed-at-chunk-border", "sequence-state-mixed", "beta-clamped",
            "rounding-truncates", "scale-wrong", "subnormals-flushed"};
  }
  bool exact_scale() const override { return true; }
  std::vector<Problem> problems(Level level) const override {
    if (level == Level::smoke)
      return fill::problems({"prefill/n1_t66_h1_hv2_k64_v64/bf16/h0", "prefill/n1_t66_h1_hv2_k64_v64/fp32/h0",
                             "prefill/n1_t17_h1_hv2_k128_v128/bf16/h0,scale=0x1p-3", "prefill/n1_t17_h1_hv2_k128_v128/fp32/h0,scale=0x1p-3"});
    std::vector<Problem> p = fill::problems(
        {"prefill/n1_t130_h2_hv4_k64_v64/bf16/h0", "prefill/n1_t130_h2_hv4_k64_v64/fp32/h0", "prefill/n1_t66_h1_hv2_k64_v32/fp32/h0",
         "prefill/n1_t66_h1_hv2_k16_v80/bf16/h0", "prefill/n1_t66_h1_hv2_k128_v128/bf16/h0,scale=0x1p-3",
         "prefill/n1_t66_h1_hv2_k128_v128/fp32/h0,scale=0x1p-3", "prefill/n3_t33_h1_hv2_k64_v64/bf16/h0",
         "prefill/n1_t66_h1_hv2_k64_v64/fp32/h0,split=1.65", "prefill/n1_t20_h1_hv2_k64_v64/fp16/h0",
         "prefill/n1_t1100_h1_hv1_k16_v16/bf16/h0", "prefill/n1_t1100_h1_hv1_k16_v16/fp32/h0",
         "prefill/n1_t18_h1_hv2_k16_v16/fp32/h0,scale=0x1p-130", "prefill/n1_t18_h1_hv2_k16_v16/fp32/h0,scale=0x1p+120"});
    if (level != Level::ci)
      for (Problem& more : fill::problems({"prefill/n1_t2000_h2_hv4_k64_v64/fp32/h0", "prefill/n100_t3_h2_hv4_k64_v64/bf16/h0"})) p.push_back(std::move(more));
    return p;
  }
  Case make(const Problem& p, std::uint64_t seed) const override {
    fill::require_prefill(name(), p);
    fill::Style style;
    TensorSet t = fill::inputs(p, seed, style);    // k and v as in a model: with beta=0 they must not matter
    const I T = p.tokens(), H = p.heads, K = p.key_dim;
    for (const char* name : {"g", "beta"})
      if (const auto it = t.find(name); it != t.end())
        for (I i = 0; i < T * (it->second.size() / std::max<I>(T + p.padding, 1)); ++i) it->second.set(i, 0);
    const Random query(seed, "q.row"), exponent(seed, "h0.exponent"), digits(seed, "h0.digits");
    Tensor& q = t.at("q");
    for (I i = 0; i < T; ++i)
      for (I h = 0; h < H; ++h)
        for (I d = 0; d < K; ++d) q.set((i * H + h) * K + d, d == (i + static_cast<I>(seed)) % K ? (query.below(static_cast<std::uint64_t>(i * H + h), 2) ? 1 : -1) : 0);
    if (const auto h0 = t.find("h0"); h0 != t.end())
      for (I i = 0; i < h0->second.size(); ++i) {
        const auto u = static_cast<std::uint64_t>(i);
        const int least = p.state == DType::f32 && p.scale > 0x1p+100 ? -150 : -20;
        const double x = std::ldexp(1 + digits.uniform(u), static_cast<int>(exponent.below(u, 30)) + least);
        h0->second.set(i, digits.bits(u) & 1 ? -x : x);
      }
    return fill::single(name(), p, seed, std::move(t));
  }
};

const PassThrough family;
const RegisterFamily registered(&family);

}  // namespace
}  // namespace gdn
