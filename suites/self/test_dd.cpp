// Double-double against 400-bit arithmetic: exact transformations are exact, errors stay within the published bounds
// (and come near them, so that the test looks at hard operands), results are normalised.
#include <boost/multiprecision/mpfr.hpp>
#include <cmath>

#include "reference/dd.h"
#include "reference/rng.h"
#include "suites/self/catch.h"

using namespace gdn;

namespace {
using Wide = boost::multiprecision::number<boost::multiprecision::mpfr_float_backend<120, boost::multiprecision::allocate_stack>, boost::multiprecision::et_off>;
constexpr double u2 = 0x1p-106;

Wide wide(DD<double> x) { return Wide(x.hi) + Wide(x.lo); }

struct Draw {                                      // operands with near-half-ulp low parts and near-cancelling exponents
  Random r{11, "dd"};
  std::uint64_t i = 0;
  double fp() {
    const double sign = r.below(i++, 2) ? 1 : -1;
    double m = 1 + r.uniform(i++);
    if (r.below(i++, 4) == 0) m = 1 + std::ldexp(std::floor(8 * m), -52);
    return sign * std::ldexp(m, static_cast<int>(r.below(i++, 5)) - 2);
  }
  DD<double> dd() {
    const double hi = fp();
    const double half = std::ldexp(1.0, std::ilogb(hi) - 53);
    double f = r.uniform(i++);
    if (r.below(i++, 3) == 0) f = 1 - std::ldexp(f, -40);
    return two_sum(hi, (r.below(i++, 2) ? half : -half) * f);
  }
};

struct Worst {
  double bound;
  double worst = 0;
  void see(DD<double> got, const Wide& exact) {
    REQUIRE(got.hi + got.lo == got.hi);
    if (exact == 0) {
      REQUIRE(wide(got) == 0);
      return;
    }
    worst = std::max(worst, static_cast<double>(Wide(abs(Wide((wide(got) - exact) / exact)))) / u2);
  }
};
}  // namespace

TEST_CASE("exact transformations are exact") {
  Draw d;
  for (int n = 0; n < 3000; ++n) {
    const double a = std::ldexp(d.fp(), static_cast<int>(d.r.below(d.i++, 200)) - 100), b = d.fp();
    CHECK(wide(two_sum(a, b)) == Wide(a) + Wide(b));
    CHECK(wide(two_prod(a, b)) == Wide(a) * Wide(b));
    const bool ordered = std::fabs(a) >= std::fabs(b);
    CHECK(wide(fast_two_sum(ordered ? a : b, ordered ? b : a)) == Wide(a) + Wide(b));
  }
}

TEST_CASE("errors stay within the published bounds") {
  Draw d;
  Worst sum_fp{2}, sum{3.001}, product_fp{2}, product{5};
  for (int n = 0; n < 20000; ++n) {
    const DD<double> x = d.dd(), y = d.dd();
    const double f = d.fp();
    sum_fp.see(add(x, f), wide(x) + Wide(f));
    sum.see(add(x, y), wide(x) + wide(y));
    product_fp.see(mul(x, f), wide(x) * Wide(f));
    product.see(mul(x, y), wide(x) * wide(y));
    CHECK(wide(negate(x)) == -wide(x));
  }
  for (const Worst& w : {sum_fp, sum, product_fp, product}) {
    CHECK(w.worst <= w.bound);
    CHECK(w.worst > 0.25 * w.bound);
  }
}
