// Rounding-error bounds of a stage alone: the lines of bound.h with inputs that are given, and so carry no error but that of
// being converted into the contract's formats. Derivation: reference/BOUNDS.md, section 6.
#pragma once
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "reference/contract.h"
#include "reference/stages.h"

namespace gdn {

// contract: narrowed to the problem (for_problem). Absolute bounds in double, in the shapes of stage_outputs, 0 where nothing is judged; of
// inverse also "residual" [T,HV,C], a bound of |(I+L) X - I| for the X that the kernel returns. Made in parallel.
using StageBounds = std::map<std::string, std::vector<double>, std::less<>>;
StageBounds stage_bound(const Contract& contract, const Run& run);
// The last roundings of an output: the contract's at its point and, where the tensor's dtype does not hold all values of that, into the tensor.
std::vector<Store> stage_stores(const Contract& contract, const Problem& p, std::string_view tensor);
// The largest terms of the bound of one element, one line.
std::string explain_stage_bound(const Contract& contract, const Run& run, std::string_view tensor, std::int64_t element);

}  // namespace gdn
