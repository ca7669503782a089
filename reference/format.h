// Storage formats and rounding: what one store to fp32, tf32, fp16, bf16 or fp8 does to a value.
// Every other part rounds through this file, so that there is one definition of each format.
// All rounding works on bit patterns from end to end: g++ 12.2 miscompiles a masked float otherwise.
#pragma once
#include <bit>
#include <cstdint>
#include <string>
#include <string_view>

namespace gdn {

enum class Format : std::uint8_t { fp64, fp32, tf32, fp16, bf16, fp8_e4m3, fp8_e5m2 };
enum class Rounding : std::uint8_t { nearest_even, nearest_away, toward_zero, stochastic };
enum class Subnormals : std::uint8_t { keep, flush };

// Parameters of a binary format. precision counts the implicit bit; emin is the exponent of the least
// normal number, emax of the greatest (IEEE 754-2019, 3.3; OCP 8-bit floating point 1.0 for e4m3, which
// has no infinity: overflow becomes NaN; its greatest finite value is 448).
struct FormatInfo {
  const char* name;
  int precision, emin, emax, bits;
  bool has_infinity;
  double max_finite;
};
const FormatInfo& info(Format f);
Format parse_format(std::string_view name);        // throws std::invalid_argument
const char* name(Rounding r);                      // rne rna rz sr
Rounding parse_rounding(std::string_view name);

// One storage point: format, number of terms (2 or 3 for bf16x2, bf16x3, tf32x3: the unevaluated sum of
// that many values, each the rounded remainder of the ones before), rounding, subnormals.
struct Store {
  Format format = Format::fp32;
  std::uint8_t terms = 1;
  Rounding rounding = Rounding::nearest_even;
  Subnormals subnormals = Subnormals::keep;
  bool operator==(const Store&) const = default;
};
std::string to_string(const Store& s);             // "bf16", "tf32x3", "bf16/rz/flush"
Store parse_store(std::string_view text);          // throws std::invalid_argument

// x rounded to the store's format. random: uniform 64 bits, read by stochastic rounding only, which
// rounds up in magnitude with probability (distance to the lower neighbour) / (spacing): up exactly when
// random / 2^64 is below that fraction. Toward zero never overflows; otherwise overflow gives infinity, or NaN
// in a format without one. Flushing replaces what rounds to a subnormal by zero. fp64 only flushes.
double round_to(double x, const Store& s, std::uint64_t random = 0);

namespace detail {
constexpr double kFast_normal[] = {0, 0x1p-126, 0x1p-126, 0x1p-14, 0x1p-126, 0x1p-6, 0x1p-14};
constexpr double kFast_max[] = {0, 0x1.fffffep127, 0x1.ffcp127, 65504, 0x1.fep127, 448, 57344};
constexpr int kFast_precision[] = {53, 24, 11, 11, 8, 4, 3};
}  // namespace detail

// round_to for one term, nearest even, subnormals kept, without branches so that loops vectorise; equal to
// round_to for every double (test_format).
template <Format F>
inline double round_nearest_even(double x) {
  if constexpr (F == Format::fp64) {
    return x;
  } else if constexpr (F == Format::fp32) {
    return static_cast<double>(static_cast<float>(x));
  } else {
    constexpr int index = static_cast<int>(F), drop = 53 - detail::kFast_precision[index];
    constexpr double normal = detail::kFast_normal[index], greatest = detail::kFast_max[index];
    // Adding 2^52 quanta leaves a whole number of quanta, ties to even.
    constexpr double magic = normal * 0x1p53 / static_cast<double>(std::uint64_t{1} << detail::kFast_precision[index]);
    constexpr std::uint64_t overflow = F == Format::fp8_e4m3 ? 0x7ff8000000000000u : 0x7ff0000000000000u;
    const std::uint64_t bits = std::bit_cast<std::uint64_t>(x), magnitude = bits & 0x7fffffffffffffffu;
    const std::uint64_t half = (std::uint64_t{1} << (drop - 1)) - 1;
    const std::uint64_t rounded = (magnitude + half + ((magnitude >> drop) & 1)) >> drop << drop;
    const std::uint64_t small = std::bit_cast<std::uint64_t>((std::bit_cast<double>(magnitude) + magic) - magic);
    std::uint64_t r = magnitude < std::bit_cast<std::uint64_t>(normal) ? small : rounded;
    r = r > std::bit_cast<std::uint64_t>(greatest) ? overflow : r;
    r = magnitude > 0x7ff0000000000000u ? magnitude : r;  // NaN
    return std::bit_cast<double>(r | (bits & 0x8000000000000000u));
  }
}

// Largest relative error of one rounding: u = 2^-p nearest, 2^(1-p) otherwise; u^n for n terms, each of which
// rounds the remainder of those before it.
double unit_roundoff(const Store& s);
// Largest absolute error below the least normal number: half the least subnormal (nearest), the whole of
// it (directed), or the least normal when flushed.
double underflow_unit(const Store& s);

// Bits of a value that is exactly representable after round_to (nearest even), and back. 8 to 64 bits.
std::uint64_t encode(double x, Format f);
double decode(std::uint64_t bits, Format f);

}  // namespace gdn
