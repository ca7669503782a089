// gdn-cts power: the suite judged by the faults it catches. Kill matrix of the fault bank.
#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "reports/file.h"
#include "suites/power.h"
#include "tools/cli/command.h"
#include "tools/cli/progress.h"

namespace gdn::cli {
namespace {

struct PowerCommand final : Command {
  std::string level = "ci", json, page, smoke, shard;
  std::vector<std::string> families, faults, cases, from;
  std::uint64_t seed = 1;
  bool full = false, losses = false, identify = false, quick = false;

  std::string name() const override { return "power"; }
  std::string summary() const override { return "how many of the known faults the suite catches, and by what"; }
  int order() const override { return 70; }
  void options(Options& o) override {
    o.option("--level", level, "LEVEL", "smoke, ci (default), nightly or exhaustive");
    o.option("--family", families, "FAMILY", "cases of these families only", true);
    o.option("--fault", faults, "FAULT", "these faults, or all of a kind, only", true);
    o.option("--seed", seed, "N", "seed of the cases");
    o.option("--case", cases, "ID", "these cases only", false);
    o.flag("--full", full, "every case and every check, not only up to a fault's first catch; says what each family catches alone and which cases are enough");
    o.flag("--losses", losses, "is each family missed? The fault that it states as its own (or --fault), until two families of one operation have caught it; exit status 1 where a loss loses nothing");
    o.flag("--identify", identify, "is the fault named right on the cases that it fails? All of them with --full, else the first of each form and scalar");
    o.flag("--no-survivors", quick, "do not measure the signal-to-noise ratio of survivors");
    o.option("--json", json, "FILE", "the matrix as JSON");
    o.option("--page", page, "FILE", "the matrix as an HTML page");
    o.option("--shard", shard, "I/N", "part I of N of the cases; --from puts the parts together");
    o.option("--from", from, "FILE", "measure nothing: the JSON of parts, together", true);
    o.option("--smoke", smoke, "FILE", "the cases that define level smoke (suites/smoke.txt): with --full made anew, with --losses those there are and what catches these faults");
    o.footer("Exit status 1 when a fault survives that is not equivalent, or a correct twin fails a case.");
  }
  int run() override {
    if (!from.empty() && !losses) full = true;
    if (losses && full) throw Usage("--losses is a part of --full: one of them");
    if (!smoke.empty() && !losses && (!full || !faults.empty() || !families.empty() || !cases.empty()))
      throw Usage("--smoke needs --losses, or --full and all faults, families and cases");
    PowerOptions options;
    options.level = parse_level(level);
    options.seed = seed;
    options.families = families;
    options.faults = faults;
    if (losses && faults.empty())
      for (const Family* f : gdn::families())
        if (families.empty() || std::find(families.begin(), families.end(), f->name()) != families.end()) options.faults.push_back(f->own_fault());
    options.case_ids = cases;
    options.full = full;
    options.losses = losses;
    options.identify = identify;
    options.measure_survivors = !quick && !losses;
    options.harness = faults.empty() && !losses;
    PowerResult result;
    if (!shard.empty()) std::tie(options.shard, options.shards) = parse_shard(shard);
    for (const std::string& file : from) {
      try {
        add_power_json(result, read_file(file));
      } catch (const std::exception& e) {
        throw Usage(file + ": " + e.what());
      }
    }
    if (from.empty()) {
      Progress bar("power");
      result = measure_power(options, [&](std::size_t done, std::size_t total) { bar.at(done, total, ""); });
    }
    full = result.full;
    losses = result.losses;
    identify = result.identified;
    print(power_table(result));
    if (full || losses) print("\n" + family_table(result));
    if (full) {
      const std::vector<std::size_t> cover = greedy_cover(result);
      double size = 0;
      for (const std::size_t c : cover) size += result.cases[c].token_heads;
      print(fmt::format("\nleast set of cases that catches the same: {} of {}, {:.0f} token-heads\n", cover.size(), result.cases.size(), size));
      for (const std::size_t c : cover) print(fmt::format("  {}\n", result.cases[c].id));
      if (faults.empty() && cases.empty())
        for (const std::string& k : unproven_kinds(result)) print(fmt::format("kind that its family does not kill: {}\n", k));
    }
    if (identify) print("\n" + naming_table(result));
    const auto write = [](const std::string& file, const std::string& text) {
      if (file.empty()) return;
      try {
        write_file(file, text);
      } catch (const std::runtime_error& e) {
        throw Usage(e.what());
      }
    };
    write(json, power_json(result));
    write(page, power_page(result));
    write(smoke, smoke.empty() ? "" : smoke_text(result));
    if (losses) return families_without_loss(result).empty() && result.alarms.empty() ? 0 : 1;
    return result.killed() == result.counted() && result.alarms.empty() ? 0 : 1;
  }
};

PowerCommand command;
const RegisterCommand registered(&command);

}  // namespace
}  // namespace gdn::cli
