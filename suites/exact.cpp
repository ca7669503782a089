// Exactness certificate; see exact.h. Points and forms as in reference/README.md and reference/contract.h.
#include "suites/exact.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <optional>

namespace gdn {
namespace {

constexpr double kReset = -1000;                   // every exp of this and less is 0, in every format
constexpr int kNoGranule = 1 << 20;                // of a matrix of zeros

bool power_of_two(double x) {
  int e;
  return x != 0 && std::isfinite(x) && std::fabs(std::frexp(x, &e)) == 0.5;
}

// x = odd * 2^granule.
int granule(double x) {
  if (x == 0) return kNoGranule;
  const std::uint64_t m = std::bit_cast<std::uint64_t>(x) & 0xfffffffffffffu;
  return std::ilogb(x) - (m ? 52 - std::countr_zero(m) : 0);
}

int digits(double x) { return x == 0 ? 0 : std::ilogb(x) - granule(x) + 1; }

struct Inexact { std::string why; };

struct Matrix {
  std::int64_t rows = 0, cols = 0;
  std::vector<double> x;
  Matrix() = default;
  Matrix(std::int64_t r, std::int64_t c) : rows(r), cols(c), x(static_cast<std::size_t>(r * c)) {}
  double& operator()(std::int64_t r, std::int64_t c) { return x[static_cast<std::size_t>(r * cols + c)]; }
  double operator()(std::int64_t r, std::int64_t c) const { return x[static_cast<std::size_t>(r * cols + c)]; }
  int least() const {
    int g = kNoGranule;
    for (double e : x) g = std::min(g, granule(e));
    return g;
  }
};
Matrix transposed(const Matrix& a) {
  Matrix t(a.cols, a.rows);
  for (std::int64_t i = 0; i < a.rows; ++i)
    for (std::int64_t j = 0; j < a.cols; ++j) t(j, i) = a(i, j);
  return t;
}

class Tracker {
 public:
  Tracker(const Contract& c, const HeadInputs& in, std::span<const std::int64_t> split, ExactHead& out)
      : c_(c), in_(in), split_(split), out_(out), p_(info(arithmetic(c).format).precision) {}

  void run() {
    if (!in_.a.empty()) throw Inexact{"raw gates"};
    decays();
    scale_ = in_.scale;
    if (!power_of_two(scale_)) throw Inexact{"the scale is no power of two"};
    S_ = Matrix(in_.K, in_.V);
    for (std::size_t i = 0; i < in_.h0.size(); ++i) S_.x[i] = in_.h0[i];
    store(Point::S_carried, S_);
    q_ = load(in_.q, in_.K, Point::q_in);
    k_ = load(in_.k, in_.K, Point::k_in);
    v_ = load(in_.v, in_.V, Point::v_in);
    beta_ = Matrix(in_.T, 1);
    for (std::int64_t t = 0; t < in_.T; ++t) beta_(t, 0) = in_.beta.empty() ? 1 : static_cast<double>(in_.beta[static_cast<std::size_t>(t)]);
    store(Point::beta, beta_);
    o_ = Matrix(in_.T, in_.V);
    std::int64_t begin = 0;
    for (std::size_t call = 0; call <= split_.size(); ++call) {
      const std::int64_t end = call < split_.size() ? std::min(split_[call], in_.T) : in_.T;
      if (c_.form == Form::recurrent)
        for (std::int64_t t = begin; t < end; ++t) token(t);
      else
        for (std::int64_t t = begin; t < end; t += c_.chunk) chunk(t, std::min<std::int64_t>(c_.chunk, end - t));
      store(Point::ht, S_);
      begin = end;
    }
    out_.exact.o = o_.x;
    out_.exact.ht = S_.x;
    const Store& last = c_.at(Point::out);
    if (last.rounding == Rounding::stochastic) throw Inexact{"o is rounded stochastically"};
    out_.expected.ht = S_.x;
    out_.finer = out_.exact;
    for (double x : o_.x) out_.expected.o.push_back(round_to(x, last));
  }

 private:
  // --- exactness of a value and of a sum ---
  void fits(double x, int precision) {
    if (digits(x) > precision) throw Inexact{"a value needs " + std::to_string(digits(x)) + " digits, the arithmetic has " + std::to_string(precision)};
  }
  void store(Point p, const Matrix& m) {
    if (!uses(c_, p)) return;
    const bool narrow = unit(c_, p) > 0 || underflow(c_, p) > 0;
    for (double x : m.x) {
      const bool ok = narrow ? c_.at(p).rounding == Rounding::stochastic ? round_to(x, c_.at(p), 0) == x && round_to(x, c_.at(p), ~0ull) == x
                                                                         : round_to(x, c_.at(p)) == x
                             : digits(x) <= p_;
      if (!ok) throw Inexact{std::string("at ") + name(p) + " a value needs " + std::to_string(digits(x)) + " digits"};
      out_.digits[static_cast<std::size_t>(p)] = std::max(out_.digits[static_cast<std::size_t>(p)], digits(x));
    }
  }
  // Sums of absolute values in granules of 2^g must not exceed 2^p.
  void sum(double absolute, int g, int precision) {
    if (absolute == 0) return;
    const double granules = std::ldexp(absolute, -g);
    out_.sum_digits = std::max(out_.sum_digits, std::ilogb(granules) + 1);
    if (!(granules <= std::ldexp(1.0, precision))) throw Inexact{"a sum needs " + std::to_string(std::ilogb(granules) + 1) + " digits"};
  }
  // a b + sign * c, every element of it exact in any order. c may be null.
  Matrix product(const Matrix& a, const Matrix& b, const Matrix* c = nullptr, double sign = 1) {
    const int ga = a.least(), gb = b.least();
    int g = ga == kNoGranule || gb == kNoGranule ? kNoGranule : ga + gb;
    if (c) g = std::min(g, c->least());
    Matrix r(a.rows, b.cols), absolute(a.rows, b.cols);
    if (c) {
      r = *c;
      for (std::size_t i = 0; i < r.x.size(); ++i) absolute.x[i] = std::fabs(r.x[i]);
    }
    for (std::int64_t i = 0; i < a.rows; ++i)
      for (std::int64_t t = 0; t < a.cols; ++t) {
        const double e = sign * a(i, t);
        if (e == 0) continue;
        for (std::int64_t j = 0; j < b.cols; ++j) {
          r(i, j) += e * b(t, j);
          absolute(i, j) += std::fabs(e * b(t, j));
        }
      }
    for (double s : absolute.x) sum(s, g, p_);
    return r;
  }
  // Sums of |a||b| must fit a format of so many digits: any partial product over any subset of terms then does.
  void partial(const Matrix& a, const Matrix& b, int precision) {
    const int ga = a.least(), gb = b.least();
    if (ga == kNoGranule || gb == kNoGranule) return;
    for (std::int64_t i = 0; i < a.rows; ++i)
      for (std::int64_t j = 0; j < b.cols; ++j) {
        double s = 0;
        for (std::int64_t t = 0; t < a.cols; ++t) s += std::fabs(a(i, t) * b(t, j));
        sum(s, ga + gb, precision);
      }
  }

  // --- inputs ---
  Matrix load(const std::vector<float>& x, std::int64_t width, Point p) {
    Matrix m(in_.T, width);
    for (std::size_t i = 0; i < x.size(); ++i) {
      if (!std::isfinite(x[i])) throw Inexact{"an input is not finite"};
      m.x[i] = x[i];
    }
    store(p, m);
    return m;
  }
  void decays() {
    if (in_.rule != Rule::gated_delta && in_.rule != Rule::delta) throw Inexact{"another rule"};
    reset_.assign(static_cast<std::size_t>(in_.T), false);
    if (in_.rule == Rule::delta) return;
    double G = 0;
    for (std::size_t t = 0; t < in_.g.size(); ++t) {
      const double g = in_.g[t];
      if (g != 0 && !(g <= kReset)) throw Inexact{"a gate is neither 0 nor a reset"};
      reset_[t] = g != 0;
      if (g == 0 || c_.form == Form::recurrent || c_.gate_sum == GateSum::reset_safe) continue;
      const double next = G + g;                   // the sum itself must be exact, or later resets are absorbed
      if (next - G != g) throw Inexact{"a gate sum is not exact"};
      G = next;
      const bool narrow = unit(c_, Point::G) > 0;
      if (!std::isfinite(G) || (narrow ? round_to(G, c_.at(Point::G)) != G : digits(G) > p_)) throw Inexact{"a gate sum is not exact"};
    }
    if (c_.form == Form::recurrent || unit(c_, Point::G) == 0) return;
    for (const float g : in_.g)
      if (std::isfinite(g) && round_to(g, c_.at(Point::G)) != static_cast<double>(g)) throw Inexact{"a gate is not exact at G"};
  }
  // No reset in rows (from, to].
  double decay(std::int64_t from, std::int64_t to) const {
    for (std::int64_t t = from + 1; t <= to; ++t)
      if (reset_[static_cast<std::size_t>(t)]) return 0;
    return 1;
  }
  Matrix rows(const Matrix& m, std::int64_t first, std::int64_t n) const {
    Matrix r(n, m.cols);
    std::copy_n(m.x.begin() + first * m.cols, n * m.cols, r.x.begin());
    return r;
  }
  void put(std::int64_t first, const Matrix& o) {
    for (std::size_t i = 0; i < o.x.size(); ++i) o_.x[static_cast<std::size_t>(first * in_.V) + i] = scale_ * o.x[i];
  }

  // --- the two forms ---
  void token(std::int64_t t) {
    if (reset_[static_cast<std::size_t>(t)]) std::fill(S_.x.begin(), S_.x.end(), 0.0);
    const std::int64_t V = in_.V;
    std::vector<std::int64_t> written, asked;      // key channels that take part
    for (std::int64_t d = 0; d < in_.K; ++d) {
      if (k_(t, d) != 0) written.push_back(d);
      if (q_(t, d) != 0) asked.push_back(d);
    }
    // S^T a for column j, and from + sign * that; every column has a granule of its own.
    auto read = [&](const Matrix& a, const std::vector<std::int64_t>& channels, std::int64_t j, double from, double sign) {
      double value = from, absolute = std::fabs(from);
      int g = granule(from);
      for (const std::int64_t d : channels) {
        const double term = a(t, d) * S_(d, j);
        value += sign * term;
        absolute += std::fabs(term);
        if (term != 0) g = std::min(g, granule(term));
      }
      sum(absolute, g, p_);
      return value;
    };
    Matrix y(1, V), o(1, V);
    stored(Point::S_op, written);
    for (std::int64_t j = 0; j < V; ++j) {
      y(0, j) = beta_(t, 0) * read(k_, written, j, v_(t, j), -1);
      fits(y(0, j), p_);
    }
    store(Point::Vn_s, y);
    for (const std::int64_t d : written)
      for (std::int64_t j = 0; j < V; ++j) {
        const double term = k_(t, d) * y(0, j), before = S_(d, j);
        sum(std::fabs(before) + std::fabs(term), std::min(granule(before), granule(term)), p_);
        S_(d, j) = before + term;
      }
    stored(Point::S_carried, written);
    stored(Point::S_op, asked);
    for (std::int64_t j = 0; j < V; ++j) o(0, j) = read(q_, asked, j, 0, 1);
    put(t, o);
  }
  // Rows of the state at a storage point; all others are as they were when last looked at.
  void stored(Point p, const std::vector<std::int64_t>& channels) {
    if (unit(c_, p) == 0 && underflow(c_, p) == 0) return;   // the sums that made them were exact
    for (const std::int64_t d : channels) store(p, rows(S_, d, 1));
  }

  void chunk(std::int64_t first, std::int64_t n) {
    const Matrix q = rows(q_, first, n), k = rows(k_, first, n), v = rows(v_, first, n);
    Matrix kk = product(k, transposed(k)), qk = product(q, transposed(k));
    for (std::int64_t i = 0; i < n; ++i)           // what the masks select
      for (std::int64_t j = i; j < n; ++j) {
        kk(i, j) = 0;
        if (j > i) qk(i, j) = 0;
      }
    Matrix L(n, n), P(n, n), bv(n, in_.V), eq(q), ek(n, in_.K), bk(n, in_.K);
    for (std::int64_t i = 0; i < n; ++i) {
      const double b = beta_(first + i, 0), from_start = decay(first - 1, first + i), to_end = decay(first + i, first + n - 1);
      for (std::int64_t j = 0; j <= i; ++j) {
        const double d = decay(first + j, first + i);
        if (j < i) L(i, j) = b * kk(i, j) * d;
        P(i, j) = qk(i, j) * d;
      }
      for (std::int64_t j = 0; j < in_.K; ++j) {
        eq(i, j) = from_start * q(i, j);
        ek(i, j) = to_end * k(i, j);
        bk(i, j) = b * from_start * k(i, j);
      }
      for (std::int64_t j = 0; j < in_.V; ++j) bv(i, j) = b * v(i, j);
    }
    for (const Matrix* m : {&kk, &qk, &L}) store(Point::gram, *m);
    store(Point::P, P);
    store(Point::q_scaled, eq);
    store(Point::k_scaled, ek);
    store(Point::S_op, S_);

    Matrix M(n, n);                                // (I+L)^-1 by forward substitution, exact or refused
    for (std::int64_t i = 0; i < n; ++i) {
      M(i, i) = 1;
      for (std::int64_t j = 0; j < i; ++j)
        for (std::int64_t t = j; t < i; ++t) M(i, j) -= L(i, t) * M(t, j);
    }
    partial(L, M, p_);
    if (c_.solve != Solve::substitution) explicit_inverse(L, M);

    Matrix Vn;
    if (c_.vectors == Vectors::wu) {
      store(Point::bv, bv);
      store(Point::bk, bk);
      const Matrix U = product(M, bv), W = product(M, bk);
      partial(L, U, p_);
      partial(L, W, p_);
      store(Point::U, U);
      store(Point::W, W);
      Vn = product(W, S_, &U, -1);
    } else {
      Matrix B = product(eq_of(k, first), S_, &v, -1);
      for (std::int64_t i = 0; i < n; ++i)
        for (std::int64_t j = 0; j < in_.V; ++j) B(i, j) *= beta_(first + i, 0);
      store(Point::bv, B);
      Vn = product(M, B);
      partial(L, Vn, p_);
    }
    for (double x : Vn.x) fits(x, p_);
    store(Point::Vn_o, Vn);
    store(Point::Vn_s, Vn);
    const Matrix cross = product(eq, S_);
    Matrix o = product(P, Vn, &cross);
    put(first, o);
    if (decay(first - 1, first + n - 1) == 0) S_ = Matrix(in_.K, in_.V);
    S_ = product(transposed(ek), Vn, &S_);
    store(Point::S_carried, S_);
  }
  Matrix eq_of(Matrix k, std::int64_t first) const {   // e^G k
    for (std::int64_t i = 0; i < k.rows; ++i)
      if (decay(first - 1, first + i) == 0)
        for (std::int64_t j = 0; j < k.cols; ++j) k(i, j) = 0;
    return k;
  }

  // However the blocks are cut, every intermediate of a blocked inverse is a sum over a subset of the terms of L M, M L
  // or M L M; log-depth products need the powers of L as well.
  void explicit_inverse(const Matrix& L, const Matrix& M) {
    store(Point::M, M);
    const int operand = unit(c_, Point::gram) > 0 ? info(c_.at(Point::gram).format).precision * c_.at(Point::gram).terms : p_;
    partial(L, M, operand);
    partial(M, L, operand);
    Matrix LM(L.rows, L.cols);
    for (std::int64_t i = 0; i < L.rows; ++i)
      for (std::int64_t j = 0; j < L.cols; ++j)
        for (std::int64_t t = 0; t < L.rows; ++t) LM(i, j) += std::fabs(L(i, t) * M(t, j));
    partial(M, LM, p_);
    if (c_.solve != Solve::neumann) return;
    Matrix power(L);
    for (std::int64_t n = 1; n < L.rows; n *= 2) {
      power = product(power, power);
      store(Point::gram, power);
      partial(power, M, p_);
    }
  }

  const Contract& c_;
  const HeadInputs& in_;
  std::span<const std::int64_t> split_;
  ExactHead& out_;
  int p_;
  double scale_ = 1;
  std::vector<bool> reset_;
  Matrix S_, q_, k_, v_, beta_, o_;
};

// Row 6: beta = 0 and g = 0 throughout. The state is stored and handed on, never changed; a query with one entry,
// a power of two, reads one row of it. NaN where the contract leaves a choice.
bool pass_through(const Contract& c, const HeadInputs& in, ExactHead& out) {
  if (in.rule != Rule::gated_delta && in.rule != Rule::delta) return false;
  if (in.beta.empty() || in.h0.empty() || in.T == 0 || !power_of_two(in.scale)) return false;
  for (const float b : in.beta)
    if (b != 0) return false;
  if (in.rule == Rule::gated_delta)
    for (const float g : in.g)
      if (g != 0) return false;
  for (const auto* x : {&in.q, &in.k, &in.v})
    for (const float e : *x)
      if (!std::isfinite(e)) return false;
  for (const Point p : {Point::S_carried, Point::S_op, Point::ht, Point::out})
    if (c.at(p).rounding == Rounding::stochastic) return false;
  auto stored = [&](Point p, double x) { return unit(c, p) > 0 || underflow(c, p) > 0 ? round_to(x, c.at(p)) : x; };
  const double nan = std::numeric_limits<double>::quiet_NaN();
  out.expected.ht.clear();
  out.finer.ht.assign(in.h0.begin(), in.h0.end());
  std::vector<double> read;                        // what a product sees of each element of the state
  for (const float h : in.h0) {
    const double carried = stored(Point::S_carried, h), handed = round_to(carried, c.at(Point::ht));
    out.expected.ht.push_back(handed);
    // Several calls or a carried state narrower than h0: before or after that rounding is the kernel's choice.
    read.push_back(carried == h && handed == h ? stored(Point::S_op, h) : nan);
  }
  out.expected.o.assign(static_cast<std::size_t>(in.T * in.V), nan);
  out.finer.o = out.expected.o;
  for (std::int64_t t = 0; t < in.T; ++t) {
    std::int64_t at = -1, entries = 0;
    for (std::int64_t d = 0; d < in.K; ++d)
      if (in.q[static_cast<std::size_t>(t * in.K + d)] != 0) {
        at = d;
        ++entries;
      }
    if (entries != 1) continue;
    const double q = in.q[static_cast<std::size_t>(t * in.K + at)];
    if (!power_of_two(q)) continue;
    for (std::int64_t j = 0; j < in.V; ++j) {
      const auto i = static_cast<std::size_t>(t * in.V + j), s = static_cast<std::size_t>(at * in.V + j);
      out.expected.o[i] = round_to(in.scale * q * read[s], c.at(Point::out));
      out.finer.o[i] = in.scale * q * static_cast<double>(in.h0[s]);
    }
  }
  return true;
}

}  // namespace

ExactHead exact_head(const Contract& contract, const HeadInputs& in, std::span<const std::int64_t> split) {
  ExactHead out;
  try {
    Tracker(contract, in, split, out).run();
    out.certified = true;
  } catch (const Inexact& e) {
    out.why_not = e.why;
    out.exact = {};
    out.expected = {};
    out.finer = {};
    out.certified = out.pass_through = pass_through(contract, in, out);
    if (out.certified) out.why_not.clear();
  }
  return out;
}

}  // namespace gdn
