// Decode and verify on a pool of states, in fp32. Bound by memory: every state is read and written once, so all of a block's
// state is on its way at once, whole rows of it, before anything waits.
#include "kernels/cuda/decode.cuh"

namespace gdn_cuda {
namespace {

constexpr int kGroups = 16;                        // of key channels; a thread of a group holds four value channels

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

// Column c of the groups' parts, summed in one order whatever the launch.
template <int kColumns> __device__ __forceinline__ float sum_groups(const float (*parts)[kColumns], int c) {
  float x[kGroups];
#pragma unroll
  for (int i = 0; i < kGroups; ++i) x[i] = parts[i][c];
#pragma unroll
  for (int width = kGroups / 2; width > 0; width /= 2)
#pragma unroll
    for (int i = 0; i < width; ++i) x[i] += x[i + width];
  return x[0];
}

// kRows: key channels of a thread; kLanes: threads of a group, which read 16 kLanes contiguous bytes of a state's row.
template <int kRows, int kLanes, Type state>
__global__ void __launch_bounds__(kGroups * kLanes, kLanes == 8 ? (kRows == 16 ? 4 : 6) : (kRows == 16 ? 1 : 2)) decode(const __grid_constant__ Pool p) {
  constexpr int kColumns = 4 * kLanes, kThreads = kGroups * kLanes;
  __shared__ float ks[kRows * kGroups], qs[kRows * kGroups];
  __shared__ __align__(16) float parts[kGroups][kColumns], ys[kColumns];
  const Forward& f = p.f;
  const int thread = threadIdx.x, lane = thread % kLanes, group = thread / kLanes;
  const int hv = blockIdx.y, h = hv / (f.HV / f.H), v0 = blockIdx.x * kColumns, value = v0 + lane * 4, channels = f.V - value;
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
  const bool column = thread < kColumns && v0 + thread < f.V;   // this thread sums one value channel
  for (int64_t t = n * p.tokens; t < (n + 1) * p.tokens; ++t) {
    for (int i = thread; i < kRows * kGroups; i += kThreads) {
      ks[i] = i < f.K ? load(f.k, t * f.k.s0 + h * f.k.s1 + i) : 0.0f;
      qs[i] = i < f.K ? load(f.q, t * f.q.s0 + h * f.q.s1 + i) : 0.0f;
    }
    const float alpha = f.g ? expf(load(f.g, t * f.g.s0 + hv * f.g.s1)) : 1.0f;
    float beta = 1, v = 0;
    if (column) {
      if (f.beta) beta = load(f.beta, t * f.beta.s0 + hv * f.beta.s1);
      v = load(f.v, t * f.v.s0 + hv * f.v.s1 + v0 + thread);
    }
    __syncthreads();
    float4 part = make_float4(0, 0, 0, 0);
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const float k = ks[i * kGroups + group];
      S[i] = make_float4(alpha * S[i].x, alpha * S[i].y, alpha * S[i].z, alpha * S[i].w);
      part = make_float4(fmaf(S[i].x, k, part.x), fmaf(S[i].y, k, part.y), fmaf(S[i].z, k, part.z), fmaf(S[i].w, k, part.w));
    }
    *reinterpret_cast<float4*>(&parts[group][lane * 4]) = part;
    __syncthreads();
    if (thread < kColumns) ys[thread] = beta * (v - sum_groups<kColumns>(parts, thread));
    __syncthreads();
    const float4 y = *reinterpret_cast<const float4*>(ys + lane * 4);
    part = make_float4(0, 0, 0, 0);
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const float k = ks[i * kGroups + group], q = qs[i * kGroups + group];
      S[i] = make_float4(fmaf(k, y.x, S[i].x), fmaf(k, y.y, S[i].y), fmaf(k, y.z, S[i].z), fmaf(k, y.w, S[i].w));
      part = make_float4(fmaf(S[i].x, q, part.x), fmaf(S[i].y, q, part.y), fmaf(S[i].z, q, part.z), fmaf(S[i].w, q, part.w));
    }
    *reinterpret_cast<float4*>(&parts[group][lane * 4]) = part;
    if (p.verify) put(p.snapshots, t);
    __syncthreads();                               // also frees ks and qs for the next token
    if (column) store(f.o, t * f.o.s0 + hv * f.o.s1 + v0 + thread, f.scale * sum_groups<kColumns>(parts, thread));
  }
  if (!p.verify) put(f.h0, slot);
}

template <int kRows, int kLanes> void launch(const Pool& p, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>((p.f.V + 4 * kLanes - 1) / (4 * kLanes)), static_cast<unsigned>(p.f.HV), static_cast<unsigned>(p.f.N));
  if (p.f.h0.type == Type::f32) decode<kRows, kLanes, Type::f32><<<grid, kGroups * kLanes, 0, stream>>>(p);
  else if (p.f.h0.type == Type::bf16) decode<kRows, kLanes, Type::bf16><<<grid, kGroups * kLanes, 0, stream>>>(p);
  else decode<kRows, kLanes, Type::f16><<<grid, kGroups * kLanes, 0, stream>>>(p);
}
template <int kRows> void launch(const Pool& p, cudaStream_t stream) {
  if (p.f.V <= 32) launch<kRows, 8>(p, stream);
  else launch<kRows, 32>(p, stream);
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
