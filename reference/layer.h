// The layer around the rule, as Qwen3-Next and Qwen3.5 have it: tensors, certified oracle, audit, bound and simulation of the operations
// layer_prefill and layer_decode (accuracy standard, section 12). Half of the field's slips sit here and not in the rule.
//
// Of sequence n with tokens x_t in R^hidden, channels = 2 H K + HV V in the order q heads, k heads, v heads:
//   u      = x / sqrt(mean x^2 + eps) * norm_in_w                           hidden norm
//   m      = w_qkv u,  z = w_z u,  a = w_a u,  b = w_b u                    weights are [out,in]
//   c      = silu( sum_i w_conv[.,i] m_(t-W+1+i) )                          causal depthwise convolution; what lies before the first token
//                                                                           is conv_state [channels,W-1], oldest first, values of m
//   q,k,v  = split of c; q and k normalised per head as Problem::l2 says
//   g      = -exp(A_log) softplus(a + dt_bias),  beta = sigmoid(b)
//   o      = the rule gated_delta on q, k, v, g, beta
//   y      = w_out concat_heads( o / sqrt(mean o^2 + eps) * norm_w * silu(z) )
// eps = fp32(1e-6). conv_state goes in and out, as h0 and ht do. layer_decode gives the same tokens one a call.
#pragma once
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "reference/case.h"
#include "reference/contract.h"
#include "reference/simulate.h"
#include "reference/stages.h"
#include "reference/stage_bound.h"
#include "reference/truth.h"

namespace gdn {

inline constexpr double kLayerEps = 0x1.0c6f7ap-20;          // fp32(1e-6)

inline std::int64_t layer_channels(const Problem& p) { return 2 * p.heads * p.key_dim + p.value_heads * p.value_dim; }
// Without cu_seqlens. Inputs x w_qkv w_z w_a w_b w_conv w_out in the io dtype, norm_in_w and norm_w fp32, A_log and dt_bias in the gate's dtype,
// conv_state [N,channels,W-1] in the io dtype, h0 where the problem has it. Outputs y [T,hidden], conv_state, ht.
std::vector<StageTensor> layer_inputs(const Problem& p);
std::vector<StageTensor> layer_outputs(const Problem& p);

// Double-double with a running radius, the state's radius by norms (accuracy standard, section 8): what it leaves uncertified is a ball. Sums of
// products are compensated. The same bits at any thread count.
Truth layer_oracle(const Run& run, OracleStats* stats = nullptr);
// The layer once more in 237 bits, sharing no code with layer_oracle: the empty string, or one line naming the first element that disagrees.
std::string audit_layer(const Run& run, const Truth& truth);
// Absolute bound of every output under a contract (narrowed to the problem) by the same pass, its radii fed with the contract's roundings;
// BOUNDS.md, section 7, says what is loose.
StageBounds layer_bound(const Contract& contract, const Run& run);
// The contract carried out to nearest, or stochastically rounded (simulate.h; on one thread then); outputs in double. Operands of the rule pass through fp32, so contracts in fp64 are not
// carried out well.
TensorSet simulate_layer(const Contract& contract, const Run& run, SimulationMode mode = SimulationMode::nearest, std::uint64_t seed = 1);

}  // namespace gdn
