// Tensors in their storage dtype; see tensor.h.
#include "reference/tensor.h"

#include <cstring>
#include <stdexcept>

#include "reference/format.h"

namespace gdn {
namespace {
constexpr const char* kNames[] = {"fp64", "fp32", "fp16", "bf16", "fp8_e4m3", "fp8_e5m2", "int32", "int64"};
constexpr std::size_t kSizes[] = {8, 4, 2, 2, 1, 1, 4, 8};
constexpr Format kFormats[] = {Format::fp64, Format::fp32, Format::fp16, Format::bf16, Format::fp8_e4m3, Format::fp8_e5m2};
}  // namespace

const char* name(DType t) { return kNames[static_cast<int>(t)]; }

DType parse_dtype(std::string_view text) {
  for (int i = 0; i < 8; ++i)
    if (text == kNames[i]) return static_cast<DType>(i);
  throw std::invalid_argument("unknown dtype '" + std::string(text) + "'");
}

std::size_t size_of(DType t) { return kSizes[static_cast<int>(t)]; }
bool is_floating(DType t) { return t != DType::i32 && t != DType::i64; }

Tensor::Tensor(DType t, std::vector<std::int64_t> s) : dtype(t), shape(std::move(s)) {
  data.resize(static_cast<std::size_t>(size()) * size_of(t));
}

void Tensor::set_bits(std::int64_t i, std::uint64_t b) {
  const std::size_t w = size_of(dtype);
  std::memcpy(data.data() + static_cast<std::size_t>(i) * w, &b, w);
}

double Tensor::other_at(std::int64_t i) const {
  switch (dtype) {
    case DType::f64: { double x; std::memcpy(&x, data.data() + i * 8, 8); return x; }
    case DType::f32: { float x; std::memcpy(&x, data.data() + i * 4, 4); return x; }
    case DType::bf16: { return std::bit_cast<float>(static_cast<std::uint32_t>(bits(i)) << 16); }
    case DType::i32: case DType::i64: return static_cast<double>(int_at(i));
    default: return decode(bits(i), kFormats[static_cast<int>(dtype)]);
  }
}

void Tensor::set_other(std::int64_t i, double x) {
  if (dtype == DType::i32) return set_bits(i, static_cast<std::uint32_t>(static_cast<std::int32_t>(x)));
  if (dtype == DType::i64) return set_bits(i, static_cast<std::uint64_t>(static_cast<std::int64_t>(x)));
  set_bits(i, encode(x, kFormats[static_cast<int>(dtype)]));
}

std::int64_t Tensor::int_at(std::int64_t i) const {
  if (dtype == DType::i32) return static_cast<std::int32_t>(bits(i));
  if (dtype == DType::i64) return static_cast<std::int64_t>(bits(i));
  throw std::logic_error("int_at on a floating tensor");
}

std::string shape_text(const std::vector<std::int64_t>& shape) {
  std::string t = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) t += (i ? "," : "") + std::to_string(shape[i]);
  return t + "]";
}

}  // namespace gdn
