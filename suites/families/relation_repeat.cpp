// Case family `relation_repeat`: the same call twice gives the same bits, also after another one (row 36).
// There to catch races, stale workspaces and plans that remember.
#include "suites/families/fill.h"
#include "suites/families/relate.h"
#include "suites/family.h"

namespace gdn {
namespace {

using I = std::int64_t;

struct RelationRepeat final : Family {
  std::string name() const override { return "relation_repeat"; }
  std::string profile() const override { return "core"; }
  std::string rationale() const override {
    return "Run the problem, run another one of other shape and values, and run the first four times again (30 times at nightly): a kernel that "
           "declares itself deterministic must return the same bits. Results of a reused plan or workspace that "
           "still holds something of the call between would differ. So would results that depend on the number of threads, 1, 2 or 8. In one run more the "
           "tensors are aligned as the kernel declares and no further.";
  }
  std::string own_fault() const override { return "sums_split_by_threads"; }
  std::vector<std::string> kinds() const override {
    return {"nondeterministic", "workspace-stale", "output-unwritten", "layout-stride-ignored"};
  }
  std::vector<Problem> problems(Level level) const override {
    if (level == Level::smoke) return fill::problems({"prefill/n1_t70_h1_hv2_k64_v32/bf16/h0",
                                                     "prefill/n1_t70_h1_hv2_k64_v32/fp32/h0"});
    if (level != Level::ci)
      return fill::problems({"prefill/n1_t130_h2_hv4_k64_v32/bf16/h0", "prefill/n1_t130_h2_hv4_k64_v32/fp32/h0", "prefill/n1_t70_h1_hv2_k64_v64/bf16",
                             "prefill/n1_t300_h2_hv8_k32_v32/bf16/h0", "prefill/n1_t300_h2_hv8_k32_v32/fp32/h0"});   // the last two 30 times
    return fill::problems({"prefill/n1_t130_h2_hv4_k64_v32/bf16/h0", "prefill/n1_t130_h2_hv4_k64_v32/fp32/h0",
                           "prefill/n1_t70_h1_hv2_k64_v64/bf16"});
  }
  Case make(const Problem& p, std::uint64_t seed) const override {
    fill::require_prefill(name(), p);
    fill::Style style;
    style.gates = {fill::Gates::mild, fill::Gates::slow, fill::Gates::spikes, fill::Gates::zero};
    Case c = fill::single(name(), p, seed, fill::inputs(p, seed, style));
    relate::add_run(c, "another problem", [&](Run& r) {
      for (I& length : r.problem.lengths) length += 5;
      r.problem.split.clear();
      r.problem.initial_state = !p.initial_state;
      r.problem.final_state = true;
      r.inputs = fill::inputs(r.problem, seed + 0x9e3779b97f4a7c15u, style);
    });
    for (int i = 1; i <= (p.tokens() >= 300 ? 30 : 4); ++i) {   // what happens now and then only needs many runs, and is for nightly
      const std::size_t again = relate::add_run(c, "again " + std::to_string(i), [](Run&) {});
      relate::add(c, 36, RelationClass::deterministic, again, "the same call gives the same bits, whatever ran between", relate::base_times(again, 1, 1));
    }
    // Compared with each other and not with the runs before, so that the verdict is the same on machines of any size.
    const auto with = [&](int threads) { return relate::add_run(c, "with " + std::to_string(threads) + " threads", [&](Run& r) { r.threads = threads; }); };
    const std::size_t one = with(1);
    for (const int threads : {2, 8})
      relate::add(c, 36, RelationClass::deterministic, with(threads), "the same call gives the same bits with another number of threads", [=](const std::vector<TensorSet>& results) { return results[one]; });
    // Judged by itself: where a kernel's sums begin may follow the address.
    relate::add_run(c, "least alignment", [](Run& r) { r.least_aligned = true; }, true);
    return c;
  }
};

const RelationRepeat family;
const RegisterFamily registered(&family);

}  // namespace
}  // namespace gdn
