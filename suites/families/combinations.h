// The options of a problem as axes of covering arrays, for the family `combinations` and its test.
#pragma once
#include <string>
#include <vector>

#include "suites/families/covering.h"
#include "suites/family.h"

namespace gdn::combinations {

// Which of the families of the file: every one belongs to the profile of kernels that can do what it asks.
enum class Part { prefill, packed, raw, decode, verify, raw_decode };
inline constexpr Part kParts[] = {Part::prefill, Part::packed, Part::raw, Part::decode, Part::verify, Part::raw_decode};
const char* family_name(Part part);

const std::vector<covering::Axis>& axes();
// Least size in token-heads of problems with these levels, states of a pool and snapshots counted with their share.
double cost(Part part, const covering::Row& row);
// What a level covers. Kernels that declare few options support whole blocks: every option is covered beside the plain ones.
std::vector<covering::Block> blocks(Part part, Level level);
// Levels of a problem, from the problem alone.
covering::Row levels_of(const Problem& p);

}  // namespace gdn::combinations
