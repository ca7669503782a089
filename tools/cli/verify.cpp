// gdn-cts verify: the gate. Runs a kernel over the cases of a level and says whether it computes what it should.
#include <fmt/format.h>

#include <algorithm>

#include "reports/text.h"
#include "suites/runner.h"
#include "tools/cli/command.h"
#include "tools/cli/kernel_options.h"
#include "tools/cli/progress.h"
#include "tools/cli/show.h"

namespace gdn::cli {
namespace {

struct VerifyCommand final : Command {
  KernelOptions kernel;
  OutputOptions output;
  std::string level = "smoke", golden;
  std::vector<std::string> profiles, only_families, cases;
  std::uint64_t seed = 1;
  bool fail_fast = false;

  std::string name() const override { return "verify"; }
  std::string summary() const override { return "the gate: does a kernel compute what it should?"; }
  int order() const override { return 30; }
  void options(Options& o) override {
    kernel.declare(o);
    o.option("--level", level, "LEVEL", "smoke (seconds), ci (about a minute), nightly or exhaustive");
    o.option("--profile", profiles, "PROFILE", "what the kernel claims and must show (default: core); may be repeated", true);
    o.option("--family", only_families, "FAMILY", "only these case families; may be repeated", true);
    o.option("--case", cases, "CASE-ID", "only this case; may be repeated", false);
    o.option("--seed", seed, "N", "seed of the inputs");
    o.option("--golden", golden, "DIR", "read expected results from here, and write those that are missing");
    o.flag("--fail-fast", fail_fast, "stop at the first failure");
    output.declare(o);
  }
  int run() override {
    if (!cases.empty() && !only_families.empty()) throw Usage("--case and --family cannot be combined");
    use_threads(kernel.threads);
    output.prepare();
    GateOptions gate;
    gate.level = parse_level(level);
    gate.seed = seed;
    if (!profiles.empty()) gate.profiles = profiles;
    gate.families = only_families;
    gate.case_ids = cases;
    gate.golden_dir = golden;
    gate.fail_fast = fail_fast;
    // What is wrong with the question is said before the kernel is started.
    for (const std::string& text : cases) make_case(parse_case_id(text));
    for (const std::string& f : only_families)
      if (!find_family(f)) throw Usage("unknown case family '" + f + "'; `gdn-cts list families` prints them");

    const std::unique_ptr<KernelSession> session = kernel.open();
    GateResult result;
    {
      Progress progress("verify");
      std::size_t failures = 0;
      result = run_gate(
          gate, *session,
          [&](std::size_t done, std::size_t total, const Record& r) {
            failures += reports::is_failure(r);
            progress.at(done, total, (failures ? fmt::format("{} failed; ", failures) : "") + r.family);
          },
          [&](const std::string& line) {
            clear_bar();
            note(reports::printable(line));
          });
    }
    show_gate(result, output);
    return result.exit_status;
  }
};

VerifyCommand command;
const RegisterCommand registered(&command);

}  // namespace
}  // namespace gdn::cli
