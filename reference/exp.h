// e^x in double from additions and multiplications only, so that every compiler, C library and instruction set gives
// the same bits (a C library may choose a fused variant at run time).
#pragma once
#include <bit>
#include <cmath>
#include <cstdint>

namespace gdn {

// Within 2 ulp for normal results; 0 below -745.14, NaN for NaN, infinity above 709.79.
inline double exp_portable(double x) {
  if (!(x >= -745.2)) return x < 0 ? 0.0 : x;      // also -inf and NaN
  if (x > 709.79) return x - x == 0 ? HUGE_VAL : x;
  constexpr double magic = 0x1.8p52;
  const double n = (x * 0x1.71547652b82fep0 + magic) - magic;           // 1/ln 2
  const double r = (x - n * 0x1.62e42fefa3800p-1) - n * 0x1.ef35793c76730p-45;  // ln 2 in two parts; n * first is exact
  // Taylor series; |r| <= 0.35 leaves less than 2^-57.
  double p = 1.0 / 6227020800;
  constexpr double c[] = {1.0 / 479001600, 1.0 / 39916800, 1.0 / 3628800, 1.0 / 362880, 1.0 / 40320, 1.0 / 5040, 1.0 / 720, 1.0 / 120, 1.0 / 24, 1.0 / 6, 0.5};
  for (double a : c) p = p * r + a;
  p = 1 + (r + r * r * p);
  const int e = static_cast<int>(n), half = e / 2;
  auto power = [](int q) { return std::bit_cast<double>(static_cast<std::uint64_t>(q + 1023) << 52); };
  return p * power(half) * power(e - half);
}

}  // namespace gdn
