// Case family `relation_nonfinite`: a NaN or Inf in one value channel stays in it (rows 17, 19).
// There to catch reductions over value channels, masks that multiply, and results exchanged between lanes, heads or sequences.
#include <algorithm>
#include <limits>

#include "suites/families/fill.h"
#include "suites/families/relate.h"
#include "suites/family.h"

namespace gdn {
namespace {

using I = std::int64_t;

struct RelationNonfinite final : Family {
  std::string name() const override { return "relation_nonfinite"; }
  std::string profile() const override { return "core"; }
  std::string rationale() const override {
    return "A NaN, and in another head an infinity, is planted in one value of the middle of a sequence. Every other "
           "channel, head and sequence must be the same numbers as without it; the rows before it as well, where the "
           "kernel declares that its masks select.";
  }
  std::string own_fault() const override { return "values_scaled_by_row_peak"; }
  std::vector<std::string> kinds() const override {
    return {"nan-spreads", "value-channels-dropped", "state-shared-between-heads", "head-map-wrong", "layout-transposed"};
  }
  std::vector<Problem> problems(Level level) const override {
    if (level == Level::smoke) return fill::problems({"prefill/n1_t70_h1_hv2_k64_v32/bf16/h0",
                                                     "prefill/n1_t70_h1_hv2_k64_v32/fp32/h0"});
    return fill::problems({"prefill/n1_t130_h2_hv4_k64_v32/bf16/h0", "prefill/n1_t130_h2_hv4_k64_v36/fp32/h0",
                           "prefill/n1_t50_h1_hv2_k128_v128/bf16/h0"});
  }
  Case make(const Problem& p, std::uint64_t seed) const override {
    fill::require_prefill(name(), p);
    fill::Style style;
    style.gates = {fill::Gates::mild, fill::Gates::slow, fill::Gates::spikes, fill::Gates::zero};
    Case c = fill::single(name(), p, seed, fill::inputs(p, seed, style));
    const I HV = p.value_heads, K = p.key_dim, V = p.value_dim;
    if (p.tokens() == 0) return c;
    // The longest sequence, a row past the middle; the last head gets a NaN, the first an infinity.
    const auto n = static_cast<std::size_t>(std::max_element(p.lengths.begin(), p.lengths.end()) - p.lengths.begin());
    const I first = p.offsets()[n], row = p.lengths[n] * 4 / 7;
    struct Plant { I head, channel; double x; };
    std::vector<Plant> plants{{HV - 1, static_cast<I>(seed) % V, std::numeric_limits<double>::quiet_NaN()}};
    if (HV > 1) plants.push_back({0, (static_cast<I>(seed) + 11) % V, std::numeric_limits<double>::infinity()});
    const std::size_t broken = relate::add_run(c, "NaN and Inf planted", [&](Run& r) {
      for (const Plant& x : plants) r.inputs.at("v").set(((first + row) * HV + x.head) * V + x.channel, x.x);
    });
    auto all = [](const std::vector<TensorSet>& results) { return results[0]; };
    auto outputs = [](const std::vector<TensorSet>& results) { return TensorSet{{"o", results[0].at("o")}}; };
    Relation& others = relate::add(c, 17, RelationClass::bit, broken, "a NaN or Inf in one value channel leaves all others", all);
    for (const Plant& x : plants) {
      for (I t = 0; t < p.lengths[n]; ++t) others.skip["o"].push_back(((first + t) * HV + x.head) * V + x.channel);
      for (I d = 0; d < K; ++d) others.skip["ht"].push_back(((static_cast<I>(n) * HV + x.head) * K + d) * V + x.channel);
    }
    Relation& before = relate::add(c, 19, RelationClass::masks_select, broken, "a NaN or Inf leaves the rows before it, in its own channel too", outputs);
    for (const Plant& x : plants)
      for (I t = row; t < p.lengths[n]; ++t) before.skip["o"].push_back(((first + t) * HV + x.head) * V + x.channel);
    return c;
  }
};

const RelationNonfinite family;
const RegisterFamily registered(&family);

}  // namespace
}  // namespace gdn
