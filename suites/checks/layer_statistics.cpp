// Check `layer_statistics`: the errors of a layer that rounds hidden states or projections, or is large, look like those of its contract. There the bound says little,
// because it adds up what scatters. Limits: suites/layer_statistics.h.

#include "reports/text.h"
#include "suites/check.h"
#include "suites/layer_statistics.h"

namespace gdn {
namespace {

struct LayerStatistics final : Check {
  std::string name() const override { return "layer_statistics"; }
  int order() const override { return 61; }
  std::string clause() const override { return "5.6"; }
  std::string rationale() const override {
    return "Rounding the operands of a sum of 2000 products moves it by about the root of 2000 rounding errors, where a worst-case bound must add them all. Of layers whose contract "
           "rounds hidden states or projections, or whose bound exceeds the signal in most elements, the errors are therefore held to the size and bias that stochastically rounded executions of the contract show.";
  }
  CheckResult run(const CheckInput& in) const override {
    CheckResult r;
    r.check = name();
    r.clause = clause();
    r.status = CheckStatus::not_applicable;
    r.message = no_layer_statistics(in);
    if (!r.message.empty()) return r;
    double closest = 0;
    int failing = 0;
    for (std::size_t i = 0; i < in.golden.the_case.runs.size() && i < in.golden.truths.size(); ++i) {
      const Run& run = in.golden.the_case.runs[i];
      if (!judged_by_size(in, i) || !complete(in.golden.truths[i], in.executions[i].outputs)) continue;
      const LayerNull& null = in.statistics.of_layer(i);
      if (!null.why_not.empty()) continue;
      std::int64_t judged = 0;
      const std::vector<double> values = layer_values(null, in.golden.truths[i], in.executions[i].outputs, judged);
      r.judged += judged;
      r.metrics["sigma_seconds"] += null.seconds;
      r.metrics["tests"] += static_cast<double>(values.size());
      for (std::size_t s = 0; s < values.size(); ++s) {
        const double ratio = null.limits[s] > 0 ? values[s] / null.limits[s] : values[s] > 0 ? 1e300 : 0;
        const bool fails = !(values[s] <= null.limits[s]);
        failing += fails;
        if (fails && !(ratio <= closest))
          r.message = "run " + run.name + ": taken together, the errors are not those of " + to_string(in.kernel.contract) + ": " + null.names[s] + " is " + reports::short_number(values[s]) +
                      " sigma, where its kernels stay below " + reports::short_number(null.limits[s]) + " (rounding to nearest gives " + reports::short_number(null.nearest[s]) + ")";
        if (!(ratio <= closest)) closest = ratio;
      }
    }
    r.metrics["closest"] = closest;
    r.metrics["failing_tests"] = failing;
    if (r.judged > 0) r.status = failing ? CheckStatus::failed : CheckStatus::passed;
    if (failing) r.failing = r.judged;             // no element by itself: all of them together
    return r;
  }
};

const LayerStatistics check;
const RegisterCheck registered(&check);

}  // namespace
}  // namespace gdn
