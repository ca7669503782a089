// cuda_chunk_bf16: chunkwise forward on Hopper tensor cores, bf16 operands, fp32 accumulation and carried state.
//
// Two kernels. `prepare` works on all chunks side by side: Gram products, decay ratios, the inverse M = (I+L)^-1 in
// fp32 by forward substitution, scores P; M and P leave as bf16. `forward` walks the chunks of one sequence, one
// block per value head and slice of 64 value channels, in residual form (accuracy standard, chunkwise form):
//     Vn = M beta (v - e^G S^T k),   o = scale e^G S^T q + P Vn,   S <- e^(G_C) S + sum_r e^(G_C-G_r) k_r Vn_r^T
// Everything is kept transposed (rows are value channels), so that state and corrections are the register operand of
// the next product and never travel through shared memory. The order of every sum is fixed: the same row gives the
// same numbers whatever else is in the batch.
#include <cuda.h>

#include <climits>

#include "kernels/cuda/chunk_common.cuh"
#include "kernels/cuda/hopper.cuh"

namespace gdn_cuda {
namespace {

constexpr int kTile = 64 * 64 * 2;                 // bytes of a 64 x 64 bf16 tile

// Decay factors of one chunk and head, by pairs of rows as the fragments of `forward` need them.
struct Factors {
  float4 minus_decay_tail[32];                     // -e^(G_r), -e^(G_r+1), e^(G_C-G_r), e^(G_C-G_r+1)
  float2 scaled_decay[32];                         // scale e^(G_r), scale e^(G_r+1)
  float state_decay, unused[3];                    // e^(G_C)
};

struct Params {
  Forward f;
  int* chunk_offset;                               // [N+1] chunks before sequence n
  unsigned char *M, *P;                            // [chunks,HV] tiles of 64 x 64 bf16, swizzled as in shared memory; M holds M beta
  Factors* factors;                                // [chunks,HV]
  int vector_o;                                    // rows of o can be written 16 bytes at a time
  int first, last;                                 // chunks of a sequence to go through now; all but the last part end before the sequence does
  float* carried;                                  // [blocks,KP/2,128] states between two parts, as the threads of `forward` hold them
};
struct Maps { CUtensorMap q, k, v; };

// Byte of element (row, column) in a 64 x 64 bf16 tile with the 128-byte swizzle.
__device__ __forceinline__ int swizzled(int row, int column) { return row * 128 + (((column >> 3) ^ (row & 7)) << 4) + (column & 7) * 2; }

// Rows first..first+rows of one head into shared memory, 16 bytes at a time; other rows and columns become zero.
template <int KP>
__device__ __forceinline__ void load_tile(const View& x, int64_t first, int head, int rows, int width, int thread, uint32_t to, int pitch) {
  const auto* base = static_cast<const __nv_bfloat16*>(x.data) + first * x.s0 + head * x.s1;
#pragma unroll
  for (int i = thread; i < C * KP / 8; i += 256) {
    const int r = i / (KP / 8), c = i % (KP / 8) * 8;
    const bool valid = r < rows && c < width;
    copy16(to + (r * pitch + c) * 2, valid ? base + r * x.s0 + c : base, valid);
  }
}

template <int KP> struct PrepareLayout {
  static constexpr int pitch = KP + 8;             // bf16 per row of the K and Q tiles
  static constexpr int tiles = 2 * 64 * pitch * 2, square = 64 * kRow * 4;
  // The tiles make room for L and M of two heads once the Gram products are done.
  static constexpr int gram = tiles > 4 * square ? tiles : 4 * square, bytes = gram + 2 * square;
};

template <int KP>
__global__ void __launch_bounds__(256, KP <= 128 ? 2 : 1) prepare(const __grid_constant__ Params p) {
  using Layout = PrepareLayout<KP>;
  extern __shared__ __align__(16) unsigned char shared[];
  constexpr int kPitch = Layout::pitch;
  auto* squares = reinterpret_cast<float*>(shared);
  auto* kk = reinterpret_cast<float*>(shared + Layout::gram);
  auto* qk = kk + 64 * kRow;
  __shared__ GateRows gates;

  const Forward& f = p.f;
  const int chunk = p.first + blockIdx.y, h = blockIdx.x, thread = threadIdx.x, warp = thread / 32, lane = thread % 32;
  int64_t begin;
  const int rows = locate_chunk(f, p.chunk_offset, chunk, &begin);
  if (rows == 0) return;

  const uint32_t ks_at = shared_address(shared), qs_at = ks_at + 64 * kPitch * 2;
  load_tile<KP>(f.k, begin, h, rows, f.K, thread, ks_at, kPitch);
  load_tile<KP>(f.q, begin, h, rows, f.K, thread, qs_at, kPitch);
  copy_wait();
  __syncthreads();

  {  // Gram products: warps 0-3 K K^T, warps 4-7 Q K^T, 16 rows each, columns up to the diagonal block
    float d[8][4] = {};
    const int group = warp % 4, row = group * 16 + lane % 16;
    const uint32_t a_at = warp < 4 ? ks_at : qs_at;
    const int brow = (lane / 16) * 8 + lane % 8, bcol = ((lane / 8) & 1) * 8;
#pragma unroll
    for (int k0 = 0; k0 < KP; k0 += 16) {
      uint32_t a[4];
      ldmatrix4(a, a_at + (row * kPitch + k0 + lane / 16 * 8) * 2);
#pragma unroll
      for (int b = 0; b < 4; ++b) {
        if (b > group) continue;
        uint32_t bk[4];
        ldmatrix4(bk, ks_at + ((b * 16 + brow) * kPitch + k0 + bcol) * 2);
        mma16816(d[2 * b], a, bk[0], bk[1]);
        mma16816(d[2 * b + 1], a, bk[2], bk[3]);
      }
    }
    float* to = (warp < 4 ? kk : qk) + (group * 16 + lane / 4) * kRow + lane % 4 * 2;
#pragma unroll
    for (int b = 0; b < 8; ++b) {
      *reinterpret_cast<float2*>(to + b * 8) = make_float2(d[b][0], d[b][1]);
      *reinterpret_cast<float2*>(to + 8 * kRow + b * 8) = make_float2(d[b][2], d[b][3]);
    }
  }
  __syncthreads();

  // 128 threads per value head.
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
      Factors& factors = p.factors[slot];
      const float decay = row.segment == 0 ? expf(static_cast<float>(row.sum)) : 0.0f;
      auto* pair = reinterpret_cast<float*>(&factors.minus_decay_tail[t / 2]);
      pair[t & 1] = -decay;
      pair[2 + (t & 1)] = t < rows && row.segment == last_segment ? expf(static_cast<float>(last - row.sum)) : 0.0f;
      reinterpret_cast<float*>(factors.scaled_decay)[t] = f.scale * decay;
      if (t == 0) factors.state_decay = last_segment == 0 ? expf(static_cast<float>(last)) : 0.0f;
    }

    // Decay ratios only where r >= j in one segment; the mask selects, it never multiplies.
    const int j = (t % 32) * 2;
    const double sum0 = gates.sum[half][j], sum1 = gates.sum[half][j + 1];
    const int segment0 = gates.segment[half][j], segment1 = gates.segment[half][j + 1];
    unsigned char *P = p.P + slot * kTile, *M = p.M + slot * kTile;
#pragma unroll 4
    for (int r = active ? t / 32 : 64; r < 64; r += 4) {
      const double sr = gates.sum[half][r];
      const float br = gates.beta[half][r];
      const int gr = gates.segment[half][r];
      const bool on0 = j <= r && segment0 == gr, on1 = j + 1 <= r && segment1 == gr;
      const float d0 = on0 ? expf(static_cast<float>(sr - sum0)) : 0.0f, d1 = on1 ? expf(static_cast<float>(sr - sum1)) : 0.0f;
      const float2 a = *reinterpret_cast<const float2*>(kk + r * kRow + j), b = *reinterpret_cast<const float2*>(qk + r * kRow + j);
      *reinterpret_cast<float2*>(L + r * kRow + j) = make_float2(on0 && j < r ? br * a.x * d0 : 0.0f, on1 && j + 1 < r ? br * a.y * d1 : 0.0f);
      *reinterpret_cast<uint32_t*>(P + swizzled(r, j)) = pack(on0 ? f.scale * b.x * d0 : 0.0f, on1 ? f.scale * b.y * d1 : 0.0f);
    }
    __syncthreads();
    invert<128>(L, inverse, active, t);
    const float beta0 = gates.beta[half][j], beta1 = gates.beta[half][j + 1];
    for (int r = active ? t / 32 : 64; r < 64; r += 4) {
      const bool below = r / 16 >= j / 16;
      const float2 m = below ? *reinterpret_cast<const float2*>(inverse + r * kRow + j) : make_float2(0, 0);
      *reinterpret_cast<uint32_t*>(M + swizzled(r, j)) = pack(m.x * beta0, m.y * beta1);
    }
    __syncthreads();
  }
}

template <int KP> struct Layout {
  static constexpr int tiles = KP / 64;
  static constexpr int k = 0, q = tiles * kTile, m = 2 * tiles * kTile, p = m + kTile, v = p + kTile, factors = v + kTile;
  static constexpr int stage = factors + 1024;
  static constexpr int stages = KP == 64 ? 4 : KP == 128 ? 3 : 2;
  static constexpr int out = stages * stage, barriers = out + kTile, bytes = barriers + 2 * stages * 8 + 1024;  // 1024: alignment
  static constexpr uint32_t transfer = factors + sizeof(Factors);
};

template <int KP>
__global__ void __launch_bounds__(160, 1) forward(const __grid_constant__ Params p, const __grid_constant__ Maps maps) {
  using L = Layout<KP>;
  extern __shared__ unsigned char raw[];
  unsigned char* shared = raw + ((1024 - (shared_address(raw) & 1023)) & 1023);
  auto* full = reinterpret_cast<uint64_t*>(shared + L::barriers);
  uint64_t* empty = full + L::stages;
  const Forward& f = p.f;
  const int v0 = blockIdx.x * 64, hv = blockIdx.y, thread = threadIdx.x;
  const int64_t n = blockIdx.z;
  const int64_t begin = load_int(f.cu, n), end = load_int(f.cu, n + 1);
  const int chunks = static_cast<int>((end - begin + C - 1) / C), last = min(chunks, p.last);
  if (p.first > 0 && p.first >= chunks) return;    // rows past the end of the sequence
  const int64_t first_chunk = f.N > 1 ? p.chunk_offset[n] : 0;
  if (thread == 0) {
    for (int s = 0; s < L::stages; ++s) {
      barrier_init(full + s, 1);
      barrier_init(empty + s, 128);
    }
    fence_tensor_reads();
  }
  __syncthreads();

  if (thread >= 128) {  // loads, by one thread
    if (thread > 128) return;
    const int h = hv / (f.HV / f.H);
    int s = 0, round = 0;
    for (int c = p.first; c < last; ++c) {
      if (round > 0) barrier_wait(empty + s, (round - 1) & 1);
      const uint32_t at = shared_address(shared + s * L::stage);
      const int row = static_cast<int>(begin) + c * C;
      const int64_t slot = (first_chunk + c) * f.HV + hv;
      barrier_expect(full + s, L::transfer);
      for (int t = 0; t < L::tiles; ++t) bulk_tensor(at + L::k + t * kTile, &maps.k, t * 64, h, row, full + s);
      bulk_tensor(at + L::v, &maps.v, v0, hv, row, full + s);
      bulk(at + L::factors, p.factors + slot, sizeof(Factors), full + s);
      bulk(at + L::m, p.M + slot * kTile, kTile, full + s);
      for (int t = 0; t < L::tiles; ++t) bulk_tensor(at + L::q + t * kTile, &maps.q, t * 64, h, row, full + s);
      bulk(at + L::p, p.P + slot * kTile, kTile, full + s);
      if (++s == L::stages) { s = 0; ++round; }
    }
    return;
  }

  const int warp = thread / 32, lane = thread % 32, g = lane / 4, t = lane % 4;
  const int value0 = v0 + warp * 16 + g;           // this thread's value channels: value0, value0 + 8
  float* carried = p.carried + static_cast<int64_t>(hv * gridDim.x + blockIdx.x) * (KP / 2) * 128 + thread;
  float S[KP / 2];                                 // S^T: [n8][4], rows value0 (0,1), value0+8 (2,3), key channels 8 n8 + 2t, +1
#pragma unroll
  for (int i = 0; i < KP / 2; ++i) {
    if (p.first > 0) {
      S[i] = carried[i * 128];
      continue;
    }
    const int value = value0 + ((i & 2) ? 8 : 0), key = (i / 4) * 8 + 2 * t + (i & 1);
    S[i] = f.h0 && value < f.V && key < f.K ? load(f.h0, n * f.h0.s0 + hv * f.h0.s1 + key * f.h0.s2 + value) : 0.0f;
  }
  const uint32_t base = __shfl_sync(~0u, shared_address(shared), 0);
  const uint32_t out_at = base + L::out + warp * 2048;
  uint32_t out[16];                                // o of the chunk before, written while the tensor cores work on this one

  // A ragged chunk: rows that belong to the next sequence, or to nobody, become zero (the copies brought them along).
  auto clear_tail = [&](uint32_t at, int rows) {
    for (int i = thread; i < (64 - rows) * 8; i += 128) {
      const int r = rows + i / 8, piece = (i % 8) * 16;
#pragma unroll
      for (int tile = 0; tile < L::tiles + 1; ++tile) {
        const uint32_t to = at + (tile < L::tiles ? L::k + tile * kTile : L::v) + r * 128 + piece;
        asm volatile("st.shared.v4.b32 [%0], {%1,%1,%1,%1};" ::"r"(to), "r"(0) : "memory");
      }
    }
    fence_tensor_reads();
    asm volatile("bar.sync 1, 128;" ::: "memory");
  };

  // Rows row.. of o, through this warp's 64 x 16 buffer: the fragments are transposed on the way.
  auto write_output = [&](int64_t row) {
#pragma unroll
    for (int b = 0; b < 4; ++b) {
      const int token = (2 * b + lane / 16) * 8 + lane % 8, piece = (lane / 8) & 1;
      stmatrix4_transposed(out_at + token * 32 + ((piece ^ ((token >> 2) & 1)) * 16), out[b * 4], out[b * 4 + 1], out[b * 4 + 2], out[b * 4 + 3]);
    }
    __syncwarp();
    auto* o = static_cast<__nv_bfloat16*>(f.o.data) + row * f.o.s0 + hv * f.o.s1;
    const int left = static_cast<int>(min(static_cast<int64_t>(C), end - row));
    const int value = v0 + warp * 16 + (lane & 1) * 8;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int token = i * 16 + lane / 2;
      const auto* from = reinterpret_cast<const uint4*>(shared + L::out + warp * 2048 + token * 32 + (((lane & 1) ^ ((token >> 2) & 1)) * 16));
      if (token < left) {
        __nv_bfloat16* to = o + token * f.o.s0 + value;
        if (p.vector_o && value + 8 <= f.V) *reinterpret_cast<uint4*>(to) = *from;
        else
          for (int e = 0; e < 8 && value + e < f.V; ++e) to[e] = reinterpret_cast<const __nv_bfloat16*>(from)[e];
      }
    }
    __syncwarp();
  };

  int s = 0, phase = 0;
  for (int c = p.first; c < last; ++c) {
    const uint32_t at = base + s * L::stage;
    const auto& factors = *reinterpret_cast<const Factors*>(shared + s * L::stage + L::factors);
    const int64_t row = begin + static_cast<int64_t>(c) * C;
    uint32_t a[KP / 16][4];
#pragma unroll
    for (int b = 0; b < KP / 16; ++b)
#pragma unroll
      for (int e = 0; e < 4; ++e) a[b][e] = pack(S[b * 8 + e * 2], S[b * 8 + e * 2 + 1]);
    barrier_wait(full + s, phase);
    if (end - row < C) clear_tail(at, static_cast<int>(end - row));

    float X[32], O[32];
    wgmma_fence();
#pragma unroll
    for (int b = 0; b < KP / 16; ++b) wgmma_n64<0>(X, a[b], descriptor(at + L::k + (b / 4) * kTile + (b % 4) * 32, 0), b > 0);
    wgmma_commit();
#pragma unroll
    for (int b = 0; b < KP / 16; ++b) wgmma_n64<0>(O, a[b], descriptor(at + L::q + (b / 4) * kTile + (b % 4) * 32, 0), b > 0);
    wgmma_commit();
    if (c > p.first) write_output(row - C);
    wgmma_wait<1>();                               // X = S^T k; O = S^T q may still be on its way

    uint32_t bf[4][4];                             // v - e^G S^T k, as operand of M beta
#pragma unroll
    for (int b = 0; b < 4; ++b) {
      uint32_t v[4];
      const int token = (2 * b + lane / 16) * 8 + lane % 8, piece = 2 * warp + ((lane / 8) & 1);
      ldmatrix4_transposed(v, at + L::v + token * 128 + ((piece ^ (token & 7)) * 16));
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const float4 factor = factors.minus_decay_tail[(2 * b + e / 2) * 4 + t];
        const float2 value = unpack(v[e]);
        bf[b][e] = pack(fmaf(factor.x, X[b * 8 + e * 2], value.x), fmaf(factor.y, X[b * 8 + e * 2 + 1], value.y));
      }
    }
    wgmma_fence();
#pragma unroll
    for (int b = 0; b < 4; ++b) wgmma_n64<0>(X, bf[b], descriptor(at + L::m + b * 32, 0), b > 0);
    wgmma_commit();
    const float state_decay = factors.state_decay;
#pragma unroll
    for (int i = 0; i < KP / 2; ++i) S[i] *= state_decay;
    wgmma_wait<0>();                               // X = Vn

    uint32_t for_state[4][4], for_output[4][4];
#pragma unroll
    for (int b = 0; b < 4; ++b)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const float4 factor = factors.minus_decay_tail[(2 * b + e / 2) * 4 + t];
        const int i = b * 8 + e * 2;
        for_state[b][e] = pack(X[i] * factor.z, X[i + 1] * factor.w);
        for_output[b][e] = pack(X[i], X[i + 1]);
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
    for (int b = 0; b < 8; ++b) {
      const float2 decay = factors.scaled_decay[b * 4 + t];
      O[b * 4] *= decay.x;
      O[b * 4 + 1] *= decay.y;
      O[b * 4 + 2] *= decay.x;
      O[b * 4 + 3] *= decay.y;
    }
    wgmma_fence();
#pragma unroll
    for (int b = 0; b < 4; ++b) wgmma_n64<0>(O, for_output[b], descriptor(at + L::p + b * 32, 0), 1);
    wgmma_commit();
    wgmma_wait<0>();
    barrier_arrive(empty + s);
    if (++s == L::stages) { s = 0; phase ^= 1; }
#pragma unroll
    for (int i = 0; i < 16; ++i) out[i] = pack(O[2 * i], O[2 * i + 1]);
  }
  if (last > p.first) write_output(begin + static_cast<int64_t>(last - 1) * C);
  if (last < chunks) {
#pragma unroll
    for (int i = 0; i < KP / 2; ++i) carried[i * 128] = S[i];
  } else if (f.ht) {
#pragma unroll
    for (int i = 0; i < KP / 2; ++i) {
      const int value = value0 + ((i & 2) ? 8 : 0), key = (i / 4) * 8 + 2 * t + (i & 1);
      if (value < f.V && key < f.K) store(f.ht, n * f.ht.s0 + hv * f.ht.s1 + key * f.ht.s2 + value, S[i]);
    }
  }
}

// Copies rows that the bulk copies cannot address (strides or bases that are no multiples of 16 bytes) into padded ones.
__global__ void repack(View from, __nv_bfloat16* to, int64_t rows, int heads, int width, int padded) {
  const int64_t total = rows * heads * padded;
  for (int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x; i < total; i += static_cast<int64_t>(gridDim.x) * blockDim.x) {
    const int c = static_cast<int>(i % padded);
    const int64_t r = i / padded / heads, h = i / padded % heads;
    to[i] = c < width ? static_cast<const __nv_bfloat16*>(from.data)[r * from.s0 + h * from.s1 + c] : __float2bfloat16_rn(0.0f);
  }
}

constexpr int kParts = 4;

struct Plan {
  int64_t chunks = 0;                              // upper bound
  int parts = 1;
  cudaStream_t forwarding = nullptr;               // beside the call's stream where there are parts
  cudaEvent_t prepared[kParts] = {}, done = nullptr;
  void* workspace = nullptr;
  __nv_bfloat16 *q = nullptr, *k = nullptr, *v = nullptr;  // room for repacked inputs
  Params params{};
};

void destroy(void* opaque) {
  auto* plan = static_cast<Plan*>(opaque);
  cudaFree(plan->workspace);
  if (plan->forwarding) cudaStreamDestroy(plan->forwarding);
  if (plan->done) cudaEventDestroy(plan->done);
  for (cudaEvent_t e : plan->prepared)
    if (e) cudaEventDestroy(e);
  delete plan;
}

constexpr int padded(int width) { return (width + 7) / 8 * 8; }

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
  if (problem->T >= INT_MAX - C) {
    std::snprintf(message, size, "more than 2^31 tokens");
    return GDN_NOT_SUPPORTED;
  }
  auto* plan = new Plan;
  plan->chunks = problem->T / C + problem->N;
  auto rounded = [](size_t bytes) { return (bytes + 1023) / 1024 * 1024; };
  const size_t slots = static_cast<size_t>(plan->chunks) * problem->HV, offsets = rounded((problem->N + 1) * sizeof(int));
  const size_t tiles = rounded(slots * kTile), factors = rounded(slots * sizeof(Factors));
  // Rows of 8 values or a multiple go to the bulk copies as they are, unless the tensors turn out misaligned.
  const size_t key_rows = rounded(static_cast<size_t>(problem->T) * problem->H * padded(static_cast<int>(problem->K)) * 2);
  // Where the grid leaves multiprocessors idle, a long sequence goes in parts (NOTES.md, version 5).
  const size_t blocks = static_cast<size_t>(problem->HV) * ((problem->V + 63) / 64), KP = problem->K <= 64 ? 64 : problem->K <= 128 ? 128 : 256;
  if (problem->N == 1 && blocks < static_cast<size_t>(properties.multiProcessorCount)) plan->parts = plan->chunks >= 256 ? kParts : plan->chunks >= 64 ? 2 : 1;
  if (plan->parts > 1) {
    int least = 0, greatest = 0;
    bool made = cuda_ok(cudaDeviceGetStreamPriorityRange(&least, &greatest), "stream priorities", message, size) &&
                cuda_ok(cudaStreamCreateWithPriority(&plan->forwarding, cudaStreamNonBlocking, greatest), "stream", message, size) &&
                cuda_ok(cudaEventCreateWithFlags(&plan->done, cudaEventDisableTiming), "event", message, size);
    for (cudaEvent_t& e : plan->prepared) made = made && cuda_ok(cudaEventCreateWithFlags(&e, cudaEventDisableTiming), "event", message, size);
    if (!made) {
      destroy(plan);
      return GDN_ERROR;
    }
  }
  const size_t carried = plan->parts > 1 ? rounded(blocks * KP / 2 * 128 * sizeof(float)) : 0;
  const size_t value_rows = rounded(static_cast<size_t>(problem->T) * problem->HV * padded(static_cast<int>(problem->V)) * 2);
  if (!cuda_ok(cudaMalloc(&plan->workspace, offsets + 2 * tiles + factors + 2 * key_rows + value_rows + carried), "workspace", message, size)) {
    destroy(plan);
    return GDN_ERROR;
  }
  auto* at = static_cast<unsigned char*>(plan->workspace);
  plan->params.chunk_offset = reinterpret_cast<int*>(at);
  plan->params.M = at += offsets;
  plan->params.P = at += tiles;
  plan->params.factors = reinterpret_cast<Factors*>(at += tiles);
  plan->q = reinterpret_cast<__nv_bfloat16*>(at += factors);
  plan->k = reinterpret_cast<__nv_bfloat16*>(at += key_rows);
  plan->v = reinterpret_cast<__nv_bfloat16*>(at += key_rows);
  plan->params.carried = reinterpret_cast<float*>(at += value_rows);
  *out = plan;
  return GDN_OK;
}

// A view of [rows, heads, width] that bulk copies can address; repacks when it has to.
View addressable(const View& x, int64_t rows, int heads, int width, __nv_bfloat16* room, cudaStream_t stream) {
  if (reinterpret_cast<uintptr_t>(x.data) % 16 == 0 && x.s0 % 8 == 0 && x.s1 % 8 == 0 && width % 8 == 0 && x.s0 > 0 && x.s1 > 0) return x;
  View y = x;
  y.data = room;
  y.s1 = padded(width);
  y.s0 = heads * y.s1;
  repack<<<1024, 256, 0, stream>>>(x, room, rows, heads, width, padded(width));
  return y;
}

bool encode(CUtensorMap* map, const View& x, int64_t rows, int heads, int width, char* message, size_t size) {
  using Encode = CUresult (*)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*, const cuuint64_t*, const cuuint32_t*,
                              const cuuint32_t*, CUtensorMapInterleave, CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill);
  static const Encode call = [] {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult found{};
    cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &found);
    return reinterpret_cast<Encode>(function);
  }();
  if (!call) {
    std::snprintf(message, size, "the driver has no cuTensorMapEncodeTiled");
    return false;
  }
  const cuuint64_t dims[3] = {static_cast<cuuint64_t>(padded(width)), static_cast<cuuint64_t>(heads), static_cast<cuuint64_t>(rows)};
  const cuuint64_t strides[2] = {static_cast<cuuint64_t>(x.s1) * 2, static_cast<cuuint64_t>(x.s0) * 2};
  const cuuint32_t box[3] = {64, 1, C}, steps[3] = {1, 1, 1};
  const CUresult status = call(map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3, x.data, dims, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
                               CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (status != CUDA_SUCCESS) std::snprintf(message, size, "cuTensorMapEncodeTiled failed with %d", static_cast<int>(status));
  return status == CUDA_SUCCESS;
}

template <int KP>
int launch(const Plan& plan, Params p, const Maps& maps, cudaStream_t stream, char* message, size_t size) {
  constexpr int prepare_bytes = PrepareLayout<KP>::bytes;
  auto ok = [&](cudaError_t status, const char* what) { return cuda_ok(status, what, message, size); };
  if (!ok(cudaFuncSetAttribute(prepare<KP>, cudaFuncAttributeMaxDynamicSharedMemorySize, prepare_bytes), "prepare attribute") ||
      !ok(cudaFuncSetAttribute(forward<KP>, cudaFuncAttributeMaxDynamicSharedMemorySize, Layout<KP>::bytes), "forward attribute"))
    return GDN_ERROR;
  const dim3 grid(static_cast<unsigned>((p.f.V + 63) / 64), static_cast<unsigned>(p.f.HV), static_cast<unsigned>(p.f.N));
  if (p.f.T > 0 && p.f.N > 1) plan_chunks<<<1, 1024, 0, stream>>>(p.f, p.chunk_offset);
  const auto prepare_part = [&](cudaStream_t on, int64_t chunks) {
    prepare<KP><<<dim3(static_cast<unsigned>(p.f.H), static_cast<unsigned>(chunks)), 256, prepare_bytes, on>>>(p);
    return ok(cudaGetLastError(), "launch of prepare");
  };
  const auto forward_part = [&](cudaStream_t on) {
    forward<KP><<<grid, 160, Layout<KP>::bytes, on>>>(p, maps);
    return ok(cudaGetLastError(), "launch of forward");
  };
  const auto after = [&](cudaStream_t later, cudaEvent_t event, cudaStream_t earlier) {
    return ok(cudaEventRecord(event, earlier), "event") && ok(cudaStreamWaitEvent(later, event), "event");
  };
  p.first = 0;
  p.last = INT_MAX;
  if (plan.parts == 1) return (p.f.T == 0 || prepare_part(stream, plan.chunks)) && forward_part(stream) ? GDN_OK : GDN_ERROR;
  // While `forward` goes through a part, the multiprocessors that it leaves idle prepare the next one.
  const int64_t per = (plan.chunks + plan.parts - 1) / plan.parts;
  for (int i = 0; i < plan.parts; ++i) {
    const bool end = i + 1 == plan.parts;
    p.first = static_cast<int>(i * per);
    p.last = end ? INT_MAX : static_cast<int>((i + 1) * per);
    if (!prepare_part(stream, end ? plan.chunks - i * per : per) || !after(plan.forwarding, plan.prepared[i], stream) || !forward_part(plan.forwarding)) return GDN_ERROR;
  }
  return after(stream, plan.done, plan.forwarding) ? GDN_OK : GDN_ERROR;
}

int run(void* opaque, const gdn_call* call, char* message, size_t size) {
  const auto& plan = *static_cast<Plan*>(opaque);
  Params p = plan.params;
  if (!read_call(call, &p.f, message, size)) return GDN_ERROR;
  Forward& f = p.f;
  if (f.N > 65535) {
    std::snprintf(message, size, "more than 65535 sequences");
    return GDN_NOT_SUPPORTED;
  }
  for (const View* x : {&f.q, &f.k, &f.v, &f.o})
    if (*x && x->type != Type::bf16) {
      std::snprintf(message, size, "q, k, v and o must be bf16");
      return GDN_NOT_SUPPORTED;
    }
  const auto stream = static_cast<cudaStream_t>(call->stream);
  Maps maps{};
  if (f.T > 0) {
    f.q = addressable(f.q, f.T, f.H, f.K, plan.q, stream);
    f.k = addressable(f.k, f.T, f.H, f.K, plan.k, stream);
    f.v = addressable(f.v, f.T, f.HV, f.V, plan.v, stream);
    if (!cuda_ok(cudaGetLastError(), "launch of repack", message, size)) return GDN_ERROR;
    if (!encode(&maps.q, f.q, f.T, f.H, f.K, message, size) || !encode(&maps.k, f.k, f.T, f.H, f.K, message, size) ||
        !encode(&maps.v, f.v, f.T, f.HV, f.V, message, size))
      return GDN_ERROR;
  }
  p.vector_o = reinterpret_cast<uintptr_t>(f.o.data) % 16 == 0 && f.o.s0 % 8 == 0 && f.o.s1 % 8 == 0;
  if (f.K <= 64) return launch<64>(plan, p, maps, stream, message, size);
  if (f.K <= 128) return launch<128>(plan, p, maps, stream, message, size);
  return launch<256>(plan, p, maps, stream, message, size);
}

}  // namespace

extern const gdn_kernel chunk_bf16_kernel = {
    GDN_ABI_VERSION, GDN_DEVICE_CUDA, sizeof(gdn_kernel), "cuda_chunk_bf16",
    "chunkwise forward on Hopper tensor cores, bf16 operands, fp32 accumulation and state", "1",
    "", "bf16-chunk;vectors=residual;block=16;accumulator=tensor_core;beta=bf16",   // beta is folded into M, whose diagonal is then beta in bf16
    "ops=prefill;rules=gated_delta,delta;io=bf16;state=fp32;K=1..256;V=1..65535;varlen;h0;ht;empty;g_min=-inf;beta_max=2;short_offsets",
    "deterministic;shape_invariant;symmetric", create, run, destroy};

}  // namespace gdn_cuda
