// The recurrence with one gate per head over consecutive rows, compiled once per instruction set (GDN_ISA names the
// namespace), and nothing here may be an inline function that another file compiles for another processor.
//
// Value channels do not interact: a strip of them is carried through all rows of the block while its part of the state stays
// in the first-level cache, and one sweep over the strip writes the token, reads it for the output and reads what the next
// token's key finds. Every number is made by the same operations in the same order, none of them fused, as in the
// recurrence written down plainly: same bits at any vector width.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>

#include "kernels/cpu/driver.h"

namespace gdn::cpu::GDN_ISA {

#if defined(__AVX512F__)
constexpr int kRowLanes = 16;
#elif defined(__AVX2__)
constexpr int kRowLanes = 8;
#else
constexpr int kRowLanes = 4;
#endif
typedef float RowLane __attribute__((vector_size(4 * kRowLanes)));  // gcc and clang, any processor
constexpr std::int64_t kAhead = 4;                 // tokens, the values of which are asked for before they are needed
constexpr int kMostVectors = 4;                    // of a strip

template <int N>
struct Strip { RowLane x[N]; };
static inline RowLane load_lanes(const float* p) {
  RowLane x;
  std::memcpy(&x, p, sizeof x);
  return x;
}
template <int N>
static inline Strip<N> load_strip(const float* p) {  // vector by vector, or it goes through memory
  Strip<N> s;
  for (int v = 0; v < N; ++v) s.x[v] = load_lanes(p + v * kRowLanes);
  return s;
}
template <int N>
static inline void store_strip(float* p, const Strip<N>& s) {
  for (int v = 0; v < N; ++v) {
    const RowLane x = s.x[v];
    std::memcpy(p + v * kRowLanes, &x, sizeof x);
  }
}

// Floats of workspace: a strip of the state, one row of v and of o.
static inline std::int64_t strip_floats(std::int64_t K) { return (K + 2) * kMostVectors * kRowLanes; }

// w of the first token: sum over d of k[d] S[d].
template <int N>
static inline Strip<N> first_read(const float* S, std::int64_t ld, const float* k, std::int64_t K) {
  Strip<N> w{};
  for (std::int64_t d = 0; d < K; ++d) {
    const Strip<N> s = load_strip<N>(S + d * ld);
    for (int v = 0; v < N; ++v) w.x[v] += k[d] * s.x[v];
  }
  return w;
}

// One token: S becomes alpha S + k y, o = q S, and where Next the read of the next key.
template <bool Next, int N>
static inline void sweep(float* S, std::int64_t ld, float alpha, const float* k, const float* q, const float* next, const Strip<N>& y, std::int64_t K, Strip<N>& o, Strip<N>& w) {
  Strip<N> out{}, read{};
  for (std::int64_t d = 0; d < K; ++d) {
    Strip<N> s = load_strip<N>(S + d * ld);
    for (int v = 0; v < N; ++v) {
      s.x[v] = alpha * s.x[v] + k[d] * y.x[v];
      out.x[v] += q[d] * s.x[v];
      if constexpr (Next) read.x[v] += next[d] * s.x[v];
    }
    store_strip(S + d * ld, s);
  }
  o = out;
  if constexpr (Next) w = read;
}

// Value channels j to j + width, at most a strip of N vectors; what is missing of it is filled with zeros and thrown away.
template <int N>
static void strip_rows(const Block& b, std::int64_t j, std::int64_t width) {
  constexpr std::int64_t all = N * kRowLanes;
  const std::int64_t K = b.K, V = b.V;
  const auto bytes = [](std::int64_t floats) { return static_cast<std::size_t>(floats) * sizeof(float); };
  float *packed = b.work, *row_v = packed + K * all, *row_o = row_v + all;
  const bool whole = width == all, in_place = whole && b.rows < 4;   // packing costs about as much as a token
  float* S = in_place ? b.S + j : packed;
  const std::int64_t ld = in_place ? V : all;
  if (!whole) std::memset(packed, 0, bytes((K + 1) * all));          // and row_v
  for (std::int64_t d = 0; !in_place && d < K; ++d) std::memcpy(packed + d * all, b.S + d * V + j, bytes(width));
  Strip<N> w{}, o{};
  if (b.delta) w = first_read<N>(S, ld, b.k, K);
  for (std::int64_t t = 0; t < b.rows; ++t) {
    const float *k = b.k + t * K, *q = b.q + t * K, *v = b.v + t * b.ldv + j;
    const float alpha = std::exp(b.g[t]), beta = b.beta[t];
    if (t + kAhead < b.rows)
      for (std::int64_t i = 0; i < width; i += 16) __builtin_prefetch(v + kAhead * b.ldv + i);
    if (!whole) {
      std::memcpy(row_v, v, bytes(width));
      v = row_v;
    }
    Strip<N> y = load_strip<N>(v);
    for (int i = 0; i < N; ++i) {
      if (b.delta) y.x[i] -= alpha * w.x[i];
      y.x[i] *= beta;
    }
    if (b.delta && t + 1 < b.rows) sweep<true>(S, ld, alpha, k, q, k + K, y, K, o, w);
    else sweep<false>(S, ld, alpha, k, q, nullptr, y, K, o, w);
    for (int i = 0; i < N; ++i) o.x[i] *= b.scale;
    float* to = b.o + t * b.ldo + j;
    store_strip(whole ? to : row_o, o);
    if (!whole) std::memcpy(to, row_o, bytes(width));
  }
  for (std::int64_t d = 0; !in_place && d < K; ++d) std::memcpy(b.S + d * V + j, packed + d * all, bytes(width));
}

static void recurrent_rows(const Block& b) {
  for (std::int64_t j = 0; j < b.V;) {
    const std::int64_t left = b.V - j;
    if (left > 2 * kRowLanes) {
      const std::int64_t width = left < 4 * kRowLanes ? left : 4 * kRowLanes;
      strip_rows<4>(b, j, width);
      j += width;
    } else if (left > kRowLanes) {
      strip_rows<2>(b, j, left);
      j += left;
    } else {
      strip_rows<1>(b, j, left);
      j += left;
    }
  }
}

}  // namespace gdn::cpu::GDN_ISA
