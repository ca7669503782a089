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

// Gate sums of a chunk for two value heads at a time: since the last reset, and how many resets came before. Two rows see
// each other exactly when they have the same number of resets behind them. In double, so that the difference of two sums
// is as good as the gates between them, whatever came before in the chunk.
struct GateRows {
  double sum[2][64], carry[2];
  float beta[2][64];
  int segment[2][64], resets[2];
};
struct GateRow { double sum; float beta; int segment; };

// Row i of value head hv, by threads i < 128 of the half; only rows below 64 of an active half are made, but all threads
// of the block have to call it, as for all functions here with barriers. Rows past `rows` count as g = 0, beta = 0. The block
// has to meet before others read `shared`.
__device__ __forceinline__ GateRow gate_sums(const Forward& f, int64_t begin, int rows, int hv, int half, int i, bool active, GateRows& shared) {
  const int lane = i % 32;
  const bool mine = active && i < 64;              // whole warps
  double sum = 0;
  float beta = 0;
  bool closed = false;
  int segment = 0;
  if (mine) {
    const float g = i < rows && f.g ? load(f.g, (begin + i) * f.g.s0 + hv * f.g.s1) : 0.0f;
    beta = i < rows ? (f.beta ? load(f.beta, (begin + i) * f.beta.s0 + hv * f.beta.s1) : 1.0f) : 0.0f;
    const bool reset = g < kReset;
    const unsigned resets = __ballot_sync(~0u, reset);
    sum = reset ? 0.0 : g;                         // segmented scan: a reset row starts again at zero
    closed = reset;
#pragma unroll
    for (int d = 1; d < 32; d *= 2) {
      const double before = __shfl_up_sync(~0u, sum, d);
      const bool before_closed = __shfl_up_sync(~0u, closed, d);
      if (lane >= d && !closed) {
        sum += before;
        closed = before_closed;
      }
    }
    segment = __popc(resets & ((2u << lane) - 1u));
    if (i == 31) {
      shared.carry[half] = sum;
      shared.resets[half] = segment;
    }
  }
  __syncthreads();
  if (mine) {
    if (i >= 32) {
      if (!closed) sum += shared.carry[half];
      segment += shared.resets[half];
    }
    shared.sum[half][i] = sum;
    shared.beta[half][i] = beta;
    shared.segment[half][i] = segment;
  }
  return {sum, beta, segment};
}

// (I+L)^-1 of one head into `M`, both 64 x 64 with kRow floats a row in shared memory, by kThreads threads (thread t of them):
// forward substitution inside the four diagonal blocks of 16, then block rows:
//   M_ij = -M_ii sum_{j<=k<i} L_ik M_kj.   L is zero on and above the diagonal. Blocks above the diagonal are not written.
// All threads of the block call it; inactive ones only meet the others.
template <int kThreads>
__device__ __forceinline__ void invert(const float* L, float* M, bool active, int t) {
  if (active && t < 64) {
    const int block = t / 16 * 16, c = t % 16;
    float m[16];
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      float sum = 0;
#pragma unroll
      for (int j = 0; j < i; ++j) sum = fmaf(L[(block + i) * kRow + block + j], m[j], sum);
      m[i] = i < c ? 0.0f : (i == c ? 1.0f : -sum);
      M[(block + i) * kRow + block + c] = m[i];
    }
  }
  __syncthreads();
#pragma unroll 1
  for (int d = 1; d < 4; ++d) {
    // Each thread takes quads of four columns: first the sums into M itself, then the product with -M_ii.
    const int quads = active ? (4 - d) * 64 : 0;
    for (int q = t; q < quads; q += kThreads) {
      const int i = d + q / 64, j = i - d, r = i * 16 + q % 64 / 4, c = j * 16 + q % 4 * 4;
      float4 sum = make_float4(0, 0, 0, 0);
#pragma unroll 16
      for (int k = j * 16; k < i * 16; ++k) {
        const float l = L[r * kRow + k];
        const float4 m = *reinterpret_cast<const float4*>(M + k * kRow + c);
        sum.x = fmaf(l, m.x, sum.x);
        sum.y = fmaf(l, m.y, sum.y);
        sum.z = fmaf(l, m.z, sum.z);
        sum.w = fmaf(l, m.w, sum.w);
      }
      *reinterpret_cast<float4*>(M + r * kRow + c) = sum;
    }
    __syncthreads();
    float4 result[(192 + kThreads - 1) / kThreads];
#pragma unroll
    for (int n = 0; n < (192 + kThreads - 1) / kThreads; ++n) {
      const int q = t + n * kThreads;
      if (q >= quads) break;
      const int i = d + q / 64, j = i - d, r = i * 16 + q % 64 / 4, c = j * 16 + q % 4 * 4;
      float4 sum = make_float4(0, 0, 0, 0);
#pragma unroll
      for (int k = 0; k < 16; ++k) {
        const float l = M[r * kRow + i * 16 + k];
        const float4 m = *reinterpret_cast<const float4*>(M + (i * 16 + k) * kRow + c);
        sum.x = fmaf(l, m.x, sum.x);
        sum.y = fmaf(l, m.y, sum.y);
        sum.z = fmaf(l, m.z, sum.z);
        sum.w = fmaf(l, m.w, sum.w);
      }
      result[n] = make_float4(-sum.x, -sum.y, -sum.z, -sum.w);
    }
    __syncthreads();
#pragma unroll
    for (int n = 0; n < (192 + kThreads - 1) / kThreads; ++n) {
      const int q = t + n * kThreads;
      if (q >= quads) break;
      const int i = d + q / 64, j = i - d, r = i * 16 + q % 64 / 4, c = j * 16 + q % 4 * 4;
      *reinterpret_cast<float4*>(M + r * kRow + c) = result[n];
    }
    __syncthreads();
  }
}

}  // namespace gdn_cuda
