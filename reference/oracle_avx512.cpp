// The oracle's inner loop for AVX-512F; see oracle_block.h. Compiled with those instructions on, so nothing
// but run_block may leave this file: everything else has internal linkage.
#include "reference/oracle_block.h"

#include <immintrin.h>

#include "reference/dd.h"
#include "reference/recurrence.h"
#include "reference/vector_pair.h"

namespace gdn::oracle_detail {
namespace avx512 {
namespace {
struct Register {
  static constexpr int lanes = 8;
  __m512d x;
  static Register load(const double* p) { return {_mm512_loadu_pd(p)}; }
  static Register broadcast(double a) { return {_mm512_set1_pd(a)}; }
  void store(double* p) const { _mm512_storeu_pd(p, x); }
  friend Register operator+(Register a, Register b) { return {_mm512_add_pd(a.x, b.x)}; }
  friend Register operator-(Register a, Register b) { return {_mm512_sub_pd(a.x, b.x)}; }
  friend Register operator*(Register a, Register b) { return {_mm512_mul_pd(a.x, b.x)}; }
  friend Register operator-(Register a) { return {_mm512_castsi512_pd(_mm512_xor_si512(_mm512_castpd_si512(a.x), _mm512_set1_epi64(static_cast<long long>(0x8000000000000000u))))}; }
  friend Register fused(Register a, Register b, Register c) { return {_mm512_fmadd_pd(a.x, b.x, c.x)}; }
  friend Register lesser(Register a, Register b) { return {_mm512_min_pd(a.x, b.x)}; }
  friend Register magnitude(Register a) { return {_mm512_abs_pd(a.x)}; }
  friend Register square_root(Register a) { return {_mm512_sqrt_pd(a.x)}; }
};
using Vec = Pair<Register>;
#include "reference/dd_block.inc"
}  // namespace
void run_block(const BlockJob& job, std::int64_t first, std::int64_t count, double* workspace) { run_packs(job, first, count, workspace); }
}  // namespace avx512
}  // namespace gdn::oracle_detail
