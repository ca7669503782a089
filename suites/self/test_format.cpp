// Formats: every code of the 16- and 8-bit formats, every midpoint between neighbours and the doubles next to it, in
// all roundings and both subnormal modes, against an independent rule made from the list of representable values.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "reference/format.h"
#include "reference/rng.h"
#include "suites/self/catch.h"

using namespace gdn;

namespace {

constexpr Format kAll[] = {Format::fp64, Format::fp32, Format::tf32, Format::fp16, Format::bf16, Format::fp8_e4m3, Format::fp8_e5m2};
constexpr Format kNarrow[] = {Format::fp16, Format::bf16, Format::fp8_e4m3, Format::fp8_e5m2};
constexpr Rounding kModes[] = {Rounding::nearest_even, Rounding::nearest_away, Rounding::toward_zero, Rounding::stochastic};
const double inf = std::numeric_limits<double>::infinity();

bool same(double a, double b) {                    // as values, with the sign of zero; any NaN equals any NaN
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  return a == b && std::signbit(a) == std::signbit(b);
}

double fast(double x, Format f) {
  switch (f) {
    case Format::fp64: return round_nearest_even<Format::fp64>(x);
    case Format::fp32: return round_nearest_even<Format::fp32>(x);
    case Format::tf32: return round_nearest_even<Format::tf32>(x);
    case Format::fp16: return round_nearest_even<Format::fp16>(x);
    case Format::bf16: return round_nearest_even<Format::bf16>(x);
    case Format::fp8_e4m3: return round_nearest_even<Format::fp8_e4m3>(x);
    case Format::fp8_e5m2: return round_nearest_even<Format::fp8_e5m2>(x);
  }
  return 0;
}

// One step of a format: neighbours a < b, nonnegative, b possibly the first value that is too large, which becomes `over`.
struct Step {
  Format format;
  double a, b;
  bool a_even;
  bool b_too_large;
};

// What a result beyond the greatest value becomes, by mode.
double settle(const Step& s, double value, Rounding mode, bool flush) {
  if (value == s.b && s.b_too_large) {
    if (mode == Rounding::toward_zero) return s.a;
    return info(s.format).has_infinity ? inf : std::nan("");
  }
  if (flush && value < std::ldexp(1.0, info(s.format).emin)) return 0;
  return value;
}

int wrong = 0;
void expect(double x, const Store& st, std::uint64_t random, double want) {
  for (int sign = 0; sign < 2; ++sign) {
    const double in = sign ? -x : x, out = sign ? -want : want;
    const double got = round_to(in, st, random);
    bool good = same(got, out);
    if (st.rounding == Rounding::nearest_even && st.subnormals == Subnormals::keep) good = good && same(fast(in, st.format), out);
    if (!good && wrong++ < 10) {
      INFO(to_string(st) << " of " << std::hexfloat << in << " gives " << got << " not " << out);
      CHECK(false);
    }
  }
}

// x strictly between a and b (or equal to a), in every mode; fraction = (x-a)/(b-a) is exact in long double.
void check_point(const Step& s, double x) {
  const double mid = s.a + (s.b - s.a) / 2;
  for (Subnormals sub : {Subnormals::keep, Subnormals::flush}) {
    const bool flush = sub == Subnormals::flush;
    auto value = [&](bool up, Rounding m) { return settle(s, up ? s.b : s.a, m, flush); };
    expect(x, {s.format, 1, Rounding::nearest_even, sub}, 0, value(x > mid || (x == mid && !s.a_even), Rounding::nearest_even));
    expect(x, {s.format, 1, Rounding::nearest_away, sub}, 0, value(x >= mid, Rounding::nearest_away));
    expect(x, {s.format, 1, Rounding::toward_zero, sub}, 0, value(false, Rounding::toward_zero));
    // Up exactly when random / 2^64 < fraction.
    const long double threshold = (static_cast<long double>(x) - s.a) / (static_cast<long double>(s.b) - s.a) * 0x1p64L;
    const Store st{s.format, 1, Rounding::stochastic, sub};
    const auto least = static_cast<std::uint64_t>(threshold);
    if (least > 0) expect(x, st, least - 1, value(true, Rounding::stochastic));
    if (static_cast<long double>(least) == threshold) expect(x, st, least, value(false, Rounding::stochastic));
    expect(x, st, ~std::uint64_t{0}, value(false, Rounding::stochastic));
  }
}

void check_step(const Step& s) {
  const double mid = s.a + (s.b - s.a) / 2;
  for (double x : {s.a, std::nextafter(s.a, inf), std::nextafter(mid, 0.0), mid, std::nextafter(mid, inf), std::nextafter(s.b, 0.0)})
    check_point(s, x);
}

}  // namespace

TEST_CASE("all codes of the 16- and 8-bit formats round-trip") {
  for (Format f : kNarrow) {
    const std::uint64_t codes = std::uint64_t{1} << info(f).bits;
    int nans = 0, infinities = 0, bad = 0;
    double greatest = 0;
    for (std::uint64_t c = 0; c < codes; ++c) {
      const double x = decode(c, f);
      if (std::isnan(x)) {
        ++nans;
        bad += !std::isnan(decode(encode(x, f), f)) || !std::isnan(round_to(x, Store{f}));
        continue;
      }
      bad += encode(x, f) != c;
      if (std::isinf(x)) {
        ++infinities;
        continue;
      }
      greatest = std::max(greatest, x);
      for (Rounding m : kModes) {
        bad += !same(round_to(x, {f, 1, m, Subnormals::keep}, ~std::uint64_t{0}), x) || !same(round_to(x, {f, 1, m, Subnormals::keep}, 0), x);
        const double flushed = std::fabs(x) < std::ldexp(1.0, info(f).emin) ? std::copysign(0.0, x) : x;
        bad += !same(round_to(x, {f, 1, m, Subnormals::flush}, 0), flushed);
      }
    }
    INFO(info(f).name);
    CHECK(bad == 0);
    CHECK(greatest == info(f).max_finite);
    CHECK(infinities == (info(f).has_infinity ? 2 : 0));
    CHECK(nans == (f == Format::fp16 ? 2046 : f == Format::bf16 ? 254 : f == Format::fp8_e4m3 ? 2 : 6));
  }
}

TEST_CASE("every midpoint between neighbours and its neighbours in every mode") {
  wrong = 0;
  for (Format f : kNarrow) {
    std::vector<double> values;                    // nonnegative, ascending; index parity is the parity of the code
    for (std::uint64_t c = 0; c < std::uint64_t{1} << (info(f).bits - 1); ++c)
      if (const double x = decode(c, f); std::isfinite(x)) values.push_back(x);
    REQUIRE(std::is_sorted(values.begin(), values.end()));
    const std::size_t n = values.size();
    values.push_back(2 * values[n - 1] - values[n - 2]);   // the value that the next code would have
    for (std::size_t i = 0; i < n; ++i) check_step({f, values[i], values[i + 1], i % 2 == 0, i + 1 == n});
    // Far beyond: overflow in every mode.
    for (double x : {values[n], 1e300, std::numeric_limits<double>::max()}) {
      expect(x, {f}, 0, info(f).has_infinity ? inf : std::nan(""));
      expect(x, {f, 1, Rounding::toward_zero, Subnormals::keep}, 0, values[n - 1]);
    }
    for (Rounding m : kModes) expect(inf, {f, 1, m, Subnormals::keep}, 0, info(f).has_infinity ? inf : std::nan(""));
  }
  CHECK(wrong == 0);
}

TEST_CASE("fp32 and tf32 at binade boundaries, at the ends and at random") {
  wrong = 0;
  for (Format f : {Format::fp32, Format::tf32}) {
    const FormatInfo& i = info(f);
    auto step = [&](std::int64_t m, int e) {       // a = m 2^(e-p+1)
      const int quantum = e - i.precision + 1;
      const double a = std::ldexp(static_cast<double>(m), quantum), b = std::ldexp(static_cast<double>(m + 1), quantum);
      check_step({f, a, b, m % 2 == 0, b > i.max_finite});
    };
    const std::int64_t full = std::int64_t{1} << i.precision, half = full / 2;
    for (std::int64_t m : {std::int64_t{0}, std::int64_t{1}, std::int64_t{2}, half - 2, half - 1}) step(m, i.emin);   // subnormals
    for (int e = i.emin; e <= i.emax; ++e)
      for (std::int64_t m : {half, half + 1, half + half / 3, full - 2, full - 1}) step(m, e);
    Random random(1, i.name);
    for (std::uint64_t n = 0; n < 20000; ++n) {
      const int e = i.emin + static_cast<int>(random.below(3 * n, static_cast<std::uint64_t>(i.emax - i.emin + 1)));
      step(half + static_cast<std::int64_t>(random.below(3 * n + 1, static_cast<std::uint64_t>(half))), e);
    }
  }
  CHECK(wrong == 0);
}

// Rounding to nearest even without the short cut that round_to takes for it: flushing does not matter from the least normal number on.
double general(double x, Format f) {
  const double flushed = round_to(x, {f, 1, Rounding::nearest_even, Subnormals::flush});
  return flushed == 0 ? round_to(x, Store{f}) : flushed;
}

TEST_CASE("fp32 to nearest even is the hardware conversion, fast path is round_to") {
  Random random(7, "bits");
  int bad = 0;
  for (std::uint64_t n = 0; n < 400000; ++n) {
    std::uint64_t b = random.bits(n);
    // Half of the samples inside the exponents where the formats live.
    if (n % 2) b = (b & 0x800fffffffffffffu) | (0x3ffu - 160 + (random.bits(n + 1000000) % 320)) << 52;
    const double x = std::bit_cast<double>(b);
    volatile float hardware = static_cast<float>(x);
    bad += !same(round_to(x, Store{Format::fp32}), static_cast<double>(hardware));
    for (Format f : kAll) bad += !same(general(x, f), fast(x, f)) || !same(round_to(x, Store{f}), fast(x, f));
  }
  CHECK(bad == 0);
  for (double x : {0.0, -0.0, inf, -inf, std::nan(""), 5e-324, -5e-324, 1e-310, 0x1p-149, 0x1p-150, 0x1.8p-150})
    for (Format f : kAll) CHECK(same(round_to(x, Store{f}), fast(x, f)));
}

TEST_CASE("doubles far below a format's range") {
  for (Format f : {Format::fp32, Format::fp16, Format::fp8_e5m2})
    for (double x : {5e-324, 1e-310, 1e-300, 0x1p-200}) {
      for (Rounding m : {Rounding::nearest_even, Rounding::nearest_away, Rounding::toward_zero}) CHECK(same(round_to(-x, {f, 1, m, Subnormals::keep}), -0.0));
      CHECK(round_to(x, {f, 1, Rounding::stochastic, Subnormals::keep}, ~std::uint64_t{0}) == 0);
    }
  // Fraction 2^-51 of the least fp32 subnormal: probability exactly 2^-51, here with the mantissa out of reach of a shift.
  const double least = 0x1p-149;
  const Store sr{Format::fp32, 1, Rounding::stochastic, Subnormals::keep};
  CHECK(round_to(0x1p-200, sr, (std::uint64_t{1} << 13) - 1) == least);
  CHECK(round_to(0x1p-200, sr, std::uint64_t{1} << 13) == 0);
  CHECK(round_to(0x1p-214, sr, 0) == 0);
  CHECK(round_to(1e-310, {Format::fp64, 1, Rounding::nearest_even, Subnormals::flush}) == 0);
  CHECK(round_to(1e-310, {Format::fp64}) == 1e-310);
}

TEST_CASE("stochastic rounding is unbiased over equidistant random numbers") {
  for (Format f : kNarrow) {
    const Store st{f, 1, Rounding::stochastic, Subnormals::keep};
    const double a = decode(encode(1.25, f), f), b = decode(encode(1.25, f) + 1, f);
    for (int eighth = 0; eighth < 8; ++eighth) {
      int up = 0;
      for (std::uint64_t i = 0; i < 64; ++i) up += round_to(a + (b - a) * eighth / 8, st, i << 58) == b;
      CHECK(up == 8 * eighth);
    }
  }
}

TEST_CASE("several terms: the sum of rounded remainders") {
  Random random(3, "terms");
  for (const char* text : {"bf16x2", "bf16x3", "tf32x3", "fp16x2", "bf16x2/rz", "tf32x3/rz", "bf16x3/sr"}) {
    const Store st = parse_store(text);
    const Store one{st.format, 1, st.rounding, st.subnormals};
    double worst = 0;
    int bad = 0;
    for (std::uint64_t n = 0; n < 20000; ++n) {
      const double x = random.uniform(n, 0.5, 2) * (n % 2 ? 1 : -1), y = round_to(x, st, random.bits(n));
      worst = std::max(worst, std::fabs(y - x) / std::fabs(x));
      if (st.rounding != Rounding::stochastic) {   // representable as the declared number of terms
        double rest = y;
        for (int t = 0; t < st.terms; ++t) rest -= round_to(rest, one);
        bad += rest != 0;
      }
    }
    INFO(text << " worst " << worst << " unit " << unit_roundoff(st));
    CHECK(bad == 0);
    CHECK(worst <= unit_roundoff(st));
    CHECK(worst >= unit_roundoff(st) / 8);
  }
}

TEST_CASE("unit roundoff and underflow unit are attained and never exceeded") {
  for (Format f : kAll) {
    if (f == Format::fp64) continue;
    for (Rounding m : {Rounding::nearest_even, Rounding::nearest_away, Rounding::toward_zero})
      for (Subnormals sub : {Subnormals::keep, Subnormals::flush}) {
        const Store st{f, 1, m, sub};
        const FormatInfo& i = info(f);
        Random random(11, to_string(st));
        double relative = 0, absolute = 0;
        for (std::uint64_t n = 0; n < 3000; ++n) {
          const double x = random.uniform(n, 1, 1 + 4 * std::ldexp(1.0, -i.precision)), y = std::ldexp(random.uniform(n + 5000, 0, n % 2 ? 1 : 4 * std::ldexp(1.0, -i.precision)), i.emin);
          relative = std::max(relative, std::fabs(round_to(x, st) - x) / x);
          absolute = std::max(absolute, std::fabs(round_to(y, st) - y));
        }
        INFO(to_string(st));
        CHECK(relative <= unit_roundoff(st));
        CHECK(relative >= 0.7 * unit_roundoff(st));
        CHECK(absolute <= underflow_unit(st));
        CHECK(absolute >= 0.7 * underflow_unit(st));
      }
  }
}

TEST_CASE("store texts") {
  for (const char* text : {"fp64", "fp32", "tf32", "fp16", "bf16", "fp8_e4m3", "fp8_e5m2", "bf16x2", "tf32x3", "bf16/rz", "bf16/rna/flush", "fp16/flush", "fp32/sr"})
    CHECK(to_string(parse_store(text)) == text);
  CHECK(to_string(parse_store("bf16/flush/rne")) == "bf16/flush");
  CHECK(to_string(parse_store("bf16/keep")) == "bf16");
  for (const char* text : {"", "bf", "bf16/", "bf16//rz", "bf16/rz/rne", "bf16/flush/keep", "fp32x2", "fp64x3", "bf16x4", "bf16x1", "x2", "bf16 ", "BF16", "bf16/up"})
    CHECK_THROWS_AS(parse_store(text), std::invalid_argument);
}
