// cuda_chunk_bf16: chunkwise forward on Hopper tensor cores, bf16 operands, fp32 accumulation and carried state.
//
// Two kernels. `prepare` works on all chunks side by side: Gram products, decay ratios, the inverse M = (I+L)^-1 in
// fp32 by forward substitution, scores P; M and P leave as bf16. `forward` walks the chunks of one sequence, one
// block per value head and slice of 64 value channels, in residual form (accuracy standard, chunkwise form):
//     Vn = M beta (v - e^G S^T k),   o = scale e^G S^T q + P Vn,   S <- e^(G_C) S + sum_r e^(G_C-G_r) k_r Vn_r^T
// Everything is kept transposed (rows are value channels), so that state and corrections are the register operand of
// the next product and never travel through shared memory. The order of every sum is fixed: the same row gives the
// same numbers whatever else is in the batch.
#include <climits>

#include "kernels/cuda/common.cuh"
#include "kernels/cuda/hopper.cuh"

namespace gdn_cuda {
namespace {

constexpr int C = 64;                              // rows of a chunk
constexpr int kTile = 64 * 64 * 2;                 // bytes of a 64 x 64 bf16 tile
constexpr int kFactors = 208;                      // floats per chunk and head: e^G, e^(G_C-G), beta, [192] = e^(G_C)

struct Params {
  Forward f;
  int* chunk_offset;                               // [N+1] chunks before sequence n
  __nv_bfloat16 *M, *P;                            // [chunks,HV,64,64]
  float* factors;                                  // [chunks,HV,kFactors]
  int vector_k, vector_v, vector_o;                // rows can be moved 16 bytes at a time
};

__global__ void plan_chunks(Params p) {
  // One block; N up to a million: each thread sums a contiguous part, then the parts are scanned.
  __shared__ int part[1024];
  const int64_t N = p.f.N, per = (N + blockDim.x - 1) / blockDim.x;
  const int64_t first = threadIdx.x * per, last = min(N, first + per);
  int sum = 0;
  for (int64_t n = first; n < last; ++n) sum += static_cast<int>((load_int(p.f.cu, n + 1) - load_int(p.f.cu, n) + C - 1) / C);
  part[threadIdx.x] = sum;
  __syncthreads();
  for (unsigned d = 1; d < blockDim.x; d *= 2) {
    const int other = threadIdx.x >= d ? part[threadIdx.x - d] : 0;
    __syncthreads();
    part[threadIdx.x] += other;
    __syncthreads();
  }
  int at = threadIdx.x ? part[threadIdx.x - 1] : 0;
  if (threadIdx.x == 0) p.chunk_offset[0] = 0;
  for (int64_t n = first; n < last; ++n) {
    at += static_cast<int>((load_int(p.f.cu, n + 1) - load_int(p.f.cu, n) + C - 1) / C);
    p.chunk_offset[n + 1] = at;
  }
}

// Rows first..first+rows of one head into shared memory; rows past `rows` and columns past `width` become zero.
template <class Address>
__device__ __forceinline__ void load_tile(const View& x, int64_t first, int64_t head, int rows, int width, int padded, bool vector,
                                          int thread, int threads, Address address) {
  const auto* base = static_cast<const __nv_bfloat16*>(x.data) + first * x.s0 + head * x.s1;
  const int pieces = padded / 8;
  for (int i = thread; i < C * pieces; i += threads) {
    const int r = i / pieces, c = i % pieces;
    const uint32_t to = address(r, c);
    if (vector) {
      const bool valid = r < rows && c * 8 < width;
      copy16(to, valid ? base + r * x.s0 + c * 8 : base, valid);
    } else {
      uint32_t words[4];
      for (int j = 0; j < 4; ++j) {
        uint32_t two = 0;
        for (int e = 0; e < 2; ++e) {
          const int column = c * 8 + j * 2 + e;
          if (r < rows && column < width)
            two |= static_cast<uint32_t>(reinterpret_cast<const uint16_t*>(base)[r * x.s0 + column]) << (16 * e);
        }
        words[j] = two;
      }
      asm volatile("st.shared.v4.b32 [%0], {%1,%2,%3,%4};" ::"r"(to), "r"(words[0]), "r"(words[1]), "r"(words[2]), "r"(words[3]) : "memory");
    }
  }
}

__device__ __forceinline__ void pair_barrier(int half) { asm volatile("bar.sync %0, 64;" ::"r"(half + 1) : "memory"); }

constexpr int kRow = 68;                           // floats per row of the fp32 squares: 16-byte rows, no bank conflicts

// Column `c` of (I+L)^-1 for rows R0..63 (zero above c), by forward substitution; written as bf16.
template <int R0>
__device__ __forceinline__ void substitute(const float* L, int c, __nv_bfloat16* M) {
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
    const float sum = (sum0 + sum1) + (sum2 + sum3);
    m[i - R0] = i < c ? 0.0f : (i == c ? 1.0f : -sum);
  }
#pragma unroll
  for (int i = 0; i < 64; ++i) M[i * 64 + c] = i < R0 ? __float2bfloat16_rn(0.0f) : __float2bfloat16_rn(m[i < R0 ? 0 : i - R0]);
}

template <int KP>
__global__ void __launch_bounds__(128) prepare(const __grid_constant__ Params p) {
  extern __shared__ __align__(16) unsigned char shared[];
  constexpr int kPitch = KP + 8;                   // bf16 per row of the K and Q tiles
  auto* ks = reinterpret_cast<__nv_bfloat16*>(shared);
  auto* qs = ks + 64 * kPitch;
  constexpr int kFirst = 2 * 64 * kPitch * 2 > 2 * 64 * kRow * 4 ? 2 * 64 * kPitch * 2 : 2 * 64 * kRow * 4;
  auto* squares = reinterpret_cast<float*>(shared);  // L of two heads, over the tiles once the Gram products are done
  auto* kk = reinterpret_cast<float*>(shared + kFirst);
  auto* qk = kk + 64 * kRow;
  __shared__ float sum_s[2][64], beta_s[2][64], carry_s[2];
  __shared__ int segment_s[2][64], resets_s[2];

  const Forward& f = p.f;
  const int chunk = blockIdx.x, h = blockIdx.y, thread = threadIdx.x, warp = thread / 32, lane = thread % 32;
  int64_t n = 0;
  int64_t local = chunk;
  if (f.N > 1) {
    if (chunk >= p.chunk_offset[f.N]) return;
    int64_t low = 0, high = f.N;                   // last n with chunk_offset[n] <= chunk
    while (high - low > 1) {
      const int64_t middle = (low + high) / 2;
      (p.chunk_offset[middle] <= chunk ? low : high) = middle;
    }
    n = low;
    local = chunk - p.chunk_offset[n];
  }
  const int64_t begin = load_int(f.cu, n) + local * C, end = load_int(f.cu, n + 1);
  if (begin >= end) return;
  const int rows = static_cast<int>(min(static_cast<int64_t>(C), end - begin));

  const uint32_t ks_at = shared_address(ks), qs_at = shared_address(qs);
  load_tile(f.k, begin, h, rows, f.K, KP, p.vector_k, thread, 128, [&](int r, int c) { return ks_at + (r * kPitch + c * 8) * 2; });
  load_tile(f.q, begin, h, rows, f.K, KP, p.vector_k, thread, 128, [&](int r, int c) { return qs_at + (r * kPitch + c * 8) * 2; });
  copy_commit();
  copy_wait<0>();
  __syncthreads();

  {  // Gram products: this warp's 16 rows of K K^T and Q K^T, columns up to the diagonal block
    float dk[8][4] = {}, dq[8][4] = {};
    const int row = warp * 16 + lane % 16, half = lane / 16;
    const int brow = (lane / 16) * 8 + lane % 8, bcol = ((lane / 8) & 1) * 8;
#pragma unroll
    for (int k0 = 0; k0 < KP; k0 += 16) {
      uint32_t ak[4], aq[4];
      ldmatrix4(ak, ks_at + (row * kPitch + k0 + half * 8) * 2);
      ldmatrix4(aq, qs_at + (row * kPitch + k0 + half * 8) * 2);
#pragma unroll
      for (int b = 0; b < 4; ++b) {
        if (b > warp) continue;
        uint32_t bk[4];
        ldmatrix4(bk, ks_at + ((b * 16 + brow) * kPitch + k0 + bcol) * 2);
        mma16816(dk[2 * b], ak, bk[0], bk[1]);
        mma16816(dk[2 * b + 1], ak, bk[2], bk[3]);
        mma16816(dq[2 * b], aq, bk[0], bk[1]);
        mma16816(dq[2 * b + 1], aq, bk[2], bk[3]);
      }
    }
    const int r = warp * 16 + lane / 4, c = (lane % 4) * 2;
#pragma unroll
    for (int b = 0; b < 8; ++b) {
      *reinterpret_cast<float2*>(kk + r * kRow + b * 8 + c) = make_float2(dk[b][0], dk[b][1]);
      *reinterpret_cast<float2*>(kk + (r + 8) * kRow + b * 8 + c) = make_float2(dk[b][2], dk[b][3]);
      *reinterpret_cast<float2*>(qk + r * kRow + b * 8 + c) = make_float2(dq[b][0], dq[b][1]);
      *reinterpret_cast<float2*>(qk + (r + 8) * kRow + b * 8 + c) = make_float2(dq[b][2], dq[b][3]);
    }
  }
  __syncthreads();

  // Two warps per value head.
  const int half = warp / 2, i = thread % 64, ratio = f.HV / f.H;
  float* L = squares + half * 64 * kRow;
  for (int hh = half; hh < ratio; hh += 2) {
    const int hv = h * ratio + hh;
    const int64_t slot = static_cast<int64_t>(chunk) * f.HV + hv;
    // Gate sums since the last reset, as a segmented scan; a reset row starts again at zero.
    float g = i < rows && f.g ? load(f.g, (begin + i) * f.g.s0 + hv * f.g.s1) : 0.0f;
    const float beta = i < rows ? (f.beta ? load(f.beta, (begin + i) * f.beta.s0 + hv * f.beta.s1) : 1.0f) : 0.0f;
    const bool reset = g < kReset;
    const unsigned resets = __ballot_sync(~0u, reset);
    float sum = reset ? 0.0f : g;
    bool closed = reset;
#pragma unroll
    for (int d = 1; d < 32; d *= 2) {
      const float before = __shfl_up_sync(~0u, sum, d);
      const bool before_closed = __shfl_up_sync(~0u, closed, d);
      if (lane >= d && !closed) { sum += before; closed = before_closed; }
    }
    int segment = __popc(resets & (2u << lane) - 1u);
    if (i == 31) { carry_s[half] = sum; resets_s[half] = segment; }
    pair_barrier(half);
    if (i >= 32) {
      if (!closed) sum += carry_s[half];
      segment += resets_s[half];
    }
    sum_s[half][i] = sum;
    beta_s[half][i] = beta;
    segment_s[half][i] = segment;
    pair_barrier(half);
    float* factors = p.factors + slot * kFactors;
    const float last = sum_s[half][rows - 1];
    const int last_segment = segment_s[half][rows - 1];
    factors[i] = segment == 0 ? expf(sum) : 0.0f;
    factors[64 + i] = i < rows && segment == last_segment ? expf(last - sum) : 0.0f;
    factors[128 + i] = beta;
    if (i == 0) factors[192] = last_segment == 0 ? expf(last) : 0.0f;

    // Decay ratios only where i >= j in one segment; the mask selects, it never multiplies.
    const int j = (i % 32) * 2;
    const float sum0 = sum_s[half][j], sum1 = sum_s[half][j + 1];
    const int segment0 = segment_s[half][j], segment1 = segment_s[half][j + 1];
    __nv_bfloat16* P = p.P + slot * 64 * 64;
    for (int r = i / 32; r < 64; r += 2) {
      const float sr = sum_s[half][r], br = beta_s[half][r];
      const int gr = segment_s[half][r];
      const float d0 = j <= r && segment0 == gr ? expf(sr - sum0) : 0.0f;
      const float d1 = j + 1 <= r && segment1 == gr ? expf(sr - sum1) : 0.0f;
      const float2 a = *reinterpret_cast<const float2*>(kk + r * kRow + j), b = *reinterpret_cast<const float2*>(qk + r * kRow + j);
      const bool on0 = j <= r && segment0 == gr, on1 = j + 1 <= r && segment1 == gr;
      *reinterpret_cast<float2*>(L + r * kRow + j) = make_float2(on0 && j < r ? br * a.x * d0 : 0.0f, on1 && j + 1 < r ? br * a.y * d1 : 0.0f);
      *reinterpret_cast<uint32_t*>(P + r * 64 + j) = pack(on0 ? f.scale * b.x * d0 : 0.0f, on1 ? f.scale * b.y * d1 : 0.0f);
    }
    pair_barrier(half);
    __nv_bfloat16* M = p.M + slot * 64 * 64;
    if (i < 32) substitute<0>(L, i, M);
    else substitute<32>(L, i, M);
    pair_barrier(half);
  }
}

template <int KP> struct Layout {
  static constexpr int tiles = KP / 64;
  static constexpr int k = 0, q = tiles * kTile, m = 2 * tiles * kTile, p = m + kTile, v = p + kTile, factors = v + kTile;
  static constexpr int stage = factors + 1024;
  static constexpr int stages = KP == 64 ? 4 : KP == 128 ? 3 : 2;
  static constexpr int out = stages * stage, barriers = out + kTile, bytes = barriers + 2 * stages * 8 + 1024;  // 1024: alignment
};

template <int KP>
__global__ void __launch_bounds__(256, 1) forward(const __grid_constant__ Params p) {
  using L = Layout<KP>;
  extern __shared__ unsigned char raw[];
  unsigned char* shared = raw + ((1024 - (shared_address(raw) & 1023)) & 1023);
  auto* full = reinterpret_cast<uint64_t*>(shared + L::barriers);
  uint64_t* empty = full + L::stages;
  const Forward& f = p.f;
  const int v0 = blockIdx.x * 64, hv = blockIdx.y, thread = threadIdx.x;
  const int64_t n = blockIdx.z;
  const int64_t begin = load_int(f.cu, n), end = load_int(f.cu, n + 1);
  const int chunks = static_cast<int>((end - begin + C - 1) / C);
  const int64_t first_chunk = f.N > 1 ? p.chunk_offset[n] : 0;
  if (thread == 0) {
    for (int s = 0; s < L::stages; ++s) {
      barrier_init(full + s, 128);
      barrier_init(empty + s, 128);
    }
  }
  __syncthreads();

  if (thread >= 128) {  // loads
    const int t = thread - 128, h = hv / (f.HV / f.H);
    for (int c = 0; c <= chunks; ++c) {
      if (c < chunks) {
        const int s = c % L::stages;
        if (c >= L::stages) barrier_wait(empty + s, (c / L::stages - 1) & 1);
        const uint32_t at = shared_address(shared + s * L::stage);
        const int64_t row = begin + static_cast<int64_t>(c) * C;
        const int rows = static_cast<int>(min(static_cast<int64_t>(C), end - row));
        auto swizzled = [&](uint32_t base, int r, int piece) { return base + (piece / 8) * kTile + r * 128 + (((piece % 8) ^ (r & 7)) * 16); };
        load_tile(f.k, row, h, rows, f.K, KP, p.vector_k, t, 128, [&](int r, int i) { return swizzled(at + L::k, r, i); });
        load_tile(f.q, row, h, rows, f.K, KP, p.vector_k, t, 128, [&](int r, int i) { return swizzled(at + L::q, r, i); });
        View v = f.v;
        v.data = static_cast<__nv_bfloat16*>(v.data) + v0;
        load_tile(v, row, hv, rows, f.V - v0, 64, p.vector_v, t, 128, [&](int r, int i) { return swizzled(at + L::v, r, i); });
        const int64_t slot = (first_chunk + c) * f.HV + hv;
        for (int i = t; i < 512; i += 128) {
          copy16(swizzled(at + L::m, i / 8, i % 8), p.M + slot * 4096 + i * 8, true);
          copy16(swizzled(at + L::p, i / 8, i % 8), p.P + slot * 4096 + i * 8, true);
        }
        if (t < kFactors / 4) copy16(at + L::factors + t * 16, p.factors + slot * kFactors + t * 4, true);
      }
      copy_commit();
      if (c > 0) {
        copy_wait<1>();
        fence_tensor_reads();
        barrier_arrive(full + (c - 1) % L::stages);
      }
    }
    return;
  }

  const int warp = thread / 32, lane = thread % 32, g = lane / 4, t = lane % 4;
  const int value0 = v0 + warp * 16 + g;           // this thread's value channels: value0, value0 + 8
  float S[KP / 2];                                 // S^T: [n8][4], rows value0 (0,1), value0+8 (2,3), key channels 8 n8 + 2t, +1
#pragma unroll
  for (int i = 0; i < KP / 2; ++i) {
    const int value = value0 + ((i & 2) ? 8 : 0), key = (i / 4) * 8 + 2 * t + (i & 1);
    S[i] = f.h0 && value < f.V && key < f.K ? load(f.h0, n * f.h0.s0 + hv * f.h0.s1 + key * f.h0.s2 + value) : 0.0f;
  }
  const uint32_t out_at = shared_address(shared + L::out + warp * 2048);

  for (int c = 0; c < chunks; ++c) {
    const int s = c % L::stages;
    unsigned char* stage = shared + s * L::stage;
    const uint32_t at = shared_address(stage);
    const auto* factors = reinterpret_cast<const float*>(stage + L::factors);
    barrier_wait(full + s, (c / L::stages) & 1);

    float X[32], O[32];
    uint32_t a[KP / 16][4];
#pragma unroll
    for (int b = 0; b < KP / 16; ++b)
#pragma unroll
      for (int e = 0; e < 4; ++e) a[b][e] = pack(S[b * 8 + e * 2], S[b * 8 + e * 2 + 1]);
    wgmma_fence();
#pragma unroll
    for (int b = 0; b < KP / 16; ++b) wgmma_n64<0>(X, a[b], descriptor(at + L::k + (b / 4) * kTile + (b % 4) * 32, 0), b > 0);
    wgmma_commit();
#pragma unroll
    for (int b = 0; b < KP / 16; ++b) wgmma_n64<0>(O, a[b], descriptor(at + L::q + (b / 4) * kTile + (b % 4) * 32, 0), b > 0);
    wgmma_commit();
    wgmma_wait<1>();

    uint32_t bf[4][4];                             // beta (v - e^G S^T k), as operand of M
#pragma unroll
    for (int b = 0; b < 4; ++b) {
      uint32_t v[4];
      const int token = (2 * b + lane / 16) * 8 + lane % 8, piece = 2 * warp + ((lane / 8) & 1);
      ldmatrix4_transposed(v, at + L::v + token * 128 + ((piece ^ (token & 7)) * 16));
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int column = (2 * b + e / 2) * 8 + 2 * t;
        const float2 decay = *reinterpret_cast<const float2*>(factors + column), beta = *reinterpret_cast<const float2*>(factors + 128 + column);
        const float2 value = unpack(v[e]);
        const float x0 = X[b * 8 + e * 2], x1 = X[b * 8 + e * 2 + 1];
        bf[b][e] = pack(beta.x * (value.x - (decay.x == 0 ? 0.0f : decay.x * x0)), beta.y * (value.y - (decay.y == 0 ? 0.0f : decay.y * x1)));
      }
    }
    wgmma_fence();
#pragma unroll
    for (int b = 0; b < 4; ++b) wgmma_n64<0>(X, bf[b], descriptor(at + L::m + b * 32, 0), b > 0);
    wgmma_commit();
    const float state_decay = factors[192];
#pragma unroll
    for (int i = 0; i < KP / 2; ++i) S[i] = state_decay == 0 ? 0.0f : S[i] * state_decay;
    wgmma_wait<0>();

    uint32_t for_state[4][4], for_output[4][4];
#pragma unroll
    for (int b = 0; b < 4; ++b)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int column = (2 * b + e / 2) * 8 + 2 * t, i = b * 8 + e * 2;
        const float2 tail = *reinterpret_cast<const float2*>(factors + 64 + column);
        for_state[b][e] = pack(tail.x == 0 ? 0.0f : X[i] * tail.x, tail.y == 0 ? 0.0f : X[i + 1] * tail.y);
      }
    wgmma_fence();
#pragma unroll
    for (int b = 0; b < 4; ++b) {
      if constexpr (KP == 64) {
        wgmma_n64<1>(S, for_state[b], descriptor(at + L::k + b * 2048, kTile), 1);
      } else {
#pragma unroll
        for (int part = 0; part < KP / 128; ++part)
          wgmma_n128<1>(S + part * 64, for_state[b], descriptor(at + L::k + part * 2 * kTile + b * 2048, kTile));
      }
    }
    wgmma_commit();
#pragma unroll
    for (int b = 0; b < 4; ++b)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int column = (2 * b + e / 2) * 8 + 2 * t, i = b * 8 + e * 2;
        const float2 decay = *reinterpret_cast<const float2*>(factors + column);
        for_output[b][e] = pack(X[i], X[i + 1]);
        O[i] = decay.x == 0 ? 0.0f : O[i] * (decay.x * f.scale);
        O[i + 1] = decay.y == 0 ? 0.0f : O[i + 1] * (decay.y * f.scale);
      }
    wgmma_fence();
#pragma unroll
    for (int b = 0; b < 4; ++b) wgmma_n64<0>(O, for_output[b], descriptor(at + L::p + b * 32, 0), 1);
    wgmma_commit();
    wgmma_wait<0>();
    barrier_arrive(empty + s);

    // Transpose the output through this warp's 64 x 16 buffer.
#pragma unroll
    for (int b = 0; b < 4; ++b) {
      const int token = (2 * b + lane / 16) * 8 + lane % 8, piece = (lane / 8) & 1;
      stmatrix4_transposed(out_at + token * 32 + piece * 16, pack(O[b * 8], O[b * 8 + 1]), pack(O[b * 8 + 2], O[b * 8 + 3]),
                           pack(O[b * 8 + 4], O[b * 8 + 5]), pack(O[b * 8 + 6], O[b * 8 + 7]));
    }
    __syncwarp();
    const int64_t row = begin + static_cast<int64_t>(c) * C;
    auto* o = static_cast<__nv_bfloat16*>(f.o.data);
    const int value = v0 + warp * 16 + (lane & 1) * 8;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int token = i * 16 + lane / 2;
      const auto* from = reinterpret_cast<const uint4*>(shared + L::out + warp * 2048 + token * 32 + (lane & 1) * 16);
      if (row + token < end) {
        __nv_bfloat16* to = o + (row + token) * f.o.s0 + hv * f.o.s1 + value;
        if (p.vector_o && value + 8 <= f.V) *reinterpret_cast<uint4*>(to) = *from;
        else
          for (int e = 0; e < 8 && value + e < f.V; ++e) to[e] = reinterpret_cast<const __nv_bfloat16*>(from)[e];
      }
    }
    __syncwarp();
  }

  if (f.ht) {
#pragma unroll
    for (int i = 0; i < KP / 2; ++i) {
      const int value = value0 + ((i & 2) ? 8 : 0), key = (i / 4) * 8 + 2 * t + (i & 1);
      if (value < f.V && key < f.K) store(f.ht, n * f.ht.s0 + hv * f.ht.s1 + key * f.ht.s2 + value, S[i]);
    }
  }
}

struct Plan {
  int64_t N, T;
  int HV;
  void* workspace = nullptr;
  Params params{};
  int64_t chunks;                                  // upper bound
};

int create(const gdn_problem* problem, void** out, char* message, size_t size) {
  if (!device_present(message, size)) return GDN_NOT_SUPPORTED;
  int device = 0;
  cudaDeviceProp properties{};
  if (!cuda_ok(cudaGetDevice(&device), "cudaGetDevice", message, size) ||
      !cuda_ok(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties", message, size))
    return GDN_ERROR;
  if (properties.major != 9) {
    std::snprintf(message, size, "needs a device of compute capability 9.0, this one has %d.%d", properties.major, properties.minor);
    return GDN_NOT_SUPPORTED;
  }
  if (problem->operation != GDN_PREFILL || problem->rule > GDN_RULE_DELTA) {
    std::snprintf(message, size, "only prefill of rules gated_delta and delta");
    return GDN_NOT_SUPPORTED;
  }
  if (problem->K > 256) {
    std::snprintf(message, size, "K=%lld is above 256", static_cast<long long>(problem->K));
    return GDN_NOT_SUPPORTED;
  }
  auto* plan = new Plan;
  plan->N = problem->N;
  plan->T = problem->T;
  plan->HV = static_cast<int>(problem->HV);
  plan->chunks = problem->T / C + problem->N;
  const int64_t slots = plan->chunks * problem->HV;
  const size_t offsets = (static_cast<size_t>(problem->N + 1) * sizeof(int) + 255) / 256 * 256;
  const size_t square = static_cast<size_t>(slots) * 4096 * 2, factors = static_cast<size_t>(slots) * kFactors * 4;
  if (!cuda_ok(cudaMalloc(&plan->workspace, offsets + 2 * square + factors), "workspace", message, size)) {
    delete plan;
    return GDN_ERROR;
  }
  auto* at = static_cast<char*>(plan->workspace);
  plan->params.chunk_offset = reinterpret_cast<int*>(at);
  plan->params.M = reinterpret_cast<__nv_bfloat16*>(at + offsets);
  plan->params.P = reinterpret_cast<__nv_bfloat16*>(at + offsets + square);
  plan->params.factors = reinterpret_cast<float*>(at + offsets + 2 * square);
  *out = plan;
  return GDN_OK;
}

bool vectors(const View& x, int width) {
  return reinterpret_cast<uintptr_t>(x.data) % 16 == 0 && x.s0 % 8 == 0 && x.s1 % 8 == 0 && width % 8 == 0;
}

template <int KP>
int launch(const Plan& plan, const Params& p, cudaStream_t stream, char* message, size_t size) {
  constexpr int first = 2 * 64 * (KP + 8) * 2 > 2 * 64 * kRow * 4 ? 2 * 64 * (KP + 8) * 2 : 2 * 64 * kRow * 4;
  constexpr int prepare_bytes = first + 2 * 64 * kRow * 4;
  if (!cuda_ok(cudaFuncSetAttribute(prepare<KP>, cudaFuncAttributeMaxDynamicSharedMemorySize, prepare_bytes), "prepare attribute", message, size) ||
      !cuda_ok(cudaFuncSetAttribute(forward<KP>, cudaFuncAttributeMaxDynamicSharedMemorySize, Layout<KP>::bytes), "forward attribute", message, size))
    return GDN_ERROR;
  if (p.f.T > 0) {
    if (p.f.N > 1) plan_chunks<<<1, 1024, 0, stream>>>(p);
    prepare<KP><<<dim3(static_cast<unsigned>(plan.chunks), static_cast<unsigned>(p.f.H)), 128, prepare_bytes, stream>>>(p);
    if (!cuda_ok(cudaGetLastError(), "launch of prepare", message, size)) return GDN_ERROR;
  }
  const unsigned slices = static_cast<unsigned>((p.f.V + 63) / 64);
  for (int64_t n = 0; n < p.f.N; n += 65535) {     // grid.z is limited; almost always one launch
    if (n > 0) {
      std::snprintf(message, size, "more than 65535 sequences");
      return GDN_NOT_SUPPORTED;
    }
    forward<KP><<<dim3(slices, static_cast<unsigned>(p.f.HV), static_cast<unsigned>(p.f.N)), 256, Layout<KP>::bytes, stream>>>(p);
    if (!cuda_ok(cudaGetLastError(), "launch of forward", message, size)) return GDN_ERROR;
  }
  return GDN_OK;
}

int run(void* opaque, const gdn_call* call, char* message, size_t size) {
  const auto& plan = *static_cast<Plan*>(opaque);
  Params p = plan.params;
  if (!read_call(call, &p.f, message, size)) return GDN_ERROR;
  if (p.f.N > 65535) {
    std::snprintf(message, size, "more than 65535 sequences");
    return GDN_NOT_SUPPORTED;
  }
  for (const View* x : {&p.f.q, &p.f.k, &p.f.v, &p.f.o})
    if (*x && x->type != Type::bf16) {
      std::snprintf(message, size, "q, k, v and o must be bf16");
      return GDN_NOT_SUPPORTED;
    }
  p.vector_k = vectors(p.f.k, p.f.K) && vectors(p.f.q, p.f.K);
  p.vector_v = vectors(p.f.v, p.f.V);
  p.vector_o = vectors(p.f.o, 8);
  const auto stream = static_cast<cudaStream_t>(call->stream);
  if (p.f.K <= 64) return launch<64>(plan, p, stream, message, size);
  if (p.f.K <= 128) return launch<128>(plan, p, stream, message, size);
  return launch<256>(plan, p, stream, message, size);
}

void destroy(void* opaque) {
  auto* plan = static_cast<Plan*>(opaque);
  cudaFree(plan->workspace);
  delete plan;
}

}  // namespace

extern const gdn_kernel chunk_bf16_kernel = {
    GDN_ABI_VERSION, GDN_DEVICE_CUDA, sizeof(gdn_kernel), "cuda_chunk_bf16",
    "chunkwise forward on Hopper tensor cores, bf16 operands, fp32 accumulation and state", "1",
    "", "bf16-chunk;chunk=64;vectors=residual;solve=substitution;accumulator=tensor_core",
    "ops=prefill;rules=gated_delta,delta;io=bf16;state=fp32;K=1..256;V=1..65535;varlen;h0;ht;empty;g_min=-inf;beta_max=2",
    "deterministic;shape_invariant;symmetric", create, run, destroy};

}  // namespace gdn_cuda
