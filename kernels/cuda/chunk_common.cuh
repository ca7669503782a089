// What the chunkwise CUDA kernels share: the list of chunks of packed sequences, gate sums that survive resets, and
// the inverse of I+L by forward substitution.
#pragma once
#include "kernels/cuda/common.cuh"

namespace gdn_cuda {

constexpr int C = 64;                              // rows of a chunk
constexpr int kRow = 68;                           // floats per row of a square in shared memory: 16-byte rows, few bank conflicts

// Chunks before each sequence, for packed sequences; one block of 1024 threads.
static __global__ void plan_chunks(Forward f, int* chunk_offset) {
  // One block; N up to a million: each thread sums a contiguous part, then the parts are scanned.
  __shared__ int part[1024];
  const int64_t N = f.N, per = (N + blockDim.x - 1) / blockDim.x;
  const int64_t first = threadIdx.x * per, last = min(N, first + per);
  int sum = 0;
  for (int64_t n = first; n < last; ++n) sum += static_cast<int>((load_int(f.cu, n + 1) - load_int(f.cu, n) + C - 1) / C);
  part[threadIdx.x] = sum;
  __syncthreads();
  for (unsigned d = 1; d < blockDim.x; d *= 2) {
    const int other = threadIdx.x >= d ? part[threadIdx.x - d] : 0;
    __syncthreads();
    part[threadIdx.x] += other;
    __syncthreads();
  }
  int at = threadIdx.x ? part[threadIdx.x - 1] : 0;
  if (threadIdx.x == 0) chunk_offset[0] = 0;
  for (int64_t n = first; n < last; ++n) {
    at += static_cast<int>((load_int(f.cu, n + 1) - load_int(f.cu, n) + C - 1) / C);
    chunk_offset[n + 1] = at;
  }
}

// First row of chunk `chunk` of the whole batch, and how many rows it has; 0: there is no such chunk.
__device__ __forceinline__ int locate_chunk(const Forward& f, const int* chunk_offset, int chunk, int64_t* begin) {
  int64_t n = 0, local = chunk;
  if (f.N > 1) {
    if (chunk >= chunk_offset[f.N]) return 0;
    int64_t low = 0, high = f.N;                   // last n with chunk_offset[n] <= chunk
    while (high - low > 1) {
      const int64_t middle = (low + high) / 2;
      (chunk_offset[middle] <= chunk ? low : high) = middle;
    }
    n = low;
    local = chunk - chunk_offset[n];
  }
  *begin = load_int(f.cu, n) + local * C;
  return static_cast<int>(max(int64_t{0}, min(static_cast<int64_t>(C), load_int(f.cu, n + 1) - *begin)));
}

// Gate sums of a chunk for two value heads at a time, two warps each: since the last reset, and how many resets came
// before. Two rows see each other exactly when they have the same number of resets behind them.
struct GateRows {
  float sum[2][64], beta[2][64], carry[2];
  int segment[2][64], resets[2];
};
struct GateRow { float sum, beta; int segment; };

__device__ __forceinline__ void pair_barrier(int half) { asm volatile("bar.sync %0, 64;" ::"r"(half + 1) : "memory"); }

// Row i of value head hv; rows past `rows` count as g = 0, beta = 0. Ends with a barrier of the pair.
__device__ __forceinline__ GateRow gate_sums(const Forward& f, int64_t begin, int rows, int hv, int half, int i, GateRows& shared) {
  const int lane = i % 32;
  const float g = i < rows && f.g ? load(f.g, (begin + i) * f.g.s0 + hv * f.g.s1) : 0.0f;
  const float beta = i < rows ? (f.beta ? load(f.beta, (begin + i) * f.beta.s0 + hv * f.beta.s1) : 1.0f) : 0.0f;
  const bool reset = g < kReset;
  const unsigned resets = __ballot_sync(~0u, reset);
  float sum = reset ? 0.0f : g;                    // segmented scan: a reset row starts again at zero
  bool closed = reset;
#pragma unroll
  for (int d = 1; d < 32; d *= 2) {
    const float before = __shfl_up_sync(~0u, sum, d);
    const bool before_closed = __shfl_up_sync(~0u, closed, d);
    if (lane >= d && !closed) {
      sum += before;
      closed = before_closed;
    }
  }
  int segment = __popc(resets & ((2u << lane) - 1u));
  if (i == 31) {
    shared.carry[half] = sum;
    shared.resets[half] = segment;
  }
  pair_barrier(half);
  if (i >= 32) {
    if (!closed) sum += shared.carry[half];
    segment += shared.resets[half];
  }
  shared.sum[half][i] = sum;
  shared.beta[half][i] = beta;
  shared.segment[half][i] = segment;
  pair_barrier(half);
  return {sum, beta, segment};
}

// Column c of (I+L)^-1 by forward substitution, rows R0..63 (zero above R0); put(row, value) takes each element.
template <int R0, class Put>
__device__ __forceinline__ void substitute(const float* L, int c, Put put) {
  float m[64 - R0];
#pragma unroll
  for (int i = R0; i < 64; ++i) {
    float sum0 = 0, sum1 = 0, sum2 = 0, sum3 = 0;
#pragma unroll
    for (int j = R0; j < i; j += 4) {
      const float4 l = *reinterpret_cast<const float4*>(L + i * kRow + j);
      sum0 = fmaf(l.x, m[j - R0], sum0);
      if (j + 1 < i) sum1 = fmaf(l.y, m[j + 1 - R0], sum1);
      if (j + 2 < i) sum2 = fmaf(l.z, m[j + 2 - R0], sum2);
      if (j + 3 < i) sum3 = fmaf(l.w, m[j + 3 - R0], sum3);
    }
    m[i - R0] = i < c ? 0.0f : (i == c ? 1.0f : -((sum0 + sum1) + (sum2 + sum3)));
    put(i, m[i - R0]);
  }
#pragma unroll
  for (int i = 0; i < R0; ++i) put(i, 0.0f);
}

}  // namespace gdn_cuda
