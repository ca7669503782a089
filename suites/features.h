// Structural features of a problem, and which problems a kernel may leave out of a profile: the rule by which a gate
// decides that a claimed profile was really exercised (suites/README.md).
#pragma once
#include <set>
#include <string>
#include <vector>

#include "kernels/session.h"
#include "reference/problem.h"

namespace gdn {

// "h0", "final state", "ragged tail", "several chunks", "grouped heads", "several calls", "one token", ...
std::set<std::string> features(const Problem& p);

// Empty where the kernel's declared dtypes and sizes hold the problem; else the reason that exempts the case from a
// profile: io dtype, state dtype, K or V. Nothing else exempts.
std::string exemption(const Problem& p, const Capabilities& c);

// The nearest problem inside the declared dtypes and sizes.
Problem fitted(const Problem& p, const Capabilities& c);

// Problems to add so that every feature of `all` is shown by a problem that is not exempt: fitted copies of exempt
// ones. Empty when nothing is missing.
std::vector<Problem> missing_problems(const std::vector<Problem>& all, const Capabilities& c);

}  // namespace gdn
