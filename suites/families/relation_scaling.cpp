// Case family `relation_scaling`: powers of two moved between tensors change nothing but the exponent (rows 8, 9, 10).
// There to catch absolute thresholds, epsilons, clamps and hidden normalisations, which a bound forgives.
#include "suites/families/fill.h"
#include "suites/families/relate.h"
#include "suites/family.h"

namespace gdn {
namespace {

struct RelationScaling final : Family {
  std::string name() const override { return "relation_scaling"; }
  std::string profile() const override { return "core"; }
  std::string rationale() const override {
    return "Scaling v and h0, or q, by a power of two scales the results; scaling k by 2^m, beta by 2^-2m and v by "
           "2^m changes nothing. No rounding can tell the runs apart, so an epsilon, a clamp, a threshold or a "
           "normalisation that should not be there shows in its last bit.";
  }
  std::vector<std::string> kinds() const override {
    return {"unwanted-normalisation", "beta-clamped", "scale-wrong", "correction-wrong-weight",
            "saturation-wrong"};
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
    // No spikes: what decays through the subnormal range rounds by its size, and a power of two then shows.
    style.gates = {fill::Gates::mild, fill::Gates::slow, fill::Gates::resets, fill::Gates::zero};
    Case c = fill::single(name(), p, seed, fill::inputs(p, seed, style));
    auto times = [](Run& r, const char* tensor, double f) {
      if (const auto it = r.inputs.find(tensor); it != r.inputs.end()) it->second = relate::scaled(it->second, f);
    };
    const std::size_t values = relate::add_run(c, "values times 8", [&](Run& r) { times(r, "v", 8); times(r, "h0", 8); });
    relate::add(c, 8, RelationClass::bit, values, "v and h0 times 8 give o and ht times 8", relate::base_times(values, 8, 8));
    if (p.unit) return c;                          // the rest changes lengths
    // A query near the end of fp16's range becomes subnormal by 1/4, and then is not a quarter any more.
    const double f = relate::scales_exactly(c.runs[0].inputs.at("q"), 0.25) ? 0.25 : 4;
    const std::string by = f < 1 ? "1/4" : "4";
    const std::size_t queries = relate::add_run(c, f < 1 ? "queries times 0.25" : "queries times 4", [&](Run& r) { times(r, "q", f); });
    relate::add(c, 9, RelationClass::bit, queries, "q times " + by + " gives o times " + by + " and the same ht", relate::base_times(queries, f, 1));
    if (c.runs[0].inputs.count("beta") && relate::scales_exactly(c.runs[0].inputs.at("beta"), 0.25)) {
      const std::size_t keys = relate::add_run(c, "keys times 2", [&](Run& r) { times(r, "k", 2); times(r, "beta", 0.25); times(r, "v", 2); });
      relate::add(c, 10, RelationClass::bit, keys, "k times 2, beta times 1/4, v times 2 change nothing", relate::base_times(keys, 1, 1));
    }
    return c;
  }
};

const RelationScaling family;
const RegisterFamily registered(&family);

}  // namespace
}  // namespace gdn
