// The chunkwise form, once, as a template over the arithmetic: scalar type, rounding at the storage points of a
// precision contract, chunk size. With a wide scalar and no rounding it is the oracle's second algorithm; with float
// or double and the contract's rounding it is the model of a chunkwise kernel.
// Formulas: reference/README.md, chunkwise form. Rows of a chunk are r = 0..n-1, G_r the sum of gates up to row r.
//
// A Policy brings
//   Real                                        the scalar: constructible from double, with + - *
//   static constexpr bool kGateProducts         decays as products of e^g (exact kind) instead of e^(G_i - G_j)
//   Real exp(Real x)                            x <= 0 or NaN, -inf included
//   bool starts_anew(double g)                  reset_safe sums start again after such a gate
//   static constexpr bool kChained              a product goes term by term onto what it is added to, not as a whole: more roundings at
//                                               the size of the sum. Kernels do either (matrix units accumulate onto an operand)
//   Real sum(Real a, Real b)                    one addition of a gate sum (not with kGateProducts)
//   void store(Point, Real* x, count)           rounds in place
//   void accumulate(Real* c, const Real* a, stride_a, const Real* b, stride_b, terms, width)
//                                               c[j] += sum_t a[t stride_a] b[t stride_b + j], t ascending
#pragma once
#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <vector>

#include "reference/contract.h"
#include "reference/head.h"

namespace gdn {

template <class Policy>
class Chunkwise {
 public:
  using Real = typename Policy::Real;
  using Index = std::int64_t;

  Chunkwise(const Contract& c, const HeadInputs& in, Policy& policy) : c_(c), in_(in), p_(policy), K_(in.K), V_(in.V) {
    has_gate_ = !in.g.empty() && in.rule != Rule::delta && in.rule != Rule::linear;
    has_delta_ = in.rule == Rule::gated_delta || in.rule == Rule::delta || in.rule == Rule::kda;
    if (in.rule == Rule::complex_kda && c.form == Form::chunkwise) throw std::invalid_argument("the chunkwise form of complex_kda is not carried out");
    gates_ = in.rule == Rule::kda && has_gate_ ? K_ : 1;
    scaled_q_ = gates_ > 1 || narrow(Point::q_scaled);
    scaled_k_ = gates_ > 1 || narrow(Point::k_scaled);
    const Index C = std::min<Index>(c.chunk, std::max<Index>(in.T, 1));
    for (auto* x : {&k_, &q_, &bk_, &w_, &ks_}) x->assign(size(C * K_), Real(0));
    kt_.assign(size(K_ * C), Real(0));
    for (auto* x : {&v_, &b_, &vn_, &vno_, &vns_, &o1_}) x->assign(size(C * V_), Real(0));
    product_.assign(size(V_), Real(0));
    for (auto* x : {&kk_, &qk_, &decay_, &l_, &m_, &t_}) x->assign(size(C * C), Real(0));
    for (auto* x : {&first_, &last_, &sum_}) x->assign(size(C * gates_), Real(0));
    beta_.assign(size(C), Real(1));
    sop_.assign(size(K_ * V_), Real(0));
    pair_.assign(size(gates_), Real(0));
  }

  // Tokens [begin, end), one call: chunks are counted from begin. state [K,V] is read and updated, o receives rows
  // begin..end of [T,V]; sink(row, o) sees each output row.
  template <class Sink>
  void run(Index begin, Index end, Real* state, Sink&& sink) {
    for (Index t = begin; t < end; t += c_.chunk) {
      chunk(t, std::min<Index>(c_.chunk, end - t), state, sink);
      if (c_.cadence == Cadence::chunk) p_.store(Point::S_carried, state, K_ * V_);
    }
    if (c_.cadence == Cadence::call) p_.store(Point::S_carried, state, K_ * V_);
  }

  // One stage (stages.h) of a chunk of n rows, the first n tokens of the inputs: what it is given on entry, what it returns on return. state:
  // of chunk_states before and after the chunk, `operand` what is stored of it before. Rules with one gate per head.
  struct StageRows {
    std::vector<Real> G, L, M, U, W, Vn, operand, o;
  };
  void stage(Stage s, Index n, StageRows& x, Real* state) {
    load(0, n);
    start_.assign(size(n), -1);
    if (s == Stage::gate_sum) {
      sum_gates(0, n, 0);
      x.G.resize(size(n));
      Real before(0);                              // up to and with the last gate at which a sum starts anew
      for (Index r = 0; r < n; ++r) {
        if (start_[size(r)] == r) before = p_.sum(r ? x.G[size(r - 1)] : Real(0), Real(gate(r, 0)));
        x.G[size(r)] = start_[size(r)] < 0 ? sum_[size(r)] : p_.sum(before, sum_[size(r)]);
      }
      return p_.store(Point::G, x.G.data(), n);
    }
    if (!x.G.empty()) {
      std::copy_n(x.G.begin(), n, sum_.begin());
      p_.store(Point::G, sum_.data(), n);
      factors(0, n);
    }
    const auto given = [&](const std::vector<Real>& from, std::vector<Real>& to, Point p) {
      std::copy(from.begin(), from.end(), to.begin());
      p_.store(p, to.data(), static_cast<Index>(from.size()));
    };
    const auto operand = [&] {
      std::copy_n(state, K_ * V_, sop_.data());
      p_.store(Point::S_op, sop_.data(), K_ * V_);
    };
    switch (s) {
      case Stage::gram:
        grams(0, n);
        x.L.assign(size(n * n), Real(0));
        for (Index i = 0; i < n; ++i)
          for (Index j = 0; j < i; ++j) x.L[size(i * n + j)] = Real(0) - l_[size(i * n + j)];
        break;
      case Stage::inverse:
        for (Index i = 0; i < n; ++i) {
          for (Index j = 0; j < i; ++j) l_[size(i * n + j)] = Real(0) - x.L[size(i * n + j)];
          p_.store(Point::gram, &l_[size(i * n)], i);
        }
        invert(n);
        x.M.assign(m_.begin(), m_.begin() + n * n);
        break;
      case Stage::uw:
        given(x.M, m_, Point::M);
        vectors(n);
        x.U.assign(vn_.begin(), vn_.begin() + n * V_);
        x.W.assign(w_.begin(), w_.begin() + n * K_);
        break;
      case Stage::chunk_states:
        operand();
        x.operand = sop_;
        given(x.U, vn_, Point::U);
        given(x.W, w_, Point::W);
        subtract(n);
        x.Vn.assign(vn_.begin(), vn_.begin() + n * V_);
        p_.store(Point::Vn_o, x.Vn.data(), n * V_);
        update(n, state);
        if (c_.cadence == Cadence::chunk) p_.store(Point::S_carried, state, K_ * V_);
        break;
      default: {
        grams(0, n);
        operand();
        std::copy(x.Vn.begin(), x.Vn.end(), vn_.begin());
        x.o.resize(size(n * V_));
        auto sink = [&](Index t, const Real* o) { std::copy_n(o, V_, &x.o[size(t * V_)]); };
        output(0, n, sink);
      }
    }
  }

 private:
  static std::size_t size(Index n) { return static_cast<std::size_t>(n); }
  bool narrow(Point p) const { return unit(c_, p) > 0; }

  void load(Index t, Index n) {
    for (Index i = 0; i < n * K_; ++i) {
      k_[size(i)] = Real(static_cast<double>(in_.k[size(t * K_ + i)]));
      q_[size(i)] = Real(static_cast<double>(in_.q[size(t * K_ + i)]));
    }
    for (Index i = 0; i < n * V_; ++i) v_[size(i)] = Real(static_cast<double>(in_.v[size(t * V_ + i)]));
    for (Index i = 0; i < n; ++i) beta_[size(i)] = Real(in_.beta.empty() ? 1.0 : static_cast<double>(in_.beta[size(t + i)]));
    p_.store(Point::q_in, q_.data(), n * K_);
    p_.store(Point::k_in, k_.data(), n * K_);
    p_.store(Point::v_in, v_.data(), n * V_);
    p_.store(Point::beta, beta_.data(), n);
    for (Index r = 0; r < n; ++r)
      for (Index d = 0; d < K_; ++d) kt_[size(d * n + r)] = k_[size(r * K_ + d)];
  }

  double gate(Index t, Index d) const { return gate_value(in_, size(t * gates_ + d)); }

  // first_[r] = e^(G_r), last_[r] = e^(G_(n-1) - G_r), and with one gate decay_[i,j] = e^(G_i - G_j), i >= j.
  // With a gate per key channel, pairs(j, use) forms the decays of all i >= j in turn.
  void gates(Index t, Index n) {
    start_.assign(size(n * gates_), -1);
    if constexpr (!Policy::kGateProducts) {
      for (Index d = 0; d < gates_; ++d) sum_gates(t, n, d);
      p_.store(Point::G, sum_.data(), n * gates_);
    }
    factors(t, n);
  }

  // The decays of sums that are there.
  void factors(Index t, Index n) {
    for (Index d = 0; d < gates_; ++d) {
      if constexpr (Policy::kGateProducts) {
        Real product(1);
        for (Index r = 0; r < n; ++r) first_[at(r, d)] = product = product * p_.exp(Real(gate(t + r, d)));
      } else {
        for (Index r = 0; r < n; ++r) first_[at(r, d)] = start_[at(r, d)] < 0 ? p_.exp(sum_[at(r, d)]) : Real(0);
      }
    }
    p_.store(Point::D, first_.data(), n * gates_);
    for (Index j = 0; j < n; ++j)
      pairs(t, n, j, [&](Index i) {
        if (gates_ == 1) decay_[size(i * n + j)] = pair_[0];
        if (i == n - 1) std::copy(pair_.begin(), pair_.end(), last_.begin() + j * gates_);
      });
    if (gates_ == 1) p_.store(Point::D, decay_.data(), n * n);
    p_.store(Point::D, last_.data(), n * gates_);
  }

  std::size_t at(Index r, Index d) const { return size(r * gates_ + d); }

  template <class Use>
  void pairs(Index t, Index n, Index j, Use&& use) {
    for (Index i = j; i < n; ++i) {
      for (Index d = 0; d < gates_; ++d) {
        Real& x = pair_[size(d)];
        if (i == j) x = Real(1);
        else if constexpr (Policy::kGateProducts) x = x * p_.exp(Real(gate(t + i, d)));
        else x = start_[at(i, d)] != start_[at(j, d)] ? Real(0) : p_.exp(sum_[at(i, d)] - sum_[at(j, d)]);
      }
      use(i);
    }
  }

  void sum_gates(Index t, Index n, Index d) {
    auto g = [&](Index r) { return gate(t + r, d); };
    if (c_.gate_sum == GateSum::prefix_tree) {     // every step adds the sum that ends `step` rows before
      for (Index r = 0; r < n; ++r) sum_[at(r, d)] = Real(g(r));
      for (Index step = 1; step < n; step *= 2)
        for (Index r = n - 1; r >= step; --r) sum_[at(r, d)] = p_.sum(sum_[at(r, d)], sum_[at(r - step, d)]);
      return;
    }
    Real sum(0);
    Index start = -1;
    for (Index r = 0; r < n; ++r) {
      if (c_.gate_sum == GateSum::reset_safe && p_.starts_anew(g(r))) {
        sum = Real(0);
        start = r;
      } else {
        sum = p_.sum(sum, Real(g(r)));
      }
      sum_[at(r, d)] = sum;
      start_[at(r, d)] = start;
    }
  }

  // c [rows] = a [terms] b [terms,width]: one row of a matrix product.
  void row(Real* c, const Real* a, Index stride_a, const Real* b, Index stride_b, Index terms, Index width) {
    std::fill(c, c + width, Real(0));
    p_.accumulate(c, a, stride_a, b, stride_b, terms, width);
  }

  void grams(Index t, Index n) {
    if (gates_ == 1) {
      for (Index i = 0; i < n; ++i) {
        if (has_delta_) row(&kk_[size(i * n)], &k_[size(i * K_)], 1, kt_.data(), n, K_, i);
        row(&qk_[size(i * n)], &q_[size(i * K_)], 1, kt_.data(), n, K_, i + 1);
      }
    } else {                                       // the decays sit inside the sum over key channels
      std::vector<Real> x(size(K_));
      for (Index j = 0; j < n; ++j)
        pairs(t, n, j, [&](Index i) {
          p_.store(Point::D, pair_.data(), K_);
          for (Index d = 0; d < K_; ++d) x[size(d)] = k_[size(j * K_ + d)] * pair_[size(d)];
          if (i > j) row(&kk_[size(i * n + j)], &k_[size(i * K_)], 1, x.data(), 1, K_, 1);
          row(&qk_[size(i * n + j)], &q_[size(i * K_)], 1, x.data(), 1, K_, 1);
        });
      decay_.assign(decay_.size(), Real(1));
    }
    for (Index i = 0; i < n; ++i) {
      if (has_delta_) p_.store(Point::gram, &kk_[size(i * n)], i);
      p_.store(Point::gram, &qk_[size(i * n)], i + 1);
    }
    for (Index i = 0; i < n; ++i) {                // scores, and minus L, which is what the solvers add
      for (Index j = 0; j <= i; ++j) {
        qk_[size(i * n + j)] = qk_[size(i * n + j)] * decay_[size(i * n + j)];
        if (has_delta_ && j < i) l_[size(i * n + j)] = Real(0) - beta_[size(i)] * kk_[size(i * n + j)] * decay_[size(i * n + j)];
      }
      p_.store(Point::P, &qk_[size(i * n)], i + 1);
      if (has_delta_) p_.store(Point::gram, &l_[size(i * n)], i);
    }
  }

  // x <- (I+L)^-1 x, rows of any width.
  void substitute(Real* x, Index n, Index width) {
    for (Index i = 1; i < n; ++i) p_.accumulate(x + i * width, &l_[size(i * n)], 1, x, width, i, width);
  }

  void invert(Index n) {
    std::fill(m_.begin(), m_.begin() + n * n, Real(0));
    for (Index i = 0; i < n; ++i) m_[size(i * n + i)] = Real(1);
    if (c_.solve == Solve::neumann) neumann(n);
    else blocks(n);
    for (Index i = 0; i < n; ++i) p_.store(Point::M, &m_[size(i * n)], i + 1);
  }

  void blocks(Index n) {
    const Index b = c_.block;
    std::vector<Real> x(size(b * b)), y(size(b * n)), diagonal(size(b * b));
    for (Index i0 = 0; i0 < n; i0 += b) {
      const Index rows = std::min(b, n - i0);
      for (Index i = i0; i < i0 + rows; ++i)       // the diagonal block, by substitution
        p_.accumulate(&m_[size(i * n + i0)], &l_[size(i * n + i0)], 1, &m_[size(i0 * n + i0)], n, i - i0, rows);
      if (i0 == 0) continue;
      for (Index i = 0; i < rows; ++i) {
        std::copy_n(&m_[size((i0 + i) * n + i0)], rows, &diagonal[size(i * b)]);
        p_.store(Point::gram, &diagonal[size(i * b)], rows);
        // y = -(L of this block row) (M of the block rows above)
        row(&y[size(i * n)], &l_[size((i0 + i) * n)], 1, above(i0, n), n, i0, i0);
        p_.store(Point::gram, &y[size(i * n)], i0);
      }
      for (Index i = 0; i < rows; ++i) row(&m_[size((i0 + i) * n)], &diagonal[size(i * b)], 1, y.data(), n, i + 1, i0);
    }
  }

  // M of the rows before i0 as an operand.
  const Real* above(Index i0, Index n) {
    if (!narrow(Point::gram)) return m_.data();
    std::copy_n(m_.data(), i0 * n, t_.data());
    p_.store(Point::gram, t_.data(), i0 * n);
    return t_.data();
  }

  void neumann(Index n) {                          // (I - L)(I + L^2)(I + L^4)...
    std::vector<Real> power(l_.begin(), l_.begin() + n * n), square(size(n * n));
    for (Index i = 0; i < n; ++i)
      for (Index j = i; j < n; ++j) power[size(i * n + j)] = Real(0);
    for (Index i = 0; i < n; ++i)
      for (Index j = 0; j < i; ++j) m_[size(i * n + j)] = power[size(i * n + j)];
    for (Index step = 2; step < n; step *= 2) {
      for (Index i = 0; i < n; ++i) row(&square[size(i * n)], &power[size(i * n)], 1, power.data(), n, i, n);
      p_.store(Point::gram, square.data(), n * n);
      power.swap(square);
      std::copy_n(m_.data(), n * n, t_.data());
      p_.store(Point::gram, t_.data(), n * n);
      for (Index i = 0; i < n; ++i) p_.accumulate(&m_[size(i * n)], &t_[size(i * n)], 1, power.data(), n, i + 1, n);
    }
  }

  void solve(Real* x, Index n, Index width, Real* scratch) {
    if (c_.solve == Solve::substitution) {
      substitute(x, n, width);
      return;
    }
    std::copy_n(x, n * width, scratch);
    for (Index i = 0; i < n; ++i) row(x + i * width, &m_[size(i * n)], 1, scratch, width, i + 1, width);
  }

  void beta_v(Index n, const std::vector<Real>& from) {
    for (Index i = 0; i < n; ++i)
      for (Index j = 0; j < V_; ++j) vn_[size(i * V_ + j)] = beta_[size(i)] * from[size(i * V_ + j)];
    p_.store(Point::bv, vn_.data(), n * V_);
  }

  // vn_ = U, w_ = W.
  void vectors(Index n) {
    beta_v(n, v_);
    solve(vn_.data(), n, V_, b_.data());
    p_.store(Point::U, vn_.data(), n * V_);
    for (Index i = 0; i < n; ++i)
      for (Index d = 0; d < K_; ++d) w_[size(i * K_ + d)] = beta_[size(i)] * k_[size(i * K_ + d)] * first_[at(i, gates_ == 1 ? 0 : d)];
    p_.store(Point::bk, w_.data(), n * K_);
    solve(w_.data(), n, K_, bk_.data());
    p_.store(Point::W, w_.data(), n * K_);
  }

  // x <- x + a b, with x [V] and b [terms,V]: term by term, or as a whole (kChained).
  void add_product(Real* x, const Real* a, Index stride_a, const Real* b, Index terms) {
    if constexpr (Policy::kChained) {
      p_.accumulate(x, a, stride_a, b, V_, terms, V_);
    } else {
      row(product_.data(), a, stride_a, b, V_, terms, V_);
      for (Index j = 0; j < V_; ++j) x[j] = x[j] + product_[size(j)];
    }
  }

  // x <- x - a S, with x [V] and a [K].
  void subtract_product(Real* x, const Real* a) {
    if constexpr (Policy::kChained) {
      for (Index j = 0; j < V_; ++j) x[j] = Real(0) - x[j];
      p_.accumulate(x, a, 1, sop_.data(), V_, K_, V_);
      for (Index j = 0; j < V_; ++j) x[j] = Real(0) - x[j];
    } else {
      row(product_.data(), a, 1, sop_.data(), V_, K_, V_);
      for (Index j = 0; j < V_; ++j) x[j] = x[j] - product_[size(j)];
    }
  }

  // vn_ = U - W S.
  void subtract(Index n) {
    for (Index i = 0; i < n; ++i) subtract_product(&vn_[size(i * V_)], &w_[size(i * K_)]);
  }

  void corrected_values(Index n) {
    if (!has_delta_) return beta_v(n, v_);
    if (c_.solve != Solve::substitution) invert(n);
    if (c_.vectors == Vectors::wu) {
      vectors(n);
      subtract(n);
    } else {
      for (Index i = 0; i < n; ++i) {
        Real* x = &b_[size(i * V_)];
        if (gates_ > 1 || Policy::kChained) {
          for (Index d = 0; d < K_; ++d) w_[size(i * K_ + d)] = k_[size(i * K_ + d)] * first_[at(i, gates_ == 1 ? 0 : d)];
          std::copy_n(&v_[size(i * V_)], V_, x);
          subtract_product(x, &w_[size(i * K_)]);
        } else {
          row(x, &k_[size(i * K_)], 1, sop_.data(), V_, K_, V_);
          for (Index j = 0; j < V_; ++j) x[j] = v_[size(i * V_ + j)] - first_[size(i)] * x[j];
        }
      }
      beta_v(n, b_);
      solve(vn_.data(), n, V_, b_.data());
    }
  }

  template <class Sink>
  void chunk(Index t, Index n, Real* state, Sink& sink) {
    load(t, n);
    if (has_gate_) {
      gates(t, n);
    } else {
      for (auto* x : {&first_, &last_, &decay_}) std::fill(x->begin(), x->end(), Real(1));
    }
    grams(t, n);
    std::copy_n(state, K_ * V_, sop_.data());
    p_.store(Point::S_op, sop_.data(), K_ * V_);
    corrected_values(n);
    output(t, n, sink);
    update(n, state);
  }

  template <class Sink>
  void output(Index t, Index n, Sink& sink) {
    std::copy_n(vn_.data(), n * V_, vno_.data());
    p_.store(Point::Vn_o, vno_.data(), n * V_);
    if (scaled_q_) {
      for (Index i = 0; i < n; ++i)
        for (Index d = 0; d < K_; ++d) q_[size(i * K_ + d)] = q_[size(i * K_ + d)] * first_[at(i, gates_ == 1 ? 0 : d)];
      p_.store(Point::q_scaled, q_.data(), n * K_);
    }
    const Real scale(in_.scale);
    for (Index i = 0; i < n; ++i) {
      Real* o1 = &o1_[size(i * V_)];
      row(o1, &q_[size(i * K_)], 1, sop_.data(), V_, K_, V_);
      if (!scaled_q_)
        for (Index j = 0; j < V_; ++j) o1[j] = first_[size(i)] * o1[j];
      add_product(o1, &qk_[size(i * n)], 1, vno_.data(), i + 1);
      for (Index j = 0; j < V_; ++j) o1[j] = scale * o1[j];
      p_.store(Point::out, o1, V_);
      sink(t + i, static_cast<const Real*>(o1));
    }
  }

  // The state after the chunk, from vn_.
  void update(Index n, Real* state) {
    for (Index i = 0; i < n; ++i) {                // either side of k Vn^T may carry the decay to the end of the chunk
      for (Index j = 0; j < V_; ++j) vns_[size(i * V_ + j)] = scaled_k_ ? vn_[size(i * V_ + j)] : last_[size(i)] * vn_[size(i * V_ + j)];
      for (Index d = 0; d < K_; ++d) ks_[size(i * K_ + d)] = scaled_k_ ? last_[at(i, gates_ == 1 ? 0 : d)] * k_[size(i * K_ + d)] : k_[size(i * K_ + d)];
    }
    p_.store(Point::Vn_s, vns_.data(), n * V_);
    if (scaled_k_) p_.store(Point::k_scaled, ks_.data(), n * K_);
    for (Index d = 0; d < K_; ++d) {
      Real* s = state + d * V_;
      const Real end = first_[at(n - 1, gates_ == 1 ? 0 : d)];
      for (Index j = 0; j < V_; ++j) s[j] = end * s[j];
      add_product(s, &ks_[size(d)], K_, vns_.data(), n);
    }
  }

  const Contract& c_;
  const HeadInputs& in_;
  Policy& p_;
  Index K_, V_, gates_ = 1;
  bool has_gate_ = true, has_delta_ = true, scaled_q_ = false, scaled_k_ = false;
  std::vector<Real> k_, q_, kt_, bk_, w_, ks_;                       // [n,K], kt_ [K,n]
  std::vector<Real> v_, b_, vn_, vno_, vns_, o1_, product_;          // [n,V], product_ [V]
  std::vector<Real> kk_, qk_, decay_, l_, m_, t_;               // [n,n]; l_ holds -L, qk_ becomes P
  std::vector<Real> first_, last_, sum_, beta_, sop_, pair_;
  std::vector<Index> start_;                       // row of the last reset at or before r, -1 if none
};

// Any scalar with + - * and exp found by argument-dependent lookup (or std::exp): no rounding, decays as products.
template <class N>
struct ExactPolicy {
  using Real = N;
  static constexpr bool kGateProducts = true, kChained = false;
  N exp(const N& x) const {
    using std::exp;
    return exp(x);
  }
  bool starts_anew(double) const { return false; }
  void store(Point, N*, std::int64_t) const {}
  void accumulate(N* c, const N* a, std::int64_t stride_a, const N* b, std::int64_t stride_b, std::int64_t terms, std::int64_t width) const {
    for (std::int64_t t = 0; t < terms; ++t)
      for (std::int64_t j = 0; j < width; ++j) c[j] = c[j] + a[t * stride_a] * b[t * stride_b + j];
  }
};

}  // namespace gdn
