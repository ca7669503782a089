// Sizes and biases of the errors of a layer (accuracy standard 12.5), where its bound says little: that adds the rounding errors of `hidden` products, and those of every
// token before, up where they in fact scatter, and soon exceeds the signal. Measured as in statistics.h, in the deviation of stochastically rounded
// executions of the contract, with limits from further ones; there are no departures.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "reference/contract.h"
#include "reference/truth.h"

namespace gdn {

struct LayerNull {
  std::string why_not;                             // not empty: the check does not apply
  std::map<std::string, std::vector<double>, std::less<>> sigma;   // per output; 0: every execution agrees
  std::vector<std::string> names;                  // of the statistics: "rms of y by token"
  std::vector<double> limits, nearest;             // per statistic: limit, value of the contract carried out to nearest
  double seconds = 0;                              // spent on making it; 0 when it came from the cache
};

// Whether the contract, narrowed to the problem, stores what goes into the rule shorter than its arithmetic.
bool scatters(const Contract& narrowed);
// Made in parallel by executions, the same numbers at any thread count. Its numbers are floats, as the cache keeps them.
LayerNull layer_null(const Contract& narrowed, const Run& run, const Truth& truth, std::uint64_t seed);
// What a cache holds of a null that applies; the second throws BadInput where that does not fit the truth.
TensorSet to_tensors(const LayerNull& null, const Truth& truth);
LayerNull from_tensors(const TensorSet& tensors, const Truth& truth);
// The statistics of outputs; judged: elements with a sigma above 0.
std::vector<double> layer_values(const LayerNull& null, const Truth& truth, const TensorSet& outputs, std::int64_t& judged);

}  // namespace gdn
