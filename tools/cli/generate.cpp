// gdn-cts generate: golden data, certified expected results in HDF5 (golden/README.md).
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <mutex>

#include "golden/import.h"
#include "golden/manifest.h"
#include "golden/stream.h"
#include "reference/parallel.h"
#include "reference/strict.h"
#include "reports/text.h"
#include "suites/family.h"
#include "tools/cli/command.h"
#include "tools/cli/kernel_options.h"
#include "tools/cli/progress.h"
#include "tools/cli/show.h"

namespace gdn::cli {
namespace {

// One of the words, by position: for options that name an enumerator.
template <class E>
E choose(const char* option, const std::string& text, std::initializer_list<const char*> words) {
  int i = 0;
  std::string known;
  for (const char* w : words) {
    if (text == w) return static_cast<E>(i);
    known += (i++ ? ", " : "") + std::string(w);
  }
  throw Usage(fmt::format("{}: '{}' is none of {}", option, text, known));
}

struct GenerateCommand final : Command {
  std::string level, inputs, directory, shard;
  std::vector<std::string> problems, only_families, cases;
  std::uint64_t seed = 1, threads = 0;
  std::string convention, layout = "THD", state = "KV", gate = "log", heads = "grouped", scale, io, group = "/";
  bool nearest_gates = false, blind = false, strict = false;

  std::string name() const override { return "generate"; }
  std::string summary() const override { return "golden data: certified expected results in HDF5"; }
  int order() const override { return 20; }
  void options(Options& o) override {
    o.option("-o,--output", directory, "DIR", "folder for the files and their manifest (required)");
    o.option("--level", level, "LEVEL", "the cases of a level: smoke, ci, nightly or exhaustive");
    o.option("--family", only_families, "FAMILY", "with --level: only these families; with --problem: the family that fills it (default by operation: typical, decode_pool, ...)", true);
    o.option("--problem", problems, "PROBLEM", "a problem, such as prefill/n1_t257_h2_hv4_k128_v64/bf16/h0; may be repeated", false);
    o.option("--case", cases, "CASE-ID", "a case; may be repeated", false);
    o.option("--seed", seed, "N", "seed of the inputs");
    o.option("--shard", shard, "I/N", "only every N-th case, beginning with the I-th; auto: the place among the ranks of mpirun or srun. All may write into one folder");
    o.option("--inputs", inputs, "FILE.h5", "your own recorded q, k, v, g, beta and, if there, h0 and cu_seqlens");
    o.option("--layout", layout, "L", "of recorded tensors: THD, BTHD or BHTD");
    o.option("--state", state, "S", "of a recorded h0: KV or VK (last one contiguous)");
    o.option("--gate", gate, "G", "of a recorded g: log, linear or log2");
    o.option("--heads", heads, "H", "of recorded q and k: grouped, tiled or repeated");
    o.option("--scale", scale, "X", "scale of the recorded run (default: attribute of the file, else K^-1/2)");
    o.option("--io", io, "DTYPE", "dtype of q, k, v in the golden (default: as recorded)");
    o.flag("--nearest-gates", nearest_gates, "recorded gates that are no exact natural logarithm in fp32: take the nearest one");
    o.option("--group", group, "PATH", "where in the file the recorded tensors are");
    o.flag("--blind", blind, "inputs without expected results; `gdn-cts judge` makes them when it judges");
    o.flag("--strict", strict, "refuse inputs outside the rules of the textbook's step: finite, decay and beta in 0..1, unit keys");
    o.option("--threads", threads, "N", "0: all processors");
    o.footer("Recorded inputs: what a file's attribute `convention` says is taken where no option says otherwise.");
  }

  ImportOptions import_options() const {
    ImportOptions i;
    std::map<std::string, std::string> said{{"layout", layout}, {"state", state}, {"gate", gate}, {"heads", heads}};
    // Attribute "axis=value;axis=value"; an option other than its default wins.
    const std::string text = recorded_convention(inputs, group);
    for (std::size_t begin = 0; begin < text.size();) {
      const std::size_t end = std::min(text.find(';', begin), text.size());
      const std::string word = text.substr(begin, end - begin);
      begin = end + 1;
      const auto at = word.find('=');
      const auto axis = said.find(word.substr(0, at));
      if (axis == said.end() || at == std::string::npos)
        throw BadInput(fmt::format("{}: attribute convention: '{}' is not one of layout=, state=, gate=, heads=", inputs, reports::printable(word)));
      const ImportOptions defaults;
      static const std::map<std::string, std::string> canonical{{"layout", "THD"}, {"state", "KV"}, {"gate", "log"}, {"heads", "grouped"}};
      if (axis->second == canonical.at(axis->first)) axis->second = word.substr(at + 1);
    }
    i.layout = choose<RecordedLayout>("layout", said["layout"], {"THD", "BTHD", "BHTD"});
    i.state = choose<RecordedState>("state", said["state"], {"KV", "VK"});
    i.gate = choose<RecordedGate>("gate", said["gate"], {"log", "linear", "log2"});
    i.heads = choose<RecordedHeads>("heads", said["heads"], {"grouped", "tiled", "repeated"});
    if (!scale.empty()) {
      char* end = nullptr;
      const double x = std::strtod(scale.c_str(), &end);
      if (*end) throw Usage("--scale: '" + scale + "' is not a number");
      i.scale = x;
    }
    if (!io.empty()) i.io = parse_dtype(io);
    i.nearest_gates = nearest_gates;
    i.group = group;
    return i;
  }

  int run() override {
    use_threads(threads);
    if (directory.empty()) throw Usage("where to? -o DIR is required");
    const int ways = !level.empty() + !problems.empty() + !cases.empty() + !inputs.empty();
    if (ways != 1) throw Usage("which cases? Give exactly one of --level, --problem, --case, --inputs");

    std::vector<CaseId> ids;
    Imported imported;
    if (!level.empty()) {
      ids = cases_of(parse_level(level), seed, only_families);
    } else if (!cases.empty()) {
      for (const std::string& text : cases) ids.push_back(parse_case_id(text));
    } else if (!problems.empty()) {
      if (only_families.size() > 1) throw Usage("--problem takes one --family");
      for (const std::string& text : problems) {
        Problem p = parse_problem(text);
        ids.push_back({only_families.empty() ? usual_family(p) : only_families[0], std::move(p), seed});
      }
    } else {
      imported = import_inputs(inputs, import_options());
      for (const std::string& line : imported.notes) note(reports::printable(line));
    }
    for (const CaseId& id : ids) family_named(id.family);
    if (!shard.empty()) {
      if (!inputs.empty()) throw Usage("--shard: --inputs is a single case");
      const auto [mine, all] = parse_shard(shard);
      ids = share_of(std::move(ids), mine, all);
    }

    const auto start = std::chrono::steady_clock::now();
    OracleStats sum;
    std::uintmax_t bytes = 0;
    std::filesystem::path last;
    const std::size_t count = inputs.empty() ? ids.size() : 1;
    {
      Progress progress("generate");
      std::mutex mutex;
      std::size_t done = 0;
      const auto make = [&](Case c, bool alone) {
        for (const Run& run : c.runs)
          if (std::string bad = strict ? strict_complaint(run) : std::string(); !bad.empty()) throw Usage(fmt::format("{}: run {}: {}", case_id(c), run.name, bad));
        if (blind)
          for (Run& run : c.runs) run.truth = false;
        const std::string id = case_id(c);
        OracleStats s;
        const std::filesystem::path file =
            generate_golden(directory, c, &s, [&](double part) { if (alone) progress.at(done, count, id, part); }, imported.source);
        const std::lock_guard held(mutex);
        last = file;
        bytes += std::filesystem::file_size(file);
        sum += s;
        progress.at(++done, count, id);
      };
      // Small cases side by side, large ones head by head on all processors.
      const auto large = std::stable_partition(ids.begin(), ids.end(), beside_others);
      std::atomic<bool> broken{false};             // a full disk, say: no further case is begun
      parallel_for(large - ids.begin(), [&](std::int64_t i) {
        if (broken) return;
        try {
          make(make_case(ids[static_cast<std::size_t>(i)]), false);
        } catch (...) {
          broken = true;
          throw;
        }
      }, large - ids.begin() > 1);
      for (auto i = large; i != ids.end(); ++i) make(make_case(*i), true);
      if (!inputs.empty()) make(std::move(imported.the_case), true);
      sort_manifest(directory);
    }
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    const auto share = [&](std::int64_t missing) {
      return sum.elements ? fmt::format("{:.4g}%", 100.0 * static_cast<double>(sum.elements - missing) / static_cast<double>(sum.elements)) : std::string("-");
    };
    if (count == 1) print(last.string() + "\n");
    print(fmt::format("{} golden{} in {}: {:.4g} MB, {:.3g} s\n", count, count == 1 ? "" : "s", directory, static_cast<double>(bytes) / 1e6, seconds));
    if (blind) return 0;
    print(fmt::format("{} expected values; correctly rounded result known for fp32, fp16 and bf16: {} ({} others are ties or nearly), for binary64: {}\n",
                      sum.elements, share(sum.balls), sum.balls, share(sum.uncertified_fp64)));
    print(fmt::format("heads finished by exact arithmetic: {}; run again in 256 bits or more: {}\n", sum.exact_heads, sum.multiprecision_heads));
    return 0;
  }
};

GenerateCommand command;
const RegisterCommand registered(&command);

}  // namespace
}  // namespace gdn::cli
