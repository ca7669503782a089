// Strict mode: the input rules under which the textbook's step means what it is said to mean. The oracle takes more (any finite key, beta up
// to 2 and beyond); who records inputs of a model may want to know that they lie inside.
#pragma once
#include <string>

#include "reference/case.h"

namespace gdn {

// Empty, or one line naming the first input of the run that breaks a rule, of the tokens that belong to a sequence:
//   shapes     as the problem says
//   finite     every q, k, v, beta and h0; g may be -inf, which is a decay of 0
//   gates      decay in 0..1, that is g <= 0, and beta in 0..1
//   unit key   |k|^2 = 1 as nearly as the dtype can say: every element carries a relative error of u, so within 2u + u^2, and 1e-9 at least
// Throws std::invalid_argument for stages and layers, which have no such inputs.
std::string strict_complaint(const Run& run);

}  // namespace gdn
