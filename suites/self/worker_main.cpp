// The worker of the tests: isolated sessions start it in place of gdn-cts, which the tests are not.
#include <cstdio>

#include "kernels/worker.h"

int main(int argc, char** argv) {
  if (const auto status = gdn::run_as_worker(argc, argv)) return *status;
  std::fprintf(stderr, "started by tests only\n");
  return 2;
}
