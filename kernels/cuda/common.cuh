// Shared by the CUDA kernels: views of the ABI's tensors, scalar loads and stores in any dtype, one-line errors.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <cstdio>

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

// Everything a forward kernel needs of a call. Shapes as in gdn_kernel.h.
struct Forward {
  View q, k, v, g, beta, h0, cu, o, ht;            // g, beta absent: 0 and 1
  int64_t N, T;
  int H, HV, K, V;
  float scale;
};

// Fills `f` from a call; false with a message when a tensor is missing or laid out in a way no kernel here takes.
bool read_call(const gdn_call* call, Forward* f, char* message, size_t size);
// The error of a launch or call as one line; true when there was none.
bool cuda_ok(cudaError_t status, const char* what, char* message, size_t size);
// True when a CUDA device can be used; else the message says why.
bool device_present(char* message, size_t size);

// Below this gate exp(g) rounds to zero in fp32: it is a reset, and gate sums start again after it.
constexpr float kReset = -104.0f;

}  // namespace gdn_cuda
