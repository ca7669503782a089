// The contract carried out: recurrent and chunkwise algorithm with every storage point rounded as declared.
// Used for null distributions, precision studies and as the model of a correct kernel in the tests of bounds.
#pragma once
#include <cstdint>
#include <span>

#include "reference/contract.h"
#include "reference/head.h"

namespace gdn {

enum class SimulationMode : std::uint8_t {
  nearest,      // every point rounded as the contract says (stochastic points use seed)
  stochastic    // every point rounded stochastically, accumulators get their noise (accuracy standard, statistics)
};
// split: cuts between calls, as Problem::split for this sequence. exp_bias: relative error of every exponential but
// that of 0, for kernels whose exp errs all one way (a contract allows u_exp).
HeadResult simulate(const Contract& c, const HeadInputs& in, SimulationMode mode, std::uint64_t seed,
                    std::span<const std::int64_t> split = {}, double exp_bias = 0);

// One stage carried out to nearest; contract narrowed to the problem. Outputs in double, as the contract's points store them; NaN in
// rows that are nobody's.
TensorSet simulate_stage(const Contract& c, const Run& run);

}  // namespace gdn
