// Inputs of the layer: weights of the size that trained ones have, so that every part of the layer shows in its output.
#pragma once
#include <string>

#include "reference/layer.h"

namespace gdn::fill {

struct LayerStyle {
  double gate_low = -3, gate_high = 1;             // A_log, uniform
  double bias_low = -3, bias_high = 2;             // dt_bias, uniform
  double a = 1, b = 2;                             // deviation of the projections a and b
  double x = 1;                                    // deviation of the hidden state
  double key = 1;                                  // factor on the rows of w_qkv of q and k
  bool history = true;                             // conv_state random, else zero
};
// Everything filled, cu_seqlens included; padding rows are NaN. norm_in_w and norm_w lie in 0.5..1.5, none equal to another's.
TensorSet layer_inputs(const Problem& p, std::uint64_t seed, const LayerStyle& style = {});
// Throws std::invalid_argument unless the problem is of the operation.
void require_layer(const std::string& family, const Problem& p, Operation operation = Operation::layer_prefill);

}  // namespace gdn::fill
