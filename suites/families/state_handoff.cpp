// Case family `state_handoff`: initial and final states, and sequences continued in several calls: cut anywhere, step by step, with identity tokens
// inside (rows 21, 23). There to catch states that are ignored, transposed, decayed wrongly or lost between calls, and results that depend on where in
// a call or chunk a token stands.
#include <algorithm>
#include <numeric>

#include "suites/families/fill.h"
#include "suites/families/relate.h"
#include "suites/family.h"

namespace gdn {
namespace {

using I = std::int64_t;

struct StateHandoff final : Family {
  std::string name() const override { return "state_handoff"; }
  std::string profile() const override { return "core"; }
  std::string rationale() const override {
    return "Most tests run one call from a zero state and never look at the final one. Here every run starts from a state of "
           "real size that is not symmetric, the first token after each cut decays it visibly, and the final state of one call "
           "starts the next: one token first, one token last, cuts on, before and after chunk borders. K differs from V in some, so that a transposed state cannot hide. "
           "A short sequence that is given in one call is also given cut at odd rows, token by token, and with tokens of beta=0 and g=0 inside or in front: the same tokens at other places of a call and "
           "of a chunk. A recurrent kernel that declares that the shape does not matter must return the same numbers; all runs are judged against the exact result.";
  }
  std::string own_fault() const override { return "summation_order_by_position"; }
  std::vector<std::string> kinds() const override {
    return {"initial-state-ignored", "initial-state-decay-wrong", "initial-state-transposed", "final-state-transposed",
            "final-state-wrong", "final-state-unwritten", "state-handoff-broken", "state-stride-wrong", "state-shared-between-heads",
            "state-decay-wrong-at-chunk-border", "cross-term-missing", "workspace-stale", "correction-before-decay", "batch-dependent",
            "one-token-sequence-mishandled"};
  }
  std::vector<Problem> problems(Level level) const override {
    if (level == Level::smoke)
      return fill::problems(
          {"prefill/n1_t70_h1_hv2_k128_v128/bf16/h0,split=65", "prefill/n1_t70_h1_hv2_k64_v64/fp32/h0,split=64",
           "prefill/n1_t66_h1_hv2_k64_v64/bf16/h0,split=1.65", "prefill/n1_t40_h1_hv2_k64_v32/fp32/h0,split=17",
           "prefill/n1_t66_h1_hv1_k128_v128/fp32/h0,split=1.65", "prefill/n1_t3_h2_hv4_k128_v128/bf16/h0",
           "prefill/n1_t21_h1_hv2_k64_v16/bf16/h0", "prefill/n1_t21_h1_hv2_k64_v16/fp32/h0", "prefill/n1_t20_h1_hv2_k32_v32/bf16/h0,noht"});
    std::vector<Problem> list;
    for (const char* dtype : {"bf16", "fp32"}) {
      for (const char* split : {"1", "17", "63", "64", "65", "99", "1.2.3.4", "64.99"})
        list.push_back(parse_problem(std::string("prefill/n1_t100_h1_hv2_k64_v64/") + dtype + "/h0,split=" + split));
      for (const char* text : {"n1_t130_h1_hv2_k128_v128/*/h0,split=64", "n1_t66_h1_hv2_k128_v128/*/h0,split=1.65",
                               "n1_t2_h2_hv4_k128_v128/*/h0,split=1", "n1_t1_h2_hv4_k128_v128/*/h0",
                               "n1_t80_h1_hv2_k64_v32/*/h0,split=33", "n1_t80_h1_hv2_k32_v64/*/h0,split=64",
                               "n1_t100_h1_hv2_k64_v64/*/split=40", "n1_t20_h1_hv2_k64_v64/*/h0,noht"}) {
        std::string t = text;
        t.replace(t.find('*'), 1, dtype);
        list.push_back(parse_problem("prefill/" + t));
      }
    }
    for (const char* text : {"prefill/n1_t70_h1_hv2_k64_v64/bf16/h0,state=bf16", "prefill/n1_t70_h1_hv2_k64_v64/bf16/h0,state=bf16,split=33",
                             "prefill/n1_t70_h1_hv2_k64_v64/fp16/h0,split=33"})
      list.push_back(parse_problem(text));
    for (Problem& uncut : fill::problems({"prefill/n1_t36_h1_hv2_k64_v32/bf16/h0", "prefill/n1_t36_h1_hv2_k64_v32/fp32/h0", "prefill/n1_t21_h2_hv4_k128_v128/bf16/h0",
                                          "prefill/n1_t99_h1_hv2_k64_v64/bf16/h0", "prefill/n1_t67_h1_hv3_k32_v64/fp32"}))
      list.push_back(std::move(uncut));
    if (level != Level::ci)
      for (Problem& uncut : fill::problems({"prefill/n1_t300_h1_hv2_k64_v64/fp32/h0", "prefill/n1_t300_h1_hv2_k128_v128/bf16/h0"})) list.push_back(std::move(uncut));
    if (level != Level::ci)
      for (int s = 0; s <= 140; ++s)   // resume at every row
        for (const char* dtype : {"bf16", "fp32"})
          list.push_back(parse_problem(std::string("prefill/n1_t140_h1_hv2_k64_v48/") + dtype + "/h0,split=" + std::to_string(s)));
    return list;
  }
  Case make(const Problem& p, std::uint64_t seed) const override {
    fill::require_prefill(name(), p);
    fill::Style style;
    style.gates = {fill::Gates::mild, fill::Gates::slow, fill::Gates::zero};
    style.betas = {fill::Betas::sparse};
    Case c = fill::single(name(), p, seed, fill::inputs(p, seed, style));
    // The first token of every call decays what it is given, differently per head.
    if (const auto g = c.runs[0].inputs.find("g"); g != c.runs[0].inputs.end() && p.rule == Rule::gated_delta) {
      std::vector<std::int64_t> starts{0};
      starts.insert(starts.end(), p.split.begin(), p.split.end());
      for (std::size_t n = 0; n < p.lengths.size(); ++n)
        for (const std::int64_t s : starts)
          for (std::int64_t h = 0; s < p.lengths[n] && h < p.value_heads; ++h)
            g->second.set((p.offsets()[n] + s) * p.value_heads + h, h % 2 ? -0.25 : -0.75);
    }
    if (p.split.empty() && p.final_state && p.state == DType::f32) add_cuts(c, style);   // a state in 16 bits is rounded at every cut
    return c;
  }

 private:
  static void add_cuts(Case& c, const fill::Style& style) {
    const Problem p = c.problem;
    const std::uint64_t seed = c.seed;
    const I shortest = *std::min_element(p.lengths.begin(), p.lengths.end());
    const auto cut = [&](const std::string& name, const std::vector<I>& rows) {
      const std::size_t at = relate::add_run(c, name, [&](Run& r) { r.problem.split = rows; }, true);
      relate::add(c, 21, RelationClass::recurrent, at, "a sequence cut anywhere continues with the same numbers", relate::base_times(at, 1, 1));
    };
    if (shortest > 1) {
      std::vector<I> odd, all;
      for (const I row : {1, 4, 17, 18, 65, 68, 129}) if (row < shortest) odd.push_back(row);
      cut("cut at odd rows", odd);
      for (I row = 1; row < std::min<I>(shortest, 40); ++row) all.push_back(row);
      cut("token by token", all);
    }
    if (fill::takes_identity_tokens(c.runs[0]) && shortest > 1) {
      // Where the old rows stand in the longer run; one, then two identity tokens more in every nine. None comes first: a kernel that
      // keeps the state in 16 bits would round h0 there, before its decay.
      std::vector<I> to;
      for (I t = 0, at = 0; t < p.tokens(); ++t, ++at) {
        if (t % 9 == 5) at += 1 + t / 9 % 2;
        to.push_back(at);
      }
      const std::size_t longer = relate::add_run(c, "identity tokens inside", [&](Run& r) { fill::add_identity_tokens(r, to, to.back() + 1, seed, style); }, true);
      // Padding on the left. No relation: a kernel that keeps the state in 16 bits rounds h0 before its first decay.
      relate::add_run(c, "identity tokens in front", [&](Run& r) {
        constexpr I more = 7;
        std::vector<I> behind(to.size());
        std::iota(behind.begin(), behind.end(), more);
        fill::add_identity_tokens(r, behind, p.tokens() + more, seed, style);
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
  }
};

const StateHandoff family;
const RegisterFamily registered(&family);

}  // namespace
}  // namespace gdn
