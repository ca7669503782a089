// gdn-cts compare: two kernels, or two versions of one, side by side on the same goldens.
#include <fmt/format.h>

#include <filesystem>

#include "reports/record.h"
#include "tools/cli/command.h"
#include "tools/cli/show.h"

namespace gdn::cli {
namespace {

struct CompareCommand final : Command {
  std::string first, second, directory;

  std::string name() const override { return "compare"; }
  std::string summary() const override { return "two kernels, or two versions, side by side: error, speed, verdicts"; }
  int order() const override { return 91; }
  void options(Options& o) override {
    o.argument("first", first, "RECORDS.jsonl of one kernel, or a folder of --report");
    o.argument("second", second, "the same of the other");
    o.option("-o,--output", directory, "DIR", "folder for a page and comparison.csv");
    o.footer("Figures are the second's divided by the first's, on cases that both were asked with the same expected results. Decides nothing: exit status 0.");
  }
  int run() override {
    const auto records = [](const std::string& from) {
      std::error_code code;
      return read_records(std::filesystem::is_directory(from, code) ? (std::filesystem::path(from) / "records.jsonl").string() : from);
    };
    if (!directory.empty()) make_folder("-o", directory);
    try {
      const std::vector<Record> a = records(first), b = records(second);
      const Comparison c = compare(a, b);
      if (c.rows.empty()) throw Usage("no case was asked of both with the same expected results");
      print(comparison_table(c));
      if (!directory.empty()) {
        write_comparison(directory, c, "gdn-cts compare " + shell_quote(first) + " " + shell_quote(second));
        print(fmt::format("page: {}\n", (std::filesystem::path(directory) / "index.html").string()));
      }
    } catch (const Usage&) {
      throw;
    } catch (const std::runtime_error& e) {
      throw Usage(e.what());
    }
    return 0;
  }
};

CompareCommand command;
const RegisterCommand registered(&command);

}  // namespace
}  // namespace gdn::cli
