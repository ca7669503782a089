// The oracle: truth of one head and of a run. Double-double with a certified radius (dd_block.inc, in vector
// lanes), then whatever that leaves open by the slow paths of certify.cpp.
//
// Radius. Let s be the exact state row of one value channel, s^ the computed one, |s^ - s| <= rho (Euclidean norm),
// u = 2^-53, c = max(1, |1 - beta |k|^2|). The exact step is s' = alpha (I - beta k k^T) s + beta v k; the norm of
// I - beta k k^T is c, so an old error grows at most by alpha c, and the errors made in the step are added. All
// quantities on the right are the computed ones. They come from (first order in u; constants below leave room for more):
//   dot    s^.k in groups of 8 (Sum in dd_block.inc), N = ceil(K/8) groups, X = sum |s_d k_d| <= |s||k|:
//          low products 2u^2 X, their sums with the residuals 9u^2 X, sums of these within groups 42u^2 X, folds
//          (18 + 3N) u^2 X: 71 + 3N, taken as C = (80 + 3N) u^2. A decayed key (gate per key channel) is a
//          double-double with error 3u^2 and brings one more low product: 92 + 3N, taken as (100 + 3N) u^2.
//   y      = beta (v - alpha w): w by its dot error, DWTimesDW3 5u^2, alpha itself u^2, DWPlusFP and DWTimesFP3 2u^2
//          each: beta [ C alpha|s||k| + 12u^2 (|v| + alpha|w|) ]; exact for rules without delta term.
//   s'     = alpha s + y k, fused form without intermediate normalisation: alpha s 6u^2 and alpha's own u^2, y k 2u^2,
//          low sums 7u^2 alpha|s| + 5u^2 |y||k|: 14 and 7, taken as 16u^2 alpha|s| + 8u^2 |y||k|.
//   o      = scale s'.q: |scale||q| (rho' + C|s'|) + 4u^2 |o|.
// Residuals of products below 2^-1022 are lost: with K <= 2^20 all of them together stay below the floor 2^-1000,
// which is added in the bracket of y and to s' and o, unless the row and what is written are exactly zero.
//     rho' = alpha c rho + beta|k| [ C alpha|s||k| + 12u^2 (|v| + alpha|w|) + 2^-1000 ] + 16u^2 alpha|s| + 8u^2 |y||k| + 2^-1000
//     d_o  = |scale||q| (rho' + C|s'|) + 4u^2 |o| + 2^-1000
// each line widened by 1 + 1e-12 + K 2^-51 for the rounding of norms and of the radius itself. Confirmed against
// 256-bit arithmetic in suites/self/test_oracle_radius.cpp.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <memory>
#include <mutex>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

#include "reference/certify.h"
#include "reference/complex.h"
#include "reference/dd.h"
#include "reference/gates.h"
#include "reference/oracle_block.h"
#include "reference/parallel.h"
#include "reference/recurrence.h"
#include "reference/layer.h"
#include "reference/stages.h"
#include "reference/strand.h"
#include "reference/truth.h"

namespace gdn {
namespace oracle_detail {

double careful_norm(const double* x, std::int64_t n, std::int64_t stride) {
  double top = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    const double a = std::fabs(x[i * stride]);
    if (!(a <= std::numeric_limits<double>::max())) return std::numeric_limits<double>::infinity();
    top = std::max(top, a);
  }
  if (top == 0) return 0;
  const int e = std::ilogb(top);
  double sum = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    const double y = std::ldexp(x[i * stride], -e);
    sum += y * y;
  }
  return std::ldexp(std::sqrt(sum), e) * (1 + 1e-13) + 0x1p-1074;
}

bool isa_available(const char* name) {
  const std::string isa(name);
#ifdef GDN_X86_ISA
  if (isa == "avx2") return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  if (isa == "avx512") return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#endif
  return isa == "portable";
}

Isa choose_isa() {
  constexpr Isa all[] = {
#ifdef GDN_X86_ISA
      {"avx512", avx512::run_block},
      {"avx2", avx2::run_block},
#endif
      {"portable", portable::run_block}};
  const char* wanted = std::getenv("GDN_ISA");
  for (const Isa& isa : all)
    if ((!wanted || std::string(wanted) == isa.name) && isa_available(isa.name)) return isa;
  throw std::invalid_argument("GDN_ISA=" + std::string(wanted) + ": not one of portable, avx2, avx512, or this machine does not have it");
}

namespace {

using Floats = std::vector<float>;

bool worth_threads(const HeadInputs& in) { return (in.T + 1) * in.K * in.V > 100000; }

void check_sizes(const HeadInputs& in) {
  const auto expect = [](const char* what, const Floats& x, std::int64_t n, bool may_be_empty) {
    if ((may_be_empty && x.empty()) || static_cast<std::int64_t>(x.size()) == n) return;
    throw std::invalid_argument("oracle: " + std::string(what) + " has " + std::to_string(x.size()) + " elements, expected " + std::to_string(n));
  };
  if (in.T < 0 || in.K < 1 || in.V < 1) throw std::invalid_argument("oracle: T < 0, K < 1 or V < 1");
  expect("q", in.q, in.T * in.K, false);
  expect("k", in.k, in.T * in.K, false);
  expect("v", in.v, in.T * in.V, false);
  expect("g", in.g, gate_per_key_channel(in.rule) ? in.T * in.K : in.T, true);
  expect("beta", in.beta, in.T, true);
  expect("a", in.a, in.T, true);
  expect("h0", in.h0, in.K * in.V, true);
}

// ---- non-finite inputs ----

bool finite_gate(float g) { return !std::isnan(g) && g != std::numeric_limits<float>::infinity(); }

bool all_finite(const HeadInputs& in) {
  for (const Floats* x : {&in.q, &in.k, &in.v, &in.beta, &in.h0})
    for (float y : *x) if (!std::isfinite(y)) return false;
  return std::all_of(in.g.begin(), in.g.end(), finite_gate);
}

HeadInputs without_non_finite(HeadInputs in) {
  for (Floats* x : {&in.q, &in.k, &in.v, &in.beta, &in.h0})
    for (float& y : *x) if (!std::isfinite(y)) y = 0;
  for (float& g : in.g) if (!finite_gate(g)) g = 0;
  for (float& a : in.a) if (std::isnan(a)) a = 0;
  if (!in.a.empty()) set_raw_gates(in);
  return in;
}

// A double with the knowledge whether a non-finite input took part in it.
struct Tainted {
  double x;
  bool tainted;
  Tainted(double v = 0, bool t = false) : x(v), tainted(t) {}  // NOLINT: implicit on purpose
};
Tainted operator*(Tainted a, Tainted b) { return {a.x * b.x, a.tainted || b.tainted}; }
Tainted operator+(Tainted a, Tainted b) { return {a.x + b.x, a.tainted || b.tainted}; }
Tainted operator-(Tainted a, Tainted b) { return {a.x - b.x, a.tainted || b.tainted}; }
Tainted& operator+=(Tainted& a, Tainted b) { return a = a + b; }

struct TaintedSource {
  const HeadInputs& in;
  std::int64_t channel;
  static Tainted of(float x) { return {static_cast<double>(x), !std::isfinite(x)}; }
  Tainted value(std::int64_t t) const { return of(in.v[static_cast<std::size_t>(t * in.V + channel)]); }
  Tainted beta(std::int64_t t) const { return in.beta.empty() ? Tainted(1) : of(in.beta[static_cast<std::size_t>(t)]); }
  Tainted gate(std::int64_t i) const {
    if (in.g.empty() || !has_gate(in.rule)) return 1;
    const float g = in.g[static_cast<std::size_t>(i)];
    return {std::exp(static_cast<double>(g)), !finite_gate(g)};
  }
  Tainted alpha(std::int64_t t) const { return gate(t); }
  Tainted alpha(std::int64_t t, std::int64_t d) const { return gate(t * in.K + d); }
  Tainted alpha_read(std::int64_t t) const { return gate_per_key_channel(in.rule) ? Tainted(1) : alpha(t); }
  Tainted key(std::int64_t t, std::int64_t d) const { return of(in.k[static_cast<std::size_t>(t * in.K + d)]); }
  Tainted query(std::int64_t t, std::int64_t d) const { return of(in.q[static_cast<std::size_t>(t * in.K + d)]); }
  Tainted read_key(std::int64_t t, std::int64_t d) const { return gate_per_key_channel(in.rule) ? alpha(t, d) * key(t, d) : key(t, d); }
};

void put_tainted(TruthTensor& x, std::size_t at, double value) {
  x.hi[at] = std::isfinite(value) ? std::numeric_limits<double>::quiet_NaN() : value;
  x.lo[at] = 0;
  x.radius[at] = 0;
}

struct TaintedWatch {
  HeadTruth& truth;
  const HeadInputs& in;
  std::int64_t channel;
  void begin() {}
  void element(const Tainted&) {}
  void token(std::int64_t t, const Tainted&, const Tainted&, const Tainted&, const Tainted& out) {
    if (out.tainted) put_tainted(truth.o, static_cast<std::size_t>(t * in.V + channel), out.x * in.scale);
  }
};

// Overwrites what non-finite inputs reach by what doubles make of it; always an infinity or NaN, radius 0.
void taint(const HeadInputs& in, HeadTruth& truth) {
  parallel_for(in.V, [&](std::int64_t v) {
    std::vector<Tainted> state(static_cast<std::size_t>(in.K));
    if (!in.h0.empty())
      for (std::int64_t d = 0; d < in.K; ++d) state[static_cast<std::size_t>(d)] = TaintedSource::of(in.h0[static_cast<std::size_t>(d * in.V + v)]);
    TaintedWatch watch{truth, in, v};
    recurrence(in.rule, PlainArithmetic<Tainted>{}, TaintedSource{in, v}, in.T, in.K, state.data(), watch);
    for (std::int64_t d = 0; d < in.K; ++d)
      if (state[static_cast<std::size_t>(d)].tainted) put_tainted(truth.ht, static_cast<std::size_t>(d * in.V + v), state[static_cast<std::size_t>(d)].x);
  }, worth_threads(in));
}

// ---- finite inputs ----

std::vector<double> widened(const Floats& x) { return {x.begin(), x.end()}; }

struct Prepared {                                  // operands of the block function, shared by all channels
  std::vector<double> q, k, alpha_hi, alpha_lo, read_hi, read_lo, beta;
  std::vector<TokenRadius> radius;
  BlockJob job;
};

Prepared prepare(const HeadInputs& in) {
  Prepared p;
  const bool many = gate_per_key_channel(in.rule), delta = has_delta(in.rule), gated = has_gate(in.rule) && !in.g.empty();
  p.q = widened(in.q);
  p.k = widened(in.k);
  p.beta = in.beta.empty() ? std::vector<double>(static_cast<std::size_t>(in.T), 1.0) : widened(in.beta);
  const std::size_t gates = static_cast<std::size_t>(many ? in.T * in.K : in.T);
  p.alpha_hi.assign(gates, 1.0);
  p.alpha_lo.assign(gates, 0.0);
  if (gated) {                                     // one exponential per distinct gate
    const bool raw = !in.a.empty();
    const Floats& given = raw ? in.a : in.g;
    Floats distinct(given);
    std::sort(distinct.begin(), distinct.end());
    distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
    std::vector<DD<double>> table(distinct.size());
    constexpr std::size_t piece = 64;
    const auto pieces = static_cast<std::int64_t>((distinct.size() + piece - 1) / piece);
    const auto exponentials = [&](std::int64_t at, int) {
      const std::size_t first = static_cast<std::size_t>(at) * piece;
      for (std::size_t i = first; i < std::min(first + piece, distinct.size()); ++i) table[i] = raw ? raw_decay(distinct[i], in.A_log, in.dt_bias) : decay(distinct[i]);
    };
    parallel_for(pieces, pieces > 4 ? max_threads() : 1, exponentials, free_thread_caches);
    for (std::size_t i = 0; i < gates; ++i) {
      const auto at = std::lower_bound(distinct.begin(), distinct.end(), given[i]) - distinct.begin();
      p.alpha_hi[i] = table[static_cast<std::size_t>(at)].hi;
      p.alpha_lo[i] = table[static_cast<std::size_t>(at)].lo;
    }
  }
  if (many) {
    p.read_hi.resize(gates);
    p.read_lo.resize(gates);
    for (std::size_t i = 0; i < gates; ++i) {
      const DD<double> r = mul(DD<double>{p.alpha_hi[i], p.alpha_lo[i]}, p.k[i]);
      p.read_hi[i] = r.hi;
      p.read_lo[i] = r.lo;
    }
  }
  p.radius.resize(static_cast<std::size_t>(in.T));
  for (std::int64_t t = 0; t < in.T; ++t) {
    TokenRadius& r = p.radius[static_cast<std::size_t>(t)];
    const float* k = in.k.data() + t * in.K;
    const double beta = p.beta[static_cast<std::size_t>(t)];
    // The low part of alpha is cut off below 2^-1074: 2^-964 times 16u^2 covers that; zero and one are exact.
    r.alpha = 0;
    for (std::int64_t d = 0; d < (many ? in.K : 1); ++d) {
      const std::size_t i = static_cast<std::size_t>(many ? t * in.K + d : t);
      const bool exact = !gated || in.g[i] == 0 || in.g[i] == -std::numeric_limits<float>::infinity();
      r.alpha = std::max(r.alpha, exact ? p.alpha_hi[i] : p.alpha_hi[i] * (1 + 0x1p-50) + 0x1p-964);
    }
    r.carry = r.alpha * (delta ? growth(beta, k, in.K) : 1);
    r.key = norm(k, in.K);
    r.beta_k = delta ? std::fabs(beta) * r.key : 0;
    r.query = std::fabs(in.scale) * norm(in.q.data() + t * in.K, in.K);
  }
  BlockJob& j = p.job;
  j.rule = in.rule;
  j.T = in.T;
  j.K = in.K;
  j.V = in.V;
  j.q = p.q.data();
  j.k = p.k.data();
  j.read_hi = many ? p.read_hi.data() : nullptr;
  j.read_lo = many ? p.read_lo.data() : nullptr;
  j.alpha_hi = p.alpha_hi.data();
  j.alpha_lo = p.alpha_lo.data();
  j.beta = p.beta.data();
  j.v = in.v.data();
  j.h0 = in.h0.empty() ? nullptr : in.h0.data();
  j.radius = p.radius.data();
  j.scale = in.scale;
  j.dot_error = (80 + (many ? 20 : 0) + 3 * static_cast<double>((in.K + kGroup - 1) / kGroup)) * 0x1p-106;
  j.inflate = 1 + 1e-12 + static_cast<double>(in.K) * 0x1p-51;
  return p;
}

TruthTensor empty_tensor(std::vector<std::int64_t> shape) {
  TruthTensor x;
  std::size_t n = 1;
  for (std::int64_t s : shape) n *= static_cast<std::size_t>(s);
  x.shape = std::move(shape);
  x.hi.assign(n, 0);
  x.lo.assign(n, 0);
  x.radius.assign(n, 0);
  return x;
}

struct FreeAligned { void operator()(double* p) const { ::operator delete[](p, std::align_val_t{64}); } };
using Workspace = std::unique_ptr<double[], FreeAligned>;
Workspace aligned(std::int64_t n) { return Workspace(static_cast<double*>(::operator new[](static_cast<std::size_t>(n) * sizeof(double), std::align_val_t{64}))); }

struct HeadEffort { bool multiprecision = false, exact = false; };

// Stores the radius of one element; true when it needs a slow path.
bool left_open(TruthTensor& x, std::size_t at, double radius, double limit) {
  double hi = x.hi[at], lo = x.lo[at];
  if (std::isfinite(hi) && radius <= limit) {
    const float r = store_radius(hi, lo, radius);
    x.radius[at] = r;
    return hi != x.hi[at] || decided(hi, lo, r) != Decided::all;
  }
  return true;
}

HeadTruth finite_head(const HeadInputs& in, HeadEffort& effort) {
  HeadTruth truth{empty_tensor({in.T, in.V}), empty_tensor({in.K, in.V})};
  const Isa isa = choose_isa();
  const Prepared prepared = prepare(in);
  const std::int64_t blocks = (in.V + kLanes - 1) / kLanes;
  // Per channel: which elements the fast path leaves open; empty where none.
  std::vector<std::vector<char>> open_o(static_cast<std::size_t>(in.V)), open_s(static_cast<std::size_t>(in.V));
  parallel_for(blocks, [&](std::int64_t b) {
    const std::int64_t first = b * kLanes, count = std::min(kLanes, in.V - first);
    std::vector<double> o_radius(static_cast<std::size_t>(in.T * kLanes)), o_limit(o_radius.size());
    double s_radius[kLanes], s_limit[kLanes];
    const Workspace workspace = aligned(4 * in.K * kLanes);
    BlockJob job = prepared.job;
    job.o_hi = truth.o.hi.data();
    job.o_lo = truth.o.lo.data();
    job.s_hi = truth.ht.hi.data();
    job.s_lo = truth.ht.lo.data();
    job.o_radius = o_radius.data();
    job.o_limit = o_limit.data();
    job.s_radius = s_radius;
    job.s_limit = s_limit;
    isa.run(job, first, count, workspace.get());
    const auto mark = [](std::vector<char>& open, std::int64_t row, std::int64_t rows) {
      if (open.empty()) open.resize(static_cast<std::size_t>(rows));
      open[static_cast<std::size_t>(row)] = 1;
    };
    for (std::int64_t t = 0; t < in.T; ++t)
      for (std::int64_t i = 0; i < count; ++i) {
        const std::size_t local = static_cast<std::size_t>(t * kLanes + i);
        if (left_open(truth.o, static_cast<std::size_t>(t * in.V + first + i), o_radius[local], o_limit[local]))
          mark(open_o[static_cast<std::size_t>(first + i)], t, in.T);
      }
    for (std::int64_t d = 0; d < in.K; ++d)
      for (std::int64_t i = 0; i < count; ++i)
        if (left_open(truth.ht, static_cast<std::size_t>(d * in.V + first + i), s_radius[i], s_limit[i]))
          mark(open_s[static_cast<std::size_t>(first + i)], d, in.K);
  }, worth_threads(in));
  std::vector<std::int64_t> channels;
  for (std::int64_t v = 0; v < in.V; ++v)
    if (!open_o[static_cast<std::size_t>(v)].empty() || !open_s[static_cast<std::size_t>(v)].empty()) channels.push_back(v);
  std::atomic<bool> multiprecision{false};
  const auto settle = [&](std::int64_t i, int) {
    const std::int64_t channel = channels[static_cast<std::size_t>(i)];
    const std::size_t v = static_cast<std::size_t>(channel);
    open_o[v].resize(static_cast<std::size_t>(in.T));
    open_s[v].resize(static_cast<std::size_t>(in.K));
    if (settle_channel(in, channel, truth, open_o[v], open_s[v])) multiprecision = true;
  };
  parallel_for(static_cast<std::int64_t>(channels.size()), worth_threads(in) ? max_threads() : 1, settle, free_thread_caches);
  effort = {multiprecision, !channels.empty() && !multiprecision};
  return truth;
}

void count(const TruthTensor& x, OracleStats& s) {
  s.elements += static_cast<std::int64_t>(x.hi.size());
  for (std::size_t i = 0; i < x.hi.size(); ++i) {
    const Decided d = decided(x.hi[i], x.lo[i], x.radius[i]);
    s.uncertified_fp64 += d != Decided::all;
    s.balls += d == Decided::nothing;
  }
}

}  // namespace
}  // namespace oracle_detail

OracleStats& OracleStats::operator+=(const OracleStats& s) {
  elements += s.elements;
  uncertified_fp64 += s.uncertified_fp64;
  balls += s.balls;
  multiprecision_heads += s.multiprecision_heads;
  exact_heads += s.exact_heads;
  return *this;
}

HeadTruth oracle_head(const HeadInputs& in, OracleStats* stats) { return oracle_head(in, 0, stats); }

HeadTruth oracle_head(const HeadInputs& in, std::int64_t outputs, OracleStats* stats) {
  using namespace oracle_detail;
  check_sizes(in);
  if (in.rule == Rule::complex_kda && in.T == 0) { // a state that nothing turns is itself, whatever it holds
    HeadInputs held = in;
    held.rule = Rule::kda;
    return oracle_head(held, outputs, stats);
  }
  HeadEffort effort;
  HeadTruth truth;
  if (in.rule == Rule::complex_kda) {
    truth = complex_head(in);
  } else if (all_finite(in)) {
    truth = finite_head(in, effort);
  } else {
    truth = finite_head(without_non_finite(in), effort);
    taint(in, truth);
  }
  if (outputs > 0) {
    const auto drop = [&](auto& x) { x.erase(x.begin(), x.begin() + static_cast<std::ptrdiff_t>(outputs * in.V)); };
    drop(truth.o.hi);
    drop(truth.o.lo);
    drop(truth.o.radius);
    truth.o.shape[0] -= outputs;
  }
  if (stats) {
    OracleStats s;
    count(truth.o, s);
    count(truth.ht, s);
    s.multiprecision_heads = effort.multiprecision;
    s.exact_heads = effort.exact;
    *stats += s;
  }
  return truth;
}

Truth oracle(const Run& run, OracleStats* stats, const std::function<void(double)>& progress) {
  using namespace oracle_detail;
  const Problem& p = run.problem;
  if (p.operation == Operation::stages) return stage_oracle(run, stats, progress);
  if (p.layer()) return layer_oracle(run, stats);
  const std::vector<Strand> all = strands(run);
  const std::int64_t HV = p.value_heads, heads = static_cast<std::int64_t>(all.size()) * HV, K = p.key_dim, V = p.value_dim;
  Truth truth;
  for (const char* name : output_names(p)) {
    TruthTensor& t = truth[name] = empty_tensor(output_shape(p, name));
    // Of rows that belong to no strand nothing is known; all others are overwritten.
    std::fill(t.radius.begin(), t.radius.end(), std::numeric_limits<float>::infinity());
  }

  std::vector<OracleStats> head_stats(static_cast<std::size_t>(heads));
  std::atomic<std::int64_t> done{0};
  std::mutex progress_mutex;
  const auto copy = [](const TruthTensor& from, std::size_t at, TruthTensor& to, std::size_t where, std::size_t n) {
    std::copy_n(from.hi.begin() + static_cast<std::ptrdiff_t>(at), n, to.hi.begin() + static_cast<std::ptrdiff_t>(where));
    std::copy_n(from.lo.begin() + static_cast<std::ptrdiff_t>(at), n, to.lo.begin() + static_cast<std::ptrdiff_t>(where));
    std::copy_n(from.radius.begin() + static_cast<std::ptrdiff_t>(at), n, to.radius.begin() + static_cast<std::ptrdiff_t>(where));
  };
  const auto one = [&](std::int64_t head) {
    const Strand& s = all[static_cast<std::size_t>(head / HV)];
    const std::int64_t hv = head % HV;
    const HeadTruth t = oracle_head(head_inputs(run, s, hv), s.outputs, stats ? &head_stats[static_cast<std::size_t>(head)] : nullptr);
    TruthTensor& o = truth.find("o")->second;
    for (std::size_t r = 0; r < s.rows.size() - static_cast<std::size_t>(s.outputs); ++r)
      copy(t.o, r * static_cast<std::size_t>(V), o, static_cast<std::size_t>((s.rows[r + static_cast<std::size_t>(s.outputs)] * HV + hv) * V), static_cast<std::size_t>(V));
    if (*s.state) copy(t.ht, 0, truth.find(s.state)->second, static_cast<std::size_t>((s.state_row * HV + hv) * K * V), static_cast<std::size_t>(K * V));
    const double part = static_cast<double>(++done) / static_cast<double>(heads);
    if (progress) {
      const std::lock_guard lock(progress_mutex);
      progress(part);
    }
  };
  // Whole heads side by side while there are enough of them, then one by one with their channels side by side.
  const std::int64_t threads = max_threads(), side_by_side = heads / threads * threads;
  parallel_for(side_by_side, one);
  for (std::int64_t head = side_by_side; head < heads; ++head) one(head);

  if (stats) for (const OracleStats& s : head_stats) *stats += s;
  return truth;
}

}  // namespace gdn
