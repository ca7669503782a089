// Plain work for the tensor cores and for the fp32 units, with all operands at hand: the rates that a kernel's operations
// are compared with (`gdn-cts bench --device cuda`).
#include "kernels/cuda/common.cuh"
#include "kernels/cuda/hopper.cuh"
#include "kernels/cuda/rates.cuh"

namespace gdn_cuda {
namespace {

constexpr int kThreads = 128, kBlocks = 3, kProducts = 16;   // threads; blocks of products per multiprocessor; products or chains per round

__global__ void __launch_bounds__(kThreads) products(int rounds, float* out) {
  extern __shared__ __align__(1024) unsigned char tile[];   // 128 rows of 64 bf16
  for (int i = threadIdx.x; i < 128 * 64 / 2; i += kThreads) reinterpret_cast<uint32_t*>(tile)[i] = 0x3f803f80u + i;
  fence_tensor_reads();
  __syncthreads();
  float d[64] = {};
  const uint32_t a[4] = {threadIdx.x, 0x3f813f80u, 0x3f803f82u, 0x3f833f80u};
  const uint64_t b = descriptor(shared_address(tile), 0);
  for (int r = 0; r < rounds; ++r) {
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < kProducts; ++i) wgmma_n128<0>(d, a, b);
    wgmma_commit();
    wgmma_wait<0>();
  }
  float sum = 0;
  for (float x : d) sum += x;
  if (sum == 0.12345f) *out = sum;                 // never: keeps the work alive
}

__global__ void __launch_bounds__(kThreads) chains(int rounds, float* out) {
  float x[kProducts];
  for (int i = 0; i < kProducts; ++i) x[i] = threadIdx.x + i;
  const float a = 1.0f + threadIdx.x * 1e-8f, b = blockIdx.x * 1e-8f;
  for (int r = 0; r < rounds; ++r)
#pragma unroll
    for (int repeat = 0; repeat < 8; ++repeat)
#pragma unroll
      for (int i = 0; i < kProducts; ++i) x[i] = fmaf(x[i], a, b);
  float sum = 0;
  for (float v : x) sum += v;
  if (sum == 0.12345f) *out = sum;
}

int multiprocessors() {
  int device = 0, count = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device);
  return count;
}

}  // namespace

double tensor_work(int rounds, cudaStream_t stream) {
  const int blocks = multiprocessors() * kBlocks;
  products<<<blocks, kThreads, 128 * 64 * 2, stream>>>(rounds, nullptr);
  return 2.0 * 64 * 128 * 16 * kProducts * rounds * blocks;
}

double fma_work(int rounds, cudaStream_t stream) {
  const int blocks = multiprocessors() * 16;
  chains<<<blocks, kThreads, 0, stream>>>(rounds, nullptr);
  return 2.0 * 8 * kProducts * rounds * kThreads * blocks;
}

}  // namespace gdn_cuda
