// Exactness certificate: proves that on these inputs every value a contract stores is exact, so that every correct
// kernel of the contract must return the same numbers, whatever order it sums in (accuracy standard 5.3, rows 1 to 6).
//
// A tracker carries the inputs through the contract's form. Each matrix is a set of whole multiples of one power of
// two, its granule. A sum of products is exact in any order, fused or not, when the sum of the absolute values of its
// terms is at most 2^p granules, p the digits of the accumulator; a store is exact when rounding changes nothing.
// Decays must be exactly 0 or 1: g = 0 or g <= -1000. The scale must be a power of two.
// The last rounding, into o and ht, need not be exact: its result is determined.
#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <string>

#include "reference/contract.h"
#include "reference/head.h"

namespace gdn {

struct ExactHead {
  bool certified = false;
  std::string why_not;                             // one line, when not certified
  bool pass_through = false;                       // row 6: nothing is written, only stored values are read
  // The only numbers a correct kernel can return, o [T,V] and ht [K,V]; NaN where the contract leaves a choice
  // (pass_through only). exact: before the last rounding; empty for pass_through.
  HeadResult expected, exact;
  // What a kernel more precise than its contract returns, before rounding into the output tensor: also right.
  HeadResult finer;
  std::array<int, kPoints> digits{};               // most binary digits seen at each point
  int sum_digits = 0;                              // most that any sum of absolute values needs
};

// contract: narrowed to the problem (for_problem).
ExactHead exact_head(const Contract& contract, const HeadInputs& in, std::span<const std::int64_t> split = {});

}  // namespace gdn
