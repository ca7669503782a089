// Certification and the slow paths of the oracle; see certify.h. The only oracle file with heavy headers.
//
// Radius of the multiprecision recurrence, p bits, u = 2^-p, per token and channel (no underflow: the exponent range
// of MPFR is 2^62): with y = beta (v - alpha w), c = max(1, |1 - beta |k|^2|) and computed quantities throughout,
//     rho' = alpha c rho + beta|k| [ (K+8) u alpha |s||k| + 8u (|v| + alpha|w|) ] + 4u [ alpha|s| + |y||k| ]
//     d_o  = |scale||q| ( rho' + (K+8) u |s'| ) + 2u |o|
// (K products and K additions of one rounding each, one more for alpha or for a decayed key). |s| is bounded by
// sqrt(K) times the power of two above its largest element; radii are kept with 64 bits and widened per line.
#include "reference/certify.h"

#include <mpfr.h>

#include <algorithm>
#include <bit>
#include <boost/multiprecision/mpfr.hpp>
#include <cmath>
#include <limits>

#include "reference/gates.h"
#include "reference/gates_mpfr.h"
#include "reference/recurrence.h"

namespace gdn {
namespace oracle_detail {
namespace {

namespace mp = boost::multiprecision;
template <unsigned digits>
using Number = mp::number<mp::mpfr_float_backend<digits, mp::allocate_stack>, mp::et_off>;
using Magnitude = Number<19>;                      // 64 bits
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kWiden = 1 + 1e-12;

// Of raw gates HeadInputs::g, rounded toward zero, chooses the path; their decays are formed from the arguments.

// A gate this low is taken as alpha = 0 where exactness matters: alpha < 2^-1298 then goes to the radius.
constexpr float kNegligible = -900;
bool negligible(float g) { return g < kNegligible && std::isfinite(g); }

// One IEEE double with the knowledge whether it is the exact value of the expression that made it. A product with
// an exact zero is an exact zero whatever the other factor, so entries that were never written stay exact.
struct Tracked {
  double x = 0;
  bool exact = true;
  Tracked() = default;
  Tracked(double v, bool e = true) : x(v), exact(e) {}  // NOLINT: implicit on purpose
  bool zero() const { return exact && x == 0; }
};
Tracked operator*(Tracked a, Tracked b) {
  if (a.zero() || b.zero()) return {};
  const double p = a.x * b.x;
  // Below 2^-960 the residual itself may be rounded away.
  return {p, a.exact && b.exact && std::fabs(p) > 0x1p-960 && std::fabs(p) < kInfinity && fused(a.x, b.x, -p) == 0};
}
Tracked operator+(Tracked a, Tracked b) {
  if (a.zero()) return b;
  if (b.zero()) return a;
  const DD<double> s = two_sum(a.x, b.x);
  return {s.hi, a.exact && b.exact && s.lo == 0};      // an infinite sum has a NaN residual
}
Tracked operator-(Tracked a, Tracked b) { return a + Tracked(-b.x, b.exact); }
Tracked& operator+=(Tracked& a, Tracked b) { return a = a + b; }

// Operands of one channel for ordinary number types.
struct ChannelData {
  const HeadInputs& in;
  std::int64_t channel;
  float gate(std::int64_t t, std::int64_t d = 0) const {
    if (!has_gate(in.rule) || in.g.empty()) return 0;
    return in.g[static_cast<std::size_t>(gate_per_key_channel(in.rule) ? t * in.K + d : t)];
  }
  double beta_value(std::int64_t t) const { return in.beta.empty() ? 1.0 : static_cast<double>(in.beta[static_cast<std::size_t>(t)]); }
  double v(std::int64_t t) const { return static_cast<double>(in.v[static_cast<std::size_t>(t * in.V + channel)]); }
  double k(std::int64_t t, std::int64_t d) const { return static_cast<double>(in.k[static_cast<std::size_t>(t * in.K + d)]); }
  double q(std::int64_t t, std::int64_t d) const { return static_cast<double>(in.q[static_cast<std::size_t>(t * in.K + d)]); }
  double h0(std::int64_t d) const { return in.h0.empty() ? 0.0 : static_cast<double>(in.h0[static_cast<std::size_t>(d * in.V + channel)]); }
  const float* key_row(std::int64_t t) const { return in.k.data() + t * in.K; }
  const float* query_row(std::int64_t t) const { return in.q.data() + t * in.K; }
  double greatest_gate(std::int64_t t) const {
    float g = gate(t);
    if (gate_per_key_channel(in.rule)) for (std::int64_t d = 1; d < in.K; ++d) g = std::max(g, gate(t, d));
    return static_cast<double>(g);
  }
};

// Elements to improve, and what is put there.
struct Target {
  HeadTruth& truth;
  std::int64_t channel, V;
  std::vector<char>&open_o, &open_s;
  std::size_t at(std::int64_t row) const { return static_cast<std::size_t>(row * V + channel); }
  void put(TruthTensor& x, std::int64_t row, double hi, double lo, double radius) const {
    // Rounding lo can make it exactly half an ulp of hi, so that hi + lo rounds to hi's neighbour: normalise again.
    if (const double sum = hi + lo; std::isfinite(sum) && sum != hi) {
      lo = (hi - sum) + lo;
      hi = sum;
    }
    x.radius[at(row)] = store_radius(hi, lo, radius);
    x.hi[at(row)] = hi;
    x.lo[at(row)] = lo;
  }
};

// ---- exact doubles ----

struct TrackedSource {
  ChannelData data;
  Tracked value(std::int64_t t) const { return data.v(t); }
  Tracked beta(std::int64_t t) const { return data.beta_value(t); }
  Tracked alpha_of(float g) const {
    if (g == 0) return 1.0;
    if (g < kNegligible) return 0.0;
    return {std::exp(static_cast<double>(g)), false};
  }
  Tracked alpha(std::int64_t t) const { return alpha_of(data.gate(t)); }
  Tracked alpha(std::int64_t t, std::int64_t d) const { return alpha_of(data.gate(t, d)); }
  Tracked alpha_read(std::int64_t t) const { return gate_per_key_channel(data.in.rule) ? Tracked(1.0) : alpha(t); }
  Tracked key(std::int64_t t, std::int64_t d) const { return data.k(t, d); }
  Tracked query(std::int64_t t, std::int64_t d) const { return data.q(t, d); }
  Tracked read_key(std::int64_t t, std::int64_t d) const {
    return gate_per_key_channel(data.in.rule) ? alpha(t, d) * key(t, d) : key(t, d);
  }
};

struct TrackedWatch {
  const ChannelData& data;
  const Target& target;
  double left_out = 0;                             // radius from gates taken as -inf
  double squares = 0, size = 0;
  void begin() { squares = 0; }
  void element(Tracked s) { squares += s.x * s.x; }
  void token(std::int64_t t, Tracked, Tracked, Tracked, Tracked out) {
    const HeadInputs& in = data.in;
    bool any = false;
    if (gate_per_key_channel(in.rule)) for (std::int64_t d = 0; d < in.K; ++d) any = any || negligible(data.gate(t, d));
    else any = negligible(data.gate(t));
    if (any || left_out > 0) {
      const double c = has_delta(in.rule) ? growth(data.beta_value(t), data.key_row(t), in.K) : 1;
      // 2^-1000 for 2^-1298: `size` is a double that may have lost digits, not 298 binary orders of magnitude.
      left_out = ((left_out > 0 ? decay(static_cast<float>(data.greatest_gate(t))).hi : 0) * left_out + (any ? 0x1p-1000 * size : 0)) * c * kWiden;
    }
    size = std::sqrt(squares);
    if (!target.open_o[static_cast<std::size_t>(t)]) return;
    const Tracked o = out * Tracked(in.scale);
    if (!o.exact) return;
    target.put(target.truth.o, t, o.x, 0, std::fabs(in.scale) * norm(data.query_row(t), in.K) * left_out);
    target.open_o[static_cast<std::size_t>(t)] = 0;
  }
};

void exact_doubles(const ChannelData& data, const Target& target) {
  const std::int64_t K = data.in.K;
  std::vector<Tracked> state(static_cast<std::size_t>(K));
  TrackedWatch watch{data, target};
  for (std::int64_t d = 0; d < K; ++d) watch.element(state[static_cast<std::size_t>(d)] = data.h0(d));
  watch.size = std::sqrt(watch.squares);
  recurrence(data.in.rule, PlainArithmetic<Tracked>{}, TrackedSource{data}, data.in.T, K, state.data(), watch);
  for (std::int64_t d = 0; d < K; ++d) {
    const Tracked s = state[static_cast<std::size_t>(d)];
    if (!target.open_s[static_cast<std::size_t>(d)] || !s.exact) continue;
    target.put(target.truth.ht, d, s.x, 0, watch.left_out);
    target.open_s[static_cast<std::size_t>(d)] = 0;
  }
}

// ---- multiprecision ----

template <class N>
struct ManySource {                                // keeps the operands of two tokens converted
  ChannelData data;
  struct Row { std::int64_t t = -1; std::vector<N> k, q, a, ak; };
  mutable Row rows[2];

  explicit ManySource(const ChannelData& d) : data(d) {}
  N exponential(std::int64_t t, std::int64_t d) const {
    const float g = data.gate(t, d);
    if (g == 0) return N(1);
    if (g < kNegligible) return N(0);
    N x(static_cast<double>(g));
    if (data.in.a.empty()) mpfr_exp(x.backend().data(), x.backend().data(), MPFR_RNDN);
    else raw_decay_of(x.backend().data(), data.in.a[static_cast<std::size_t>(t)], data.in.A_log, data.in.dt_bias);
    return x;                                      // inexact, which ManyWatch knows from the gate
  }
  const Row& row(std::int64_t t) const {
    Row& r = rows[t & 1];
    if (r.t == t) return r;
    const std::int64_t K = data.in.K;
    const bool many = gate_per_key_channel(data.in.rule), inexact = mpfr_inexflag_p();
    r.t = t;
    r.k.resize(static_cast<std::size_t>(K));
    r.q.resize(static_cast<std::size_t>(K));
    r.a.resize(many ? static_cast<std::size_t>(K) : 1);
    for (std::int64_t d = 0; d < K; ++d) {
      r.k[static_cast<std::size_t>(d)] = data.k(t, d);
      r.q[static_cast<std::size_t>(d)] = data.q(t, d);
    }
    for (std::size_t d = 0; d < r.a.size(); ++d) r.a[d] = exponential(t, static_cast<std::int64_t>(d));
    if (many) {
      r.ak.resize(static_cast<std::size_t>(K));
      for (std::size_t d = 0; d < r.ak.size(); ++d) r.ak[d] = r.a[d] * r.k[d];
    }
    if (!inexact) mpfr_clear_inexflag();
    return r;
  }
  N value(std::int64_t t) const { return N(data.v(t)); }
  N beta(std::int64_t t) const { return N(data.beta_value(t)); }
  const N& alpha(std::int64_t t) const { return row(t).a[0]; }
  const N& alpha(std::int64_t t, std::int64_t d) const { return row(t).a[static_cast<std::size_t>(d)]; }
  N alpha_read(std::int64_t t) const { return gate_per_key_channel(data.in.rule) ? N(1) : row(t).a[0]; }
  const N& key(std::int64_t t, std::int64_t d) const { return row(t).k[static_cast<std::size_t>(d)]; }
  const N& query(std::int64_t t, std::int64_t d) const { return row(t).q[static_cast<std::size_t>(d)]; }
  const N& read_key(std::int64_t t, std::int64_t d) const {
    const Row& r = row(t);
    return (r.ak.empty() ? r.k : r.ak)[static_cast<std::size_t>(d)];
  }
};

// hi + lo nearest to x, and an upper bound of what is left.
template <class N>
DD<double> split(const N& x, double& rest) {
  N r(x);
  const double hi = mpfr_get_d(x.backend().data(), MPFR_RNDN);
  if (!std::isfinite(hi)) {                        // beyond double: certainly an overflow of every format
    rest = 0;
    return {hi, 0};
  }
  mpfr_sub_d(r.backend().data(), r.backend().data(), hi, MPFR_RNDN);
  const double lo = mpfr_get_d(r.backend().data(), MPFR_RNDN);
  mpfr_sub_d(r.backend().data(), r.backend().data(), lo, MPFR_RNDN);
  rest = std::fabs(mpfr_get_d(r.backend().data(), MPFR_RNDA));
  return {hi, lo};
}

double upward(const Magnitude& x) { return mpfr_get_d(x.backend().data(), MPFR_RNDU); }

template <class N>
struct ManyWatch {
  const ChannelData& data;
  const Target& target;
  // Exact so far: with any number of bits (every gate since the start or the last reset was 0, or there was nothing to
  // decay), and with the bits in use (then no operation raised the inexact flag of MPFR either).
  bool exactable = true, exact = true;
  bool more = false;                               // something may still be decided with more bits
  double unit;
  Magnitude rho{0}, left_out{0}, size{0}, least_size{0};
  mpfr_exp_t top = 0;
  bool any = false;

  ManyWatch(const ChannelData& d, const Target& t) : data(d), target(t) {
    unit = std::ldexp(1.0, -static_cast<int>(mpfr_get_prec(N(0).backend().data())));
  }
  void begin() { any = false; }
  void element(const N& s) {
    if (mpfr_zero_p(s.backend().data())) return;
    const mpfr_exp_t e = mpfr_get_exp(s.backend().data());
    top = any ? std::max(top, e) : e;
    any = true;
  }
  void close() {                                   // |s| between 2^(top-1) and sqrt(K) 2^top
    size = least_size = 0;
    if (!any) return;
    mpfr_set_ui_2exp(least_size.backend().data(), 1, top - 1, MPFR_RNDN);
    size = least_size * Magnitude(2 * std::sqrt(static_cast<double>(data.in.K)) * kWiden);
  }
  static Magnitude magnitude(const N& x) {
    Magnitude m;
    mpfr_abs(m.backend().data(), x.backend().data(), MPFR_RNDU);
    return m;
  }
  void token(std::int64_t t, const N& v, const N& w, const N& y, const N& out) {
    const HeadInputs& in = data.in;
    bool generic = false, reset = true, dropped = false;
    for (std::int64_t d = 0; d < (gate_per_key_channel(in.rule) ? in.K : 1); ++d) {
      const float g = data.gate(t, d);
      generic = generic || (g != 0 && !(g < kNegligible));
      reset = reset && g < kNegligible;
      dropped = dropped || negligible(g);
    }
    exactable = reset || (exactable && !generic) || (generic && size == 0);
    exact = exactable && (exact || reset || (generic && size == 0)) && !mpfr_inexflag_p();
    mpfr_clear_inexflag();
    const N o = out * N(in.scale);
    const bool exact_o = exact && !mpfr_inexflag_p();
    const double beta = data.beta_value(t), k = norm(data.key_row(t), in.K);
    const double c = has_delta(in.rule) ? growth(beta, data.key_row(t), in.K) : 1;
    const double dot = (static_cast<double>(in.K) + 8) * unit;
    // 2^-1298 is an upper bound of any gate taken as zero.
    const double greatest = data.greatest_gate(t);
    Magnitude alpha(0), tiny(greatest == -kInfinity ? 0.0 : 1.0);
    if (greatest > -kInfinity) {
      alpha = std::max(greatest, -1000.0);
      mpfr_exp(alpha.backend().data(), alpha.backend().data(), MPFR_RNDU);
    }
    mpfr_mul_2si(tiny.backend().data(), tiny.backend().data(), -1298, MPFR_RNDU);
    alpha += tiny;
    const Magnitude drop = dropped ? tiny * size * Magnitude(c) : Magnitude(0);
    const Magnitude decayed = alpha * size;
    left_out = (alpha * Magnitude(c) * left_out + drop) * Magnitude(kWiden);
    Magnitude inner(0);
    if (has_delta(in.rule))
      inner = Magnitude(std::fabs(beta) * k) * (Magnitude(dot * k) * decayed + Magnitude(8 * unit) * (magnitude(v) + (gate_per_key_channel(in.rule) ? Magnitude(1) : alpha) * magnitude(w)));
    rho = (alpha * Magnitude(c) * rho + drop + inner + Magnitude(4 * unit) * (decayed + magnitude(y) * Magnitude(k))) * Magnitude(kWiden);
    close();
    if (target.open_o[static_cast<std::size_t>(t)]) {
      const Magnitude q(std::fabs(in.scale) * norm(data.query_row(t), in.K));
      const Magnitude r = exact_o ? Magnitude(q * left_out)
                                  : Magnitude((q * (rho + Magnitude(dot) * size) + Magnitude(2 * unit) * magnitude(o)) * Magnitude(kWiden));
      target.open_o[static_cast<std::size_t>(t)] = settle(target.truth.o, t, o, r, Magnitude(q * least_size));
    }
    mpfr_clear_inexflag();                         // what was inexact since then was bookkeeping
  }
  // Stores; true when more bits may help.
  bool settle(TruthTensor& x, std::int64_t row, const N& value, const Magnitude& r, const Magnitude& scale) {
    double rest;
    const DD<double> s = split(value, rest);
    target.put(x, row, s.hi, s.lo, (upward(r) + rest) * kWiden);
    const std::size_t at = target.at(row);
    const Decided d = decided(x.hi[at], x.lo[at], x.radius[at]);
    const bool good = r <= scale * Magnitude(0x1p-64);
    const bool open = !good || d == Decided::nothing || (d == Decided::narrow && (exactable || r > scale * Magnitude(0x1p-160)));
    more = more || open;
    return open;
  }
};

// Returns whether more bits may help.
template <class N>
bool many_bits(const ChannelData& data, const Target& target) {
  const std::int64_t K = data.in.K;
  std::vector<N> state(static_cast<std::size_t>(K));
  ManyWatch<N> watch(data, target);
  watch.begin();
  for (std::int64_t d = 0; d < K; ++d) watch.element(state[static_cast<std::size_t>(d)] = N(data.h0(d)));
  watch.close();
  mpfr_clear_flags();
  const ManySource<N> source(data);
  recurrence(data.in.rule, PlainArithmetic<N>{}, source, data.in.T, K, state.data(), watch);
  for (std::int64_t d = 0; d < K; ++d)
    if (target.open_s[static_cast<std::size_t>(d)])
      target.open_s[static_cast<std::size_t>(d)] = watch.settle(target.truth.ht, d, state[static_cast<std::size_t>(d)], watch.exact ? watch.left_out : watch.rho, watch.least_size);
  return watch.more;
}

}  // namespace

void free_thread_caches() { mpfr_free_cache2(MPFR_FREE_LOCAL_CACHE); }

double norm(const float* x, std::int64_t n) {
  double sum = 0;
  for (std::int64_t i = 0; i < n; ++i) sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  return std::sqrt(sum) * kWiden;
}

double growth(double beta, const float* k, std::int64_t n) {
  double sum = 0;
  for (std::int64_t i = 0; i < n; ++i) sum += static_cast<double>(k[i]) * static_cast<double>(k[i]);
  return std::max(1.0, std::fabs(1 - beta * sum));
}

float store_radius(double& hi, double& lo, double radius) {
  constexpr double least = 0x1p-149;
  if (radius == 0 || !std::isfinite(hi)) return 0;
  if (!(radius < kInfinity) && !(std::fabs(hi) > 0x1p190)) return std::numeric_limits<float>::infinity();
  if (std::fabs(hi) <= 0x1p-201 && radius <= 0x1p-201 && !(radius <= 0x1p-70 * std::fabs(hi))) {
    hi = lo = 0;
    return 0x1p-149f;
  }
  if (radius <= least) return radius <= 0x1p-70 * std::fabs(hi) ? 0x1p-149f : 0x1p-148f;
  if (radius > static_cast<double>(std::numeric_limits<float>::max())) {
    if (!(std::fabs(hi) > 0x1p190 && radius <= 0x1p-60 * std::fabs(hi))) hi = lo = 0;
    return std::numeric_limits<float>::infinity();
  }
  const float r = static_cast<float>(radius);
  return static_cast<double>(r) < radius ? std::nextafter(r, std::numeric_limits<float>::infinity()) : r;
}

double stored_radius(double hi, float radius) {
  if (radius == 0x1p-149f) return hi == 0 ? 0x1p-200 : std::min(0x1p-149, 0x1p-70 * std::fabs(hi));
  if (radius == std::numeric_limits<float>::infinity() && std::fabs(hi) > 0x1p190) return 0x1p-60 * std::fabs(hi);
  return static_cast<double>(radius);
}

Decided decided(double hi, double lo, float radius) {
  if (!std::isfinite(hi)) return radius == 0 ? Decided::all : Decided::nothing;
  const double r = stored_radius(hi, radius);
  if (r == 0) return Decided::all;                 // one number has one rounding
  // Rounding boundaries of the narrow formats have at most 25 significant bits. If hi is not within the radius and two
  // of its own ulps of such a number, nothing is near; this settles nearly every element.
  const std::uint64_t bits = std::bit_cast<std::uint64_t>(hi);
  const int exponent = static_cast<int>((bits >> 52) & 0x7ff);
  bool far = false;
  if (exponent > 60) {
    const std::uint64_t tail = bits & 0xfffffff;
    const auto distance = static_cast<double>(std::min<std::uint64_t>(tail, 0x10000000 - tail));
    far = distance - 2 > r / std::bit_cast<double>(static_cast<std::uint64_t>(exponent - 52) << 52);
  }
  if (!far)
    for (Format f : {Format::fp32, Format::fp16, Format::bf16})
      if (!certified(hi, lo, radius, f)) return Decided::nothing;
  return certified(hi, lo, radius, Format::fp64) ? Decided::all : Decided::narrow;
}

bool settle_channel(const HeadInputs& in, std::int64_t v, HeadTruth& truth, std::vector<char>& open_o, std::vector<char>& open_s) {
  const ChannelData data{in, v};
  const Target target{truth, v, in.V, open_o, open_s};
  const auto left = [&] {
    return std::any_of(open_o.begin(), open_o.end(), [](char c) { return c; }) || std::any_of(open_s.begin(), open_s.end(), [](char c) { return c; });
  };
  exact_doubles(data, target);
  if (!left()) return false;
  (void)(many_bits<Number<77>>(data, target) && many_bits<Number<154>>(data, target) && many_bits<Number<616>>(data, target));
  return true;
}

}  // namespace oracle_detail

bool certified(double hi, double lo, float radius, Format f) {
  if (!std::isfinite(hi)) return radius == 0;
  const double r = oracle_detail::stored_radius(hi, radius);
  if (!(r < oracle_detail::kInfinity)) return false;
  const double up = r == 0 ? lo : std::nextafter(lo + r, oracle_detail::kInfinity);
  const double down = r == 0 ? lo : std::nextafter(lo - r, -oracle_detail::kInfinity);
  if (f == Format::fp64) return hi + down == hi + up;
  const double a = round_to(DD<double>{hi, down}, f), b = round_to(DD<double>{hi, up}, f);
  return a == b || (std::isnan(a) && std::isnan(b));
}

}  // namespace gdn
