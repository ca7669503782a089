// gdn-cts judge: results that were computed elsewhere, of one case or of a folder of them, or a kernel on a golden file of recorded inputs.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <set>

#include "golden/manifest.h"
#include "golden/store.h"
#include "kernels/contract_file.h"
#include "kernels/schedule.h"
#include "reports/text.h"
#include "suites/runner.h"
#include "tools/cli/command.h"
#include "tools/cli/kernel_options.h"
#include "tools/cli/progress.h"
#include "tools/cli/results.h"
#include "tools/cli/show.h"

namespace gdn::cli {
namespace {

// A folder of results as a kernel, so that they are gated like one. Its cases are files named like those of the inputs.
class Folder final : public KernelSession {
 public:
  // several: ids of cases of more than one run.
  Folder(std::string folder, KernelInfo info, std::set<std::string> several) : folder_(std::move(folder)), info_(std::move(info)), several_(std::move(several)) {}
  const KernelInfo& info() const override { return info_; }
  Execution run(const Run& run, const std::string& id) override {
    Execution e;
    const std::string file = (std::filesystem::path(folder_) / (file_stem(id) + ".h5")).string();
    std::error_code code;
    try {
      if (!std::filesystem::exists(file, code)) throw BadInput("no results: there is no " + file);
      return read_answer(file, run, !several_.count(id), info_.convention);
    } catch (const BadInput& bad) {
      e.outcome = Outcome::error;
      e.message = bad.what();
    }
    return e;
  }

 private:
  std::string folder_;
  KernelInfo info_;
  std::set<std::string> several_;
};

struct JudgeCommand final : Command {
  KernelOptions kernel;
  OutputOptions output;
  std::string golden_file, candidate, convention, properties, capabilities, label;
  std::vector<std::string> profiles;

  std::string name() const override { return "judge"; }
  std::string summary() const override { return "judge results that were computed elsewhere against a golden file"; }
  int order() const override { return 31; }
  void options(Options& o) override {
    o.option("--golden", golden_file, "FILE.h5", "expected results, or inputs without them (required); or a folder of such files, as `gdn-cts generate --blind` writes");
    o.option("--candidate", candidate, "FILE.h5", "results: o and ht (of verify also snapshots, of a stage its outputs) at the root, or one group per run (golden/README.md); or a folder of such files, named like those of --golden");
    o.option("--convention", convention, "CONVENTION", "in which the results are laid out (`list conventions`); default canonical");
    o.option("--properties", properties, "P;...", "what the candidate promises: deterministic;shape_invariant;symmetric;masks_select;steps_as_prefill");
    o.option("--capabilities", capabilities, "C;...", "with folders: what the candidate does, as a kernel declares it (tools/adapters/README.md); other cases are NOT_SUPPORTED. Default: what the results say (`gdn-cts answer`), else all that the folder asks");
    o.option("--profile", profiles, "PROFILE", "with folders: what the candidate claims and must show, of what is there (default: core); may be repeated", true);
    o.option("--name", label, "NAME", "what the report calls it; default the file's name");
    kernel.declare(o);
    output.declare(o);
    o.footer("Instead of --candidate, the kernel options run a kernel on the inputs of the golden file.\n"
             "--contract, --convention, --properties, --capabilities and --name may stand in the candidate's files as attributes of these names; `gdn-cts answer` writes them.");
  }

  // What the options say, else the attributes of the candidate.
  KernelInfo declared(const std::map<std::string, std::string>& attributes, const std::string& usual_name) const {
    const auto said = [&](const char* key, const std::string& option) {
      const auto at = attributes.find(key);
      return !option.empty() || at == attributes.end() ? option : at->second;
    };
    KernelInfo info;
    info.name = said("name", label);
    if (info.name.empty()) info.name = usual_name;
    info.version = said("version", "");
    info.module = said("module", "");
    if (const std::string device = said("device", ""); !device.empty()) info.device = device;
    const std::string c = said("contract", kernel.contract);
    if (c.empty()) throw Usage("which precision contract is the candidate held to? Give --contract (`gdn-cts list contracts`)");
    info.contract = read_contract(c);
    info.convention = parse_convention(said("convention", convention));
    info.properties = parse_properties(said("properties", properties));
    info.capabilities = parse_capabilities(said("capabilities", capabilities));
    info.how = "--candidate " + shell_quote(candidate);
    return info;
  }

  // Outputs at the top level of the file, instead of a group for each run.
  bool of_base_run_alone() const {
    try {
      return read_tensors(candidate, "/").count("o") > 0;   // a stage has one run
    } catch (const BadInput&) {                    // reading the groups says what is wrong
      return false;
    }
  }

  std::vector<Execution> executions(const Case& c, const Convention& layout) const {
    std::vector<Execution> list;
    for (const Run& run : c.runs) {
      list.push_back(read_answer(candidate, run, c.runs.size() == 1, layout));
      if (list.back().outcome != Outcome::ok) break;
    }
    list.resize(c.runs.size());
    return list;
  }

  // The case of a file of inputs, with the relations that its family knows, where that makes the same inputs still.
  std::optional<Case> of_family(const Case& stored) const {
    if (!find_family(stored.family)) return std::nullopt;
    Case fresh = make_case({stored.family, stored.problem, stored.seed});
    bool same = fresh.runs.size() == stored.runs.size();
    for (std::size_t i = 0; same && i < stored.runs.size(); ++i) same = fresh.runs[i].inputs == stored.runs[i].inputs;
    return same ? std::optional(std::move(fresh)) : std::nullopt;
  }

  // The capabilities of a kernel that does nothing, and what it takes to do a problem as well.
  static Capabilities nothing() {
    Capabilities c;
    c.operations.clear();
    c.rules.clear();
    for (auto* dtypes : {&c.io, &c.state, &c.gate, &c.beta}) dtypes->clear();
    c.l2.clear();
    c.strides = c.short_offsets = c.noht = c.raw_gates = c.any_beta = true;
    return c;
  }
  static void add(const Problem& p, Capabilities& c) {
    const auto put = [](auto& list, const auto& x) {
      if (std::find(list.begin(), list.end(), x) == list.end()) list.push_back(x);
    };
    put(c.operations, p.operation);
    for (const Problem& call : call_problems(p)) put(c.operations, call.operation);
    put(c.rules, p.rule);
    put(c.io, p.io);
    put(c.state, p.state);
    put(c.gate, p.gate);
    put(c.beta, p.beta);
    put(c.l2, p.l2);
    if (p.operation != Operation::stages) return;
    put(c.stages, p.stage);
    put(c.chunks, p.chunk);
  }

  int judge_folder() {
    namespace fs = std::filesystem;
    std::error_code code;
    if (!fs::is_directory(candidate, code)) throw Usage("--golden is a folder, so --candidate has to be one; " + candidate + " is none");
    const std::vector<fs::path> files = golden_files(golden_file), results_files = golden_files(candidate);
    // All files say the same of the kernel, or are not of one.
    std::map<std::string, std::string> attributes;
    for (const fs::path& file : results_files) {
      auto said = declared_in(file.string());
      if (file == results_files.front()) attributes = std::move(said);
      else if (said != attributes) throw BadInput(file.string() + ": declares another kernel than " + results_files.front().string());
    }
    KernelInfo info = declared(attributes, (fs::path(candidate) / "").parent_path().filename().string());
    const bool all = info.capabilities.text.empty();   // nothing says what the kernel does: all that the folder asks
    if (all) info.capabilities = nothing();
    GateOptions gate;
    gate.given = true;
    if (!profiles.empty()) gate.profiles = profiles;
    check_profiles(gate.profiles);
    std::set<std::string> known, several;
    for (const fs::path& file : files) {
      const Case stored = read_golden(file).the_case;
      const auto c = of_family(stored);
      if (!c) throw BadInput(file.string() + ": its inputs are not those that a case family makes now; judge it alone");
      if (const std::string own = file_stem(case_id(*c)) + ".h5"; own != file.filename().string()) throw BadInput(file.string() + ": holds case " + case_id(*c) + ", whose file is " + own);
      known.insert(file.filename().string());
      gate.case_ids.push_back(case_id(*c));
      if (c->runs.size() > 1) several.insert(case_id(*c));
      if (all)
        for (const Run& run : c->runs) add(run.problem, info.capabilities);
    }
    if (gate.case_ids.empty()) throw Usage("--golden: " + golden_file + " holds no case");
    for (const auto& [file, entry] : read_manifest(golden_file))
      if (!known.count(file)) throw BadInput((fs::path(golden_file) / file).string() + ": is missing, the manifest lists it");
    for (const std::string& p : profiles)
      if (std::none_of(gate.case_ids.begin(), gate.case_ids.end(), [&](const std::string& id) { return in_profile(find_family(parse_case_id(id).family)->profile(), p); }))
        throw Usage("--golden: " + golden_file + " holds no case of profile " + p);
    for (const fs::path& file : results_files)
      if (!known.count(file.filename().string())) note(file.string() + ": no such case in " + golden_file + ", not judged");
    Folder results(candidate, info, several);
    GateResult result;
    {
      Progress progress("judge");
      result = run_gate(gate, results, [&](std::size_t done, std::size_t total, const Record& r) { progress.at(done, total, r.family); });
    }
    const std::string options = " --contract " + shell_quote(to_string(info.contract)) + (convention.empty() ? "" : " --convention " + shell_quote(convention)) +
                                (properties.empty() ? "" : " --properties " + shell_quote(properties));
    for (Record& r : result.records) {
      const std::string file = file_stem(r.case_id) + ".h5";
      r.level.clear();                             // of its own, the folder has none
      r.repro = "gdn-cts judge --golden " + shell_quote((fs::path(golden_file) / file).string()) + " --candidate " + shell_quote((fs::path(candidate) / file).string()) + options;
    }
    std::map<std::string, std::size_t> count;
    for (const Record& r : result.records) ++count[r.verdict];
    result.summary = fmt::format("{}: {} cases of {}", result.exit_status ? "FAIL" : "PASS", result.records.size(), reports::printable(golden_file));
    for (const auto& [verdict, n] : count) result.summary += fmt::format(", {} {}", n, verdict);
    result.summary += "; narrowed to the cases of the folder, required:";
    for (const std::string& p : gate.profiles) result.summary += " " + p;
    show_gate(result, output);
    return result.exit_status;
  }

  int run() override {
    use_threads(kernel.threads);
    output.prepare();
    if (golden_file.empty()) throw Usage("--golden FILE is required");
    if (candidate.empty() == !kernel.given()) throw Usage("give either --candidate FILE or a kernel (--kernel, --plugin, --exec)");
    std::error_code code;
    if (std::filesystem::is_directory(golden_file, code)) {
      if (kernel.given()) throw Usage("a kernel is gated by `gdn-cts verify`; a folder is judged with --candidate");
      return judge_folder();
    }
    if (!capabilities.empty() || !profiles.empty()) throw Usage("--capabilities and --profile are for folders");
    Golden golden = read_golden(golden_file);
    Case c = golden.the_case;
    // Relations between runs are not stored; the family that made the case knows them.
    if (auto fresh = of_family(c)) c = std::move(*fresh);
    else if (find_family(c.family)) note(golden_file + ": its inputs are not those that family " + c.family + " makes now: relations between runs are not judged");
    // A blind file (generate --blind) has inputs only.
    if (std::none_of(golden.the_case.runs.begin(), golden.the_case.runs.end(), [](const Run& r) { return r.truth; })) {
      const bool of_family = std::any_of(c.runs.begin(), c.runs.end(), [](const Run& r) { return r.truth; });
      if (!of_family && c.relations.empty())
        for (Run& r : c.runs) r.truth = true;
      if (of_family || c.relations.empty()) {
        note(golden_file + ": holds no expected results, making them");
        golden = make_golden(c);
      }
    }
    std::string how = "gdn-cts judge --golden " + shell_quote(golden_file);
    GateResult result;
    Record r;
    if (!candidate.empty()) {
      const KernelInfo info = declared(declared_in(candidate), std::filesystem::path(candidate).stem().string());
      if (c.runs.size() > 1 && of_base_run_alone()) {
        note(candidate + ": holds the outputs of run '" + c.runs[0].name + "' alone: relations between runs are not judged");
        c.runs.resize(1);
        c.relations.clear();
        golden.the_case = c;
        golden.truths.resize(1);
      }
      how += " " + info.how + " --contract " + shell_quote(to_string(info.contract));
      if (const std::string text = to_string(info.convention); !text.empty()) how += " --convention " + shell_quote(text);
      if (!properties.empty()) how += " --properties " + shell_quote(properties);
      r = judge_results(golden, c, info, executions(c, info.convention));
    } else {
      const auto session = kernel.open();
      how += " " + session->info().how;
      r = judge_case(golden, c, *session);
    }
    r.repro = how;
    result.exit_status = r.verdict == "PASSED" ? 0 : 1;
    result.summary = fmt::format("{}: {} is {}{}", result.exit_status ? "FAIL" : "PASS", r.case_id, r.verdict, r.reason.empty() ? "" : ": " + r.reason);
    result.records.push_back(std::move(r));
    show_gate(result, output);
    return result.exit_status;
  }
};

JudgeCommand command;
const RegisterCommand registered(&command);

}  // namespace
}  // namespace gdn::cli
