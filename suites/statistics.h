// What correct results of a contract look like, case by case: the null distributions of the statistical check (accuracy
// standard 5.6). Everything is measured in sigma, the deviation of stochastically rounded executions.
//
// Two kinds of test:
//  * size and bias: greatest |z|, root mean square and bias of z over all elements and over strata (row of a chunk, chunk,
//    token, head, value channel, state row), z = (result - truth) / sigma. Limits: quantiles of stochastically rounded
//    executions of the contract on this very case. These err by about 1 sigma where a kernel that rounds to nearest errs
//    by 0.7, so a correct kernel has room for arithmetic of its own.
//  * departures (reference/departure.h): the share of one departure's pattern that the errors hold,
//    a = sum(e d / sigma^2) / sum(d^2 / sigma^2). It is about 0 where a kernel does not depart so, and about 1, or what carrying
//    out the contract with the departure gives, where it does (other rounding may move values before they meet the
//    coarser point); the limit lies in the middle. Asked only where executions of the contract stay far enough below it.
#pragma once
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "golden/store.h"
#include "kernels/session.h"
#include "reference/departure.h"
#include "suites/layer_statistics.h"

namespace gdn {

// False alarms of one gate of correct kernels, over all statistics and cases: at most this share, for at most
// kStatisticalTests tests (test_statistics holds level ci to that number).
inline constexpr double kFamilyWiseRate = 1e-3;
inline constexpr int kStatisticalTests = 2000;
inline constexpr int kNullRuns = 48;               // executions behind a limit, beside the kSigmaRuns behind sigma
// A contract whose own nearest execution errs by more than this many sigma is not described by sigma (a 16-bit state
// that stagnates, for one): nothing can be said of a kernel then.
inline constexpr double kRegular = 1.1;

// Deviations above the mean that a statistic of a correct execution exceeds with probability p. Maxima over strata have the
// tail of Gumbel's distribution, single sums of squares a lighter one: Gumbel's quantile serves all.
double gumbel_deviations(double p);
struct Moments { double mean = 0, deviation = 0; };
Moments moments(const std::vector<double>& x);     // deviation: of a sample, divided by its size less one
// Whether every output is there in its shape; what is missing is soundness' matter.
bool complete(const Truth& truth, const TensorSet& got);
// Values of nulls are kept in the cache as floats; fresh ones are rounded alike, so that a cached null judges as a fresh one.
double kept(double x);

// Statistics of one run's errors, in a fixed order.
struct StatisticValues {
  std::vector<double> values;                      // as statistic_names()
  std::vector<double> amplitudes;                  // of RunNull::departures
  std::int64_t judged = 0;                         // elements with a sigma above 0
};
const std::vector<std::string>& statistic_names(); // "o rms by chunk row"

struct DepartureNull {
  std::size_t index = 0;                           // into departures(contract)
  std::string name;
  double snr = 0;                                  // sqrt(sum(d^2 / sigma^2))
  double spread = 0;                               // greatest |amplitude| of a correct execution, in theory
  double limit = 0;                                // half the amplitude of the contract carried out with the departure, at most 1/2
};

struct RunNull {
  std::string why_not;                             // not empty: the check does not apply to this run
  HeadResult sigma;                                // o [T,HV,V], ht [N,HV,K,V]; no sigma: 0
  std::vector<double> limits, nearest;             // per statistic: limit, value of the contract carried out to nearest
  std::vector<DepartureNull> departures;           // those that this case can tell
  double seconds = 0;                              // spent on making it; 0 when it came from the cache
};

// Nulls of a golden under a contract, made when first asked for; copies share what is made. cache: folder of files by hash of
// inputs and contract, written whole or not at all, so that gates may run side by side; empty: none.
class Statistics {
 public:
  Statistics(const Golden& g, const Contract& contract, std::filesystem::path cache = {});
  const RunNull& of_run(std::size_t run) const;
  const LayerNull& of_layer(std::size_t run) const;   // of a run of a layer
  // Statistics of outputs of the run. Only for runs whose null applies.
  StatisticValues measure(std::size_t run, const TensorSet& outputs) const;

 private:
  struct State;
  std::shared_ptr<State> s_;
};

}  // namespace gdn
