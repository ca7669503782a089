// Identification: which fault of the bank, or which mistaken convention, a failing result resembles (accuracy standard 5.7).
// For every suspect m, delta_m = exact(with m) - exact, over all runs of the case; the error e of the result is compared with it in
// sigma, the deviation of stochastically rounded executions of the declared contract. What counts as a likeness is a quantile
// of what such executions, which have no fault, show of the same pattern.
#pragma once
#include <algorithm>
#include <string>
#include <vector>

#include "suites/check.h"

namespace gdn {

struct Resemblance {
  std::string name, mechanism;                     // of the bank, or "convention state=VK"
  double z = 0;                                    // sum(e d / sigma^2) / sqrt(sum(d^2 / sigma^2)) over the elements that are numbers
  double limit = 0;                                // quantile of z of correct executions; a z above it is no rounding
  double share = 0;                                // of what the errors hold beyond rounding, the part that a multiple of delta explains: 0..1; of sizes, of their logarithms
  double amplitude = 0;                            // that multiple: 1 where the fault is the one of the bank
  double overlap = 1;                              // of the elements that are no numbers in the result or in delta: the part that are in both
  double correlation = 1;                          // of delta with that of the best, in sigma
};

// What the errors of a result show, by the first that applies. sizes: how large they are in which rows.
enum class Evidence : std::uint8_t { none, violations, missing_numbers, values, sizes, relations };

struct Identification {
  std::vector<Resemblance> ranked;                 // those that explain anything, the best first; at most kRanked
  Evidence evidence = Evidence::none;
  double elements = 0;                             // how many carry the evidence: (sum e^2)^2 / sum e^4 in sigma, or how many are no numbers
  std::string remark;                              // what stands for sigma where there is none, and why; or what was left out
  std::string why_not;                             // not empty: nothing could be compared
};
inline constexpr std::size_t kRanked = 12;
inline constexpr double kTwins = 0.95;             // correlation from which two suspects are twins on a case

// What a multiple of the pattern explains; the amplitude's distance from 1 counts against it, so that of suspects of one shape (scales)
// the one of the right size comes first.
inline double explained(const Resemblance& r) { return r.z > 0 ? r.z * r.z * (1 - 0.5 * std::min(1.0, (r.amplitude - 1) * (r.amplitude - 1))) : 0; }
// Deviations above which z of a correct execution lies with probability 2e-6 (Student's t for kNulls runs): once in a
// thousand results, over the suspects together.
inline constexpr double kQuantile = 6;

// Results on one case together: what every suspect does to it is made once for all of them. All executions must be ok.
std::vector<Identification> identify(const std::vector<const CheckInput*>& results);
Identification identify_stage(const CheckInput& in);   // what identify() does with a stage
inline Identification identify(const CheckInput& in) { return identify(std::vector<const CheckInput*>{&in})[0]; }

// The suspects that the result is taken for, `without` left out of the ranking: the best, then those that do as well; empty: nothing
// known. A suspect and its twins on this case fall out together.
std::vector<Resemblance> named(const Identification& id, std::string_view without = {});
// One sentence for the failure block: "correction_before_decay: the read-back ... (...)", or "nothing known ...".
std::string sentence(const Identification& id, std::string_view without = {});
std::string resembles(const CheckInput& in);

}  // namespace gdn
