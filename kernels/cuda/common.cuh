// Shared by the CUDA kernels: views of the ABI's tensors, scalar loads and stores in any dtype, one-line errors.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <cstdio>

#include "kernels/cuda/host.h"
#include "kernels/gdn_kernel.h"

namespace gdn_cuda {

enum class Type : int { f32, f16, bf16, i32, i64 };

struct View {
  void* data = nullptr;
  Type type = Type::f32;
  int64_t s0 = 0, s1 = 0, s2 = 0, s3 = 0;          // strides in elements
  __host__ __device__ explicit operator bool() const { return data != nullptr; }
};

__device__ __forceinline__ float load(const View& v, int64_t i) {
  switch (v.type) {
    case Type::f16: return __half2float(static_cast<const __half*>(v.data)[i]);
    case Type::bf16: return __bfloat162float(static_cast<const __nv_bfloat16*>(v.data)[i]);
    default: return static_cast<const float*>(v.data)[i];
  }
}
__device__ __forceinline__ void store(const View& v, int64_t i, float x) {
  switch (v.type) {
    case Type::f16: static_cast<__half*>(v.data)[i] = __float2half_rn(x); break;
    case Type::bf16: static_cast<__nv_bfloat16*>(v.data)[i] = __float2bfloat16_rn(x); break;
    default: static_cast<float*>(v.data)[i] = x;
  }
}
__device__ __forceinline__ int64_t load_int(const View& v, int64_t i) {
  return v.type == Type::i64 ? static_cast<const int64_t*>(v.data)[i] : static_cast<const int32_t*>(v.data)[i];
}

// Four values from any address, as floats. vector: the address is aligned to their size.
template <Type type> __device__ __forceinline__ float4 load4(const void* data, int64_t i, int count, bool vector) {
  if (vector && count >= 4) {
    if constexpr (type == Type::f32) {
      return *reinterpret_cast<const float4*>(static_cast<const float*>(data) + i);
    } else {
      const uint2 raw = *reinterpret_cast<const uint2*>(static_cast<const uint16_t*>(data) + i);
      if constexpr (type == Type::bf16)
        return make_float4(__uint_as_float(raw.x << 16), __uint_as_float(raw.x & 0xffff0000u), __uint_as_float(raw.y << 16), __uint_as_float(raw.y & 0xffff0000u));
      const float2 low = __half22float2(*reinterpret_cast<const __half2*>(&raw.x)), high = __half22float2(*reinterpret_cast<const __half2*>(&raw.y));
      return make_float4(low.x, low.y, high.x, high.y);
    }
  }
  float x[4];
#pragma unroll
  for (int e = 0; e < 4; ++e) {
    if (e >= count) x[e] = 0.0f;
    else if constexpr (type == Type::f32) x[e] = static_cast<const float*>(data)[i + e];
    else if constexpr (type == Type::bf16) x[e] = __bfloat162float(static_cast<const __nv_bfloat16*>(data)[i + e]);
    else x[e] = __half2float(static_cast<const __half*>(data)[i + e]);
  }
  return make_float4(x[0], x[1], x[2], x[3]);
}
// Rows of a view as floats in shared memory, `width` of `padded` columns, the rest and rows past `rows` zero. All loads of a
// thread are in flight at once: chunks are short, and one load after the other would cost a memory latency each.
template <Type type, int kRows, int kColumns, int kThreads>
__device__ __forceinline__ void load_rows(const View& x, int64_t first, int64_t offset, int rows, int width, bool vector, float* to, int pitch) {
  constexpr int per_row = kColumns / 4, batch = (kRows * per_row + kThreads - 1) / kThreads, unroll = batch < 8 ? batch : 8;
#pragma unroll 1
  for (int outer = 0; outer < batch; outer += unroll) {
    float4 values[unroll];
#pragma unroll
    for (int b = 0; b < unroll; ++b) {
      const int i = threadIdx.x + (outer + b) * kThreads, r = i / per_row, c = i % per_row * 4;
      values[b] = r < rows && c < width && r < kRows ? load4<type>(x.data, (first + r) * x.s0 + offset + c, width - c, vector) : make_float4(0, 0, 0, 0);
    }
#pragma unroll
    for (int b = 0; b < unroll; ++b) {
      const int i = threadIdx.x + (outer + b) * kThreads, r = i / per_row, c = i % per_row * 4;
      if (r < kRows) *reinterpret_cast<float4*>(to + r * pitch + c) = values[b];
    }
  }
}
// True when rows of the view can be read four values at a time.
inline bool vector4(const View& x) {
  const int64_t size = x.type == Type::f32 ? 4 : 2;
  return reinterpret_cast<uintptr_t>(x.data) % (4 * size) == 0 && x.s0 % 4 == 0 && x.s1 % 4 == 0;
}

// Everything a forward kernel needs of a call. Shapes as in gdn_kernel.h.
struct Forward {
  View q, k, v, g, beta, h0, cu, o, ht;            // g, beta absent: 0 and 1
  int64_t N, T;
  int H, HV, K, V;
  float scale;
};

// A tensor of a call as a view; true when it is there or not required and laid out in a way the kernels here take.
bool read_view(const gdn_call* call, int role, const char* name, bool required, int ndim, View* out, char* message, size_t size);
// Fills `f` from a call; false with a message when a tensor is missing or laid out in a way no kernel here takes.
bool read_call(const gdn_call* call, Forward* f, char* message, size_t size);
// Below this gate exp(g) rounds to zero in fp32: it is a reset, and gate sums start again after it.
constexpr float kReset = -104.0f;

}  // namespace gdn_cuda
