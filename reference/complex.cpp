// Oracle of complex_kda; see complex.h.
//
// One token is A = a R in every pair of rows, R a rotation, then the delta rule. With u = 2^-53: a, cos and sin are within u^2 relative, a product with them
// 5u^2 and a sum of two such 3u^2, so the turned and decayed column errs by at most 24u^2 a~|s|, a~ the greatest decay; the key that the read meets, A^T k,
// likewise, by 24u^2 a~|k|. The rest is section 8:
//   rho' = a~ c rho + beta |k| [ (3K+50)u^2 a~|s||k| + 16u^2(|v| + a~|w|) ] + 40u^2 a~|s| + 16u^2 |y||k|,   d_o = |scale| |q| (rho' + (3K+20)u^2 |s'|) + 4u^2|o|
// because I - beta k k^T has norm c and A has norm a~.
#include "reference/complex.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <vector>

#include "reference/certify.h"
#include "reference/gates.h"
#include "reference/pair.h"
#include "reference/parallel.h"
#include "reference/recurrence.h"

namespace gdn {
namespace {

using I = std::int64_t;
std::size_t at(I i) { return static_cast<std::size_t>(i); }

constexpr double kU2 = 0x1p-106, kTiny = 0x1p-1000, kWiden = 1 + 1e-10;

struct Turn { Pair real, imag, minus_imag; };
struct Token {
  std::vector<Pair> alpha, read_key;               // [K]
  std::vector<Turn> turn;                          // [K/2]
  double most = 0, key = 0, query = 0;             // greatest decay, |k|, |q|
};

struct Source {
  const HeadInputs& in;
  const std::vector<Token>& tokens;
  I channel;
  Pair value(I t) const { return Pair(static_cast<double>(in.v[at(t * in.V + channel)])); }
  Pair beta(I t) const { return Pair(in.beta.empty() ? 1 : static_cast<double>(in.beta[at(t)])); }
  const Pair& alpha(I t, I d) const { return tokens[at(t)].alpha[at(d)]; }
  static Pair alpha_read(I) { return Pair(1.0); }
  const Turn& turn(I t, I j) const { return tokens[at(t)].turn[at(j)]; }
  Pair key(I t, I d) const { return Pair(static_cast<double>(in.k[at(t * in.K + d)])); }
  const Pair& read_key(I t, I d) const { return tokens[at(t)].read_key[at(d)]; }
  Pair query(I t, I d) const { return Pair(static_cast<double>(in.q[at(t * in.K + d)])); }
};

void put(TruthTensor& x, I i, DD<double> v, double radius) {
  double hi = v.hi, lo = v.lo;
  if (const double sum = hi + lo; std::isfinite(sum) && sum != hi) lo = (hi - sum) + lo, hi = sum;
  x.radius[at(i)] = oracle_detail::store_radius(hi, lo, radius);
  x.hi[at(i)] = hi;
  x.lo[at(i)] = lo;
}

struct Watch {
  const Source& x;
  TruthTensor& o;
  double rho = 0, before = 0, squares = 0;
  void begin() { squares = 0; }
  void element(const Pair& s) { squares += s.v.hi * s.v.hi; }
  void token(I t, const Pair& v_, const Pair& w_, const Pair& y_, const Pair& out) {
    const Token& m = x.tokens[at(t)];
    const double K = static_cast<double>(x.in.K), a = m.most, k = m.key, beta = std::fabs(x.beta(t).v.hi), w = std::fabs(w_.v.hi), y = std::fabs(y_.v.hi);
    const double S = before + rho, c = oracle_detail::growth(x.beta(t).v.hi, &x.in.k[at(t * x.in.K)], x.in.K), after = std::sqrt(squares) * kWiden;
    rho = a * c * rho + beta * k * ((3 * K + 50) * kU2 * a * S * k + 16 * kU2 * (std::fabs(v_.v.hi) + w)) + 40 * kU2 * a * S + 16 * kU2 * y * k;
    const bool something = rho > 0 || after > 0;
    rho = rho * kWiden + (something ? kTiny : 0);
    before = after;
    const DD<double> value = mul(out.v, x.in.scale);
    put(o, t * x.in.V + x.channel, value,
        (std::fabs(x.in.scale) * m.query * (rho + (3 * K + 20) * kU2 * after) + 4 * kU2 * std::fabs(value.hi)) * kWiden + (something ? kTiny : 0));
  }
};

TruthTensor zeros(std::vector<I> shape) {
  TruthTensor x;
  const std::size_t n = at(shape[0] * shape[1]);
  x.shape = std::move(shape);
  x.hi.assign(n, 0), x.lo.assign(n, 0), x.radius.assign(n, 0);
  return x;
}

}  // namespace

HeadTruth complex_head(const HeadInputs& in) {
  for (const auto* x : {&in.q, &in.k, &in.v, &in.beta, &in.h0, &in.angle})
    if (!std::all_of(x->begin(), x->end(), [](float e) { return std::isfinite(e); })) throw std::invalid_argument("oracle: complex_kda takes finite inputs");
  for (const float g : in.g)
    if (!(g <= 0)) throw std::invalid_argument("oracle: complex_kda takes gates of at most 0");
  if (in.K % 2 || static_cast<I>(in.g.size()) != in.T * in.K || 2 * static_cast<I>(in.angle.size()) != in.T * in.K)
    throw std::invalid_argument("oracle: complex_kda wants pairs of key channels, with a gate and an angle each");
  const I K = in.K, V = in.V;
  std::vector<Token> tokens(at(in.T));
  for (I t = 0; t < in.T; ++t) {
    Token& to = tokens[at(t)];
    to.key = oracle_detail::norm(&in.k[at(t * K)], K) * kWiden;
    to.query = oracle_detail::norm(&in.q[at(t * K)], K) * kWiden;
    for (I j = 0; j < K / 2; ++j) {
      const Pair alpha(decay(in.g[at(t * K + 2 * j)])), c(cosine(in.angle[at(t * (K / 2) + j)])), s(sine(in.angle[at(t * (K / 2) + j)]));
      const Pair re(static_cast<double>(in.k[at(t * K + 2 * j)])), im(static_cast<double>(in.k[at(t * K + 2 * j + 1)]));
      to.alpha.insert(to.alpha.end(), 2, alpha);
      to.turn.push_back({c, s, Pair(negate(s.v))});
      to.read_key.push_back(alpha * (c * re + s * im));
      to.read_key.push_back(alpha * (c * im - s * re));
      to.most = std::max(to.most, alpha.v.hi * kWiden);
    }
  }
  oracle_detail::free_thread_caches();
  HeadTruth truth{zeros({in.T, V}), zeros({K, V})};
  std::vector<Pair> column(at(K));
  for (I channel = 0; channel < V; ++channel) {
    const Source source{in, tokens, channel};
    Watch watch{source, truth.o};
    for (I d = 0; d < K; ++d) watch.element(column[at(d)] = Pair(in.h0.empty() ? 0 : static_cast<double>(in.h0[at(d * V + channel)])));
    watch.before = std::sqrt(watch.squares) * kWiden;
    recurrence<true, true, true>(PlainArithmetic<Pair>{}, source, in.T, K, column.data(), watch);
    for (I d = 0; d < K; ++d) put(truth.ht, d * V + channel, column[at(d)].v, watch.rho);
  }
  return truth;
}

}  // namespace gdn
