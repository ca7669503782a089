// The oracle's inner loop for AVX2 and FMA; see oracle_block.h. Compiled with those instructions on, so nothing
// but run_block may leave this file: everything else has internal linkage.
#include "reference/oracle_block.h"

#include <immintrin.h>

#include "reference/dd.h"
#include "reference/recurrence.h"
#include "reference/vector_pair.h"

namespace gdn::oracle_detail {
namespace avx2 {
namespace {
struct Register {
  static constexpr int lanes = 4;
  __m256d x;
  static Register load(const double* p) { return {_mm256_loadu_pd(p)}; }
  static Register broadcast(double a) { return {_mm256_set1_pd(a)}; }
  void store(double* p) const { _mm256_storeu_pd(p, x); }
  friend Register operator+(Register a, Register b) { return {_mm256_add_pd(a.x, b.x)}; }
  friend Register operator-(Register a, Register b) { return {_mm256_sub_pd(a.x, b.x)}; }
  friend Register operator*(Register a, Register b) { return {_mm256_mul_pd(a.x, b.x)}; }
  friend Register operator-(Register a) { return {_mm256_xor_pd(_mm256_set1_pd(-0.0), a.x)}; }
  friend Register fused(Register a, Register b, Register c) { return {_mm256_fmadd_pd(a.x, b.x, c.x)}; }
  friend Register lesser(Register a, Register b) { return {_mm256_min_pd(a.x, b.x)}; }
  friend Register magnitude(Register a) { return {_mm256_andnot_pd(_mm256_set1_pd(-0.0), a.x)}; }
  friend Register square_root(Register a) { return {_mm256_sqrt_pd(a.x)}; }
};
using Vec = Pair<Register>;
#include "reference/dd_block.inc"
}  // namespace
void run_block(const BlockJob& job, std::int64_t first, std::int64_t count, double* workspace) { run_packs(job, first, count, workspace); }
}  // namespace avx2
}  // namespace gdn::oracle_detail
