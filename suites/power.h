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
  bool full = false;                               // every case and every check, and not only up to the first kill
  bool losses = false;                             // every fault until two families that ask the same kernel have caught it: what families_alone() needs
  bool identify = false;                           // is the fault named right on the cases that it fails?
  bool measure_survivors = true;                   // signal-to-noise ratio of what was not killed
  std::size_t shard = 0, shards = 1;               // only case i with i mod shards = shard, for several machines or processes
  bool harness = false;                            // faults of the suite itself count too (suites/harness.h)
  std::vector<const Check*> checks;                // all of the suite when empty; others only to test the suite itself
};

// What identification makes of a failing result, where its fault is known.
enum class Naming : std::uint8_t {
  not_compared,                                    // gave no results, or not looked for
  right,                                           // the fault, first
  tied,                                            // another one first, the fault among those that do as well
  twin,                                            // one whose delta correlates with the fault's above kTwins on this case
  nothing,                                         // nothing known
  wrong
};
const char* name(Naming n);

struct Kill {
  std::size_t case_index = 0;                      // into PowerResult::cases
  std::string check, message;                      // the first check that fails; "runtime" where the kernel itself gave up
  std::vector<std::string> others;                 // further checks that fail: of a full run
  Naming naming = Naming::not_compared;
  std::string named;                               // the name given; empty: nothing known
  std::string without;                             // the name given where the fault and its twins on this case are not in the bank
};

struct VariantPower {
  Form form = Form::recurrent;
  FaultScalar scalar = FaultScalar::fp32;
  std::vector<Kill> kills;                         // the first one; all when full
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
  std::size_t compared() const;                    // kills whose fault was looked for
  std::size_t named() const;                       // of them named right, tied or as a twin
};

struct PowerCase {
  std::string id, family;
  double token_heads = 0;                          // of all runs
};

struct TwinAlarm { std::string variant, case_id, verdict, message; };
struct HarnessPower { std::string name, mechanism, noticed; };   // noticed: by what; empty: it survives

struct PowerResult {
  std::vector<PowerCase> cases;
  std::vector<FaultPower> faults;                  // in the order of the bank
  std::vector<HarnessPower> harness;
  std::vector<TwinAlarm> alarms;                   // cases that a twin did not pass although it supports them
  Level level = Level::ci;
  bool full = false, losses = false, identified = false;
  double seconds = 0;

  // Faults of the bank and of the harness; certain: mask, boundary, layout and harness.
  std::size_t killed(bool certain_only = false) const;
  std::size_t counted(bool certain_only = false) const;       // without equivalent ones
  double score(bool certain_only = false) const;              // 1 when nothing is counted
};

// Cases of level smoke first, then those of families that list the fault's kind, small ones before large ones.
PowerResult measure_power(const PowerOptions& o, const std::function<void(std::size_t done, std::size_t total)>& progress = {});

// The least set of cases found greedily (most new kills per token-head first, then without those that the later ones made needless) that
// kills what the whole run killed and `given`, cases run anyway, do not: every fault in every operation, and every variant of it where the run
// is full; by a family of the operation's basic profile where one does, since nothing else is asked of a kernel that declares little.
// Needs a run that is full or for losses.
std::vector<std::size_t> greedy_cover(const PowerResult& r, const std::vector<CaseId>& given = {});
// The cases that level smoke runs beside the families' small problems (suites/smoke.txt). Of a run for losses: those that it runs now, and more.
std::string smoke_text(const PowerResult& r);
// Kinds that a family lists and that no fault of the kind was killed by in it: "typical: gate-clamped". Needs a full run.
std::vector<std::string> unproven_kinds(const PowerResult& r);

// What would be lost without a family. Prefill, decode, verify and the layer are kernels of their own: a slip may sit in one of them, and cases
// of the others say nothing of it. And a kernel that declares little is asked little: of an operation's families those of its basic profile
// (core, decode, verify, layer, stages), and those of one profile more where it claims that. A family is missed where it alone catches a fault
// in such a kernel: no other family of its operation and of its own or the basic profile does. Needs a run that is full or for losses.
struct FamilyPower {
  std::string family;
  std::size_t cases = 0, killed = 0;               // faults killed in some variant; of a run for losses those that were still open
  std::vector<std::string> alone;                  // faults that it alone kills: "gate_clamped", "gate_clamped in verify" where its cases are of two operations
  std::vector<std::string> anywhere;               // of those the ones that no other family of the suite kills, whatever the operation or profile: of a full run
};
std::vector<FamilyPower> families_alone(const PowerResult& r);
std::vector<std::string> families_without_loss(const PowerResult& r);

std::string power_table(const PowerResult& r);     // for a console
std::string family_table(const PowerResult& r);
std::string naming_table(const PowerResult& r);
std::string power_json(const PowerResult& r);
// Adds what the JSON of another run holds, over other cases. Throws std::invalid_argument, one line, for text that is not of power_json
// or of another fault bank.
void add_power_json(PowerResult& r, const std::string& text);
std::string power_page(const PowerResult& r);      // HTML: faults x families, with the checks

}  // namespace gdn
