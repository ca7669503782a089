// Stages as the fault bank's kernels compute them: tensors by name in double, outputs beside a mask of what was written.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "kernels/faulty/body.h"
#include "reference/problem.h"

namespace gdn::faulty {

struct StageView {
  Stage stage = Stage::gate_sum;
  std::int64_t N = 1, H = 1, HV = 1, K = 1, V = 1, chunk = 64;
  double scale = 1;
  std::vector<std::int64_t> cu;                    // [N+1]
  std::map<std::string, std::vector<double>> in, out;        // as reference/stages.h names and shapes them; outputs sized by the caller
  std::map<std::string, std::vector<std::uint8_t>> written;
};

const std::vector<Fault>& stage_table();           // the end of table(): faults of one stage each
void execute_stage(const Fault* fault, Scalar scalar, StageView& x);     // nullptr, or a fault of something else: the twin

}  // namespace gdn::faulty
