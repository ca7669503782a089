// Gate functions in both tails, where fp32 formulas fail in the field, against an independent 300-bit evaluation.
#include <boost/multiprecision/cpp_bin_float.hpp>
#include <cmath>
#include <limits>

#include "reference/gates.h"
#include "reference/rng.h"
#include "suites/self/catch.h"

using namespace gdn;

namespace {
using Wide = boost::multiprecision::number<boost::multiprecision::cpp_bin_float<600, boost::multiprecision::digit_base_2, void, std::int32_t>, boost::multiprecision::et_off>;
constexpr float kInf = std::numeric_limits<float>::infinity();

// hi nearest to x, lo nearest to the rest.
bool is_rounded(DD<double> got, const Wide& x) {
  const double hi = static_cast<double>(x), lo = static_cast<double>(Wide(x - Wide(hi)));
  return got.hi == hi && got.lo == lo;
}
Wide softplus(const Wide& x) {                     // no log1p: 600 bits carry 1 + e^x down to x = -200
  return x > 300 ? Wide(x + exp(Wide(-x))) : Wide(log(Wide(1 + exp(x))));
}
}  // namespace

TEST_CASE("e^g is rounded once to double-double") {
  CHECK(decay(0).hi == 1);
  CHECK(decay(-kInf).hi == 0);
  CHECK(decay(-1000).hi == 0);
  CHECK(std::isnan(decay(std::numeric_limits<float>::quiet_NaN()).hi));
  const Random r(1, "g");
  for (float g : {-1.0f, -0x1p-149f, -1e-3f, -88.0f, -104.0f, -600.0f, -700.0f, -745.0f, 1.0f}) CHECK(is_rounded(decay(g), exp(Wide(static_cast<double>(g)))));
  for (std::uint64_t i = 0; i < 300; ++i) {
    const float g = static_cast<float>(-std::exp2(r.uniform(i, -40, 9)));
    CHECK(is_rounded(decay(g), exp(Wide(static_cast<double>(g)))));
  }
}

TEST_CASE("raw gates and their decays") {
  const Random r(2, "raw");
  for (std::uint64_t i = 0; i < 200; ++i) {
    const float a = static_cast<float>(r.uniform(4 * i, -100, 100)), dt = static_cast<float>(r.uniform(4 * i + 1, -10, 10)), A = static_cast<float>(r.uniform(4 * i + 2, -20, 5));
    const Wide g = -exp(Wide(static_cast<double>(A))) * softplus(Wide(static_cast<double>(a)) + Wide(static_cast<double>(dt)));
    CHECK(is_rounded(raw_gate(a, A, dt), g));
    CHECK(is_rounded(raw_decay(a, A, dt), exp(g)));
  }
  // Cases seen in the field.
  CHECK(raw_gate(-18, std::log(1e7f), 0).hi == Approx(-0.1523).epsilon(1e-3));      // log(1 + e^x) is 0 in fp32
  CHECK(raw_decay(89, -10, 0).hi == Approx(0.99597).epsilon(1e-4));                // log(1 + e^x) is inf in fp32
  CHECK(raw_gate(-200, 100, 0).hi == Approx(-std::exp(-100.0)).epsilon(1e-9));     // inf * 0 in fp32
  CHECK(raw_decay(-200, 100, 0).hi == 1);
  CHECK(raw_decay(-200, 100, 0).lo == Approx(-std::exp(-100.0)).epsilon(1e-9));
  // Ends of the float range.
  constexpr float most = std::numeric_limits<float>::max();
  CHECK(raw_gate(-most, 0, -most).hi == 0);
  CHECK(raw_decay(-most, most, 0).hi == Approx(std::exp(-1.0)));                     // A_log + x = 0 exactly
  CHECK(raw_decay(most, most, 0).hi == 0);
  CHECK(raw_decay(-kInf, 0, 0).hi == 1);
  CHECK(raw_decay(0, -kInf, 0).hi == 1);
  CHECK(raw_decay(kInf, 0, 0).hi == 0);
  CHECK(std::isnan(raw_gate(-kInf, kInf, 0).hi));
}

TEST_CASE("sigmoid") {
  CHECK(sigmoid(0).hi == 0.5);
  CHECK(sigmoid(kInf).hi == 1);
  CHECK(sigmoid(-kInf).hi == 0);
  for (float x : {0.5f, -0.5f, -0x1p-149f, 40.0f, 61.0f, 100.0f, -100.0f, -700.0f, 88.0f, 1e30f, -1e30f})
    CHECK(is_rounded(sigmoid(x), std::fabs(x) > 1e6f ? Wide(x > 0) : Wide(1 / (1 + exp(Wide(-static_cast<double>(x)))))));
}

TEST_CASE("double-double rounds once to a format") {
  CHECK(round_to(DD<double>{1 + 0x1p-8, 0x1p-80}, Format::bf16) == 1 + 0x1p-7);
  CHECK(round_to(DD<double>{1 + 0x1p-8, -0x1p-80}, Format::bf16) == 1);
  CHECK(round_to(DD<double>{1 + 0x1p-8, 0}, Format::bf16) == 1);
  CHECK(round_to(DD<double>{-1 - 0x1p-24, -0x1p-100}, Format::fp32) == -1 - 0x1p-23);
}
