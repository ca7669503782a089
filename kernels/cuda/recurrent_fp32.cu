// cuda_recurrent_fp32: the recurrence token by token in fp32, any dtype in and out. The plain kernel that the others are
// compared with on the device: no chunks, no gate sums, -inf and every beta are ordinary values. Steps on a pool: decode.cu.
#include "kernels/cuda/common.cuh"
#include "kernels/cuda/decode.cuh"

namespace gdn_cuda {
namespace {

constexpr int kValues = 32, kTokens = 16;          // value channels of a block, tokens staged at a time

// 128 threads: 4 lanes share a value channel, each holding every fourth group of 4 key channels of its state column.
template <int KP>
__global__ void __launch_bounds__(128) recurrent(const __grid_constant__ Forward f) {
  __shared__ __align__(16) float ks[kTokens][KP], qs[kTokens][KP];
  __shared__ float vs[kTokens][kValues], alpha[kTokens], beta[kTokens], os[kTokens][kValues];
  const int thread = threadIdx.x, part = thread % 4, column = thread / 4, v0 = blockIdx.x * kValues, hv = blockIdx.y, h = hv / (f.HV / f.H);
  const int64_t n = blockIdx.z, begin = load_int(f.cu, n), end = load_int(f.cu, n + 1);
  const int value = v0 + column;
  float S[KP / 4];
#pragma unroll
  for (int i = 0; i < KP / 4; ++i) {
    const int key = (i / 4) * 16 + part * 4 + i % 4;
    S[i] = f.h0 && value < f.V && key < f.K ? load(f.h0, n * f.h0.s0 + hv * f.h0.s1 + key * f.h0.s2 + value) : 0.0f;
  }
  for (int64_t first = begin; first < end; first += kTokens) {
    const int tokens = static_cast<int>(min(static_cast<int64_t>(kTokens), end - first));
    __syncthreads();
    for (int i = thread; i < tokens * KP; i += 128) {
      const int t = i / KP, c = i % KP;
      ks[t][c] = c < f.K ? load(f.k, (first + t) * f.k.s0 + h * f.k.s1 + c) : 0.0f;
      qs[t][c] = c < f.K ? load(f.q, (first + t) * f.q.s0 + h * f.q.s1 + c) : 0.0f;
    }
    for (int i = thread; i < tokens * kValues; i += 128) {
      const int t = i / kValues, c = i % kValues;
      vs[t][c] = v0 + c < f.V ? load(f.v, (first + t) * f.v.s0 + hv * f.v.s1 + v0 + c) : 0.0f;
    }
    if (thread < tokens) {
      alpha[thread] = f.g ? expf(load(f.g, (first + thread) * f.g.s0 + hv * f.g.s1)) : 1.0f;
      beta[thread] = f.beta ? load(f.beta, (first + thread) * f.beta.s0 + hv * f.beta.s1) : 1.0f;
    }
    __syncthreads();
    for (int t = 0; t < tokens; ++t) {
      const float a = alpha[t];
      float read[4] = {};
#pragma unroll
      for (int i = 0; i < KP / 16; ++i) {
        const float4 k = *reinterpret_cast<const float4*>(&ks[t][i * 16 + part * 4]);
        S[i * 4] *= a;
        S[i * 4 + 1] *= a;
        S[i * 4 + 2] *= a;
        S[i * 4 + 3] *= a;
        read[0] = fmaf(S[i * 4], k.x, read[0]);
        read[1] = fmaf(S[i * 4 + 1], k.y, read[1]);
        read[2] = fmaf(S[i * 4 + 2], k.z, read[2]);
        read[3] = fmaf(S[i * 4 + 3], k.w, read[3]);
      }
      float r = (read[0] + read[1]) + (read[2] + read[3]);
      r += __shfl_xor_sync(~0u, r, 1);
      r += __shfl_xor_sync(~0u, r, 2);
      const float y = beta[t] * (vs[t][column] - r);
      float out[4] = {};
#pragma unroll
      for (int i = 0; i < KP / 16; ++i) {
        const float4 k = *reinterpret_cast<const float4*>(&ks[t][i * 16 + part * 4]), q = *reinterpret_cast<const float4*>(&qs[t][i * 16 + part * 4]);
        S[i * 4] = fmaf(k.x, y, S[i * 4]);
        S[i * 4 + 1] = fmaf(k.y, y, S[i * 4 + 1]);
        S[i * 4 + 2] = fmaf(k.z, y, S[i * 4 + 2]);
        S[i * 4 + 3] = fmaf(k.w, y, S[i * 4 + 3]);
        out[0] = fmaf(S[i * 4], q.x, out[0]);
        out[1] = fmaf(S[i * 4 + 1], q.y, out[1]);
        out[2] = fmaf(S[i * 4 + 2], q.z, out[2]);
        out[3] = fmaf(S[i * 4 + 3], q.w, out[3]);
      }
      float o = (out[0] + out[1]) + (out[2] + out[3]);
      o += __shfl_xor_sync(~0u, o, 1);
      o += __shfl_xor_sync(~0u, o, 2);
      if (part == 0) os[t][column] = f.scale * o;
    }
    __syncthreads();
    for (int i = thread; i < tokens * kValues; i += 128) {
      const int t = i / kValues, c = i % kValues;
      if (v0 + c < f.V) store(f.o, (first + t) * f.o.s0 + hv * f.o.s1 + v0 + c, os[t][c]);
    }
  }
  if (f.ht) {
#pragma unroll
    for (int i = 0; i < KP / 4; ++i) {
      const int key = (i / 4) * 16 + part * 4 + i % 4;
      if (value < f.V && key < f.K) store(f.ht, n * f.ht.s0 + hv * f.ht.s1 + key * f.ht.s2 + value, S[i]);
    }
  }
}

int create(const gdn_problem* problem, void** plan, char* message, size_t size) {
  if (!device_present(message, size)) return GDN_NOT_SUPPORTED;
  if (problem->operation > GDN_VERIFY || problem->rule > GDN_RULE_DELTA) {
    std::snprintf(message, size, "only prefill, decode and verify of rules gated_delta and delta");
    return GDN_NOT_SUPPORTED;
  }
  if (problem->K > 256 || problem->N > 65535) {
    std::snprintf(message, size, "K above 256 or more than 65535 sequences");
    return GDN_NOT_SUPPORTED;
  }
  *plan = nullptr;
  return GDN_OK;
}

int run(void*, const gdn_call* call, char* message, size_t size) {
  Forward f{};
  if (!read_call(call, &f, message, size)) return GDN_ERROR;
  if (call->problem->operation != GDN_PREFILL) return run_pool(call, f, message, size);
  const dim3 grid(static_cast<unsigned>((f.V + kValues - 1) / kValues), static_cast<unsigned>(f.HV), static_cast<unsigned>(f.N));
  const auto stream = static_cast<cudaStream_t>(call->stream);
  if (f.K <= 64) recurrent<64><<<grid, 128, 0, stream>>>(f);
  else if (f.K <= 128) recurrent<128><<<grid, 128, 0, stream>>>(f);
  else recurrent<256><<<grid, 128, 0, stream>>>(f);
  return cuda_ok(cudaGetLastError(), "launch of recurrent", message, size) ? GDN_OK : GDN_ERROR;
}

void destroy(void*) {}

}  // namespace

extern const gdn_kernel recurrent_fp32_kernel = {
    GDN_ABI_VERSION, GDN_DEVICE_CUDA, sizeof(gdn_kernel), "cuda_recurrent_fp32", "token by token in fp32", "1", "", "fp32-recurrent",
    "ops=prefill,decode,verify;rules=gated_delta,delta;io=fp32,bf16,fp16;gate=fp32,bf16;beta=fp32,bf16;state=fp32,bf16,fp16;K=1..256;V=1..65535;varlen;h0;ht;empty;g_min=-inf;beta_max=2;strides;short_offsets",
    "deterministic;shape_invariant;symmetric;masks_select", create, run, destroy};

}  // namespace gdn_cuda
