// Fast rounding to nearest even for the bodies in this room; equal to reference/format.h by suites/self/test_faults.cpp.
#pragma once
#include <bit>
#include <cmath>
#include <cstdint>

#include "reference/format.h"

namespace gdn::faulty {

inline float to_bf16(float x) {
  if (x != x) return x;
  std::uint32_t b = std::bit_cast<std::uint32_t>(x);
  b += 0x7fffu + ((b >> 16) & 1u);
  b &= 0xffff0000u;
  return std::bit_cast<float>(b);
}

// x rounded to f (nearest even): bits dropped by integer addition in f's normal range, round_to elsewhere.
inline double narrow(double x, Format f) {
  const FormatInfo& i = info(f);
  const std::uint64_t b = std::bit_cast<std::uint64_t>(x);
  const int e = static_cast<int>((b >> 52) & 0x7ff) - 1023;
  if (f == Format::fp64 || e < i.emin || e >= i.emax) return round_to(x, Store{f});
  const int drop = 53 - i.precision;
  const std::uint64_t half = std::uint64_t{1} << (drop - 1);
  return std::bit_cast<double>((b + (half - 1) + ((b >> drop) & 1u)) >> drop << drop);
}

// Low bits dropped: what truncation instead of rounding to nearest gives.
inline double truncate(double x, Format f) { return round_to(x, Store{f, 1, Rounding::toward_zero}); }

}  // namespace gdn::faulty
