// Decode and verify on a pool of states, in fp32. Bound by memory: every state is read and written once, so a block's whole
// part of it is on its way at once, several blocks to a multiprocessor, and the new state leaves before the output is summed.
#include "kernels/cuda/decode.cuh"

namespace gdn_cuda {
namespace {

constexpr int kRows = 16;                          // key channels of a thread, each with four value channels: 64 registers

struct Pool {
  Forward f;
  View slots, accepted, snapshots;
  int64_t drafts, tokens;                          // snapshots of a row; tokens of a row in this call
  bool verify;
};

template <Type type> __device__ __forceinline__ void store4(void* data, int64_t i, float4 x, int count, bool vector) {
  if constexpr (type == Type::f32) {
    if (vector && count >= 4) {
      *reinterpret_cast<float4*>(static_cast<float*>(data) + i) = x;
      return;
    }
  }
  const float e[4] = {x.x, x.y, x.z, x.w};
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    if (j >= count) break;
    if constexpr (type == Type::f32) static_cast<float*>(data)[i + j] = e[j];
    else if constexpr (type == Type::bf16) static_cast<__nv_bfloat16*>(data)[i + j] = __float2bfloat16_rn(e[j]);
    else static_cast<__half*>(data)[i + j] = __float2half_rn(e[j]);
  }
}

__host__ __device__ bool vector(const View& x) {
  return reinterpret_cast<uintptr_t>(x.data) % 16 == 0 && x.s0 % 4 == 0 && x.s1 % 4 == 0 && x.s2 % 4 == 0;
}

// Sums over the groups are pairs, pairs of pairs and so on, in one order whatever the launch: first those of a warp, then the warps.
__device__ __forceinline__ float4 operator+(float4 a, float4 b) { return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w); }
template <int kLanes> __device__ __forceinline__ float4 sum_of_warp(float4 x) {
#pragma unroll
  for (int d = kLanes; d < 32; d *= 2)
    x = x + make_float4(__shfl_xor_sync(~0u, x.x, d), __shfl_xor_sync(~0u, x.y, d), __shfl_xor_sync(~0u, x.z, d), __shfl_xor_sync(~0u, x.w, d));
  return x;
}
template <int kWarps, int kLanes> __device__ __forceinline__ float4 sum_of_warps(const float4 (&parts)[kWarps][kLanes], int lane) {
  float4 x[kWarps];
#pragma unroll
  for (int w = 0; w < kWarps; ++w) x[w] = parts[w][lane];
#pragma unroll
  for (int step = 1; step < kWarps; step *= 2)
#pragma unroll
    for (int w = 0; w < kWarps; w += 2 * step) x[w] = x[w] + x[w + step];
  return x[0];
}

// kGroups: of threads, each with every kGroups-th key channel; kLanes: threads of a group, which read 16 kLanes contiguous bytes of a state's
// row. whole: K is kRows kGroups, V a multiple of a block's columns and states are aligned, so that nothing stands between one load and the next.
template <int kGroups, int kLanes, Type state, bool whole>
__global__ void __launch_bounds__(kGroups * kLanes, 512 / (kGroups * kLanes)) decode(const __grid_constant__ Pool p) {
  constexpr int kColumns = 4 * kLanes, kWarps = kGroups * kLanes / 32, kParts = (kRows + kLanes - 1) / kLanes;
  __shared__ float4 reads[kWarps][kLanes], outs[kWarps][kLanes];
  const Forward& f = p.f;
  const int thread = threadIdx.x, lane = thread % kLanes, group = thread / kLanes, warp = thread / 32;
  const int hv = blockIdx.y, h = hv / (f.HV / f.H), value = blockIdx.x * kColumns + lane * 4, channels = f.V - value;
  const int64_t n = blockIdx.z, slot = load_int(p.slots, n);
  if (slot < 0) return;
  const int64_t kept = p.accepted ? load_int(p.accepted, n) : 0;
  const View& from = kept > 0 ? p.snapshots : f.h0;
  const int64_t from_row = kept > 0 ? n * p.drafts + kept - 1 : slot;
  const auto row = [&](int i) { return i * kGroups + group; };
  const auto inside = [&](int i) { return whole || (row(i) < f.K && channels > 0); };
  float4 S[kRows];
  {
    const bool wide = whole || vector(from);
    int64_t at = from_row * from.s0 + hv * from.s1 + group * from.s2 + value;
#pragma unroll
    for (int i = 0; i < kRows; ++i, at += kGroups * from.s2)
      S[i] = inside(i) ? load4<state>(from.data, at, whole ? 4 : channels, wide) : make_float4(0, 0, 0, 0);
  }
  const auto put = [&](const View& to, int64_t where) {
    const bool wide = whole || vector(to);
    int64_t at = where * to.s0 + hv * to.s1 + group * to.s2 + value;
#pragma unroll
    for (int i = 0; i < kRows; ++i, at += kGroups * to.s2)
      if (inside(i)) store4<state>(to.data, at, S[i], whole ? 4 : channels, wide);
  };
  if (p.verify && kept > 0) put(f.h0, slot);       // the draft that was kept becomes the state of its slot
  for (int64_t t = n * p.tokens; t < (n + 1) * p.tokens; ++t) {
    float k[kParts], q[kParts], v[4];              // of this group's rows, spread over its lanes; of this thread's columns
#pragma unroll
    for (int i = 0; i < kParts; ++i) {
      const int r = row(i * kLanes + lane);
      const bool there = i * kLanes + lane < kRows && r < f.K;
      k[i] = there ? load(f.k, t * f.k.s0 + h * f.k.s1 + r) : 0.0f;
      q[i] = there ? load(f.q, t * f.q.s0 + h * f.q.s1 + r) : 0.0f;
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) v[j] = j < channels ? load(f.v, t * f.v.s0 + hv * f.v.s1 + value + j) : 0.0f;
    const float alpha = f.g ? expf(load(f.g, t * f.g.s0 + hv * f.g.s1)) : 1.0f;
    const float beta = f.beta ? load(f.beta, t * f.beta.s0 + hv * f.beta.s1) : 1.0f;
    float4 part = make_float4(0, 0, 0, 0);
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const float ki = __shfl_sync(~0u, k[i / kLanes], i % kLanes, kLanes);
      S[i] = make_float4(alpha * S[i].x, alpha * S[i].y, alpha * S[i].z, alpha * S[i].w);
      part = make_float4(fmaf(S[i].x, ki, part.x), fmaf(S[i].y, ki, part.y), fmaf(S[i].z, ki, part.z), fmaf(S[i].w, ki, part.w));
    }
    part = sum_of_warp<kLanes>(part);
    if (thread % 32 < kLanes) reads[warp][lane] = part;
    __syncthreads();
    const float4 read = sum_of_warps(reads, lane);
    const float4 y = make_float4(beta * (v[0] - read.x), beta * (v[1] - read.y), beta * (v[2] - read.z), beta * (v[3] - read.w));
    part = make_float4(0, 0, 0, 0);
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const float ki = __shfl_sync(~0u, k[i / kLanes], i % kLanes, kLanes), qi = __shfl_sync(~0u, q[i / kLanes], i % kLanes, kLanes);
      if (!inside(i)) continue;                    // 0 times an infinite y is not 0
      S[i] = make_float4(fmaf(ki, y.x, S[i].x), fmaf(ki, y.y, S[i].y), fmaf(ki, y.z, S[i].z), fmaf(ki, y.w, S[i].w));
      part = make_float4(fmaf(S[i].x, qi, part.x), fmaf(S[i].y, qi, part.y), fmaf(S[i].z, qi, part.z), fmaf(S[i].w, qi, part.w));
    }
    put(p.verify ? p.snapshots : f.h0, p.verify ? t : slot);
    part = sum_of_warp<kLanes>(part);
    if (thread % 32 < kLanes) outs[warp][lane] = part;
    __syncthreads();                               // the next token's writes to reads come after it, those to outs after the next one
    if (thread < kLanes) {
      const float4 o = sum_of_warps(outs, lane);
      const float e[4] = {o.x, o.y, o.z, o.w};
#pragma unroll
      for (int j = 0; j < 4; ++j)
        if (j < channels) store(f.o, t * f.o.s0 + hv * f.o.s1 + value + j, f.scale * e[j]);
    }
  }
}

template <int kGroups, int kLanes, Type state> void launch(const Pool& p, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>((p.f.V + 4 * kLanes - 1) / (4 * kLanes)), static_cast<unsigned>(p.f.HV), static_cast<unsigned>(p.f.N));
  if (p.f.K == kRows * kGroups && p.f.V % (4 * kLanes) == 0 && vector(p.f.h0) && vector(p.snapshots)) decode<kGroups, kLanes, state, true><<<grid, kGroups * kLanes, 0, stream>>>(p);
  else decode<kGroups, kLanes, state, false><<<grid, kGroups * kLanes, 0, stream>>>(p);
}
template <int kGroups, int kLanes> void launch(const Pool& p, cudaStream_t stream) {
  if (p.f.h0.type == Type::f32) launch<kGroups, kLanes, Type::f32>(p, stream);
  else if (p.f.h0.type == Type::bf16) launch<kGroups, kLanes, Type::bf16>(p, stream);
  else launch<kGroups, kLanes, Type::f16>(p, stream);
}
template <int kGroups> void launch(const Pool& p, cudaStream_t stream) {
  if (p.f.V <= 32) launch<kGroups, 8>(p, stream);
  else launch<kGroups, 16>(p, stream);
}

}  // namespace

int run_pool(const gdn_call* call, const Forward& f, char* message, size_t size) {
  Pool p{};
  p.f = f;
  p.verify = call->problem->operation == GDN_VERIFY;
  if (!read_view(call, GDN_H0, "h0", true, 4, &p.f.h0, message, size) ||
      !read_view(call, GDN_STATE_INDICES, "state_indices", true, 1, &p.slots, message, size) ||
      !read_view(call, GDN_ACCEPTED, "accepted", false, 1, &p.accepted, message, size) ||
      !read_view(call, GDN_SNAPSHOTS, "snapshots", p.verify || p.accepted, 4, &p.snapshots, message, size))
    return GDN_ERROR;
  if (f.N == 0) return GDN_OK;
  p.tokens = f.T / f.N;
  if (p.snapshots) p.drafts = gdn_find(call, GDN_SNAPSHOTS)->t.shape[0] / f.N;
  const auto stream = static_cast<cudaStream_t>(call->stream);
  if (f.K <= 64) launch<4>(p, stream);
  else if (f.K <= 128) launch<8>(p, stream);
  else launch<16>(p, stream);
  return cuda_ok(cudaGetLastError(), "launch of decode", message, size) ? GDN_OK : GDN_ERROR;
}

}  // namespace gdn_cuda
