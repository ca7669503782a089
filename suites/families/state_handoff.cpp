// Case family `state_handoff`: initial and final states, and sequences continued in several calls, cut anywhere.
// There to catch states that are ignored, transposed, decayed wrongly or lost between calls.
#include "suites/families/fill.h"
#include "suites/family.h"

namespace gdn {
namespace {

struct StateHandoff final : Family {
  std::string name() const override { return "state_handoff"; }
  std::string profile() const override { return "core"; }
  std::string rationale() const override {
    return "Most tests run one call from a zero state and never look at the final one. Here every run starts from a state of "
           "real size that is not symmetric, the first token after each cut decays it visibly, and the final state of one call "
           "starts the next: one token first, one token last, cuts on, before and after chunk borders. K differs from V in some, so that a transposed state cannot hide.";
  }
  std::vector<std::string> kinds() const override {
    return {"initial-state-ignored", "initial-state-decay-wrong", "initial-state-transposed", "final-state-transposed",
            "final-state-wrong", "final-state-unwritten", "state-handoff-broken", "state-stride-wrong", "state-shared-between-heads",
            "state-decay-wrong-at-chunk-border", "cross-term-missing", "workspace-stale", "correction-before-decay"};
  }
  std::vector<Problem> problems(Level level) const override {
    if (level == Level::smoke)
      return fill::problems(
          {"prefill/n1_t70_h1_hv2_k128_v128/bf16/h0,split=65", "prefill/n1_t70_h1_hv2_k64_v64/fp32/h0,split=64",
           "prefill/n1_t66_h1_hv2_k64_v64/bf16/h0,split=1.65", "prefill/n1_t40_h1_hv2_k64_v32/fp32/h0,split=17",
           "prefill/n1_t66_h1_hv1_k128_v128/fp32/h0,split=1.65", "prefill/n1_t3_h2_hv4_k128_v128/bf16/h0", "prefill/n1_t20_h1_hv2_k32_v32/bf16/h0,noht"});
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
    return c;
  }
};

const StateHandoff family;
const RegisterFamily registered(&family);

}  // namespace
}  // namespace gdn
