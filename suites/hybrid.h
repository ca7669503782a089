// A hybrid stack [L,L,L,F] (reference/stack.h) drawn for tests, and run in fp32: layers of the rule by a kernel of the layer, the attention here, with the caches
// that each keeps from call to call.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/session.h"
#include "reference/stack.h"

namespace gdn {

// Weights of the size that trained ones have; hidden states and weights of the layers in the problem's io dtype.
Stack drawn_stack(const Problem& problem, std::int64_t layers, std::int64_t heads, std::int64_t dim, std::uint64_t seed);

class HybridStack {
 public:
  HybridStack(const Stack& stack, std::unique_ptr<KernelSession> layer);   // a kernel of the layer in fp32
  // The next `count` tokens of the stack's x in one call (one: layer_decode); returns the hidden states after the last layer, [count,hidden].
  // Throws std::runtime_error, one line, when the kernel does not answer.
  std::vector<float> advance(std::int64_t count);
  // Bytes held for the tokens so far: states and histories of all layers of the rule, keys and values of the attention.
  struct Sizes { std::int64_t states, histories, keys_values; };
  Sizes sizes() const;
  // Hidden states of the last call: what went in and what each layer made of it, [layers+2][count,hidden].
  const std::vector<std::vector<float>>& hidden() const { return hidden_; }

 private:
  const Stack& s_;
  std::unique_ptr<KernelSession> layer_;
  std::int64_t position_ = 0;
  std::vector<Tensor> states_, histories_;         // of the layers
  std::vector<std::vector<float>> hidden_;
  std::vector<float> keys_, values_;               // [position,heads dim]
};

}  // namespace gdn
