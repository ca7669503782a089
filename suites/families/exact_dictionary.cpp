// Case family `exact_dictionary`: orthonormal keys, small integers, nothing forgotten: the state is a dictionary. Once with one-hot keys, once with
// rows of a Sylvester-Hadamard matrix, so that every lane of every product is busy.
// There to catch slips of masks, borders, tails, heads and algebra of any size: every value is exact (rows 1 to 4).
#include <algorithm>
#include <bit>
#include <cmath>

#include "suites/families/fill.h"
#include "suites/families/relate.h"
#include "suites/family.h"

namespace gdn {
namespace {

using I = std::int64_t;

struct ExactDictionary final : Family {
  std::string name() const override { return "exact_dictionary"; }
  std::string profile() const override { return "core"; }
  std::string rationale() const override {
    return "With one-hot keys, beta 0 or 1 and g=0 the state is a dictionary and the output a look-up; all values are exact "
           "in formats of 8 digits, and need them, in the recurrent and in the chunkwise form. Keys are often written twice in a row (the inverse is "
           "I minus its subdiagonal); some heads replace only half (beta=1/2), some erase and write with a weight of 8 digits. The second run has keys with entries +-d^-1/2, rows of a Hadamard matrix of "
           "order d = 4^m, of norm 1 exactly and orthogonal to each other: again a dictionary, spread over all key channels, and with values in {-1,0,1} every stored number still "
           "fits 8 digits. Where K is no power of 4 these keys use the first, last or middle d channels in turn per sequence and seed.";
  }
  std::string own_fault() const override { return "zero_gates_path_takes_beta_by_key_head"; }
  std::vector<std::string> kinds() const override {
    return {"correction-missing", "correction-wrong-weight", "read-before-write", "beta-shifted", "scale-wrong", "sign-wrong",
            "gate-mask-by-value", "state-zeroed-at-chunk-border", "state-stale-at-chunk-border", "tail-tokens-dropped", "mask-off-by-one", "local-term-wrong", "inverse-wrong", "uncorrected-values", "cross-term-missing",
            "initial-state-ignored", "initial-state-transposed", "final-state-transposed", "final-state-wrong", "head-map-wrong",
            "key-channels-dropped", "value-channels-dropped", "element-wrong", "tail-padding-read", "tile-from-wrong-dim", "layout-transposed"};
  }
  bool exact_scale() const override { return true; }
  std::vector<Problem> problems(Level level) const override {
    if (level == Level::smoke)
      return fill::problems({"prefill/n1_t70_h1_hv4_k64_v64/bf16/h0", "prefill/n1_t66_h2_hv4_k64_v64/fp32/h0",
                             "prefill/n1_t66_h1_hv2_k128_v64/bf16/h0,scale=0x1p-3", "prefill/n1_t66_h1_hv1_k128_v128/fp32/h0,scale=0x1p-3",
                             "prefill/n1_t9_h1_hv2_k64_v16/bf16/h0,scale=0x1p+0", "prefill/n1_t20_h1_hv1_k256_v8/bf16/h0", "prefill/n1_t20_h1_hv1_k256_v8/fp32/h0"});
    std::vector<Problem> p = fill::problems(
        {"prefill/n1_t200_h2_hv4_k64_v64/bf16/h0", "prefill/n1_t200_h2_hv4_k64_v64/fp32/h0", "prefill/n1_t129_h1_hv4_k16_v40/bf16/h0",
         "prefill/n1_t129_h1_hv4_k16_v40/fp32", "prefill/n1_t130_h1_hv4_k128_v128/bf16/h0,scale=0x1p-3",
         "prefill/n1_t66_h1_hv4_k128_v128/fp32/h0,scale=0x1p-3", "prefill/n1_t70_h1_hv4_k64_v32/fp16/h0",
         "prefill/n1_t66_h1_hv4_k64_v64/bf16/h0,split=17.64",
         "prefill/n1_t40_h1_hv4_k64_v32/bf16/h0,scale=0x1p+0",
         "prefill/n1_t129_h2_hv4_k16_v40/bf16/h0", "prefill/n1_t100_h1_hv2_k256_v64/bf16/h0", "prefill/n1_t70_h1_hv2_k256_v64/fp32/h0",
         "prefill/n2_t40_h1_hv2_k128_v32/bf16/h0,scale=0x1p-3"});
    if (level != Level::ci)
      for (int t = 1; t <= 130; ++t)
        for (const char* dtype : {"bf16", "fp32"})
          p.push_back(parse_problem("prefill/n1_t" + std::to_string(t) + "_h1_hv4_k64_v16/" + dtype + "/h0"));
    return p;
  }
  Case make(const Problem& p, std::uint64_t seed) const override {
    fill::require_prefill(name(), p);
    Case c = fill::single(name(), p, seed, fill::dictionary(p, seed));
    relate::add_run(c, "spread over all key channels", [&](Run& r) { r.inputs = spread(p, seed); }, true);
    return c;
  }

 private:
  static TensorSet spread(const Problem& p, std::uint64_t seed) {
    TensorSet t = fill::allocate(p);
    const I H = p.heads, HV = p.value_heads, K = p.key_dim, V = p.value_dim;
    I d = 1;
    while (4 * d <= std::min<I>(K, 256)) d *= 4;
    const double entry = 1 / std::sqrt(static_cast<double>(d));
    const Random key(seed, "k"), sign(seed, "k.sign"), query(seed, "q"), value(seed, "v"), choose(seed, "beta"), state(seed, "h0");
    auto hadamard = [&](I row, I col) { return std::popcount(static_cast<std::uint64_t>(row & col)) % 2 ? -entry : entry; };
    for (std::size_t n = 0; n < p.lengths.size(); ++n) {
      const I place = (K - d) * static_cast<I>((n + seed) % 3) / 2;   // where in the key channels
      for (I h = 0; h < H; ++h) {
        std::vector<I> written;
        for (I i = 0; i < p.lengths[n]; ++i) {
          const I token = p.offsets()[n] + i;
          const auto u = static_cast<std::uint64_t>(token * H + h);
          // Odd key heads write one key for 16 tokens at a time, all heads one key in three again.
          const I row = h % 2 == 1 && (i / 16) % 2 ? written.back() : i && i % 3 == 1 ? written.back() : static_cast<I>(key.below(u, static_cast<std::uint64_t>(d)));
          written.push_back(row);
          const double s = sign.below(u, 2) ? 1 : -1, asked_sign = query.below(u | 1ull << 52, 2) ? 1 : -1;
          const I back = static_cast<I>(query.below(u, static_cast<std::uint64_t>(std::min<I>(i + 1, 40))));
          const I asked = written[static_cast<std::size_t>(i - back)];
          for (I c = 0; c < d; ++c) {
            t.at("k").set((token * H + h) * K + place + c, s * hadamard(row, c));
            t.at("q").set((token * H + h) * K + place + c, asked_sign * hadamard(asked, c));
          }
        }
      }
      if (const auto h0 = t.find("h0"); h0 != t.end())
        for (I hv = 0; hv < HV; ++hv)              // a dictionary in the Hadamard basis, as it would have been written
          for (I j = 0; j < V; ++j)
            for (I row = 0; row < d; row += 4) {
              const I at = ((static_cast<I>(n) * HV + hv) * K) * V + j;
              const double x = static_cast<double>(state.below(static_cast<std::uint64_t>(((static_cast<I>(n) * HV + hv) * d + row) * V + j), 3)) - 1;
              for (I c = 0; c < d; ++c) {
                const I e = at + (place + c) * V;
                h0->second.set(e, h0->second.at(e) + x * hadamard(row, c));
              }
            }
    }
    for (I i = 0; i < p.tokens() * HV * V; ++i) t.at("v").set(i, static_cast<double>(value.below(static_cast<std::uint64_t>(i), 3)) - 1);
    if (const auto beta = t.find("beta"); beta != t.end())
      for (I i = 0; i < p.tokens() * HV; ++i) beta->second.set(i, choose.below(static_cast<std::uint64_t>(i), 5) ? 1 : 0);
    fill::poison_padding(p, t);
    return t;
  }
};

const ExactDictionary family;
const RegisterFamily registered(&family);

}  // namespace
}  // namespace gdn
