// The layer as the fault bank's kernels compute it: tensors by name in double, outputs beside a mask of what was written.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "kernels/faulty/body.h"
#include "reference/problem.h"

namespace gdn::faulty {

struct LayerView {
  std::int64_t N = 1, H = 1, HV = 1, K = 1, V = 1, hidden = 1, conv = 1;
  L2Form l2 = L2Form::root;
  double scale = 1;
  std::vector<std::int64_t> cu;                    // [N+1]
  std::map<std::string, std::vector<double>> in, out;        // as reference/layer.h names and shapes them; outputs sized by the caller, conv_state in both
  std::map<std::string, std::vector<std::uint8_t>> written;
};

const std::vector<Fault>& layer_table();           // after the faults of stages in table()
void execute_layer(const Fault* fault, Scalar scalar, LayerView& x);     // nullptr, or a fault of something else: the twin

}  // namespace gdn::faulty
