// Internal: the arithmetics of the layer's bound (Budget: exact values beside what a kernel's may differ from them; BOUNDS.md, section 7) and of its contract carried out
// (Carried), for the templates of layer_pass.h and stack.cpp.
#pragma once
#include <algorithm>
#include <cmath>
#include <limits>

#include "reference/bound.h"
#include "reference/exp.h"
#include "reference/gates.h"
#include "reference/lanes.h"
#include "reference/layer_pass.h"
#include "reference/random32.h"
#include "reference/simulate.h"

namespace gdn::layer_detail {

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

inline double no_nan(double x) { return x == x ? x : kInfinity; }
inline double sigmoid_of(double x) { return x < -700 ? 0 : 1 / (1 + exp_portable(-x)); }
inline float narrow(double x) { return static_cast<float>(x); }

inline HeadInputs as_inputs(const auto& h, auto value) {
  HeadInputs in;
  in.T = h.T, in.K = h.K, in.V = h.V, in.scale = h.scale;
  const auto copy = [&](const auto& from, std::vector<float>& to) {
    for (const auto& x : from) to.push_back(narrow(value(x)));
  };
  copy(h.q, in.q), copy(h.k, in.k), copy(h.v, in.v), copy(h.g, in.g), copy(h.beta, in.beta), copy(h.S, in.h0);
  for (float& g : in.g) g = std::min(g, 0.0f);
  return in;
}

// Exact value in double beside a bound r of what the kernel's differs from it.
struct Budget {
  static constexpr bool kOrdered = false;
  static constexpr I kTokens = 1;
  struct N {
    double v = 0, r = 0;
  };
  const Contract& c;
  double u, sum, exp, tiny;                        // one operation, one addition of a sum, one exponential; below the normal range

  explicit Budget(const Contract& contract) : c(contract) {
    const FormatInfo& f = info(arithmetic(c).format);
    u = unit_roundoff(arithmetic(c));
    sum = c.accumulator == Accumulator::tensor_core ? 0x1p-23 : u;
    exp = c.u_exp > 0 ? c.u_exp : 4 * u;
    tiny = std::ldexp(1.0, f.emin);
  }
  static N input(double x) { return {x, 0}; }
  N stored(const Store& s, const N& x) const {
    const FormatInfo &f = info(s.format), &a = info(arithmetic(c).format);
    const double top = std::fabs(x.v) + x.r;
    if (f.precision * s.terms >= a.precision && f.emin <= a.emin) return x;
    return {x.v, top > f.max_finite ? kInfinity : no_nan(x.r + unit_roundoff(s) * top + underflow_unit(s))};
  }
  N store(LayerPoint p, const N& x) const { return stored(c.at(p), x); }
  N conv_state(const N& x) const {
    const Store &mine = c.at(LayerPoint::proj), &theirs = c.at(LayerPoint::conv_state);
    return mine == theirs ? x : stored(theirs, x);
  }
  static N final_state(const N& x) { return x; }   // in the bound of the head
  N result(const N& x) const { return stored(c.at(Point::out), x); }
  static void cap(N& x, double limit) { x.r = std::min(x.r, std::fabs(x.v) + limit * (1 + 0x1p-8)); }

  N dot(const N* x, const float* w, I n) const {
    double v = 0, size = 0, r = 0;
    for (I i = 0; i < n; ++i) {
      const double b = static_cast<double>(w[i]);
      v += x[i].v * b;
      size += std::fabs(x[i].v * b);
      r += x[i].r * std::fabs(b);
    }
    const double terms = static_cast<double>(n) * sum, gamma = terms < 0.5 ? terms / (1 - terms) : kInfinity;
    return {v, no_nan(r + gamma * (size + r) + (size > 0 ? static_cast<double>(n) * tiny : 0))};
  }
  void dots(const N* x, const float* w, I n, I, N* out) const { *out = dot(x, w, n); }
  N times(const N& a, const N& b) const {
    const double r = std::fabs(a.v) * b.r + std::fabs(b.v) * a.r + a.r * b.r, v = a.v * b.v;
    return {v, v == 0 && r == 0 ? 0 : no_nan(r + u * (std::fabs(v) + r) + tiny)};
  }
  N weighted(const N& a, float w) const { return times(a, {static_cast<double>(w), 0}); }
  // The sum of squares as the kernel has it: (error, value).
  N squares(const N* x, I n) const {
    double v = 0, r = 0;
    for (I i = 0; i < n; ++i) {
      v += x[i].v * x[i].v;
      r += (2 * std::fabs(x[i].v) + x[i].r) * x[i].r;
    }
    const double gamma = (static_cast<double>(n) + 2) * sum;
    return {v, no_nan(r + gamma * (v + r) + static_cast<double>(n) * tiny)};
  }
  // 1/sqrt(s): division, root and a division by n before cost 4u.
  N root(const N& s) const {
    const double y = 1 / std::sqrt(s.v), least = s.v - s.r;
    if (!(least > 0)) return {y, kInfinity};
    const double far = 1 / std::sqrt(least);
    return {y, no_nan((far - y) + 4 * u * far + tiny)};
  }
  N inverse_root(const N* x, I n, bool mean, double eps) const {
    N s = squares(x, n);
    const double by = mean ? static_cast<double>(n) : 1;
    s = {s.v / by + eps, s.r / by};
    s.r += 3 * u * (s.v + s.r);
    // The kernel's eps alone bounds it as well.
    N y = root(s);
    y.r = std::min(y.r, 1.001 / std::sqrt(eps));
    return y;
  }
  N inverse_length(const N* x, I n, double eps) const {
    N y = root(squares(x, n));
    if (y.v > 1 / eps || y.v != y.v) y.v = 1 / eps;
    y.r = std::min(y.r, 1.001 / eps);
    return y;
  }
  N sigmoid(const N& x) const {
    const double v = sigmoid_of(x.v), least = sigmoid_of(x.v - x.r), most = sigmoid_of(x.v + x.r), r = std::max(most - v, v - least);
    return {v, no_nan(r + (exp + 3 * u) * (v + r) + tiny)};
  }
  N silu(const N& x) const {
    const double s = sigmoid_of(x.v), v = x.v * s, r = std::min(1.1 * x.r, std::fabs(v) + (std::fabs(x.v) + x.r));
    return {v, v == 0 && r == 0 ? 0 : no_nan(r + (exp + 4 * u) * (std::fabs(v) + r) + (1 + std::fabs(x.v)) * tiny)};
  }
  N gate(const N& a, float A_log, float dt_bias) const {
    const float near = narrow(a.v);
    const double v = raw_gate(near, A_log, dt_bias).hi, r = a.r + std::fabs(a.v - static_cast<double>(near));
    const double slope = exp_portable(static_cast<double>(A_log)) * sigmoid_of(a.v + static_cast<double>(dt_bias) + r);
    return {v, no_nan((v == 0 ? 0 : slope * r) * (1 + 8 * u) + raw_gate_error(c, near, A_log, dt_bias))};
  }

  void head(LayerHead<N>& h) const {
    const HeadResult own = bound_head(c, as_inputs(h, [](const N& x) { return x.v; }), h.cuts);
    std::vector<double> s(at(h.K));
    for (I column = 0; column < h.V; ++column) {
      double before = 0, rho = 0;
      for (I d = 0; d < h.K; ++d) {
        s[at(d)] = h.S[at(d * h.V + column)].v;
        before += s[at(d)] * s[at(d)];
      }
      before = std::sqrt(before);
      for (I t = 0; t < h.T; ++t) {
        const N *k = &h.k[at(t * h.K)], *q = &h.q[at(t * h.K)], &v = h.v[at(t * h.V + column)], &beta = h.beta[at(t)], &g = h.g[at(t)];
        double kk = 0, dk = 0, qq = 0, dq = 0, w = 0;
        for (I d = 0; d < h.K; ++d) {
          kk += k[d].v * k[d].v, dk += k[d].r * k[d].r, qq += q[d].v * q[d].v, dq += q[d].r * q[d].r;
          w += k[d].v * s[at(d)];
        }
        dk = std::sqrt(dk), dq = std::sqrt(dq);
        const double alpha = exp_portable(g.v), da = alpha * (g.r > 700 ? kInfinity : exp_portable(g.r) - 1), dalpha = std::min(da, 1.0);
        const double alpha_top = std::min(1.0, alpha + dalpha), beta_top = beta.v + beta.r, key = std::sqrt(kk) + dk;
        const double e = v.v - alpha * w, y = beta.v * e, c_top = std::max(1.0, beta_top * key * key - 1);
        double after = 0, o = 0;
        for (I d = 0; d < h.K; ++d) {
          s[at(d)] = alpha * s[at(d)] + y * k[d].v;
          after += s[at(d)] * s[at(d)];
          o += q[d].v * s[at(d)];
        }
        after = std::sqrt(after);
        rho = no_nan(alpha_top * c_top * rho + dalpha * before + key * (beta.r * std::fabs(e) + beta_top * (v.r + dalpha * std::fabs(w) + alpha_top * dk * before)) + std::fabs(y) * dk);
        before = after;
        h.o[at(t * h.V + column)] = {h.scale * o, no_nan(std::fabs(h.scale) * ((std::sqrt(qq) + dq) * rho + dq * after) + 2 * own.o[at(t * h.V + column)])};
      }
      for (I d = 0; d < h.K; ++d) h.S[at(d * h.V + column)] = {s[at(d)], no_nan(rho + 2 * own.ht[at(d * h.V + column)])};
    }
  }

  // ---- what a stack of layers needs besides (stack.h)
  N plus(const N& x, const N& y) const {
    const double v = x.v + y.v, r = x.r + y.r;
    return {v, no_nan(r + u * (std::fabs(v) + r))};
  }
  static double value(const N& x) { return x.v; }
  N minus(const N& x, const N& y) const { return plus(x, {-y.v, y.r}); }
  N dot(const N* x, const N* y, I n) const {
    double v = 0, size = 0, r = 0;
    for (I i = 0; i < n; ++i) {
      v += x[i].v * y[i].v;
      size += (std::fabs(x[i].v) + x[i].r) * (std::fabs(y[i].v) + y[i].r);
      r += std::fabs(x[i].v) * y[i].r + std::fabs(y[i].v) * x[i].r + x[i].r * y[i].r;
    }
    const double terms = static_cast<double>(n) * sum, gamma = terms < 0.5 ? terms / (1 - terms) : kInfinity;
    return {v, no_nan(r + gamma * size + static_cast<double>(n) * tiny)};
  }
  N exponential(const N& x) const {                // x <= 0, whichever number it was taken relative to
    const double v = exp_portable(x.v), r = v * std::expm1(std::min(x.r, 700.0));
    return {v, no_nan(r + exp * (v + r) + tiny)};
  }
  N over(const N& x, const N& y) const {           // y > 0
    const double least = y.v - y.r, v = x.v / y.v;
    if (!(least > 0)) return {v, kInfinity};
    const double r = (x.r + std::fabs(v) * y.r) / least;
    return {v, no_nan(r + 2 * u * (std::fabs(v) + r) + tiny)};
  }
};

// The contract carried out operation by operation, to nearest or with every store and operation rounded up with the probability that its remainder says; sums of
// products carry the noise of their additions then, as in simulate.cpp.
template <SimulationMode mode>
struct Carried {
  using N = double;
  static constexpr bool kStochastic = mode == SimulationMode::stochastic, kOrdered = kStochastic;
  static constexpr I kTokens = lanes::NoisyRow::kTokens;   // a sum waits for itself, so several go side by side, and weights are read once for all
  const Contract& c;
  const Store a;
  const bool fp32;                                 // the arithmetic is plain fp32
  const std::uint64_t seed;
  mutable Random32 random;
  Carried(const Contract& contract, std::uint64_t s) : c(contract), a(arithmetic(contract)), fp32(a == Store{}), seed(s), random(s) {}
  double round(double x, Store s) const {
    if (!kStochastic || s.format == Format::fp64) return round_to(x, s);
    s.rounding = Rounding::stochastic;
    return round_to(x, s, std::uint64_t{random.one()} << 32);
  }
  double op(double x) const { return round(x, a); }
  static N input(double x) { return x; }
  N store(LayerPoint p, N x) const { return round(x, c.at(p)); }
  N conv_state(N x) const { return kStochastic && c.at(LayerPoint::conv_state) == c.at(LayerPoint::proj) ? x : round(x, c.at(LayerPoint::conv_state)); }
  static N final_state(N x) { return x; }
  N result(N x) const { return round(x, c.at(Point::out)); }
  static void cap(N&, double) {}
  template <class Term>
  N sum(I n, Term term) const {
    double s = 0, squares = 0;
    for (I i = 0; i < n; ++i) {
      s = kStochastic ? s + term(i) : op(s + op(term(i)));
      squares += s * s;
    }
    return kStochastic ? noisy(s, squares) : s;
  }
  // A sum with the noise of its additions; squares: of all partial sums.
  N noisy(double s, double squares) const {
    // A normal deviate from four 8-bit uniforms: mean 510, variance 4 (2^16 - 1) / 12.
    const double u = c.accumulator == Accumulator::tensor_core ? 0x1p-23 : unit_roundoff(a);
    const std::uint32_t r = random.one();
    const auto bytes = static_cast<std::int32_t>((r & 255) + (r >> 8 & 255) + (r >> 16 & 255) + (r >> 24)) - 510;
    const double noise = u / std::sqrt(3.0 * 4 * 65535 / 12) * static_cast<double>(bytes) * std::sqrt(squares);
    return s + (noise - noise == 0 ? noise : 0);
  }
  void dots(const N* x, const float* w, I n, I count, N* out) const {
    double s[kTokens] = {}, squares[kTokens] = {};
    if (kStochastic) {
      lanes::run<lanes::NoisyRow>(x, w, n, s, squares);
    } else if (fp32) {                             // operands are fp32 numbers then, and double rounding of their products and sums is that of fp32
      lanes::run<lanes::RoundedRow>(x, w, n, s);
    } else {
      for (I i = 0; i < n; ++i)
        for (I j = 0; j < count; ++j) s[j] = op(s[j] + op(x[i * kTokens + j] * static_cast<double>(w[i])));
    }
    for (I j = 0; j < count; ++j) out[j] = kStochastic ? noisy(s[j], squares[j]) : s[j];
  }
  N dot(const N* x, const float* w, I n) const {
    return sum(n, [&](I i) { return x[i] * static_cast<double>(w[i]); });
  }
  N squares(const N* x, I n) const {
    return sum(n, [&](I i) { return x[i] * x[i]; });
  }
  N times(N x, N y) const { return op(x * y); }
  N weighted(N x, float w) const { return op(x * static_cast<double>(w)); }
  N inverse_root(const N* x, I n, bool mean, double eps) const {
    const double s = squares(x, n);
    return op(1 / op(std::sqrt(op((mean ? op(s / static_cast<double>(n)) : s) + eps))));
  }
  N inverse_length(const N* x, I n, double eps) const { return op(1 / std::max(op(std::sqrt(squares(x, n))), eps)); }
  N sigmoid(N x) const { return op(1 / op(1 + op(exp_portable(-x)))); }
  N silu(N x) const { return op(x * sigmoid(x)); }
  N gate(N x, float A_log, float dt_bias) const { return op(raw_gate(narrow(x), A_log, dt_bias).hi); }
  void head(LayerHead<N>& h) const {
    const std::uint64_t own = kStochastic ? philox(seed, hash_name("rule"), random.one()) : 1;
    const HeadResult r = simulate(c, as_inputs(h, [](double x) { return x; }), mode, own, h.cuts);
    h.o = r.o;
    h.S = r.ht;
  }

  // ---- what a stack of layers needs besides (stack.h)
  N plus(N x, N y) const { return op(x + y); }
  static double value(N x) { return x; }
  N minus(N x, N y) const { return op(x - y); }
  N dot(const N* x, const N* y, I n) const {
    return sum(n, [&](I i) { return x[i] * y[i]; });
  }
  N exponential(N x) const { return op(exp_portable(x)); }
  N over(N x, N y) const { return op(x / y); }
};

}  // namespace gdn::layer_detail
