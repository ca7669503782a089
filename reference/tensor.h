// Tensors in their storage dtype, by name. The one representation of inputs and outputs that cases,
// goldens, kernels and checks exchange; always dense, row-major, canonical layout of the accuracy standard.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

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
};

// Names: inputs q k v g beta h0 cu_seqlens (and a A_log dt_bias state_indices ...), outputs o ht ...
using TensorSet = std::map<std::string, Tensor, std::less<>>;

std::string shape_text(const std::vector<std::int64_t>& shape);  // "[257,4,128]"

}  // namespace gdn
