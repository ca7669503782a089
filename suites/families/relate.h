// Helpers of the metamorphic families: runs derived from a base run, and relations between their results.
#pragma once
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "reference/case.h"

namespace gdn::relate {

// Multiplies by a power of two, exactly as long as nothing leaves the format's range.
Tensor scaled(const Tensor& t, double factor);
bool scales_exactly(const Tensor& t, double factor);
// Rows (elements of the leading dimensions, `width` wide) of t in another order: row i of the result is row from[i].
Tensor gathered(const Tensor& t, std::int64_t width, const std::vector<std::int64_t>& from);

// Adds a run derived from run 0 and returns its index. truth: judged against the oracle as well, for kernels that are
// not held to the relation.
std::size_t add_run(Case& c, const std::string& name, const std::function<void(Run&)>& change, bool truth = false);
// Adds the relation; expected sees the results of all runs.
Relation& add(Case& c, int row, RelationClass cls, std::size_t rhs, const std::string& statement,
              std::function<TensorSet(const std::vector<TensorSet>&)> expected);
// Run rhs must return o and ht of run 0, o times fo and ht times fh, powers of two or 0. Where a value lies below the
// normal range of its dtype in either run, scaling is not exact and nothing is compared; rescaled: what is formed on the way was scaled, though o and ht are not.
std::function<TensorSet(const std::vector<TensorSet>&)> base_times(std::size_t rhs, double fo, double fh, bool rescaled = false);

// Row 12 on run 0: v and h0 negated give o and ht negated. For families of random values, so that something still decides
// where the bound of a coarse contract exceeds the signal. truth: needed where a result may overflow its format, which only
// the truth can excuse.
void add_negated_values(Case& c, bool truth = false);

}  // namespace gdn::relate
