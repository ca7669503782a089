// Bounds of the stages; see stage_bound.h. Formulas in reference/BOUNDS.md, section 6; names follow it.
#include "reference/stage_bound.h"

#include <cstdio>
#include <stdexcept>

#include "reference/bound_parts.h"
#include "reference/parallel.h"

namespace gdn {
namespace {

using namespace bound_detail;

Point point_of(std::string_view tensor) {
  if (tensor == "G") return Point::G;
  if (tensor == "L") return Point::gram;
  if (tensor == "M") return Point::M;
  if (tensor == "U") return Point::U;
  if (tensor == "W") return Point::W;
  if (tensor == "Vn") return Point::Vn_o;
  if (tensor == "states") return Point::S_op;
  return tensor == "ht" ? Point::ht : Point::out;
}

// The contract with the tensor's last rounding at `out`, where every form has one.
Contract with_last(const Contract& c, const Problem& p, std::string_view tensor) {
  Contract last = c;
  last.at(Point::out) = c.at(point_of(tensor));
  Problem one;
  one.io = tensor == "G" || tensor == "L" ? DType::f32 : tensor == "ht" ? p.state : p.io;
  return for_problem(last, one);
}

// What an output costs as it leaves the kernel.
struct Last {
  struct Rounding { double u, eta, greatest; };
  std::vector<Rounding> roundings;                 // what overflows in the last is judged by its value
  double store(double x, double dx) const {
    for (const Rounding& r : roundings) dx = x + dx <= r.greatest ? dx + r.u * (x + dx) + r.eta : kInfinity;
    return no_nan(dx);
  }
};

struct StageCosts {
  Costs costs;
  std::map<std::string, Last, std::less<>> last;
  StageCosts(const Contract& c, const Problem& p) : costs(c) {
    for (const StageTensor& o : stage_outputs(p)) {
      const std::vector<Store> stores = stage_stores(c, p, o.name);
      for (const Store& s : stores) {
        Contract one = c;
        one.at(Point::out) = s;
        last[o.name].roundings.push_back({unit(one, Point::out), underflow(one, Point::out), &s == &stores.back() ? kInfinity : info(s.format).max_finite});
      }
    }
  }
  void forget(Point p) {                           // stored once: as the output
    costs.u[static_cast<std::size_t>(p)] = costs.eta[static_cast<std::size_t>(p)] = 0;
    costs.greatest[static_cast<std::size_t>(p)] = kInfinity;
  }
};

class StageBound {
 public:
  StageBound(const Contract& c, StageCosts costs, const Run& run, StageBounds& to)
      : c_(c), costs_(std::move(costs)), e_(costs_.costs), run_(run), p_(run.problem), to_(to), K_(p_.key_dim), V_(p_.value_dim), u_(e_.arithmetic), tiny_(e_.tiny),
        places_(chunk_places(p_)) {
    if (p_.stage == Stage::inverse) costs_.forget(Point::M);
  }

  Index jobs() const { return p_.value_heads * (p_.stage == Stage::chunk_states ? p_.sequences() : static_cast<Index>(places_.size())); }
  void job(Index index) {
    const Index hv = index % p_.value_heads, at = index / p_.value_heads;
    if (p_.stage == Stage::chunk_states) return states(at, hv);
    const ChunkPlace& c = places_[size(at)];
    switch (p_.stage) {
      case Stage::gate_sum: return gate_sum(c, hv);
      case Stage::gram: return gram(c, hv);
      case Stage::inverse: return inverse(c, hv);
      case Stage::uw: return uw(c, hv);
      default: return output(c, at, hv);
    }
  }
  // The job that an element of an output belongs to; -1: nobody's.
  Index job_of(std::string_view tensor, Index element) const {
    Index width = 1;
    for (const StageTensor& o : stage_outputs(p_))
      if (tensor == o.name)
        for (std::size_t d = 2; d < o.shape.size(); ++d) width *= o.shape[d];
    if (tensor == "residual") width = p_.chunk;
    const Index hv = element / width % p_.value_heads, row = element / width / p_.value_heads;
    if (tensor == "ht") return row * p_.value_heads + hv;
    for (std::size_t i = 0; i < places_.size(); ++i) {
      const ChunkPlace& c = places_[i];
      if (tensor == "states" ? static_cast<Index>(i) == row : c.token <= row && row < c.token + c.rows)
        return (p_.stage == Stage::chunk_states ? c.sequence : static_cast<Index>(i)) * p_.value_heads + hv;
    }
    return -1;
  }

 private:
  Vector rows(const char* name, const ChunkPlace& c, Index hv) const {
    const Tensor& t = run_.inputs.find(std::string_view(name))->second;
    const Index heads = t.shape[1], width = t.shape.size() > 2 ? t.shape[2] : 1, h = heads == p_.value_heads ? hv : hv / (p_.value_heads / heads);
    const Index taken = *name == 'L' || *name == 'M' ? c.rows : width;
    Vector x(size(c.rows * taken));
    for (Index r = 0; r < c.rows; ++r)
      for (Index e = 0; e < taken; ++e) x[size(r * taken + e)] = t.at(((c.token + r) * heads + h) * width + e);
    return x;
  }
  void put(const char* tensor, const ChunkPlace& c, Index hv, Index row, Index width, Index column, double value, double error) {
    to_.find(tensor)->second[size(((c.token + row) * p_.value_heads + hv) * width + column)] = costs_.last.find(tensor)->second.store(std::fabs(value), no_nan(error)) * (1 + 1e-6);
  }
  // Magnitudes as the arithmetic sees them, and the relative error of seeing them so.
  struct Seen {
    Vector x;
    double u = 0;
  };
  Seen seen(const Vector& x, Point p) const {
    Seen s;
    e_.magnitudes(x, p, s.x, s.u);
    return s;
  }
  double gram_error(double value, double absolute, double u_left, double u_right) const {
    const double d = compound(u_left, u_right, e_.gamma(K_ + 6)) * absolute + static_cast<double>(K_) * tiny_;
    return absolute < 0x1p127 ? e_.store(Point::gram, std::fabs(value), d) : kInfinity;
  }

  // Decays of given sums, and their errors.
  double width(double G) const { return (2 * u_ + e_.at(Point::G)) * std::fabs(G) + (G == 0 ? 0 : e_.underflow_at(Point::G)); }
  double first(double G) const { return exp_portable(G); }
  double first_error(double G) const { return G == 0 ? 0 : e_.decay_error_monotone(G, e_.gate_sums ? width(G) : 0); }
  struct Decay { double value, error; };
  Decay pair(double later, double earlier, bool same) const {
    if (same) return {1, 0};
    const double between = later - earlier, w = e_.gate_sums ? width(later) + width(earlier) + 3 * u_ * std::fabs(between) : 0;
    if (later == 0 && earlier == 0) return {1, 0};
    return {exp_portable(between), between > 0 ? e_.decay_error(between, w, kInfinity, 2) : e_.decay_error_monotone(between, w, 2)};
  }

  void gate_sum(const ChunkPlace& c, Index hv) {
    const Vector g = rows("g", c, hv);
    double total = 0, sums = 0;
    for (Index r = 0; r < c.rows; ++r) {
      total += g[size(r)];
      sums += std::fabs(total);
      const double depth = std::ceil(std::log2(static_cast<double>(r + 2)));
      const double order = c_.gate_sum == GateSum::prefix_tree ? 2 * depth * std::fabs(total) : std::max(sums, depth * std::fabs(total));
      if (std::isinf(total)) put("G", c, hv, r, 1, 0, 0, 0);
      else put("G", c, hv, r, 1, 0, total, std::fabs(total) < 0x1p127 ? u_ * order + 2 * u_ * std::fabs(total) : kInfinity);
    }
  }

  void gram(const ChunkPlace& c, Index hv) {
    const Index n = c.rows;
    const Vector k = rows("k", c, hv), beta = rows("beta", c, hv), G = rows("G", c, hv);
    const Seen ka = seen(k, Point::k_in), ba = seen(beta, Point::beta);
    const double cost = compound(4 * u_, ba.u);
    for (Index i = 0; i < n; ++i)
      for (Index j = 0; j < i; ++j) {
        double kk = 0, absolute = 0;
        for (Index d = 0; d < K_; ++d) {
          kk += k[size(i * K_ + d)] * k[size(j * K_ + d)];
          absolute += ka.x[size(i * K_ + d)] * ka.x[size(j * K_ + d)];
        }
        const Decay D = pair(G[size(i)], G[size(j)], false);
        const double d = gram_error(kk, absolute, ka.u, ka.u), more = D.error * (1 + cost) + D.value * cost;
        const double error = ba.x[size(i)] * (no_nan(d * (D.value + more)) + no_nan(std::fabs(kk) * more)) + 2 * tiny_;
        put("L", c, hv, i, p_.chunk, j, beta[size(i)] * kk * D.value, error);
      }
  }

  void inverse(const ChunkPlace& c, Index hv) {
    const Index n = c.rows;
    Triangle x;
    x.n = n;
    x.l = rows("L", c, hv);
    for (Index i = 0; i < n; ++i)                  // the rest is no part of L
      for (Index j = i; j < n; ++j) x.l[size(i * n + j)] = 0;
    const Seen la = seen(x.l, Point::gram);
    x.dl.assign(size(n * n), 0.0);
    for (Index i = 0; i < n; ++i)
      for (Index j = 0; j < i; ++j) x.dl[size(i * n + j)] = la.u * la.x[size(i * n + j)];
    x.invert();
    Inverse(c_, e_).error(x);
    const Vector residual = residual_bound(x, la.u);
    Vector loss(size(n * n), 0.0);                 // by the last rounding, which may leave its format
    const double top = info(stage_stores(c_, p_, "M").back().format).max_finite;
    for (Index i = 0; i < n; ++i)
      for (Index j = 0; j < i; ++j) {
        const std::size_t at = size(i * n + j);
        put("M", c, hv, i, p_.chunk, j, x.m[at], x.dm[at]);
        loss[at] = x.m_abs[at] + x.dm[at] <= top ? costs_.last.find("M")->second.store(x.m_abs[at] + x.dm[at], 0) : kInfinity;
      }
    std::vector<double>& all = to_.find("residual")->second;
    for (Index i = 0; i < n; ++i)
      for (Index j = 0; j <= i; ++j) {
        double r = residual[size(i * n + j)] + loss[size(i * n + j)];
        for (Index p = j; p < i; ++p) r += x.l_abs[size(i * n + p)] * loss[size(p * n + j)];
        all[size(((c.token + i) * p_.value_heads + hv) * p_.chunk + j)] = no_nan(r) * (1 + 1e-6);
      }
  }

  // |(I+L) X - I| before X is stored: of substitution gamma (I+|L|)|X|; of M21 = - M22 L21 M11, in any order,
  // R22 |L21||X11| + (I+|L22|) f |X22||L21||X11|, f the roundings of the operands and of two products.
  Vector residual_bound(const Triangle& x, double u_l) const {
    const Index n = x.n;
    Vector X = x.m_abs, r(size(n * n), 0.0);
    for (std::size_t i = 0; i < X.size(); ++i) X[i] += x.dm[i];
    const double gamma = e_.gamma(n + 1), ug = e_.at(Point::gram), eta = e_.underflow_at(Point::gram) + tiny_;
    const double f = compound(ug, u_l, ug, gamma, ug, gamma);
    const auto l = [&](Index i, Index j) { return i == j ? 1.0 : x.l_abs[size(i * n + j)]; };
    double rows_l = 0;
    for (Index i = 0; i < n; ++i) {
      double sum = 0;
      for (Index j = 0; j < i; ++j) sum += x.l_abs[size(i * n + j)];
      rows_l = std::max(rows_l, sum);
    }
    const double floor = static_cast<double>(n) * eta * (1 + rows_l);          // of the products of one row
    if (c_.solve == Solve::neumann) {
      for (Index i = 0; i < n; ++i)
        for (Index j = 0; j <= i; ++j)
          for (Index p = j; p <= i; ++p) r[size(i * n + j)] = no_nan(r[size(i * n + j)] + l(i, p) * x.dm[size(p * n + j)]);
      return r;
    }
    const Index b = std::min<Index>(c_.block, n);
    for (Index a = 0; a < n; a += b)
      for (Index i = a; i < std::min(a + b, n); ++i)
        for (Index j = a; j <= i; ++j) {
          double s = floor;
          for (Index p = j; p <= i; ++p) s += (gamma * l(i, p) + (1 + gamma) * x.dl[size(i * n + p)]) * X[size(p * n + j)];
          r[size(i * n + j)] = no_nan(s);
        }
    const auto extend = [&](Vector& to, Index first, Index middle, Index end) {   // rows [middle, end), columns [first, middle)
      const Index columns = middle - first, count = end - middle;
      Vector A(size(count * columns), 0.0), E(size(count * columns), 0.0);
      for (Index i = 0; i < count; ++i)
        for (Index p = first; p < middle; ++p)
          for (Index j = first; j <= p; ++j) A[size(i * columns + j - first)] += x.l_abs[size((middle + i) * n + p)] * X[size(p * n + j)];
      for (Index i = 0; i < count; ++i)
        for (Index p = 0; p <= i; ++p) {
          const double m = X[size((middle + i) * n + middle + p)];
          for (Index j = 0; j < columns; ++j) E[size(i * columns + j)] += (f * m + eta) * A[size(p * columns + j)] + m * floor;
        }
      for (Index i = 0; i < count; ++i)
        for (Index j = 0; j < columns; ++j) {
          double s = floor;
          for (Index p = 0; p <= i; ++p) s += to[size((middle + i) * n + middle + p)] * A[size(p * columns + j)] + l(middle + i, middle + p) * E[size(p * columns + j)];
          to[size((middle + i) * n + first + j)] = no_nan(s);
        }
    };
    Vector other = r;
    for (Index i = b; i < n; i += b) extend(r, 0, i, std::min(i + b, n));
    for (Index s = b; s < n; s *= 2)
      for (Index i = 0; i + s < n; i += 2 * s) extend(other, i, i + s, std::min(i + 2 * s, n));
    for (std::size_t i = 0; i < r.size(); ++i) r[i] = std::max(r[i], other[i]);
    return r;
  }

  // M right, M [n,n] given: errors of the product into `error`, magnitudes of the exact product into `value`.
  void product(Index n, Index width, const Vector& M, const Seen& Ma, const Vector& right, const Vector& right_abs, const Vector& right_error, Vector& value, Vector& error) const {
    const double gamma = e_.gamma(n + 1);
    value.assign(size(n * width), 0.0);
    error.assign(size(n * width), static_cast<double>(n) * tiny_);
    for (Index i = 0; i < n; ++i)
      for (Index p = 0; p <= i; ++p) {
        const double m = M[size(i * n + p)], ma = Ma.x[size(i * n + p)];
        for (Index j = 0; j < width; ++j) {
          const std::size_t at = size(p * width + j);
          value[size(i * width + j)] += m * right[at];
          error[size(i * width + j)] += Ma.u * ma * (1 + gamma) * (right_abs[at] + right_error[at]) + ma * (gamma * right_abs[at] + (1 + gamma) * right_error[at]);
        }
      }
  }

  void uw(const ChunkPlace& c, Index hv) {
    const Index n = c.rows;
    const Vector k = rows("k", c, hv), v = rows("v", c, hv), beta = rows("beta", c, hv), G = rows("G", c, hv), M = rows("M", c, hv);
    const Seen ka = seen(k, Point::k_in), va = seen(v, Point::v_in), ba = seen(beta, Point::beta), Ma = seen(M, Point::M);
    const double by_beta = compound(ba.u, va.u, u_);
    Vector right(size(n * V_)), absolute(size(n * V_)), error(size(n * V_)), value, total;
    for (Index i = 0; i < n * V_; ++i) {
      right[size(i)] = beta[size(i / V_)] * v[size(i)];
      absolute[size(i)] = ba.x[size(i / V_)] * va.x[size(i)];
      error[size(i)] = no_nan(e_.store(Point::bv, absolute[size(i)], by_beta * absolute[size(i)] + tiny_));
    }
    product(n, V_, M, Ma, right, absolute, error, value, total);
    for (Index i = 0; i < n * V_; ++i) put("U", c, hv, i / V_, V_, i % V_, value[size(i)], total[size(i)]);
    right.resize(size(n * K_));
    absolute.resize(size(n * K_));
    error.resize(size(n * K_));
    for (Index i = 0; i < n; ++i) {
      const double e = first(G[size(i)]), rounding = compound(ba.u, ka.u, 2 * u_), cost = first_error(G[size(i)]) * (1 + rounding) + e * rounding;
      for (Index d = 0; d < K_; ++d) {
        const std::size_t at = size(i * K_ + d);
        const double bk = ba.x[size(i)] * ka.x[at];
        right[at] = beta[size(i)] * e * k[at];
        absolute[at] = e * bk;
        error[at] = no_nan(e_.store(Point::bk, absolute[at], cost * bk + tiny_));
      }
    }
    product(n, K_, M, Ma, right, absolute, error, value, total);
    for (Index i = 0; i < n * K_; ++i) put("W", c, hv, i / K_, K_, i % K_, value[size(i)], total[size(i)]);
  }

  // The state of the kernel is kept with an error for every element. A chunk takes it through A = e^(G_C) I - sum_r f_r k_r W_r^T, the matrix
  // of the given W, and adds what a chunk started at that state errs by.
  void states(Index sequence, Index hv) {
    const Index KV = K_ * V_, HV = p_.value_heads;
    Vector S(size(KV), 0.0), E(size(KV), 0.0);
    if (const auto h0 = run_.inputs.find("h0"); h0 != run_.inputs.end())
      for (Index i = 0; i < KV; ++i) S[size(i)] = h0->second.at((sequence * HV + hv) * KV + i);
    const double us = e_.at(Point::S_op), eta_s = e_.underflow_at(Point::S_op), gamma_k = e_.gamma(K_ + 1), operand = compound(us, gamma_k);
    const double top_operand = std::min(e_.greatest[size(static_cast<Index>(Point::S_op))], 0x1p127);
    std::vector<double>& out = to_.find("states")->second;
    bool any = false;
    for (std::size_t number = 0; number < places_.size(); ++number) {
      const ChunkPlace& c = places_[number];
      if (c.sequence != sequence) continue;
      any = true;
      const Index n = c.rows;
      for (Index i = 0; i < KV; ++i)
        out[size((static_cast<Index>(number) * HV + hv) * KV + i)] = costs_.last.find("states")->second.store(std::fabs(S[size(i)]), E[size(i)]) * (1 + 1e-6);
      const Vector k = rows("k", c, hv), G = rows("G", c, hv), W = rows("W", c, hv), U = rows("U", c, hv);
      const Seen ka = seen(k, Point::k_in), Wa = seen(W, Point::W), Ua = seen(U, Point::U);
      bool fits = true;
      for (Index i = 0; i < KV; ++i) fits = fits && std::fabs(S[size(i)]) + E[size(i)] <= top_operand;
      // Vn: own error of a kernel at its own state, and the error carried into it.
      Vector vn(size(n * V_)), top(size(n * V_)), own(size(n * V_));
      for (Index r = 0; r < n; ++r)
        for (Index j = 0; j < V_; ++j) {
          double read = 0, carried = 0, d = 0;
          for (Index i = 0; i < K_; ++i) {
            const double w = Wa.x[size(r * K_ + i)], s = std::fabs(S[size(i * V_ + j)]) + E[size(i * V_ + j)];
            read += W[size(r * K_ + i)] * S[size(i * V_ + j)];
            carried += std::fabs(W[size(r * K_ + i)]) * E[size(i * V_ + j)];
            d += w * (Wa.u * (1 + operand) + operand) * s + (1 + gamma_k) * w * (1 + Wa.u) * eta_s;
          }
          const std::size_t at = size(r * V_ + j);
          const double ua = Ua.x[at];
          vn[at] = U[at] - read;
          top[at] = no_nan(std::fabs(vn[at]) + carried);
          d += static_cast<double>(K_ + 1) * tiny_ + Ua.u * ua + gamma_k * ua * (1 + Ua.u);
          d += u_ * (top[at] + d);
          own[at] = fits && top[at] + d < 0x1p127 ? no_nan(d) : kInfinity;
          put("Vn", c, hv, r, V_, j, vn[at], own[at] + carried);
        }
      // The state after it.
      const double e = first(G[size(n - 1)]), gamma_s = e_.gamma(n + 2), keep = compound(u_, u_, gamma_s), kept = first_error(G[size(n - 1)]) * (1 + keep) + e * keep;
      const double eta_k = e_.underflow_at(Point::k_scaled), eta_v = e_.underflow_at(Point::Vn_s);
      Vector added(size(n * V_)), loose(size(V_), static_cast<double>(n + 3) * tiny_), f(size(n));
      for (Index r = 0; r < n; ++r) {
        const Decay F = pair(G[size(n - 1)], G[size(r)], r == n - 1);
        f[size(r)] = F.value;
        const double rounding = compound(keep, ka.u, e_.at(Point::k_scaled), e_.at(Point::Vn_s)), cost = F.error * (1 + rounding) + F.value * rounding;
        for (Index j = 0; j < V_; ++j) {
          const std::size_t at = size(r * V_ + j);
          const double most = top[at] + own[at], more = (1 + gamma_s) * (eta_v + tiny_) * (1 + F.value + cost);
          added[at] = most <= e_.greatest[size(static_cast<Index>(Point::Vn_s))] ? no_nan((F.value + cost) * own[at]) + (cost > 0 ? cost * top[at] : 0) + more : kInfinity;
          loose[size(j)] += (1 + gamma_s) * eta_k * most;
        }
      }
      Vector A(size(K_ * K_), 0.0), next(size(KV), 0.0), error(size(KV), 0.0);
      for (Index d = 0; d < K_; ++d) {
        Vector row(size(K_), 0.0), sum(size(K_), 0.0);
        for (Index r = 0; r < n; ++r)
          for (Index i = 0; i < K_; ++i) {
            const double x = f[size(r)] * k[size(r * K_ + d)] * W[size(r * K_ + i)];
            row[size(i)] -= x;
            sum[size(i)] += std::fabs(x);
          }
        row[size(d)] += e;
        for (Index i = 0; i < K_; ++i) A[size(d * K_ + i)] = std::fabs(row[size(i)]) + 0x1p-40 * (sum[size(i)] + e);   // its own rounding in double
      }
      for (Index d = 0; d < K_; ++d) {
        double* x = &error[size(d * V_)];
        for (Index j = 0; j < V_; ++j) x[j] = (kept > 0 ? kept * (std::fabs(S[size(d * V_ + j)]) + E[size(d * V_ + j)]) : 0) + loose[size(j)];
        add_row(x, &A[size(d * K_)], E.data(), V_, K_, V_);
        for (Index r = 0; r < n; ++r) {
          const double kd = ka.x[size(r * K_ + d)];
          for (Index j = 0; j < V_; ++j) x[j] += kd * added[size(r * V_ + j)];
        }
        for (Index j = 0; j < V_; ++j) {
          double s = e > 0 ? e * S[size(d * V_ + j)] : 0;
          for (Index r = 0; r < n; ++r) s += f[size(r)] * k[size(r * K_ + d)] * vn[size(r * V_ + j)];
          next[size(d * V_ + j)] = s;
          if (c_.cadence == Cadence::chunk) x[j] = e_.store(Point::S_carried, std::fabs(s), no_nan(x[j]));
          x[j] = no_nan(x[j]);
        }
      }
      S.swap(next);
      E.swap(error);
    }
    if (!p_.final_state) return;
    std::vector<double>& ht = to_.find("ht")->second;
    for (Index i = 0; i < KV; ++i) {
      double d = E[size(i)];
      if (c_.cadence == Cadence::call && any) d = e_.store(Point::S_carried, std::fabs(S[size(i)]), d);
      ht[size((sequence * HV + hv) * KV + i)] = costs_.last.find("ht")->second.store(std::fabs(S[size(i)]), no_nan(d)) * (1 + 1e-6);
    }
  }

  void output(const ChunkPlace& c, Index number, Index hv) {
    const Index n = c.rows, KV = K_ * V_;
    const Vector q = rows("q", c, hv), k = rows("k", c, hv), G = rows("G", c, hv), Vn = rows("Vn", c, hv);
    const Seen qa = seen(q, Point::q_in), ka = seen(k, Point::k_in), Va = seen(Vn, Point::Vn_o);
    Vector S(size(KV));
    for (Index i = 0; i < KV; ++i) S[size(i)] = run_.inputs.find("states")->second.at((number * p_.value_heads + hv) * KV + i);
    const Seen Sa = seen(S, Point::S_op);
    const double scale = std::fabs(p_.effective_scale()), small = std::min(1.0, scale), gamma = e_.gamma(K_ + n + 1), eta_q = e_.underflow_at(Point::q_scaled) / small;
    for (Index r = 0; r < n; ++r) {
      Vector value(size(V_), 0.0), total(size(V_), 0.0), read(size(V_), 0.0), column(size(V_), 0.0);
      for (Index d = 0; d < K_; ++d)
        for (Index j = 0; j < V_; ++j) {
          read[size(j)] += q[size(r * K_ + d)] * S[size(d * V_ + j)];
          total[size(j)] += qa.x[size(r * K_ + d)] * Sa.x[size(d * V_ + j)];
          column[size(j)] += Sa.x[size(d * V_ + j)];
        }
      const double e = first(G[size(r)]), rounding = compound(qa.u, e_.at(Point::q_scaled), Sa.u, gamma, 3 * u_), cost = first_error(G[size(r)]) * (1 + rounding) + e * rounding;
      for (Index j = 0; j < V_; ++j) {
        value[size(j)] = e * read[size(j)];
        total[size(j)] = total[size(j)] < 0x1p127 ? cost * total[size(j)] + eta_q * column[size(j)] + static_cast<double>(K_ + n + 4) * tiny_ : kInfinity;
      }
      for (Index j = 0; j <= r; ++j) {
        double qk = 0, absolute = 0;
        for (Index d = 0; d < K_; ++d) {
          qk += q[size(r * K_ + d)] * k[size(j * K_ + d)];
          absolute += qa.x[size(r * K_ + d)] * ka.x[size(j * K_ + d)];
        }
        const Decay D = pair(G[size(r)], G[size(j)], r == j);
        const double d = gram_error(qk, absolute, qa.u, ka.u), more = D.error * (1 + 2 * u_) + D.value * 2 * u_, P = std::fabs(qk) * D.value;
        const double before = no_nan(d * (D.value + more)) + no_nan(std::fabs(qk) * more) + tiny_;
        // Scores may be stored after the scale is in, which makes their underflow coarser by it.
        const double dP = no_nan(e_.store(Point::P, P, before) + e_.underflow_at(Point::P) * (1 / small - 1));
        for (Index i = 0; i < V_; ++i) {
          const double x = Va.x[size(j * V_ + i)], dx = Va.u * x;
          value[size(i)] += qk * D.value * Vn[size(j * V_ + i)];
          total[size(i)] += (1 + gamma) * dP * (x + dx) + P * (gamma * x + (1 + gamma) * dx);
        }
      }
      for (Index j = 0; j < V_; ++j) put("o", c, hv, r, V_, j, scale * value[size(j)], scale * total[size(j)] * (1 + 3 * u_) + 3 * u_ * scale * std::fabs(value[size(j)]) + tiny_);
    }
  }

  const Contract& c_;
  StageCosts costs_;
  const Costs& e_;
  const Run& run_;
  const Problem& p_;
  StageBounds& to_;
  Index K_, V_;
  double u_, tiny_;
  std::vector<ChunkPlace> places_;
};

StageBounds empty_bounds(const Problem& p) {
  StageBounds all;
  for (const StageTensor& o : stage_outputs(p)) {
    std::size_t count = 1;
    for (const Index n : o.shape) count *= size(n);
    all[o.name].assign(count, 0.0);
  }
  if (p.stage == Stage::inverse) all["residual"] = all.at("M");
  return all;
}

}  // namespace

StageBounds stage_bound(const Contract& contract, const Run& run) {
  StageBounds all = empty_bounds(run.problem);
  const StageCosts costs(contract, run.problem);
  StageBound bound(contract, costs, run, all);
  parallel_for(bound.jobs(), [&](Index i) { bound.job(i); });      // of elements that no other job has
  return all;
}

std::vector<Store> stage_stores(const Contract& contract, const Problem& p, std::string_view tensor) {
  const Store own = contract.at(point_of(tensor)), last = with_last(contract, p, tensor).at(Point::out);
  if (last == own || info(own.format).precision * own.terms >= info(arithmetic(contract).format).precision) return {last};
  return {own, last};
}

std::string explain_stage_bound(const Contract& contract, const Run& run, std::string_view tensor, std::int64_t element) {
  StageBounds all = empty_bounds(run.problem);
  const StageCosts costs(contract, run.problem);
  const auto value = [&](const StageCosts& with) {
    StageBound bound(contract, with, run, all);
    const Index job = bound.job_of(tensor, element);
    if (job < 0) throw std::invalid_argument("bound: element " + std::to_string(element) + " of " + std::string(tensor) + " is nobody's");
    bound.job(job);
    return all.find(tensor)->second[size(element)];
  };
  const double whole = value(costs);
  char text[64];
  std::snprintf(text, sizeof text, "bound %.3g", whole);
  std::string line = text;
  if (!(whole < kInfinity)) return line + ": a value may leave the range of its format";
  if (whole == 0) return line;
  std::vector<std::pair<double, std::string>> shares;
  const auto without = [&](const std::string& name, auto&& change) {
    StageCosts fewer = costs;
    change(fewer);
    shares.emplace_back((whole - value(fewer)) / whole, name);
  };
  for (std::size_t i = 0; i < kPoints; ++i)
    if (costs.costs.u[i] > 0 || costs.costs.eta[i] > 0)
      without(std::string(name(static_cast<Point>(i))) + "=" + to_string(contract.points[i]), [&](StageCosts& f) { f.costs.u[i] = f.costs.eta[i] = 0; });
  without("the last rounding", [](StageCosts& f) {
    for (auto& [unused, last] : f.last) last = {};
  });
  without("accumulation", [](StageCosts& f) { f.costs.accumulate = 0; });
  without("arithmetic", [](StageCosts& f) { f.costs.arithmetic = 0; });
  without("exp", [](StageCosts& f) { f.costs.exp = 0; });
  without("gate sums", [](StageCosts& f) { f.costs.gate_sums = false; });
  std::stable_sort(shares.begin(), shares.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  line += ":";
  for (std::size_t i = 0; i < shares.size() && (i < 4 && (i == 0 || shares[i].first >= 0.02)); ++i) {
    std::snprintf(text, sizeof text, "%s %s %.0f%%", i ? "," : "", shares[i].second.c_str(), 100 * shares[i].first);
    line += text;
  }
  return line;
}

}  // namespace gdn
