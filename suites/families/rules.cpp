// Case family `rules` (row 27 for the delta rule): linear attention, retention, gated linear attention, the delta rule and KDA, each beside the limit in which another rule is it.
// There to catch rules that are done on a path of their own: a delta term that is not left out, a gate or beta that is not fixed, gates of the wrong channel, pairs turned wrongly.
#include "suites/families/fill.h"
#include "suites/families/relate.h"
#include "suites/family.h"

namespace gdn {
namespace {

using I = std::int64_t;

Tensor filled(DType t, std::vector<I> shape, double x) {
  Tensor r(t, std::move(shape));
  for (I i = 0; i < r.size(); ++i) r.set(i, x);
  return r;
}

struct Rules final : Family {
  std::string name() const override { return "rules"; }
  std::string profile() const override { return "rules"; }
  std::string rationale() const override {
    return "The recurrence with parts fixed, and the same inputs under the rule whose limit it is: the sum as a decayed sum with g = 0 and beta = 1, as retention without decay; retention as a decayed sum with beta = 1; a decayed sum and the "
           "gated delta rule with beta = 0, where both only decay, and with alpha = 0, where nothing is read back; the delta rule as the gated one with g = 0; KDA with a decay for every key channel, and with one for all as the gated delta rule; KDA with complex decays, and its angles 0 as KDA. All runs are judged against exact results, which agree.";
  }
  std::string own_fault() const override { return "channel_gates_reversed"; }
  std::vector<std::string> kinds() const override { return {"correction-missing", "correction-wrong-weight", "beta-shifted", "channel-gate-wrong", "complex-turn-wrong", "mask-off-by-one", "initial-state-ignored",
                                                              "cross-term-missing", "state-leaks-into-next-sequence", "head-map-wrong"}; }
  std::vector<Problem> problems(Level level) const override {
    if (level == Level::smoke)
      return fill::problems({"prefill/n1_t12_h1_hv2_k16_v8/fp32/h0,rule=linear", "prefill/n1_t12_h1_hv2_k16_v8/fp32/h0,rule=retention", "prefill/n1_t12_h1_hv2_k16_v8/fp32/h0,rule=gated_linear",
                             "prefill/n1_t12_h1_hv2_k16_v8/fp32/h0,rule=delta", "prefill/n1_t66_h1_hv2_k32_v32/bf16/h0,rule=delta", "prefill/n1_t66_h1_hv2_k32_v32/fp32/h0,rule=delta", "prefill/n1_t12_h1_hv2_k16_v8/fp32/h0,rule=kda"});   // level smoke is full
    // Kernels that do the ungated delta rule often do it on a path of their own, on which masks, decays and states that came with the gates have to come from elsewhere.
    std::vector<Problem> p = fill::problems({"prefill/n1_t130_h2_hv4_k64_v64/bf16/h0,rule=delta", "prefill/n1_t130_h2_hv4_k64_v64/fp32/h0,rule=delta", "prefill/n1_t70_h1_hv2_k128_v128/bf16/h0,rule=delta",
                        "prefill/n1_t1_h1_hv2_k64_v64/fp32/h0,rule=delta", "prefill/n3_t70_h2_hv6_k32_v32/bf16/h0,rule=delta", "prefill/n3_t70_h2_hv6_k32_v32/fp32/h0,rule=delta"});
    for (const char* rule : {"linear", "retention", "gated_linear", "delta", "kda", "complex_kda"})
      for (const char* shape : {"prefill/n1_t40_h2_hv4_k32_v16/fp32/h0", "prefill/n1_t24_h1_hv2_k64_v64/bf16/h0", "prefill/n3_t9+0+21_h1_hv2_k16_v24/fp32", "prefill/n2_t19+8_h1_hv2_k16_v8/fp32/h0,split=7"})
        p.push_back(parse_problem(std::string(shape) + (std::string_view(shape).ends_with("fp32") ? "/rule=" : ",rule=") + rule));
    return p;
  }
  Case make(const Problem& p, std::uint64_t seed) const override {
    fill::require_prefill(name(), p);
    if (p.rule == Rule::gated_delta || p.raw) throw std::invalid_argument("family " + name() + " is about the other rules, not '" + to_string(p) + "'");
    fill::Style style;
    style.gates = {fill::Gates::mild, fill::Gates::slow, fill::Gates::resets};
    style.betas = p.rule == Rule::delta ? std::vector{fill::Betas::sparse} : std::vector{fill::Betas::sparse, fill::Betas::unit};   // nothing fades
    const I rows = p.tokens() + p.padding;
    const std::vector<I> per_head{rows, p.value_heads};
    Case c = fill::single(name(), p, seed, fill::inputs(p, seed, style));
    const auto as = [&](const std::string& title, Rule rule, const std::function<void(TensorSet&)>& change) {
      relate::add_run(c, title, [&](Run& r) {
        r.problem.rule = rule;
        change(r.inputs);
        fill::poison_padding(r.problem, r.inputs);
      }, true);
    };
    const auto angles = [&](double x) { return filled(p.gate, {rows, p.value_heads, p.gate_width()}, x); };
    switch (p.rule) {
      case Rule::complex_kda:
        as("without angles", Rule::complex_kda, [&](TensorSet& t) { t["angle"] = angles(0); });
        as("as kda", Rule::kda, [&](TensorSet& t) {
          Tensor g(p.gate, {rows, p.value_heads, p.key_dim});
          for (I i = 0; i < g.size(); ++i) g.set_bits(i, t.at("g").bits(i / 2));
          t["g"] = std::move(g);
          t.erase("angle");
        });
        break;
      case Rule::linear:
        as("as a decayed sum", Rule::gated_linear, [&](TensorSet& t) {
          t["g"] = Tensor(p.gate, per_head);
          t["beta"] = filled(p.beta, per_head, 1);
        });
        as("as retention", Rule::retention, [&](TensorSet& t) { t["g"] = Tensor(p.gate, per_head); });
        break;
      case Rule::retention:
        as("as a decayed sum", Rule::gated_linear, [&](TensorSet& t) { t["beta"] = filled(p.beta, per_head, 1); });
        break;
      case Rule::gated_linear:
        as("without writes", Rule::gated_linear, [&](TensorSet& t) { t["beta"] = Tensor(p.beta, per_head); });
        as("delta without writes", Rule::gated_delta, [&](TensorSet& t) { t["beta"] = Tensor(p.beta, per_head); });
        as("without memory", Rule::gated_linear, [&](TensorSet& t) { t["g"] = filled(p.gate, per_head, -1000); });
        as("delta without memory", Rule::gated_delta, [&](TensorSet& t) { t["g"] = filled(p.gate, per_head, -1000); });
        break;
      case Rule::delta:
        as("as the gated rule", Rule::gated_delta, [&](TensorSet& t) { t["g"] = Tensor(p.gate, per_head); });
        relate::add_negated_values(c);
        break;
      default: {
        Problem scalar = p;
        scalar.rule = Rule::gated_delta;
        const Tensor one = fill::inputs(scalar, seed, style).at("g");
        as("one decay for all key channels", Rule::kda, [&](TensorSet& t) {
          for (I i = 0; i < t.at("g").size(); ++i) t.at("g").set_bits(i, one.bits(i / p.key_dim));
        });
        as("as the gated rule", Rule::gated_delta, [&](TensorSet& t) { t["g"] = one; });
      }
    }
    return c;
  }
};

const Rules family;
const RegisterFamily registered(&family);

}  // namespace
}  // namespace gdn
