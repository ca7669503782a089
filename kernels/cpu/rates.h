// What this processor reaches in plain work on all threads: the floors of a kernel are its operations and bytes over these.
#pragma once

namespace gdn::cpu {

struct Rates {
  double multiply_adds_per_second = 0;             // fp32, fused where the processor has it, operands in registers
  double bytes_per_second = 0;                     // of a copy too large for the caches, read plus written
};
Rates measure_rates();                             // takes about 0.2 s

}  // namespace gdn::cpu
