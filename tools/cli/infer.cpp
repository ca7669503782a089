// gdn-cts infer: which precision contracts a kernel meets, whatever it declares, and the tightest of them.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

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
    o.footer("The tightest preset of the form (recurrent or chunkwise) that the kernel declares, with one point kept shorter where that is needed.\nThe answer is evidence from these cases, not a proof: more cases can only rule contracts out.");
  }

  // Fails at the first case that speaks against the contract, which is tried first under the next one.
  Trial attempt(const Contract& contract, KernelInfo info, std::vector<Answered>& answers) const {
    info.contract = contract;
    Trial t;
    for (std::size_t i = 0; i < answers.size(); ++i) {
      const Answered& a = answers[i];
      if (!unsupported_reason(info.capabilities, contract, a.the_case.runs[0]).empty()) continue;
      const Record r = judge_results(a.golden, a.the_case, info, a.executions, {false, {}});
      const double ratio = reports::max_ratio(r);
      if (!std::isnan(ratio)) t.ratio = std::max(t.ratio, ratio);
      if (r.verdict == "PASSED") ++t.decided;
      if (r.verdict == "FAILED") {
        t.met = false;
        const RecordCheck* c = reports::failing_check(r);
        t.failed = fmt::format("{} at {}", c ? c->check : r.reason, r.case_id);
        std::rotate(answers.begin(), answers.begin() + static_cast<std::ptrdiff_t>(i), answers.begin() + static_cast<std::ptrdiff_t>(i) + 1);
        return t;
      }
    }
    t.met = t.decided > 0;
    if (!t.met) t.failed = "decides no case";
    return t;
  }

  // What a preset says of precision, with the algorithm that the kernel declares.
  static Contract with_options(Contract preset, const Contract& declared) {
    if (preset.form != declared.form) return preset;
    preset.chunk = declared.chunk;
    preset.block = declared.block;
    preset.solve = declared.solve;
    preset.vectors = declared.vectors;
    preset.gate_sum = declared.gate_sum;
    preset.g_min = declared.g_min;
    preset.u_exp = declared.u_exp;
    return preset;
  }
  // Bits given away, over all points: the less the tighter.
  static double looseness(const Contract& c) {
    double bits = c.accumulator == Accumulator::tensor_core ? 0.5 : 0;
    for (std::size_t p = 0; p < kPoints; ++p)
      if (static_cast<Point>(p) != Point::out) bits += std::log2(std::max(unit(c, static_cast<Point>(p)), 0x1p-60) / 0x1p-60);
    return bits;
  }
  // The contract with one point kept shorter that is met, if there is one: the point in the longest format that does. Of several the one
  // whose bound the errors come nearest to.
  std::optional<Contract> one_point_shorter(const Contract& c, const KernelInfo& info, std::vector<Answered>& answers, Progress& progress) const {
    std::optional<Contract> best;
    double nearest = -1;
    for (std::size_t p = 0; p < kPoints; ++p) {
      const auto point = static_cast<Point>(p);
      progress.at(p, kPoints, fmt::format("{} with {} shorter", to_string(c), gdn::name(point)));
      if (point == Point::out || !uses(c, point)) continue;
      std::optional<Contract> met;
      double ratio = 0;
      for (const Format f : {Format::bf16, Format::tf32}) {
        Contract shorter = c;
        shorter.at(point) = Store{f};
        if (unit(shorter, point) <= unit(c, point)) break;
        const Trial t = attempt(shorter, info, answers);
        if (!t.met) break;
        met = shorter;
        ratio = t.ratio;
      }
      if (!met || ratio <= nearest) continue;
      nearest = ratio;
      best = met;
    }
    return best;
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

    // Making the null of a random family takes seconds under every contract: those cases come last.
    std::stable_partition(answers.begin(), answers.end(), [](const Answered& a) { return !find_family(a.the_case.family)->random(); });

    std::vector<Contract> contracts{info.contract};
    for (const std::string& p : contract_presets())
      if (const Contract c = with_options(parse_contract(p), info.contract); !(c == info.contract)) contracts.push_back(c);
    Table table{{{"contract"}, {"met"}, {"cases passed", true}, {"max error/bound", true}, {"remark"}}, {}};
    std::vector<std::pair<Contract, bool>> own;     // of the kernel's form: is it met
    for (std::size_t i = 0; i < contracts.size(); ++i) {
      progress.at(i, contracts.size(), to_string(contracts[i]));
      const Trial t = attempt(contracts[i], info, answers);
      std::string remark = reports::printable(t.failed);
      if (i == 0) remark = "declared" + (remark.empty() ? "" : "; " + remark);
      table.rows.push_back({to_string(contracts[i]), t.met ? "yes" : "no", std::to_string(t.decided), reports::short_number(t.ratio), remark});
      if (contracts[i].form == info.contract.form) own.emplace_back(contracts[i], t.met);
    }
    const bool declared_met = own[0].second;
    std::stable_sort(own.begin(), own.end(), [](const auto& a, const auto& b) { return looseness(a.first) < looseness(b.first); });
    std::optional<Contract> tightest;
    // A whole preset before one with an exception: few cases let much pass.
    for (const auto& [c, met] : own)
      if (met && !tightest) tightest = c;
    for (const auto& [c, met] : own)
      if (!tightest) tightest = one_point_shorter(c, info, answers, progress);
    std::string answer = "none of its form is met, nor with one point shorter", undecided;
    if (tightest) {
      answer = to_string(*tightest);
      for (std::size_t p = 0; p < kPoints; ++p) {
        const Point point = static_cast<Point>(p);
        Contract finer = *tightest;
        finer.at(point) = Store{};
        if (point == Point::out || unit(finer, point) >= unit(*tightest, point)) continue;
        progress.at(p, kPoints, fmt::format("{} longer", gdn::name(point)));
        if (attempt(finer, info, answers).met) undecided += (undecided.empty() ? "" : ", ") + std::string(gdn::name(point));
      }
    }
    clear_bar();
    print(fmt::format("{} on {} cases of level {}\n\n", reports::printable(info.name), answers.size(), level) + to_text(table));
    print(fmt::format("\ntightest contract that it meets here: {}\n", answer));
    if (!undecided.empty()) print(fmt::format("these cases do not tell whether one of these points is kept in fp32: {}\n", undecided));
    if (tightest && declared_met && looseness(*tightest) < looseness(info.contract))
      print(fmt::format("the declared {} is looser than that: what it allows beyond would pass unseen\n", to_string(info.contract)));
    return tightest ? 0 : 1;
  }
};

InferCommand command;
const RegisterCommand registered(&command);

}  // namespace
}  // namespace gdn::cli
