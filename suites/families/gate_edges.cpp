// Case families `gate_range` and `gate_edges`: every size of gate that there is, constant, as spikes and mixed.
// There to catch clamps, fill values, sums that wrap or absorb, and decays that underflow: gate_range down to -1e4, which
// core claims, gate_edges with -1e30 and -inf, where differences of gate sums stop being numbers.
#include <limits>

#include "suites/families/fill.h"
#include "suites/families/relate.h"
#include "suites/family.h"

namespace gdn {
namespace {

using I = std::int64_t;
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kRange[] = {-1e4, -0.5, -104, -5, -1e-7, -88, -20, -1e-3, 0};
constexpr double kEdges[] = {-kInfinity, -0.5, -1e30, -1e-3, -1e4, -20, 0, -90};

struct GateSizes final : Family {
  explicit GateSizes(bool infinite) : infinite_(infinite) {}
  std::string name() const override { return infinite_ ? "gate_edges" : "gate_range"; }
  std::string profile() const override { return infinite_ ? "gate_edges" : "core"; }
  std::string rationale() const override {
    return std::string(infinite_ ? "g=-inf is a full reset, g=-1e30 one that no integer and no 16-bit format holds; differences of two such "
                                   "gate sums are NaN or lose all that follows. "
                                 : "Tests draw gates of one size. Here heads hold one of {0, -1e-7, -1e-3, -0.5, -5, -20, -88, -104, -1e4} "
                                   "for the whole sequence, so that chunk sums reach -640000 and decays fall through the subnormal range. ") +
           "Other heads are slow with single spikes of these sizes, over heads and chunks at every row position of a chunk, or change size with "
           "every token. beta is often 0, tiny, 1/2, 1 or next to 1. v and h0 negated must give the same bits negated, which decides where a "
           "coarse contract's bound cannot.";
  }
  std::string own_fault() const override { return infinite_ ? "infinite_gates_subtracted" : "masked_fill_gate_skips_token"; }
  std::vector<std::string> kinds() const override {
    if (infinite_) return {"gate-infinite", "gate-reset-lost", "gate-absorbed", "gate-ratio-factored", "gate-mask-multiplied", "gate-clamped"};
    return {"gate-clamped", "gate-reset-lost", "gate-absorbed", "gate-ratio-factored", "gate-mask-multiplied", "gate-mask-by-value",
            "gate-shifted", "gate-ignored", "gate-base-mixed", "gate-tiny-lost", "saturation-wrong", "gate-domain-mixed", "beta-clamped"};
  }
  std::vector<Problem> problems(Level level) const override {
    std::vector<Problem> p;
    auto add = [&](std::initializer_list<const char*> shapes) {
      for (const char* shape : shapes)
        for (const char* dtype : {"bf16", "fp32"}) p.push_back(parse_problem(std::string("prefill/") + shape + "/" + dtype + "/h0"));
    };
    if (level == Level::smoke) add({"n1_t70_h2_hv6_k32_v32"});
    else add({"n1_t66_h2_hv6_k64_v64", "n1_t37_h1_hv3_k128_v128", "n1_t200_h3_hv9_k32_v32", "n1_t130_h2_hv4_k64_v32"});
    if (level != Level::smoke && level != Level::ci) add({"n1_t1000_h9_hv27_k32_v32", "n1_t840_h2_hv8_k64_v64", "n1_t300_h3_hv9_k128_v128"});
    return p;
  }
  Case make(const Problem& p, std::uint64_t seed) const override {
    fill::require_prefill(name(), p);
    fill::Style style;
    style.gates = {fill::Gates::slow};
    style.betas = {fill::Betas::unit, fill::Betas::sparse};
    Case c = fill::single(name(), p, seed, fill::inputs(p, seed, style));
    const I HV = p.value_heads;
    const auto g = c.runs[0].inputs.find("g"), beta = c.runs[0].inputs.find("beta");
    const Random choose(seed, "g.edge"), weight(seed, "beta.edge");
    const I S = static_cast<I>(seed);
    for (std::size_t n = 0; n < p.lengths.size(); ++n)
      for (I t = 0; t < p.lengths[n]; ++t)
        for (I h = 0; h < HV; ++h) {
          const I at = (p.offsets()[n] + t) * HV + h;
          const auto u = static_cast<std::uint64_t>(at);
          // The last head keeps its slow gates in the second half, so that some final state remembers the first whatever the seed.
          if (g != c.runs[0].inputs.end() && p.rule == Rule::gated_delta && !(h == HV - 1 && 2 * t >= p.lengths[n])) {
            if (h % 3 == 0) g->second.set(at, edge(h / 3 + S + p.lengths[n]));
            else if (h % 3 == 1 && (t + 5 * h + S) % 13 == 0) g->second.set(at, edge((t + 5 * h + S) / 13));
            else if (h % 3 == 2 && choose.below(u, 4) == 0) g->second.set(at, edge(static_cast<I>(choose.below(u | 1ull << 50, 72))));
          }
          if (beta != c.runs[0].inputs.end() && weight.below(u, 2)) {
            constexpr double some[] = {0, 0x1p-40, 0.5, 1, 1 - 0x1p-24, 1 - 0x1p-8};
            beta->second.set(at, some[weight.below(u | 1ull << 50, 6)]);
          }
        }
    relate::add_negated_values(c);
    return c;
  }

 private:
  double edge(I i) const { return infinite_ ? kEdges[i % 8] : kRange[i % 9]; }
  bool infinite_;
};

const GateSizes range(false), edges(true);
const RegisterFamily registered_range(&range), registered_edges(&edges);

}  // namespace
}  // namespace gdn
