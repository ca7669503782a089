// Rounding-error bounds. The derivation, formula by formula, is in reference/BOUNDS.md; names here follow it.
// Every quantity X of the algorithm is kept as a magnitude |X| and a bound dX of its error. A product of A and B
// summed in any order errs by at most
//     (1+gamma) dA (|B|+dB) + |A| (gamma |B| + (1+gamma) dB),
// and a store at a point adds u_p (|X|+dX) + eta_p, or infinity where |X|+dX may exceed the format.
#include "reference/bound.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <limits>
#include <stdexcept>
#include <vector>

#include "reference/bound_parts.h"
#include "reference/gates.h"
#include "reference/recurrence.h"

namespace gdn {
namespace {

using namespace bound_detail;

// Error of g = -exp(A_log) softplus(a + dt_bias), whichever of the usual forms it takes (BOUNDS.md, section 4).
double formation_error(const Costs& e, double g, float a, float A_log, float dt_bias) {
  const double A = static_cast<double>(A_log), x = static_cast<double>(a) + static_cast<double>(dt_bias);
  const double relative = 3 * e.exp + e.arithmetic * (2 * std::fabs(A) + 4 * std::fabs(x) + 8);
  // Where exp(A_log) fits, it may be multiplied by a softplus that lost what lies below the normal range, or be such itself.
  const double factor = exp_portable(std::min(A, 700.0));
  return no_nan(relative * std::fabs(g) + (factor < e.greatest_number ? factor + std::max(x, 0.0) + 2 : 1) * e.tiny);
}

class Bound {
 public:
  Bound(const Contract& c, const Costs& costs, const HeadInputs& in)
      : c_(c), e_(costs), in_(in), K_(in.K), V_(in.V), root_k_(std::sqrt(static_cast<double>(in.K))) {
    gated_ = !in.g.empty() && in.rule != Rule::delta && in.rule != Rule::linear;
    delta_ = has_delta(in.rule);
    gates_ = gated_ && gate_per_key_channel(in.rule) ? K_ : 1;
    raw_ = !in.a.empty();
    if (c.form == Form::chunkwise && gates_ > 1) throw std::invalid_argument("bound: the chunkwise form with a gate per key channel is not covered");
    e_.magnitudes(in.k, Point::k_in, k_, u_k_);
    e_.magnitudes(in.q, Point::q_in, q_, u_q_);
    e_.magnitudes(in.v, Point::v_in, v_, u_v_);
    e_.magnitudes(in.beta, Point::beta, beta_, u_beta_);
    if (in.beta.empty()) beta_.assign(size(in.T), 1.0);
    k_norm_ = norms(k_);
    q_norm_ = norms(q_);
    state_.assign(size(K_ * V_), 0.0);
    std::copy(in.h0.begin(), in.h0.end(), state_.begin());
    rho_.assign(size(V_), 0.0);
    state_norm_.assign(size(V_), 0.0);
    result_.o.assign(size(in.T * V_), 0.0);
    result_.ht.assign(size(K_ * V_), 0.0);
    measure_state();
  }

  HeadResult run(std::span<const Index> split) {
    Index begin = 0;
    bool stored = false;                           // the state already went through ht since the last token
    for (std::size_t call = 0; call <= split.size(); ++call) {
      const Index end = call < split.size() ? std::min(split[call], in_.T) : in_.T;
      if (c_.form == Form::recurrent) {
        for (Index t = begin; t < end; ++t) token(t, t + 1 == end);
      } else {
        for (Index t = begin; t < end; t += c_.chunk) chunk(t, std::min<Index>(c_.chunk, end - t), t + c_.chunk >= end);
      }
      // A call without tokens may still have taken the state through its carried format.
      if (c_.cadence == Cadence::call || (end == begin && !stored)) store_state(Point::S_carried);
      if (end > begin || !stored) store_state(Point::ht);
      stored = true;
      begin = end;
    }
    for (double& x : result_.o) x = no_nan(x) * (1 + 1e-6);        // the bound itself is computed in double
    for (double& x : result_.ht) x = no_nan(x) * (1 + 1e-6);
    return std::move(result_);
  }

 private:
  Vector norms(const Vector& x) const {
    Vector n(size(in_.T));
    for (Index t = 0; t < in_.T; ++t) {
      double sum = 0;
      for (Index d = 0; d < K_; ++d) sum += x[size(t * K_ + d)] * x[size(t * K_ + d)];
      n[size(t)] = std::sqrt(sum);
    }
    return n;
  }

  double gate(Index t, Index d) const { return gate_value(in_, size(t * gates_ + d)); }
  bool certain(Index t, Index d) const {           // e^g is 0 or 1 in every arithmetic
    const float g = in_.g[size(t * gates_ + d)];
    return g == 0 || g == -std::numeric_limits<float>::infinity();
  }
  double formation(Index t) const {                // error with which a raw gate is formed
    return !raw_ || !e_.raw_gates || certain(t, 0) ? 0 : formation_error(e_, in_.raw_g[size(t)], in_.a[size(t)], in_.A_log, in_.dt_bias);
  }

  // Norm of I - beta k k^T.
  double growth(Index t) const {
    if (!delta_) return 1;
    double kk = 0;
    for (Index d = 0; d < K_; ++d) kk += static_cast<double>(in_.k[size(t * K_ + d)]) * static_cast<double>(in_.k[size(t * K_ + d)]);
    const double beta = in_.beta.empty() ? 1.0 : static_cast<double>(in_.beta[size(t)]);
    return std::max(1.0, std::fabs(1 - beta * kk)) * (1 + 1e-12);
  }

  void measure_state() {
    std::fill(state_norm_.begin(), state_norm_.end(), 0.0);
    for (Index d = 0; d < K_; ++d)
      for (Index j = 0; j < V_; ++j) state_norm_[size(j)] += state_[size(d * V_ + j)] * state_[size(d * V_ + j)];
    for (double& x : state_norm_) x = std::sqrt(x);
  }

  void store_state(Point p) {
    const auto i = static_cast<std::size_t>(p);
    if (e_.u[i] == 0 && e_.eta[i] == 0) return;
    for (Index d = 0; d < K_; ++d)
      for (Index j = 0; j < V_; ++j) {
        double& b = result_.ht[size(d * V_ + j)];
        b = e_.store(p, std::fabs(state_[size(d * V_ + j)]), b);
        if (!(b < kInfinity)) rho_[size(j)] = kInfinity;
      }
    for (Index j = 0; j < V_; ++j) {
      double& r = rho_[size(j)];
      // A state that overflows as it is handed over is judged by its value there, but spoils the next call.
      if (state_norm_[size(j)] + r > info(c_.at(p).format).max_finite) r = kInfinity;
      r = no_nan(r + e_.u[i] * (state_norm_[size(j)] + r) + root_k_ * e_.eta[i]);
    }
  }

  // complex_kda: pairs of rows turned by their angle. The kernel's turn and decay may come in any order, each number a sum of two products (BOUNDS.md, section 3).
  void turn(Index t, double alpha_most, double alpha_error) {
    for (Index j = 0; j < K_ / 2; ++j) {
      const DD<double> c = cosine(in_.angle[size(t * (K_ / 2) + j)]), s = sine(in_.angle[size(t * (K_ / 2) + j)]);
      double *re = &state_[size(2 * j * V_)], *im = re + V_;
      for (Index v = 0; v < V_; ++v) {
        const double x = c.hi * re[v] - s.hi * im[v];
        im[v] = s.hi * re[v] + c.hi * im[v];
        re[v] = x;
      }
    }
    const double relative = alpha_most > 0 ? alpha_error / alpha_most : 0, lost = 1.4143 * compound(e_.exp + e_.at(Point::D), 3 * e_.arithmetic, relative);
    for (Index v = 0; v < V_; ++v)
      rho_[size(v)] = no_nan(rho_[size(v)] + lost * (state_norm_[size(v)] + rho_[size(v)]) + (alpha_most > 0 ? 3 * root_k_ * e_.tiny / alpha_most : 0));
  }

  void token(Index t, bool last) {
    const double u = e_.arithmetic, beta = beta_[size(t)], gamma = e_.gamma(K_ + 1), tiny = e_.tiny;
    const double *k = &k_[size(t * K_)], *q = &q_[size(t * K_)];
    double alpha_most = 1, alpha_error = 0;        // relative to the decayed state where alpha > 0
    Vector alpha(size(gates_), 1.0), alpha_absolute(size(gates_), 0.0);
    if (gated_) {
      alpha_most = 0;
      for (Index d = 0; d < gates_; ++d) {
        const double g = gate(t, d), a = exp_portable(g);
        const double w = g == -kInfinity ? 0 : (2 * u + e_.at(Point::G)) * std::fabs(g) + e_.underflow_at(Point::G);
        alpha[size(d)] = a;
        alpha_absolute[size(d)] = certain(t, d) ? 0 : e_.decay_error_monotone(g, (e_.gate_sums ? w : 0) + formation(t));
        alpha_most = std::max(alpha_most, a);
        alpha_error = std::max(alpha_error, alpha_absolute[size(d)]);
      }
    }
    if (!in_.angle.empty()) turn(t, alpha_most, alpha_error);
    // The decayed state, what it holds for k, and sums of magnitudes. The state of the kernel is within rho.
    Vector read(size(V_), 0.0), read_abs(size(V_), 0.0), raw_abs(size(V_), 0.0);
    const bool decay_costs = alpha_error > 0;
    for (Index d = 0; d < K_; ++d) {
      const double a = alpha[size(gates_ == 1 ? 0 : d)], kd = static_cast<double>(in_.k[size(t * K_ + d)]), ka = k[d];
      const double lost = ka * alpha_absolute[size(gates_ == 1 ? 0 : d)];
      double *s = &state_[size(d * V_)], *raw = raw_abs.data();
      if (decay_costs)
        for (Index j = 0; j < V_; ++j) raw[j] += lost * std::fabs(s[j]);
      lanes::run<lanes::DecayRead>(s, a, kd, ka, read.data(), read_abs.data(), V_);
    }
    const double c = growth(t), norm = k_norm_[size(t)], sum_k = delta_ ? norm * root_k_ : 0;
    const double beta_signed = in_.beta.empty() ? 1.0 : static_cast<double>(in_.beta[size(t)]);
    const double operand = compound(u, e_.at(Point::S_op), u_k_, gamma), product = compound(u_beta_, u, u);
    const double write = compound(u_k_, u, u), keep = compound(u, u);
    const double operand_top = e_.greatest[static_cast<std::size_t>(Point::S_op)];
    Vector y(size(V_)), dy(size(V_)), old_rho = rho_;
    for (Index j = 0; j < V_; ++j) {
      const double v = static_cast<double>(in_.v[size(t * V_ + j)]), va = v_[size(t * V_ + j)], r = rho_[size(j)];
      double dx = u_v_ * va, x = v, reach = 0;
      if (delta_) {
        const double a_abs = read_abs[size(j)] + norm * alpha_most * r, lost = raw_abs[size(j)] + norm * alpha_error * r;
        x = v - read[size(j)];
        reach = alpha_most * norm * r;             // how far the kernel's state moves x
        dx += operand * a_abs + (1 + operand) * lost + gamma * va + sum_k * (1 + operand) * e_.underflow_at(Point::S_op) + static_cast<double>(K_ + 2) * tiny;
        dx += u * (std::fabs(x) + reach + dx);
        if (!(a_abs + va < 0x1p127) || alpha_most * (state_norm_[size(j)] + r) > operand_top) dx = kInfinity;
      }
      y[size(j)] = beta_signed * x;
      const double xa = std::fabs(x) + reach;
      double d = beta * ((1 + product) * dx + product * xa) + tiny;
      d = e_.store(Point::Vn_s, beta * xa, d);
      dy[size(j)] = no_nan((1 + write) * d + write * beta * xa);   // of what multiplies k in the update
      const double kept = keep * alpha_most + (1 + keep) * alpha_error;
      rho_[size(j)] = no_nan(alpha_most * c * r + kept * (state_norm_[size(j)] + r) + norm * dy[size(j)] + 3 * root_k_ * tiny);
    }
    // The write, the new norm and the read of the output.
    Vector o(size(V_), 0.0), o_abs(size(V_), 0.0);
    if (last) {                                    // element by element
      for (Index d = 0; d < K_; ++d) {
        const double a = alpha[size(gates_ == 1 ? 0 : d)], lost = alpha_absolute[size(gates_ == 1 ? 0 : d)];
        for (Index j = 0; j < V_; ++j) {
          const double s = std::fabs(state_[size(d * V_ + j)]), r = old_rho[size(j)];
          const double before = a > 0 ? s / a : state_norm_[size(j)];
          result_.ht[size(d * V_ + j)] = no_nan(alpha_most * c * r + keep * (s + a * r) + (1 + keep) * lost * (before + r) + k[d] * dy[size(j)] + 3 * tiny);
        }
      }
    }
    std::fill(state_norm_.begin(), state_norm_.end(), 0.0);
    for (Index d = 0; d < K_; ++d) {
      const double kd = static_cast<double>(in_.k[size(t * K_ + d)]), qd = static_cast<double>(in_.q[size(t * K_ + d)]), qa = q[d];
      // o may be formed from the new state or as (S q) + (k.q) y.
      lanes::run<lanes::WriteReadAbsolute>(&state_[size(d * V_)], kd, k[d], static_cast<const double*>(y.data()), qd, qa, o.data(), o_abs.data(), state_norm_.data(), V_);
    }
    for (double& x : state_norm_) x = std::sqrt(x);
    if (c_.cadence == Cadence::token) {
      if (!last) {                                 // store_state reads the elementwise bounds; here norms are enough
        const double us = e_.at(Point::S_carried), eta = e_.underflow_at(Point::S_carried), top = e_.greatest[static_cast<std::size_t>(Point::S_carried)];
        for (Index j = 0; j < V_; ++j) {
          double& r = rho_[size(j)];
          if (state_norm_[size(j)] + r > top) r = kInfinity;
          r = no_nan(r + us * (state_norm_[size(j)] + r) + root_k_ * eta);
        }
      } else {
        store_state(Point::S_carried);
      }
    }
    const double scale = std::fabs(in_.scale), q_norm = q_norm_[size(t)];
    const double out = compound(u, u, u_q_, e_.at(Point::S_op), gamma);
    for (Index j = 0; j < V_; ++j) {
      const double r = rho_[size(j)], a_abs = o_abs[size(j)] + q_norm * r;
      double b = scale * (q_norm * r + out * a_abs + q_norm * root_k_ * (1 + out) * e_.underflow_at(Point::S_op)) + (scale + 1) * static_cast<double>(K_ + 2) * tiny;
      if (!(a_abs < 0x1p127) || state_norm_[size(j)] + r > operand_top) b = kInfinity;
      result_.o[size(t * V_ + j)] = e_.store(Point::out, scale * std::fabs(o[size(j)]), no_nan(b));
    }
  }

  // ---- chunkwise ----------------------------------------------------------------------------------------------

  struct Chunk : Triangle {
    Index t = 0;
    Vector first, dfirst, last, dlast;             // e^(G_r), e^(G_(n-1)-G_r) and their errors
    Vector decay, ddecay;                          // e^(G_i-G_j), i >= j
    Vector p, dp;                                  // |scores|
    Vector vn, vm, dvn;                            // corrected values, their magnitude for the kernel's state, error
    Vector grow;                                   // prod of the norms of I - beta k k^T up to and with row r
  };

  void gates(Chunk& x) {
    const Index n = x.n;
    x.first.assign(size(n), 1.0);
    x.last = x.first;
    x.dfirst.assign(size(n), 0.0);
    x.dlast = x.dfirst;
    x.decay.assign(size(n * n), 1.0);
    x.ddecay.assign(size(n * n), 0.0);
    if (!gated_) return;
    const double u = e_.arithmetic, reset = u > 0x1p-40 ? -104 : -746;
    const bool safe = c_.gate_sum == GateSum::reset_safe, tree = c_.gate_sum == GateSum::prefix_tree;
    // A tree, or sums rounded at random, may even rise from one row to the next: decays above 1.
    const bool rising = tree || (e_.at(Point::G) > 0 && c_.at(Point::G).rounding == Rounding::stochastic);
    Vector sum(size(n)), w(size(n));
    std::vector<Index> start(size(n));             // row of the last reset
    double total = 0, sums = 0, formed = 0;
    Index begin = -1;
    std::vector<bool> infinite(size(n), false);    // the kernel's sum may be -inf, and a difference of two of them NaN
    for (Index r = 0; r < n; ++r) {
      const double g = gate(x.t + r, 0);
      const double raw = formation(x.t + r);
      if (safe && g + raw < reset) {               // a kernel whose gate falls to the other side is within `vanish` all the same
        total = sums = formed = 0;
        begin = r;
      } else {
        total += g;
        sums += std::fabs(total);
        formed += raw;
      }
      const double depth = std::ceil(std::log2(static_cast<double>(r + 2)));
      const double order = tree ? 2 * depth * std::fabs(total) : std::max(sums, depth * std::fabs(total));
      sum[size(r)] = total;
      start[size(r)] = begin;
      infinite[size(r)] = std::fabs(total) * (1 + 1e-3) > std::min(e_.greatest[static_cast<std::size_t>(Point::G)], 0x1.fffffep127);
      w[size(r)] = !e_.gate_sums || std::isinf(total) ? 0 : u * order + (2 * u + e_.at(Point::G)) * std::fabs(total) + (total == 0 ? 0 : e_.underflow_at(Point::G));
      if (!std::isinf(total)) w[size(r)] += formed;
    }
    const double vanish = e_.vanish;
    for (Index r = 0; r < n; ++r) {
      if (start[size(r)] >= 0 || sum[size(r)] == -kInfinity) {
        double exact = 0;                          // with the resets themselves
        for (Index m = 0; m <= r; ++m) exact += gate(x.t + m, 0);
        x.first[size(r)] = exp_portable(exact);
        x.dfirst[size(r)] = x.first[size(r)] > 0 ? x.first[size(r)] + vanish : 0;
      } else {
        x.first[size(r)] = exp_portable(sum[size(r)]);
        x.dfirst[size(r)] = sum[size(r)] == 0 && w[size(r)] == 0 ? 0 : e_.decay_error_monotone(sum[size(r)], w[size(r)]);
      }
    }
    for (Index j = 0; j < n; ++j) {
      double between = 0;
      for (Index i = j + 1; i < n; ++i) {
        between += gate(x.t + i, 0);               // without cancellation
        double &d = x.decay[size(i * n + j)], &e = x.ddecay[size(i * n + j)];
        d = exp_portable(between);
        if (start[size(i)] != start[size(j)]) {
          e = d > 0 ? d + vanish : 0;
        } else if (infinite[size(j)]) {
          e = kInfinity;
        } else {
          const double width = w[size(i)] + w[size(j)] + (e_.gate_sums ? 3 * u * std::fabs(between) : 0);
          const bool zero = sum[size(i)] == 0 && w[size(i)] == 0;   // no gate so far: sums of zeros are exact
          e = zero ? 0 : rising ? e_.decay_error(between, width, kInfinity, 2) : e_.decay_error_monotone(between, width, 2);
          if (infinite[size(i)]) e = std::max(e, d);
        }
      }
    }
    for (Index r = 0; r + 1 < n; ++r) {
      x.last[size(r)] = x.decay[size((n - 1) * n + r)];
      x.dlast[size(r)] = x.ddecay[size((n - 1) * n + r)];
    }
  }

  // Signed and absolute Gram products of rows a with the keys of the chunk, row i against j < i + with.
  void gram(const Chunk& x, const std::vector<float>& a, const Vector& a_abs, Index with, Vector& product, Vector& absolute) {
    const Index n = x.n;
    product.assign(size(n * n), 0.0);
    absolute.assign(size(n * n), 0.0);
    Vector kt(size(K_ * n)), kt_abs(size(K_ * n)), row(size(K_));
    for (Index d = 0; d < K_; ++d)
      for (Index r = 0; r < n; ++r) {
        kt[size(d * n + r)] = static_cast<double>(in_.k[size((x.t + r) * K_ + d)]);
        kt_abs[size(d * n + r)] = k_[size((x.t + r) * K_ + d)];
      }
    for (Index i = 0; i < n; ++i) {
      for (Index d = 0; d < K_; ++d) row[size(d)] = static_cast<double>(a[size((x.t + i) * K_ + d)]);
      add_row(&product[size(i * n)], row.data(), kt.data(), n, K_, i + with);
      add_row(&absolute[size(i * n)], &a_abs[size((x.t + i) * K_)], kt_abs.data(), n, K_, i + with);
    }
  }

  double gram_error(double value, double absolute, double u_left) const {
    // A few roundings of single elements: beta, the scale or either half of a decay may be multiplied in first.
    const double d = compound(u_left, u_k_, e_.gamma(K_ + 6)) * absolute + static_cast<double>(K_) * e_.tiny;
    return absolute < 0x1p127 ? e_.store(Point::gram, std::fabs(value), d) : kInfinity;
  }

  void scores(Chunk& x) {
    const Index n = x.n;
    const double u = e_.arithmetic, scale = std::min(1.0, std::fabs(in_.scale));
    Vector absolute;
    gram(x, in_.q, q_, 1, x.p, absolute);
    x.dp.assign(size(n * n), 0.0);
    for (Index i = 0; i < n; ++i)
      for (Index j = 0; j <= i; ++j) {
        const std::size_t at = size(i * n + j);
        const double qk = std::fabs(x.p[at]), d = gram_error(qk, absolute[at], u_q_), decay = x.decay[at];
        const double more = x.ddecay[at] * (1 + 2 * u) + decay * 2 * u;        // of the decay, products included
        const double error = no_nan(d * (decay + more)) + no_nan(qk * more) + e_.tiny;
        x.p[at] = qk * decay;
        // Scores may be stored after the scale is in, which makes their underflow coarser by it.
        x.dp[at] = no_nan(e_.store(Point::P, x.p[at], error) + e_.underflow_at(Point::P) * (1 / scale - 1));
      }
  }

  void coupling(Chunk& x) {                        // L, M and the error of solving with them
    const Index n = x.n;
    const double u = e_.arithmetic;
    Vector absolute;
    gram(x, in_.k, k_, 0, x.l, absolute);
    x.dl.assign(size(n * n), 0.0);
    for (Index i = 0; i < n; ++i) {
      const double beta = in_.beta.empty() ? 1.0 : static_cast<double>(in_.beta[size(x.t + i)]), beta_abs = beta_[size(x.t + i)];
      for (Index j = 0; j < i; ++j) {
        const std::size_t at = size(i * n + j);
        const double kk = std::fabs(x.l[at]), d = gram_error(kk, absolute[at], u_k_), decay = x.decay[at];
        const double cost = compound(4 * u, u_beta_), more = x.ddecay[at] * (1 + cost) + decay * cost;
        const double error = beta_abs * (no_nan(d * (decay + more)) + no_nan(kk * more)) + 2 * e_.tiny;
        x.l[at] *= beta * decay;
        x.dl[at] = no_nan(e_.store(Point::gram, std::fabs(x.l[at]), error));
      }
    }
    x.invert();
    Inverse(c_, e_).error(x);
  }

  // Error of (I+L)^-1 B: right [n,width] = |B| with error bound `d` on entry, the result's on return.
  void solve_error(const Chunk& x, const Vector& right, const Vector& solution, Vector& d, Index width) {
    const Index n = x.n;
    const double gamma = e_.gamma(n + 1);
    Vector out(size(n * width), static_cast<double>(n) * e_.tiny);
    if (c_.solve == Solve::substitution) {
      for (Index i = 0; i < n; ++i) add_row(&out[size(i * width)], &x.m_abs[size(i * n)], d.data(), width, i + 1, width);
      Inverse::close(x.dm, n, 0, n, solution.data(), out.data(), width);
    } else {
      Vector top(size(n * width)), error(size(n * width));
      for (std::size_t i = 0; i < top.size(); ++i) {
        top[i] = (1 + gamma) * (right[i] + d[i]);
        error[i] = gamma * right[i] + (1 + gamma) * d[i];
      }
      for (Index i = 0; i < n; ++i) {
        add_row(&out[size(i * width)], &x.dm[size(i * n)], top.data(), width, i + 1, width);
        add_row(&out[size(i * width)], &x.m_abs[size(i * n)], error.data(), width, i + 1, width);
      }
    }
    for (std::size_t i = 0; i < out.size(); ++i) d[i] = no_nan(out[i]);
  }

  // The exact chunk, token by token: corrected values, outputs, and the state left behind.
  void exact(Chunk& x, Vector& o) {
    x.vn.assign(size(x.n * V_), 0.0);
    o.assign(size(x.n * V_), 0.0);
    Vector row(size(K_)), read(size(V_));
    for (Index r = 0; r < x.n; ++r) {
      const Index t = x.t + r;
      const double a = gated_ ? exp_portable(gate(t, 0)) : 1, beta = in_.beta.empty() ? 1.0 : static_cast<double>(in_.beta[size(t)]);
      double* y = &x.vn[size(r * V_)];
      std::fill(read.begin(), read.end(), 0.0);
      if (delta_ && a != 0) {
        for (Index d = 0; d < K_; ++d) row[size(d)] = a * static_cast<double>(in_.k[size(t * K_ + d)]);
        add_row(read.data(), row.data(), state_.data(), V_, K_, V_);
      }
      for (Index j = 0; j < V_; ++j) y[j] = beta * (static_cast<double>(in_.v[size(t * V_ + j)]) - read[size(j)]);
      double* out = &o[size(r * V_)];
      for (Index d = 0; d < K_; ++d) {
        const double kd = static_cast<double>(in_.k[size(t * K_ + d)]), qd = static_cast<double>(in_.q[size(t * K_ + d)]);
        lanes::run<lanes::WriteRead>(&state_[size(d * V_)], a, kd, static_cast<const double*>(y), qd, out, V_);
      }
    }
  }

  void chunk(Index t, Index n, bool last) {
    Chunk x;
    x.t = t;
    x.n = n;
    const double u = e_.arithmetic, tiny = e_.tiny, us = e_.at(Point::S_op), eta_s = e_.underflow_at(Point::S_op);
    const double scale = std::fabs(in_.scale);
    gates(x);
    scores(x);
    if (delta_) coupling(x);
    x.grow.resize(size(n));
    double grown = 1;
    for (Index r = 0; r < n; ++r) x.grow[size(r)] = grown *= growth(t + r);

    const Vector rho = rho_, start_norm = state_norm_;
    Vector start(size(K_ * V_)), column(size(V_), 0.0);
    double top_state = 0;
    for (Index d = 0; d < K_; ++d)
      for (Index j = 0; j < V_; ++j) {
        const double s = std::fabs(state_[size(d * V_ + j)]);
        start[size(d * V_ + j)] = s;
        column[size(j)] += s;
        top_state = std::max(top_state, s);
      }
    double top_rho = 0;
    for (double r : rho) top_rho = std::max(top_rho, r);
    const bool operand_fits = top_state + top_rho <= std::min(e_.greatest[static_cast<std::size_t>(Point::S_op)], 0x1p127);
    Vector o;
    exact(x, o);
    measure_state();

    // |Vn| for the state that the kernel has: Vn_r moves by at most beta |k_r| e^(G_r) prod(c) rho.
    x.vm.resize(size(n * V_));
    for (Index r = 0; r < n; ++r) {
      const double reach = delta_ ? beta_[size(t + r)] * k_norm_[size(t + r)] * x.first[size(r)] * (r ? x.grow[size(r - 1)] : 1) : 0;
      for (Index j = 0; j < V_; ++j) x.vm[size(r * V_ + j)] = no_nan(std::fabs(x.vn[size(r * V_ + j)]) + (reach > 0 ? reach * rho[size(j)] : 0));
    }
    values(x, start, rho, operand_fits);

    // Output.
    const double gamma_o = e_.gamma(K_ + n + 1), eta_q = e_.underflow_at(Point::q_scaled) / std::min(1.0, scale);
    Vector operand(size(n * V_)), error(size(n * V_)), total(size(V_)), dp(size(n));
    for (std::size_t i = 0; i < operand.size(); ++i) {
      const double d = no_nan(e_.store(Point::Vn_o, x.vm[i], x.dvn[i]));
      operand[i] = x.vm[i] + d;
      error[i] = gamma_o * x.vm[i] + (1 + gamma_o) * d;
    }
    for (Index r = 0; r < n; ++r) {
      const double e = x.first[size(r)], q_norm = q_norm_[size(t + r)];
      const double rounding = compound(u_q_, e_.at(Point::q_scaled), us, gamma_o, 3 * u), cost = x.dfirst[size(r)] * (1 + rounding) + e * rounding;
      std::fill(total.begin(), total.end(), 0.0);
      add_row(total.data(), &q_[size((t + r) * K_)], start.data(), V_, K_, V_);
      for (Index j = 0; j < V_; ++j) {
        const double a_abs = total[size(j)] + q_norm * rho[size(j)];
        double b = cost > 0 ? cost * a_abs : 0;
        b += (e + cost) * q_norm * root_k_ * eta_s + eta_q * (column[size(j)] + root_k_ * rho[size(j)]) * (1 + us);
        const double carried = e > 0 ? e * x.grow[size(r)] * q_norm * rho[size(j)] : 0;
        total[size(j)] = operand_fits && a_abs < 0x1p127 ? b + carried + static_cast<double>(K_ + n + 4) * tiny : kInfinity;
      }
      for (Index j = 0; j <= r; ++j) dp[size(j)] = (1 + gamma_o) * x.dp[size(r * n + j)];
      add_row(total.data(), dp.data(), operand.data(), V_, r + 1, V_);
      add_row(total.data(), &x.p[size(r * n)], error.data(), V_, r + 1, V_);
      for (Index j = 0; j < V_; ++j) {
        const double value = scale * std::fabs(o[size(r * V_ + j)]), b = scale * total[size(j)] * (1 + 3 * u) + 3 * u * value + tiny;
        result_.o[size((t + r) * V_ + j)] = e_.store(Point::out, value, no_nan(b));
      }
    }

    // State.
    const double gamma_s = e_.gamma(n + 2), e = x.first[size(n - 1)], c = x.grow[size(n - 1)];
    const double keep = compound(u, u, gamma_s), kept = x.dfirst[size(n - 1)] * (1 + keep) + e * keep;
    const double eta_k = e_.underflow_at(Point::k_scaled), eta_v = e_.underflow_at(Point::Vn_s);
    Vector& added = operand;                       // what row r adds per unit of k
    Vector loose(size(V_), static_cast<double>(n + 3) * tiny);     // not multiplied by k
    for (Index r = 0; r < n; ++r) {
      const double f = x.last[size(r)];
      const double rounding = compound(keep, u_k_, e_.at(Point::k_scaled), e_.at(Point::Vn_s)), cost = x.dlast[size(r)] * (1 + rounding) + f * rounding;
      for (Index j = 0; j < V_; ++j) {
        const std::size_t i = size(r * V_ + j);
        const double top = x.vm[i] + x.dvn[i], more = (1 + gamma_s) * (eta_v + tiny) * (1 + f + cost);
        added[i] = top <= e_.greatest[static_cast<std::size_t>(Point::Vn_s)] ? no_nan((f + cost) * x.dvn[i]) + (cost > 0 ? cost * x.vm[i] : 0) + more : kInfinity;
        loose[size(j)] += (1 + gamma_s) * eta_k * top;
      }
    }
    if (last) {
      Vector keys(size(n));
      for (Index d = 0; d < K_; ++d) {
        double* b = &result_.ht[size(d * V_)];
        for (Index r = 0; r < n; ++r) keys[size(r)] = k_[size((t + r) * K_ + d)];
        for (Index j = 0; j < V_; ++j) b[j] = (e > 0 ? e * c * rho[size(j)] : 0) + (kept > 0 ? kept * (start[size(d * V_ + j)] + rho[size(j)]) : 0) + loose[size(j)];
        add_row(b, keys.data(), added.data(), V_, n, V_);
        for (Index j = 0; j < V_; ++j) b[j] = no_nan(b[j]);
      }
    }
    for (Index j = 0; j < V_; ++j)
      rho_[size(j)] = (e > 0 ? e * c * rho[size(j)] : 0) + (kept > 0 ? kept * (start_norm[size(j)] + rho[size(j)]) : 0) + root_k_ * loose[size(j)];
    add_row(rho_.data(), &k_norm_[size(t)], added.data(), V_, n, V_);
    for (double& r : rho_) r = no_nan(r);
    if (c_.cadence == Cadence::chunk) {
      if (last) {
        store_state(Point::S_carried);
      } else {
        const double u_c = e_.at(Point::S_carried), eta = e_.underflow_at(Point::S_carried), top = e_.greatest[static_cast<std::size_t>(Point::S_carried)];
        for (Index j = 0; j < V_; ++j) {
          double& r = rho_[size(j)];
          if (state_norm_[size(j)] + r > top) r = kInfinity;
          r = no_nan(r + u_c * (state_norm_[size(j)] + r) + root_k_ * eta);
        }
      }
    }
  }

  // x.dvn: error of the corrected values, for the state that the kernel has.
  void values(Chunk& x, const Vector& start, const Vector& rho, bool operand_fits) {
    const Index n = x.n, t = x.t;
    const double u = e_.arithmetic, tiny = e_.tiny, us = e_.at(Point::S_op), eta_s = e_.underflow_at(Point::S_op), gamma_k = e_.gamma(K_ + 1);
    const double by_beta = compound(u_beta_, u_v_, u);
    Vector bv(size(n * V_)), dbv(size(n * V_));
    auto beta_v = [&] {
      for (Index r = 0; r < n; ++r)
        for (Index j = 0; j < V_; ++j) {
          const std::size_t i = size(r * V_ + j);
          bv[i] = beta_[size(t + r)] * v_[size((t + r) * V_ + j)];
          dbv[i] = no_nan(e_.store(Point::bv, bv[i], by_beta * bv[i] + tiny));
        }
    };
    if (!delta_) {
      beta_v();
      x.dvn = dbv;
      return;
    }
    const double operand = compound(us, gamma_k);
    if (c_.vectors == Vectors::wu) {
      beta_v();
      // U and W with signs, for their magnitudes.
      Vector uu(size(n * V_), 0.0), w(size(n * K_), 0.0), scaled(size(n)), plain(size(n * V_)), key(size(n * K_));
      Vector bk(size(n * K_)), dbk(size(n * K_));
      for (Index r = 0; r < n; ++r) {
        const double beta = in_.beta.empty() ? 1.0 : static_cast<double>(in_.beta[size(t + r)]), e = x.first[size(r)];
        for (Index j = 0; j < V_; ++j) plain[size(r * V_ + j)] = beta * static_cast<double>(in_.v[size((t + r) * V_ + j)]);
        const double rounding = compound(u_beta_, u_k_, 2 * u), cost = x.dfirst[size(r)] * (1 + rounding) + e * rounding;
        for (Index d = 0; d < K_; ++d) {
          const std::size_t i = size(r * K_ + d);
          const double ka = beta_[size(t + r)] * k_[size((t + r) * K_ + d)];
          key[i] = beta * e * static_cast<double>(in_.k[size((t + r) * K_ + d)]);
          bk[i] = e * ka;
          dbk[i] = no_nan(e_.store(Point::bk, bk[i], cost * ka + tiny));
        }
      }
      for (Index r = 0; r < n; ++r) {
        add_row(&uu[size(r * V_)], &x.m[size(r * n)], plain.data(), V_, r + 1, V_);
        add_row(&w[size(r * K_)], &x.m[size(r * n)], key.data(), K_, r + 1, K_);
      }
      for (double& a : uu) a = std::fabs(a);
      for (double& a : w) a = std::fabs(a);
      solve_error(x, bv, uu, dbv, V_);
      solve_error(x, bk, w, dbk, K_);
      x.dvn.assign(size(n * V_), 0.0);
      Vector coefficient(size(K_));
      for (Index r = 0; r < n; ++r) {
        double square = 0, sum = 0;
        for (Index d = 0; d < K_; ++d) {
          const std::size_t i = size(r * K_ + d);
          const double dw = no_nan(e_.store(Point::W, w[i], dbk[i]));
          const double h = (1 + operand) * dw + operand * w[i];
          coefficient[size(d)] = h;
          square += h * h;
          sum += w[i] + dw;
        }
        const double norm = std::sqrt(square);
        double* dv = &x.dvn[size(r * V_)];
        add_row(dv, coefficient.data(), start.data(), V_, K_, V_);
        for (Index j = 0; j < V_; ++j) {
          const std::size_t i = size(r * V_ + j);
          const double du = no_nan(e_.store(Point::U, uu[i], dbv[i]));
          double d = dv[j] + (norm > 0 ? norm * rho[size(j)] : 0) + (1 + gamma_k) * sum * eta_s + static_cast<double>(K_ + 1) * tiny;
          d += du + gamma_k * (uu[i] + du);
          d += u * (x.vm[i] + d);
          dv[j] = operand_fits && x.vm[i] + d < 0x1p127 ? no_nan(d) : kInfinity;
        }
      }
      return;
    }
    // Residual form.
    x.dvn.assign(size(n * V_), 0.0);
    Vector right = x.vn;                           // B = (I+L) Vn
    for (Index r = 0; r < n; ++r) add_row(&right[size(r * V_)], &x.l[size(r * n)], x.vn.data(), V_, r, V_);
    for (Index r = 0; r < n; ++r) {
      const double e = x.first[size(r)], beta = beta_[size(t + r)], norm = k_norm_[size(t + r)];
      const double rounding = compound(u_k_, operand, u), cost = x.dfirst[size(r)] * (1 + rounding) + e * rounding;
      double* dv = &x.dvn[size(r * V_)];
      add_row(dv, &k_[size((t + r) * K_)], start.data(), V_, K_, V_);
      for (Index j = 0; j < V_; ++j) {
        const std::size_t i = size(r * V_ + j);
        const double a_abs = dv[j] + norm * rho[size(j)], va = v_[size((t + r) * V_ + j)];
        right[i] = std::fabs(right[i]) + (e > 0 ? beta * norm * e * rho[size(j)] : 0);
        double d = (cost > 0 ? cost * a_abs : 0) + (gamma_k + u_v_) * va + (e + cost) * norm * root_k_ * eta_s + static_cast<double>(K_ + 2) * tiny;
        d = beta * (1 + by_beta) * (1 + u) * d + compound(u_beta_, u, u) * right[i] + tiny;
        dv[j] = operand_fits && a_abs + va < 0x1p127 ? no_nan(e_.store(Point::bv, right[i], no_nan(d))) : kInfinity;
      }
    }
    solve_error(x, right, x.vm, x.dvn, V_);
  }

  const Contract& c_;
  const Costs& e_;
  const HeadInputs& in_;
  Index K_, V_, gates_ = 1;
  bool gated_ = true, delta_ = true, raw_ = false;
  double root_k_, u_k_ = 0, u_q_ = 0, u_v_ = 0, u_beta_ = 0;
  Vector k_, q_, v_, beta_, k_norm_, q_norm_;      // magnitudes of the inputs
  Vector state_, state_norm_, rho_;                // exact state, its column norms, bound of the norm of the error
  HeadResult result_;
};

}  // namespace

HeadResult bound_head(const Contract& c, const HeadInputs& in, std::span<const std::int64_t> split) {
  const Costs costs(c);
  return Bound(c, costs, in).run(split);
}

double raw_gate_error(const Contract& c, float a, float A_log, float dt_bias) {
  return formation_error(Costs(c), raw_gate(a, A_log, dt_bias).hi, a, A_log, dt_bias);
}

std::string explain_bound(const Contract& c, const HeadInputs& in, bool of_state, std::int64_t t, std::int64_t v, std::span<const std::int64_t> split) {
  if (v < 0 || v >= in.V || t < 0 || t >= (of_state ? in.K : in.T)) throw std::invalid_argument("bound: no element " + std::to_string(t) + "," + std::to_string(v));
  // One value channel decides alone, and an output depends on no later token.
  HeadInputs one = in;
  one.V = 1;
  one.v.clear();
  one.h0.clear();
  for (Index i = 0; i < in.T; ++i) one.v.push_back(in.v[size(i * in.V + v)]);
  if (!in.h0.empty())
    for (Index d = 0; d < in.K; ++d) one.h0.push_back(in.h0[size(d * in.V + v)]);
  const Costs all(c);
  auto value = [&](const Costs& costs) {
    const HeadResult r = Bound(c, costs, one).run(split);
    return of_state ? r.ht[size(t)] : r.o[size(t)];
  };
  const double whole = value(all);
  char text[64];
  std::snprintf(text, sizeof text, "bound %.3g", whole);
  std::string line = text;
  if (!(whole < kInfinity)) return line + ": a value may leave the range of its format";
  if (whole == 0) return line;
  std::vector<std::pair<double, std::string>> shares;
  auto without = [&](const std::string& name, auto&& change) {
    Costs fewer = all;
    change(fewer);
    shares.emplace_back((whole - value(fewer)) / whole, name);
  };
  for (std::size_t i = 0; i < kPoints; ++i)
    if (all.u[i] > 0 || all.eta[i] > 0)
      without(std::string(name(static_cast<Point>(i))) + "=" + to_string(c.points[i]), [&](Costs& f) { f.u[i] = f.eta[i] = 0; });
  without("accumulation", [](Costs& f) { f.accumulate = 0; });
  without("arithmetic", [](Costs& f) { f.arithmetic = 0; });
  without("exp", [](Costs& f) { f.exp = 0; });
  if (!in.a.empty()) without("raw gates", [](Costs& f) { f.raw_gates = false; });
  without("gate sums", [](Costs& f) { f.gate_sums = false; });
  std::sort(shares.begin(), shares.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  line += ":";
  for (std::size_t i = 0; i < shares.size() && (i < 4 && (i == 0 || shares[i].first >= 0.02)); ++i) {
    std::snprintf(text, sizeof text, "%s %s %.0f%%", i ? "," : "", shares[i].second.c_str(), 100 * shares[i].first);
    line += text;
  }
  return line;
}

}  // namespace gdn
