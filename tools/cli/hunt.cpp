// gdn-cts hunt: searches for inputs that are hard for a kernel, and keeps those that come near its bound.
#include <fmt/format.h>

#include <filesystem>
#include <fstream>

#include "reports/file.h"
#include "reports/text.h"
#include "suites/hunt.h"
#include "tools/cli/command.h"
#include "tools/cli/kernel_options.h"
#include "tools/cli/progress.h"

namespace gdn::cli {
namespace {

struct HuntCommand final : Command {
  KernelOptions kernel;
  std::string folder;
  std::vector<std::string> families;
  double minutes = 1, threshold = 0.5;
  std::uint64_t seed = 1, tries = 0, keep = 4;

  std::string name() const override { return "hunt"; }
  std::string summary() const override { return "search for inputs that bring a kernel near its bound"; }
  int order() const override { return 42; }
  void options(Options& o) override {
    kernel.declare(o);
    o.option("--for", minutes, "MINUTES", "how long");
    o.option("--tries", tries, "N", "stop after N runs of the kernel; 0: when the time is over");
    o.option("--family", families, "FAMILY", "begin with cases of these families", true);
    o.option("--seed", seed, "N", "another seed climbs from other cases");
    o.option("--threshold", threshold, "R", "keep what reaches this error/bound");
    o.option("--keep", keep, "N", "keep at most N");
    o.option("--worst", folder, "DIR", "add what is kept to DIR/found.txt (golden/worst of a source tree: family `worst` has it after the next build)");
    o.footer("Exit status 1 when the kernel exceeds its bound.");
  }
  int run() override {
    use_threads(kernel.threads);
    if (!(minutes > 0) || minutes > 1e6) throw Usage("--for must be a positive number of minutes");
    if (!folder.empty() && !std::filesystem::is_directory(folder)) throw Usage("--worst: " + folder + " is no folder");
    HuntOptions o;
    o.families = families;
    o.seed = seed;
    o.seconds = 60 * minutes;
    if (tries > 0) o.tries = static_cast<std::int64_t>(tries);
    o.keep = keep;
    const auto session = kernel.open();
    HuntResult r;
    {
      Progress bar("hunt");
      r = hunt(*session, o, [&](double share, double best) { bar.at(static_cast<std::size_t>(1000 * std::min(share, 1.0)), 1000, fmt::format("error/bound {:.3g}", best)); });
    }
    print(fmt::format("{} tries, {} climbs; greatest error/bound {:.3g}, {:.3g} where climbs began\n", r.tries, r.climbs, r.found.empty() ? 0 : r.found[0].ratio, r.first));
    std::string lines;
    for (const WorstInput& w : r.found)
      if (w.ratio >= threshold) lines += to_line(w) + "\n";
    for (const WorstInput& w : r.found) print(fmt::format("{} {:.3g} {}\n", w.ratio >= threshold ? "kept" : "    ", w.ratio, to_string(w.run.problem)));
    if (!folder.empty() && !lines.empty()) {
      const std::string file = (std::filesystem::path(folder) / "found.txt").string();
      std::string before;
      if (std::ifstream in(file); in) before.assign(std::istreambuf_iterator<char>(in), {});
      try {
        write_file(file, before + lines);
      } catch (const std::runtime_error& e) {
        throw Usage(e.what());
      }
      print("written to " + file + "\n");
    }
    return !r.found.empty() && !(r.found[0].ratio <= 1) ? 1 : 0;
  }
};

HuntCommand command;
const RegisterCommand registered(&command);

}  // namespace
}  // namespace gdn::cli
