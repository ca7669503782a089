// The chunkwise form of one block (formulas: reference/README.md), compiled once per instruction set: GDN_ISA names the
// namespace, and nothing here may be an inline function that another file compiles for another processor.
//
// fp32: residual form, Vn = (I+L)^-1 beta (v - e^G S^T k) by forward substitution.
// bf16: M = (I+L)^-1 in blocks of 16 rows, U = M (beta v), W = M (beta e^G k), Vn = U - W S; operands of the products are
//       rounded to bf16 as the contract preset bf16-chunk lists them, sums and the carried state stay fp32.
// Both: gate sums start again after a gate whose decay is 0 in fp32, so that no difference of sums ever holds a huge
// gate; decays are formed for i >= j only, and sums run over j <= i only, so that nothing later is ever multiplied by 0.
#include <cmath>

#include "kernels/cpu/convert.h"
#include "kernels/cpu/driver.h"
#include "kernels/cpu/products.h"

namespace gdn::cpu::GDN_ISA {

constexpr std::int64_t kChunk = 64, kBlock = 16;
constexpr float kGone = -104;                      // e^g rounds to 0 in fp32 below ln 2^-150 = -103.97

// Floats of workspace for chunks of C rows; also hands out the parts when given memory.
struct Work {
  float *kt, *l, *p, *m, *decay, *y, *b, *x, *vn, *w, *state, *first, *last, *sum;
  std::int64_t* start;
  std::size_t floats = 0;
  Work(float* memory, std::int64_t C, std::int64_t K, std::int64_t V) {
    const std::int64_t wide = K > V ? K : V;
    const auto part = [&](std::int64_t n) {
      float* begin = memory + floats;
      floats += static_cast<std::size_t>((n + 15) / 16 * 16);
      return begin;
    };
    kt = part(K * C), l = part(C * C), p = part(C * C), m = part(C * C), decay = part(C * C), y = part(kBlock * C);
    b = part(C * wide), x = part(C * wide), vn = part(C * V), w = part(C * K), state = part(K * V);
    first = part(C), last = part(C), sum = part(C), start = reinterpret_cast<std::int64_t*>(part(2 * C));
  }
};

template <bool Narrow>
inline void rounded(float* x, std::int64_t n) {
  if constexpr (Narrow)
    for (std::int64_t i = 0; i < n; ++i) x[i] = round_bf16(x[i]);
}

// m = (I - l)^-1, l strictly lower (it holds -L): diagonal blocks by substitution, then
// M_IJ = M_II (l_I M_J) for the blocks J above.
inline void invert(const Work& z, std::int64_t n) {
  for (std::int64_t i0 = 0; i0 < n; i0 += kBlock) {
    const std::int64_t rows = n - i0 < kBlock ? n - i0 : kBlock;
    float* own = z.m + i0 * n;
    clear(own, rows, n, n);
    for (std::int64_t i = 0; i < rows; ++i) own[i * n + i0 + i] = 1;
    substitute(own + i0, n, z.l + i0 * n + i0, n, rows, rows);
    if (i0 == 0) continue;
    clear(z.y, rows, i0, i0);
    add_product(z.y, i0, z.l + i0 * n, n, 1, z.m, n, rows, i0, i0);
    lower_product(own, n, own + i0, n, z.y, i0, rows, i0);
  }
}

// Sums of gates from the chunk's start, or from the last gate that leaves nothing, and e^G.
inline void gate_sums(const Work& z, const float* g, std::int64_t n) {
  float sum = 0;
  std::int64_t start = -1;
  for (std::int64_t r = 0; r < n; ++r) {
    if (g[r] < kGone) sum = 0, start = r;
    else sum += g[r];
    z.sum[r] = sum;
    z.start[r] = start;
    z.first[r] = start < 0 ? std::exp(sum) : 0.0f;
  }
}

// e^(G_i-G_j) for i >= j, and e^(G_end-G_j).
inline void decays(const Work& z, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t j = 0; j <= i; ++j) {
      const float decay = i == j ? 1.0f : z.start[i] == z.start[j] ? std::exp(z.sum[i] - z.sum[j]) : 0.0f;
      z.decay[i * n + j] = decay;
      if (i == n - 1) z.last[j] = decay;
    }
}

inline void transpose_keys(const Work& z, const float* k, std::int64_t n, std::int64_t K) {
  for (std::int64_t r = 0; r < n; ++r)
    for (std::int64_t d = 0; d < K; ++d) z.kt[d * n + r] = k[r * K + d];
}

// l = -L strictly below the diagonal.
template <class Products>
void coupling(const Work& z, const float* k, const float* beta, std::int64_t n, std::int64_t K) {
  Products::template product<false>(z.l, k, z.kt, n, K, n);
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t j = 0; j < i; ++j) z.l[i * n + j] = -(beta[i] * z.l[i * n + j] * z.decay[i * n + j]);
}

// p = (Q K^T) o D on and below the diagonal.
template <bool Narrow, class Products>
void scores(const Work& z, const float* q, std::int64_t n, std::int64_t K) {
  Products::template product<false>(z.p, q, z.kt, n, K, n);
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t j = 0; j <= i; ++j) z.p[i * n + j] *= z.decay[i * n + j];
  rounded<Narrow>(z.p, n * n);
}

template <bool Narrow>
void beta_v(const float* beta, const float* v, float* to, std::int64_t n, std::int64_t V) {
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t j = 0; j < V; ++j) to[i * V + j] = beta[i] * v[i * V + j];
  rounded<Narrow>(to, n * V);
}

// W = m (beta e^G k), U = m (beta v).
template <bool Narrow>
void vectors(const Work& z, const float* m, const float* k, const float* v, const float* beta, float* w, float* u, std::int64_t n, std::int64_t K, std::int64_t V) {
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t d = 0; d < K; ++d) z.b[i * K + d] = beta[i] * k[i * K + d] * z.first[i];
  rounded<Narrow>(z.b, n * K);
  lower_product(w, K, m, n, z.b, K, n, K);
  rounded<Narrow>(w, n * K);
  beta_v<Narrow>(beta, v, z.b, n, V);
  lower_product(u, V, m, n, z.b, V, n, V);
  rounded<Narrow>(u, n * V);
}

// The state as operand of a product.
template <bool Narrow>
const float* operand(const Work& z, const float* S, std::int64_t n) {
  if constexpr (!Narrow) return S;
  for (std::int64_t i = 0; i < n; ++i) z.state[i] = round_bf16(S[i]);
  return z.state;
}

// vn holds U; subtracts W S.
template <class Products>
void correct(const Work& z, const float* w, const float* S, std::int64_t n, std::int64_t K, std::int64_t V) {
  Products::template product<false>(z.x, w, S, n, K, V);
  for (std::int64_t i = 0; i < n * V; ++i) z.vn[i] -= z.x[i];
}

template <bool Narrow, class Products>
void output(const Work& z, const float* q, const float* S, const float* vn, float scale, float* o, std::int64_t n, std::int64_t K, std::int64_t V) {
  Products::template product<false>(z.x, q, S, n, K, V);
  if constexpr (Narrow) {
    for (std::int64_t i = 0; i < n * V; ++i) z.b[i] = round_bf16(vn[i]);
    vn = z.b;
  }
  lower_product(o, V, z.p, n, vn, V, n, V);
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t j = 0; j < V; ++j) o[i * V + j] = scale * (z.first[i] * z.x[i * V + j] + o[i * V + j]);
}

// S becomes e^G_end S + K^T (e^(G_end-G) vn); vn is used up.
template <bool Narrow, class Products>
void update(const Work& z, const float* k, float* S, std::int64_t n, std::int64_t K, std::int64_t V) {
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t j = 0; j < V; ++j) z.vn[i * V + j] *= z.last[i];
  rounded<Narrow>(z.vn, n * V);
  Products::template product<true>(z.state, k, z.vn, K, n, V);
  const float end = z.first[n - 1];
  for (std::int64_t i = 0; i < K * V; ++i) S[i] = end * S[i] + z.state[i];
}

template <bool Narrow, class Products>
void chunk(const Block& b) {
  const std::int64_t n = b.rows, K = b.K, V = b.V;
  const Work z(b.work, kChunk, K, V);
  gate_sums(z, b.g, n);
  decays(z, n);
  transpose_keys(z, b.k, n, K);
  if (b.delta) coupling<Products>(z, b.k, b.beta, n, K);
  scores<Narrow, Products>(z, b.q, n, K);
  const float* S = operand<Narrow>(z, b.S, K * V);
  if (!b.delta) {
    beta_v<Narrow>(b.beta, b.v, z.vn, n, V);
  } else if constexpr (Narrow) {
    invert(z, n);
    rounded<Narrow>(z.m, n * n);
    vectors<Narrow>(z, z.m, b.k, b.v, b.beta, z.w, z.vn, n, K, V);
    correct<Products>(z, z.w, S, n, K, V);
  } else {
    Products::template product<false>(z.x, b.k, S, n, K, V);
    for (std::int64_t i = 0; i < n; ++i)
      for (std::int64_t j = 0; j < V; ++j) z.b[i * V + j] = b.v[i * V + j] - z.first[i] * z.x[i * V + j];
    beta_v<Narrow>(b.beta, z.b, z.vn, n, V);
    substitute(z.vn, V, z.l, n, n, V);
  }
  output<Narrow, Products>(z, b.q, S, z.vn, b.scale, b.o, n, K, V);
  update<Narrow, Products>(z, b.k, b.S, n, K, V);
}

// The same steps one by one.
template <bool Narrow, class Products>
void stage(const StageBlock& b) {
  const std::int64_t n = b.rows, K = b.K, V = b.V;
  const Work z(b.work, b.chunk, K, V);
  if (b.G) {
    for (std::int64_t r = 0; r < n; ++r) z.sum[r] = b.G[r], z.start[r] = -1, z.first[r] = std::exp(b.G[r]);
    decays(z, n);
  }
  if (b.k) transpose_keys(z, b.k, n, K);
  switch (b.stage) {
    case GDN_STAGE_NAME_GATE_SUM: {
      gate_sums(z, b.g, n);
      float before = 0;                            // up to and with the last gate that leaves nothing
      for (std::int64_t r = 0; r < n; ++r) {
        if (z.start[r] == r) before = (r ? b.out[r - 1] : 0) + b.g[r];
        b.out[r] = before + z.sum[r];
      }
      break;
    }
    case GDN_STAGE_NAME_GRAM:
      coupling<Products>(z, b.k, b.beta, n, K);
      for (std::int64_t i = 0; i < n; ++i)
        for (std::int64_t j = 0; j < n; ++j) b.out[i * n + j] = j < i ? -z.l[i * n + j] : 0.0f;
      break;
    case GDN_STAGE_NAME_INVERSE:
      for (std::int64_t i = 0; i < n * n; ++i) z.l[i] = -b.L[i];
      if constexpr (Narrow) {
        invert(z, n);
      } else {
        clear(z.m, n, n, n);
        for (std::int64_t i = 0; i < n; ++i) z.m[i * n + i] = 1;
        substitute(z.m, n, z.l, n, n, n);
      }
      rounded<Narrow>(z.m, n * n);
      for (std::int64_t i = 0; i < n; ++i)
        for (std::int64_t j = 0; j < n; ++j) b.out[i * n + j] = j <= i ? z.m[i * n + j] : 0.0f;
      break;
    case GDN_STAGE_NAME_UW: vectors<Narrow>(z, b.M, b.k, b.v, b.beta, b.more, b.out, n, K, V); break;
    case GDN_STAGE_NAME_CHUNK_STATES:
      for (std::int64_t i = 0; i < n * V; ++i) z.vn[i] = b.U[i];
      correct<Products>(z, b.W, operand<Narrow>(z, b.S, K * V), n, K, V);
      for (std::int64_t i = 0; i < n * V; ++i) b.out[i] = z.vn[i];
      update<Narrow, Products>(z, b.k, b.S, n, K, V);
      break;
    default:
      scores<Narrow, Products>(z, b.q, n, K);
      output<Narrow, Products>(z, b.q, operand<Narrow>(z, b.S, K * V), b.Vn, b.scale, b.out, n, K, V);
  }
}

}  // namespace gdn::cpu::GDN_ISA
