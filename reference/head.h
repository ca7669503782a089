// One value head of one sequence: the unit of work of oracle, simulation and bounds.
#pragma once
#include <cstdint>
#include <vector>

#include "reference/case.h"

namespace gdn {

// Values are exact in fp32 (every golden input dtype is a subset of it). Row-major, contiguous.
struct HeadInputs {
  std::int64_t T = 0, K = 0, V = 0;
  Rule rule = Rule::gated_delta;
  double scale = 1;
  std::vector<float> q, k, v;                      // [T,K] [T,K] [T,V]
  std::vector<float> g;                            // [T] natural-log decay, -inf..0 (kda: [T,K]); empty: 0
  std::vector<float> beta;                         // [T]; empty: 1
  std::vector<float> h0;                           // [K,V]; empty: zero state
};
// Strand n (strand.h; of a prefill: sequence n), value head hv of a run. Reads key head hv/(HV/H).
HeadInputs head_inputs(const Run& run, std::int64_t n, std::int64_t hv);

struct HeadResult {                                // of a simulation or a bound, in double
  std::vector<double> o, ht;                       // [T,V] [K,V]
};

}  // namespace gdn
