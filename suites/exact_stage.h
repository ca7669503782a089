// Exactness certificate of a stage: proves that on these inputs every value that the contract stores on the way is exact, so that
// every correct kernel returns the truth, rounded once into the output (accuracy standard 5.3). As exact.h, with less to track: every
// tensor of a chunk is a set of whole multiples of one power of two, and a sum of products is exact in any order when the sum of the
// absolute values of its terms is at most 2^p such multiples, p the digits of the accumulator. Sums of gates must be 0, but in
// gate_sum; beta and scale powers of two.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "reference/contract.h"
#include "reference/stages.h"

namespace gdn {

// Nonzero for certified elements, in the shapes of stage_outputs. contract: narrowed to the problem.
using StageExact = std::map<std::string, std::vector<char>, std::less<>>;
StageExact exact_stage(const Contract& contract, const Run& run);

}  // namespace gdn
