// Internal: the arithmetic of the layer's oracle, double-double numbers with a running radius, for the templates of layer_pass.h and stack.cpp.
//
// Radii, u = 2^-53, n terms, x with radius r: products |a| r_b + |b| r_a + r_a r_b + 5u^2 |ab|. A compensated sum of products with
// weights (hi and lo of every term added to hi and lo of one of four sums; the low part takes 3n+8 additions of terms of together at most u (n+2) A, A = sum |x||w|):
// 4 (n+2)^2 u^2 A + sum r|w|. Sums of squares: every addition 4u^2. 1/sqrt by one step of Newton from double: 64u^2.
// Functions come from multiprecision within u^2 (gates.h); their slopes are at most 1.1 (silu), 1/4 (sigmoid), sigmoid(x + r) (softplus).
// Recurrence per value channel, with norms over K as in section 8 of the standard, dq dk dv da db radii of the operands:
//   rho' = a~ c~ rho + da |s| + |k~| [ db |e| + b~ (dv + da |w| + a~ |dk| |s|) ] + |y| |dk| + rounding,  e = v - a w, y = b e
// because s~' = a~ (I - b~ k~ k~^T)(s~ - s) + [a~ s + b~ (v~ - a~ k~.s) k~], the second term minus s' being what the rest bounds.
#pragma once
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "reference/gates.h"
#include "reference/layer_pass.h"
#include "reference/pair.h"
#include "reference/recurrence.h"

namespace gdn::layer_detail {

inline constexpr double kU2 = 0x1p-106;
inline constexpr double kTiny = 0x1p-1000;
inline constexpr double kWiden = 1 + 1e-10;

struct Certified {
  static constexpr bool kOrdered = false;
  static constexpr I kTokens = 1;
  struct N {
    DD<double> v{0, 0};
    double r = 0;
  };
  static N input(double x) { return {{x, 0}, 0}; }
  static double size(const N& x) { return std::fabs(x.v.hi); }
  static N dot(const N* x, const float* w, I n) {  // in four sums side by side: one addition waits for the other
    constexpr I lanes = 4;
    double s[lanes] = {}, low[lanes] = {}, sum[lanes] = {}, r[lanes] = {};
    const auto add_term = [&](I i, I lane) {
      const double b = static_cast<double>(w[i]);
      const DD<double> p = two_prod(x[i].v.hi, b), t = two_sum(s[lane], p.hi);
      s[lane] = t.hi;
      low[lane] += (p.lo + t.lo) + x[i].v.lo * b;
      sum[lane] += std::fabs(p.hi);
      r[lane] += x[i].r * std::fabs(b);
    };
    I i = 0;
    for (; i + lanes <= n; i += lanes)
      for (I lane = 0; lane < lanes; ++lane) add_term(i + lane, lane);
    for (; i < n; ++i) add_term(i, 0);
    for (I lane = 1; lane < lanes; ++lane) {
      const DD<double> t = two_sum(s[0], s[lane]);
      s[0] = t.hi;
      low[0] += t.lo + low[lane];
      sum[0] += sum[lane];
      r[0] += r[lane];
    }
    const double terms = static_cast<double>(n) + 2;
    return {fast_two_sum(s[0], low[0]), (4 * terms * terms * kU2 * sum[0] + r[0]) * kWiden + (sum[0] > 0 ? kTiny : 0)};
  }
  static void dots(const N* x, const float* w, I n, I, N* out) { *out = dot(x, w, n); }
  static N times(const N& a, const N& b) {
    const DD<double> p = mul(a.v, b.v);
    return {p, (size(a) * b.r + size(b) * a.r + a.r * b.r + 5 * kU2 * std::fabs(p.hi)) * kWiden + (p.hi == 0 ? 0 : kTiny)};
  }
  static N weighted(const N& a, float w) { return times(a, input(static_cast<double>(w))); }
  static N squares(const N* x, I n) {
    N s;
    for (I i = 0; i < n; ++i) {
      const N p = times(x[i], x[i]);
      s.v = add(s.v, p.v);
      s.r = (s.r + p.r + 4 * kU2 * s.v.hi) * kWiden;
    }
    return s;
  }
  // 1/sqrt(x), x > 0.
  static N root(const N& x) {
    if (!(x.v.hi > x.r)) return {{0, 0}, std::numeric_limits<double>::infinity()};
    const double y = 1 / std::sqrt(x.v.hi);
    const DD<double> rest = add(negate(mul(mul(x.v, y), y)), 1.0);         // 1 - x y^2
    N out{add(mul(rest, 0.5 * y), y), 0};
    out.r = (x.r * y / (2 * (x.v.hi - x.r)) * std::sqrt(x.v.hi / (x.v.hi - x.r)) + 64 * kU2 * y) * kWiden;
    return out;
  }
  static N over(const N& x, double n) {            // n a small whole number
    const double q = x.v.hi / n;
    const DD<double> rest = add(x.v, negate(two_prod(q, n)));
    return {fast_two_sum(q, rest.hi / n), (x.r / n + 8 * kU2 * q) * kWiden + kTiny};
  }
  static N inverse_root(const N* x, I n, bool mean, double eps) {
    N s = squares(x, n);
    if (mean) s = over(s, static_cast<double>(n));
    s.v = add(s.v, eps);
    s.r = (s.r + 4 * kU2 * s.v.hi) * kWiden;
    return root(s);
  }
  static N inverse_length(const N* x, I n, double eps) {
    const N s = squares(x, n);
    if (s.v.hi + s.r < eps * eps * (1 - 1e-10)) {  // 1/eps
      const double q = 1 / eps;
      const DD<double> rest = add(negate(two_prod(q, eps)), 1.0);
      return {fast_two_sum(q, rest.hi * q), 8 * kU2 * q};
    }
    N out = root(s);
    if (s.v.hi - s.r <= eps * eps * (1 + 1e-10)) out.r += std::fabs(out.v.hi - 1 / eps) + 1e-9 / eps;   // either side
    return out;
  }
  static N silu(const N& x) {
    const DD<double> v = gdn::silu(x.v);
    return {v, (1.1 * x.r + 2 * kU2 * std::fabs(v.hi)) * kWiden + (x.v.hi == 0 && x.r == 0 ? 0 : kTiny)};
  }
  static N sigmoid(const N& x) {
    const DD<double> v = gdn::sigmoid(x.v);
    return {v, (0.25 * x.r + 2 * kU2 * v.hi) * kWiden + kTiny};
  }
  static N gate(const N& a, float A_log, float dt_bias) {
    const DD<double> v = raw_gate(a.v, A_log, dt_bias);
    if (v.hi == 0 && std::isinf(A_log)) return {};
    const double slope = std::exp(static_cast<double>(A_log)) / (1 + std::exp(-(a.v.hi + static_cast<double>(dt_bias) + a.r)));
    return {v, (slope * a.r + 2 * kU2 * std::fabs(v.hi)) * kWiden + kTiny};
  }
  static N store(LayerPoint, const N& x) { return x; }
  static N conv_state(const N& x) { return x; }
  static N final_state(const N& x) { return x; }
  static N result(const N& x) { return x; }
  static void cap(N&, double) {}

  static N decay(const N& g) {
    const DD<double> v = gdn::exponential(g.v);
    return {v, (v.hi * std::expm1(g.r) + 2 * kU2 * v.hi) * kWiden + (v.hi == 1 && g.r == 0 ? 0 : kTiny)};
  }
  struct Operands {                                // of one value channel
    const LayerHead<N>& in;
    const std::vector<N>& alphas;
    I channel;
    Pair value(I t) const { return Pair(in.v[at(t * in.V + channel)].v); }
    Pair beta(I t) const { return Pair(in.beta[at(t)].v); }
    Pair alpha(I t) const { return Pair(alphas[at(t)].v); }
    Pair alpha(I t, I) const { return alpha(t); }
    Pair alpha_read(I t) const { return alpha(t); }
    Pair key(I t, I d) const { return Pair(in.k[at(t * in.K + d)].v); }
    Pair read_key(I t, I d) const { return key(t, d); }
    Pair query(I t, I d) const { return Pair(in.q[at(t * in.K + d)].v); }
  };
  struct Norms { double k, dk, q, dq; };           // of a token, over the key channels
  struct Watch {
    const Operands& x;
    const std::vector<Norms>& norms;
    std::vector<N>& o;
    double rho, before, squares = 0;               // radius and length of the column
    void begin() { squares = 0; }
    void element(const Pair& s) { squares += s.v.hi * s.v.hi; }
    void token(I t, const Pair& v_, const Pair& w_, const Pair&, const Pair& out) {
      const Norms& m = norms[at(t)];
      const N &a = x.alphas[at(t)], &b = x.in.beta[at(t)], &v = x.in.v[at(t * x.in.V + x.channel)];
      const double alpha = a.v.hi + a.r, beta = b.v.hi + b.r, k = m.k + m.dk, K = static_cast<double>(x.in.K);
      const double S = before + rho, C = (3 * K + 20) * kU2;
      const double w = std::fabs(w_.v.hi) + m.k * rho + m.dk * S, e = std::fabs(v_.v.hi) + v.r + alpha * w;
      const double c = std::max(1.0, beta * k * k - 1), after = std::sqrt(squares);
      rho = alpha * c * rho + a.r * S + k * (b.r * e + beta * (v.r + a.r * w + alpha * m.dk * S)) + beta * e * m.dk +
            k * beta * (C * alpha * S * k + 16 * kU2 * (std::fabs(v_.v.hi) + alpha * w)) + 16 * kU2 * (alpha * S + beta * e * k);
      rho = rho * kWiden + (rho > 0 || after > 0 ? kTiny : 0);
      before = after;
      const double scale = x.in.scale;
      N& to = o[at(t * x.in.V + x.channel)];
      to.v = mul(out.v, scale);
      to.r = (std::fabs(scale) * ((m.q + m.dq) * rho + m.dq * (after + rho) + C * m.q * after) + 4 * kU2 * std::fabs(to.v.hi)) * kWiden + (after > 0 || rho > 0 ? kTiny : 0);
    }
  };
  static void head(LayerHead<N>& h) {
    std::vector<N> alphas;
    std::vector<Norms> norms;
    for (I t = 0; t < h.T; ++t) {
      alphas.push_back(decay(h.g[at(t)]));
      double n[4] = {};
      for (I d = 0; d < h.K; ++d) {
        const N &k = h.k[at(t * h.K + d)], &q = h.q[at(t * h.K + d)];
        n[0] += k.v.hi * k.v.hi, n[1] += k.r * k.r, n[2] += q.v.hi * q.v.hi, n[3] += q.r * q.r;
      }
      norms.push_back({std::sqrt(n[0]) * kWiden, std::sqrt(n[1]) * kWiden, std::sqrt(n[2]) * kWiden, std::sqrt(n[3]) * kWiden});
    }
    std::vector<Pair> column(at(h.K));
    for (I c = 0; c < h.V; ++c) {
      const Operands x{h, alphas, c};
      Watch watch{x, norms, h.o, 0, 0};
      for (I d = 0; d < h.K; ++d) watch.element(column[at(d)] = Pair(h.S[at(d * h.V + c)].v));
      watch.before = std::sqrt(watch.squares);
      recurrence(Rule::gated_delta, PlainArithmetic<Pair>{}, x, h.T, h.K, column.data(), watch);
      for (I d = 0; d < h.K; ++d) h.S[at(d * h.V + c)] = {column[at(d)].v, watch.rho};
    }
  }

  // ---- what a stack of layers needs besides (stack.h)
  static N plus(const N& a, const N& b) {
    const DD<double> v = add(a.v, b.v);
    return {v, (a.r + b.r + 4 * kU2 * std::fabs(v.hi)) * kWiden + (v.hi == 0 ? 0 : kTiny)};
  }
  static double value(const N& x) { return x.v.hi; }
  static N minus(const N& a, const N& b) { return plus(a, {negate(b.v), b.r}); }
  static N dot(const N* x, const N* y, I n) {
    N s;
    for (I i = 0; i < n; ++i) s = plus(s, times(x[i], y[i]));
    return s;
  }
  static N exponential(const N& x) { return decay(x); }                    // x <= 0
  static N over(const N& a, const N& b) {          // b > 0
    if (!(b.v.hi > b.r)) return {{0, 0}, std::numeric_limits<double>::infinity()};
    const double y = 1 / b.v.hi;
    const DD<double> rest = add(negate(mul(b.v, y)), 1.0);
    const N inverse{add(mul(rest, y), y), (b.r * y / (b.v.hi - b.r) + 8 * kU2 * y) * kWiden + kTiny};
    return times(a, inverse);
  }
};

// hi, lo and stored radius of numbers; rows_missing more elements, of which nothing is known.
TruthTensor stored(const std::vector<Certified::N>& x, std::vector<I> shape, I rows_missing, OracleStats* stats);

}  // namespace gdn::layer_detail
