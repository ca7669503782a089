// Where the failing elements of a result lie, in words a person can act on: "heads 1, 3 of 4; tokens 64-129 of 130".
// One wrong element says what is wrong, the places of all of them say where to look.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "reference/problem.h"

namespace gdn {

// failing: element indices of an output (o [T,HV,V], ht, snapshots) of a run of p. chunk: rows per chunk of the kernel's contract
// (1: it has no chunks). Axes of one entry, and axes on which all or scattered most entries fail, are left out; "everywhere" when none is left.
std::string spread(const Problem& p, std::string_view tensor, const std::vector<std::int64_t>& failing, int chunk);

}  // namespace gdn
