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

}  // namespace gdn::pool
