// Internal: the double-double recurrence with radius on a block of value channels, compiled once per instruction
// set (oracle_portable.cpp, oracle_avx2.cpp, oracle_avx512.cpp). Lanes are value channels, which do not interact,
// and every lane does the same IEEE operations in the same order, so all instances give the same bits.
#pragma once
#include <cstdint>

#include "reference/problem.h"

namespace gdn::oracle_detail {

constexpr std::int64_t kLanes = 16;                // channels of one block, of any instance

// Constants of the radius recurrence of one token; derivation in oracle.cpp.
struct TokenRadius {
  double carry;      // alpha c: what the old radius is multiplied by
  double alpha;      // upper bound of alpha, with room for its underflow
  double beta_k;     // |beta||k|, 0 for rules without delta term
  double key;        // |k|
  double query;      // |scale||q|
};

struct BlockJob {
  Rule rule = Rule::gated_delta;
  std::int64_t T = 0, K = 0, V = 0;
  const double* q = nullptr;                       // [T,K]
  const double* k = nullptr;                       // [T,K]
  const double* read_hi = nullptr;                 // [T,K], decayed keys of a gate per key channel; else null
  const double* read_lo = nullptr;
  const double* alpha_hi = nullptr;                // [T], or [T,K] for a gate per key channel
  const double* alpha_lo = nullptr;
  const double* beta = nullptr;                    // [T]
  const float* v = nullptr;                        // [T,V]
  const float* h0 = nullptr;                       // [K,V] or null
  const TokenRadius* radius = nullptr;             // [T]
  double scale = 1;
  double dot_error = 0;                            // C: |computed s.k - s.k| <= C |s||k|, in absolute terms (C u^2)
  double inflate = 1;                              // for the rounding of norms and of the radius itself
  // Results for channels [first, first + count); first is a multiple of kLanes and count <= kLanes.
  double *o_hi = nullptr, *o_lo = nullptr;         // [T,V], columns from first
  double *o_radius = nullptr, *o_limit = nullptr;  // [T,kLanes], of this block; limit: 2^-64 |scale||q||s'|
  double *s_hi = nullptr, *s_lo = nullptr;         // [K,V], columns from first
  double *s_radius = nullptr, *s_limit = nullptr;  // [kLanes], for every element of the row; limit: 2^-64 |s'|
};

// workspace: 4 K kLanes doubles, 64-byte aligned.
using BlockFunction = void (*)(const BlockJob&, std::int64_t first, std::int64_t count, double* workspace);

namespace portable { void run_block(const BlockJob&, std::int64_t first, std::int64_t count, double* workspace); }
namespace avx2 { void run_block(const BlockJob&, std::int64_t first, std::int64_t count, double* workspace); }
namespace avx512 { void run_block(const BlockJob&, std::int64_t first, std::int64_t count, double* workspace); }

// sqrt(sum x^2) of n values `stride` apart, at most 1 + 1e-13 too small, for rows whose sum of squares over- or
// underflows.
double careful_norm(const double* x, std::int64_t n, std::int64_t stride);

struct Isa { const char* name; BlockFunction run; };
// The fastest instance that this machine runs, or the one that the environment variable GDN_ISA names (portable,
// avx2, avx512; read at every call). Throws std::invalid_argument for a name that is unknown or cannot run here.
Isa choose_isa();
bool isa_available(const char* name);

}  // namespace gdn::oracle_detail
