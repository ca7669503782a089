// The one inner loop of simulation and bounds: a row of a matrix product, lanes along the contiguous dimension, terms
// in ascending order, so that vectorisation does not change a bit.
#pragma once
#include <cstdint>

namespace gdn {

// c[j] = add(... add(add(c[j], a_0, b_0[j]), a_1, b_1[j]) ...); four terms at a time keep c in registers.
template <class Real, class Add>
inline void products(Real* c, const Real* a, std::int64_t stride_a, const Real* b, std::int64_t stride_b, std::int64_t terms, std::int64_t width, Add add) {
  std::int64_t t = 0;
  for (; t + 4 <= terms; t += 4) {
    const Real a0 = a[t * stride_a], a1 = a[(t + 1) * stride_a], a2 = a[(t + 2) * stride_a], a3 = a[(t + 3) * stride_a];
    const Real *b0 = b + t * stride_b, *b1 = b0 + stride_b, *b2 = b1 + stride_b, *b3 = b2 + stride_b;
    for (std::int64_t j = 0; j < width; ++j) c[j] = add(add(add(add(c[j], a0, b0[j]), a1, b1[j]), a2, b2[j]), a3, b3[j]);
  }
  for (; t < terms; ++t) {
    const Real at = a[t * stride_a];
    const Real* bt = b + t * stride_b;
    for (std::int64_t j = 0; j < width; ++j) c[j] = add(c[j], at, bt[j]);
  }
}

}  // namespace gdn
