// Double-double arithmetic: unevaluated sums hi + lo with |lo| <= u|hi|, u = 2^-53, about 106 bits.
// Algorithms and bounds: Joldes, Muller, Popescu, "Tight and rigorous error bounds for basic building blocks of
// double-word arithmetic", ACM TOMS 44(2), 2017 (numbers below are theirs). D is double or a vector of doubles;
// a vector type brings operators, and fused() by argument-dependent lookup. Needs -ffp-contract=off. The bounds
// hold without overflow and without underflow of the low parts; users add an absolute floor for the latter.
#pragma once

namespace gdn {

inline double fused(double a, double b, double c) { return __builtin_fma(a, b, c); }  // a b + c rounded once

template <class D>
struct DD {
  D hi, lo;
};

// Exact: a + b = hi + lo (Knuth; no condition on the operands).
template <class D>
inline DD<D> two_sum(D a, D b) {
  const D s = a + b;
  const D bb = s - a;
  return {s, (a - (s - bb)) + (b - bb)};
}

// Exact when a = 0 or the exponent of a is at least that of b (Dekker).
template <class D>
inline DD<D> fast_two_sum(D a, D b) {
  const D s = a + b;
  return {s, b - (s - a)};
}

// Exact: a b = hi + lo.
template <class D>
inline DD<D> two_prod(D a, D b) {
  const D p = a * b;
  return {p, fused(a, b, -p)};
}

// DWPlusFP (algorithm 4), relative error at most 2u^2.
template <class D>
inline DD<D> add(DD<D> x, D y) {
  const DD<D> s = two_sum(x.hi, y);
  return fast_two_sum(s.hi, x.lo + s.lo);
}

// AccurateDWPlusDW (algorithm 6), relative error at most 3u^2 + 13u^3.
template <class D>
inline DD<D> add(DD<D> x, DD<D> y) {
  const DD<D> s = two_sum(x.hi, y.hi), t = two_sum(x.lo, y.lo);
  const DD<D> v = fast_two_sum(s.hi, s.lo + t.hi);
  return fast_two_sum(v.hi, t.lo + v.lo);
}

// DWTimesFP3 (algorithm 9), relative error at most 2u^2.
template <class D>
inline DD<D> mul(DD<D> x, D y) {
  const DD<D> c = two_prod(x.hi, y);
  return fast_two_sum(c.hi, fused(x.lo, y, c.lo));
}

// DWTimesDW3 (algorithm 12), relative error at most 5u^2 (4u^2 by Muller and Rideau, ACM TOMS 48(1), 2022).
template <class D>
inline DD<D> mul(DD<D> x, DD<D> y) {
  const DD<D> c = two_prod(x.hi, y.hi);
  const D t = fused(x.lo, y.hi, fused(x.hi, y.lo, x.lo * y.lo));
  return fast_two_sum(c.hi, c.lo + t);
}

template <class D>
inline DD<D> negate(DD<D> x) { return {-x.hi, -x.lo}; }

}  // namespace gdn
