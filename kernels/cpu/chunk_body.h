// The chunkwise form of one block (formulas: reference/README.md), compiled once per instruction set: GDN_ISA names the
// namespace, and nothing here may be an inline function that another file compiles for another processor.
//
// fp32: residual form, Vn = (I+L)^-1 beta (v - e^G S^T k) by forward substitution.
// bf16: M = (I+L)^-1 in blocks of 16 rows, U = M (beta v), W = M (beta e^G k), Vn = U - W S; operands of the products are
//       rounded to bf16 as the contract preset bf16-chunk lists them, sums and the carried state stay fp32.
// Both: gate sums start again after a gate whose decay is 0 in fp32, so that no difference of sums ever holds a huge
// gate; decays are formed for i >= j only, and sums run over j <= i only, so that nothing later is ever multiplied by 0.
#include "kernels/cpu/convert.h"
#include "kernels/cpu/driver.h"
#include "kernels/cpu/products.h"

namespace gdn::cpu::GDN_ISA {

constexpr std::int64_t kChunk = 64, kBlock = 16;
constexpr float kGone = -104;                      // e^g rounds to 0 in fp32 below ln 2^-150 = -103.97

// Floats of workspace for chunks of C rows; also hands out the parts when given memory.
struct Work {
  float *kt, *kk, *qk, *l, *p, *m, *decay, *y, *b, *u, *w, *s, *s16, *vn, *vn16, *first, *last, *sum;
  std::int32_t* start;
  std::size_t floats = 0;
  Work(float* memory, std::int64_t C, std::int64_t K, std::int64_t V) {
    const std::int64_t wide = K > V ? K : V;
    const auto part = [&](std::int64_t n) {
      float* begin = memory + floats;
      floats += static_cast<std::size_t>((n + 15) / 16 * 16);
      return begin;
    };
    kt = part(K * kStrip), kk = part(C * C), qk = part(C * C), l = part(C * C), p = part(C * C), m = part(C * C), decay = part(C * C + kLanes), y = part(kBlock * C);
    b = part(C * wide), u = part(C * V), w = part(C * K), s = part(K * kStrip), s16 = part(K * kStrip), vn = part(C * kStrip), vn16 = part(C * kStrip);
    first = part(C), last = part(C), sum = part(C), start = reinterpret_cast<std::int32_t*>(part(C));
  }
};

inline std::size_t workspace(std::int64_t rows, std::int64_t K, std::int64_t V) { return Work(nullptr, rows, K, V).floats; }

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

inline void exponentials(float* to, const float* x, std::int64_t n) {
  for (std::int64_t i = 0; i < n; i += kLanes) store(to + i, exp_of(load(x + i)));
}

// Sums of gates from the chunk's start, or from the last gate that leaves nothing, and e^G.
inline void gate_sums(const Work& z, const float* g, std::int64_t n) {
  float sum = 0;
  std::int32_t start = -1;
  for (std::int64_t r = 0; r < n; ++r) {
    if (g[r] < kGone) sum = 0, start = static_cast<std::int32_t>(r);
    else sum += g[r];
    z.sum[r] = sum;
    z.start[r] = start;
  }
  exponentials(z.first, z.sum, n);
  for (std::int64_t r = 0; r < n; ++r)
    if (z.start[r] >= 0) z.first[r] = 0;
}

// e^(G_i-G_j) for i >= j, and e^(G_end-G_j). Rows are filled in whole vectors, the next one over what sticks out.
inline void decays(const Work& z, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) {
    float* row = z.decay + i * n;
    const Lane sum = all(z.sum[i]);
    for (std::int64_t j = 0; j < i; j += kLanes) {
      Codes start;
      std::memcpy(&start, z.start + j, sizeof start);
      store(row + j, start == z.start[i] ? exp_of(sum - load(z.sum + j)) : Lane{});
    }
    row[i] = 1;
  }
  std::memcpy(z.last, z.decay + (n - 1) * n, static_cast<std::size_t>(n) * sizeof(float));
}

// On and below the diagonal kk = K K^T, and qk = Q K^T where there is q.
inline void key_products(const Work& z, const float* k, const float* q, std::int64_t n, std::int64_t K) {
  for (std::int64_t j = 0; j < n; j += kStrip) {
    transpose(z.kt, kStrip, k + j * K, n - j < kStrip ? n - j : kStrip, K);
    lower_gram(z.kk, k, z.kt, j, n, K);
    if (q) lower_gram(z.qk, q, z.kt, j, n, K);
  }
}

// l = -L strictly below the diagonal.
inline void coupling(const Work& z, const float* beta, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t j = 0; j < i; ++j) z.l[i * n + j] = -(beta[i] * z.kk[i * n + j] * z.decay[i * n + j]);
}

// p = (Q K^T) o D on and below the diagonal.
template <bool Narrow>
void scores(const Work& z, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t j = 0; j <= i; ++j) z.p[i * n + j] = z.qk[i * n + j] * z.decay[i * n + j];
  rounded<Narrow>(z.p, n * n);
}

template <bool Narrow>
void beta_v(const float* beta, const float* v, std::int64_t ldv, float* to, std::int64_t n, std::int64_t V) {
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t j = 0; j < V; ++j) to[i * V + j] = beta[i] * v[i * ldv + j];
  rounded<Narrow>(to, n * V);
}

// W = m (beta e^G k), U = m (beta v).
template <bool Narrow>
void vectors(const Work& z, const float* m, const float* k, const float* v, std::int64_t ldv, const float* beta, float* w, float* u, std::int64_t n, std::int64_t K, std::int64_t V) {
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t d = 0; d < K; ++d) z.b[i * K + d] = beta[i] * k[i * K + d] * z.first[i];
  rounded<Narrow>(z.b, n * K);
  lower_product(w, K, m, n, z.b, K, n, K);
  rounded<Narrow>(w, n * K);
  beta_v<Narrow>(beta, v, ldv, z.b, n, V);
  lower_product(u, V, m, n, z.b, V, n, V);
  rounded<Narrow>(u, n * V);
}

// Value channels do not interact: a strip of them, two vectors wide, goes through the chunk by itself, and what there is of
// it stays in the first-level cache. Channels that the last strip has too many are zero and never stored.
struct Strip {
  std::int64_t first, width;                       // value channels
  float *s, *operand, *vn, *vo;                    // state, state as operand [K]; corrected values, and these as operand [n]; rows of kStrip
};

// f(strip) for every strip, with the state in it.
template <bool Narrow, class F>
inline void each_strip(const Work& z, const float* S, std::int64_t K, std::int64_t V, const F& f) {
  for (std::int64_t j = 0; j < V; j += kStrip) {
    const Strip c{j, V - j < kStrip ? V - j : kStrip, z.s, Narrow ? z.s16 : z.s, z.vn, Narrow ? z.vn16 : z.vn};
    for (std::int64_t d = 0; d < K; ++d)
      for (std::int64_t v = 0; v < kStrip; v += kLanes) store(c.s + d * kStrip + v, load(S + d * V + j + v, c.width - v));
    if constexpr (Narrow)
      for (std::int64_t i = 0; i < K * kStrip; ++i) c.operand[i] = round_bf16(c.s[i]);
    f(c);
  }
}

// vn = beta v, where nothing is read back.
inline void plain_values(const Strip& c, const float* beta, const float* v, std::int64_t ldv, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t x = 0; x < kStrip; x += kLanes) store(c.vn + i * kStrip + x, beta[i] * load(v + i * ldv + c.first + x, c.width - x));
}

// vn = (I+L)^-1 beta (v - e^G S^T k).
inline void residual_values(const Work& z, const Strip& c, const float* k, const float* v, std::int64_t ldv, const float* beta, std::int64_t n, std::int64_t K) {
  each_tile(n, [&](auto number, std::int64_t i) {
    constexpr int Rows = decltype(number)::value;
    for (int r = 0; r < Rows; ++r)                 // far apart, and needed only when the product is done
      for (std::int64_t x = 0; x < c.width; x += 16) __builtin_prefetch(v + (i + r) * ldv + c.first + x);
    Tile<Rows, 2> sum;
    zero<Rows, 2>(sum);
    add_terms<Rows, 2>(sum, k + i * K, K, 1, c.operand, kStrip, K);
    for (int r = 0; r < Rows; ++r)
      for (int x = 0; x < 2; ++x) sum[r][x] = beta[i + r] * (load(v + (i + r) * ldv + c.first + x * kLanes, c.width - x * kLanes) - z.first[i + r] * sum[r][x]);
    add_terms<Rows, 2>(sum, z.l + i * n, n, 1, c.vn, kStrip, i);
    feed_rows<Rows, 2>(sum, z.l + i * n + i, n);
    for (int r = 0; r < Rows; ++r)
      for (int x = 0; x < 2; ++x) store(c.vn + (i + r) * kStrip + x * kLanes, sum[r][x]);
  });
}

// vn = U - W S.
inline void corrected_values(const Strip& c, const float* w, const float* u, std::int64_t n, std::int64_t K, std::int64_t V) {
  each_tile(n, [&](auto number, std::int64_t i) {
    constexpr int Rows = decltype(number)::value;
    Tile<Rows, 2> sum;
    zero<Rows, 2>(sum);
    add_terms<Rows, 2>(sum, w + i * K, K, 1, c.operand, kStrip, K);
    for (int r = 0; r < Rows; ++r)
      for (int x = 0; x < 2; ++x)
        store(c.vn + (i + r) * kStrip + x * kLanes, load(u + (i + r) * V + c.first + x * kLanes, c.width - x * kLanes) - sum[r][x]);
  });
}

// o = scale (e^G S^T q + P vn).
template <bool Narrow>
void output(const Work& z, const Strip& c, const float* q, float scale, float* o, std::int64_t ldo, std::int64_t n, std::int64_t K) {
  if constexpr (Narrow)
    for (std::int64_t i = 0; i < n * kStrip; ++i) c.vo[i] = round_bf16(c.vn[i]);
  each_tile(n, [&](auto number, std::int64_t i) {
    constexpr int Rows = decltype(number)::value;
    Tile<Rows, 2> sum, read;
    zero<Rows, 2>(sum);
    add_terms<Rows, 2>(sum, q + i * K, K, 1, c.operand, kStrip, K);
    for (int r = 0; r < Rows; ++r)
      for (int x = 0; x < 2; ++x) read[r][x] = z.first[i + r] * sum[r][x];
    zero<Rows, 2>(sum);
    add_terms<Rows, 2>(sum, z.p + i * n, n, 1, c.vo, kStrip, i);
    add_lower<Rows, 2>(sum, z.p + i * n + i, n, c.vo + i * kStrip, kStrip);
    for (int r = 0; r < Rows; ++r)
      for (int x = 0; x < 2; ++x) store(o + (i + r) * ldo + c.first + x * kLanes, scale * (read[r][x] + sum[r][x]), c.width - x * kLanes);
  });
}

// S becomes e^G_end S + K^T (e^(G_end-G) vn); vn is used up. Last rows first: they weigh most, and what a sum holds when they
// come would else be remains below the normal numbers, inexact, that turn a tie one way or the other.
template <bool Narrow>
void update(const Work& z, const Strip& c, const float* k, float* S, std::int64_t n, std::int64_t K, std::int64_t V) {
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t x = 0; x < kStrip; ++x) c.vn[i * kStrip + x] *= z.last[i];
  rounded<Narrow>(c.vn, n * kStrip);
  const float end = z.first[n - 1];
  each_tile(K, [&](auto number, std::int64_t d) {
    constexpr int Rows = decltype(number)::value;
    Tile<Rows, 2> sum;
    zero<Rows, 2>(sum);
    add_terms<Rows, 2>(sum, k + (n - 1) * K + d, 1, -K, c.vn + (n - 1) * kStrip, -kStrip, n);
    for (int r = 0; r < Rows; ++r)
      for (int x = 0; x < 2; ++x)
        store(S + (d + r) * V + c.first + x * kLanes, end * load(c.s + (d + r) * kStrip + x * kLanes) + sum[r][x], c.width - x * kLanes);
  });
}

template <bool Narrow>
void chunk(const Block& b) {
  const std::int64_t n = b.rows, K = b.K, V = b.V;
  const Work z(b.work, kChunk, K, V);
  gate_sums(z, b.g, n);
  decays(z, n);
  if (!b.same_keys) key_products(z, b.k, b.q, n, K);
  if (b.delta) coupling(z, b.beta, n);
  scores<Narrow>(z, n);
  if (b.delta && Narrow) {
    invert(z, n);
    rounded<Narrow>(z.m, n * n);
    vectors<Narrow>(z, z.m, b.k, b.v, b.ldv, b.beta, z.w, z.u, n, K, V);
  }
  each_strip<Narrow>(z, b.S, K, V, [&](const Strip& c) {
    if (!b.delta) {
      plain_values(c, b.beta, b.v, b.ldv, n);
      rounded<Narrow>(c.vn, n * kStrip);
    } else if constexpr (Narrow) {
      corrected_values(c, z.w, z.u, n, K, V);
    } else {
      residual_values(z, c, b.k, b.v, b.ldv, b.beta, n, K);
    }
    output<Narrow>(z, c, b.q, b.scale, b.o, b.ldo, n, K);
    update<Narrow>(z, c, b.k, b.S, n, K, V);
  });
}

// The same steps one by one.
template <bool Narrow>
void stage(const StageBlock& b) {
  const std::int64_t n = b.rows, K = b.K, V = b.V;
  const Work z(b.work, b.chunk, K, V);
  if (b.G) {
    for (std::int64_t r = 0; r < n; ++r) z.sum[r] = b.G[r], z.start[r] = -1;
    exponentials(z.first, z.sum, n);
    decays(z, n);
  }
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
      key_products(z, b.k, nullptr, n, K);
      coupling(z, b.beta, n);
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
    case GDN_STAGE_NAME_UW: vectors<Narrow>(z, b.M, b.k, b.v, V, b.beta, b.more, b.out, n, K, V); break;
    case GDN_STAGE_NAME_CHUNK_STATES:
      each_strip<Narrow>(z, b.S, K, V, [&](const Strip& c) {
        corrected_values(c, b.W, b.U, n, K, V);
        for (std::int64_t i = 0; i < n; ++i) std::memcpy(b.out + i * V + c.first, c.vn + i * kStrip, static_cast<std::size_t>(c.width) * sizeof(float));
        update<Narrow>(z, c, b.k, b.S, n, K, V);
      });
      break;
    default:
      key_products(z, b.k, b.q, n, K);
      scores<Narrow>(z, n);
      each_strip<Narrow>(z, b.S, K, V, [&](const Strip& c) {
        for (std::int64_t i = 0; i < n; ++i)
          for (std::int64_t x = 0; x < kStrip; x += kLanes) store(c.vn + i * kStrip + x, load(b.Vn + i * V + c.first + x, c.width - x));
        output<Narrow>(z, c, b.q, b.scale, b.out, V, n, K);
      });
  }
}

}  // namespace gdn::cpu::GDN_ISA
