// Internal: what bounds are made of (bound.cpp, stage_bound.cpp): the cost of every rounding of a contract in numbers, and the
// error of an explicit inverse of a unit lower triangle. The derivation is in reference/BOUNDS.md, sections 1, 4 and 5.
#pragma once
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "reference/contract.h"
#include "reference/exp.h"
#include "reference/lanes.h"

namespace gdn::bound_detail {

using Index = std::int64_t;
using Vector = std::vector<double>;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

inline std::size_t size(Index n) { return static_cast<std::size_t>(n); }
inline double no_nan(double x) { return x == x ? x : kInfinity; }

// (1+a)(1+b)... - 1 without cancellation.
template <class... More>
inline double compound(double a, More... more) {
  ((a = a + more + a * more), ...);
  return a;
}

// What the contract costs, in numbers. Terms can be switched off one by one, which is how a bound is explained.
struct Costs {
  std::array<double, kPoints> u{}, eta{}, greatest{};
  double arithmetic = 0, accumulate = 0, exp = 0, tiny = 0, vanish = 0, greatest_number = 0, products = 1;
  bool gate_sums = true, raw_gates = true;
  const Contract& contract;

  explicit Costs(const Contract& c) : contract(c) {
    for (std::size_t i = 0; i < kPoints; ++i) {
      const auto p = static_cast<Point>(i);
      u[i] = unit(c, p);
      eta[i] = underflow(c, p);
      // An operand in several terms makes several products of each.
      if (uses(c, p)) products = std::max(products, static_cast<double>(c.at(p).terms) * c.at(p).terms);
      greatest[i] = uses(c, p) && (u[i] > 0 || eta[i] > 0) ? info(c.at(p).format).max_finite : kInfinity;
    }
    // What leaves the kernel as infinity is judged by its value, not by the bound; toward zero it saturates instead.
    for (Point p : {Point::out, Point::ht}) {
      const Rounding r = c.at(p).rounding;
      if (r == Rounding::nearest_even || r == Rounding::nearest_away) greatest[static_cast<std::size_t>(p)] = kInfinity;
    }
    arithmetic = unit_roundoff(gdn::arithmetic(c));
    accumulate = c.accumulator == Accumulator::tensor_core ? 0x1p-23 : arithmetic;
    exp = c.u_exp > 0 ? c.u_exp : 4 * arithmetic;
    greatest_number = info(gdn::arithmetic(c).format).max_finite;
    tiny = std::ldexp(1.0, info(gdn::arithmetic(c).format).emin);  // hardware may flush
    // A decay below the normal range: as exact as its exp where the contract keeps subnormals at D and the decay is used as it is formed.
    const FormatInfo& f = info(gdn::arithmetic(c).format);
    const bool kept = c.form == Form::recurrent && c.at(Point::D).subnormals == Subnormals::keep;
    vanish = std::max(kept ? std::ldexp(2.0, f.emin - f.precision + 1) : tiny, underflow(c, Point::D));
  }
  double at(Point p) const { return u[static_cast<std::size_t>(p)]; }
  double underflow_at(Point p) const { return eta[static_cast<std::size_t>(p)]; }
  double gamma(Index n) const {
    const double x = static_cast<double>(n) * products * accumulate;
    return x < 0.5 ? x / (1 - x) : kInfinity;
  }
  // Error of x + dx once stored at p.
  double store(Point p, double x, double dx) const {
    const auto i = static_cast<std::size_t>(p);
    const double top = x + dx;
    return top <= greatest[i] ? dx + u[i] * top + eta[i] : kInfinity;
  }
  // |x| in double; `relative` is the relative error of converting it at p, 0 when every value is representable there. The
  // absolute error below the normal range enters as eta/relative more magnitude.
  template <class Number>
  void magnitudes(const std::vector<Number>& x, Point p, Vector& out, double& relative) const {
    out.resize(x.size());
    const double absolute = underflow_at(p);
    relative = at(p);
    bool exact = relative == 0 && absolute == 0;
    if (!exact) {
      Store s = contract.at(p);
      const bool fast = s.terms == 1 && s.subnormals == Subnormals::keep;
      s.rounding = Rounding::nearest_even;
      std::size_t wrong = 0;
      auto count = [&]<Format F>() {
        for (const Number value : x) wrong += round_nearest_even<F>(static_cast<double>(value)) != static_cast<double>(value);
      };
      if (fast && s.format == Format::bf16) count.template operator()<Format::bf16>();
      else if (fast && s.format == Format::fp16) count.template operator()<Format::fp16>();
      else if (fast && s.format == Format::tf32) count.template operator()<Format::tf32>();
      else
        for (const Number value : x) wrong += round_to(static_cast<double>(value), s) != static_cast<double>(value);
      exact = wrong == 0;
    }
    if (exact) relative = 0;
    else if (relative == 0) relative = arithmetic;
    const double more = exact || relative == 0 ? 0 : absolute / relative, top = greatest[static_cast<std::size_t>(p)];
    for (std::size_t i = 0; i < x.size(); ++i) {
      out[i] = std::fabs(static_cast<double>(x[i])) + more;
      if (out[i] > top) out[i] = kInfinity;
    }
  }
  // Exact decay e^x of an exponent known within w: largest error of the computed one, exp and store included.
  // exps: how many exponentials may make it up. `top` is the greatest exponent that the algorithm can produce (0 when its sums never increase).
  double decay_error(double x, double w, double top, int exps = 1) const {
    const double most = x + w < top ? x + w : top;
    const double upper = most > 700 ? kInfinity : exp_portable(most);
    const double loss = w < 1e-4 ? w : 1 - exp_portable(-w);       // 1 - e^-w <= w
    const double d = no_nan(upper * loss) + exps * exp * upper + vanish;
    return upper <= greatest[static_cast<std::size_t>(Point::D)] ? d + at(Point::D) * (upper + d) : kInfinity;
  }
  double decay_error_monotone(double x, double w, int exps = 1) const { return std::min(1.0, decay_error(x, w, 0, exps)); }
};

// c += a b for a row a of `terms` and b [terms,width].
inline void add_row(double* c, const double* a, const double* b, Index stride_b, Index terms, Index width) {
  lanes::run<lanes::Products<double>>(c, a, Index{1}, b, stride_b, terms, width);
}

// L, M = (I+L)^-1 with signs, their moduli, and the errors of the kernel's.
struct Triangle {
  Index n = 0;
  Vector l, dl, m, dm;
  Vector m_abs, l_abs;

  void invert() {                                  // m and the moduli, from l
    m.assign(size(n * n), 0.0);
    Vector minus(size(n));
    for (Index i = 0; i < n; ++i) {
      for (Index j = 0; j < i; ++j) minus[size(j)] = -l[size(i * n + j)];
      m[size(i * n + i)] = 1;
      add_row(&m[size(i * n)], minus.data(), m.data(), n, i, i);
    }
    m_abs.resize(size(n * n));
    l_abs.resize(size(n * n));
    for (std::size_t i = 0; i < m_abs.size(); ++i) {
      m_abs[i] = std::fabs(m[i]);
      l_abs[i] = std::fabs(l[i]);
    }
  }
};

// The error dm of forming M from L with error dl, by the contract's solve; of substitution Q = |M| dT, which `close` takes.
class Inverse {
 public:
  Inverse(const Contract& c, const Costs& costs) : c_(c), e_(costs) {}

  void error(Triangle& x) {
    const Index n = x.n;
    x.dm.assign(size(n * n), 0.0);
    if (c_.solve == Solve::substitution) {
      backward(x, 0, n, e_.gamma(n + 1), x.dm);
      return;
    }
    if (c_.solve == Solve::neumann) {
      neumann(x);
    } else {
      Vector other(size(n * n), 0.0);
      const Index b = std::min<Index>(c_.block, n);
      for (Index i = 0; i < n; i += b) diagonal(x, i, std::min(i + b, n), x.dm);
      other = x.dm;
      for (Index i = b; i < n; i += b) extend(x, 0, i, std::min(i + b, n), x.dm);            // block row by block row
      for (Index s = b; s < n; s *= 2)                                                     // or by doubling
        for (Index i = 0; i + s < n; i += 2 * s) extend(x, i, i + s, std::min(i + 2 * s, n), other);
      for (std::size_t i = 0; i < other.size(); ++i) x.dm[i] = std::max(x.dm[i], other[i]);
    }
    for (Index i = 0; i < n; ++i)
      for (Index j = 0; j <= i; ++j) {
        double& d = x.dm[size(i * n + j)];
        if (i == j) d = 0;                         // ones are exact in every format
        else d = no_nan(e_.store(Point::M, x.m_abs[size(i * n + j)], d));
      }
  }

  // out = |M| (dL + gamma (I + |L| + dL)) on rows and columns [a, b).
  void backward(const Triangle& x, Index a, Index b, double gamma, Vector& out) {
    const Index n = x.n;
    Vector dt(size(n * n), 0.0);
    for (Index i = a; i < b; ++i)
      for (Index j = a; j <= i; ++j) {
        const std::size_t at = size(i * n + j);
        dt[at] = i == j ? gamma : no_nan(x.dl[at] + gamma * (x.l_abs[at] + x.dl[at]));
      }
    for (Index i = a; i < b; ++i) {
      add_row(&out[size(i * n + a)], &x.m_abs[size(i * n + a)], &dt[size(a * n + a)], n, i - a + 1, i - a + 1);
      for (Index j = a; j <= i; ++j) out[size(i * n + j)] = no_nan(out[size(i * n + j)]);
    }
  }

  // d <- (I - Q)^-1 (d + Q magnitude): error of a solution by substitution, d [n,width] the error of its right side
  // already multiplied by |M|; Q has diagonal entries.
  static void close(const Vector& q, Index stride, Index a, Index n, const double* magnitude, double* d, Index width) {
    for (Index i = 0; i < n; ++i) {
      const double* qi = &q[size((a + i) * stride + a)];
      add_row(d + i * width, qi, magnitude, width, i + 1, width);
      add_row(d + i * width, qi, d, width, i, width);
      const double pivot = qi[i] < 1 ? 1 / (1 - qi[i]) : kInfinity;
      for (Index j = 0; j < width; ++j) d[i * width + j] = no_nan(d[i * width + j] * pivot);
    }
  }

  // Diagonal block of the inverse, by substitution.
  void diagonal(const Triangle& x, Index a, Index b, Vector& dm) {
    const Index n = x.n, w = b - a;
    Vector q(size(n * n), 0.0), magnitude(size(w * w)), d(size(w * w));
    backward(x, a, b, e_.gamma(n + 1), q);
    for (Index i = 0; i < w; ++i)
      for (Index j = 0; j < w; ++j) {
        magnitude[size(i * w + j)] = x.m_abs[size((a + i) * n + a + j)];
        double rows = 0;                           // underflow of every product
        for (Index m = 0; m <= i; ++m) rows += x.m_abs[size((a + i) * n + a + m)];
        d[size(i * w + j)] = i > j ? rows * static_cast<double>(w) * e_.tiny : 0;
      }
    close(q, n, a, w, magnitude.data(), d.data(), w);
    for (Index i = 0; i < w; ++i)
      for (Index j = 0; j < i; ++j) dm[size((a + i) * n + a + j)] = d[size(i * w + j)];
  }

  // M of rows [b, c), columns [a, b) as - M22 L21 M11, either product first, operands stored at gram.
  void extend(const Triangle& x, Index a, Index b, Index c, Vector& dm) {
    const Index n = x.n, rows = c - b, columns = b - a;
    const double gamma = e_.gamma(n + 1), ug = e_.at(Point::gram), eta = e_.underflow_at(Point::gram);
    auto operand = [&](Index i, Index j) {         // error of M as an operand
      const std::size_t at = size(i * n + j);
      return i == j ? 0.0 : dm[at] + ug * (x.m_abs[at] + dm[at]) + eta;
    };
    Vector right(size(columns * columns), 0.0), right_error(size(columns * columns), 0.0);
    for (Index i = 0; i < columns; ++i)
      for (Index j = 0; j <= i; ++j) {
        const double m = x.m_abs[size((a + i) * n + a + j)], d = operand(a + i, a + j);
        right[size(i * columns + j)] = (1 + gamma) * (m + d);
        right_error[size(i * columns + j)] = gamma * m + (1 + gamma) * d;
      }
    Vector y(size(rows * columns), 0.0), dy(size(rows * columns), 0.0);
    for (Index i = 0; i < rows; ++i) {
      const std::size_t at = size((b + i) * n + a);
      add_row(&y[size(i * columns)], &x.l_abs[at], &x.m_abs[size(a * n + a)], n, columns, columns);
      add_row(&dy[size(i * columns)], &x.dl[at], right.data(), columns, columns, columns);
      add_row(&dy[size(i * columns)], &x.l_abs[at], right_error.data(), columns, columns, columns);
      for (Index j = 0; j < columns; ++j) {
        double &value = y[size(i * columns + j)], &d = dy[size(i * columns + j)];
        d = no_nan(e_.store(Point::gram, value, d + static_cast<double>(n) * e_.tiny));
        const double magnitude = value, error = d;
        value = (1 + gamma) * (magnitude + error);           // times the error of M22
        d = gamma * magnitude + (1 + gamma) * error;         // times |M22|
      }
    }
    Vector left(size(rows));
    for (Index i = 0; i < rows; ++i) {
      double* out = &dm[size((b + i) * n + a)];
      for (Index m = 0; m <= i; ++m) left[size(m)] = operand(b + i, b + m);
      std::fill(out, out + columns, static_cast<double>(n) * e_.tiny);
      add_row(out, left.data(), y.data(), columns, i + 1, columns);
      add_row(out, &x.m_abs[size((b + i) * n + b)], dy.data(), columns, i + 1, columns);
      for (Index j = 0; j < columns; ++j) out[j] = no_nan(out[j]);
    }
  }

  // (I - L)(I + L^2)(I + L^4)...: powers and partial products as they are, which may be far larger than M.
  void neumann(Triangle& x) {
    const Index n = x.n;
    const double gamma = e_.gamma(n + 1), ug = e_.at(Point::gram), eta = e_.underflow_at(Point::gram);
    Vector power(size(n * n)), dpower = x.dl, m(size(n * n), 0.0), dm = x.dl;
    for (std::size_t i = 0; i < power.size(); ++i) m[i] = power[i] = -x.l[i];
    for (Index i = 0; i < n; ++i) m[size(i * n + i)] = 1;
    // d <- error of the product of a (error da) and b (error db), in either order.
    auto product_error = [&](const Vector& a, const Vector& da, const Vector& b, const Vector& db) {
      Vector one(size(n * n), 0.0), two = one;
      auto half = [&](const Vector& l, const Vector& dl, const Vector& r, const Vector& dr, Vector& out) {
        Vector r_top(size(n * n)), r_error(size(n * n)), l_abs(size(n * n));
        for (std::size_t i = 0; i < r.size(); ++i) {
          r_top[i] = (1 + gamma) * (std::fabs(r[i]) + dr[i]);
          r_error[i] = gamma * std::fabs(r[i]) + (1 + gamma) * dr[i];
          l_abs[i] = std::fabs(l[i]);
        }
        for (Index i = 0; i < n; ++i) {
          add_row(&out[size(i * n)], &dl[size(i * n)], r_top.data(), n, i + 1, i + 1);
          add_row(&out[size(i * n)], &l_abs[size(i * n)], r_error.data(), n, i + 1, i + 1);
        }
      };
      half(a, da, b, db, one);
      half(b, db, a, da, two);
      for (std::size_t i = 0; i < one.size(); ++i) one[i] = no_nan(std::max(one[i], two[i]) + static_cast<double>(n) * e_.tiny);
      return one;
    };
    for (Index step = 2; step < n; step *= 2) {
      Vector square(size(n * n), 0.0);
      for (Index i = 0; i < n; ++i) add_row(&square[size(i * n)], &power[size(i * n)], power.data(), n, i, n);
      dpower = product_error(power, dpower, power, dpower);
      for (Index i = 0; i < n; ++i)
        for (Index j = 0; j < i; ++j) {
          double& d = dpower[size(i * n + j)];
          d = no_nan(e_.store(Point::gram, std::fabs(square[size(i * n + j)]), d));
        }
      power.swap(square);
      Vector operand = dm;
      for (std::size_t i = 0; i < operand.size(); ++i)
        if (m[i] != 1 || dm[i] != 0) operand[i] += ug * (std::fabs(m[i]) + dm[i]) + (m[i] != 0 ? eta : 0);
      const Vector added = product_error(m, operand, power, dpower);
      Vector next = m;
      for (Index i = 0; i < n; ++i) add_row(&next[size(i * n)], &m[size(i * n)], power.data(), n, i + 1, n);
      for (std::size_t i = 0; i < next.size(); ++i) dm[i] = no_nan(dm[i] + added[i] + gamma * (std::fabs(m[i]) + dm[i]));
      m.swap(next);
    }
    x.dm = dm;
  }

 private:
  const Contract& c_;
  const Costs& e_;
};

}  // namespace gdn::bound_detail
