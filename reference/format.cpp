// Storage formats and rounding on bit patterns; see format.h.
#include "reference/format.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>

namespace gdn {
namespace {

constexpr FormatInfo kFormats[] = {
    {"fp64", 53, -1022, 1023, 64, true, 0x1.fffffffffffffp1023},
    {"fp32", 24, -126, 127, 32, true, 0x1.fffffep127},
    {"tf32", 11, -126, 127, 32, true, 0x1.ffcp127},
    {"fp16", 11, -14, 15, 16, true, 65504},
    {"bf16", 8, -126, 127, 16, true, 0x1.fep127},
    {"fp8_e4m3", 4, -6, 8, 8, false, 448},
    {"fp8_e5m2", 3, -14, 15, 8, true, 57344},
};

double power_of_two(int q) { return std::bit_cast<double>(static_cast<std::uint64_t>(q + 1023) << 52); }  // normal range

double round_one(double x, const Store& s, std::uint64_t random) {
  const FormatInfo& f = info(s.format);
  const std::uint64_t bits = std::bit_cast<std::uint64_t>(x);
  const std::uint64_t sign = bits & 0x8000000000000000u;
  std::uint64_t mantissa = bits & 0x000fffffffffffffu;
  int exponent = static_cast<int>((bits >> 52) & 0x7ff);
  auto signed_value = [&](double magnitude) {
    return std::bit_cast<double>(std::bit_cast<std::uint64_t>(magnitude) | sign);
  };
  if (exponent == 0x7ff) {
    if (mantissa != 0) return x;  // NaN
    return f.has_infinity ? x : std::numeric_limits<double>::quiet_NaN();
  }
  if (exponent == 0 && mantissa == 0) return x;
  if (exponent == 0) exponent = 1; else mantissa |= 0x0010000000000000u;
  const int e = exponent - 1075;                   // |x| = mantissa * 2^e
  const int top = 63 - std::countl_zero(mantissa) + e;
  const int quantum = std::max(top, f.emin) - (f.precision - 1);
  const int drop = quantum - e;                    // low bits that do not fit; negative for double subnormals only
  double magnitude = std::fabs(x);
  if (drop > 0) {
    std::uint64_t kept = drop < 64 ? mantissa >> drop : 0;
    bool up = false;
    // The dropped part as a fraction of the quantum, compared exactly in integers.
    if (drop < 64) {
      const std::uint64_t rest = mantissa & ((std::uint64_t{1} << drop) - 1);
      const std::uint64_t half = std::uint64_t{1} << (drop - 1);
      switch (s.rounding) {
        case Rounding::nearest_even: up = rest > half || (rest == half && (kept & 1)); break;
        case Rounding::nearest_away: up = rest >= half; break;
        case Rounding::toward_zero: break;
        case Rounding::stochastic: up = (random >> (64 - drop)) < rest; break;
      }
    } else if (s.rounding == Rounding::stochastic) {
      // Fraction mantissa / 2^drop, below 2^-11: compare in units of 2^-64, rounded down.
      const int shift = drop - 64;
      up = shift < 64 && random < (mantissa >> shift);
    }
    kept += up;
    magnitude = static_cast<double>(kept) * power_of_two(quantum);
  }
  if (magnitude > f.max_finite) {
    if (s.rounding == Rounding::toward_zero) return signed_value(f.max_finite);
    return f.has_infinity ? signed_value(std::numeric_limits<double>::infinity()) : std::numeric_limits<double>::quiet_NaN();
  }
  if (s.subnormals == Subnormals::flush && magnitude < power_of_two(f.emin)) return signed_value(0.0);
  return signed_value(magnitude);
}

double nearest(double x, Format f) {
  switch (f) {
    case Format::fp64: return x;
    case Format::fp32: return round_nearest_even<Format::fp32>(x);
    case Format::tf32: return round_nearest_even<Format::tf32>(x);
    case Format::fp16: return round_nearest_even<Format::fp16>(x);
    case Format::bf16: return round_nearest_even<Format::bf16>(x);
    case Format::fp8_e4m3: return round_nearest_even<Format::fp8_e4m3>(x);
    case Format::fp8_e5m2: return round_nearest_even<Format::fp8_e5m2>(x);
  }
  return x;
}

template <class T>
[[noreturn]] T unknown(const char* what, std::string_view text) {
  throw std::invalid_argument(std::string("unknown ") + what + " '" + std::string(text) + "'");
}

}  // namespace

const FormatInfo& info(Format f) { return kFormats[static_cast<int>(f)]; }

Format parse_format(std::string_view text) {
  for (int i = 0; i < 7; ++i)
    if (text == kFormats[i].name) return static_cast<Format>(i);
  unknown<Format>("format", text);
}

const char* name(Rounding r) {
  constexpr const char* names[] = {"rne", "rna", "rz", "sr"};
  return names[static_cast<int>(r)];
}

Rounding parse_rounding(std::string_view text) {
  for (int i = 0; i < 4; ++i)
    if (text == name(static_cast<Rounding>(i))) return static_cast<Rounding>(i);
  unknown<Rounding>("rounding", text);
}

std::string to_string(const Store& s) {
  std::string t = info(s.format).name;
  if (s.terms > 1) t += "x" + std::to_string(s.terms);
  if (s.rounding != Rounding::nearest_even) t += std::string("/") + name(s.rounding);
  if (s.subnormals == Subnormals::flush) t += "/flush";
  return t;
}

Store parse_store(std::string_view text) {
  Store s;
  const std::string_view whole = text;
  auto fail = [&](const char* why) {
    throw std::invalid_argument("store '" + std::string(whole) + "': " + why);
  };
  bool rounding_seen = false, subnormals_seen = false;
  for (int position = 0;; ++position) {
    const std::size_t slash = text.find('/');
    std::string_view word = text.substr(0, slash);
    if (position == 0) {
      if (word.size() > 2 && word[word.size() - 2] == 'x' && (word.back() == '2' || word.back() == '3')) {
        s.terms = static_cast<std::uint8_t>(word.back() - '0');
        word.remove_suffix(2);
      }
      s.format = parse_format(word);
      if (s.terms > 1 && s.format != Format::bf16 && s.format != Format::tf32 && s.format != Format::fp16)
        fail("only bf16, fp16 and tf32 come in several terms");
    } else if (word == "flush" || word == "keep") {
      if (subnormals_seen) fail("subnormals given twice");
      subnormals_seen = true;
      s.subnormals = word == "flush" ? Subnormals::flush : Subnormals::keep;
    } else {
      const Rounding r = parse_rounding(word);
      if (rounding_seen) fail("rounding given twice");
      rounding_seen = true;
      s.rounding = r;
    }
    if (slash == std::string_view::npos) break;
    text.remove_prefix(slash + 1);
  }
  return s;
}

double round_to(double x, const Store& s, std::uint64_t random) {
  if (s.terms == 1 && s.rounding == Rounding::nearest_even && s.subnormals == Subnormals::keep) return nearest(x, s.format);
  if (s.format == Format::fp64)
    return s.subnormals == Subnormals::flush && std::fabs(x) < 0x1p-1022 ? std::copysign(0.0, x) : x;
  double sum = round_one(x, s, random);
  for (int term = 1; term < s.terms && std::isfinite(sum); ++term) {
    random = random * 0x9e3779b97f4a7c15u + 0x632be59bd9b4e019u;
    sum += round_one(x - sum, s, random);          // both exact: the remainder and the sum are multiples of x's last bit
  }
  return sum;
}

double unit_roundoff(const Store& s) {
  const int p = info(s.format).precision;
  const bool nearest = s.rounding == Rounding::nearest_even || s.rounding == Rounding::nearest_away;
  return std::ldexp(1.0, (nearest ? -p : 1 - p) * s.terms);
}

double underflow_unit(const Store& s) {
  const FormatInfo& f = info(s.format);
  if (s.subnormals == Subnormals::flush) return std::ldexp(1.0, f.emin);
  const bool nearest = s.rounding == Rounding::nearest_even || s.rounding == Rounding::nearest_away;
  return std::ldexp(1.0, f.emin - (f.precision - 1) - (nearest ? 1 : 0));
}

std::uint64_t encode(double x, Format format) {
  if (format == Format::fp64) return std::bit_cast<std::uint64_t>(x);
  const FormatInfo& f = info(format);
  const int stored_precision = format == Format::tf32 ? 24 : f.precision;
  const int fraction_bits = stored_precision - 1;
  const int bias = 1 - f.emin;
  const std::uint64_t sign = (std::bit_cast<std::uint64_t>(x) >> 63) << (f.bits - 1);
  const std::uint64_t exponent_mask = (std::uint64_t{1} << (f.bits - 1 - fraction_bits)) - 1;
  x = nearest(x, format);
  if (std::isnan(x)) {
    if (format == Format::fp8_e4m3) return sign | 0x7f;
    return sign | exponent_mask << fraction_bits | std::uint64_t{1} << (fraction_bits - 1);
  }
  if (std::isinf(x)) return sign | exponent_mask << fraction_bits;
  const double a = std::fabs(x);
  if (a == 0) return sign;
  // What is left is a normal number of double, every format's least one included.
  const std::uint64_t wide = std::bit_cast<std::uint64_t>(a);
  const int e = static_cast<int>(wide >> 52) - 1023;
  if (e < f.emin) return sign | static_cast<std::uint64_t>(a * power_of_two(fraction_bits - f.emin));
  const std::uint64_t m = (wide & 0x000fffffffffffffu) >> (52 - fraction_bits);
  return sign | static_cast<std::uint64_t>(e + bias) << fraction_bits | m;
}

double decode(std::uint64_t bits, Format format) {
  if (format == Format::fp64) return std::bit_cast<double>(bits);
  const FormatInfo& f = info(format);
  const int stored_precision = format == Format::tf32 ? 24 : f.precision;
  const int fraction_bits = stored_precision - 1;
  const int bias = 1 - f.emin;
  const bool negative = (bits >> (f.bits - 1)) & 1;
  const std::uint64_t fraction = bits & ((std::uint64_t{1} << fraction_bits) - 1);
  const int exponent_all = (1 << (f.bits - 1 - fraction_bits)) - 1;
  const int e = static_cast<int>(bits >> fraction_bits) & exponent_all;
  double a;
  if (e == exponent_all && f.has_infinity) {
    a = fraction ? std::numeric_limits<double>::quiet_NaN() : std::numeric_limits<double>::infinity();
  } else if (format == Format::fp8_e4m3 && e == exponent_all && fraction == 7) {
    a = std::numeric_limits<double>::quiet_NaN();
  } else if (e == 0) {
    a = static_cast<double>(fraction) * power_of_two(f.emin - fraction_bits);
  } else {
    a = static_cast<double>(fraction + (std::uint64_t{1} << fraction_bits)) * power_of_two(e - bias - fraction_bits);
  }
  return negative ? -a : a;
}

}  // namespace gdn
