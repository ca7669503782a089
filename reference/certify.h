// Internal: from a value with its radius to the stored triple (hi, lo, float radius), what the triple certifies,
// and the slow paths of the oracle: exact arithmetic and multiprecision, for channels that double-double leaves open.
#pragma once
#include <cstdint>
#include <vector>

#include "reference/dd.h"
#include "reference/truth.h"

namespace gdn::oracle_detail {

// Stores a radius as float, rounded up. The float range is too narrow for radii of tiny and of huge values, so two
// codes carry more than an upper bound: 2^-149 means at most 2^-149 and, too, at most 2^-70 |hi| (hi != 0) or
// 2^-200 (hi = 0); +inf at |hi| > 2^190 means at most 2^-60 |hi|. A value that is below 2^-200 and not known to
// 2^-70 is stored as 0.
float store_radius(double& hi, double& lo, double radius);
double stored_radius(double hi, float radius);     // the bound that a stored radius stands for

enum class Decided : std::uint8_t {
  all,        // certified for fp64, fp32, fp16 and bf16
  narrow,     // not for fp64
  nothing     // not for one of fp32, fp16, bf16
};
Decided decided(double hi, double lo, float radius);


// Improves, in place, the elements of channel v in `truth` that are not decided or not narrow enough (open_o [T],
// open_s [K]: nonzero marks them; reset when settled). Symbolic pass with exact doubles, then 256, 512 and, where
// every alpha is 0 or 1, 2048 bits. Returns true when multiprecision was used.
bool settle_channel(const HeadInputs& in, std::int64_t v, HeadTruth& truth, std::vector<char>& open_o, std::vector<char>& open_s);

// What MPFR keeps per thread; to be called at the end of parallel work, since threads may end there.
void free_thread_caches();

// |k|; max(1, |1 - beta |k|^2|).
double norm(const float* x, std::int64_t n);
double growth(double beta, const float* k, std::int64_t n);

}  // namespace gdn::oracle_detail
