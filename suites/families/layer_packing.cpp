// Case family `layer_packing`: borders of sequences in the layer: packed = separate, a reset between samples and none within one, padding on both sides
// (rows 24 and 38).
// There to catch convolutions and states that run over borders, short sequences behind a border, and padding that leaves a trace.
#include <algorithm>

#include "suites/families/fill.h"
#include "suites/families/layer_fill.h"
#include "suites/families/relate.h"
#include "suites/family.h"

namespace gdn {
namespace {

using I = std::int64_t;

// Rows first..first+count of x.
Tensor rows_of(const Tensor& x, I first, I count) {
  Tensor t(x.dtype, {count, x.shape[1]});
  for (I i = 0; i < t.size(); ++i) t.set_bits(i, x.bits(first * x.shape[1] + i));
  return t;
}

void set_offsets(Run& r) {
  const auto offsets = r.problem.offsets();
  Tensor cu(DType::i64, {r.problem.sequences() + 1});
  for (std::size_t n = 0; n < offsets.size(); ++n) cu.set_bits(static_cast<I>(n), static_cast<std::uint64_t>(offsets[n]));
  r.inputs["cu_seqlens"] = std::move(cu);
}

struct LayerPacking final : Family {
  std::string name() const override { return "layer_packing"; }
  std::string profile() const override { return "layer"; }
  std::string rationale() const override {
    return "Packed sequences, some empty, some of fewer tokens than the convolution reaches back, rows of NaN behind the last; each alone; two of them joined to one, where nothing may be reset; and the first of "
           "fresh states with zero tokens in front, as masked padding on the left leaves them, which must change no number that follows.";
  }
  std::string own_fault() const override { return "layer_empty_sequence_history_cleared"; }
  std::vector<std::string> kinds() const override { return {"state-leaks-into-next-sequence", "conv-state-wrong", "empty-sequence-mishandled"}; }
  std::vector<Problem> problems(Level level) const override {
    if (level == Level::smoke)
      return fill::problems({"layer_prefill/n3_t4+2+5_h1_hv2_k8_v8/fp32/pad=2,hidden=16,conv=4", "layer_prefill/n3_t4+2+5_h1_hv2_k8_v8/bf16/pad=2,hidden=16,conv=4",
                             "layer_prefill/n3_t3+0+2_h1_hv1_k8_v8/fp32/h0,hidden=16,conv=4"});
    return fill::problems({"layer_prefill/n5_t6+0+1+2+7_h2_hv4_k8_v16/fp32/h0,pad=3,hidden=24,conv=4", "layer_prefill/n5_t6+0+1+2+7_h2_hv4_k8_v16/bf16/h0,pad=3,hidden=24,conv=4",
                           "layer_prefill/n4_t1x3+9_h1_hv2_k16_v8/fp32/hidden=16,conv=4", "layer_prefill/n3_t5+3+3_h1_hv1_k8_v8/bf16/hidden=16,conv=2", "layer_prefill/n2_t12+5_h1_hv2_k8_v8/fp32/hidden=16,conv=8"});
  }
  Case make(const Problem& p, std::uint64_t seed) const override {
    fill::require_layer(name(), p);
    fill::LayerStyle style;
    style.history = p.initial_state;               // fresh sequences have neither
    Case c = fill::single(name(), p, seed, fill::layer_inputs(p, seed, style));
    if (!p.split.empty()) return c;
    const auto offsets = p.offsets();
    const I N = p.sequences(), C = layer_channels(p), states = p.value_heads * p.key_dim * p.value_dim, columns = C * (p.conv - 1), D = p.hidden;
    const auto only = [&](Run& r, I n) {           // states of sequence n
      const auto slice = [&](const char* tensor, I width) {
        const auto at = r.inputs.find(std::string_view(tensor));
        if (at == r.inputs.end()) return;
        auto shape = at->second.shape;
        shape[0] = 1;
        Tensor t(at->second.dtype, shape);
        for (I i = 0; i < width; ++i) t.set_bits(i, at->second.bits(n * width + i));
        at->second = std::move(t);
      };
      slice("h0", states);
      slice("conv_state", columns);
    };
    for (I n = 0; n < N && N > 1; ++n) {
      const auto at = static_cast<std::size_t>(n);
      if (p.lengths[at] == 0) continue;
      const std::size_t alone = relate::add_run(c, "sequence " + std::to_string(n) + " alone", [&](Run& r) {
        r.problem.lengths = {p.lengths[at]};
        r.problem.padding = 0;
        r.inputs["x"] = rows_of(r.inputs.at("x"), offsets[at], p.lengths[at]);
        only(r, n);
        set_offsets(r);
      }, true);
      const I first = offsets[at] * D, count = p.lengths[at] * D;
      relate::add(c, 24, RelationClass::shape_invariant, alone, "a packed sequence gives what it gives alone", [=](const std::vector<TensorSet>& results) {
        TensorSet e;
        const auto part = [&](const char* tensor, I from, I size, I leading) {
          const auto found = results[0].find(std::string_view(tensor));
          if (found == results[0].end()) return;
          auto shape = found->second.shape;
          shape[0] = leading;
          Tensor t(found->second.dtype, shape);
          for (I i = 0; i < size; ++i) t.set_bits(i, found->second.bits(from + i));
          e.emplace(tensor, std::move(t));
        };
        part("y", first, count, count / D);
        part("ht", n * states, states, 1);
        part("conv_state", n * columns, columns, 1);
        return e;
      });
    }
    if (N > 1)                                     // one sample: nothing is reset inside
      relate::add_run(c, "the first two joined", [&](Run& r) {
        r.problem.lengths = {p.lengths[0] + p.lengths[1]};
        r.problem.padding = 0;
        r.inputs["x"] = rows_of(r.inputs.at("x"), 0, p.lengths[0] + p.lengths[1]);
        only(r, 0);
        set_offsets(r);
      }, true);
    if (!p.initial_state) {
      constexpr I more = 3;
      const std::size_t padded = relate::add_run(c, "zero tokens in front", [&](Run& r) {
        r.problem.lengths = {more + p.lengths[0]};
        r.problem.padding = 0;
        Tensor x(p.io, {more + p.lengths[0], D});
        for (I i = 0; i < p.lengths[0] * D; ++i) x.set_bits(more * D + i, r.inputs.at("x").bits(i));
        r.inputs["x"] = std::move(x);
        only(r, 0);
        set_offsets(r);
      }, true);
      const I count = p.lengths[0] * D;
      relate::add(c, 38, RelationClass::recurrent, padded, "tokens of zeros in front of a fresh sequence leave all that follows", [=](const std::vector<TensorSet>& results) {
        TensorSet e;
        Tensor y = results[padded].at("y");
        for (I i = 0; i < count; ++i) y.set_bits(more * D + i, results[0].at("y").bits(i));
        e.emplace("y", std::move(y));
        return e;
      });
    }
    return c;
  }
};

const LayerPacking family;
const RegisterFamily registered(&family);

}  // namespace
}  // namespace gdn
