// Stages: their tensors, and the certified oracle; see stages.h.
//
// One evaluator, a template over the arithmetic. An arithmetic brings N with
//   N exact(double)   N product(N, N)   N sum(N, N)   N power(double x, double y): e^(x-y)
// Running radius: every N but plain doubles is a value with a bound r of its distance from the exact one. A product errs by
// |a| r_b + |b| r_a + r_a r_b and its own rounding, a sum by r_a + r_b and its own, each widened by 2^-48 for the rounding of
// the radius. An operation that is exact adds nothing: in double-double where no low parts take part, in MPFR by its
// ternary value. So whatever small dyadic inputs give has radius 0. Double-double roundings: product 5u^2, sum 4u^2 (dd.h), and
// 2^-1000 where low parts may be lost below the normal range.
#include "reference/stages.h"

#include <mpfr.h>

#include <algorithm>
#include <atomic>
#include <boost/multiprecision/mpfr.hpp>
#include <cmath>
#include <limits>
#include <mutex>
#include <stdexcept>
#include <unordered_set>

#include "reference/certify.h"
#include "reference/dd.h"
#include "reference/exp.h"
#include "reference/parallel.h"

namespace gdn {
namespace {

using I = std::int64_t;
using Vector = std::vector<double>;
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kWiden = 1 + 0x1p-48;
std::size_t at(I i) { return static_cast<std::size_t>(i); }

// ---- arithmetics

struct Plain {                                     // doubles without a radius
  using N = double;
  static N exact(double x) { return x; }
  static N product(N a, N b) { return a * b; }
  static N sum(N a, N b) { return a + b; }
  static N power(double x, double y) { return exp_portable(x - y); }
};

// The exact value of e^(x-y), x and y fp32 numbers, in `bits` bits.
class Exponential {
 public:
  explicit Exponential(mpfr_prec_t bits) {
    mpfr_init2(difference_, 700);                  // exact: fp32 numbers lie between 2^-149 and 2^128
    mpfr_init2(value, bits);
  }
  ~Exponential() {
    mpfr_clear(difference_);
    mpfr_clear(value);
  }
  Exponential(const Exponential&) = delete;
  Exponential& operator=(const Exponential&) = delete;
  void set(double x, double y) {
    mpfr_set_d(difference_, x, MPFR_RNDN);
    mpfr_sub_d(difference_, difference_, y, MPFR_RNDN);
    mpfr_exp(value, difference_, MPFR_RNDN);
  }
  mpfr_t value;

 private:
  mpfr_t difference_;
};

// hi + lo nearest to x, and a bound of what is left.
void split(const mpfr_t x, double& hi, double& lo, double& rest) {
  hi = mpfr_get_d(x, MPFR_RNDN);
  lo = rest = 0;
  if (!std::isfinite(hi)) return;
  mpfr_t r;
  mpfr_init2(r, mpfr_get_prec(x));
  mpfr_sub_d(r, x, hi, MPFR_RNDN);
  lo = mpfr_get_d(r, MPFR_RNDN);
  mpfr_sub_d(r, r, lo, MPFR_RNDN);
  rest = std::fabs(mpfr_get_d(r, MPFR_RNDA));
  mpfr_clear(r);
}

struct Pairs {                                     // double-double with radius
  struct N {
    DD<double> v{0, 0};
    double r = 0;
    N() = default;
    explicit N(double x) : v{x, 0} {}
    bool zero() const { return v.hi == 0 && r == 0; }
  };
  static N exact(double x) { return N(x); }
  static N product(const N& a, const N& b) {
    N p;
    if (a.zero() || b.zero()) return p;
    p.v = mul(a.v, b.v);
    const double size = std::fabs(p.v.hi);
    const double own = (a.v.lo == 0 && b.v.lo == 0 ? 0 : 5 * 0x1p-106 * size) + (size < 0x1p-900 ? 0x1p-1000 : 0);
    p.r = (std::fabs(a.v.hi) * b.r + std::fabs(b.v.hi) * a.r + a.r * b.r + own) * kWiden;
    return p;
  }
  static N sum(const N& a, const N& b) {
    N s;
    s.v = add(a.v, b.v);
    s.r = (a.r + b.r + (a.v.lo == 0 && b.v.lo == 0 ? 0 : 4 * 0x1p-106 * std::fabs(s.v.hi))) * kWiden;
    return s;
  }
  static N power(double x, double y) {
    if (x == y) return N(1);
    N p;
    Exponential e(212);
    e.set(x, y);
    double rest;
    split(e.value, p.v.hi, p.v.lo, rest);
    p.r = (rest + 0x1p-200 * p.v.hi) * kWiden + (p.v.hi < 0x1p-900 ? 0x1p-1000 : 0);
    return p;
  }
  static void value(const N& x, double& hi, double& lo, double& radius) {
    hi = x.v.hi;
    lo = x.v.lo;
    radius = x.r;
  }
};

template <unsigned digits>
struct Many {                                      // MPFR with radius
  using Number = boost::multiprecision::number<boost::multiprecision::mpfr_float_backend<digits, boost::multiprecision::allocate_stack>, boost::multiprecision::et_off>;
  struct N {
    Number v{0};
    double r = 0;
    N() = default;
    explicit N(double x) : v(x) {}
    bool zero() const { return r == 0 && mpfr_zero_p(v.backend().data()); }
    double size() const { return std::fabs(mpfr_get_d(v.backend().data(), MPFR_RNDA)); }
  };
  static double own(const N& x, int ternary) {
    return ternary == 0 ? 0 : std::ldexp(x.size(), 1 - static_cast<int>(mpfr_get_prec(x.v.backend().data()))) + 0x1p-1074;
  }
  static N exact(double x) { return N(x); }
  static N product(const N& a, const N& b) {
    N p;
    if (a.zero() || b.zero()) return p;
    const int ternary = mpfr_mul(p.v.backend().data(), a.v.backend().data(), b.v.backend().data(), MPFR_RNDN);
    p.r = (a.r > 0 || b.r > 0 ? a.size() * b.r + b.size() * a.r + a.r * b.r : 0) + own(p, ternary);
    p.r *= kWiden;
    return p;
  }
  static N sum(const N& a, const N& b) {
    N s;
    const int ternary = mpfr_add(s.v.backend().data(), a.v.backend().data(), b.v.backend().data(), MPFR_RNDN);
    s.r = (a.r + b.r + own(s, ternary)) * kWiden;
    return s;
  }
  static N power(double x, double y) {
    if (x == y) return N(1);
    N p;
    Exponential e(mpfr_get_prec(p.v.backend().data()));
    e.set(x, y);
    mpfr_set(p.v.backend().data(), e.value, MPFR_RNDN);
    p.r = own(p, 1);
    return p;
  }
  static void value(const N& x, double& hi, double& lo, double& radius) {
    double rest;
    split(x.v.backend().data(), hi, lo, rest);
    radius = (x.r + rest) * kWiden;
  }
};

// ---- the stages, rows of one chunk and value head; matrices row-major, L and M [n,n]

template <class A>
struct Steps {
  using N = typename A::N;
  using Row = std::vector<N>;

  static N negative(const N& x) { return A::product(A::exact(-1), x); }
  static N dot(const double* a, const double* b, I n) {
    N s = A::exact(0);
    for (I i = 0; i < n; ++i) s = A::sum(s, A::product(A::exact(a[i]), A::exact(b[i])));
    return s;
  }
  static Row gate_sum(I n, const Vector& g) {
    Row G;
    bool infinite = false;
    N s = A::exact(0);
    for (I r = 0; r < n; ++r) {
      infinite = infinite || g[at(r)] == -kInfinity;
      if (!infinite) s = A::sum(s, A::exact(g[at(r)]));
      G.push_back(infinite ? A::exact(-kInfinity) : s);
    }
    return G;
  }
  static Row gram(I n, I K, const Vector& k, const Vector& beta, const Vector& G) {
    Row L(at(n * n), A::exact(0));
    for (I i = 0; i < n; ++i)
      for (I j = 0; j < i; ++j)
        L[at(i * n + j)] = A::product(A::product(A::exact(beta[at(i)]), dot(&k[at(i * K)], &k[at(j * K)], K)), A::power(G[at(i)], G[at(j)]));
    return L;
  }
  static Row inverse(I n, const Vector& L) {
    Row M(at(n * n), A::exact(0));
    for (I i = 0; i < n; ++i) {
      M[at(i * n + i)] = A::exact(1);
      for (I p = 0; p < i; ++p) {
        const N factor = A::exact(-L[at(i * n + p)]);
        for (I j = 0; j <= p; ++j) M[at(i * n + j)] = A::sum(M[at(i * n + j)], A::product(factor, M[at(p * n + j)]));
      }
    }
    return M;
  }
  static Row times(I n, I width, const Vector& M, const Row& right) {   // of a lower triangle
    Row x(at(n * width), A::exact(0));
    for (I i = 0; i < n; ++i)
      for (I p = 0; p <= i; ++p)
        for (I j = 0; j < width; ++j) x[at(i * width + j)] = A::sum(x[at(i * width + j)], A::product(A::exact(M[at(i * n + p)]), right[at(p * width + j)]));
    return x;
  }
  static Row u(I n, I V, const Vector& v, const Vector& beta, const Vector& M) {
    Row right;
    for (I i = 0; i < n * V; ++i) right.push_back(A::product(A::exact(beta[at(i / V)]), A::exact(v[at(i)])));
    return times(n, V, M, right);
  }
  static Row w(I n, I K, const Vector& k, const Vector& beta, const Vector& G, const Vector& M) {
    Row right;
    for (I i = 0; i < n; ++i) {
      const N factor = A::product(A::exact(beta[at(i)]), A::power(G[at(i)], 0));
      for (I d = 0; d < K; ++d) right.push_back(A::product(factor, A::exact(k[at(i * K + d)])));
    }
    return times(n, K, M, right);
  }
  // Vn = U - W S; then S becomes the state after the chunk.
  static Row step(I n, I K, I V, const Vector& k, const Vector& G, const Vector& W, const Vector& U, Row& S) {
    Row Vn;
    for (I i = 0; i < n; ++i)
      for (I j = 0; j < V; ++j) {
        N x = A::exact(U[at(i * V + j)]);
        for (I d = 0; d < K; ++d) x = A::sum(x, A::product(A::exact(-W[at(i * K + d)]), S[at(d * V + j)]));
        Vn.push_back(x);
      }
    if (n == 0) return Vn;
    const N whole = A::power(G[at(n - 1)], 0);
    Row decayed;
    for (I i = 0; i < n; ++i) {
      const N f = A::power(G[at(n - 1)], G[at(i)]);
      for (I j = 0; j < V; ++j) decayed.push_back(A::product(f, Vn[at(i * V + j)]));
    }
    for (I d = 0; d < K; ++d)
      for (I j = 0; j < V; ++j) {
        N s = A::product(whole, S[at(d * V + j)]);
        for (I i = 0; i < n; ++i) s = A::sum(s, A::product(A::exact(k[at(i * K + d)]), decayed[at(i * V + j)]));
        S[at(d * V + j)] = s;
      }
    return Vn;
  }
  static Row output(I n, I K, I V, double scale, const Vector& q, const Vector& k, const Vector& G, const Vector& Vn, const Vector& S) {
    Row o;
    std::vector<N> scores(at(n));
    for (I i = 0; i < n; ++i) {
      for (I j = 0; j <= i; ++j) scores[at(j)] = A::product(dot(&q[at(i * K)], &k[at(j * K)], K), A::power(G[at(i)], G[at(j)]));
      const N first = A::power(G[at(i)], 0);
      for (I c = 0; c < V; ++c) {
        N read = A::exact(0);
        for (I d = 0; d < K; ++d) read = A::sum(read, A::product(A::exact(q[at(i * K + d)]), A::exact(S[at(d * V + c)])));
        N x = A::product(first, read);
        for (I j = 0; j <= i; ++j) x = A::sum(x, A::product(scores[at(j)], A::exact(Vn[at(j * V + c)])));
        o.push_back(A::product(A::exact(scale), x));
      }
    }
    return o;
  }
};

// ---- one unit of work: a chunk and value head, of chunk_states a sequence and value head

struct Job { std::size_t first, count; I hv, sequence; };    // chunks of chunk_places

std::vector<Job> jobs_of(const Problem& p, const std::vector<ChunkPlace>& places) {
  std::vector<Job> jobs;
  for (I hv = 0; hv < p.value_heads; ++hv) {
    if (p.stage != Stage::chunk_states) {
      for (std::size_t i = 0; i < places.size(); ++i) jobs.push_back({i, 1, hv, places[i].sequence});
      continue;
    }
    std::size_t i = 0;
    for (I n = 0; n < p.sequences(); ++n) {
      std::size_t end = i;
      while (end < places.size() && places[end].sequence == n) ++end;
      jobs.push_back({i, end - i, hv, n});            // of an empty sequence: no chunk, and ht = h0
      i = end;
    }
  }
  return jobs;
}

class Inputs {
 public:
  Inputs(const Problem& p, const TensorSet& t) : p_(p), t_(t) {}
  // Rows of a token tensor; of L and M the lower triangle [n,n].
  Vector rows(const char* name, const ChunkPlace& c, I hv) const {
    const Tensor& t = t_.find(std::string_view(name))->second;
    const I heads = t.shape[1], width = t.shape.size() > 2 ? t.shape[2] : 1, h = heads == p_.value_heads ? hv : hv / (p_.value_heads / heads);
    const I taken = *name == 'L' || *name == 'M' ? c.rows : width;
    Vector x;
    for (I r = 0; r < c.rows; ++r)
      for (I e = 0; e < taken; ++e) x.push_back(t.at(((c.token + r) * heads + h) * width + e));
    return x;
  }
  Vector state(const char* name, I row, I hv) const {
    const I size = p_.key_dim * p_.value_dim;
    Vector x(at(size), 0.0);
    if (const auto t = t_.find(std::string_view(name)); t != t_.end())
      for (I i = 0; i < size; ++i) x[at(i)] = t->second.at((row * p_.value_heads + hv) * size + i);
    return x;
  }

 private:
  const Problem& p_;
  const TensorSet& t_;
};

// sink(output number in stage_outputs, element, value) for every element that belongs to the job.
template <class A, class Sink>
void evaluate(const Problem& p, const Inputs& in, const std::vector<ChunkPlace>& places, const Job& job, Sink&& sink) {
  using S = Steps<A>;
  const I K = p.key_dim, V = p.value_dim, C = p.chunk, HV = p.value_heads, hv = job.hv;
  const auto rows = [&](int tensor, const ChunkPlace& c, const typename S::Row& x, I width, I stride) {
    for (I r = 0; r < c.rows; ++r)
      for (I e = 0; e < width; ++e) sink(tensor, ((c.token + r) * HV + hv) * stride + e, x[at(r * width + e)]);
  };
  const auto triangle = [&](const ChunkPlace& c, const typename S::Row& x) {
    rows(0, c, x, c.rows, C);
    for (I r = 0; r < c.rows; ++r)
      for (I e = c.rows; e < C; ++e) sink(0, ((c.token + r) * HV + hv) * C + e, A::exact(0));
  };
  if (p.stage == Stage::chunk_states) {
    typename S::Row state;
    for (const double x : in.state("h0", job.sequence, hv)) state.push_back(A::exact(x));
    for (std::size_t i = job.first; i < job.first + job.count; ++i) {
      const ChunkPlace& c = places[i];
      for (I e = 0; e < K * V; ++e) sink(0, (static_cast<I>(i) * HV + hv) * K * V + e, state[at(e)]);
      rows(1, c, S::step(c.rows, K, V, in.rows("k", c, hv), in.rows("G", c, hv), in.rows("W", c, hv), in.rows("U", c, hv), state), V, V);
    }
    for (I e = 0; p.final_state && e < K * V; ++e) sink(2, (job.sequence * HV + hv) * K * V + e, state[at(e)]);
    return;
  }
  const ChunkPlace& c = places[job.first];
  const I n = c.rows;
  switch (p.stage) {
    case Stage::gate_sum: return rows(0, c, S::gate_sum(n, in.rows("g", c, hv)), 1, 1);
    case Stage::gram: return triangle(c, S::gram(n, K, in.rows("k", c, hv), in.rows("beta", c, hv), in.rows("G", c, hv)));
    case Stage::inverse: return triangle(c, S::inverse(n, in.rows("L", c, hv)));
    case Stage::uw: {
      const Vector beta = in.rows("beta", c, hv), M = in.rows("M", c, hv);
      rows(0, c, S::u(n, V, in.rows("v", c, hv), beta, M), V, V);
      return rows(1, c, S::w(n, K, in.rows("k", c, hv), beta, in.rows("G", c, hv), M), K, K);
    }
    default:
      return rows(0, c, S::output(n, K, V, p.effective_scale(), in.rows("q", c, hv), in.rows("k", c, hv), in.rows("G", c, hv), in.rows("Vn", c, hv),
                                  in.state("states", static_cast<I>(job.first), hv)), V, V);
  }
}


void require_stage(const Problem& p) {
  if (p.operation != Operation::stages) throw std::invalid_argument(to_string(p) + ": is no stage");
}

void check_inputs(const Run& run) {
  require_stage(run.problem);
  for (const StageTensor& want : stage_inputs(run.problem)) {
    const auto t = run.inputs.find(std::string_view(want.name));
    if (t == run.inputs.end() || t->second.shape != want.shape)
      throw std::invalid_argument(to_string(run.problem) + ": input " + want.name + " is missing or not of shape " + shape_text(want.shape));
    for (I i = 0, n = t->second.size() / std::max<I>(1, want.shape[0]) * run.problem.tokens(); std::string_view(want.name) == "G" && i < n; ++i)
      if (!std::isfinite(t->second.at(i))) throw std::invalid_argument(to_string(run.problem) + ": G is not finite at element " + std::to_string(i));
  }
}

// Stores a value; true where more bits may help.
bool put(TruthTensor& t, I element, double hi, double lo, double radius) {
  const std::size_t i = at(element);
  if (const double sum = hi + lo; std::isfinite(sum) && sum != hi) {
    lo = (hi - sum) + lo;
    hi = sum;
  }
  t.radius[i] = oracle_detail::store_radius(hi, lo, radius);
  t.hi[i] = hi;
  t.lo[i] = lo;
  return oracle_detail::decided(hi, lo, t.radius[i]) != oracle_detail::Decided::all;
}

}  // namespace

std::vector<ChunkPlace> chunk_places(const Problem& p) {
  std::vector<ChunkPlace> all;
  const auto offsets = p.offsets();
  for (std::size_t n = 0; n < p.lengths.size(); ++n)
    for (I t = 0, c = 0; t < p.lengths[n]; t += p.chunk, ++c) all.push_back({static_cast<I>(n), c, offsets[n] + t, std::min(p.chunk, p.lengths[n] - t)});
  return all;
}

I chunk_count(const Problem& p) {
  I count = 0;
  for (const I n : p.lengths) count += (n + p.chunk - 1) / p.chunk;
  return count;
}

std::vector<StageTensor> stage_inputs(const Problem& p) {
  require_stage(p);
  const I T = p.tokens() + p.padding, HV = p.value_heads, K = p.key_dim, V = p.value_dim;
  const StageTensor q{"q", p.io, {T, p.heads, K}}, k{"k", p.io, {T, p.heads, K}}, v{"v", p.io, {T, HV, V}}, g{"g", p.gate, {T, HV}}, beta{"beta", p.beta, {T, HV}},
      G{"G", DType::f32, {T, HV}}, L{"L", DType::f32, {T, HV, p.chunk}}, M{"M", p.io, {T, HV, p.chunk}}, U{"U", p.io, {T, HV, V}}, W{"W", p.io, {T, HV, K}},
      Vn{"Vn", p.io, {T, HV, V}}, states{"states", p.io, {chunk_count(p), HV, K, V}};
  switch (p.stage) {
    case Stage::gate_sum: return {g};
    case Stage::gram: return {k, beta, G};
    case Stage::inverse: return {L};
    case Stage::uw: return {k, v, beta, G, M};
    case Stage::chunk_states: {
      std::vector<StageTensor> all{k, G, W, U};
      if (p.initial_state) all.push_back({"h0", p.state, {p.sequences(), HV, K, V}});
      return all;
    }
    case Stage::output: return {q, k, G, Vn, states};
  }
  return {};
}

std::vector<StageTensor> stage_outputs(const Problem& p) {
  require_stage(p);
  const I T = p.tokens() + p.padding, HV = p.value_heads, K = p.key_dim, V = p.value_dim;
  switch (p.stage) {
    case Stage::gate_sum: return {{"G", DType::f32, {T, HV}}};
    case Stage::gram: return {{"L", DType::f32, {T, HV, p.chunk}}};
    case Stage::inverse: return {{"M", p.io, {T, HV, p.chunk}}};
    case Stage::uw: return {{"U", p.io, {T, HV, V}}, {"W", p.io, {T, HV, K}}};
    case Stage::chunk_states: {
      std::vector<StageTensor> all{{"states", p.io, {chunk_count(p), HV, K, V}}, {"Vn", p.io, {T, HV, V}}};
      if (p.final_state) all.push_back({"ht", p.state, {p.sequences(), HV, K, V}});
      return all;
    }
    case Stage::output: return {{"o", p.io, {T, HV, V}}};
  }
  return {};
}

std::optional<double> by_definition(const Problem& p, std::string_view tensor, I element) {
  if (p.operation != Operation::stages || (tensor != "L" && tensor != "M")) return std::nullopt;
  const I row = element / p.chunk / p.value_heads, column = element % p.chunk;
  const auto offsets = p.offsets();
  const auto next = std::upper_bound(offsets.begin(), offsets.end(), row);
  if (next == offsets.end()) return std::nullopt;  // nobody's
  const I diagonal = (row - *(next - 1)) % p.chunk;
  if (column < diagonal) return std::nullopt;
  return tensor == "M" && column == diagonal ? 1 : 0;
}

Truth stage_oracle(const Run& run, OracleStats* stats, const std::function<void(double)>& progress) {
  check_inputs(run);
  const Problem& p = run.problem;
  const std::vector<StageTensor> outputs = stage_outputs(p);
  Truth truth;
  std::vector<TruthTensor*> tensors;
  for (const StageTensor& o : outputs) {
    TruthTensor& t = truth[o.name];
    std::size_t size = 1;
    for (const I n : o.shape) size *= at(n);
    t.shape = o.shape;
    t.hi.assign(size, 0.0);
    t.lo.assign(size, 0.0);
    t.radius.assign(size, std::numeric_limits<float>::infinity());
  }
  for (const StageTensor& o : outputs) tensors.push_back(&truth.find(std::string_view(o.name))->second);
  const Inputs in(p, run.inputs);
  const std::vector<ChunkPlace> places = chunk_places(p);
  const std::vector<Job> jobs = jobs_of(p, places);
  std::atomic<I> done{0}, many{0};
  std::mutex mutex;
  const auto one = [&](I index, int) {
    const Job& job = jobs[at(index)];
    std::vector<std::unordered_set<I>> open(tensors.size());
    std::size_t left = 0;
    const auto pass = [&]<class A>(bool first) {
      left = 0;
      evaluate<A>(p, in, places, job, [&](int tensor, I element, const typename A::N& x) {
        if (!first && !open[at(tensor)].count(element)) return;
        double hi, lo, radius;
        A::value(x, hi, lo, radius);
        const bool more = put(*tensors[at(tensor)], element, hi, lo, radius);
        left += more;
        if (more) open[at(tensor)].insert(element);
        else open[at(tensor)].erase(element);
      });
    };
    pass.template operator()<Pairs>(true);
    if (left) ++many;
    if (left) pass.template operator()<Many<77>>(false);
    if (left) pass.template operator()<Many<154>>(false);
    if (left) pass.template operator()<Many<308>>(false);
    const double part = static_cast<double>(++done) / static_cast<double>(jobs.size());
    if (progress) {
      const std::lock_guard lock(mutex);
      progress(part);
    }
  };
  parallel_for(static_cast<I>(jobs.size()), max_threads(), one, oracle_detail::free_thread_caches);
  if (stats) {
    for (const TruthTensor* t : tensors)
      for (std::size_t i = 0; i < t->hi.size(); ++i) {
        if (std::isinf(t->radius[i]) && t->hi[i] == 0) continue;     // nobody's
        const auto d = oracle_detail::decided(t->hi[i], t->lo[i], t->radius[i]);
        ++stats->elements;
        stats->uncertified_fp64 += d != oracle_detail::Decided::all;
        stats->balls += d == oracle_detail::Decided::nothing;
      }
    stats->multiprecision_heads += many;
  }
  return truth;
}

TensorSet stage_inputs_from(const Problem& p, const TensorSet& layer) {
  require_stage(p);
  TensorSet all = layer;
  const std::vector<ChunkPlace> places = chunk_places(p);
  for (int s = 0; s < static_cast<int>(p.stage); ++s) {
    Problem before = p;
    before.stage = static_cast<Stage>(s);
    std::vector<Tensor> made;
    for (const StageTensor& o : stage_outputs(before)) {
      Tensor& t = made.emplace_back(o.dtype, o.shape);
      for (I i = 0; i < t.size(); ++i) t.set(i, std::numeric_limits<double>::quiet_NaN());
    }
    const Inputs in(before, all);
    const std::vector<Job> jobs = jobs_of(before, places);
    for (std::size_t i = 0; i < jobs.size(); ++i)
      evaluate<Plain>(before, in, places, jobs[i], [&](int tensor, I element, double x) { made[at(tensor)].set(element, x); });
    std::size_t i = 0;
    for (const StageTensor& o : stage_outputs(before)) all[o.name] = std::move(made[i++]);
  }
  TensorSet inputs;
  for (const StageTensor& want : stage_inputs(p)) inputs[want.name] = all.at(want.name);
  inputs["cu_seqlens"] = layer.at("cu_seqlens");
  return inputs;
}

}  // namespace gdn
