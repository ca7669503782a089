// Case family `reflections`: beta from 1 to 2, where a step turns the component along the key round (row 33).
// There to catch kernels that were written for beta up to 1 and limit or approximate what lies beyond.
#include <algorithm>

#include "suites/families/fill.h"
#include "suites/families/relate.h"
#include "suites/family.h"

namespace gdn {
namespace {

using I = std::int64_t;

struct Reflections final : Family {
  std::string name() const override { return "reflections"; }
  std::string profile() const override { return "negative_eigenvalues"; }
  std::string rationale() const override {
    return "With beta in (1,2) the state's component along the key changes sign. One head reflects h0 at exact unit keys with beta = 2 or at keys with |k|^2 = 2 and beta = 1, then at the same "
           "keys in reverse order, which restores it; one has beta at 1, 2 and their neighbours; one anything in (0,2), one keys of norm 1.4 with beta up "
           "to 1. v and h0 negated must give the same bits negated.";
  }
  std::string own_fault() const override { return "beta_clamped_to_one"; }
  std::vector<std::string> kinds() const override { return {"beta-clamped", "correction-wrong-weight", "correction-missing", "sign-wrong"}; }
  std::vector<Problem> problems(Level level) const override {
    if (level == Level::smoke) return fill::problems({"prefill/n1_t34_h4_hv4_k16_v16/bf16/h0", "prefill/n1_t34_h4_hv4_k16_v16/fp32/h0"});
    std::vector<Problem> p = fill::problems({"prefill/n1_t66_h4_hv4_k64_v64/bf16/h0", "prefill/n1_t66_h4_hv4_k64_v64/fp32/h0", "prefill/n1_t34_h4_hv4_k128_v128/bf16/h0",
                                             "prefill/n1_t130_h4_hv8_k64_v32/fp32/h0", "prefill/n1_t130_h4_hv4_k64_v64/bf16/h0,beta=bf16"});
    if (level != Level::ci)
      for (Problem& more : fill::problems({"prefill/n1_t514_h4_hv4_k64_v64/fp32/h0", "prefill/n1_t200_h4_hv4_k128_v128/fp32/h0"})) p.push_back(std::move(more));
    return p;
  }
  Case make(const Problem& p, std::uint64_t seed) const override {
    fill::require_prefill(name(), p);
    fill::Style style;
    style.gates = {fill::Gates::mild};
    style.keys = {fill::Keys::independent};
    style.betas = {fill::Betas::wide};
    Case c = fill::single(name(), p, seed, fill::inputs(p, seed, style));
    TensorSet& in = c.runs[0].inputs;
    const I H = p.heads, HV = p.value_heads, K = p.key_dim, V = p.value_dim, r = HV / H;
    const auto beta = in.find("beta"), g = in.find("g");
    const Random choose(seed, "beta.edge"), place(seed, "keys.place");
    Tensor &k = in.at("k"), &v = in.at("v");
    for (std::size_t n = 0; n < p.lengths.size(); ++n)
      for (I h = 0; h < H; ++h)
        for (I t = 0; t < p.lengths[n]; ++t) {
          const I row = p.offsets()[n] + t, at = (row * H + h) * K, mirror = std::min(t, p.lengths[n] - 1 - t);
          for (I j = h * r; j < (h + 1) * r; ++j) {
            const auto u = static_cast<std::uint64_t>(row * HV + j);
            constexpr double neighbours[] = {2, 1, 2 - 0x1p-22, 1 + 0x1p-23, 1 - 0x1p-24, 2 - 0x1p-7, 1 + 0x1p-7, 0.5};
            if (beta != in.end() && h % 4 == 1) beta->second.set(row * HV + j, neighbours[choose.below(u, 8)]);
            if (beta != in.end() && h % 4 == 3) beta->second.set(row * HV + j, choose.uniform(u));
            if (h % 4 != 0) continue;
            if (beta != in.end()) beta->second.set(row * HV + j, entries(p, mirror) == 8 ? 1 : 2);
            if (g != in.end() && p.rule == Rule::gated_delta) g->second.set(row * HV + j, 0);
            for (I e = 0; e < V; ++e) v.set((row * HV + j) * V + e, 0);
          }
          if (h % 4 == 0) {                        // entries of +-1/2, the same keys backwards in the second half
            for (I d = 0; d < K; ++d) k.set(at + d, 0);
            for (I i = 0, set = 0; set < entries(p, mirror); ++i) {
              const auto u = static_cast<std::uint64_t>(((static_cast<I>(n) * H + h) * 1000003 + mirror) * 64 + i);
              const I d = static_cast<I>(place.below(u, static_cast<std::uint64_t>(K)));
              if (k.at(at + d) != 0) continue;
              k.set(at + d, place.bits(u) & 1ull << 40 ? 0.5 : -0.5);
              ++set;
            }
          }
          if (h % 4 == 3 && !p.unit)
            for (I d = 0; d < K; ++d) k.set(at + d, 1.4 * k.at(at + d));
        }
    relate::add_negated_values(c);
    return c;
  }

 private:
  // Of a reflecting key: four, and |k|^2 = 1; or eight, |k|^2 = 2, and beta = 1 reflects.
  static I entries(const Problem& p, I token) {
    return token % 3 == 2 && p.key_dim >= 8 && !p.unit ? 8 : std::min<I>(4, p.key_dim / 4 * 4);
  }
};

const Reflections family;
const RegisterFamily registered(&family);

}  // namespace
}  // namespace gdn
