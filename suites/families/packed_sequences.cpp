// Case family `packed_sequences`: several sequences along one token axis, some of length zero and one; a few of them also alone and in reverse order
// (rows 24, 25). There to catch states, gates and chunks that cross from one sequence into another, lengths 0 and 1, and results that depend on the
// other sequences, on their order, or on the batch size.
#include "suites/families/fill.h"
#include "suites/families/relate.h"
#include "suites/family.h"

namespace gdn {
namespace {

using I = std::int64_t;

struct PackedSequences final : Family {
  std::string name() const override { return "packed_sequences"; }
  std::string profile() const override { return "varlen"; }
  std::string rationale() const override {
    return "Sequences of lengths 0, 1, C-1, C, C+1 side by side, empty ones first, last and twice in a row. Nothing is forgotten in "
           "one head, so whatever a sequence leaves behind would show in the next; the first token of each sequence has a "
           "decay of its own, so that a gate sum that runs on over the border shows. Some buffers are longer than the last "
           "offset, and the rows past it are NaN. Some sequences after the first have three chunks, and some tensors 16 bits. "
           "Of few and short ones each alone, and all of them in reverse order, must give the same numbers as in the packed call, where the kernel declares that the shape does not matter; every run "
           "is judged by the bound as well.";
  }
  std::string own_fault() const override { return "summation_order_by_batch"; }
  std::vector<std::string> kinds() const override {
    return {"state-leaks-into-next-sequence", "sequence-border-off-by-one", "chunks-cross-sequences", "sequence-gates-cross",
            "empty-sequence-mishandled", "one-token-sequence-mishandled", "sequence-state-mixed", "padding-used",
            "initial-state-ignored", "final-state-unwritten", "final-state-wrong", "tail-padding-read", "state-zeroed-at-chunk-border", "state-stride-wrong",
            "batch-dependent"};
  }
  std::vector<Problem> problems(Level level) const override {
    if (level == Level::smoke)
      return fill::problems(
          {"prefill/n4_t30+0+1+34_h1_hv2_k128_v128/bf16/h0,pad=3", "prefill/n4_t65+0+1+17_h1_hv2_k64_v64/fp32/h0,pad=3",
           "prefill/n4_t30+0+1+34_h1_hv2_k64_v64/bf16", "prefill/n4_t33+0+1+40_h1_hv2_k64_v32/bf16/h0", "prefill/n4_t33+0+1+40_h1_hv2_k64_v32/fp32/h0", "prefill/n3_t0+33+1_h1_hv1_k128_v128/fp32/h0,pad=1",
           "prefill/n1_t0_h1_hv2_k64_v64/fp32/h0", "prefill/n3_t65+1+2_h1_hv1_k64_v64/fp16/h0"});
    std::vector<Problem> list;
    for (const char* dtype : {"bf16", "fp32"})
      for (const char* text :
           {"n5_t64+0+1+63+65_h1_hv2_k64_v64/*/h0", "n5_t64+0+1+63+65_h1_hv2_k64_v64/*", "n3_t3+0+2_h2_hv4_k64_v64/*/h0,pad=5",
            "n2_t0_h1_hv2_k64_v64/*/h0", "n1_t0_h1_hv2_k64_v64/*/h0", "n1_t100_h1_hv2_k64_v64/*/h0,split=0.50.50", "n6_t0x2+17+1x2+0_h1_hv2_k64_v64/*/h0", "n2_t128+1_h1_hv2_k64_v64/*/h0,pad=64",
            "n8_t1_h2_hv4_k64_v64/*/h0", "n2_t47+80_h1_hv2_k64_v64/*/h0,split=20", "n4_t30+0+1+34_h1_hv2_k128_v128/*/h0,pad=3",
            "n3_t65+1+0_h1_hv2_k128_v128/*/h0", "n16_t1x4+2x4+3x4+0x2+9x2_h1_hv2_k32_v32/*/h0", "n2_t16+15_h1_hv2_k64_v32/*/h0",
            "n3_t33+31+32_h1_hv2_k32_v32/*/noht"}) {
        std::string t = text;
        t.replace(t.find('*'), 1, dtype);
        list.push_back(parse_problem("prefill/" + t));
      }
    for (Problem& small : fill::problems({"prefill/n4_t65+0+1+64_h2_hv4_k64_v32/bf16/h0", "prefill/n4_t65+0+1+64_h2_hv4_k64_v32/fp32/h0", "prefill/n3_t17+2+30_h1_hv2_k64_v64/fp32"}))
      list.push_back(std::move(small));
    // Several chunks in a later sequence, wide keys in a fifth one, 16 bits everywhere.
    for (const char* text : {"prefill/n3_t5+150+133_h1_hv2_k32_v32/bf16/h0", "prefill/n3_t5+150+133_h1_hv2_k32_v32/fp32/h0",
                             "prefill/n6_t3+2+1+4+2+5_h1_hv2_k128_v128/bf16/h0", "prefill/n6_t3+2+1+4+2+5_h1_hv2_k128_v128/fp32/h0",
                             "prefill/n3_t7+40+66_h1_hv2_k32_v32/bf16/h0,state=bf16", "prefill/n3_t7+40+66_h1_hv2_k32_v32/fp16/h0",
                             "prefill/n3_t7+40+66_h1_hv2_k32_v32/fp16/h0,g=fp16,beta=fp16,state=fp16", "prefill/n3_t7+40+66_h1_hv2_k32_v32/bf16/h0,g=bf16,beta=bf16",
                             "prefill/n3_t7+40+66_h1_hv2_k32_v32/fp32/h0,g=bf16,beta=bf16,state=bf16"})
      list.push_back(parse_problem(text));
    if (level != Level::ci)
      for (Problem& more : fill::problems({"prefill/n300_t1x100+5x100+17x100_h1_hv2_k16_v16/fp32/h0",
                                           "prefill/n4_t1000+1+777+64_h2_hv4_k128_v128/bf16/h0", "prefill/n4096_t3_h1_hv1_k16_v16/bf16/h0"}))
        list.push_back(std::move(more));
    return list;
  }
  Case make(const Problem& p, std::uint64_t seed) const override {
    fill::require_prefill(name(), p);
    fill::Style style;
    style.gates = {fill::Gates::slow, fill::Gates::mild, fill::Gates::zero};
    style.betas = {fill::Betas::sparse, fill::Betas::unit, fill::Betas::sparse};
    Case c = fill::single(name(), p, seed, fill::inputs(p, seed, style));
    // First and last token of every sequence of every second head decay visibly and differently.
    if (const auto g = c.runs[0].inputs.find("g"); g != c.runs[0].inputs.end() && p.rule == Rule::gated_delta) {
      const auto offsets = p.offsets();
      for (std::size_t n = 0; n < p.lengths.size(); ++n)
        for (std::int64_t h = 1; p.lengths[n] > 0 && h < p.value_heads; h += 2) {
          g->second.set((offsets[n + 1] - 1) * p.value_heads + h, -0.375);
          g->second.set(offsets[n] * p.value_heads + h, n % 2 ? -0.25 : -0.625);
        }
    }
    if (p.sequences() > 1 && p.sequences() <= 4 && p.tokens() <= 130 && p.split.empty()) add_separate(c);
    return c;
  }

 private:
  static void add_separate(Case& c) {
    const Problem p = c.problem;
    const I N = p.sequences(), HV = p.value_heads, KV = p.key_dim * p.value_dim;
    const auto offsets = p.offsets();
    // The run with these sequences of run 0, in this order, without padding.
    auto pick = [&](Run& run, const std::vector<I>& sequences) {
      Problem q = p;
      q.padding = 0;
      q.lengths.clear();
      std::vector<I> tokens;
      for (const I n : sequences) {
        q.lengths.push_back(p.lengths[static_cast<std::size_t>(n)]);
        for (I t = offsets[static_cast<std::size_t>(n)]; t < offsets[static_cast<std::size_t>(n) + 1]; ++t) tokens.push_back(t);
      }
      TensorSet picked = fill::allocate(q);
      for (auto& [name, t] : picked) {
        if (name == "cu_seqlens") continue;
        const Tensor& whole = run.inputs.at(name);
        const std::vector<I>& from = name == "h0" ? sequences : tokens;
        const I width = from.empty() ? 0 : t.size() / static_cast<I>(from.size());
        for (std::size_t i = 0; i < from.size(); ++i)
          for (I e = 0; e < width; ++e) t.set_bits(static_cast<I>(i) * width + e, whole.bits(from[i] * width + e));
      }
      run.problem = q;
      run.inputs = std::move(picked);
      return tokens;
    };
    auto relation = [&](const std::string& name, const std::string& statement, const std::vector<I>& sequences, int row) {
      std::vector<I> tokens;
      const std::size_t rhs = relate::add_run(c, name, [&](Run& run) { tokens = pick(run, sequences); }, true);
      const I width = HV * p.value_dim;
      relate::add(c, row, RelationClass::shape_invariant, rhs, statement, [=](const std::vector<TensorSet>& results) {
        TensorSet e;
        for (const auto& [tensor, t] : results[0]) {
          const bool state = tensor == "ht";
          const std::vector<I>& from = state ? sequences : tokens;
          auto shape = t.shape;
          shape[0] = static_cast<I>(from.size());
          const I w = state ? HV * KV : width;
          Tensor part(t.dtype, shape);
          for (std::size_t i = 0; i < from.size(); ++i)
            for (I j = 0; j < w; ++j) part.set_bits(static_cast<I>(i) * w + j, t.bits(from[i] * w + j));
          e.emplace(tensor, std::move(part));
        }
        return e;
      });
    };
    std::vector<I> reversed;
    for (I n = 0; n < N; ++n) {
      reversed.insert(reversed.begin(), n);
      relation("sequence " + std::to_string(n) + " alone", "a sequence alone gives what it gives in the pack", {n}, 24);
    }
    relation("sequences reversed", "sequences in another order give the same numbers in that order", reversed, 25);
  }
};

const PackedSequences family;
const RegisterFamily registered(&family);

}  // namespace
}  // namespace gdn
