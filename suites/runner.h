// The runner: case -> golden -> kernel -> checks -> record, and the exit status of a gate.
#pragma once
#include <filesystem>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "kernels/session.h"
#include "reports/record.h"
#include "suites/check.h"
#include "suites/family.h"

namespace gdn {

struct GateOptions {
  Level level = Level::smoke;
  std::uint64_t seed = 1;
  std::vector<std::string> profiles{"core"};
  std::vector<std::string> families, case_ids;     // narrowing; a narrowed gate says so
  std::filesystem::path golden_dir;                // cache: read when valid for the case, written otherwise; empty: none
  bool fail_fast = false;
};
struct GateResult {
  std::vector<Record> records;
  int exit_status = 0;                             // 0 all passed, 1 otherwise (design: command line)
  std::string summary;                             // one line
};

Golden make_golden(const Case& c);                 // runs the oracle
Golden obtain_golden(const Case& c, const std::filesystem::path& cache);
// Judges one case. Never throws for what a kernel does.
Record judge_case(const Golden& g, const Case& c, KernelSession& kernel);
// Judges results that were computed elsewhere (gdn-cts judge).
Record judge_results(const Golden& g, const Case& c, const KernelInfo& info, const std::vector<Execution>& executions);
GateResult run_gate(const GateOptions& o, KernelSession& kernel,
                    const std::function<void(std::size_t done, std::size_t total, const Record&)>& progress);

}  // namespace gdn
