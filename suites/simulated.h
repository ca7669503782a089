// Simulated kernels: a precision contract carried out (reference/simulate.h), as a kernel session. The model of a correct
// kernel for every contract that can be written down, and, declared as another contract, of a kernel below its
// declaration at exactly the points that differ.
#pragma once
#include <memory>

#include "kernels/session.h"

namespace gdn {

// The outputs of a run (padding and what no sequence owns: poison, pools as they were) when every operation of the contract is
// carried out as declared, to nearest. Every operation, dtype and rule that the contract's form has.
Execution carry_out(const Contract& contract, const Run& run);

// carried_out: what it does; declared: what it says. In this process; outputs like any kernel's.
std::unique_ptr<KernelSession> open_simulated(const Contract& carried_out, const Contract& declared);

}  // namespace gdn
