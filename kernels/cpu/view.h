// Tensors of a call as the CPU kernels see them: any strides, fp32 and 16-bit dtypes read into dense fp32 rows, shapes checked.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "kernels/cpu/convert.h"
#include "kernels/gdn_kernel.h"

namespace gdn::cpu {

inline int say(char* message, std::size_t size, int status, const std::string& text) {
  if (size) std::snprintf(message, size, "%s", text.c_str());
  return status;
}

// Parts begin on cache lines: Eigen's sums may depend on where data sits.
inline std::int64_t aligned(std::int64_t floats) { return (floats + 15) / 16 * 16; }

enum class Element { f32, f16, bf16, i32, i64, unknown };

inline Element element(gdn_dtype t) {
  if (t.lanes != 1) return Element::unknown;
  if (t.code == GDN_CODE_FLOAT && t.bits == 32) return Element::f32;
  if (t.code == GDN_CODE_FLOAT && t.bits == 16) return Element::f16;
  if (t.code == GDN_CODE_BFLOAT && t.bits == 16) return Element::bf16;
  if (t.code == GDN_CODE_INT && t.bits == 32) return Element::i32;
  if (t.code == GDN_CODE_INT && t.bits == 64) return Element::i64;
  return Element::unknown;
}

// A tensor of the call; missing ones have no data.
struct View {
  char* data = nullptr;
  Element type = Element::f32;
  const std::int64_t* stride = nullptr;
  explicit operator bool() const { return data != nullptr; }
  std::int64_t at(std::int64_t i, std::int64_t j) const { return i * stride[0] + j * stride[1]; }
  bool rows_of_floats() const { return type == Element::f32 && stride[2] == 1; }
  float* floats(std::int64_t i, std::int64_t j) const { return reinterpret_cast<float*>(data) + at(i, j); }
};

// `n` elements from element `first` on, `step` apart.
template <class T, class F>
void load(float* to, const View& t, std::int64_t first, std::int64_t step, std::int64_t n, F convert) {
  const T* from = reinterpret_cast<const T*>(t.data) + first;
  if (step == 1)                                   // a loop of its own, which vectorises
    for (std::int64_t i = 0; i < n; ++i) to[i] = convert(from[i]);
  else
    for (std::int64_t i = 0; i < n; ++i) to[i] = convert(from[i * step]);
}

inline void read(float* to, const View& t, std::int64_t first, std::int64_t step, std::int64_t n) {
  switch (t.type) {
    case Element::f32:
      if (step == 1) std::copy_n(reinterpret_cast<const float*>(t.data) + first, n, to);   // faster than the loop the compiler makes
      else load<float>(to, t, first, step, n, [](float x) { return x; });
      return;
    case Element::f16: return load<std::uint16_t>(to, t, first, step, n, from_fp16);
    default: return load<std::uint16_t>(to, t, first, step, n, from_bf16);
  }
}

inline void write(const float* from, const View& t, std::int64_t first, std::int64_t step, std::int64_t n) {
  if (t.type == Element::f32) {
    float* to = reinterpret_cast<float*>(t.data) + first;
    if (step == 1) std::copy_n(from, n, to);
    else
      for (std::int64_t i = 0; i < n; ++i) to[i * step] = from[i];
    return;
  }
  std::uint16_t* to = reinterpret_cast<std::uint16_t*>(t.data) + first;
  for (std::int64_t i = 0; i < n; ++i) to[i * step] = t.type == Element::f16 ? to_fp16(from[i]) : to_bf16(from[i]);
}

// Finds a tensor and checks its shape; the reason goes to `why`.
inline View find(const gdn_call* call, std::int32_t role, const char* name, const std::vector<std::int64_t>& shape, bool required,
          bool integers, std::string& why) {
  View view;
  const gdn_tensor* t = gdn_find(call, role);
  if (!t) {
    if (required && why.empty()) why = std::string(name) + " is missing";
    return view;
  }
  view.type = element(t->t.dtype);
  view.stride = t->t.strides;
  view.data = static_cast<char*>(t->t.data) + t->t.byte_offset;
  const bool integer = view.type == Element::i32 || view.type == Element::i64;
  if (why.empty() && (view.type == Element::unknown || integer != integers)) why = std::string(name) + " has a dtype this kernel does not take";
  if (why.empty() && (t->t.ndim != static_cast<std::int32_t>(shape.size()) || !std::equal(shape.begin(), shape.end(), t->t.shape)))
    why = std::string(name) + " has the wrong shape";
  return view;
}

inline std::int64_t integer(const View& t, std::int64_t i) {
  i *= t.stride[0];
  return t.type == Element::i32 ? reinterpret_cast<const std::int32_t*>(t.data)[i] : reinterpret_cast<const std::int64_t*>(t.data)[i];
}

// g = -exp(A_log) softplus(a + dt_bias), in double and right in both tails: far below 0 softplus is e^x, which joins the
// other exponent, so that neither factor can vanish or overflow where their product does not.
inline float raw_gate(float a, float A_log, float dt_bias) {
  const double x = static_cast<double>(a) + static_cast<double>(dt_bias), A = static_cast<double>(A_log);
  if (x < -40) return static_cast<float>(-std::exp(A + x));
  return static_cast<float>(-std::exp(A) * (std::max(x, 0.0) + std::log1p(std::exp(-std::fabs(x)))));
}

// Offsets of the sequences; empty where cu_seqlens is none.
inline std::vector<std::int64_t> offsets_of(const View& cu, std::int64_t N, std::int64_t T) {
  std::vector<std::int64_t> offsets{0, T};
  if (!cu) return offsets;
  offsets.clear();
  for (std::int64_t n = 0; n <= N; ++n) offsets.push_back(integer(cu, n));
  if (offsets.front() != 0 || offsets.back() > T || !std::is_sorted(offsets.begin(), offsets.end())) offsets.clear();
  return offsets;
}

inline constexpr const char* kBadOffsets = "cu_seqlens does not rise from 0 to at most T";

}  // namespace gdn::cpu
