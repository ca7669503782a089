// gdn-cts report: pages from records, on any machine, long after the run.
#include <fmt/format.h>

#include <filesystem>

#include "reports/record.h"
#include "reports/text.h"
#include "tools/cli/command.h"

namespace gdn::cli {
namespace {

struct ReportCommand final : Command {
  std::vector<std::string> files;
  std::string directory, junit;

  std::string name() const override { return "report"; }
  std::string summary() const override { return "pages, JUnit XML and a Markdown summary from records"; }
  int order() const override { return 90; }
  void options(Options& o) override {
    o.arguments("records", files, "RECORDS.jsonl...: files that `gdn-cts verify --json` or `--report` wrote");
    o.option("-o,--output", directory, "DIR", "folder for index.html, records.jsonl and summary.md");
    o.option("--junit", junit, "FILE", "JUnit XML as well");
    o.footer("Exit status: 1 when a case did not pass, else 0. What a gate demands beyond its cases, `verify` says.");
  }
  int run() override {
    std::vector<Record> records;
    try {
      for (const std::string& f : files)
        for (Record& r : read_records(f)) records.push_back(std::move(r));
    } catch (const std::runtime_error& e) {
      throw Usage(e.what());
    }
    if (records.empty()) throw Usage("no records in the files given");
    try {
      if (!junit.empty()) write_junit(junit, records);
      if (!directory.empty()) write_pages(directory, records);
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
