// Inputs of the layer; see layer_fill.h.
#include "suites/families/layer_fill.h"

#include <cmath>
#include <stdexcept>

#include "suites/families/fill.h"

namespace gdn::fill {

TensorSet layer_inputs(const Problem& p, std::uint64_t seed, const LayerStyle& style) {
  using I = std::int64_t;
  TensorSet t;
  for (const StageTensor& s : gdn::layer_inputs(p)) t[s.name] = Tensor(s.dtype, s.shape);
  const auto normal = [&](const char* name, double deviation) {
    const Random r(seed, name);
    Tensor& x = t.at(name);
    for (I i = 0; i < x.size(); ++i) x.set(i, deviation * r.normal(static_cast<std::uint64_t>(i)));
  };
  const auto uniform = [&](const char* name, double low, double high) {
    const Random r(seed, name);
    Tensor& x = t.at(name);
    for (I i = 0; i < x.size(); ++i) x.set(i, r.uniform(static_cast<std::uint64_t>(i), low, high));
  };
  const double wide = 1 / std::sqrt(static_cast<double>(p.hidden)), out = 1 / std::sqrt(static_cast<double>(p.value_heads * p.value_dim));
  normal("x", style.x);
  uniform("norm_in_w", 0.5, 1.5);
  uniform("norm_w", 0.5, 1.5);
  normal("w_qkv", wide);
  for (I i = 0; i < 2 * p.heads * p.key_dim * p.hidden && style.key != 1; ++i) t.at("w_qkv").set(i, style.key * t.at("w_qkv").at(i));
  normal("w_z", wide);
  normal("w_a", style.a * wide);
  normal("w_b", style.b * wide);
  normal("w_conv", 1 / std::sqrt(static_cast<double>(p.conv)));
  normal("w_out", out);
  uniform("A_log", style.gate_low, style.gate_high);
  uniform("dt_bias", style.bias_low, style.bias_high);
  if (style.history) normal("conv_state", 1);
  if (p.initial_state) normal("h0", 0.5);
  Tensor cu(DType::i64, {p.sequences() + 1});
  const auto offsets = p.offsets();
  for (std::size_t n = 0; n < offsets.size(); ++n) cu.set_bits(static_cast<I>(n), static_cast<std::uint64_t>(offsets[n]));
  t["cu_seqlens"] = std::move(cu);
  Tensor& x = t.at("x");
  for (I i = p.tokens() * p.hidden; i < x.size(); ++i) x.set(i, std::nan(""));
  return t;
}

void require_layer(const std::string& family, const Problem& p, Operation operation) {
  if (p.operation != operation) throw std::invalid_argument("family " + family + " makes " + name(operation) + " cases only, not '" + to_string(p) + "'");
}

}  // namespace gdn::fill
