// gdn-cts verify: the gate. Runs a kernel over the cases of a level and says whether it computes what it should.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <set>
#include <tuple>

#include "golden/manifest.h"
#include "reference/standard.h"
#include "reports/text.h"
#include "suites/features.h"
#include "suites/runner.h"
#include "tools/cli/command.h"
#include "tools/cli/journal.h"
#include "tools/cli/kernel_options.h"
#include "tools/cli/machine.h"
#include "tools/cli/progress.h"
#include "tools/cli/show.h"
#include "tools/cli/submission.h"

namespace gdn::cli {
namespace {

// Records of the same question in a journal; a line that was cut off when the run was ended is dropped. Throws Usage for what is no journal of it.
std::vector<Record> earlier_records(const std::string& journal, const KernelInfo& kernel, const GateOptions& gate) {
  const std::vector<Record> all = read_journal<Record>(journal, read_records);
  for (const Record& r : all)
    if (r.kernel != kernel.name || r.kernel_version != kernel.version || r.contract != to_string(kernel.contract) || r.convention != to_string(kernel.convention) ||
        r.level != name(gate.level) || r.seed != gate.seed || r.suite_version != kSuiteVersion || r.edition != kAccuracyEdition)
      throw Usage("--resume: " + journal + " is of another run: " + r.kernel + " " + r.kernel_version + ", contract " + r.contract + ", level " + r.level + ", suite " + r.suite_version);
  return all;
}

// Measured on two cores with cpu_chunk_fp32 at level ci, expected results made on the way: 0.1 s a case and 1.3 ms a token-head.
std::string estimate(const std::vector<CaseId>& ids, const KernelInfo& kernel, std::size_t done) {
  double size = 0;
  std::size_t count = 0;
  for (const CaseId& id : ids)
    if (std::find(kernel.capabilities.operations.begin(), kernel.capabilities.operations.end(), id.problem.operation) != kernel.capabilities.operations.end() &&
        exemption(id.problem, kernel).empty()) {
      size += id.problem.token_heads();
      ++count;
    }
  const double left = count == 0 ? 0 : 1 - static_cast<double>(std::min(done, ids.size())) / static_cast<double>(ids.size());
  return fmt::format("{} of {} cases, {:.4g} token-heads: about {:.0f} minutes on two cores, less where expected results are there; --resume FILE makes it go on where it was ended",
                     count, ids.size(), size, std::ceil(left * (0.1 * static_cast<double>(count) + 1.3e-3 * size) / 60));
}

struct VerifyCommand final : Command {
  KernelOptions kernel;
  OutputOptions output;
  std::string level = "smoke", golden;
  std::vector<std::string> profiles, only_families, cases;
  std::uint64_t seed = 1, jobs = 1;
  std::string shard, baseline, only_failed, waivers, submission, journal;
  bool fail_fast = false, list = false;

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
    o.option("--only-failed", only_failed, "RECORDS.jsonl", "only the cases that did not pass there");
    o.option("-j,--jobs", jobs, "N", "N kernel processes side by side; the records are the same. For kernels that take longer than the suite's own work, which uses all threads anyway");
    o.option("--shard", shard, "I/N", "only every N-th case, beginning with the I-th; auto: the place among the ranks of mpirun or srun, whose records go into the file of --resume with .I-N behind its name");
    o.option("--resume", journal, "FILE", "write every record there as soon as it is made, and do not run again what is there already: for a run that was ended, of the same kernel");
    o.option("--baseline", baseline, "RECORDS.jsonl", "say what changed since these records");
    o.option("--waivers", waivers, "FILE", "failures that are tolerated for a while, with reason and expiry (suites/waivers.h)");
    o.flag("--fail-fast", fail_fast, "stop at the first failure");
    o.flag("--list", list, "print the cases and their sizes in token-heads, and run none");
    output.declare(o);
    o.option("--submission", submission, "DIR", "a report with a statement of suite, machine, kernel and hashes, to be sent to others; `gdn-cts report DIR` checks it");
  }
  int run() override {
    if (!cases.empty() && !only_families.empty()) throw Usage("--case and --family cannot be combined");
    use_threads(kernel.threads);
    output.prepare();
    // Records of an earlier run may be of a kernel that has changed since: its name and version do not show it.
    if (!submission.empty() && !journal.empty()) throw Usage("--submission cannot be combined with --resume: a submission is of one run");
    if (!submission.empty()) make_folder("--submission", submission);
    std::vector<Record> before;
    GateOptions gate;
    try {
      if (!waivers.empty()) gate.waivers = read_waivers(waivers);
      if (!baseline.empty()) before = read_records(baseline);
      if (!baseline.empty() && before.empty()) throw Usage("--baseline: " + baseline + " holds no records");
      if (!only_failed.empty()) {
        if (!cases.empty() || !only_families.empty()) throw Usage("--only-failed cannot be combined with --case or --family");
        const std::vector<Record> failed = read_records(only_failed);
        if (failed.empty()) throw Usage("--only-failed: " + only_failed + " holds no records");
        for (const Record& r : failed)
          if (reports::is_failure(r)) cases.push_back(r.case_id);
        if (cases.empty()) {
          print("every case passed there: nothing to do\n");
          return 0;
        }
      }
    } catch (const std::runtime_error& e) {
      throw Usage(e.what());
    }
    gate.level = parse_level(level);
    gate.seed = seed;
    if (!profiles.empty()) gate.profiles = profiles;
    gate.families = only_families;
    gate.case_ids = cases;
    gate.golden_dir = golden;
    gate.fail_fast = fail_fast;
    const bool narrowed = !cases.empty() || !only_families.empty() || !shard.empty() || fail_fast;
    if (!shard.empty()) std::tie(gate.shard, gate.shards) = parse_shard(shard);
    if (shard == "auto") {                         // the options are the same for all ranks, and so would be the files
      if (journal.empty()) throw Usage("--shard auto: --resume FILE is needed, where every rank leaves its records");
      if (!output.report.empty() || !output.json.empty() || !output.junit.empty() || !submission.empty())
        throw Usage("--shard auto: a rank writes no report; put the files of --resume together and give that one to --resume, without --shard");
      journal += fmt::format(".{}-{}", gate.shard + 1, gate.shards);
    }
    // What is wrong with the question is said before the kernel is started.
    for (const std::string& text : cases) make_case(parse_case_id(text));
    for (const std::string& f : only_families) family_named(f);

    if (jobs < 1 || jobs > 256) throw Usage("--jobs must be 1 to 256");
    const Facts kernel_files = submission.empty() ? Facts{} : hashes_of(kernel.files());
    const std::unique_ptr<KernelSession> session = kernel.open(jobs);
    if (!baseline.empty()) before = of_kernel(std::move(before), session->info().name);
    if (gate.shards > 1 && gate_cases(gate, session->info()).empty()) {
      gate.shards = 1;
      throw Usage(fmt::format("--shard: there is no case for {}, of {} in all", shard, gate_cases(gate, session->info()).size()));
    }
    gate.jobs = jobs;
    gate.open = kernel.opener(jobs);
    if (list) {
      double sum = 0;
      const std::vector<CaseId> ids = gate_cases(gate, session->info());
      for (const CaseId& id : ids) {
        const Case c = make_case(id);
        double size = 0;
        std::string reason;
        for (const Run& run : c.runs) {
          size += run.problem.token_heads();
          if (reason.empty()) reason = unsupported_reason(session->info().capabilities, session->info().contract, run);
        }
        if (reason.empty()) sum += size;
        print(fmt::format("{:<90} {:>8.4g}{}\n", case_id(c), size, reason.empty() ? "" : "   not run: " + reports::printable(reason)));
      }
      print(fmt::format("{} cases, {:.5g} token-heads to run\n", ids.size(), sum));
      return 0;
    }
    GateResult result;
    std::ofstream log;
    if (!journal.empty()) {
      gate.done = earlier_records(journal, session->info(), gate);
      if (!gate.done.empty()) note(fmt::format("{} cases are in {} already", gate.done.size(), journal));
      log.open(journal, std::ios::app);
      if (!log) throw Usage("--resume: cannot write " + journal);
    }
    if (gate.level >= Level::nightly && cases.empty()) note(estimate(gate_cases(gate, session->info()), session->info(), gate.done.size()));
    {
      Progress progress("verify");
      std::size_t failures = 0;
      std::set<std::string> known;
      for (const Record& r : gate.done) known.insert(r.case_id);
      result = run_gate(
          gate, *session,
          [&](std::size_t done, std::size_t total, const Record& r) {
            failures += reports::is_failure(r);
            if (log.is_open() && !known.count(r.case_id)) log << to_json_line(r) << std::endl;
            progress.at(done, total, (failures ? fmt::format("{} failed; ", failures) : "") + r.family);
          },
          [&](const std::string& line) {
            clear_bar();
            note(reports::printable(line));
          });
    }
    for (Record& r : result.records)
      if (r.verdict == "TIMEOUT" && kernel.timeout != KernelOptions().timeout) r.repro += fmt::format(" --timeout {:g}", kernel.timeout);
    if (!gate.done.empty()) result.summary += fmt::format(", {} of them read from {}", gate.done.size(), journal);
    show_gate(result, output);
    if (narrowed) {                                // what was not asked is not lost
      std::set<std::string> asked;
      for (const Record& r : result.records) asked.insert(r.case_id);
      std::erase_if(before, [&](const Record& r) { return !asked.count(r.case_id); });
    }
    if (!baseline.empty()) print("\nsince " + reports::printable(baseline) + "\n" + changes_since(before, result.records));
    if (!submission.empty()) {
      try {
        if (hashes_of(kernel.files()) != kernel_files) throw std::runtime_error("--submission: a file of the kernel changed while it was gated; run it again");
        write_submission(submission, result.records, {result.exit_status == 0, result.summary, result.objections}, machine_facts(), gate_facts(), kernel_files);
      } catch (const std::runtime_error& e) {
        throw Usage(e.what());
      }
      print("submission: " + reports::printable(submission) + "\n");
    }
    return result.exit_status;
  }

 private:
  // The records of one kernel, in a file that may hold those of several.
  std::vector<Record> of_kernel(std::vector<Record> records, const std::string& name) const {
    std::set<std::string> others;
    for (const Record& r : records) others.insert(r.kernel);
    std::erase_if(records, [&](const Record& r) { return r.kernel != name; });
    if (!records.empty()) return records;
    std::string list;
    for (const std::string& other : others) list += (list.empty() ? "" : ", ") + other;
    throw Usage("--baseline: " + baseline + " has no records of " + name + ", it is of " + reports::printable(list) + "; `gdn-cts compare` puts two kernels side by side");
  }

  Facts gate_facts() const {
    const auto joined = [](const std::vector<std::string>& list) {
      std::string s;
      for (const std::string& item : list) s += (s.empty() ? "" : " ") + item;
      return s;
    };
    return {{"level", level}, {"seed", std::to_string(seed)}, {"profiles", profiles.empty() ? "core" : joined(profiles)}, {"families", joined(only_families)},
            {"cases", joined(cases)}, {"shard", shard}, {"waivers", waivers.empty() ? "" : "yes"}};
  }
};

VerifyCommand command;
const RegisterCommand registered(&command);

}  // namespace
}  // namespace gdn::cli
