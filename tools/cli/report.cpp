// gdn-cts report: pages from records, on any machine, long after the run.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "reports/record.h"
#include "reports/text.h"
#include "tools/cli/command.h"
#include "tools/cli/submission.h"

namespace gdn::cli {
namespace {

struct ReportCommand final : Command {
  std::vector<std::string> files, kernel_files;
  std::string directory, junit;
  bool history = false;

  std::string name() const override { return "report"; }
  std::string summary() const override { return "pages, JUnit XML and a Markdown summary from records"; }
  int order() const override { return 90; }
  void options(Options& o) override {
    o.arguments("records", files, "RECORDS.jsonl...: files that `gdn-cts verify --json` or `--report` wrote, or folders of `--submission`, which are checked");
    o.option("-o,--output", directory, "DIR", "folder for index.html, records.jsonl and summary.md");
    o.flag("--history", history, "the files or folders are runs in order of time: an index of them with what changed, and a page for each");
    o.option("--kernel-file", kernel_files, "FILE", "with folders of --submission: this must be a file of the kernel that was gated, by its SHA-256; may be repeated", false);
    o.option("--junit", junit, "FILE", "JUnit XML as well");
    o.footer("Exit status: 1 when a case did not pass, else 0. What a gate demands beyond its cases, `verify` says.");
  }
  void print_submission(const std::string& folder) const {
    const Submission s = read_submission(folder);
    print(fmt::format("{}: the files are those of the statement\n  {}\n  made {}, suite {}, accuracy standard {}\n", reports::printable(folder), reports::printable(s.verdict.summary),
                      reports::printable(s.created), reports::printable(s.suite_version), reports::printable(s.edition)));
    for (const auto& [title, facts] : {std::pair{"kernel", s.kernel}, {"gate", s.gate}, {"machine", s.machine}}) {
      print(fmt::format("  {}:", title));
      for (const auto& [key, value] : facts)
        if (!value.empty()) print(fmt::format(" {} {};", reports::printable(key), reports::printable(value)));
      print("\n");
    }
    if (s.kernel_files.empty()) print("  kernel files: none are stated: the command that reached the kernel names no file\n");
    for (const auto& [path, hash] : s.kernel_files) {
      std::error_code code;
      const char* now = !std::filesystem::is_regular_file(path, code) ? "is not here" : hashes_of({path})[0].second == hash ? "is the file that was gated" : "HAS CHANGED since";
      print(fmt::format("  kernel file {} {} (sha256 {})\n", reports::printable(path), now, reports::printable(hash)));
    }
    for (const auto& [path, hash] : hashes_of(kernel_files))
      if (std::none_of(s.kernel_files.begin(), s.kernel_files.end(), [&](const auto& stated) { return stated.second == hash; }))
        throw std::runtime_error(folder + ": " + path + " is no file of the kernel that was gated: its SHA-256 is not stated");
  }
  int run() override {
    if (history && directory.empty()) throw Usage("--history needs -o");
    std::vector<Record> records;
    std::vector<RunOfRecords> runs;
    try {
      for (const std::string& f : files) {
        std::error_code code;
        const bool folder = std::filesystem::is_directory(f, code);
        if (folder) print_submission(f);
        RunOfRecords run{f, fmt::format("run{}/index.html", runs.size() + 1), folder ? read_submission(f).records : read_records(f)};
        records.insert(records.end(), run.records.begin(), run.records.end());
        if (!run.records.empty()) runs.push_back(std::move(run));
      }
    } catch (const std::runtime_error& e) {
      throw Usage(e.what());
    }
    if (records.empty()) throw Usage("no records in the files given");
    try {
      if (!junit.empty()) write_junit(junit, records);
      if (!directory.empty() && !history) write_pages(directory, records);
      if (history) {
        std::string command = "gdn-cts report --history";
        for (const std::string& f : files) command += " " + shell_quote(f);
        for (std::size_t i = 0; i < runs.size(); ++i) write_pages((std::filesystem::path(directory) / fmt::format("run{}", i + 1)).string(), runs[i].records);
        write_run_index(directory, runs, command);
      }
    } catch (const std::runtime_error& e) {
      throw Usage(e.what());
    }
    print(console_table(records, colour_output()));
    print(reports::headline(records) + "\n");
    if (!directory.empty()) print(fmt::format("page: {}\n", (std::filesystem::path(directory) / "index.html").string()));
    return reports::total(records).bad() ? 1 : 0;
  }
};

ReportCommand command;
const RegisterCommand registered(&command);

}  // namespace
}  // namespace gdn::cli
