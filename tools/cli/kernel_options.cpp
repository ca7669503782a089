// The options that name the kernel under test; see kernel_options.h.
#include "tools/cli/kernel_options.h"

#ifdef _OPENMP
#include <omp.h>
#endif

#include <cmath>

namespace gdn::cli {

void KernelOptions::declare(Options& o) {
  o.option("--kernel", kernel, "NAME", "a built-in kernel (`list kernels`); with --plugin: which kernel of the library");
  o.option("--plugin", plugin, "LIB.so", "a shared library that exports gdn_get_kernel (kernels/gdn_kernel.h)");
  o.option("--exec", exec, "COMMAND", "a program that speaks the adapter protocol (tools/adapters/README.md)");
  o.option("--timeout", timeout, "SECONDS", "for one run of the kernel");
  o.option("--threads", threads, "N", "threads of the suite and of the kernel; 0: all processors");
}

std::unique_ptr<KernelSession> KernelOptions::open() const {
  if (!given()) throw Usage("which kernel? Give one of --kernel NAME, --plugin LIB.so, --exec COMMAND");
  if (!exec.empty() && (!kernel.empty() || !plugin.empty())) throw Usage("--exec cannot be combined with --kernel or --plugin");
  if (!(timeout > 0) || !std::isfinite(timeout)) throw Usage("--timeout must be a positive number of seconds");
  SessionOptions s;
  s.timeout_seconds = timeout;
  s.threads = static_cast<int>(threads);
  if (!exec.empty()) return open_process(exec, s);
  if (!plugin.empty()) return open_plugin(plugin, kernel, s);
  return open_builtin(kernel, s);
}

void use_threads(std::uint64_t threads) {
  if (threads > 4096) throw Usage("--threads must be 0 to 4096");
#ifdef _OPENMP
  if (threads > 0) omp_set_num_threads(static_cast<int>(threads));
#endif
}

}  // namespace gdn::cli
