// Tensors in their storage dtype, by name. The one representation of inputs and outputs that cases,
// goldens, kernels and checks exchange; always dense, row-major, canonical layout of the accuracy standard.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "reference/format.h"

namespace gdn {

enum class DType : std::uint8_t { f64, f32, f16, bf16, e4m3, e5m2, i32, i64 };
const char* name(DType t);                         // fp64 fp32 fp16 bf16 fp8_e4m3 fp8_e5m2 int32 int64
DType parse_dtype(std::string_view text);          // throws std::invalid_argument
std::size_t size_of(DType t);                      // bytes
bool is_floating(DType t);

struct Tensor {
  DType dtype = DType::f32;
  std::vector<std::int64_t> shape;
  std::vector<std::byte> data;

  Tensor() = default;
  Tensor(DType t, std::vector<std::int64_t> s);    // zero-filled
  std::int64_t size() const;                       // number of elements
  double at(std::int64_t i) const;                 // element i in row-major order; exact
  void set(std::int64_t i, double x);              // rounds to nearest even when x is not representable
  std::int64_t int_at(std::int64_t i) const;       // integer tensors
  std::uint64_t bits(std::int64_t i) const;        // raw storage bits, zero-extended
  void set_bits(std::int64_t i, std::uint64_t b);
  bool operator==(const Tensor&) const = default;  // dtype, shape and bits

 private:
  double other_at(std::int64_t i) const;           // of any dtype
  void set_other(std::int64_t i, double x);
};

// Names: inputs q k v g beta h0 cu_seqlens (and a A_log dt_bias state_indices ...), outputs o ht ...
// Element access, once per element of everything that is made, compared or judged: inline, the usual dtypes first.
inline std::int64_t Tensor::size() const {
  std::int64_t n = 1;
  for (std::int64_t d : shape) n *= d;
  return n;
}
inline std::uint64_t Tensor::bits(std::int64_t i) const {
  const auto load = [&]<class T>(T x) {            // little-endian hosts
    std::memcpy(&x, data.data() + static_cast<std::size_t>(i) * sizeof x, sizeof x);
    return static_cast<std::uint64_t>(x);
  };
  switch (dtype) {
    case DType::f32: case DType::i32: return load(std::uint32_t{});
    case DType::f16: case DType::bf16: return load(std::uint16_t{});
    case DType::e4m3: case DType::e5m2: return load(std::uint8_t{});
    default: return load(std::uint64_t{});
  }
}
inline double Tensor::at(std::int64_t i) const {
  if (dtype == DType::f32) return static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(bits(i))));
  if (dtype == DType::bf16) return static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(bits(i)) << 16));
  return other_at(i);
}
inline void Tensor::set(std::int64_t i, double x) {
  const auto store = [&](auto code) { std::memcpy(data.data() + static_cast<std::size_t>(i) * sizeof code, &code, sizeof code); };
  if (x == x && dtype == DType::f32) return store(static_cast<float>(x));
  if (x == x && dtype == DType::bf16)
    return store(static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(static_cast<float>(round_nearest_even<Format::bf16>(x))) >> 16));
  set_other(i, x);
}

using TensorSet = std::map<std::string, Tensor, std::less<>>;

std::string shape_text(const std::vector<std::int64_t>& shape);  // "[257,4,128]"

}  // namespace gdn
