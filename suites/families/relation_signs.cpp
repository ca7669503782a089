// Case family `relation_signs`: changes of sign come out as changes of sign (rows 11, 12, 13).
// There to catch lanes that are treated apart, rounding that depends on the sign, and absolute values.
#include "suites/families/fill.h"
#include "suites/families/relate.h"
#include "suites/family.h"

namespace gdn {
namespace {

using I = std::int64_t;

struct RelationSigns final : Family {
  std::string name() const override { return "relation_signs"; }
  std::string profile() const override { return "core"; }
  std::string rationale() const override {
    return "Negating key and value of a token, all values with the initial state, the queries, or a key channel "
           "everywhere must give the same numbers up to sign, for every rounding that is symmetric. A dropped lane, "
           "a mask by value or a value cut off instead of rounded does not.";
  }
  std::vector<std::string> kinds() const override {
    return {"sign-wrong", "rounding-truncates", "key-channels-dropped", "beta-shifted", "gate-mask-by-value",
            "state-stride-wrong"};
  }
  std::vector<Problem> problems(Level level) const override {
    if (level == Level::smoke) return fill::problems({"prefill/n1_t70_h1_hv2_k64_v32/bf16/h0",
                                                     "prefill/n1_t70_h1_hv2_k64_v32/fp32/h0"});
    return fill::problems({"prefill/n1_t130_h2_hv4_k64_v32/bf16/h0", "prefill/n1_t130_h2_hv4_k64_v32/fp32/h0",
                           "prefill/n1_t50_h1_hv2_k128_v128/bf16/h0"});
  }
  Case make(const Problem& p, std::uint64_t seed) const override {
    fill::require_prefill(name(), p);
    fill::Style style;
    style.gates = {fill::Gates::mild, fill::Gates::slow, fill::Gates::spikes, fill::Gates::zero};
    Case c = fill::single(name(), p, seed, fill::inputs(p, seed, style));
    const Random token_sign(seed, "sign.token"), channel_sign(seed, "sign.channel");
    const I T = p.tokens(), H = p.heads, HV = p.value_heads, K = p.key_dim, V = p.value_dim, r = HV / H;
    auto minus = [](Tensor& t, I from, I count, I step = 1) {
      for (I i = 0; i < count; ++i) t.set(from + i * step, -t.at(from + i * step));
    };
    const std::size_t tokens = relate::add_run(c, "tokens negated", [&](Run& run) {
      for (I t = 0; t < T; ++t)
        for (I h = 0; h < H; ++h)
          if (token_sign.below(static_cast<std::uint64_t>(t * H + h), 2)) {
            minus(run.inputs.at("k"), (t * H + h) * K, K);
            minus(run.inputs.at("v"), (t * HV + h * r) * V, r * V);
          }
    });
    relate::add(c, 11, RelationClass::symmetric_rounding, tokens, "(k, v) negated at some tokens change nothing", relate::base_times(tokens, 1, 1));
    relate::add_negated_values(c);
    const std::size_t queries = relate::add_run(c, "queries negated", [&](Run& run) { run.inputs["q"] = relate::scaled(run.inputs.at("q"), -1); });
    relate::add(c, 12, RelationClass::symmetric_rounding, queries, "q negated gives o negated and the same ht", relate::base_times(queries, -1, 1));
    std::vector<I> flipped;
    for (I d = 0; d < K; ++d)
      if (channel_sign.below(static_cast<std::uint64_t>(d), 2)) flipped.push_back(d);
    const std::size_t channels = relate::add_run(c, "key channels negated", [&](Run& run) {
      for (const I d : flipped) {
        minus(run.inputs.at("k"), d, T * H, K);
        minus(run.inputs.at("q"), d, T * H, K);
        if (p.initial_state)
          for (I s = 0; s < p.sequences() * HV; ++s) minus(run.inputs.at("h0"), (s * K + d) * V, V);
      }
    });
    relate::add(c, 13, RelationClass::symmetric_rounding, channels, "some key channels negated in k, q and h0 leave o, and negate those rows of ht",
                [flipped, K, V](const std::vector<TensorSet>& results) {
                  TensorSet e = results[0];
                  if (const auto ht = e.find("ht"); ht != e.end())
                    for (I s = 0; s < ht->second.size() / (K * V); ++s)
                      for (const I d : flipped)
                        for (I j = 0; j < V; ++j) ht->second.set((s * K + d) * V + j, -ht->second.at((s * K + d) * V + j));
                  return e;
                });
    return c;
  }
};

const RelationSigns family;
const RegisterFamily registered(&family);

}  // namespace
}  // namespace gdn
