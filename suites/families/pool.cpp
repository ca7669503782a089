// Helpers of the families on a pool of states; see pool.h.
#include "suites/families/pool.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace gdn::pool {

using I = std::int64_t;

std::vector<I> live_slots(const Problem& p, std::uint64_t seed, I count) {
  std::vector<I> order(static_cast<std::size_t>(p.slots));
  std::iota(order.begin(), order.end(), I{0});
  const Random random(seed, "slots");
  for (std::size_t i = order.size(); i > 1; --i)
    std::swap(order[i - 1], order[static_cast<std::size_t>(random.below(static_cast<std::uint64_t>(i), static_cast<std::uint64_t>(i)))]);
  std::stable_partition(order.begin(), order.end(), [&](I s) { return s != 0 && s != p.slots - 1; });
  order.resize(static_cast<std::size_t>(std::min(count, p.slots)));
  return order;
}

void put_canaries(const Problem& p, TensorSet& t) {
  Tensor& h0 = t.at("h0");
  const Tensor& indices = t.at("state_indices");
  std::vector<bool> used(static_cast<std::size_t>(p.slots), false);
  for (I i = 0; i < indices.size(); ++i)
    if (indices.int_at(i) >= 0) used[static_cast<std::size_t>(indices.int_at(i))] = true;
  const I width = h0.size() / p.slots;
  I last = -1;
  for (I s = 0; s < p.slots; ++s) {
    if (used[static_cast<std::size_t>(s)]) continue;
    for (I i = s * width; i < (s + 1) * width; ++i) h0.set(i, static_cast<double>(i + 1));
    last = (s + 1) * width - 1;
  }
  if (last >= 0) h0.set(last, std::numeric_limits<double>::quiet_NaN());
}

TensorSet inputs(const Problem& p, std::uint64_t seed, const fill::Style& style, const Tensor& indices) {
  TensorSet t = fill::inputs(p, seed, style);
  t["state_indices"] = indices;
  put_canaries(p, t);
  fill::poison_idle_rows(p, t);
  return t;
}

void put_extremes(const Problem& p, std::uint64_t seed, TensorSet& t) {
  Tensor &q = t.at("q"), &k = t.at("k"), &v = t.at("v");
  const auto g = t.find("g");
  const I H = p.heads, HV = p.value_heads, K = p.key_dim, V = p.value_dim;
  const auto scale_row = [](Tensor& x, I row, I width, double factor) {
    for (I e = row * width; e < (row + 1) * width; ++e) x.set(e, x.at(e) * factor);
  };
  for (I row = 0; row < p.tokens(); ++row) {
    const I pick = row + static_cast<I>(seed % 35);
    if (p.io == DType::f16 && pick % 2 && !p.unit) scale_row(q, row, H * K, 0x1p-14);
    if (pick % 7 == 3) scale_row(k, row, H * K, 0);
    if (pick % 7 == 5 && !p.unit) {
      scale_row(k, row, H * K, 0x1p-10);
      scale_row(v, row, HV * V, 0x1p10);
    }
    constexpr double large[] = {-60, -1e4, -88, -1000, -104};
    for (I h = 0; h < HV && g != t.end() && p.rule == Rule::gated_delta; ++h) {
      const I at = row * HV + h, turn = pick + 3 * h;
      if (turn % 5 == 0 && g->second.at(at) <= 0) g->second.set(at, large[turn / 5 % 5]);   // not where idle rows hold NaN
    }
  }
}

}  // namespace gdn::pool
