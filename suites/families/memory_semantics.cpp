// Case family `memory_semantics`: what the memory is for, one thing a head: replace, fade, read back, keep one item among noise, converge.
// There to catch rules that are another rule: adding for replacing, correcting what has not decayed, reading too early.
#include <bit>
#include <cmath>

#include "suites/families/fill.h"
#include "suites/family.h"

namespace gdn {
namespace {

using I = std::int64_t;
std::uint64_t u(I i) { return static_cast<std::uint64_t>(i); }

struct MemorySemantics final : Family {
  std::string name() const override { return "memory_semantics"; }
  std::string profile() const override { return "core"; }
  std::string rationale() const override {
    return "The experiments by which the rule is taught, a kernel's turn (`gdn-cts experiments` shows them in doubles): one key written twice, a stored value over idle steps, the two-cell calculation "
           "with decay 1/2 and beta 1/4, an item among noise writes, constant gates that converge to beta v / (1 - alpha (1 - beta)), and to v where nothing fades, random keys up to and beyond the capacity. "
           "One is the work of each key head. With option rule= the same for the sum, the decayed sum and the delta rule.";
  }
  std::string own_fault() const override { return "small_correction_skipped"; }
  std::vector<std::string> kinds() const override {
    return {"correction-before-decay", "correction-missing", "correction-wrong-weight", "decay-after-write", "read-before-write", "gate-ignored", "beta-shifted", "gate-shifted"};
  }
  std::vector<Problem> problems(Level level) const override {
    if (level == Level::smoke) return fill::problems({"prefill/n1_t18_h6_hv6_k16_v8/fp32", "prefill/n1_t18_h6_hv6_k32_v8/bf16"});
    std::vector<Problem> p = fill::problems({"prefill/n1_t70_h6_hv6_k32_v32/fp32", "prefill/n1_t70_h6_hv6_k64_v64/bf16", "prefill/n1_t66_h6_hv6_k64_v64/fp32/split=33", "prefill/n1_t66_h6_hv6_k128_v128/bf16/noht", "prefill/n1_t40_h6_hv12_k16_v8/fp32",
                                             "prefill/n1_t40_h6_hv6_k32_v16/fp32/rule=delta", "prefill/n1_t40_h6_hv6_k32_v16/fp32/rule=linear", "prefill/n1_t40_h6_hv6_k32_v16/fp32/rule=gated_linear",
                                             "prefill/n1_t40_h6_hv6_k64_v64/bf16/rule=delta", "prefill/n1_t70_h6_hv6_k64_v16/fp16"});
    if (level != Level::ci)
      for (Problem& more : fill::problems({"prefill/n1_t500_h6_hv6_k64_v64/bf16", "prefill/n1_t500_h6_hv6_k64_v64/fp32", "prefill/n1_t300_h6_hv6_k128_v128/fp32"})) p.push_back(std::move(more));
    return p;
  }
  Case make(const Problem& p, std::uint64_t seed) const override {
    fill::require_prefill(name(), p);
    if (p.rule == Rule::kda || p.rule == Rule::retention || p.raw || p.key_dim < 4)
      throw std::invalid_argument("family " + name() + " has one gate per token and head, and at least four key channels, not '" + to_string(p) + "'");
    TensorSet t = fill::allocate(p);
    const I H = p.heads, HV = p.value_heads, K = p.key_dim, V = p.value_dim, ratio = HV / H;
    const Random rv(seed, "v"), rk(seed, "k"), rh(seed, "h0"), choose(seed, "choose");
    Tensor &q = t.at("q"), &k = t.at("k"), &v = t.at("v");
    const auto optional = [&](const char* tensor, I at, double x) {
      if (const auto found = t.find(std::string_view(tensor)); found != t.end()) found->second.set(at, x);
    };
    I count = 1;                                   // keys are Walsh functions on so many channels, of length exactly 1 in every format
    double entry = 1;
    for (; 4 * count <= K; count *= 4) entry /= 2;
    const double slow = -0x1.af8e82p-4, half = -0x1.62e43p-1;    // ln 0.9 and ln 1/2 in fp32
    for (I i = 0; i < (p.initial_state ? t.at("h0").size() : 0); ++i)
      if (const I job = i / (K * V) % HV / ratio % 6; job != 2 && job != 3) t.at("h0").set(i, rh.normal(u(i)));   // those two begin with a reset
    const auto whole = [&](const Random& r, I at) { return static_cast<double>(r.below(u(at), 31)) - 15; };
    for (std::size_t n = 0; n < p.lengths.size(); ++n)
      for (I i = 0; i < p.lengths[n]; ++i) {
        const I row = p.offsets()[n] + i;
        for (I h = 0; h < H; ++h) {
          const I at = (row * H + h) * K, item = 2 + static_cast<I>(choose.below(u(h), u(count - 2)));
          const auto put = [&](Tensor& x, I key) {
            for (I d = 0; d < count; ++d) x.set(at + d, std::popcount(u(d & key)) % 2 ? -entry : entry);
          };
          const auto direction = [&](Tensor& x, I place) {         // a random unit vector, the same for the same place
            double sum = 0;
            std::vector<double> e(static_cast<std::size_t>(K));
            for (I d = 0; d < K; ++d) sum += (e[static_cast<std::size_t>(d)] = rk.normal(u((place * H + h) * K + d))) * e[static_cast<std::size_t>(d)];
            if (p.unit) return put(x, static_cast<I>(rk.below(u(place), u(count))));
            for (I d = 0; d < K; ++d) x.set(at + d, e[static_cast<std::size_t>(d)] / std::sqrt(sum));
          };
          double gate = 0, beta = 1;
          std::vector<double> value(static_cast<std::size_t>(V));
          const auto values = [&](const auto& make_one) {
            for (I e = 0; e < V; ++e) value[static_cast<std::size_t>(e)] = make_one(e);
          };
          values([&](I e) { return whole(rv, (row * H + h) * V + e); });
          switch (h % 6) {
            case 0: {                              // A, B, A again; the key just written is read, or the other
              put(k, i % 3 == 1 ? item ^ 1 : item);
              put(q, i % 4 == 3 ? item ^ 1 : item);
              break;
            }
            case 1:                                // written once in ten, then idle
              put(k, item);
              put(q, item);
              gate = slow;
              beta = i % 10 == 0 ? 1 : 0;
              break;
            case 2:                                // write 2 and 10, then the step by hand, both cells read in turn
              put(k, i % 4 == 1);
              put(q, i % 2);
              gate = i % 4 == 0 ? -1000 : i % 4 >= 2 ? half : 0;
              beta = i % 4 >= 2 ? 0.25 : 1;
              values([&](I e) { return static_cast<double>(1 + e % 3) * (i % 4 == 0 ? 2 : i % 4 == 1 ? 10 : 6); });
              break;
            case 3:                                // noise, every 16th token the item after a reset; the item is read
              if (i % 16 == 4) put(k, item);
              else direction(k, row);
              put(q, item);
              gate = i % 16 == 4 ? -1000 : 0;
              beta = i % 16 == 4 ? 1 : 0x1p-7;
              break;
            case 4:                                // the same write again and again; from the middle on nothing fades and corrections go to 0
              put(k, item);
              put(q, item);
              gate = 2 * i < p.lengths[n] ? slow : 0;
              beta = 0.5;
              values([&](I e) { return whole(rv, h * V + e); });
              break;
            default:                               // random keys, every third written, an earlier one read
              direction(k, row);
              beta = i % 3 == 0 ? 1 : 0;           // or the bound of 16-bit operands outgrows the signal
              direction(q, p.offsets()[n] + static_cast<I>(choose.below(u(row * H + h), u(i + 1))));
          }
          for (I r = 0; r < ratio; ++r) {
            const I hv = h * ratio + r;
            optional("g", row * HV + hv, gate);
            optional("beta", row * HV + hv, beta);
            for (I e = 0; e < V; ++e) v.set((row * HV + hv) * V + e, static_cast<double>(1 + r % 2) * value[static_cast<std::size_t>(e)]);
          }
        }
      }
    fill::poison_padding(p, t);
    return fill::single(name(), p, seed, std::move(t));
  }
};

const MemorySemantics family;
const RegisterFamily registered(&family);

}  // namespace
}  // namespace gdn
