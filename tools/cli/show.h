// What verify and judge print and write of their records.
#pragma once
#include <string>

#include "suites/runner.h"
#include "tools/cli/command.h"

namespace gdn::cli {

// Throws Usage, beginning with the option, where the folder is none and cannot be made one.
void make_folder(const std::string& option, const std::string& folder);

struct OutputOptions {
  std::string report, json, junit;
  std::uint64_t failures = 5;
  void declare(Options& o);
  // Says before the work what cannot be written after it. Throws Usage.
  void prepare() const;
};

// Files first, so that they exist whatever becomes of the terminal; then the table, the failure blocks, what else
// keeps the gate from passing, and the summary. Throws Usage, after printing, where a file could not be written.
void show_gate(const GateResult& result, const OutputOptions& o);

}  // namespace gdn::cli
