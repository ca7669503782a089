// What verify and judge print and write; see show.h.
#include "tools/cli/show.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <set>
#include <vector>

#include "reports/text.h"
#include "tools/cli/ranks.h"

namespace gdn::cli {

std::pair<std::size_t, std::size_t> parse_shard(const std::string& text) {
  if (text == "auto") return rank_among_ranks();
  unsigned long long i = 0, n = 0;
  int used = 0;
  if (std::sscanf(text.c_str(), "%llu/%llu%n", &i, &n, &used) != 2 || static_cast<std::size_t>(used) != text.size() || i < 1 || i > n || n > 100000)
    throw Usage("--shard: '" + text + "' is not I/N with 1 <= I <= N");
  return {i - 1, n};
}

void OutputOptions::declare(Options& o) {
  o.option("--report", report, "DIR", "write index.html, records.jsonl and summary.md there");
  o.option("--json", json, "FILE", "write the records, one JSON object a line");
  o.option("--junit", junit, "FILE", "write JUnit XML");
  o.option("--failures", failures, "N", "print at most N failures in full");
}

void make_folder(const std::string& option, const std::string& folder) {
  std::error_code code;
  std::filesystem::create_directories(folder, code);
  if (!std::filesystem::is_directory(folder, code)) throw Usage(option + ": " + folder + " is no folder and cannot be made one");
  if (::access(folder.c_str(), W_OK | X_OK) != 0) throw Usage(option + ": cannot write into " + folder);
}

void OutputOptions::prepare() const {
  std::error_code code;
  if (!report.empty()) make_folder("--report", report);
  if (!json.empty() && std::filesystem::path(json).lexically_normal() == std::filesystem::path(junit).lexically_normal())
    throw Usage("--json and --junit name the same file " + json);
  for (const std::string& file : {json, junit}) {
    if (file.empty()) continue;
    const std::filesystem::path folder = std::filesystem::path(file).parent_path();
    if (!folder.empty() && !std::filesystem::is_directory(folder, code)) throw Usage("cannot write " + file + ": no such folder");
    if (std::filesystem::is_directory(file, code)) throw Usage("cannot write " + file + ": it is a folder");
  }
}

void show_gate(const GateResult& result, const OutputOptions& o) {
  const GateVerdict verdict{result.exit_status == 0, result.summary, result.objections};
  std::string unwritten;
  try {
    if (!o.json.empty()) write_jsonl(o.json, result.records);
    if (!o.junit.empty()) write_junit(o.junit, result.records, &verdict);
    if (!o.report.empty()) write_pages(o.report, result.records, &verdict);
  } catch (const std::runtime_error& e) {
    unwritten = e.what();
  }

  const bool colour = colour_output();
  print(console_table(result.records, colour));
  if (const std::string reasons = unsupported_reasons(result.records); !reasons.empty()) print("\n" + reasons);
  std::string waived;
  for (const Record& r : result.records)
    if (!r.waived.empty()) waived += fmt::format("  {} is {}: {}\n", reports::printable(r.case_id), r.verdict, reports::printable(r.waived));
  if (!waived.empty()) print("\nwaived\n" + waived);
  // One failure of each family before a second one of any.
  std::vector<const Record*> failures, seconds;
  std::set<std::string> seen;
  for (const Record& r : result.records)
    if (reports::is_failure(r)) (seen.insert(r.family).second ? failures : seconds).push_back(&r);
  failures.insert(failures.end(), seconds.begin(), seconds.end());
  for (std::size_t i = 0; i < failures.size() && i < o.failures; ++i) {
    Record shown = *failures[i];
    shown.repro = as_invoked(shown.repro);
    print("\n" + failure_block(shown));
  }
  if (failures.size() > o.failures)
    print(fmt::format("\n{} more failures are not shown here (--failures N shows more{})\n", failures.size() - o.failures,
                      o.report.empty() ? ", --report DIR writes a page" : ""));

  std::string others;
  constexpr std::size_t kObjections = 12;
  const std::vector<std::string> lines = reports::other_objections(result.records, verdict);
  for (std::size_t i = 0; i < std::min(lines.size(), kObjections); ++i) others += "  " + reports::printable(lines[i]) + "\n";
  if (lines.size() > kObjections) others += fmt::format("  and {} more\n", lines.size() - kObjections);
  if (!others.empty()) print("\nThe gate does not pass because\n" + others);
  double golden = 0, kernel = 0, checks = 0, sigma = 0;
  for (const Record& r : result.records) {
    golden += r.golden_seconds;
    kernel += r.kernel_seconds;
    checks += r.check_seconds;
    for (const RecordCheck& c : r.checks)
      if (const auto at = c.metrics.find("sigma_seconds"); at != c.metrics.end()) sigma += at->second;
  }
  print(fmt::format("\nspent, all threads together: expected results {:.3g} s, kernel {:.3g} s, checks and naming of failures {:.3g} s{}", golden, kernel, checks,
                    sigma > 0 ? fmt::format(" (making sigma {:.3g} s)", sigma) : ""));
  print(fmt::format("\n{}{}{}\n", colour ? (verdict.passed ? "\x1b[32m" : "\x1b[31m") : "", reports::printable(result.summary), colour ? "\x1b[0m" : ""));
  if (!unwritten.empty()) throw Usage(unwritten);
  if (!o.report.empty()) print(fmt::format("page: {}\n", (std::filesystem::path(o.report) / "index.html").string()));
}

}  // namespace gdn::cli
