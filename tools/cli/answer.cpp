// gdn-cts answer: a kernel on the inputs of a blind folder (`generate --blind`). It writes what `gdn-cts judge` judges, and makes no expected results itself: for
// the machine that has the kernel, while who judges has the processors.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "golden/manifest.h"
#include "golden/store.h"
#include "reports/text.h"
#include "tools/cli/command.h"
#include "tools/cli/kernel_options.h"
#include "tools/cli/progress.h"
#include "tools/cli/results.h"
#include "tools/cli/show.h"

namespace gdn::cli {
namespace {

namespace fs = std::filesystem;

struct AnswerCommand final : Command {
  KernelOptions kernel;
  std::string inputs, directory;

  std::string name() const override { return "answer"; }
  std::string summary() const override { return "run a kernel on blind inputs, for `judge`"; }
  int order() const override { return 22; }
  void options(Options& o) override {
    o.option("--inputs", inputs, "DIR", "inputs, as `gdn-cts generate --blind` writes them; or one such file (required)");
    o.option("-o,--output", directory, "DIR", "folder for the results: a file for each file of the inputs, of the same name (required)");
    kernel.declare(o);
    o.footer("Results are canonical, whatever the kernel's convention, and say what the kernel declares:\n  gdn-cts judge --golden INPUTS --candidate RESULTS");
  }

  int run() override {
    use_threads(kernel.threads);
    if (inputs.empty()) throw Usage("which inputs? --inputs DIR is required");
    if (directory.empty()) throw Usage("where to? -o DIR is required");
    std::error_code code;
    std::vector<fs::path> files;
    if (!fs::is_directory(inputs, code)) {
      files.emplace_back(inputs);
    } else {
      files = golden_files(inputs);
      if (files.empty()) throw Usage("--inputs: " + inputs + " holds no case");
      if (fs::equivalent(inputs, directory, code)) throw Usage("--inputs and -o are the same folder");
    }
    const auto session = kernel.open();
    make_folder("-o", directory);
    std::map<std::string, std::size_t> count;
    std::string first_failure;
    {
      Progress progress("answer");
      for (const fs::path& file : files) {
        const Case c = read_golden(file).the_case;
        if (const std::string own = file_stem(case_id(c)) + ".h5"; files.size() > 1 && own != file.filename().string()) throw BadInput(file.string() + ": holds case " + case_id(c) + ", whose file is " + own);
        std::vector<Execution> executions;
        for (const Run& run : c.runs) {
          Execution e;
          e.message = unsupported_reason(session->info().capabilities, session->info().contract, run);
          if (!e.message.empty()) e.outcome = Outcome::not_supported;
          else e = session->run(run, case_id(c));
          executions.push_back(std::move(e));
          if (executions.back().outcome != Outcome::ok) break;
        }
        const Execution& last = executions.back();
        ++count[outcome_name(last.outcome)];
        if (last.outcome != Outcome::ok && last.outcome != Outcome::not_supported && first_failure.empty()) first_failure = case_id(c) + ": " + last.message;
        write_answer(fs::path(directory) / file.filename(), c, session->info(), executions);
        progress.at(count_of(count), files.size(), c.family);
      }
    }
    std::string summary = fmt::format("{} cases", files.size());
    for (const auto& [outcome, n] : count) summary += fmt::format(", {} {}", n, outcome);
    if (!first_failure.empty()) note(reports::printable(first_failure));
    print(summary + fmt::format(" in {}\njudge them with\n  {} judge --golden {} --candidate {}\n", directory, invocation(), shell_quote(inputs),
                                shell_quote(files.size() > 1 || fs::is_directory(inputs, code) ? directory : (fs::path(directory) / files[0].filename()).string())));
    return first_failure.empty() ? 0 : 1;
  }

 private:
  static std::size_t count_of(const std::map<std::string, std::size_t>& count) {
    std::size_t n = 0;
    for (const auto& [outcome, part] : count) n += part;
    return n;
  }
};

AnswerCommand command;
const RegisterCommand registered(&command);

}  // namespace
}  // namespace gdn::cli
