// Check `statistics`: the errors of a result look like those of a kernel of its contract. Decides where a bound cannot,
// because what is wrong is smaller than all rounding that the contract allows together: values cut instead of rounded,
// one point kept shorter than declared, a state rounded more often. Limits: suites/statistics.h.
#include <cmath>

#include "reports/text.h"
#include "suites/check.h"

namespace gdn {
namespace {

struct StatisticsCheck final : Check {
  std::string name() const override { return "statistics"; }
  int order() const override { return 60; }
  std::string clause() const override { return "5.6"; }
  std::string rationale() const override {
    return "A worst-case bound grows with everything that might go wrong at once, so a kernel that cuts where it should round, or keeps "
           "one value shorter than declared, hides below it. Errors of correct kernels have a known size, no bias, and "
           "do not follow the pattern that a coarser storage point makes: measured in the deviation of stochastically rounded "
           "executions of the contract, on families of random inputs.";
  }
  CheckResult run(const CheckInput& in) const override {
    CheckResult r;
    r.check = name();
    r.clause = clause();
    r.status = CheckStatus::not_applicable;
    r.message = no_statistics(in);
    if (!r.message.empty()) return r;
    double seconds = 0, closest = 0, greatest_share = 0;
    int failing = 0;
    std::string worst;
    for (std::size_t i = 0; i < in.golden.the_case.runs.size(); ++i) {
      const Run& run = in.golden.the_case.runs[i];
      if (!run.truth || i >= in.golden.truths.size() || !complete(in.golden.truths[i], in.executions[i].outputs)) continue;
      const RunNull& null = in.statistics.of_run(i);
      seconds += null.seconds;
      if (!null.why_not.empty()) continue;
      const StatisticValues v = in.statistics.measure(i, in.executions[i].outputs);
      r.judged += v.judged;
      r.metrics["tests"] += static_cast<double>(v.values.size() + v.amplitudes.size());
      r.metrics["o_rms"] = v.values[2];
      // Root mean squares beside those of the contract carried out to nearest: a small share means that it declares too little.
      for (std::size_t s = 0; s < v.values.size(); ++s)
        if (const std::string& what = statistic_names()[s]; (what == "rms of o" || what == "rms of ht") && null.nearest[s] > 0) {
          double& share = r.metrics[what.substr(7) + "_share_of_contract"];
          share = std::max(share, v.values[s] / null.nearest[s]);
        }
      // What names a point comes first: the pattern that stands out most of those that the errors hold.
      double strongest = 0;
      for (std::size_t d = 0; d < v.amplitudes.size(); ++d) {
        const double a = v.amplitudes[d], z = a * null.departures[d].snr;
        greatest_share = std::max(greatest_share, a / null.departures[d].limit);
        if (a < null.departures[d].limit) continue;
        ++failing;
        if (!(z > strongest)) continue;
        strongest = z;
        worst = "taken together, the errors hold " + reports::short_number(100 * a) + " % of the pattern that " + null.departures[d].name + " makes (z=" + reports::short_number(z) +
                "), which " + to_string(in.kernel.contract) + " rules out: its kernels stay below " + reports::short_number(100 * null.departures[d].spread) + " %";
      }
      for (std::size_t s = 0; s < v.values.size(); ++s) {
        const double ratio = v.values[s] / null.limits[s];
        if (v.values[s] <= null.limits[s]) {
          closest = std::max(closest, null.limits[s] > 0 ? ratio : 0);
          continue;
        }
        ++failing;
        if (!(ratio <= closest)) {
          closest = ratio;
          if (strongest == 0)
            worst = "taken together, the errors are not those of " + to_string(in.kernel.contract) + ": " + statistic_names()[s] + " is " + reports::short_number(v.values[s]) +
                    " sigma, where its kernels stay below " + reports::short_number(null.limits[s]) + " (rounding to nearest gives " + reports::short_number(null.nearest[s]) + ")";
        }
      }
    }
    r.metrics["sigma_seconds"] = seconds;
    r.metrics["closest"] = closest;
    r.metrics["greatest_share"] = greatest_share;
    r.metrics["failing_tests"] = failing;
    if (r.judged > 0) r.status = failing ? CheckStatus::failed : CheckStatus::passed;
    if (failing) {
      r.message = worst;
      r.failing = r.judged;                        // no element by itself: all of them together
    }
    return r;
  }
};

const StatisticsCheck check;
const RegisterCheck registered(&check);

}  // namespace
}  // namespace gdn
