// A hybrid stack: layers of the gated delta rule (layer.h) and, last, one of softmax attention with a cache of keys and values, as Qwen3-Next and Kimi-Linear
// interleave them ([L,L,L,F]). Each is added to what goes into it: x <- x + layer(x). The stack is no operation of a kernel: what stands between two layers is one
// addition, and each layer is judged by itself; here is its truth, so that decode = prefill = resume can be shown through all of it.
//
// Attention of A heads of dim D, for token t, its keys and values appended to the cache:
//   u = x / sqrt(mean x^2 + eps) * norm_in_w,   q, k, v = w_q u, w_k u, w_v u          weights [A D,hidden], w_out [hidden,A D]
//   p_j = softmax_(j <= t)( q_t.k_j / sqrt(D) ),   y = w_out concat_heads( sum_j p_j v_j )
// The scale is fp32(D^-1/2), applied to the product. Everything starts fresh: histories and states of zeros, an empty cache.
#pragma once
#include <cstdint>
#include <vector>

#include "reference/layer.h"

namespace gdn {

struct Stack {
  Problem problem;                                 // of every layer of the rule: layer_prefill, one sequence, io fp32
  std::int64_t heads = 1, dim = 1;                 // of the attention: A, D
  Tensor x;                                        // [T,hidden]
  std::vector<TensorSet> layers;                   // as layer.h names them, without x
  TensorSet attention;                             // norm_in_w, w_q, w_k, w_v, w_out, fp32; empty: no attention
};
double attention_scale(const Stack& s);

// Hidden states after each layer [layers and the attention][T,hidden]: certified; bounds of a kernel of the contract; the contract carried out to nearest. A bound
// through several layers is a theorem and no use: each layer takes the error bound of the one before for a change of its operands, and multiplies it. What a stack
// computes is judged layer by layer, on the hidden states that it really had.
std::vector<TruthTensor> stack_oracle(const Stack& s);
std::vector<std::vector<double>> stack_bound(const Contract& contract, const Stack& s);
std::vector<std::vector<double>> simulate_stack(const Contract& contract, const Stack& s);

}  // namespace gdn
