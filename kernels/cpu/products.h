// Matrix products for the chunkwise kernels, compiled once per instruction set (GDN_ISA names the namespace).
// Row-major, dense or with leading dimensions. `Ordered` adds the terms of every element one after the other, in order
// and unfused, so an element depends on nothing but its own row and column: same bits for any shape and any vector
// width. `Library` is Eigen's product, whose order of summation depends on the shape.
#pragma once
#include <Eigen/Core>
#include <cstdint>
#include <cstring>

namespace gdn::cpu::GDN_ISA {

#ifdef __AVX2__
constexpr int kLanes = 8;
#else
constexpr int kLanes = 4;
#endif
typedef float Lane __attribute__((vector_size(4 * kLanes)));  // gcc and clang, any processor

inline Lane load(const float* p) {
  Lane x;
  std::memcpy(&x, p, sizeof x);
  return x;
}
inline void store(float* p, Lane x) { std::memcpy(p, &x, sizeof x); }

// c[i,j] += sign * sum_t a[i,t] b[t,j] for a strip of columns `Vector` wide, rows i0 to i0+Rows. Row i takes `terms`
// terms, and i more when Triangle.
template <int Rows, int Vectors, bool Triangle>
inline void strip(float* c, std::int64_t ldc, const float* a, std::int64_t ra, std::int64_t ca, const float* b, std::int64_t ldb, std::int64_t terms) {
  Lane sum[Rows][Vectors];
  for (int i = 0; i < Rows; ++i)
    for (int v = 0; v < Vectors; ++v) sum[i][v] = load(c + i * ldc + v * kLanes);
  for (std::int64_t t = 0; t < terms; ++t)
    for (int i = 0; i < Rows; ++i) {
      const float x = a[i * ra + t * ca];
      for (int v = 0; v < Vectors; ++v) sum[i][v] += x * load(b + t * ldb + v * kLanes);
    }
  if constexpr (Triangle)                          // rows of this strip feed the rows below them
    for (int i = 0; i < Rows; ++i) {
      for (int v = 0; v < Vectors; ++v) store(c + i * ldc + v * kLanes, sum[i][v]);
      for (int r = i + 1; r < Rows; ++r) {
        const float x = a[r * ra + (terms + i) * ca];
        for (int v = 0; v < Vectors; ++v) sum[r][v] += x * load(b + (terms + i) * ldb + v * kLanes);
      }
    }
  else
    for (int i = 0; i < Rows; ++i)
      for (int v = 0; v < Vectors; ++v) store(c + i * ldc + v * kLanes, sum[i][v]);
}

template <int Rows, bool Triangle>
inline void rows_of(float* c, std::int64_t ldc, const float* a, std::int64_t ra, std::int64_t ca, const float* b, std::int64_t ldb,
                    std::int64_t terms, std::int64_t width) {
  std::int64_t j = 0;
  for (; j + 2 * kLanes <= width; j += 2 * kLanes) strip<Rows, 2, Triangle>(c + j, ldc, a, ra, ca, b + j, ldb, terms);
  for (; j + kLanes <= width; j += kLanes) strip<Rows, 1, Triangle>(c + j, ldc, a, ra, ca, b + j, ldb, terms);
  for (; j < width; ++j)
    for (int i = 0; i < Rows; ++i) {
      float sum = c[i * ldc + j];
      const std::int64_t n = terms + (Triangle ? i : 0);
      for (std::int64_t t = 0; t < n; ++t) sum += a[i * ra + t * ca] * b[t * ldb + j];
      c[i * ldc + j] = sum;
    }
}

// c [rows,width] += a [rows,terms] b [terms,width]; a[i,t] sits at i ra + t ca.
inline void add_product(float* c, std::int64_t ldc, const float* a, std::int64_t ra, std::int64_t ca, const float* b, std::int64_t ldb,
                        std::int64_t rows, std::int64_t terms, std::int64_t width) {
  std::int64_t i = 0;
  for (; i + 4 <= rows; i += 4) rows_of<4, false>(c + i * ldc, ldc, a + i * ra, ra, ca, b, ldb, terms, width);
  for (; i < rows; ++i) rows_of<1, false>(c + i * ldc, ldc, a + i * ra, ra, ca, b, ldb, terms, width);
}

inline void clear(float* c, std::int64_t rows, std::int64_t ldc, std::int64_t width) {
  for (std::int64_t i = 0; i < rows; ++i) std::memset(c + i * ldc, 0, static_cast<std::size_t>(width) * sizeof(float));
}

// x[i] += sum over j < i of a[i,j] x[j], row after row: with a = -L the substitution (I+L)^-1 x.
inline void substitute(float* x, std::int64_t ldx, const float* a, std::int64_t lda, std::int64_t rows, std::int64_t width) {
  std::int64_t i = 0;
  for (; i + 4 <= rows; i += 4) rows_of<4, true>(x + i * ldx, ldx, a + i * lda, lda, 1, x, ldx, i, width);
  for (; i < rows; ++i) rows_of<1, true>(x + i * ldx, ldx, a + i * lda, lda, 1, x, ldx, i, width);
}

// c[i] = sum over j <= i of a[i,j] b[j]. What stands above the diagonal, and later rows of b, are never read into a
// row: a NaN there stays there.
inline void lower_product(float* c, std::int64_t ldc, const float* a, std::int64_t lda, const float* b, std::int64_t ldb, std::int64_t rows,
                          std::int64_t width) {
  clear(c, rows, ldc, width);
  std::int64_t i = 0;
  for (; i + 4 <= rows; i += 4) {
    rows_of<4, false>(c + i * ldc, ldc, a + i * lda, lda, 1, b, ldb, i + 1, width);
    for (std::int64_t r = 1; r < 4; ++r)
      rows_of<1, false>(c + (i + r) * ldc, ldc, a + (i + r) * lda + i + 1, lda, 1, b + (i + 1) * ldb, ldb, r, width);
  }
  for (; i < rows; ++i) rows_of<1, false>(c + i * ldc, ldc, a + i * lda, lda, 1, b, ldb, i + 1, width);
}

struct Ordered {
  // c [rows,width] = a [rows,terms] b [terms,width], all dense; a is stored [terms,rows] when Transposed.
  template <bool Transposed>
  static void product(float* c, const float* a, const float* b, std::int64_t rows, std::int64_t terms, std::int64_t width) {
    clear(c, rows, width, width);
    add_product(c, width, a, Transposed ? 1 : terms, Transposed ? rows : 1, b, width, rows, terms, width);
  }
};

struct Library {
  template <bool Transposed>
  static void product(float* c, const float* a, const float* b, std::int64_t rows, std::int64_t terms, std::int64_t width) {
    using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
    Eigen::Map<Matrix> out(c, rows, width);
    const Eigen::Map<const Matrix> right(b, terms, width);
    if constexpr (Transposed) out.noalias() = Eigen::Map<const Matrix>(a, terms, rows).transpose() * right;
    else out.noalias() = Eigen::Map<const Matrix>(a, rows, terms) * right;
  }
};

}  // namespace gdn::cpu::GDN_ISA
