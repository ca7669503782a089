// gdn-cts power: the suite judged by the faults it catches. Kill matrix of the fault bank.
#include <fmt/format.h>

#include "reports/file.h"
#include "suites/power.h"
#include "tools/cli/command.h"
#include "tools/cli/progress.h"

namespace gdn::cli {
namespace {

struct PowerCommand final : Command {
  std::string level = "ci", json;
  std::vector<std::string> families, faults;
  std::uint64_t seed = 1;
  bool full = false, quick = false;

  std::string name() const override { return "power"; }
  std::string summary() const override { return "how many of the known faults the suite catches, and by what"; }
  int order() const override { return 70; }
  void options(Options& o) override {
    o.option("--level", level, "LEVEL", "smoke, ci (default), nightly or exhaustive");
    o.option("--family", families, "FAMILY", "cases of these families only", true);
    o.option("--fault", faults, "FAULT", "these faults, or all of a kind, only", true);
    o.option("--seed", seed, "N", "seed of the cases");
    o.flag("--full", full, "go on to every family after a fault's first kill; proposes the least set of cases");
    o.flag("--no-survivors", quick, "do not measure the signal-to-noise ratio of survivors");
    o.option("--json", json, "FILE", "the matrix as JSON");
    o.footer("Exit status 1 when a fault survives that is not equivalent, or a correct twin fails a case.");
  }
  int run() override {
    PowerOptions options;
    options.level = parse_level(level);
    options.seed = seed;
    options.families = families;
    options.faults = faults;
    options.full = full;
    options.measure_survivors = !quick;
    PowerResult result;
    {
      Progress bar("power");
      result = measure_power(options, [&](std::size_t done, std::size_t total) { bar.at(done, total, ""); });
    }
    print(power_table(result));
    if (full) {
      print("least set of cases with the same kills (a proposal for level smoke):\n");
      for (const std::size_t c : greedy_cover(result)) print(fmt::format("  {}\n", result.cases[c].id));
      if (faults.empty())
        for (const std::string& k : unproven_kinds(result)) print(fmt::format("kind that its family does not kill: {}\n", k));
    }
    if (!json.empty()) {
      try {
        write_file(json, power_json(result));
      } catch (const std::runtime_error& e) {
        throw Usage(e.what());
      }
    }
    return result.killed() == result.counted() && result.alarms.empty() ? 0 : 1;
  }
};

PowerCommand command;
const RegisterCommand registered(&command);

}  // namespace
}  // namespace gdn::cli
