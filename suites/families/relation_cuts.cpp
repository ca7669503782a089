// Case family `relation_cuts`: cut anywhere, step by step, with identity tokens inside (rows 21, 23).
// There to catch results that depend on where in a call or chunk a token stands.
#include <algorithm>

#include "suites/families/fill.h"
#include "suites/families/relate.h"
#include "suites/family.h"

namespace gdn {
namespace {

using I = std::int64_t;

struct RelationCuts final : Family {
  std::string name() const override { return "relation_cuts"; }
  std::string profile() const override { return "core"; }
  std::string rationale() const override {
    return "A sequence cut at odd rows into several calls, or given token by token, and one with tokens of beta=0 and g=0 put inside or in front, hold the same "
           "tokens at other places of a call and of a chunk. A recurrent kernel that declares that the shape does not matter must return the same "
           "numbers; for every kernel all runs are judged against the exact result.";
  }
  std::vector<std::string> kinds() const override {
    return {"state-handoff-broken", "batch-dependent", "initial-state-ignored", "initial-state-decay-wrong", "final-state-wrong", "one-token-sequence-mishandled"};
  }
  std::vector<Problem> problems(Level level) const override {
    if (level == Level::smoke) return fill::problems({"prefill/n1_t21_h1_hv2_k64_v16/bf16/h0", "prefill/n1_t21_h1_hv2_k64_v16/fp32/h0"});
    std::vector<Problem> p = fill::problems({"prefill/n1_t36_h1_hv2_k64_v32/bf16/h0", "prefill/n1_t36_h1_hv2_k64_v32/fp32/h0", "prefill/n1_t21_h2_hv4_k128_v128/bf16/h0",
                                             "prefill/n1_t99_h1_hv2_k64_v64/bf16/h0", "prefill/n1_t67_h1_hv3_k32_v64/fp32"});
    if (level != Level::ci)
      for (Problem& more : fill::problems({"prefill/n1_t300_h1_hv2_k64_v64/fp32/h0", "prefill/n1_t300_h1_hv2_k128_v128/bf16/h0"})) p.push_back(std::move(more));
    return p;
  }
  Case make(const Problem& p, std::uint64_t seed) const override {
    fill::require_prefill(name(), p);
    fill::Style style;
    style.gates = {fill::Gates::mild, fill::Gates::slow, fill::Gates::spikes, fill::Gates::zero};
    Case c = fill::single(name(), p, seed, fill::inputs(p, seed, style));
    const I shortest = *std::min_element(p.lengths.begin(), p.lengths.end());
    auto cut = [&](const std::string& name, const std::vector<I>& rows) {
      const std::size_t at = relate::add_run(c, name, [&](Run& r) { r.problem.split = rows; }, true);
      relate::add(c, 21, RelationClass::recurrent, at, "a sequence cut anywhere continues with the same numbers", relate::base_times(at, 1, 1));
    };
    if (p.split.empty() && shortest > 1) {
      std::vector<I> odd, all;
      for (const I row : {1, 4, 17, 18, 65, 68, 129}) if (row < shortest) odd.push_back(row);
      cut("cut at odd rows", odd);
      for (I row = 1; row < std::min<I>(shortest, 40); ++row) all.push_back(row);
      cut("token by token", all);
    }
    if (p.sequences() == 1 && p.padding == 0 && p.split.empty() && shortest > 1 && c.runs[0].inputs.count("beta")) {
      // Where the old rows stand in the longer run; one, then two identity tokens more in every nine. None comes first: a kernel that
      // keeps the state in 16 bits would round h0 there, before its decay.
      std::vector<I> to;
      for (I t = 0, at = 0; t < p.tokens(); ++t, ++at) {
        if (t % 9 == 5) at += 1 + t / 9 % 2;
        to.push_back(at);
      }
      const std::size_t longer = relate::add_run(c, "identity tokens inside", [&](Run& r) {
        r.problem.lengths[0] = to.back() + 1;
        const TensorSet other = fill::inputs(r.problem, seed + 0x9e3779b97f4a7c15u, style);
        TensorSet grown = fill::allocate(r.problem);
        for (auto& [name, t] : grown) {
          if (name == "cu_seqlens") continue;
          const Tensor& old = r.inputs.at(name);
          if (name == "h0") {
            t = old;
            continue;
          }
          const I width = old.size() / p.tokens();
          if (name != "g" && name != "beta") t = other.at(name);
          for (std::size_t i = 0; i < to.size(); ++i)
            for (I e = 0; e < width; ++e) t.set_bits(to[i] * width + e, old.bits(static_cast<I>(i) * width + e));
        }
        r.inputs = std::move(grown);
      }, true);
      // Padding on the left. No relation: a kernel that keeps the state in 16 bits rounds h0 before its first decay.
      relate::add_run(c, "identity tokens in front", [&](Run& r) {
        constexpr I more = 7;
        r.problem.lengths[0] += more;
        const TensorSet other = fill::inputs(r.problem, seed + 0x9e3779b97f4a7c15u, style);
        TensorSet grown = fill::allocate(r.problem);
        for (auto& [name, t] : grown) {
          if (name == "cu_seqlens") continue;
          const Tensor& old = r.inputs.at(name);
          const I shift = name == "h0" ? 0 : more * (old.size() / p.tokens());
          if (name != "g" && name != "beta" && name != "h0") t = other.at(name);
          for (I i = 0; i < old.size(); ++i) t.set_bits(shift + i, old.bits(i));
        }
        r.inputs = std::move(grown);
      }, true);
      const I width = p.value_heads * p.value_dim;
      Relation& r = relate::add(c, 23, RelationClass::recurrent, longer, "tokens with beta = 0 and g = 0 inside leave all other outputs and ht",
                                [to, longer, width](const std::vector<TensorSet>& results) {
                                  TensorSet e = results[0];
                                  Tensor o = results.at(longer).at("o");
                                  for (std::size_t i = 0; i < to.size(); ++i)
                                    for (I j = 0; j < width; ++j) o.set_bits(to[i] * width + j, e.at("o").bits(static_cast<I>(i) * width + j));
                                  e["o"] = std::move(o);
                                  return e;
                                });
      for (I row = 0; row <= to.back(); ++row)
        if (!std::binary_search(to.begin(), to.end(), row))
          for (I j = 0; j < width; ++j) r.skip["o"].push_back(row * width + j);
    }
    relate::add_negated_values(c);
    return c;
  }
};

const RelationCuts family;
const RegisterFamily registered(&family);

}  // namespace
}  // namespace gdn
