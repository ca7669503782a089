// The worker: the child process in which a kernel under test runs, so that a crash, a hang or a stray write is a
// verdict on one case. The program that opens sessions starts itself as the worker.
#pragma once
#include <optional>

namespace gdn {

// To be called first in main: when the arguments are those of a worker ("worker --fd N --kernel NAME [--plugin LIB]
// [--memory BYTES]") serves the parent until it hangs up and returns the exit status; otherwise returns nothing.
std::optional<int> run_as_worker(int argc, char** argv);

}  // namespace gdn
