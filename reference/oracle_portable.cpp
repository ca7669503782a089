// The oracle's inner loop in standard C++, for any machine; see oracle_block.h.
#include "reference/oracle_block.h"

#include <cmath>

#include "reference/dd.h"
#include "reference/recurrence.h"
#include "reference/vector_pair.h"

namespace gdn::oracle_detail {
namespace portable {
namespace {
struct Lane {
  static constexpr int lanes = 1;
  double x;
  static Lane load(const double* p) { return {*p}; }
  static Lane broadcast(double a) { return {a}; }
  void store(double* p) const { *p = x; }
  friend Lane operator+(Lane a, Lane b) { return {a.x + b.x}; }
  friend Lane operator-(Lane a, Lane b) { return {a.x - b.x}; }
  friend Lane operator*(Lane a, Lane b) { return {a.x * b.x}; }
  friend Lane operator-(Lane a) { return {-a.x}; }
  friend Lane fused(Lane a, Lane b, Lane c) { return {__builtin_fma(a.x, b.x, c.x)}; }
  friend Lane lesser(Lane a, Lane b) { return {a.x < b.x ? a.x : b.x}; }   // as minpd: b when unordered
  friend Lane magnitude(Lane a) { return {std::fabs(a.x)}; }
  friend Lane square_root(Lane a) { return {std::sqrt(a.x)}; }
};
using Vec = Pair<Pair<Lane>>;
#include "reference/dd_block.inc"
}  // namespace
void run_block(const BlockJob& job, std::int64_t first, std::int64_t count, double* workspace) { run_packs(job, first, count, workspace); }
}  // namespace portable
}  // namespace gdn::oracle_detail
