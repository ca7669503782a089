// Helpers of the families on a pool of states: which slots are used, what lies in the others, and runs that use the
// same slots in another way.
#pragma once
#include <cstdint>
#include <vector>

#include "suites/families/fill.h"

namespace gdn::pool {

// `count` slots of the pool, distinct, in no order, never slot 0 and never the last one while others are left: those are
// where clamped and wrapped indices end up.
std::vector<std::int64_t> live_slots(const Problem& p, std::uint64_t seed, std::int64_t count);
// Slots that no call uses get canaries: integers that are all different, and in the last of them one NaN.
void put_canaries(const Problem& p, TensorSet& t);
// Inputs by the style, canaries and NaN in idle rows, for these indices ([calls,N], -1: no sequence).
TensorSet inputs(const Problem& p, std::uint64_t seed, const fill::Style& style, const Tensor& indices);

// Single tokens that serving sees and random draws do not, on inputs() or before poison_idle_rows: gates from -60 to -1e4, keys that are 0 or 2^-10
// long with values as much larger, in fp16
// queries whose entries are mostly subnormal.
void put_extremes(const Problem& p, std::uint64_t seed, TensorSet& t);

}  // namespace gdn::pool
