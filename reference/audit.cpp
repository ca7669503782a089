// Audit of the oracle: the canonical recurrence once more, in cpp_bin_float with 237 bits, sharing no code with
// oracle_head (other arithmetic, other loop order, no fused read), so that a slip in one shows in the other.
#include <bit>
#include <boost/multiprecision/cpp_bin_float.hpp>
#include <cmath>
#include <cstdio>
#include <limits>
#include <string>
#include <vector>

#include "reference/truth.h"
#include "reference/parallel.h"

namespace gdn {
namespace {

namespace mp = boost::multiprecision;
using Wide = mp::number<mp::cpp_bin_float<237, mp::digit_base_2, void, std::int32_t>, mp::et_off>;

std::string hex(double x) {
  char text[40];
  std::snprintf(text, sizeof text, "%a", x);
  return text;
}

// x rounded to nearest even with `precision` bits and least exponent emin, without a detour through double.
double rounded(const Wide& x, const FormatInfo& f) {
  if (!mp::isfinite(x)) return static_cast<double>(x);
  if (x == 0) return 0;
  int e = 0;
  (void)mp::frexp(x, &e);                          // |x| in [2^(e-1), 2^e)
  const int quantum = std::max(e - 1, f.emin) - (f.precision - 1);
  const Wide scaled = mp::ldexp(x, -quantum);      // exact: a power of two in a wide exponent range
  Wide whole = mp::floor(scaled);
  const Wide rest = scaled - whole;
  const bool odd = mp::fmod(whole, Wide(2)) != 0;
  if (rest > Wide(0.5) || (rest == Wide(0.5) && odd)) whole += 1;
  const Wide r = mp::ldexp(whole, quantum);
  if (mp::abs(r) > Wide(f.max_finite)) return x > 0 ? std::numeric_limits<double>::infinity() : -std::numeric_limits<double>::infinity();
  return static_cast<double>(r);                   // exact
}

// The decay of a raw gate, from its arguments, by nothing that the oracle uses. rate: exp(A_log) softplus(a + dt_bias).
Wide raw_alpha(const HeadInputs& in, std::int64_t t, double& rate) {
  const double A = static_cast<double>(in.A_log);
  rate = 0;
  if (std::isinf(A) && A < 0) return 1;
  const Wide x = Wide(static_cast<double>(in.a[static_cast<std::size_t>(t)])) + Wide(static_cast<double>(in.dt_bias));
  const Wide y = mp::exp(x > 0 ? Wide(-x) : x);    // log(1 + e^x) = max(x, 0) + log(1 + e^-|x|)
  Wide log_one = mp::log(Wide(1) + y);
  if (y < Wide(0x1p-12)) {                         // its series, where 1 + y would lose what counts
    log_one = 0;
    Wide power = y;
    for (int i = 1; i <= 24; ++i, power *= y) log_one += (i % 2 ? power : Wide(-power)) / i;
  }
  const Wide r = mp::exp(Wide(A)) * (x > 0 ? Wide(x + log_one) : log_one);
  rate = static_cast<double>(r);
  return r > 1e6 ? Wide(0) : mp::exp(Wide(-r));
}

struct Auditor {
  const HeadInputs& in;
  const HeadTruth& truth;
  std::string complaint;

  // One element; slack bounds the audit's own error.
  bool agrees(const char* tensor, std::int64_t row, std::int64_t v, const TruthTensor& x, const Wide& value, double slack) {
    const auto at = static_cast<std::size_t>(row * in.V + v);
    const double hi = x.hi[at], lo = x.lo[at];
    const auto say = [&](const std::string& what) {
      complaint = std::string("audit: ") + tensor + "[" + std::to_string(row) + "," + std::to_string(v) + "]: " + what + " (hi " +
                  hex(hi) + ", lo " + hex(lo) + ", radius " + hex(static_cast<double>(x.radius[at])) + ", audit " + value.str(40, std::ios::scientific) + ")";
      return false;
    };
    if (!mp::isfinite(value)) return std::isfinite(hi) ? say("finite where the audit is not") : true;
    if (!std::isfinite(hi)) {
      const double d = rounded(value, info(Format::fp64));
      return d == hi ? true : say("not finite where the audit is finite");
    }
    const Wide error = mp::abs(value - Wide(hi) - Wide(lo));
    const double radius = static_cast<double>(x.radius[at]);
    if (!(error <= Wide(radius) + Wide(slack))) return say("outside the radius");
    for (Format f : {Format::fp64, Format::fp32, Format::fp16, Format::bf16}) {
      if (!certified(hi, lo, x.radius[at], f)) continue;
      const double a = rounded(Wide(hi) + Wide(lo), info(f)), b = rounded(value, info(f));
      // A value that is exactly a tie can fall to either side by the audit's own error.
      const bool own_error = a != b && (rounded(value + Wide(slack), info(f)) == a || rounded(value - Wide(slack), info(f)) == a);
      if (a != b && !own_error) return say(std::string("rounds differently to ") + info(f).name);
    }
    return true;
  }

  void channel(std::int64_t v) {
    const std::int64_t K = in.K;
    const auto n = [](std::int64_t i) { return static_cast<std::size_t>(i); };
    const bool gates = in.rule != Rule::delta && in.rule != Rule::linear && !in.g.empty();
    const bool complex = in.rule == Rule::complex_kda, per_key = in.rule == Rule::kda || complex;
    const bool reads = in.rule == Rule::delta || in.rule == Rule::gated_delta || per_key;
    constexpr double unit = 0x1p-230;              // 237 bits and room
    std::vector<Wide> s(n(K), Wide(0));
    if (!in.h0.empty()) for (std::int64_t d = 0; d < K; ++d) s[n(d)] = static_cast<double>(in.h0[n(d * in.V + v)]);
    double drift = 0;                              // bound of this recurrence's own error, norm over the row
    const auto size = [&] {
      Wide sum = 0;
      for (const Wide& x : s) if (mp::isfinite(x)) sum += x * x;
      return static_cast<double>(mp::sqrt(sum)) * (1 + 1e-12);
    };
    double before = size();
    for (std::int64_t t = 0; t < in.T; ++t) {
      double alpha_max = gates ? 0 : 1, rate = 0;
      if (!in.a.empty()) {
        const Wide alpha = raw_alpha(in, t, rate);
        alpha_max = static_cast<double>(alpha);
        for (Wide& x : s) x *= alpha;
      } else if (gates) {
        if (!per_key) {
          const Wide alpha = mp::exp(Wide(static_cast<double>(in.g[n(t)])));
          alpha_max = static_cast<double>(alpha);
          for (Wide& x : s) x *= alpha;
        } else {
          for (std::int64_t d = 0; d < K; ++d) {
            const Wide alpha = mp::exp(Wide(static_cast<double>(in.g[n(t * K + d)])));
            alpha_max = std::max(alpha_max, static_cast<double>(alpha));
            s[n(d)] *= alpha;
          }
          for (std::int64_t j = 0; complex && j < K / 2; ++j) {   // e^(i angle) (s_2j + i s_2j+1)
            const Wide angle = static_cast<double>(in.angle[n(t * (K / 2) + j)]), cosine = mp::cos(angle), sine = mp::sin(angle), re = s[n(2 * j)], im = s[n(2 * j + 1)];
            s[n(2 * j)] = re * cosine - im * sine;
            s[n(2 * j + 1)] = re * sine + im * cosine;
          }
        }
      }
      const Wide beta = in.beta.empty() ? Wide(1) : Wide(static_cast<double>(in.beta[n(t)]));
      Wide x = static_cast<double>(in.v[n(t * in.V + v)]);
      double key = 0, query = 0;
      for (std::int64_t d = 0; d < K; ++d) {
        const double k = static_cast<double>(in.k[n(t * K + d)]), q = static_cast<double>(in.q[n(t * K + d)]);
        if (std::isfinite(k)) key += k * k;
        if (std::isfinite(q)) query += q * q;
        if (reads) x -= s[n(d)] * Wide(k);
      }
      x *= beta;
      for (std::int64_t d = 0; d < K; ++d) s[n(d)] += x * Wide(static_cast<double>(in.k[n(t * K + d)]));
      Wide o = 0;
      for (std::int64_t d = 0; d < K; ++d) o += s[n(d)] * Wide(static_cast<double>(in.q[n(t * K + d)]));
      o *= Wide(in.scale);
      const double after = size(), b = std::fabs(static_cast<double>(beta)), room = unit * (static_cast<double>(K + 8) + 8 * (rate > 0 && rate < 1e6 ? rate * (1 + std::fabs(static_cast<double>(in.A_log))) : 0));
      const double c = reads ? std::max(1.0, std::fabs(1 - b * key)) : 1;
      drift = alpha_max * c * drift * (1 + 1e-12) +
              room * ((1 + b * key) * (alpha_max * before + after) + b * std::sqrt(key) * std::fabs(static_cast<double>(in.v[n(t * in.V + v)])));
      before = after;
      if (!agrees("o", t, v, truth.o, o, std::fabs(in.scale) * std::sqrt(query) * (drift + room * after) * (1 + 1e-9))) return;
    }
    for (std::int64_t d = 0; d < K; ++d)
      if (!agrees("ht", d, v, truth.ht, s[n(d)], drift)) return;
  }
};

}  // namespace

std::string audit_head(const HeadInputs& in, const HeadTruth& truth) {
  for (const auto& [x, rows, tensor] : {std::tuple{&truth.o, in.T, "o"}, std::tuple{&truth.ht, in.K, "ht"}}) {
    const auto n = static_cast<std::size_t>(rows * in.V);
    if (x->hi.size() != n || x->lo.size() != n || x->radius.size() != n)
      return std::string("audit: ") + tensor + " has " + std::to_string(x->hi.size()) + " elements, expected " + std::to_string(n);
  }
  std::vector<std::string> complaints(static_cast<std::size_t>(in.V));
  parallel_for(in.V, [&](std::int64_t v) {
    Auditor a{in, truth, {}};
    a.channel(v);
    complaints[static_cast<std::size_t>(v)] = a.complaint;
  }, in.T * in.K * in.V > 1000);
  for (const std::string& c : complaints) if (!c.empty()) return c;
  return {};
}

}  // namespace gdn
