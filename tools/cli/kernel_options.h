// The options that name the kernel under test, shared by every subcommand that runs one.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kernels/session.h"
#include "tools/cli/command.h"

namespace gdn::cli {

struct KernelOptions {
  std::string kernel, plugin, exec, contract;
  double timeout = 60;
  std::uint64_t threads = 0;

  void declare(Options& o);
  bool given() const { return !kernel.empty() || !plugin.empty() || !exec.empty(); }
  // Starts the kernel. Throws Usage, std::invalid_argument, BadInput.
  std::unique_ptr<KernelSession> open(std::uint64_t jobs = 1) const { return opener(jobs)(); }
  // The same for several sessions, which may be opened side by side.
  std::function<std::unique_ptr<KernelSession>()> opener(std::uint64_t jobs) const;
  // The files that the kernel is, as far as the options name them: the plugin; what the command of --exec names, also as FILE:FUNCTION
  // or MODULE:FUNCTION; of a built-in kernel this program.
  std::vector<std::string> files() const;
};

// For this process: 0 leaves what the environment says. Throws Usage.
void use_threads(std::uint64_t threads);

}  // namespace gdn::cli
