// How far a kernel of a contract typically strays, element by element: the standard deviation over stochastically
// rounded executions of the contract. The statistical check divides errors by it.
#pragma once
#include <cstdint>
#include <span>

#include "reference/contract.h"
#include "reference/head.h"

namespace gdn {

inline constexpr int kSigmaRuns = 24;

// Standard deviations of o [T,V] and ht [K,V], in double: square root of 0.7 times the variance of the element's own
// executions (about their mean) plus 0.3 times the mean of that variance over its row (one token of o, one key
// channel of ht), because `runs` executions alone leave the estimate noisy. The contract is the one narrowed to the
// problem. +inf where an execution left the finite numbers; 0 where every execution agrees in the whole row.
HeadResult sigma_head(const Contract& c, const HeadInputs& in, std::uint64_t seed, std::span<const std::int64_t> split = {}, int runs = kSigmaRuns);

}  // namespace gdn
