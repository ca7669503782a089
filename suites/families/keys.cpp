// Case family `keys`: keys that are equal, opposite, non-negative, long, short, zero or exactly orthonormal (rows 14, 15, 30,
// 31, 35). There to catch inverses that hold for nearly orthogonal keys only, hidden norms, and key channels treated apart.
#include <cmath>

#include "suites/families/fill.h"
#include "suites/families/relate.h"
#include "suites/family.h"

namespace gdn {
namespace {

using I = std::int64_t;

struct KeysFamily final : Family {
  std::string name() const override { return "keys"; }
  std::string profile() const override { return "core"; }
  std::string rationale() const override {
    return "Random keys of norm 1 are nearly orthogonal, and the correction they need is small. Here key heads hold, in turn: one key for all "
           "tokens with beta .835 (the powers of L explode); two groups of keys with entries +-2^-m, |k|^2 exactly 1 or 4, where with q = k and beta = 1/|k|^2 the "
           "output is v whatever the state holds, a token written twice changes nothing and orthogonal keys may change places; a key and its opposite in "
           "turn; non-negative keys with beta near 1; norms 0, 1e-4, 1e-3, 1e-2, 1 and 1.4. Further runs permute the key channels, and turn the exact "
           "keys into another orthonormal basis. Every run is judged against its own exact result.";
  }
  std::string own_fault() const override { return "short_key_taken_as_zero"; }
  std::vector<std::string> kinds() const override {
    return {"inverse-by-products", "inverse-wrong", "unwanted-normalisation", "nan-in-output", "correction-missing", "key-channels-dropped",
            "sign-wrong", "mask-off-by-one", "uncorrected-values", "correction-wrong-weight"};
  }
  std::vector<Problem> problems(Level level) const override {
    if (level == Level::smoke) return fill::problems({"prefill/n1_t66_h5_hv5_k16_v16/bf16/h0", "prefill/n1_t66_h5_hv5_k16_v16/fp32/h0"});
    std::vector<Problem> p = fill::problems({"prefill/n1_t130_h5_hv5_k64_v32/bf16/h0", "prefill/n1_t130_h5_hv5_k64_v32/fp32/h0",
                                             "prefill/n1_t66_h5_hv5_k64_v64/bf16/h0", "prefill/n1_t66_h5_hv5_k128_v128/bf16/h0",
                                             "prefill/n1_t34_h5_hv5_k128_v128/fp32/h0", "prefill/n1_t70_h5_hv10_k32_v32/fp16/h0"});
    if (level != Level::ci)
      for (Problem& more : fill::problems({"prefill/n1_t260_h5_hv10_k128_v128/bf16/h0", "prefill/n1_t260_h5_hv10_k64_v64/fp32/h0", "prefill/n1_t260_h5_hv5_k256_v64/fp32/h0"}))
        p.push_back(std::move(more));
    return p;
  }
  Case make(const Problem& p, std::uint64_t seed) const override {
    fill::require_prefill(name(), p);
    fill::Style style;
    style.gates = {fill::Gates::slow, fill::Gates::mild};
    style.keys = {fill::Keys::correlated, fill::Keys::independent, fill::Keys::independent, fill::Keys::positive, fill::Keys::independent};
    Case c = fill::single(name(), p, seed, fill::inputs(p, seed, style));
    TensorSet& in = c.runs[0].inputs;
    const I H = p.heads, HV = p.value_heads, K = p.key_dim, V = p.value_dim, r = HV / H;
    const Random noise(seed, "keys"), weight(seed, "keys.beta");
    Tensor &q = in.at("q"), &k = in.at("k"), &v = in.at("v");
    const auto beta = in.find("beta"), g = in.find("g"), h0 = in.find("h0");
    auto set_beta = [&](I row, I h, double b) {
      for (I j = 0; j < r && beta != in.end(); ++j) beta->second.set(row * HV + h * r + j, b);
    };
    auto set_gate = [&](I row, I h, double x) {
      for (I j = 0; j < r && g != in.end() && p.rule == Rule::gated_delta; ++j) g->second.set(row * HV + h * r + j, x);
    };
    auto scale_values = [&](I row, I h, double factor) {
      for (I e = 0; e < r * V; ++e) v.set((row * HV + h * r) * V + e, v.at((row * HV + h * r) * V + e) * factor);
    };
    for (std::size_t n = 0; n < p.lengths.size(); ++n)
      for (I h = 0; h < H; ++h)
        for (I t = 0; t < p.lengths[n]; ++t) {
          const I row = p.offsets()[n] + t, at = (row * H + h) * K, first = (p.offsets()[n] * H + h) * K;
          const auto u = static_cast<std::uint64_t>(row * H + h);
          switch (h % 5) {
            case 0:                                // one key
              for (I d = 0; d < K; ++d) k.set(at + d, k.at(first + d));
              set_beta(row, h, 0.835);
              set_gate(row, h, -0x1.0624dep-10);
              break;
            case 1: {                              // exact unit keys, each used for two tokens; of a pair A A B B A A B B, A and B are orthogonal
              const I number = (static_cast<I>(n) * H + h) * 1000000 + t / 8;
              unit_key(k, at, K, seed, number, static_cast<I>(t / 2) % 2);
              if (weight.below(u, 4)) unit_key(q, at, K, seed, number, static_cast<I>(t / 2) % 2);   // row 30: o = scale v
              else unit_key(q, at, K, seed, number + 500000, 0);
              const bool longer = t / 8 % 2 == 1 && !p.unit;   // |k| = 2 and beta = 1/4: beta |k|^2 is 1 all the same
              for (I d = 0; d < K && longer; ++d) {
                k.set(at + d, 2 * k.at(at + d));
                q.set(at + d, 2 * q.at(at + d));
              }
              set_beta(row, h, longer ? 0.25 : 1);
              for (I e = 0; e < r * V && t % 2 == 1; ++e)   // row 31: the token before once more, without decay
                v.set((row * HV + h * r) * V + e, v.at(((row - 1) * HV + h * r) * V + e));
              if (t % 2 == 1 || t % 8 < 4) set_gate(row, h, 0);
              break;
            }
            case 2:                                // opposite
              for (I d = 0; d < K; ++d) k.set(at + d, (t % 2 ? -1 : 1) * k.at(first + d));
              set_beta(row, h, weight.below(u, 4) ? 0.5 : 1);
              break;
            case 3:                                // non-negative already
              set_beta(row, h, 1 - 0x1p-7 * weight.uniform(u));
              break;
            default: {                             // norms; what a short key writes is as large as the rest
              constexpr double norms[] = {1, 0, 1e-4, 1.4, 1e-3, 1, 1e-2};
              const double norm = p.unit ? (t + static_cast<I>(seed)) % 7 != 1 : norms[(t + static_cast<I>(seed)) % 7];
              for (I d = 0; d < K; ++d) k.set(at + d, k.at(at + d) * norm);
              if (norm > 0 && norm < 1) scale_values(row, h, 1 / norm);
              set_beta(row, h, norm > 1 ? 0.5 : weight.uniform(u));
            }
          }
        }
    if (h0 != in.end())                            // small integers, so that the state can be turned exactly
      for (I i = 0; i < h0->second.size(); ++i)
        if (i / (K * V) % HV / r % 5 == 1) h0->second.set(i, static_cast<double>(noise.below(static_cast<std::uint64_t>(i), 15)) - 7);
    fill::poison_padding(p, in);

    auto on_channels = [&](Run& run, auto&& f) {   // f(tensor, first element of channel 0, stride, key head)
      for (const char* name : {"q", "k"})
        for (I row = 0; row < p.tokens(); ++row)
          for (I h = 0; h < H; ++h) f(run.inputs.at(name), (row * H + h) * K, I{1}, h);
      if (p.initial_state)
        for (I s = 0; s < p.sequences() * HV; ++s)
          for (I j = 0; j < V; ++j) f(run.inputs.at("h0"), s * K * V + j, V, s % HV / r);
    };
    relate::add_run(c, "key channels reversed", [&](Run& run) {
      on_channels(run, [&](Tensor& t, I from, I stride, I) {
        for (I d = 0; d < K / 2; ++d) {
          const double a = t.at(from + d * stride), b = t.at(from + (K - 1 - d) * stride);
          t.set(from + d * stride, b);
          t.set(from + (K - 1 - d) * stride, a);
        }
      });
    }, true);
    if (H > 1 && K % 4 == 0)
      relate::add_run(c, "exact keys in another basis", [&](Run& run) {
        on_channels(run, [&](Tensor& t, I from, I stride, I h) {
          if (h % 5 != 1) return;
          for (I d = 0; d < K; d += 4) {           // Hadamard, order 4, times 1/2
            double x[4];
            for (I i = 0; i < 4; ++i) x[i] = t.at(from + (d + i) * stride);
            for (I i = 0; i < 4; ++i) t.set(from + (d + i) * stride, (x[0] + (i & 1 ? -1 : 1) * x[1] + (i & 2 ? -1 : 1) * x[2] + (i == 1 || i == 2 ? -1 : 1) * x[3]) / 2);
          }
        });
      }, true);
    if (H > 1)                                     // row 35: without decay the order of orthogonal keys does not matter to what comes later
      relate::add_run(c, "orthogonal keys exchanged", [&](Run& run) {
        const auto offsets = p.offsets();
        for (std::size_t n = 0; n < p.lengths.size(); ++n)
          for (I t = 0; t + 3 < p.lengths[n]; t += t % 8 == 1 ? 7 : 1)   // tokens 0 and 1 of eight with 2 and 3
            for (const char* name : {"q", "k", "v", "beta"})
              if (const auto it = run.inputs.find(name); it != run.inputs.end()) {
                const bool key = name[0] == 'q' || name[0] == 'k';
                const I width = key ? K : name[0] == 'v' ? V : 1, heads = key ? H : HV, first = key ? 1 : r, count = key ? 1 : r;
                for (I e = first * width; e < (first + count) * width; ++e) {
                  const I a = (offsets[n] + t) * heads * width + e, b = a + 2 * heads * width;
                  const std::uint64_t x = it->second.bits(a);
                  it->second.set_bits(a, it->second.bits(b));
                  it->second.set_bits(b, x);
                }
              }
      }, true);
    relate::add_negated_values(c);
    return c;
  }

 private:
  // 4^m entries +-2^-m at random places, |k|^2 = 1 in every format; the two of a pair are orthogonal, with the same places.
  static void unit_key(Tensor& k, I at, I K, std::uint64_t seed, I number, I second) {
    const Random place(seed, "keys.place"), sign(seed, "keys.sign");
    const I count = K >= 64 ? 16 : 4;              // less than K, so that overlaps differ
    const double entry = count == 16 ? 0.25 : 0.5;
    for (I d = 0; d < K; ++d) k.set(at + d, 0);
    I set = 0;
    for (I tries = 0; set < std::min(count, K / 4 * 4) && tries < 100000; ++tries) {
      const auto u = static_cast<std::uint64_t>(number * 4096 + tries);
      const I d = static_cast<I>(place.below(u, static_cast<std::uint64_t>(K)));
      if (k.at(at + d) != 0) continue;
      k.set(at + d, (sign.below(u, 2) ? entry : -entry) * (second && set % 2 ? -1 : 1));
      ++set;
    }
  }
};

const KeysFamily family;
const RegisterFamily registered(&family);

}  // namespace
}  // namespace gdn
