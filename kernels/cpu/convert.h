// Fast conversions between fp32 and the 16-bit formats, to nearest even, equal to reference/format.h (tested on all
// codes). On integers from end to end: g++ 12 miscompiles a masked float otherwise.
#pragma once
#include <bit>
#include <cstdint>

namespace gdn::cpu {

static inline float from_bf16(std::uint16_t b) { return std::bit_cast<float>(static_cast<std::uint32_t>(b) << 16); }

static inline std::uint32_t bf16_bits_in_fp32(std::uint32_t u) {  // fp32 bits rounded to bf16, the low half zero
  const std::uint32_t nan = (u | 0x00400000u) & 0xffff0000u;
  const std::uint32_t rounded = (u + 0x7fffu + ((u >> 16) & 1u)) & 0xffff0000u;
  return (u & 0x7fffffffu) > 0x7f800000u ? nan : rounded;
}
static inline float round_bf16(float x) { return std::bit_cast<float>(bf16_bits_in_fp32(std::bit_cast<std::uint32_t>(x))); }
static inline std::uint16_t to_bf16(float x) { return static_cast<std::uint16_t>(bf16_bits_in_fp32(std::bit_cast<std::uint32_t>(x)) >> 16); }

static inline float from_fp16(std::uint16_t h) {
  const std::uint32_t sign = static_cast<std::uint32_t>(h & 0x8000u) << 16, m = h & 0x3ffu;
  std::uint32_t e = (h >> 10) & 0x1fu;
  if (e == 0x1f) return std::bit_cast<float>(sign | 0x7f800000u | m << 13);
  if (e != 0) return std::bit_cast<float>(sign | (e + 112) << 23 | m << 13);
  const float x = static_cast<float>(m) * 0x1p-24f;  // subnormal: exact
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(x) | sign);
}

static inline std::uint16_t to_fp16(float x) {
  const std::uint32_t u = std::bit_cast<std::uint32_t>(x), a = u & 0x7fffffffu;
  const auto sign = static_cast<std::uint16_t>((u >> 16) & 0x8000u);
  if (a > 0x7f800000u) return static_cast<std::uint16_t>(sign | 0x7e00u);
  if (a >= 0x477ff000u) return static_cast<std::uint16_t>(sign | 0x7c00u);  // 65520 and more
  if (a >= 0x38800000u)                                                     // normal: 2^-14 and more
    return static_cast<std::uint16_t>(sign | ((a - 0x38000000u + 0xfffu + ((a >> 13) & 1u)) >> 13));
  const std::uint32_t e = a >> 23;
  if (e < 102) return sign;                                                 // below 2^-25
  const std::uint32_t m = (a & 0x7fffffu) | 0x800000u, shift = 126 - e;     // value m 2^(e-150), quantum 2^-24
  return static_cast<std::uint16_t>(sign | ((m + (1u << (shift - 1)) - 1 + ((m >> shift) & 1u)) >> shift));
}

}  // namespace gdn::cpu
