// Gate functions by MPFR; see gates.h.
#include "reference/gates.h"

#include <bit>
#include <cmath>
#include <limits>

#include "reference/gates_mpfr.h"

namespace gdn {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Real {                                      // an MPFR number of `bits` bits
  mpfr_t x;
  explicit Real(mpfr_prec_t bits, double value = 0) {
    mpfr_init2(x, bits);
    mpfr_set_d(x, value, MPFR_RNDN);
  }
  Real(const Real&) = delete;
  Real& operator=(const Real&) = delete;
  ~Real() { mpfr_clear(x); }
};

// Rounds to double-double what compute(y) leaves in y with a relative error of at most 2^(12 - bits); again with more
// bits while the error could change a bit. The values are transcendental, so this ends; exact ones are the caller's.
template <class Compute>
DD<double> rounded(Compute compute) {
  for (mpfr_prec_t bits = 192;; bits *= 2) {
    Real y(bits), margin(bits), end(bits + 8), rest(2 * bits + 1200);
    compute(y.x, bits);
    if (mpfr_inf_p(y.x)) return {kInfinity, 0};    // beyond MPFR's range, far beyond double's
    mpfr_mul_2si(margin.x, y.x, 12 - static_cast<long>(bits), MPFR_RNDA);
    DD<double> ends[2];
    for (int i = 0; i < 2; ++i) {
      if (i == 0) mpfr_sub(end.x, y.x, margin.x, MPFR_RNDN);
      else mpfr_add(end.x, y.x, margin.x, MPFR_RNDN);
      ends[i] = {mpfr_get_d(end.x, MPFR_RNDN), 0};
      if (!std::isfinite(ends[i].hi)) continue;
      mpfr_sub_d(rest.x, end.x, ends[i].hi, MPFR_RNDN);   // exact
      ends[i].lo = mpfr_get_d(rest.x, MPFR_RNDN);
    }
    if (ends[0].hi == ends[1].hi && ends[0].lo == ends[1].lo) return ends[0];
  }
}

// y = exp(A_log) softplus(a + dt_bias), arguments finite.
void rate(mpfr_t y, mpfr_prec_t bits, DD<double> a, float A_log, float dt_bias) {
  Real x(bits + 300), scale(bits + 300, static_cast<double>(A_log)), log_one(bits + 300);
  Real sum(2200, a.hi);
  mpfr_add_d(sum.x, sum.x, a.lo, MPFR_RNDN);       // exact: doubles span 2098 bits
  mpfr_add_d(sum.x, sum.x, static_cast<double>(dt_bias), MPFR_RNDN);
  mpfr_set(x.x, sum.x, MPFR_RNDN);
  if (mpfr_cmp_si(x.x, -100000) < 0) {             // softplus(x) = e^x (1 - e^x/2 ...) to 2^-140000, and e^x may be out of range
    mpfr_add(x.x, x.x, scale.x, MPFR_RNDN);
    mpfr_exp(y, x.x, MPFR_RNDN);
    return;
  }
  mpfr_abs(log_one.x, x.x, MPFR_RNDN);             // softplus(x) = max(x, 0) + log1p(exp(-|x|))
  mpfr_neg(log_one.x, log_one.x, MPFR_RNDN);
  mpfr_exp(log_one.x, log_one.x, MPFR_RNDN);
  mpfr_log1p(log_one.x, log_one.x, MPFR_RNDN);
  if (mpfr_sgn(x.x) > 0) mpfr_add(log_one.x, log_one.x, x.x, MPFR_RNDN);
  mpfr_exp(scale.x, scale.x, MPFR_RNDN);
  mpfr_mul(y, log_one.x, scale.x, MPFR_RNDN);
}
void rate(mpfr_t y, mpfr_prec_t bits, float a, float A_log, float dt_bias) { rate(y, bits, DD<double>{static_cast<double>(a), 0}, A_log, dt_bias); }

// Limits of the rate at infinite arguments; finite arguments: nothing (NaN is a limit that does not exist).
bool rate_limit(float a, float A_log, float dt_bias, double& limit) {
  const double x = static_cast<double>(a) + static_cast<double>(dt_bias), A = static_cast<double>(A_log);
  if (std::isfinite(x) && std::isfinite(A)) return false;
  const double softplus = x == -kInfinity ? 0 : x == kInfinity ? kInfinity : std::isnan(x) ? kNaN : 1;
  const double scale = A == -kInfinity ? 0 : A == kInfinity ? kInfinity : std::isnan(A) ? kNaN : 1;
  limit = softplus * scale;
  return true;
}

}  // namespace

DD<double> decay(float g) {
  if (g == 0) return {1, 0};
  if (!std::isfinite(g)) return {std::isnan(g) ? kNaN : g > 0 ? kInfinity : 0, 0};
  return rounded([g](mpfr_t y, mpfr_prec_t) {
    mpfr_set_flt(y, g, MPFR_RNDN);
    mpfr_exp(y, y, MPFR_RNDN);
  });
}

DD<double> raw_gate(float a, float A_log, float dt_bias) {
  double limit;
  if (rate_limit(a, A_log, dt_bias, limit)) return {-limit, 0};
  return negate(rounded([=](mpfr_t y, mpfr_prec_t bits) { rate(y, bits, a, A_log, dt_bias); }));
}

void raw_decay_of(mpfr_t y, float a, float A_log, float dt_bias) {
  const mpfr_prec_t bits = mpfr_get_prec(y) + 64;
  Real r(bits);
  rate(r.x, bits, a, A_log, dt_bias);              // relative error 2^(12 - bits), and |g| <= 2000
  mpfr_neg(r.x, r.x, MPFR_RNDN);
  mpfr_exp(y, r.x, MPFR_RNDN);
}

DD<double> raw_decay(float a, float A_log, float dt_bias) {
  double limit;
  if (rate_limit(a, A_log, dt_bias, limit)) return {std::exp(-limit), 0};
  const DD<double> g = raw_gate(a, A_log, dt_bias);
  if (g.hi == 0) return {1, 0};                    // |g| < 2^-1075: 1 + g rounds to 1, and lo to 0
  if (g.hi < -2000) return {0, 0};
  if (g.hi > -0x1p-60) {                           // 1 + expm1(g): hi is 1
    const DD<double> rest = rounded([=](mpfr_t y, mpfr_prec_t bits) {
      rate(y, bits, a, A_log, dt_bias);
      mpfr_neg(y, y, MPFR_RNDN);
      mpfr_expm1(y, y, MPFR_RNDN);
    });
    return {1, rest.hi};
  }
  return rounded([=](mpfr_t y, mpfr_prec_t bits) {
    Real r(bits + 16);                             // |g| <= 2000: 11 bits of relative error more
    rate(r.x, bits + 16, a, A_log, dt_bias);
    mpfr_neg(r.x, r.x, MPFR_RNDN);
    mpfr_exp(y, r.x, MPFR_RNDN);
  });
}

DD<double> sigmoid(float x) {
  if (std::isnan(x)) return {kNaN, 0};
  if (x == 0) return {0.5, 0};
  if (!std::isfinite(x) || x < -2000) return {x > 0 ? 1.0 : 0.0, 0};
  if (x > 60) {                                    // 1 - sigmoid(-x): hi is 1
    return {1, x > 2000 ? 0 : -sigmoid(-x).hi};
  }
  return rounded([x](mpfr_t y, mpfr_prec_t) {
    mpfr_set_d(y, -static_cast<double>(x), MPFR_RNDN);
    mpfr_exp(y, y, MPFR_RNDN);
    mpfr_add_ui(y, y, 1, MPFR_RNDN);
    mpfr_ui_div(y, 1, y, MPFR_RNDN);
  });
}

DD<double> exponential(DD<double> x) {
  if (x.hi > -0x1p-60) return {1, x.hi};           // x^2/2 is below 2^-120
  if (x.hi < -2000) return {0, 0};
  return rounded([x](mpfr_t y, mpfr_prec_t bits) {
    Real sum(bits + 64, x.hi);
    mpfr_add_d(sum.x, sum.x, x.lo, MPFR_RNDN);
    mpfr_exp(y, sum.x, MPFR_RNDN);
  });
}

DD<double> raw_gate(DD<double> a, float A_log, float dt_bias) {
  double limit;
  if (rate_limit(static_cast<float>(a.hi), A_log, dt_bias, limit)) return {-limit, 0};
  return negate(rounded([=](mpfr_t y, mpfr_prec_t bits) { rate(y, bits, a, A_log, dt_bias); }));
}

namespace {
// x / (1 + e^-x), or 1 / (1 + e^-x).
DD<double> logistic(DD<double> x, bool times_x) {
  return rounded([=](mpfr_t y, mpfr_prec_t bits) {
    Real sum(bits + 64, x.hi), e(bits + 64);
    mpfr_add_d(sum.x, sum.x, x.lo, MPFR_RNDN);
    mpfr_neg(e.x, sum.x, MPFR_RNDN);
    mpfr_exp(e.x, e.x, MPFR_RNDN);
    mpfr_add_ui(e.x, e.x, 1, MPFR_RNDN);
    if (times_x) mpfr_div(y, sum.x, e.x, MPFR_RNDN);
    else mpfr_ui_div(y, 1, e.x, MPFR_RNDN);
  });
}
}  // namespace

DD<double> sigmoid(DD<double> x) {
  if (x.hi == 0) return {0.5, 0};
  if (x.hi > 80) return {1, 0};                    // e^-80 is below 2^-115
  if (x.hi < -2000) return {0, 0};
  return logistic(x, false);
}

DD<double> silu(DD<double> x) {
  if (x.hi == 0 || x.hi < -2000) return {0, 0};
  if (x.hi > 80) return x;
  return logistic(x, true);
}

DD<double> cosine(float x) {
  if (x == 0) return {1, 0};
  return rounded([x](mpfr_t y, mpfr_prec_t) {
    mpfr_set_flt(y, x, MPFR_RNDN);
    mpfr_cos(y, y, MPFR_RNDN);
  });
}

DD<double> sine(float x) {
  if (x == 0) return {0, 0};
  return rounded([x](mpfr_t y, mpfr_prec_t) {
    mpfr_set_flt(y, x, MPFR_RNDN);
    mpfr_sin(y, y, MPFR_RNDN);
  });
}

double round_to(DD<double> x, Format f) {
  if (f == Format::fp64 || x.lo == 0 || !std::isfinite(x.hi)) return round_to(x.hi, Store{f});
  // hi + lo rounded to odd, then to f: right for formats of at most 51 bits (Boldo and Melquiond, "Emulation of FMA and
  // correctly rounded sums: proved algorithms using rounding to odd", 2008).
  const DD<double> s = two_sum(x.hi, x.lo);
  if (s.lo == 0 || (std::bit_cast<std::uint64_t>(s.hi) & 1)) return round_to(s.hi, Store{f});
  return round_to(std::nextafter(s.hi, s.lo > 0 ? kInfinity : -kInfinity), Store{f});
}

}  // namespace gdn
