// Search for inputs that are hard for a kernel: hill climbing on the greatest |error| / bound, from cases of the families.
// What it finds goes to golden/worst, one line of text each, and family `worst` judges every kernel on it from then on:
// inputs that brought one kernel near its bound are the likeliest to bring another beyond it.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "kernels/session.h"
#include "reference/case.h"

namespace gdn {

struct WorstInput {
  std::string contract;                            // under which it was found
  double ratio = 0;                                // greatest |error| / bound of the kernel it was found with
  Run run;
};
// "RATIO CONTRACT PROBLEM q=HEX,HEX,... k=... ": hexadecimal floats, so exact and readable. Without cu_seqlens.
std::string to_line(const WorstInput& w);
WorstInput parse_worst(const std::string& line);   // throws std::invalid_argument, one line
// Of every file in golden/worst, as they were when the program was built.
const std::vector<WorstInput>& worst_inputs();

struct HuntOptions {
  std::vector<std::string> families;               // where climbs begin; empty: those of random values
  std::uint64_t seed = 1;
  double seconds = 60;                             // whichever is reached first
  std::int64_t tries = INT64_MAX;                  // kernel runs
  std::size_t keep = 4;                            // how many of the hardest to return, of different climbs
};
struct HuntResult {
  std::vector<WorstInput> found;                   // hardest first
  std::int64_t tries = 0, climbs = 0;
  double first = 0;                                // greatest ratio among the cases that climbs began with
};
// 16-bit outputs reach their bound by their own last rounding, so there only the final state counts.
HuntResult hunt(KernelSession& kernel, const HuntOptions& o, const std::function<void(double share, double best)>& progress = {});

}  // namespace gdn
