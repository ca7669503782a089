// The runner: case -> golden -> kernel -> checks -> record, and the exit status of a gate.
#pragma once
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kernels/session.h"
#include "reports/record.h"
#include "suites/check.h"
#include "suites/family.h"
#include "suites/waivers.h"

namespace gdn {

struct GateOptions {
  Level level = Level::smoke;
  std::uint64_t seed = 1;
  std::vector<std::string> profiles{"core"};
  std::vector<std::string> families, case_ids;     // narrowing; a narrowed gate says so
  bool given = false;                              // case_ids are what there is, not what was asked for: profiles say which of them are required
  std::filesystem::path golden_dir;                // cache: read when valid for the case, written otherwise; empty: none
  std::vector<Waiver> waivers;                     // failures that are tolerated (suites/waivers.h)
  bool fail_fast = false;
  std::size_t jobs = 1;                            // sessions of the kernel side by side; expected results and checks use all threads anyway; the records are the same
  std::function<std::unique_ptr<KernelSession>()> open;   // makes the other sessions, from several threads at once; needed for jobs > 1
  std::vector<Record> done;                        // of an earlier part of this run: these cases are not run again
  std::size_t shard = 0, shards = 1;               // only case i with i mod shards = shard, for several machines or jobs
};
struct GateResult {
  std::vector<Record> records;
  std::vector<std::string> objections;             // why the gate fails, one line each; empty when it passes
  int exit_status = 0;                             // 0 all passed, 1 otherwise (design: command line)
  std::string summary;                             // one line
};

Golden make_golden(const Case& c);                 // runs the oracle
// From the cache when a file is there and edition and inputs are those of the case; else made, and written to the cache
// when one is given. A stale or damaged file is named on `note` (when given) and replaced.
Golden obtain_golden(const Case& c, const std::filesystem::path& cache, const std::function<void(const std::string&)>& note = {});
struct JudgeOptions {
  bool name_fault = true;                          // compare a failing result with the fault bank, which takes a second or two (Record::resembles)
  std::filesystem::path null_cache;                // of the statistical check (suites/statistics.h); empty: none
};
// Runs and judges one case. Never throws for what a kernel does.
Record judge_case(const Golden& g, const Case& c, KernelSession& kernel, const JudgeOptions& o = {});
// Judges results that were computed elsewhere (gdn-cts judge).
Record judge_results(const Golden& g, const Case& c, const KernelInfo& info, const std::vector<Execution>& executions,
                     const JudgeOptions& o = {});
// A gate names the fault of the first failing case of a family only, for this many families.
inline constexpr std::size_t kNamedFamilies = 5;
// Throws std::invalid_argument, naming those that there are, for a profile that no family belongs to.
void check_profiles(const std::vector<std::string>& profiles);
// The cases of a gate, in the canonical order, those fitted to the kernel last. Throws as run_gate.
std::vector<CaseId> gate_cases(const GateOptions& o, const KernelInfo& kernel);
// The rule by which records become pass or fail is written in suites/README.md. Throws std::invalid_argument for an
// unknown profile or family or a malformed case id.
GateResult run_gate(const GateOptions& o, KernelSession& kernel,
                    const std::function<void(std::size_t done, std::size_t total, const Record&)>& progress,
                    const std::function<void(const std::string&)>& note = {});
// The rule alone: objections to these records, for families required by the options.
std::vector<std::string> objections(const GateOptions& o, const KernelInfo& k, const std::vector<Record>& records);
// One line: "PASS: 120 cases, 100 PASSED, 20 NOT_SUPPORTED (level smoke: reduced)".
std::string gate_summary(const GateOptions& o, const std::vector<Record>& records, const std::vector<std::string>& objections);

}  // namespace gdn
