// Decode and verify on a pool of states, in fp32. Bound by memory: every state is read and written once, so all of a block's
// state is on its way at once, in pieces of 128 contiguous bytes, before anything waits.
#include "kernels/cuda/decode.cuh"

namespace gdn_cuda {
namespace {

constexpr int kThreads = 128, kValues = 32, kGroups = 16;   // 8 lanes x 4 value channels, 16 groups of key channels

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

// Sums over the 16 groups of key channels, in one order whatever the launch: 4 inside a warp, then the 4 warps.
__device__ __forceinline__ float4 sum_groups(float4 x, float4 (*shared)[8], int warp, int lane) {
#pragma unroll
  for (int mask = 8; mask <= 16; mask *= 2) {
    x.x += __shfl_xor_sync(~0u, x.x, mask);
    x.y += __shfl_xor_sync(~0u, x.y, mask);
    x.z += __shfl_xor_sync(~0u, x.z, mask);
    x.w += __shfl_xor_sync(~0u, x.w, mask);
  }
  if (lane < 8) shared[warp][lane] = x;
  __syncthreads();
  const int c = lane % 8;
  const float4 a = shared[0][c], b = shared[1][c], d = shared[2][c], e = shared[3][c];
  return make_float4((a.x + b.x) + (d.x + e.x), (a.y + b.y) + (d.y + e.y), (a.z + b.z) + (d.z + e.z), (a.w + b.w) + (d.w + e.w));
}

// kRows: key channels of a thread. As many blocks as fit into the registers of a multiprocessor, because a block moves
// memory only for a part of its time.
template <int kRows, Type state>
__global__ void __launch_bounds__(kThreads, kRows == 16 ? 4 : kRows == 8 ? 6 : 8) decode(const __grid_constant__ Pool p) {
  __shared__ float ks[kRows * kGroups], qs[kRows * kGroups];
  __shared__ float4 read_sums[4][8], out_sums[4][8];
  const Forward& f = p.f;
  const int thread = threadIdx.x, lane = thread % 32, warp = thread / 32, group = warp * 4 + lane / 8;
  const int hv = blockIdx.y, h = hv / (f.HV / f.H), value = blockIdx.x * kValues + lane % 8 * 4, channels = f.V - value;
  const int64_t n = blockIdx.z, slot = load_int(p.slots, n);
  if (slot < 0) return;
  const int64_t kept = p.accepted ? load_int(p.accepted, n) : 0;
  const View& from = kept > 0 ? p.snapshots : f.h0;
  const int64_t from_row = kept > 0 ? n * p.drafts + kept - 1 : slot;
  const auto vector = [](const View& x) { return reinterpret_cast<uintptr_t>(x.data) % 16 == 0 && x.s0 % 4 == 0 && x.s1 % 4 == 0 && x.s2 % 4 == 0; };
  float4 S[kRows];
  {
    const bool wide = vector(from);
    int64_t at = from_row * from.s0 + hv * from.s1 + group * from.s2 + value;
#pragma unroll
    for (int i = 0; i < kRows; ++i, at += kGroups * from.s2)
      S[i] = i * kGroups + group < f.K && channels > 0 ? load4<state>(from.data, at, channels, wide) : make_float4(0, 0, 0, 0);
  }
  const auto put = [&](const View& to, int64_t row) {
    const bool wide = vector(to);
    int64_t at = row * to.s0 + hv * to.s1 + group * to.s2 + value;
#pragma unroll
    for (int i = 0; i < kRows; ++i, at += kGroups * to.s2)
      if (i * kGroups + group < f.K && channels > 0) store4<state>(to.data, at, S[i], channels, wide);
  };
  if (p.verify && kept > 0) put(f.h0, slot);       // the draft that was kept becomes the state of its slot
  for (int64_t t = n * p.tokens; t < (n + 1) * p.tokens; ++t) {
    for (int i = thread; i < kRows * kGroups; i += kThreads) {
      ks[i] = i < f.K ? load(f.k, t * f.k.s0 + h * f.k.s1 + i) : 0.0f;
      qs[i] = i < f.K ? load(f.q, t * f.q.s0 + h * f.q.s1 + i) : 0.0f;
    }
    const float alpha = f.g ? expf(load(f.g, t * f.g.s0 + hv * f.g.s1)) : 1.0f, beta = f.beta ? load(f.beta, t * f.beta.s0 + hv * f.beta.s1) : 1.0f;
    float v[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) v[j] = j < channels ? load(f.v, t * f.v.s0 + hv * f.v.s1 + value + j) : 0.0f;
    __syncthreads();
    float4 read = make_float4(0, 0, 0, 0);
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const float k = ks[i * kGroups + group];
      S[i] = make_float4(alpha * S[i].x, alpha * S[i].y, alpha * S[i].z, alpha * S[i].w);
      read = make_float4(fmaf(S[i].x, k, read.x), fmaf(S[i].y, k, read.y), fmaf(S[i].z, k, read.z), fmaf(S[i].w, k, read.w));
    }
    read = sum_groups(read, read_sums, warp, lane);
    const float4 y = make_float4(beta * (v[0] - read.x), beta * (v[1] - read.y), beta * (v[2] - read.z), beta * (v[3] - read.w));
    float4 out = make_float4(0, 0, 0, 0);
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const float k = ks[i * kGroups + group], q = qs[i * kGroups + group];
      S[i] = make_float4(fmaf(k, y.x, S[i].x), fmaf(k, y.y, S[i].y), fmaf(k, y.z, S[i].z), fmaf(k, y.w, S[i].w));
      out = make_float4(fmaf(S[i].x, q, out.x), fmaf(S[i].y, q, out.y), fmaf(S[i].z, q, out.z), fmaf(S[i].w, q, out.w));
    }
    out = sum_groups(out, out_sums, warp, lane);   // its barrier also frees ks and qs for the next token
    if (group == 0) {
      const float e[4] = {f.scale * out.x, f.scale * out.y, f.scale * out.z, f.scale * out.w};
#pragma unroll
      for (int j = 0; j < 4; ++j)
        if (j < channels) store(f.o, t * f.o.s0 + hv * f.o.s1 + value + j, e[j]);
    }
    if (p.verify) put(p.snapshots, t);
  }
  if (!p.verify) put(f.h0, slot);
}

template <int kRows> void launch(const Pool& p, dim3 grid, cudaStream_t stream) {
  if (p.f.h0.type == Type::f32) decode<kRows, Type::f32><<<grid, kThreads, 0, stream>>>(p);
  else if (p.f.h0.type == Type::bf16) decode<kRows, Type::bf16><<<grid, kThreads, 0, stream>>>(p);
  else decode<kRows, Type::f16><<<grid, kThreads, 0, stream>>>(p);
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
  const dim3 grid(static_cast<unsigned>((f.V + kValues - 1) / kValues), static_cast<unsigned>(f.HV), static_cast<unsigned>(f.N));
  const auto stream = static_cast<cudaStream_t>(call->stream);
  if (f.K <= 64) launch<4>(p, grid, stream);
  else if (f.K <= 128) launch<8>(p, grid, stream);
  else launch<16>(p, grid, stream);
  return cuda_ok(cudaGetLastError(), "launch of decode", message, size) ? GDN_OK : GDN_ERROR;
}

}  // namespace gdn_cuda
