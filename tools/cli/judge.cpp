// gdn-cts judge: results that were computed elsewhere, or a kernel on a golden file of recorded inputs.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "golden/store.h"
#include "kernels/contract_file.h"
#include "reports/text.h"
#include "suites/runner.h"
#include "tools/cli/command.h"
#include "tools/cli/kernel_options.h"
#include "tools/cli/show.h"

namespace gdn::cli {
namespace {

struct JudgeCommand final : Command {
  KernelOptions kernel;
  OutputOptions output;
  std::string golden_file, candidate, convention, properties, label;

  std::string name() const override { return "judge"; }
  std::string summary() const override { return "judge results that were computed elsewhere against a golden file"; }
  int order() const override { return 31; }
  void options(Options& o) override {
    o.option("--golden", golden_file, "FILE.h5", "expected results (required)");
    o.option("--candidate", candidate, "FILE.h5", "results: o and ht (of verify also snapshots, of a stage its outputs) at the root, or one group per run (golden/README.md)");
    o.option("--convention", convention, "CONVENTION", "in which the results are laid out (`list conventions`); default canonical");
    o.option("--properties", properties, "P;...", "what the candidate promises: deterministic;shape_invariant;symmetric;masks_select;steps_as_prefill");
    o.option("--name", label, "NAME", "what the report calls it; default the file's name");
    kernel.declare(o);
    output.declare(o);
    o.footer("Instead of --candidate, the kernel options run a kernel on the inputs of the golden file.\n"
             "--contract, --convention, --properties and --name may stand in the candidate as attributes of these names.");
  }

  // The option, else the file's attribute.
  std::string said(const char* key, const std::string& option, const std::map<std::string, std::string>& attributes) const {
    if (!option.empty()) return option;
    const auto at = attributes.find(key);
    return at == attributes.end() ? "" : at->second;
  }

  KernelInfo declared() const {
    const auto attributes = text_attributes(candidate, {"name", "version", "contract", "convention", "properties"});
    KernelInfo info;
    info.name = said("name", label, attributes);
    if (info.name.empty()) info.name = std::filesystem::path(candidate).stem().string();
    info.version = said("version", "", attributes);
    const std::string c = said("contract", kernel.contract, attributes);
    if (c.empty()) throw Usage("which precision contract is the candidate held to? Give --contract (`gdn-cts list contracts`)");
    info.contract = read_contract(c);
    info.convention = parse_convention(said("convention", convention, attributes));
    info.properties = parse_properties(said("properties", properties, attributes));
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
      TensorSet found = read_tensors(candidate, c.runs.size() == 1 ? "/" : "/" + run.name);
      TensorSet outputs;
      for (auto& [tensor, want] : output_shapes(layout, run)) {
        const std::string where = candidate + ": " + (c.runs.size() == 1 ? "" : "/" + run.name) + "/" + tensor;
        const auto at = found.find(tensor);
        if (at == found.end()) throw BadInput(where + ": dataset is missing");
        if (at->second.shape != want.shape) throw BadInput(where + ": shape " + shape_text(at->second.shape) + ", want " + shape_text(want.shape));
        try {
          outputs[tensor] = coerce(at->second, want.dtype);
        } catch (const std::invalid_argument& e) {
          throw BadInput(where + ": " + e.what());
        }
      }
      Execution e;
      e.outputs = from_kernel(layout, run, std::move(outputs));
      list.push_back(std::move(e));
    }
    return list;
  }

  int run() override {
    use_threads(kernel.threads);
    output.prepare();
    if (golden_file.empty()) throw Usage("--golden FILE is required");
    if (candidate.empty() == !kernel.given()) throw Usage("give either --candidate FILE or a kernel (--kernel, --plugin, --exec)");
    Golden golden = read_golden(golden_file);
    Case c = golden.the_case;
    // Relations between runs are not stored; the family that made the case knows them.
    if (find_family(c.family)) {
      Case fresh = make_case({c.family, c.problem, c.seed});
      bool same = fresh.runs.size() == c.runs.size();
      for (std::size_t i = 0; same && i < c.runs.size(); ++i) same = fresh.runs[i].inputs == c.runs[i].inputs;
      if (same) c = std::move(fresh);
      else note(golden_file + ": its inputs are not those that family " + c.family + " makes now: relations between runs are not judged");
    }
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
      const KernelInfo info = declared();
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
