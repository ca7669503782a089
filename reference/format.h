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
// rounds up in magnitude with probability (distance to the lower neighbour) / (spacing).
double round_to(double x, const Store& s, std::uint64_t random = 0);

// Largest relative error of one rounding (2^-p nearest, 2^(1-p) otherwise; per extra term 2^-p more).
double unit_roundoff(const Store& s);
// Largest absolute error below the least normal number: half the least subnormal (nearest), the whole of
// it (directed), or the least normal when flushed.
double underflow_unit(const Store& s);

// Bits of a value that is exactly representable after round_to (nearest even), and back. 8 to 64 bits.
std::uint64_t encode(double x, Format f);
double decode(std::uint64_t bits, Format f);

}  // namespace gdn
