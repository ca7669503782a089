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
  std::vector<float> g;                            // [T] natural-log decay, -inf..0 (kda: [T,K]; complex_kda: [T,K], equal in pairs); empty: 0
  std::vector<float> angle;                        // complex_kda only: [T,K/2] radians
  std::vector<float> beta;                         // [T]; empty: 1
  std::vector<float> h0;                           // [K,V]; empty: zero state
  // Raw gates, where a is not empty: g = -exp(A_log) softplus(a + dt_bias), not rounded. raw_g is that rounded to double, and
  // g rounded toward zero to float and 0 only where it is exactly 0, which is good for choosing a path but not for the truth.
  std::vector<float> a;                            // [T]
  float A_log = 0, dt_bias = 0;
  std::vector<double> raw_g;                       // [T]
};
// The gate as a double: exact, or of raw gates raw_g.
inline double gate_value(const HeadInputs& in, std::size_t i) { return in.a.empty() ? static_cast<double>(in.g[i]) : in.raw_g[i]; }
// Sets raw_g and g from a, A_log and dt_bias.
void set_raw_gates(HeadInputs& in);
// Strand n (strand.h; of a prefill: sequence n), value head hv of a run. Reads key head hv/(HV/H).
HeadInputs head_inputs(const Run& run, std::int64_t n, std::int64_t hv);

struct HeadResult {                                // of a simulation or a bound, in double
  std::vector<double> o, ht;                       // [T,V] [K,V]
};

}  // namespace gdn
