// The options that name the kernel under test; see kernel_options.h.
#include "tools/cli/kernel_options.h"
#include "reference/parallel.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "kernels/contract_file.h"
#include "suites/simulated.h"

namespace gdn::cli {
namespace {

// Where the Python package of the adapters lies beside this program: in a source tree or installed. "" when nowhere.
std::string adapters_folder() {
  namespace fs = std::filesystem;
  std::error_code code;
  const fs::path program = fs::read_symlink("/proc/self/exe", code);
  for (const char* from : {"../../tools/adapters", "../share/gdn-cts/adapters"})
    if (const fs::path folder = (program.parent_path() / from).lexically_normal(); !program.empty() && fs::is_directory(folder / "gdn_cts_adapter", code))
      return folder.string();
  return {};
}

// A kernel held to another contract than the one it declares.
class Redeclared final : public KernelSession {
 public:
  Redeclared(std::unique_ptr<KernelSession> session, const Contract& c) : session_(std::move(session)), contract_(c) {}
  const KernelInfo& info() const override {        // an adapter may say more after its first call
    info_ = session_->info();
    info_.contract = contract_;
    info_.how += " --contract " + shell_quote(to_string(contract_));
    return info_;
  }
  Execution run(const Run& run, const std::string& case_id) override { return session_->run(run, case_id); }

 private:
  std::unique_ptr<KernelSession> session_;
  Contract contract_;
  mutable KernelInfo info_;
};

}  // namespace

void KernelOptions::declare(Options& o) {
  o.option("--kernel", kernel, "NAME", "a built-in kernel (`list kernels`), or simulated/CONTRACT, a contract carried out; with --plugin: which kernel of the library");
  o.option("--plugin", plugin, "LIB.so", "a shared library that exports gdn_get_kernel (kernels/gdn_kernel.h)");
  o.option("--exec", exec, "COMMAND", "a program that speaks the adapter protocol (tools/adapters/README.md)");
  o.option("--contract", contract, "CONTRACT", "judge it by this precision contract instead of the one it declares; @FILE reads one");
  o.option("--timeout", timeout, "SECONDS", "for one run of the kernel");
  o.option("--threads", threads, "N", "threads of the suite and of the kernel; 0: all processors");
}

std::function<std::unique_ptr<KernelSession>()> KernelOptions::opener(std::uint64_t jobs) const {
  if (!given()) throw Usage("which kernel? Give one of --kernel NAME, --plugin LIB.so, --exec COMMAND");
  if (!exec.empty() && (!kernel.empty() || !plugin.empty())) throw Usage("--exec cannot be combined with --kernel or --plugin");
  if (!(timeout > 0) || !std::isfinite(timeout)) throw Usage("--timeout must be a positive number of seconds");
  SessionOptions s;
  s.timeout_seconds = timeout;
  s.threads = static_cast<int>(threads);
  if (jobs > 1) s.threads = std::max(1, max_threads() / static_cast<int>(jobs));  // use_threads was called
  s.python_path = adapters_folder();
  return [*this, s]() -> std::unique_ptr<KernelSession> {
    constexpr std::string_view simulated = "simulated/";
    if (exec.empty() && plugin.empty() && kernel.compare(0, simulated.size(), simulated) == 0) {
      const Contract carried_out = read_contract(kernel.substr(simulated.size()));
      return open_simulated(carried_out, contract.empty() ? carried_out : read_contract(contract));
    }
    std::unique_ptr<KernelSession> session = !exec.empty() ? open_process(exec, s) : !plugin.empty() ? open_plugin(plugin, kernel, s) : open_builtin(kernel, s);
    if (contract.empty()) return session;
    return std::make_unique<Redeclared>(std::move(session), read_contract(contract));
  };
}

std::vector<std::string> KernelOptions::files() const {
  namespace fs = std::filesystem;
  std::error_code code;
  if (!plugin.empty()) return {plugin};
  if (exec.empty()) return {fs::read_symlink("/proc/self/exe", code).string()};
  std::vector<std::string> found;
  const auto take = [&](const std::string& file) {
    const bool there = !file.empty() && fs::is_regular_file(file, code);
    if (there && std::find(found.begin(), found.end(), file) == found.end()) found.push_back(file);
    return there;
  };
  // Words of a shell's command, with quotes taken off; what a shell would expand is no name of a file.
  std::string word;
  char quote = 0;
  for (const char c : exec + ' ') {
    if (quote ? c == quote : c == '\'' || c == '"') {
      quote = quote ? 0 : c;
    } else if (quote || (c != ' ' && c != '\t' && c != '\n' && c != ';' && c != '&' && c != '|')) {
      word += c;
    } else {
      std::string module = word.substr(0, word.rfind(':'));
      if (!take(word) && module != word && !take(module)) {
        std::replace(module.begin(), module.end(), '.', '/');
        take(module + ".py");
      }
      word.clear();
    }
  }
  return found;
}

void use_threads(std::uint64_t threads) {
  if (threads > 4096) throw Usage("--threads must be 0 to 4096");
  if (threads > 0) set_max_threads(static_cast<int>(threads));
}

}  // namespace gdn::cli
