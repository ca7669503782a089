// Matrix products and exponentials for the chunkwise kernels, compiled once per instruction set (GDN_ISA names the
// namespace). Row-major, with leading dimensions. Every element adds its terms one after the other, in order, each by a
// fused multiply-add, so that it depends on nothing but its own row and column: same bits for any shape, any vector
// width and any processor (where one has no such instruction, the library's is slow and right).
//
// A strip of columns two vectors wide is copied together where several tiles of rows use it: then it stays in the
// first-level cache, where rows a power of two apart would drive each other out.
#pragma once
#include <cstdint>
#include <cstring>
#include <type_traits>
#if defined(__AVX512F__) || defined(__FMA__)
#include <immintrin.h>
#endif

namespace gdn::cpu::GDN_ISA {

#if defined(__AVX512F__)
constexpr int kLanes = 16, kRows = 8;              // rows of a tile, whose sums stay in registers
#elif defined(__AVX2__) && defined(__FMA__)
constexpr int kLanes = 8, kRows = 6;
#else
constexpr int kLanes = 4, kRows = 4;
#endif
constexpr std::int64_t kStrip = 2 * kLanes, kTerms = 128;     // columns, and rows at a time, of a strip

typedef float Lane __attribute__((vector_size(4 * kLanes)));  // gcc and clang, any processor
typedef std::int32_t Codes __attribute__((vector_size(4 * kLanes)));

inline Lane load(const float* p) {
  Lane x;
  std::memcpy(&x, p, sizeof x);
  return x;
}
inline void store(float* p, Lane x) { std::memcpy(p, &x, sizeof x); }
inline Lane all(float x) { return x - Lane{}; }    // -0 included
inline Lane fused(Lane a, Lane b, Lane c) {        // a b + c, rounded once
#if defined(__AVX512F__)
  return _mm512_fmadd_ps(a, b, c);
#elif defined(__AVX2__) && defined(__FMA__)
  return _mm256_fmadd_ps(a, b, c);
#else
  for (int i = 0; i < kLanes; ++i) c[i] = __builtin_fmaf(a[i], b[i], c[i]);
  return c;
#endif
}

// A vector of which only `left` floats are there; the rest is 0, and is not written.
[[gnu::noinline]] inline Lane load_some(const float* p, std::int64_t left) {
  float x[kLanes] = {};
  for (std::int64_t i = 0; i < left; ++i) x[i] = p[i];
  return load(x);
}
[[gnu::noinline]] inline void store_some(float* p, Lane x, std::int64_t left) {
  for (std::int64_t i = 0; i < left; ++i) p[i] = x[i];
}
inline Lane load(const float* p, std::int64_t left) { return left >= kLanes ? load(p) : load_some(p, left); }
inline void store(float* p, Lane x, std::int64_t left) { left >= kLanes ? store(p, x) : store_some(p, x, left); }

// e^x within 1.25 units in the last place, subnormal results included; NaN stays NaN. x = n ln 2 + r, a polynomial in r, and
// 2^n in two factors, of which only the second rounds. Half a unit is from the last sum, where it is below 1, a quarter each
// from r and from the sum before; the polynomial's own error is 2^-28.
inline Lane exp_of(Lane x) {
  x = x < -104 ? all(-104) : x;                    // 0, as everything below
  x = x > 89 ? all(89) : x;                        // infinite
  const Lane magic = all(0x1.8p23f), shifted = fused(x, all(0x1.715476p+0f), magic), n = shifted - magic;
  const Lane r = fused(n, all(-0x1.7f7d1cp-20f), fused(n, all(-0x1.62e4p-1f), x));
  Lane p = fused(all(0x1.6a4748p-10f), r, all(0x1.1239a2p-7f));
  p = fused(p, r, all(0x1.5558b6p-5f));
  p = fused(p, r, all(0x1.555492p-3f));
  p = fused(p, r, all(0x1.fffffcp-2f));
  p = fused(p, r * r, r) + 1;
  const Codes whole = reinterpret_cast<Codes>(shifted) - reinterpret_cast<Codes>(magic), half = whole >> 1;
  return p * reinterpret_cast<Lane>((half + 127) << 23) * reinterpret_cast<Lane>((whole - half + 127) << 23);
}

template <int Rows, int Vectors>
using Tile = Lane[Rows][Vectors];                  // sums, in registers
#define GDN_TILE [[gnu::always_inline]] inline void

template <int Rows, int Vectors>
GDN_TILE zero(Tile<Rows, Vectors>& sum) {          // an initialiser goes through memory
  for (int i = 0; i < Rows; ++i)
    for (int v = 0; v < Vectors; ++v) sum[i][v] = Lane{};
}

// sum += a b over `terms` terms; a[i,t] at i ra + t ca.
template <int Rows, int Vectors>
GDN_TILE add_terms(Tile<Rows, Vectors>& sum, const float* a, std::int64_t ra, std::int64_t ca, const float* b, std::int64_t ldb, std::int64_t terms) {
  for (std::int64_t t = 0; t < terms; ++t) {
    Lane x[Vectors];
    for (int v = 0; v < Vectors; ++v) x[v] = load(b + v * kLanes);
    for (int i = 0; i < Rows; ++i) {
      const Lane y = all(a[i * ra]);
      for (int v = 0; v < Vectors; ++v) sum[i][v] = fused(y, x[v], sum[i][v]);
    }
    a += ca;
    b += ldb;
  }
}

// A square on the diagonal, a [Rows,Rows] strictly lower: every row, as it has become, is added to the rows below.
template <int Rows, int Vectors>
GDN_TILE feed_rows(Tile<Rows, Vectors>& sum, const float* a, std::int64_t ra) {
  for (int t = 0; t < Rows; ++t)
    for (int i = t + 1; i < Rows; ++i)
      for (int v = 0; v < Vectors; ++v) sum[i][v] = fused(all(a[i * ra + t]), sum[t][v], sum[i][v]);
}

// The same, a with its diagonal, of rows of b. What stands above the diagonal is not read.
template <int Rows, int Vectors>
GDN_TILE add_lower(Tile<Rows, Vectors>& sum, const float* a, std::int64_t ra, const float* b, std::int64_t ldb) {
  for (int t = 0; t < Rows; ++t)
    for (int i = t; i < Rows; ++i)
      for (int v = 0; v < Vectors; ++v) sum[i][v] = fused(all(a[i * ra + t]), load(b + t * ldb + v * kLanes), sum[i][v]);
}

// f with a number of rows as a constant and the first of them, until n are done.
template <class F>
inline void each_tile(std::int64_t n, const F& f) {
  std::int64_t i = 0;
  for (; i + kRows <= n; i += kRows) f(std::integral_constant<int, kRows>{}, i);
  if constexpr (kRows > 4)
    for (; i + 4 <= n; i += 4) f(std::integral_constant<int, 4>{}, i);
  for (; i < n; ++i) f(std::integral_constant<int, 1>{}, i);
}

// After whole terms a tile has a triangle: none; its own rows; or rows of b.
enum class Triangle { none, feeds, counts };

// `left` columns of a strip: c += a b.
template <int Vectors, Triangle triangle>
inline void tiles(float* c, std::int64_t ldc, const float* a, std::int64_t ra, std::int64_t ca, const float* b, std::int64_t ldb, std::int64_t rows, std::int64_t terms, std::int64_t left) {
  each_tile(rows, [&](auto number, std::int64_t i) {
    constexpr int Rows = decltype(number)::value;
    Tile<Rows, Vectors> sum;
    for (int r = 0; r < Rows; ++r)
      for (int v = 0; v < Vectors; ++v) sum[r][v] = load(c + (i + r) * ldc + v * kLanes, left - v * kLanes);
    add_terms<Rows, Vectors>(sum, a + i * ra, ra, ca, b, ldb, triangle == Triangle::none ? terms : i);
    if constexpr (triangle == Triangle::feeds) feed_rows<Rows, Vectors>(sum, a + i * ra + i * ca, ra);
    if constexpr (triangle == Triangle::counts) add_lower<Rows, Vectors>(sum, a + i * ra + i * ca, ra, b + i * ldb, ldb);
    for (int r = 0; r < Rows; ++r)
      for (int v = 0; v < Vectors; ++v) store(c + (i + r) * ldc + v * kLanes, sum[r][v], left - v * kLanes);
  });
}

inline void copy(float* to, std::int64_t ldt, const float* from, std::int64_t ldf, std::int64_t rows, std::int64_t width) {
  for (std::int64_t i = 0; i < rows; ++i) std::memcpy(to + i * ldt, from + i * ldf, static_cast<std::size_t>(width) * sizeof(float));
}

// At most kTerms terms; with a triangle as many rows as terms, and where that feeds b is c.
template <Triangle triangle>
inline void strips(float* c, std::int64_t ldc, const float* a, std::int64_t ra, std::int64_t ca, const float* b, std::int64_t ldb,
                   std::int64_t rows, std::int64_t terms, std::int64_t width) {
  constexpr bool feeds = triangle == Triangle::feeds;
  alignas(64) float packed[kTerms * kStrip];
  for (std::int64_t j = 0; j < width; j += kStrip) {
    const std::int64_t left = width - j < kStrip ? width - j : kStrip;
    const bool pack = feeds || rows > kRows || left % kLanes != 0;
    if (left % kLanes != 0) std::memset(packed, 0, sizeof packed);
    if (pack) copy(packed, kStrip, b + j, ldb, terms, left);
    const float* from = pack ? packed : b + j;
    float* to = feeds ? packed : c + j;
    const std::int64_t ldf = pack ? kStrip : ldb, ldt = feeds ? kStrip : ldc;
    if (left > kLanes) tiles<2, triangle>(to, ldt, a, ra, ca, from, ldf, rows, terms, feeds ? kStrip : left);
    else tiles<1, triangle>(to, ldt, a, ra, ca, from, ldf, rows, terms, feeds ? kStrip : left);
    if (feeds) copy(c + j, ldc, packed, kStrip, rows, left);
  }
}

// c [rows,width] += a [rows,terms] b [terms,width]; a[i,t] sits at i ra + t ca.
inline void add_product(float* c, std::int64_t ldc, const float* a, std::int64_t ra, std::int64_t ca, const float* b, std::int64_t ldb,
                        std::int64_t rows, std::int64_t terms, std::int64_t width) {
  for (std::int64_t t = 0; t < terms; t += kTerms)
    strips<Triangle::none>(c, ldc, a + t * ca, ra, ca, b + t * ldb, ldb, rows, terms - t < kTerms ? terms - t : kTerms, width);
}

template <Triangle triangle>
inline void add_triangle(float* c, std::int64_t ldc, const float* a, std::int64_t lda, const float* b, std::int64_t ldb, std::int64_t rows, std::int64_t width) {
  for (std::int64_t i = 0; i < rows; i += kTerms) {
    const std::int64_t n = rows - i < kTerms ? rows - i : kTerms;
    add_product(c + i * ldc, ldc, a + i * lda, lda, 1, b, ldb, n, i, width);
    strips<triangle>(c + i * ldc, ldc, a + i * lda + i, lda, 1, b + i * ldb, ldb, n, n, width);
  }
}

inline void clear(float* c, std::int64_t rows, std::int64_t ldc, std::int64_t width) {
  for (std::int64_t i = 0; i < rows; ++i) std::memset(c + i * ldc, 0, static_cast<std::size_t>(width) * sizeof(float));
}

// x[i] += sum over j < i of a[i,j] x[j], row after row: with a = -L the substitution (I+L)^-1 x.
inline void substitute(float* x, std::int64_t ldx, const float* a, std::int64_t lda, std::int64_t rows, std::int64_t width) {
  add_triangle<Triangle::feeds>(x, ldx, a, lda, x, ldx, rows, width);
}

// c[i] = sum over j <= i of a[i,j] b[j]. What stands above the diagonal, and later rows of b, are never read into a
// row: a NaN there stays there.
inline void lower_product(float* c, std::int64_t ldc, const float* a, std::int64_t lda, const float* b, std::int64_t ldb, std::int64_t rows,
                          std::int64_t width) {
  clear(c, rows, ldc, width);
  add_triangle<Triangle::counts>(c, ldc, a, lda, b, ldb, rows, width);
}

// to [cols,rows] = from [rows,cols]^T; rows of `to` lie ldt apart.
inline void transpose(float* to, std::int64_t ldt, const float* from, std::int64_t rows, std::int64_t cols) {
  typedef float Four __attribute__((vector_size(16)));
  const std::int64_t whole_rows = rows / 4 * 4, whole = cols / 4 * 4;
  for (std::int64_t i = 0; i < whole_rows; i += 4)
    for (std::int64_t j = 0; j < whole; j += 4) {
      Four x[4];
      for (int r = 0; r < 4; ++r) std::memcpy(&x[r], from + (i + r) * cols + j, sizeof x[r]);
      const Four a = __builtin_shufflevector(x[0], x[1], 0, 4, 1, 5), b = __builtin_shufflevector(x[2], x[3], 0, 4, 1, 5),
                 c = __builtin_shufflevector(x[0], x[1], 2, 6, 3, 7), d = __builtin_shufflevector(x[2], x[3], 2, 6, 3, 7);
      const Four y[4] = {__builtin_shufflevector(a, b, 0, 1, 4, 5), __builtin_shufflevector(a, b, 2, 3, 6, 7), __builtin_shufflevector(c, d, 0, 1, 4, 5),
                         __builtin_shufflevector(c, d, 2, 3, 6, 7)};
      for (int r = 0; r < 4; ++r) std::memcpy(to + (j + r) * ldt + i, &y[r], sizeof y[r]);
    }
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = i < whole_rows ? whole : 0; j < cols; ++j) to[j * ldt + i] = from[i * cols + j];
}

// c [n,n] = a b^T on and below the diagonal, for the columns of one strip from j on, where `bt` [terms,kStrip] holds the rows
// of b. Above the diagonal lies what there was, or sums.
inline void lower_gram(float* c, const float* a, const float* bt, std::int64_t j, std::int64_t n, std::int64_t terms) {
  each_tile(n - j, [&](auto number, std::int64_t i) {
    constexpr int Rows = decltype(number)::value;
    const auto columns = [&](auto many) {
      constexpr int Vectors = decltype(many)::value;
      Tile<Rows, Vectors> sum;
      zero<Rows, Vectors>(sum);
      add_terms<Rows, Vectors>(sum, a + (j + i) * terms, terms, 1, bt, kStrip, terms);
      for (int r = 0; r < Rows; ++r)
        for (int v = 0; v < Vectors; ++v) store(c + (j + i + r) * n + j + v * kLanes, sum[r][v], n - j - v * kLanes);
    };
    if (i + Rows <= kLanes) columns(std::integral_constant<int, 1>{});
    else columns(std::integral_constant<int, 2>{});
  });
}

#undef GDN_TILE

}  // namespace gdn::cpu::GDN_ISA
