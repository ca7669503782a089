// cuda_chunk_fp32: chunkwise forward in true fp32 (fused multiply-adds, no TF32), any dtype in and out; and cuda_chunk_tf32,
// the same with the products of `forward` on tensor cores, operands rounded to TF32. Same algebra as chunk_bf16.cu: prepare
// makes M beta and P of every chunk (in fp32 for both), forward walks the chunks in residual form.
#include "kernels/cuda/chunk_common.cuh"

namespace gdn_cuda {
namespace {

constexpr int kValues = 32;                        // value channels of a block of `forward`
constexpr int kValuePitch = 36;

struct Params {
  Forward f;
  int* chunk_offset;                               // [N+1]
  float *M, *P;                                    // [chunks,HV,64,64]; M holds M beta
  float* factors;                                  // [chunks,HV,256]: e^G, e^(G_C-G), [128] = e^(G_C)
  bool vector_k, vector_q, vector_v;               // rows can be read four values at a time
};

template <int KP, Type type>
__global__ void __launch_bounds__(256) prepare(const __grid_constant__ Params p) {
  extern __shared__ __align__(16) float shared[];
  constexpr int kPitch = 36;                       // key channels are staged 32 at a time
  float *ks = shared, *qs = ks + 64 * kPitch, *kk = qs + 64 * kPitch, *qk = kk + 64 * kRow, *squares = qk + 64 * kRow;
  __shared__ GateRows gates;
  const Forward& f = p.f;
  const int chunk = blockIdx.x, h = blockIdx.y, thread = threadIdx.x;
  int64_t begin;
  const int rows = locate_chunk(f, p.chunk_offset, chunk, &begin);
  if (rows == 0) return;

  const int ty = thread / 16, tx = thread % 16;    // rows 4 ty.., columns tx + 16 j
  float dk[4][4] = {}, dq[4][4] = {};
  for (int k0 = 0; k0 < KP; k0 += 32) {
    __syncthreads();
    load_rows<type, 64, 32, 256>(f.k, begin, h * f.k.s1 + k0, rows, f.K - k0, p.vector_k, ks, kPitch);
    load_rows<type, 64, 32, 256>(f.q, begin, h * f.q.s1 + k0, rows, f.K - k0, p.vector_q, qs, kPitch);
    __syncthreads();
#pragma unroll 2
    for (int c = 0; c < 32; c += 4) {
      float4 a[4], b[4], q[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        a[i] = *reinterpret_cast<const float4*>(ks + (ty * 4 + i) * kPitch + c);
        q[i] = *reinterpret_cast<const float4*>(qs + (ty * 4 + i) * kPitch + c);
        b[i] = *reinterpret_cast<const float4*>(ks + (tx + 16 * i) * kPitch + c);
      }
#pragma unroll
      for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          dk[i][j] = fmaf(a[i].x, b[j].x, fmaf(a[i].y, b[j].y, fmaf(a[i].z, b[j].z, fmaf(a[i].w, b[j].w, dk[i][j]))));
          dq[i][j] = fmaf(q[i].x, b[j].x, fmaf(q[i].y, b[j].y, fmaf(q[i].z, b[j].z, fmaf(q[i].w, b[j].w, dq[i][j]))));
        }
    }
  }
#pragma unroll
  for (int i = 0; i < 4; ++i)
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      kk[(ty * 4 + i) * kRow + tx + 16 * j] = dk[i][j];
      qk[(ty * 4 + i) * kRow + tx + 16 * j] = dq[i][j];
    }
  __syncthreads();
  const int half = thread / 128, t = thread % 128, ratio = f.HV / f.H;
  float *L = squares + half * 2 * 64 * kRow, *inverse = L + 64 * kRow;
  for (int first = 0; first < ratio; first += 2) {
    const bool active = first + half < ratio;      // the second half has nothing to do in the last pass of an odd ratio
    const int hv = h * ratio + (active ? first + half : 0);
    const int64_t slot = static_cast<int64_t>(chunk) * f.HV + hv;
    const GateRow row = gate_sums(f, begin, rows, hv, half, t, active, gates);
    __syncthreads();
    const double last = gates.sum[half][rows - 1];
    const int last_segment = gates.segment[half][rows - 1];
    if (active && t < 64) {
      float* factors = p.factors + slot * 256;
      factors[t] = row.segment == 0 ? expf(static_cast<float>(row.sum)) : 0.0f;
      factors[64 + t] = t < rows && row.segment == last_segment ? expf(static_cast<float>(last - row.sum)) : 0.0f;
      if (t == 0) factors[128] = last_segment == 0 ? expf(static_cast<float>(last)) : 0.0f;
    }
    // Ratios only where r >= c in one segment, selected by the mask.
    float *P = p.P + slot * 4096, *M = p.M + slot * 4096;
    const int c = t % 64, segment = gates.segment[half][c];
    const double sum = gates.sum[half][c];
    for (int r = active ? t / 64 : 64; r < 64; r += 2) {
      const bool on = c <= r && segment == gates.segment[half][r];
      const float d = on ? expf(static_cast<float>(gates.sum[half][r] - sum)) : 0.0f;
      L[r * kRow + c] = on && c < r ? gates.beta[half][r] * kk[r * kRow + c] * d : 0.0f;
      P[r * 64 + c] = on ? f.scale * qk[r * kRow + c] * d : 0.0f;
    }
    __syncthreads();
    invert<128>(L, inverse, active, t);
    const float beta = gates.beta[half][c];
    for (int r = active ? t / 64 : 64; r < 64; r += 2) M[r * 64 + c] = r / 16 >= c / 16 ? inverse[r * kRow + c] * beta : 0.0f;
    __syncthreads();
  }
}

template <int KP> struct Layout {
  static constexpr int pitch = KP + 4;
  static constexpr int k = 0, q = k + 64 * pitch, m = q + 64 * pitch, p = m + 64 * kRow, b = p + 64 * kRow, vn = b + 64 * kValuePitch,
                       s = vn + 64 * kValuePitch, factors = s + KP * kValuePitch, floats = factors + 132;
};

template <int KP, Type type>
__global__ void __launch_bounds__(256, 1) forward(const __grid_constant__ Params p) {
  using L = Layout<KP>;
  extern __shared__ __align__(16) float shared[];
  float *ks = shared + L::k, *qs = shared + L::q, *ms = shared + L::m, *ps = shared + L::p, *bs = shared + L::b, *vn = shared + L::vn,
        *ss = shared + L::s, *factors = shared + L::factors;
  const Forward& f = p.f;
  const int v0 = blockIdx.x * kValues, hv = blockIdx.y, h = hv / (f.HV / f.H), thread = threadIdx.x, ty = thread / 16, tx = thread % 16;
  const int64_t n = blockIdx.z, begin = load_int(f.cu, n), end = load_int(f.cu, n + 1);
  const int64_t first_chunk = f.N > 1 ? p.chunk_offset[n] : 0;
  constexpr int kKeys = KP / 16;                   // state rows of a thread: ty kKeys.., columns 2 tx, 2 tx + 1
  float S[kKeys][2];
#pragma unroll
  for (int i = 0; i < kKeys; ++i)
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const int key = ty * kKeys + i, value = v0 + 2 * tx + j;
      S[i][j] = f.h0 && key < f.K && value < f.V ? load(f.h0, n * f.h0.s0 + hv * f.h0.s1 + key * f.h0.s2 + value) : 0.0f;
      ss[key * kValuePitch + 2 * tx + j] = S[i][j];
    }
  for (int64_t first = begin; first < end; first += C) {
    const int rows = static_cast<int>(min(static_cast<int64_t>(C), end - first));
    const int64_t slot = (first_chunk + (first - begin) / C) * f.HV + hv;
    load_rows<type, 64, KP, 256>(f.k, first, h * f.k.s1, rows, f.K, p.vector_k, ks, L::pitch);
    load_rows<type, 64, KP, 256>(f.q, first, h * f.q.s1, rows, f.K, p.vector_q, qs, L::pitch);
    load_rows<type, 64, kValues, 256>(f.v, first, hv * f.v.s1 + v0, rows, f.V - v0, p.vector_v, bs, kValuePitch);
#pragma unroll
    for (int i = thread; i < 1024; i += 256) {
      *reinterpret_cast<float4*>(ms + i / 16 * kRow + i % 16 * 4) = reinterpret_cast<const float4*>(p.M + slot * 4096)[i];
      *reinterpret_cast<float4*>(ps + i / 16 * kRow + i % 16 * 4) = reinterpret_cast<const float4*>(p.P + slot * 4096)[i];
    }
    if (thread < 129) factors[thread] = p.factors[slot * 256 + thread];
    __syncthreads();

    float x[4][2] = {}, o[4][2] = {};              // rows 4 ty.., columns 2 tx..: S^T k and S^T q
#pragma unroll 2
    for (int c = 0; c < KP; c += 4) {
      float2 s[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) s[i] = *reinterpret_cast<const float2*>(ss + (c + i) * kValuePitch + 2 * tx);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float4 k = *reinterpret_cast<const float4*>(ks + (ty * 4 + i) * L::pitch + c), q = *reinterpret_cast<const float4*>(qs + (ty * 4 + i) * L::pitch + c);
        x[i][0] = fmaf(k.x, s[0].x, fmaf(k.y, s[1].x, fmaf(k.z, s[2].x, fmaf(k.w, s[3].x, x[i][0]))));
        x[i][1] = fmaf(k.x, s[0].y, fmaf(k.y, s[1].y, fmaf(k.z, s[2].y, fmaf(k.w, s[3].y, x[i][1]))));
        o[i][0] = fmaf(q.x, s[0].x, fmaf(q.y, s[1].x, fmaf(q.z, s[2].x, fmaf(q.w, s[3].x, o[i][0]))));
        o[i][1] = fmaf(q.x, s[0].y, fmaf(q.y, s[1].y, fmaf(q.z, s[2].y, fmaf(q.w, s[3].y, o[i][1]))));
      }
    }
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const int r = ty * 4 + i;
        float& b = bs[r * kValuePitch + 2 * tx + j];   // holds v; rows past the end are zero and stay so
        b = fmaf(-factors[r], x[i][j], b);
      }
    __syncthreads();
    float w[4][2] = {};
    for (int c = 0; c < ty * 4 + 4; c += 4) {      // M beta is lower triangular
      float2 b[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) b[i] = *reinterpret_cast<const float2*>(bs + (c + i) * kValuePitch + 2 * tx);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float4 m = *reinterpret_cast<const float4*>(ms + (ty * 4 + i) * kRow + c);
        w[i][0] = fmaf(m.x, b[0].x, fmaf(m.y, b[1].x, fmaf(m.z, b[2].x, fmaf(m.w, b[3].x, w[i][0]))));
        w[i][1] = fmaf(m.x, b[0].y, fmaf(m.y, b[1].y, fmaf(m.z, b[2].y, fmaf(m.w, b[3].y, w[i][1]))));
      }
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) *reinterpret_cast<float2*>(vn + (ty * 4 + i) * kValuePitch + 2 * tx) = make_float2(w[i][0], w[i][1]);
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float decay = f.scale * factors[ty * 4 + i];
      o[i][0] *= decay;
      o[i][1] *= decay;
    }
    for (int c = 0; c < ty * 4 + 4; c += 4) {
      float2 b[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) b[i] = *reinterpret_cast<const float2*>(vn + (c + i) * kValuePitch + 2 * tx);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float4 m = *reinterpret_cast<const float4*>(ps + (ty * 4 + i) * kRow + c);
        o[i][0] = fmaf(m.x, b[0].x, fmaf(m.y, b[1].x, fmaf(m.z, b[2].x, fmaf(m.w, b[3].x, o[i][0]))));
        o[i][1] = fmaf(m.x, b[0].y, fmaf(m.y, b[1].y, fmaf(m.z, b[2].y, fmaf(m.w, b[3].y, o[i][1]))));
      }
    }
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const int r = ty * 4 + i, value = v0 + 2 * tx + j;
        if (r < rows && value < f.V) store(f.o, (first + r) * f.o.s0 + hv * f.o.s1 + value, o[i][j]);
      }
    const float state_decay = factors[128];
#pragma unroll
    for (int i = 0; i < kKeys; ++i) {
      S[i][0] *= state_decay;
      S[i][1] *= state_decay;
    }
#pragma unroll 4
    for (int r = 0; r < rows; ++r) {
      const float2 b = *reinterpret_cast<const float2*>(vn + r * kValuePitch + 2 * tx);
      const float b0 = b.x * factors[64 + r], b1 = b.y * factors[64 + r];
#pragma unroll
      for (int i = 0; i < kKeys; i += 4) {
        const float4 k = *reinterpret_cast<const float4*>(ks + r * L::pitch + ty * kKeys + i);
        S[i][0] = fmaf(k.x, b0, S[i][0]);
        S[i][1] = fmaf(k.x, b1, S[i][1]);
        S[i + 1][0] = fmaf(k.y, b0, S[i + 1][0]);
        S[i + 1][1] = fmaf(k.y, b1, S[i + 1][1]);
        S[i + 2][0] = fmaf(k.z, b0, S[i + 2][0]);
        S[i + 2][1] = fmaf(k.z, b1, S[i + 2][1]);
        S[i + 3][0] = fmaf(k.w, b0, S[i + 3][0]);
        S[i + 3][1] = fmaf(k.w, b1, S[i + 3][1]);
      }
    }
#pragma unroll
    for (int i = 0; i < kKeys; ++i) *reinterpret_cast<float2*>(ss + (ty * kKeys + i) * kValuePitch + 2 * tx) = make_float2(S[i][0], S[i][1]);
    __syncthreads();
  }
  if (f.ht) {
#pragma unroll
    for (int i = 0; i < kKeys; ++i)
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const int key = ty * kKeys + i, value = v0 + 2 * tx + j;
        if (key < f.K && value < f.V) store(f.ht, n * f.ht.s0 + hv * f.ht.s1 + key * f.ht.s2 + value, S[i][j]);
      }
  }
}

__device__ __forceinline__ unsigned tf32(float x) {
  unsigned bits;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
  return bits;
}
// d += a b for a 16 x 8 and b 8 x 8. With g = lane / 4 and t = lane % 4, a holds (g,t), (g+8,t), (g,t+4), (g+8,t+4), b holds
// (t,g), (t+4,g), and d holds (g,2t), (g,2t+1), (g+8,2t), (g+8,2t+1).
__device__ __forceinline__ void mma(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
// Fragment of a 16 x 8 block at `at`; row and column: distance of neighbours along them.
__device__ __forceinline__ void fragment(unsigned (&a)[4], const float* at, int row, int column, int g, int t) {
  a[0] = tf32(at[g * row + t * column]);
  a[1] = tf32(at[(g + 8) * row + t * column]);
  a[2] = tf32(at[g * row + (t + 4) * column]);
  a[3] = tf32(at[(g + 8) * row + (t + 4) * column]);
}

// 8 warps. Of the 64 x 32 results a warp has 16 rows and 16 columns; of the state 16 key channels (two times that where
// KP = 256) and all 32 columns, or half of them where KP = 64.
template <int KP, Type type>
__global__ void __launch_bounds__(256, 1) forward_tf32(const __grid_constant__ Params p) {
  using L = Layout<KP>;
  constexpr int kTiles = KP == 256 ? 2 : 1, kColumns = KP == 64 ? 2 : 4;   // of 16 keys and of 8 values
  extern __shared__ __align__(16) float shared[];
  float *ks = shared + L::k, *qs = shared + L::q, *ms = shared + L::m, *ps = shared + L::p, *bs = shared + L::b, *vn = shared + L::vn,
        *ss = shared + L::s, *factors = shared + L::factors;
  const Forward& f = p.f;
  const int v0 = blockIdx.x * kValues, hv = blockIdx.y, h = hv / (f.HV / f.H), thread = threadIdx.x, warp = thread / 32, g = thread % 32 / 4, t = thread % 4;
  const int row0 = warp % 4 * 16, column0 = warp / 4 * 16, key0 = (KP == 64 ? warp % 4 : warp) * 16, value0 = KP == 64 ? warp / 4 * 16 : 0;
  const int64_t n = blockIdx.z, begin = load_int(f.cu, n), end = load_int(f.cu, n + 1);
  const int64_t first_chunk = f.N > 1 ? p.chunk_offset[n] : 0;
  float S[kTiles][kColumns][4];
  // Calls visit(value of the state, key, value channel of the block) for all that this thread holds.
  const auto each_state = [&](auto visit) {
#pragma unroll
    for (int i = 0; i < kTiles; ++i)
#pragma unroll
      for (int j = 0; j < kColumns; ++j)
#pragma unroll
        for (int e = 0; e < 4; ++e) visit(S[i][j][e], key0 + i * 128 + g + e / 2 * 8, value0 + j * 8 + 2 * t + e % 2);
  };
  each_state([&](float& s, int key, int value) {
    s = f.h0 && key < f.K && v0 + value < f.V ? load(f.h0, n * f.h0.s0 + hv * f.h0.s1 + key * f.h0.s2 + v0 + value) : 0.0f;
    ss[key * kValuePitch + value] = s;
  });
  for (int64_t first = begin; first < end; first += C) {
    const int rows = static_cast<int>(min(static_cast<int64_t>(C), end - first));
    const int64_t slot = (first_chunk + (first - begin) / C) * f.HV + hv;
    load_rows<type, 64, KP, 256>(f.k, first, h * f.k.s1, rows, f.K, p.vector_k, ks, L::pitch);
    load_rows<type, 64, KP, 256>(f.q, first, h * f.q.s1, rows, f.K, p.vector_q, qs, L::pitch);
    load_rows<type, 64, kValues, 256>(f.v, first, hv * f.v.s1 + v0, rows, f.V - v0, p.vector_v, bs, kValuePitch);
#pragma unroll
    for (int i = thread; i < 1024; i += 256) {
      *reinterpret_cast<float4*>(ms + i / 16 * kRow + i % 16 * 4) = reinterpret_cast<const float4*>(p.M + slot * 4096)[i];
      *reinterpret_cast<float4*>(ps + i / 16 * kRow + i % 16 * 4) = reinterpret_cast<const float4*>(p.P + slot * 4096)[i];
    }
    if (thread < 129) factors[thread] = p.factors[slot * 256 + thread];
    __syncthreads();

    float x[2][4] = {}, o[2][4] = {};              // S^T k and S^T q
#pragma unroll 4
    for (int c = 0; c < KP; c += 8) {
      unsigned k[4], q[4];
      fragment(k, ks + row0 * L::pitch + c, L::pitch, 1, g, t);
      fragment(q, qs + row0 * L::pitch + c, L::pitch, 1, g, t);
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const float* s = ss + (c + t) * kValuePitch + column0 + j * 8 + g;
        const unsigned s0 = tf32(s[0]), s1 = tf32(s[4 * kValuePitch]);
        mma(x[j], k, s0, s1);
        mma(o[j], q, s0, s1);
      }
    }
#pragma unroll
    for (int j = 0; j < 2; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int r = row0 + g + e / 2 * 8;
        float& b = bs[r * kValuePitch + column0 + j * 8 + 2 * t + e % 2];   // holds v; rows past the end are zero and stay so
        b = fmaf(-factors[r], x[j][e], b);
      }
    __syncthreads();
    float w[2][4] = {};
#pragma unroll 2
    for (int c = 0; c < row0 + 16; c += 8) {       // M beta is lower triangular
      unsigned m[4];
      fragment(m, ms + row0 * kRow + c, kRow, 1, g, t);
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const float* b = bs + (c + t) * kValuePitch + column0 + j * 8 + g;
        mma(w[j], m, tf32(b[0]), tf32(b[4 * kValuePitch]));
      }
    }
#pragma unroll
    for (int j = 0; j < 2; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int r = row0 + g + e / 2 * 8;
        vn[r * kValuePitch + column0 + j * 8 + 2 * t + e % 2] = w[j][e];
        o[j][e] *= f.scale * factors[r];
      }
    __syncthreads();
#pragma unroll 2
    for (int c = 0; c < row0 + 16; c += 8) {
      unsigned m[4];
      fragment(m, ps + row0 * kRow + c, kRow, 1, g, t);
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const float* b = vn + (c + t) * kValuePitch + column0 + j * 8 + g;
        mma(o[j], m, tf32(b[0]), tf32(b[4 * kValuePitch]));
      }
    }
#pragma unroll
    for (int j = 0; j < 2; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int r = row0 + g + e / 2 * 8, value = v0 + column0 + j * 8 + 2 * t + e % 2;
        if (r < rows && value < f.V) store(f.o, (first + r) * f.o.s0 + hv * f.o.s1 + value, o[j][e]);
      }
    const float state_decay = factors[128];
    each_state([&](float& s, int, int) { s *= state_decay; });
#pragma unroll 2
    for (int r = 0; r < (rows + 7) / 8 * 8; r += 8) {
      const float f0 = factors[64 + r + t], f1 = factors[64 + r + t + 4];
      unsigned b0[kColumns], b1[kColumns];
#pragma unroll
      for (int j = 0; j < kColumns; ++j) {
        const float* b = vn + (r + t) * kValuePitch + value0 + j * 8 + g;
        b0[j] = tf32(f0 * b[0]);
        b1[j] = tf32(f1 * b[4 * kValuePitch]);
      }
#pragma unroll
      for (int i = 0; i < kTiles; ++i) {
        unsigned k[4];
        fragment(k, ks + r * L::pitch + key0 + i * 128, 1, L::pitch, g, t);
#pragma unroll
        for (int j = 0; j < kColumns; ++j) mma(S[i][j], k, b0[j], b1[j]);
      }
    }
    each_state([&](float& s, int key, int value) { ss[key * kValuePitch + value] = s; });
    __syncthreads();
  }
  if (f.ht)
    each_state([&](float& s, int key, int value) {
      if (key < f.K && v0 + value < f.V) store(f.ht, n * f.ht.s0 + hv * f.ht.s1 + key * f.ht.s2 + v0 + value, s);
    });
}

struct Plan {
  int64_t chunks = 0;                              // upper bound
  void* workspace = nullptr;
  Params params{};
};

int create(const gdn_problem* problem, void** out, char* message, size_t size) {
  if (!device_present(message, size)) return GDN_NOT_SUPPORTED;
  if (problem->operation != GDN_PREFILL || problem->rule > GDN_RULE_DELTA) {
    std::snprintf(message, size, "only prefill of rules gated_delta and delta");
    return GDN_NOT_SUPPORTED;
  }
  if (problem->K > 256 || problem->N > 65535) {
    std::snprintf(message, size, "K above 256 or more than 65535 sequences");
    return GDN_NOT_SUPPORTED;
  }
  auto* plan = new Plan;
  plan->chunks = problem->T / C + problem->N;
  const size_t slots = static_cast<size_t>(plan->chunks) * problem->HV, offsets = (static_cast<size_t>(problem->N + 1) * 4 + 1023) / 1024 * 1024;
  if (!cuda_ok(cudaMalloc(&plan->workspace, offsets + slots * (2 * 4096 + 256) * 4), "workspace", message, size)) {
    delete plan;
    return GDN_ERROR;
  }
  plan->params.chunk_offset = static_cast<int*>(plan->workspace);
  plan->params.M = reinterpret_cast<float*>(static_cast<char*>(plan->workspace) + offsets);
  plan->params.P = plan->params.M + slots * 4096;
  plan->params.factors = plan->params.P + slots * 4096;
  *out = plan;
  return GDN_OK;
}

template <int KP, Type type, bool tensor_cores>
int launch(const Plan& plan, const Params& p, cudaStream_t stream, char* message, size_t size) {
  constexpr int prepare_bytes = (2 * 64 * 36 + 6 * 64 * kRow) * 4, forward_bytes = Layout<KP>::floats * 4;
  constexpr auto walk = tensor_cores ? forward_tf32<KP, type> : forward<KP, type>;
  if (!cuda_ok(cudaFuncSetAttribute(prepare<KP, type>, cudaFuncAttributeMaxDynamicSharedMemorySize, prepare_bytes), "prepare attribute", message, size) ||
      !cuda_ok(cudaFuncSetAttribute(walk, cudaFuncAttributeMaxDynamicSharedMemorySize, forward_bytes), "forward attribute", message, size))
    return GDN_ERROR;
  if (p.f.T > 0) {
    if (p.f.N > 1) plan_chunks<<<1, 1024, 0, stream>>>(p.f, p.chunk_offset);
    prepare<KP, type><<<dim3(static_cast<unsigned>(plan.chunks), static_cast<unsigned>(p.f.H)), 256, prepare_bytes, stream>>>(p);
    if (!cuda_ok(cudaGetLastError(), "launch of prepare", message, size)) return GDN_ERROR;
  }
  const dim3 grid(static_cast<unsigned>((p.f.V + kValues - 1) / kValues), static_cast<unsigned>(p.f.HV), static_cast<unsigned>(p.f.N));
  walk<<<grid, 256, forward_bytes, stream>>>(p);
  return cuda_ok(cudaGetLastError(), "launch of forward", message, size) ? GDN_OK : GDN_ERROR;
}

template <Type type, bool tensor_cores>
int launch_type(const Plan& plan, const Params& p, cudaStream_t stream, char* message, size_t size) {
  if (p.f.K <= 64) return launch<64, type, tensor_cores>(plan, p, stream, message, size);
  if (p.f.K <= 128) return launch<128, type, tensor_cores>(plan, p, stream, message, size);
  return launch<256, type, tensor_cores>(plan, p, stream, message, size);
}

template <bool tensor_cores>
int run(void* opaque, const gdn_call* call, char* message, size_t size) {
  const auto& plan = *static_cast<Plan*>(opaque);
  Params p = plan.params;
  if (!read_call(call, &p.f, message, size)) return GDN_ERROR;
  if (p.f.T > 0 && (p.f.q.type != p.f.k.type || p.f.q.type != p.f.v.type)) {
    std::snprintf(message, size, "q, k and v must have one dtype");
    return GDN_NOT_SUPPORTED;
  }
  p.vector_k = vector4(p.f.k);
  p.vector_q = vector4(p.f.q);
  p.vector_v = vector4(p.f.v);
  const auto stream = static_cast<cudaStream_t>(call->stream);
  switch (p.f.q.type) {
    case Type::bf16: return launch_type<Type::bf16, tensor_cores>(plan, p, stream, message, size);
    case Type::f16: return launch_type<Type::f16, tensor_cores>(plan, p, stream, message, size);
    default: return launch_type<Type::f32, tensor_cores>(plan, p, stream, message, size);
  }
}

void destroy(void* opaque) {
  auto* plan = static_cast<Plan*>(opaque);
  cudaFree(plan->workspace);
  delete plan;
}

}  // namespace

extern const gdn_kernel chunk_fp32_kernel = {
    GDN_ABI_VERSION, GDN_DEVICE_CUDA, sizeof(gdn_kernel), "cuda_chunk_fp32", "chunkwise forward in true fp32", "1", "",
    "fp32-chunk;vectors=residual;solve=block_inverse;block=16",
    "ops=prefill;rules=gated_delta,delta;io=fp32,bf16,fp16;gate=fp32,bf16;beta=fp32,bf16;state=fp32,bf16,fp16;K=1..256;V=1..65535;varlen;h0;ht;empty;g_min=-inf;beta_max=2;strides;short_offsets",
    "deterministic;shape_invariant;symmetric", create, run<false>, destroy};

// Operands are rounded to nearest, ties away; M, P and gates are made in fp32. beta is folded into M, whose diagonal then is beta.
extern const gdn_kernel chunk_tf32_kernel = {
    GDN_ABI_VERSION, GDN_DEVICE_CUDA, sizeof(gdn_kernel), "cuda_chunk_tf32", "chunkwise forward with TF32 tensor-core products", "1", "",
    "tf32-chunk;vectors=residual;gram=fp32;beta=tf32/rna;q_in=tf32/rna;k_in=tf32/rna;M=tf32/rna;bv=tf32/rna;Vn_o=tf32/rna;Vn_s=tf32/rna;S_op=tf32/rna;"
    "P=tf32/rna;q_scaled=fp32;k_scaled=fp32;accumulator=tensor_core",
    "ops=prefill;rules=gated_delta,delta;io=fp32,bf16,fp16;gate=fp32,bf16;beta=fp32,bf16;state=fp32,bf16,fp16;K=1..256;V=1..65535;varlen;h0;ht;empty;g_min=-inf;beta_max=2;strides;short_offsets",
    "deterministic;shape_invariant;symmetric", create, run<true>, destroy};

}  // namespace gdn_cuda
