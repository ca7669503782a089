// Structural features of a problem, and which problems a kernel may leave out of a profile: the rule by which a gate
// decides that a claimed profile was really exercised (suites/README.md).
#pragma once
#include <set>
#include <string>
#include <vector>

#include "kernels/session.h"
#include "reference/case.h"
#include "reference/problem.h"

namespace gdn {

// "h0", "final state", "ragged tail", "several chunks", "grouped heads", "several calls", "one token", ...
std::set<std::string> features(const Problem& p);

// Empty where the kernel's declared dtypes and sizes hold the problem; else the reason that exempts the case from a
// profile: a dtype, strides, K, V, rows of a stage's chunk, a rule other than the gated delta rule, or a scale other than K^-1/2 where the kernel's
// convention fixes it. Nothing else.
std::string exemption(const Problem& p, const KernelInfo& k);
// Of any run of the case: relations may need runs in other dtypes and sizes than the case itself.
std::string exemption(const Case& c, const KernelInfo& k);

// The nearest problem inside the declared dtypes and sizes; exact_scale: a scale that was a power of two stays one,
// by another K where the convention fixes it at K^-1/2.
Problem fitted(const Problem& p, const KernelInfo& k, bool exact_scale);

// Problems to add so that every feature of `all` is shown by a problem that is not exempt: fitted copies of exempt
// ones. Empty when nothing is missing.
std::vector<Problem> missing_problems(const std::vector<Problem>& all, const KernelInfo& k, bool exact_scale);

}  // namespace gdn
