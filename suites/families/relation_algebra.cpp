// Case family `relation_algebra`: what the algebra of a step makes of changed inputs: zeros, powers of two, signs, and channels that never meet
// (rows 7 to 13, 32). There to catch what a bound forgives: thresholds, epsilons, clamps, roundings that depend on the sign, stale memory.
#include "suites/families/fill.h"
#include "suites/families/relate.h"
#include "suites/family.h"

namespace gdn {
namespace {

using I = std::int64_t;

struct RelationAlgebra final : Family {
  std::string name() const override { return "relation_algebra"; }
  std::string profile() const override { return "core"; }
  std::string rationale() const override {
    return "Without values and initial state everything is zero, with queries of zero the outputs are. Scaling v and h0, or q, by a power of two scales the results; k by 2^m, beta by 2^-2m and v by "
           "2^m changes nothing. Negating key and value of some tokens, all values with the initial state, the queries, or key channels everywhere changes signs and nothing else, for every "
           "rounding that is symmetric. What keys of the first half of the channels write does not matter to queries in the second. No rounding can tell such runs apart, so an epsilon, a clamp, a "
           "threshold, a value cut off instead of rounded, or memory that is not the problem's shows in the last bit.";
  }
  std::string own_fault() const override { return "scores_rounded_down"; }
  std::vector<std::string> kinds() const override {
    return {"rounding-truncates", "unwanted-normalisation", "beta-clamped", "scale-wrong", "correction-wrong-weight", "saturation-wrong", "sign-wrong", "key-channels-dropped", "beta-shifted",
            "gate-mask-by-value", "workspace-stale", "output-unwritten", "initial-state-transposed", "final-state-transposed", "initial-state-ignored"};
  }
  std::vector<Problem> problems(Level level) const override {
    if (level == Level::smoke) return fill::problems({"prefill/n1_t70_h1_hv2_k64_v32/bf16/h0", "prefill/n1_t70_h1_hv2_k64_v32/fp32/h0"});
    return fill::problems({"prefill/n1_t130_h2_hv4_k64_v32/bf16/h0", "prefill/n1_t130_h2_hv4_k64_v32/fp32/h0", "prefill/n1_t50_h1_hv2_k128_v128/bf16/h0"});
  }
  Case make(const Problem& p, std::uint64_t seed) const override {
    fill::require_prefill(name(), p);
    fill::Style style;
    style.gates = {fill::Gates::mild, fill::Gates::slow, fill::Gates::faded, fill::Gates::zero};
    Case c = fill::single(name(), p, seed, fill::inputs(p, seed, style));
    zeros(c);
    powers_of_two(c);
    signs(c, seed);
    if (p.key_dim > 1) apart(c);
    return c;
  }

 private:
  static void clear(Run& r, const char* tensor) {
    if (const auto it = r.inputs.find(tensor); it != r.inputs.end()) it->second = Tensor(it->second.dtype, it->second.shape);
  }
  static void zeros(Case& c) {
    const std::size_t nothing = relate::add_run(c, "no values", [](Run& r) { clear(r, "v"); clear(r, "h0"); });
    relate::add(c, 7, RelationClass::bit, nothing, "v = 0 and h0 = 0 give o = 0 and ht = 0", relate::base_times(nothing, 0, 0));
    const std::size_t unasked = relate::add_run(c, "no queries", [](Run& r) { clear(r, "q"); });
    relate::add(c, 7, RelationClass::bit, unasked, "q = 0 gives o = 0 and the same ht", relate::base_times(unasked, 0, 1));
  }
  static void powers_of_two(Case& c) {
    const auto times = [](Run& r, const char* tensor, double f) {
      if (const auto it = r.inputs.find(tensor); it != r.inputs.end()) it->second = relate::scaled(it->second, f);
    };
    const std::size_t values = relate::add_run(c, "values times 8", [&](Run& r) { times(r, "v", 8); times(r, "h0", 8); });
    relate::add(c, 8, RelationClass::bit, values, "v and h0 times 8 give o and ht times 8", relate::base_times(values, 8, 8));
    if (c.problem.unit) return;                    // the rest changes lengths
    // A query near the end of fp16's range becomes subnormal by 1/4, and then is not a quarter any more.
    const double f = relate::scales_exactly(c.runs[0].inputs.at("q"), 0.25) ? 0.25 : 4;
    const std::string by = f < 1 ? "1/4" : "4";
    const std::size_t queries = relate::add_run(c, f < 1 ? "queries times 0.25" : "queries times 4", [&](Run& r) { times(r, "q", f); });
    relate::add(c, 9, RelationClass::bit, queries, "q times " + by + " gives o times " + by + " and the same ht", relate::base_times(queries, f, 1));
    if (c.runs[0].inputs.count("beta") && relate::scales_exactly(c.runs[0].inputs.at("beta"), 0.25)) {
      const std::size_t keys = relate::add_run(c, "keys times 2", [&](Run& r) { times(r, "k", 2); times(r, "beta", 0.25); times(r, "v", 2); });
      relate::add(c, 10, RelationClass::bit, keys, "k times 2, beta times 1/4, v times 2 change nothing", relate::base_times(keys, 1, 1, true));
    }
  }
  static void signs(Case& c, std::uint64_t seed) {
    const Problem& p = c.problem;
    const Random token_sign(seed, "sign.token"), channel_sign(seed, "sign.channel");
    const I T = p.tokens(), H = p.heads, HV = p.value_heads, K = p.key_dim, V = p.value_dim, r = HV / H;
    const auto minus = [](Tensor& t, I from, I count, I step = 1) {
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
    const std::size_t queries = relate::add_run(c, "queries negated", [](Run& run) { run.inputs["q"] = relate::scaled(run.inputs.at("q"), -1); });
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
  }
  // Keys in the first half of the key channels, queries in the second.
  static void apart(Case& c) {
    const Problem& p = c.problem;
    const I rows = p.tokens() * p.heads, K = p.key_dim, V = p.value_dim, half = K / 2;
    const auto separate = [=](Run& r) {
      for (I i = 0; i < rows; ++i)
        for (I d = 0; d < K; ++d) r.inputs.at(d < half ? "q" : "k").set(i * K + d, 0);
    };
    const std::size_t written = relate::add_run(c, "keys and queries apart", separate);
    const std::size_t silent = relate::add_run(c, "nothing written", [&](Run& r) { separate(r); clear(r, "beta"); });
    Relation& r = relate::add(c, 32, RelationClass::bit, silent, "what is written in other key channels does not matter", [=](const std::vector<TensorSet>& results) { return results[written]; });
    for (I s = 0; s < p.sequences() * p.value_heads; ++s)
      for (I e = 0; e < half * V; ++e) r.skip["ht"].push_back(s * K * V + e);
  }
};

const RelationAlgebra family;
const RegisterFamily registered(&family);

}  // namespace
}  // namespace gdn
