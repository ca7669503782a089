// Case family `inverse_steps`: beta below 0 and above 2, and steps that undo one another (row 34). For kernels that declare any_beta.
// There to catch beta that is limited, squared or taken as a weight between 0 and 1 somewhere.
#include <algorithm>

#include "suites/families/fill.h"
#include "suites/families/relate.h"
#include "suites/family.h"

namespace gdn {
namespace {

using I = std::int64_t;

struct InverseSteps final : Family {
  std::string name() const override { return "inverse_steps"; }
  std::string profile() const override { return "any_beta"; }
  std::string rationale() const override {
    return "The step with key k and beta is undone by one with the same key and value and beta' = -beta/(1 - beta |k|^2), which is below 0 for beta below 1 and "
           "above 2 for beta between 1 and 2. Even heads write with exact unit keys and undo it all in reverse order, so that the final state is h0; the others have "
           "beta anywhere between -1 and 3. v and h0 negated must give the same bits negated.";
  }
  std::string own_fault() const override { return "negative_beta_clamped"; }
  std::vector<std::string> kinds() const override { return {"beta-clamped", "correction-wrong-weight"}; }
  std::vector<Problem> problems(Level level) const override {
    if (level == Level::smoke) return fill::problems({"prefill/n1_t10_h2_hv2_k8_v8/bf16/h0", "prefill/n1_t10_h2_hv2_k8_v8/fp32/h0"});
    return fill::problems({"prefill/n1_t16_h2_hv2_k64_v64/bf16/h0", "prefill/n1_t16_h2_hv2_k64_v64/fp32/h0", "prefill/n1_t16_h2_hv2_k128_v128/bf16/h0",
                           "prefill/n1_t20_h2_hv4_k32_v24/fp32/h0"});
  }
  Case make(const Problem& p, std::uint64_t seed) const override {
    fill::require_prefill(name(), p);
    fill::Style style;
    style.gates = {fill::Gates::slow};
    style.keys = {fill::Keys::independent};
    Case c = fill::single(name(), p, seed, fill::inputs(p, seed, style));
    TensorSet& in = c.runs[0].inputs;
    const I H = p.heads, HV = p.value_heads, K = p.key_dim, V = p.value_dim, r = HV / H;
    const auto beta = in.find("beta"), g = in.find("g");
    if (beta == in.end()) return c;
    const Random choose(seed, "beta.any"), place(seed, "keys.place");
    Tensor &k = in.at("k"), &v = in.at("v");
    for (std::size_t n = 0; n < p.lengths.size(); ++n)
      for (I h = 0; h < H; ++h)
        for (I t = 0; t < p.lengths[n]; ++t) {
          const I row = p.offsets()[n] + t, mirror = p.lengths[n] - 1 - t, first = std::min(t, mirror);
          constexpr double steps[][2] = {{0.5, -1}, {1.5, 3}, {2, 2}, {-1, 0.5}, {1.25, 5}};   // beta and what undoes it, where |k| = 1
          const auto pick = choose.below(static_cast<std::uint64_t>((static_cast<I>(n) * H + h) * 100003 + first), 5);
          for (I j = h * r; j < (h + 1) * r; ++j) {
            if (h % 2) {
              beta->second.set(row * HV + j, choose.uniform(static_cast<std::uint64_t>(row * HV + j), -1, 3));
              continue;
            }
            beta->second.set(row * HV + j, t == mirror ? 0 : steps[pick][t > mirror]);
            if (g != in.end() && p.rule == Rule::gated_delta) g->second.set(row * HV + j, 0);
            for (I e = 0; e < V && t > mirror; ++e) v.set((row * HV + j) * V + e, v.at(((p.offsets()[n] + mirror) * HV + j) * V + e));
          }
          if (h % 2) continue;
          for (I d = 0; d < K; ++d) k.set((row * H + h) * K + d, 0);
          for (I i = 0, set = 0; set < std::min<I>(4, K / 4 * 4); ++i) {
            const auto u = static_cast<std::uint64_t>(((static_cast<I>(n) * H + h) * 1000003 + first) * 64 + i);
            const I d = static_cast<I>(place.below(u, static_cast<std::uint64_t>(K)));
            if (k.at((row * H + h) * K + d) != 0) continue;
            k.set((row * H + h) * K + d, place.bits(u) & 1ull << 40 ? 0.5 : -0.5);
            ++set;
          }
        }
    relate::add_negated_values(c);
    return c;
  }
};

const InverseSteps family;
const RegisterFamily registered(&family);

}  // namespace
}  // namespace gdn
