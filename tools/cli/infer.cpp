// gdn-cts infer: which precision contracts a kernel meets, whatever it declares, and the tightest of them.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "reports/text.h"
#include "suites/runner.h"
#include "tools/cli/command.h"
#include "tools/cli/kernel_options.h"
#include "tools/cli/progress.h"
#include "tools/cli/table.h"

namespace gdn::cli {
namespace {

struct Answered {                                  // a case and what the kernel made of it, judged under many contracts
  Case the_case;
  Golden golden;
  std::vector<Execution> executions;
};

struct Trial {
  bool met = true;
  std::size_t decided = 0;                         // cases that passed
  double ratio = 0;                                // largest error / bound: the nearer to 1, the tighter the contract
  std::string failed;                              // the first case that failed, and why
};

struct InferCommand final : Command {
  KernelOptions kernel;
  std::string level = "smoke";
  std::vector<std::string> only_families;
  std::uint64_t seed = 1;

  std::string name() const override { return "infer"; }
  std::string summary() const override { return "the tightest precision contract that a kernel meets"; }
  int order() const override { return 41; }
  void options(Options& o) override {
    kernel.declare(o);
    o.option("--level", level, "LEVEL", "the cases to look at");
    o.option("--family", only_families, "FAMILY", "only these case families", true);
    o.option("--seed", seed, "N", "seed of the inputs");
    o.footer("Chosen among the contracts of the form (recurrent or chunkwise) that the kernel declares.\nThe answer is evidence from these cases, not a proof: more cases can only rule contracts out.");
  }

  Trial attempt(const Contract& contract, KernelInfo info, const std::vector<Answered>& answers) const {
    info.contract = contract;
    Trial t;
    for (const Answered& a : answers) {
      if (!unsupported_reason(info.capabilities, contract, a.the_case.runs[0]).empty()) continue;
      const Record r = judge_results(a.golden, a.the_case, info, a.executions, {false, {}});
      const double ratio = reports::max_ratio(r);
      if (!std::isnan(ratio)) t.ratio = std::max(t.ratio, ratio);
      if (r.verdict == "PASSED") ++t.decided;
      if (r.verdict == "FAILED") {
        t.met = false;
        const RecordCheck* c = reports::failing_check(r);
        t.failed = fmt::format("{} at {}", c ? c->check : r.reason, r.case_id);
        return t;
      }
    }
    t.met = t.decided > 0;
    if (!t.met) t.failed = "decides no case";
    return t;
  }

  int run() override {
    use_threads(kernel.threads);
    const std::vector<CaseId> ids = cases_of(parse_level(level), seed, only_families);
    const auto session = kernel.open();
    const KernelInfo info = session->info();
    Progress progress("infer");
    std::vector<Answered> answers;
    for (std::size_t i = 0; i < ids.size(); ++i) {
      progress.at(i, ids.size(), "running the kernel");
      Case c = make_case(ids[i]);
      std::vector<Execution> executions;
      for (const Run& run : c.runs) {
        if (!unsupported_reason(info.capabilities, info.contract, run).empty()) break;
        executions.push_back(session->run(run, case_id(c)));
        if (executions.back().outcome != Outcome::ok) break;
      }
      if (executions.size() != c.runs.size() || executions.back().outcome != Outcome::ok) continue;
      Golden g = make_golden(c);
      answers.push_back({std::move(c), std::move(g), std::move(executions)});
    }
    if (answers.empty()) throw Usage("the kernel gave no result for any of the cases");

    std::vector<Contract> contracts{info.contract};
    for (const std::string& p : contract_presets())
      if (const Contract c = parse_contract(p); !(c == info.contract)) contracts.push_back(c);
    Table table{{{"contract"}, {"met"}, {"cases passed", true}, {"max error/bound", true}, {"remark"}}, {}};
    const Contract* tightest = nullptr;
    double best = -1;
    for (std::size_t i = 0; i < contracts.size(); ++i) {
      progress.at(i, contracts.size(), to_string(contracts[i]));
      const Trial t = attempt(contracts[i], info, answers);
      std::string remark = reports::printable(t.failed);
      if (i == 0) remark = "declared" + (remark.empty() ? "" : "; " + remark);
      table.rows.push_back({to_string(contracts[i]), t.met ? "yes" : "no", std::to_string(t.decided), reports::short_number(t.ratio), remark});
      if (t.met && contracts[i].form == info.contract.form && t.ratio > best) {
        best = t.ratio;
        tightest = &contracts[i];
      }
    }
    std::string answer = "none of its form is met";
    if (tightest) {
      // From the tightest preset on: every point that may be finer still. fp32 is the finest that a kernel would declare.
      Contract c = *tightest;
      for (std::size_t p = 0; p < static_cast<std::size_t>(Point::count); ++p) {
        const Point point = static_cast<Point>(p);
        if (point == Point::out || unit_roundoff(c.at(point)) <= 0x1p-24) continue;
        progress.at(p, static_cast<std::size_t>(Point::count), fmt::format("{} finer", gdn::name(point)));
        Contract finer = c;
        finer.at(point) = Store{};
        if (attempt(finer, info, answers).met) c = finer;
      }
      answer = to_string(c);
    }
    clear_bar();
    print(fmt::format("{} on {} cases of level {}\n\n", reports::printable(info.name), answers.size(), level) + to_text(table));
    print(fmt::format("\ntightest contract that it meets here: {}\n", answer));
    return tightest ? 0 : 1;
  }
};

InferCommand command;
const RegisterCommand registered(&command);

}  // namespace
}  // namespace gdn::cli
