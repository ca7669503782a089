// The suite's own power: which fault of the bank is caught by which check on which case. A kill counts only on a case
// that the unmutated twin passes; a fault counts once, whatever its forms and scalars (accuracy standard, section on power).
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "kernels/faulty/faults.h"
#include "suites/check.h"
#include "suites/family.h"

namespace gdn {

struct PowerOptions {
  Level level = Level::ci;
  std::uint64_t seed = 1;
  std::vector<std::string> families;               // narrowing: all when empty
  std::vector<std::string> case_ids;               // these instead of those of the level
  std::vector<std::string> faults;                 // names or kinds; all when empty
  bool full = false;                               // every family and not only up to the first kill
  bool measure_survivors = true;                   // signal-to-noise ratio of what was not killed
  std::vector<const Check*> checks;                // all of the suite when empty; others only to test the suite itself
};

struct Kill {
  std::size_t case_index = 0;                      // into PowerResult::cases
  std::string check, message;                      // "runtime" where the kernel itself gave up
};

struct VariantPower {
  Form form = Form::recurrent;
  FaultScalar scalar = FaultScalar::fp32;
  std::vector<Kill> kills;                         // the first one; of every family its first one when full
  std::size_t cases = 0;                           // run, with a twin that passed
  // Of survivors: the largest over the cases of sqrt(sum (delta/sigma)^2), with delta = exact(fault) - exact and sigma
  // the rounding noise that the twin itself shows, root mean square over a row of V channels, at least half an ulp.
  double snr = 0, delta = 0;                       // delta: largest |delta|; infinite where the fault gives no number
  std::string snr_case;
  bool measured = false;                           // on some case whose domain holds it
  std::string name() const;                        // "chunk-bf16"
  bool killed() const { return !kills.empty(); }
};

struct FaultPower {
  const Fault* fault = nullptr;
  bool certain = false;                            // of a mask, boundary or layout kind
  std::vector<VariantPower> variants;
  bool killed() const;                             // in some variant
  // Not killed, of no mask, boundary or layout kind, changes something, and that below the noise (SNR < 1) under every
  // contract. A fault that changes nothing on these cases is not equivalent: the cases do not reach it.
  bool equivalent() const;
};

struct PowerCase {
  std::string id, family;
  double token_heads = 0;
};

struct TwinAlarm { std::string variant, case_id, verdict, message; };

struct PowerResult {
  std::vector<PowerCase> cases;
  std::vector<FaultPower> faults;                  // in the order of the bank
  std::vector<TwinAlarm> alarms;                   // cases that a twin did not pass although it supports them
  bool full = false;
  double seconds = 0;

  std::size_t killed(bool certain_only = false) const;
  std::size_t counted(bool certain_only = false) const;       // without equivalent ones
  double score(bool certain_only = false) const;              // 1 when nothing is counted
};

PowerResult measure_power(const PowerOptions& o, const std::function<void(std::size_t done, std::size_t total)>& progress = {});

// The least set of cases found greedily (most new faults per token-head first) that kills what the whole run killed.
std::vector<std::size_t> greedy_cover(const PowerResult& r);
// Kinds that a family lists and that no fault of the kind was killed by in it: "typical: gate-clamped". Needs a full run.
std::vector<std::string> unproven_kinds(const PowerResult& r);

std::string power_table(const PowerResult& r);     // for a console
std::string power_json(const PowerResult& r);

}  // namespace gdn
