// CUDA memory for the sessions: the arena of a call, canaries included, goes to the device, the kernel runs there, and
// everything comes back, so that stray writes, changed inputs and unwritten outputs are found as for host memory.
#include <vector>

#include "kernels/cuda/host.h"
#include "kernels/device.h"

namespace gdn {
namespace {

Invocation failed(Outcome outcome, const char* message) {
  Invocation r;
  r.outcome = outcome;
  r.message = message;
  return r;
}

Invocation run(const gdn_kernel& kernel, const CallImage& image, std::byte* arena) {
  char message[512] = "";
  auto ok = [&](cudaError_t status, const char* what) { return gdn_cuda::cuda_ok(status, what, message, sizeof message); };
  if (!gdn_cuda::device_present(message, sizeof message)) return failed(Outcome::not_supported, message);
  void* device = nullptr;
  if (!ok(cudaMalloc(&device, image.size), "device memory for the tensors")) return failed(Outcome::error, message);
  Invocation result;
  if (!ok(cudaMemcpy(device, arena, image.size, cudaMemcpyHostToDevice), "copy to the device")) {
    result = failed(Outcome::error, message);
  } else {
    std::vector<std::byte*> data;
    for (const PlacedTensor& t : image.tensors) data.push_back(static_cast<std::byte*>(device) + t.begin);
    result = invoke(kernel, image, data);
    // What the kernel left behind shows here: a launch that failed, an access outside its memory.
    if (!ok(cudaDeviceSynchronize(), "after the kernel") && result.outcome == Outcome::ok) result = failed(Outcome::error, message);
    if (!ok(cudaGetLastError(), "after the kernel") && result.outcome == Outcome::ok) result = failed(Outcome::error, message);
    if (!ok(cudaMemcpy(arena, device, image.size, cudaMemcpyDeviceToHost), "copy from the device") && result.outcome == Outcome::ok)
      result = failed(Outcome::error, message);
  }
  cudaFree(device);
  return result;
}

const RegisterDevice registered(GDN_DEVICE_CUDA, run);

}  // namespace
}  // namespace gdn
