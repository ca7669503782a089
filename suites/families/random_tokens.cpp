// Case family `random_tokens`: no two tokens alike, nothing constant, so that rounding errors are random and can be judged
// by their statistics. There to catch precision below the declaration that hides under every worst-case bound.
#include "suites/families/fill.h"
#include "suites/family.h"

namespace gdn {
namespace {

struct RandomTokens final : Family {
  std::string name() const override { return "random_tokens"; }
  std::string profile() const override { return "core"; }
  bool random() const override { return true; }
  std::string rationale() const override {
    return "A value cut instead of rounded, or one point kept shorter than declared, changes results by less than the worst case of "
           "everything that the contract allows, so no bound sees it. The statistics of many errors do, but only "
           "where errors are random: no key, value, gate or beta is repeated, constant, zero or one. Keys share a "
           "direction, so that corrections are real, and decays reach from a few tokens to hundreds.";
  }
  std::string own_fault() const override { return "corrected_values_cast_by_cutting"; }
  std::vector<std::string> kinds() const override {
    return {"rounding-truncates", "beta-narrowed", "gate-narrowed", "operand-narrowed", "inverse-narrowed", "state-narrowed"};
  }
  std::vector<Problem> problems(Level level) const override {
    std::vector<Problem> p = fill::problems({"prefill/n1_t200_h1_hv2_k64_v64/bf16/h0", "prefill/n1_t200_h1_hv2_k64_v64/fp32/h0"});
    if (level == Level::smoke) return p;
    p = fill::problems({"prefill/n1_t600_h1_hv2_k64_v64/bf16/h0", "prefill/n1_t600_h1_hv2_k64_v64/fp32/h0",
                        "prefill/n1_t300_h1_hv2_k128_v128/bf16/h0", "prefill/n1_t200_h1_hv2_k128_v128/fp32/h0",
                        "prefill/n1_t300_h1_hv2_k64_v64/fp16/h0"});
    if (level != Level::ci)
      for (Problem& more : fill::problems({"prefill/n1_t1000_h4_hv8_k128_v128/bf16/h0", "prefill/n1_t1000_h4_hv8_k128_v128/fp32/h0"}))
        p.push_back(std::move(more));
    return p;
  }
  Case make(const Problem& p, std::uint64_t seed) const override {
    fill::require_prefill(name(), p);
    fill::Style style;
    style.gates = {fill::Gates::long_lived, fill::Gates::short_lived};
    style.keys = {fill::Keys::random};
    style.betas = {fill::Betas::open};
    return fill::single(name(), p, seed, fill::inputs(p, seed, style));
  }
};

const RandomTokens family;
const RegisterFamily registered(&family);

}  // namespace
}  // namespace gdn
