// Identification: which fault of the bank a failing result resembles (accuracy standard, section on identification).
// For every fault m, delta_m = exact(with fault m) - exact in double; the error e of the result is compared with it
// under weights 1/sigma. Until per-element sigma exists the declared contract's bound stands for it.
#pragma once
#include <string>
#include <vector>

#include "suites/check.h"

namespace gdn {

struct Resemblance {
  std::string fault;
  double z = 0;                                    // sum(e d / sigma^2) / sqrt(sum(d^2 / sigma^2))
  double share = 0;                                // part of sum(e^2 / sigma^2) that a multiple of delta explains, 0..1
  double amplitude = 0;                            // that multiple: 1 where the fault is the one of the bank
};

// All faults that explain anything, the best first. `in.executions` must all be ok. Faults that act within one head
// are compared on up to 16 channels of the worst head, those between heads, sequences and layouts on the whole run.
std::vector<Resemblance> identify(const CheckInput& in);

// "correction_before_decay: the read-back ... (z=412, explains 99.8 % of the error; or its twin ...)", or
// "nothing known" when no fault explains half of the error.
std::string resembles(const CheckInput& in);

}  // namespace gdn
