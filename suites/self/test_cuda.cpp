// The CUDA kernels where there is no CUDA device: each says so in one line and claims nothing. What they compute is tested
// where there is a device, by `gdn-cts verify --kernel cuda_...`. Without a CUDA compiler the kernels are not built.
#include <algorithm>
#include <cstring>
#include <filesystem>

#include "kernels/registry.h"
#include "kernels/session.h"
#include "suites/self/catch.h"

using namespace gdn;

TEST_CASE("CUDA kernels declare themselves in the terms of the suite") {
  int found = 0;
  for (const gdn_kernel* k : builtin_kernels()) {
    if (k->device != GDN_DEVICE_CUDA) continue;
    ++found;
    INFO(k->name);
    CHECK_NOTHROW(parse_contract(k->contract));
    CHECK_NOTHROW(parse_convention(k->convention));
    CHECK_NOTHROW(parse_capabilities(k->capabilities));
    CHECK_NOTHROW(parse_properties(k->properties));
    CHECK(std::strncmp(k->name, "cuda_", 5) == 0);
  }
#ifdef GDN_HAVE_CUDA
  CHECK(found >= 3);
#else
  CHECK(found == 0);
#endif
}

TEST_CASE("without a device a CUDA kernel is NOT_SUPPORTED and says why") {
  if (std::filesystem::exists("/dev/nvidia0") || std::filesystem::exists("/dev/nvidiactl")) {
    WARN("a CUDA device is here: nothing to test");
    return;
  }
  gdn_problem p{};
  p.struct_size = sizeof p;
  p.N = 1, p.T = 4, p.H = 1, p.HV = 1, p.K = 64, p.V = 64, p.max_length = 4, p.scale = 0.125;
  for (const gdn_kernel* k : builtin_kernels()) {
    if (k->device != GDN_DEVICE_CUDA) continue;
    INFO(k->name);
    void* plan = nullptr;
    char message[256] = "";
    CHECK(k->create(&p, &plan, message, sizeof message) == GDN_NOT_SUPPORTED);
    CHECK(std::strncmp(message, "no CUDA device", 14) == 0);
    CHECK(std::count(message, message + std::strlen(message), '\n') == 0);
  }
}
