// Internal: two vectors side by side, so that the oracle's inner loop shares broadcasts and overlaps the chains of
// dependent additions of the two. V as described in dd_block.inc.
#pragma once

namespace gdn::oracle_detail {

template <class V>
struct Pair {
  static constexpr int lanes = 2 * V::lanes;
  V a, b;
  static Pair load(const double* p) { return {V::load(p), V::load(p + V::lanes)}; }
  static Pair broadcast(double x) { return {V::broadcast(x), V::broadcast(x)}; }
  void store(double* p) const {
    a.store(p);
    b.store(p + V::lanes);
  }
  friend Pair operator+(Pair x, Pair y) { return {x.a + y.a, x.b + y.b}; }
  friend Pair operator-(Pair x, Pair y) { return {x.a - y.a, x.b - y.b}; }
  friend Pair operator*(Pair x, Pair y) { return {x.a * y.a, x.b * y.b}; }
  friend Pair operator-(Pair x) { return {-x.a, -x.b}; }
  friend Pair fused(Pair x, Pair y, Pair z) { return {fused(x.a, y.a, z.a), fused(x.b, y.b, z.b)}; }
  friend Pair lesser(Pair x, Pair y) { return {lesser(x.a, y.a), lesser(x.b, y.b)}; }
  friend Pair magnitude(Pair x) { return {magnitude(x.a), magnitude(x.b)}; }
  friend Pair square_root(Pair x) { return {square_root(x.a), square_root(x.b)}; }
};

}  // namespace gdn::oracle_detail
