// gdn-cts survey: correct kernels of many contracts judged on fresh inputs. Measures what the suite promises of itself: no
// false alarm, bounds that are kept and not worthless, statistics with their stated rate.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>

#include "kernels/contract_file.h"
#include "reference/parallel.h"
#include "reports/file.h"
#include "reports/text.h"
#include "suites/runner.h"
#include "suites/simulated.h"
#include "tools/cli/command.h"
#include "tools/cli/kernel_options.h"
#include "tools/cli/progress.h"
#include "tools/cli/table.h"

namespace gdn::cli {
namespace {

// What is known of one family under one subject (a contract carried out, or a kernel).
struct Row {
  std::size_t cases = 0, statistical = 0, alarms = 0;
  long long judged = 0, vacuous = 0;
  std::vector<double> ratios;                      // per case: the greatest |error| / bound of o
  double worst = 0, closest = 0, share = 0;        // of o and ht; of statistics: the nearest to its limit: of sizes, of amplitudes
  void add(const Record& r) {
    ++cases;
    for (const RecordCheck& c : r.checks) {
      if (c.check == "bound") {
        judged += c.judged + c.vacuous;
        vacuous += c.vacuous;
        const auto metric = [&](const char* name) { return c.metrics.count(name) ? c.metrics.at(name) : 0; };
        if (c.metrics.count("o_max_ratio")) ratios.push_back(metric("o_max_ratio"));
        worst = std::max(worst, metric("max_ratio"));
      } else if (c.check == "statistics" && c.judged > 0) {
        ++statistical;
        closest = std::max(closest, c.metrics.at("closest"));
        share = std::max(share, c.metrics.at("greatest_share"));
      }
    }
  }
  double median() const {
    std::vector<double> r = ratios;
    if (r.empty()) return 0;
    std::nth_element(r.begin(), r.begin() + static_cast<std::ptrdiff_t>(r.size() / 2), r.end());
    return r[r.size() / 2];
  }
};

struct Subject {
  std::string name;
  Contract contract;
  bool kernel = false;
  std::unique_ptr<KernelSession> open() const { return kernel ? open_inline(name, {}) : open_simulated(contract, contract); }
};

struct SurveyCommand final : Command {
  std::string level = "ci", json;
  std::vector<std::string> only_families, contracts, kernels;
  std::uint64_t first_seed = 1, seeds = 1, threads = 0, shown = 20;

  std::string name() const override { return "survey"; }
  std::string summary() const override { return "correct kernels of every contract on fresh inputs: bounds kept, false alarms"; }
  int order() const override { return 71; }
  void options(Options& o) override {
    o.option("--level", level, "LEVEL", "smoke, ci (default), nightly or exhaustive");
    o.option("--family", only_families, "FAMILY", "only these case families", true);
    o.option("--contract", contracts, "CONTRACT", "contracts to carry out (default: every preset); may be repeated", false);
    o.option("--kernel", kernels, "NAME", "built-in kernels instead; may be repeated", true);
    o.option("--seed", first_seed, "N", "the first seed");
    o.option("--seeds", seeds, "N", "how many seeds");
    o.option("--threads", threads, "N", "0: all processors; cases run side by side");
    o.option("--alarms", shown, "N", "print at most N alarms");
    o.option("--json", json, "FILE", "the table as JSON");
    o.footer("Everything judged here is right by construction: exit status 1 when anything fails or is mistrusted.\n"
             "ratio: greatest |error|/bound of o in a case, median over cases; vacuous: share of elements whose bound exceeds the signal.\n"
             "size/limit, pattern/limit: the statistic of any case that comes nearest to its limit (check statistics).");
  }
  int run() override {
    use_threads(threads);
    if (seeds < 1) throw Usage("--seeds must be at least 1");
    if (!contracts.empty() && !kernels.empty()) throw Usage("--contract and --kernel cannot be combined");
    std::vector<Subject> subjects;
    for (const std::string& k : kernels) subjects.push_back({k, open_inline(k, {})->info().contract, true});
    if (kernels.empty())
      for (const std::string& text : contracts.empty() ? contract_presets() : contracts) {
        const Contract c = read_contract(text);
        subjects.push_back({to_string(c), c});
      }
    std::vector<CaseId> ids;
    for (std::uint64_t s = 0; s < seeds; ++s)
      for (CaseId& id : cases_of(parse_level(level), first_seed + s, only_families)) ids.push_back(std::move(id));
    // The largest first, so that no thread is left with one of them at the end.
    std::stable_sort(ids.begin(), ids.end(), [](const CaseId& a, const CaseId& b) { return a.problem.token_heads() > b.problem.token_heads(); });

    std::vector<std::vector<Record>> records(ids.size());
    {
      Progress progress("survey");
      std::size_t done = 0;
      std::mutex mutex;
      parallel_for(static_cast<std::int64_t>(ids.size()), [&](std::int64_t at) {
        const auto i = static_cast<std::size_t>(at);
        const Case c = make_case(ids[i]);
        const Golden g = make_golden(c);
        for (const Subject& s : subjects) {
          Record r = judge_case(g, c, *s.open(), {false, {}});
          r.kernel = s.name;
          records[i].push_back(std::move(r));
        }
        const std::lock_guard lock(mutex);
        progress.at(++done, ids.size(), ids[i].family);
      });
    }

    std::map<std::pair<std::string, std::string>, Row> rows;
    std::map<std::string, Row> totals;
    Row total;
    std::string alarms;
    std::size_t alarm_count = 0;
    for (const auto& list : records)
      for (const Record& r : list) {
        if (r.verdict == "NOT_SUPPORTED") continue;
        Row* const to[] = {&rows[{r.family, r.kernel}], &totals[r.kernel], &total};
        const bool alarm = r.verdict != "PASSED";
        for (Row* row : to) {
          row->add(r);
          row->alarms += alarm;
        }
        if (alarm && ++alarm_count <= shown) alarms += fmt::format("{} {} {}: {}\n", r.verdict, r.kernel, r.case_id, reports::printable(r.reason));
      }
    Table table{{{"family"}, {"contract"}, {"cases", true}, {"elements", true}, {"median ratio", true}, {"max ratio", true}, {"vacuous", true},
                 {"statistical", true}, {"size/limit", true}, {"pattern/limit", true}, {"alarms", true}}, {}};
    const auto line = [&](const std::string& family, const std::string& subject, const Row& r) {
      table.rows.push_back({family, subject, std::to_string(r.cases), std::to_string(r.judged), fmt::format("{:.3g}", r.median()), fmt::format("{:.3g}", r.worst),
                            fmt::format("{:.1f} %", r.judged ? 100 * static_cast<double>(r.vacuous) / static_cast<double>(r.judged) : 0),
                            std::to_string(r.statistical), fmt::format("{:.3g}", r.closest), fmt::format("{:.3g}", r.share), std::to_string(r.alarms)});
    };
    for (const auto& [key, row] : rows) line(key.first, key.second, row);
    for (const auto& [subject, row] : totals) line("all", subject, row);
    line("all", "all", total);
    print(to_text(table));
    if (!alarms.empty()) print("\n" + alarms);
    print(fmt::format("\n{} cases of {} seeds, {} elements judged, {} alarms\n", total.cases, seeds, total.judged, total.alarms));
    if (!json.empty()) {
      try {
        write_file(json, to_json(table));
      } catch (const std::runtime_error& e) {
        throw Usage(e.what());
      }
    }
    return total.alarms ? 1 : 0;
  }
};

SurveyCommand command;
const RegisterCommand registered(&command);

}  // namespace
}  // namespace gdn::cli
