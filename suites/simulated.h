// Simulated kernels: a precision contract carried out (reference/simulate.h), as a kernel session. The model of a correct
// kernel for every contract that can be written down, and, declared as another contract, of a kernel below its
// declaration at exactly the points that differ.
#pragma once
#include <memory>

#include "kernels/session.h"

namespace gdn {

// carried_out: what it does; declared: what it says. In this process; outputs like any kernel's.
std::unique_ptr<KernelSession> open_simulated(const Contract& carried_out, const Contract& declared);

}  // namespace gdn
