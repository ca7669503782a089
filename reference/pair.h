// Internal: a double-double number as the recurrence template wants it.
#pragma once
#include "reference/dd.h"

namespace gdn {

struct Pair {
  DD<double> v{0, 0};
  Pair() = default;
  explicit Pair(double x) : v{x, 0} {}
  explicit Pair(DD<double> x) : v(x) {}
};
inline Pair operator*(const Pair& a, const Pair& b) { return Pair(mul(a.v, b.v)); }
inline Pair operator+(const Pair& a, const Pair& b) { return Pair(add(a.v, b.v)); }
inline Pair operator-(const Pair& a, const Pair& b) { return Pair(add(a.v, negate(b.v))); }
inline Pair& operator+=(Pair& a, const Pair& b) { return a = a + b; }

}  // namespace gdn
