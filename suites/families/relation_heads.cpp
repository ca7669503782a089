// Case family `relation_heads`: heads and value channels may stand in any order (rows 16, 25, 26).
// There to catch wrong head maps, strides and tiles, and results that depend on the neighbours.
#include "suites/families/fill.h"
#include "suites/families/relate.h"
#include "suites/family.h"

namespace gdn {
namespace {

using I = std::int64_t;

struct RelationHeads final : Family {
  std::string name() const override { return "relation_heads"; }
  std::string profile() const override { return "core"; }
  std::string rationale() const override {
    return "Keys given once per group must give what explicitly repeated keys give: pure layout, the same bits. Key "
           "heads with their groups, and value channels, in another order must give the same numbers in that order, "
           "where the kernel declares that the shape does not matter; the permuted runs are judged by the bound as "
           "well.";
  }
  std::string own_fault() const override { return "summation_order_by_head"; }
  std::vector<std::string> kinds() const override {
    return {"head-map-wrong", "output-stride-wrong", "state-shared-between-heads", "value-channels-dropped",
            "tile-from-wrong-dim", "batch-dependent", "layout-stride-ignored"};
  }
  std::vector<Problem> problems(Level level) const override {
    if (level == Level::smoke) return fill::problems({"prefill/n1_t70_h2_hv4_k64_v16/bf16/h0",
                                                     "prefill/n1_t70_h2_hv4_k64_v16/fp32/h0"});
    return fill::problems({"prefill/n1_t130_h2_hv4_k64_v32/bf16/h0", "prefill/n1_t130_h2_hv4_k64_v32/fp32/h0",
                           "prefill/n1_t70_h3_hv6_k32_v36/fp32/h0"});
  }
  Case make(const Problem& p, std::uint64_t seed) const override {
    fill::require_prefill(name(), p);
    fill::Style style;
    style.gates = {fill::Gates::mild, fill::Gates::slow, fill::Gates::spikes, fill::Gates::zero};
    Case c = fill::single(name(), p, seed, fill::inputs(p, seed, style));
    const I H = p.heads, HV = p.value_heads, K = p.key_dim, V = p.value_dim, r = HV / H, rows = p.tokens() + p.padding, states = p.sequences();
    // Order of `heads` heads inside every one of `blocks` blocks, as a list of rows.
    auto order = [](I blocks, I heads, auto&& from) {
      std::vector<I> list;
      for (I b = 0; b < blocks; ++b)
        for (I h = 0; h < heads; ++h) list.push_back(b * heads + from(h));
      return list;
    };
    if (H < HV) {
      const std::size_t repeated = relate::add_run(c, "keys repeated", [&](Run& run) {
        run.problem.heads = HV;
        for (const char* name : {"q", "k"}) {
          Tensor t(p.io, {rows, HV, K});
          std::vector<I> from;
          for (I i = 0; i < rows * HV; ++i) from.push_back(i / HV * H + i % HV / r);
          const Tensor& once = run.inputs.at(name);
          for (I i = 0; i < rows * HV; ++i)
            for (I d = 0; d < K; ++d) t.set_bits(i * K + d, once.bits(from[static_cast<std::size_t>(i)] * K + d));
          run.inputs[name] = std::move(t);
        }
      });
      relate::add(c, 26, RelationClass::bit, repeated, "key heads repeated for their value heads change nothing", relate::base_times(repeated, 1, 1));
    }
    const auto key_order = [H](I h) { return H - 1 - h; };
    const auto head_order = [H, r](I h) { return (H - 1 - h / r) * r + h % r; };
    const std::size_t heads = relate::add_run(c, "heads reversed", [&](Run& run) {
      for (auto& [name, t] : run.inputs) {
        if (name == "q" || name == "k") t = relate::gathered(t, K, order(rows, H, key_order));
        if (name == "v") t = relate::gathered(t, V, order(rows, HV, head_order));
        if (name == "g" || name == "beta") t = relate::gathered(t, name == "g" && p.rule == Rule::kda ? K : 1, order(rows, HV, head_order));
        if (name == "h0") t = relate::gathered(t, K * V, order(states, HV, head_order));
      }
    }, true);
    relate::add(c, 25, RelationClass::shape_invariant, heads, "heads in another order give the same numbers in that order", [=](const std::vector<TensorSet>& results) {
      TensorSet e;
      for (const auto& [name, t] : results[0])
        e.emplace(name, name == "ht" ? relate::gathered(t, K * V, order(states, HV, head_order)) : relate::gathered(t, V, order(rows, HV, head_order)));
      return e;
    });
    const auto channel = [V](I j) { return (j + V / 2 + 1) % V; };
    auto moved = [=](const Tensor& t) { return relate::gathered(t, 1, order(t.size() / V, V, channel)); };
    const std::size_t channels = relate::add_run(c, "value channels moved", [&](Run& run) {
      run.inputs["v"] = moved(run.inputs.at("v"));
      if (p.initial_state) run.inputs["h0"] = moved(run.inputs.at("h0"));
    }, true);
    relate::add(c, 16, RelationClass::shape_invariant, channels, "value channels in another order give the same numbers in that order", [=](const std::vector<TensorSet>& results) {
      TensorSet e;
      for (const auto& [name, t] : results[0]) e.emplace(name, moved(t));
      return e;
    });
    return c;
  }
};

const RelationHeads family;
const RegisterFamily registered(&family);

}  // namespace
}  // namespace gdn
