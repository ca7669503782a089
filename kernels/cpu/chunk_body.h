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

// Floats of workspace; also hands out the parts when given memory.
struct Work {
  float *kt, *l, *p, *m, *diagonal, *y, *b, *x, *vn, *w, *state, *first, *last, *sum;
  std::int64_t* start;
  std::size_t floats = 0;
  Work(float* memory, std::int64_t K, std::int64_t V) {
    const std::int64_t C = kChunk, wide = K > V ? K : V;
    const auto part = [&](std::int64_t n) {
      float* begin = memory + floats;
      floats += static_cast<std::size_t>((n + 15) / 16 * 16);
      return begin;
    };
    kt = part(K * C), l = part(C * C), p = part(C * C), m = part(C * C), diagonal = part(kBlock * kBlock), y = part(kBlock * C);
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

template <bool Narrow, class Products>
void chunk(const Block& b) {
  const std::int64_t n = b.rows, K = b.K, V = b.V;
  const Work z(b.work, K, V);

  float sum = 0;
  std::int64_t start = -1;
  for (std::int64_t r = 0; r < n; ++r) {
    if (b.g[r] < kGone) sum = 0, start = r;
    else sum += b.g[r];
    z.sum[r] = sum;
    z.start[r] = start;
    z.first[r] = start < 0 ? std::exp(sum) : 0.0f;
  }

  // l = -L strictly below the diagonal, p = (Q K^T) o D on and below it.
  for (std::int64_t r = 0; r < n; ++r)
    for (std::int64_t d = 0; d < K; ++d) z.kt[d * n + r] = b.k[r * K + d];
  if (b.delta) Products::template product<false>(z.l, b.k, z.kt, n, K, n);
  Products::template product<false>(z.p, b.q, z.kt, n, K, n);
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t j = 0; j <= i; ++j) {
      const float decay = i == j ? 1.0f : z.start[i] == z.start[j] ? std::exp(z.sum[i] - z.sum[j]) : 0.0f;
      if (i == n - 1) z.last[j] = decay;
      z.p[i * n + j] *= decay;
      if (b.delta && j < i) z.l[i * n + j] = -(b.beta[i] * z.l[i * n + j] * decay);
    }
  rounded<Narrow>(z.p, n * n);

  const float* S = b.S;                            // as operand
  if constexpr (Narrow) {
    for (std::int64_t i = 0; i < K * V; ++i) z.state[i] = round_bf16(b.S[i]);
    S = z.state;
  }
  const auto beta_v = [&](const float* v, float* to) {
    for (std::int64_t i = 0; i < n; ++i)
      for (std::int64_t j = 0; j < V; ++j) to[i * V + j] = b.beta[i] * v[i * V + j];
    rounded<Narrow>(to, n * V);
  };
  if (!b.delta) {
    beta_v(b.v, z.vn);
  } else if constexpr (Narrow) {
    invert(z, n);
    rounded<Narrow>(z.m, n * n);
    for (std::int64_t i = 0; i < n; ++i)
      for (std::int64_t d = 0; d < K; ++d) z.b[i * K + d] = b.beta[i] * b.k[i * K + d] * z.first[i];
    rounded<Narrow>(z.b, n * K);
    lower_product(z.w, K, z.m, n, z.b, K, n, K);
    rounded<Narrow>(z.w, n * K);
    beta_v(b.v, z.b);
    lower_product(z.vn, V, z.m, n, z.b, V, n, V);
    rounded<Narrow>(z.vn, n * V);
    Products::template product<false>(z.x, z.w, S, n, K, V);
    for (std::int64_t i = 0; i < n * V; ++i) z.vn[i] -= z.x[i];
  } else {
    Products::template product<false>(z.x, b.k, S, n, K, V);
    for (std::int64_t i = 0; i < n; ++i)
      for (std::int64_t j = 0; j < V; ++j) z.b[i * V + j] = b.v[i * V + j] - z.first[i] * z.x[i * V + j];
    beta_v(z.b, z.vn);
    substitute(z.vn, V, z.l, n, n, V);
  }

  Products::template product<false>(z.x, b.q, S, n, K, V);
  const float* operand = z.vn;
  if constexpr (Narrow) {
    for (std::int64_t i = 0; i < n * V; ++i) z.b[i] = round_bf16(z.vn[i]);
    operand = z.b;
  }
  lower_product(b.o, V, z.p, n, operand, V, n, V);
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t j = 0; j < V; ++j) b.o[i * V + j] = b.scale * (z.first[i] * z.x[i * V + j] + b.o[i * V + j]);

  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t j = 0; j < V; ++j) z.vn[i * V + j] *= z.last[i];
  rounded<Narrow>(z.vn, n * V);
  Products::template product<true>(z.state, b.k, z.vn, K, n, V);
  const float end = z.first[n - 1];
  for (std::int64_t i = 0; i < K * V; ++i) b.S[i] = end * b.S[i] + z.state[i];
}

}  // namespace gdn::cpu::GDN_ISA
