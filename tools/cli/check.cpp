// gdn-cts check: audits golden data: manifest, hashes, certificates, and the truth itself by other arithmetic.
#include <fmt/format.h>

#include "golden/check.h"
#include "reports/text.h"
#include "tools/cli/command.h"
#include "tools/cli/kernel_options.h"
#include "tools/cli/progress.h"

namespace gdn::cli {
namespace {

struct CheckCommand final : Command {
  std::string directory;
  bool files_only = false;
  std::uint64_t threads = 0;

  std::string name() const override { return "check"; }
  std::string summary() const override { return "audit golden data: manifest, certificates, and the truth by other arithmetic"; }
  int order() const override { return 21; }
  void options(Options& o) override {
    o.argument("dir", directory, "folder of golden files");
    o.flag("--files-only", files_only, "hashes and certificates, without repeating the arithmetic");
    o.option("--threads", threads, "N", "0: all processors");
    o.footer("Problems are printed one a line; exit status 2 when there are any.");
  }
  int run() override {
    use_threads(threads);
    CheckOptions options;
    options.audit = !files_only;
    CheckSummary s;
    {
      Progress progress("check");
      s = check_directory(
          directory,
          [](const std::string& line) {
            clear_bar();
            print(reports::printable(line) + "\n");
          },
          options, [&](double part) { progress.at(0, 1, directory, part); });
    }
    print(fmt::format("{} files, {} datasets, {} expected values ({} not certified for binary64, {} balls); {} of {} heads audited\n", s.files, s.datasets,
                      s.elements, s.uncertified_fp64, s.balls, s.audited_heads, s.heads));
    if (s.files == 0) throw Usage(directory + ": no golden files");
    print(s.problems ? fmt::format("BROKEN: {} problems\n", s.problems) : std::string("GOOD\n"));
    return s.problems ? 2 : 0;
  }
};

CheckCommand command;
const RegisterCommand registered(&command);

}  // namespace
}  // namespace gdn::cli
