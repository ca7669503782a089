// Truth: expected values as unevaluated hi + lo with a certified radius, and what certified means.
#pragma once
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "reference/format.h"
#include "reference/head.h"

namespace gdn {

// |exact - (hi + lo)| <= radius, for every element. radius 0 means exact. Two codes say more than that (read them
// through certified): 2^-149, the least float, means at most 2^-70 |hi| too (hi = 0: at most 2^-200), and +inf at
// |hi| > 2^190 means at most 2^-60 |hi|. hi = +-inf with radius 0: the exact value overflows double, or a
// non-finite input reaches the element (then hi is the infinity or NaN that IEEE doubles give).
struct TruthTensor {
  std::vector<std::int64_t> shape;
  std::vector<double> hi, lo;
  std::vector<float> radius;                       // rounded up
};
// "o" [tokens + padding,HV,V] (radius +inf in rows that are nobody's), "ht" [N,HV,K,V] when the problem has a final state
// (on a pool: [slots,HV,K,V]), "snapshots" [tokens,HV,K,V] of verify (radius +inf where there is none).
using Truth = std::map<std::string, TruthTensor, std::less<>>;

struct HeadTruth { TruthTensor o, ht; };           // [T,V], [K,V]

// Certified: rounding hi+lo to f (nearest even) gives the correctly rounded exact value. False means `ball`:
// a rounding boundary lies within the radius, and both neighbours are accepted.
bool certified(double hi, double lo, float radius, Format f);

// balls: not certified for one of fp32, fp16, bf16. exact_heads: heads finished by exact arithmetic without multiprecision.
struct OracleStats {
  std::int64_t elements = 0, uncertified_fp64 = 0, balls = 0, multiprecision_heads = 0, exact_heads = 0;
  OracleStats& operator+=(const OracleStats& s);
};

// Double-double recurrence with radius; a head whose values are not certified, or whose radius exceeds
// 2^-64 |scale||q||s'|, is run again in 256 then 512 bits; exact dyadic arithmetic where every alpha is 0 or 1.
HeadTruth oracle_head(const HeadInputs& in, OracleStats* stats = nullptr);
// The same without the outputs of the tokens before `outputs`, which are not counted either.
HeadTruth oracle_head(const HeadInputs& in, std::int64_t outputs, OracleStats* stats);
// All heads of a run, in parallel; the same bits at any thread count.
Truth oracle(const Run& run, OracleStats* stats = nullptr, const std::function<void(double)>& progress = {});

// Independent audit: cpp_bin_float<237> recurrence sharing no code with oracle_head.
// Returns the empty string, or one line naming the first element that differs.
std::string audit_head(const HeadInputs& in, const HeadTruth& truth);

}  // namespace gdn
