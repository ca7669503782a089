// Host-side helpers of the CUDA kernels: one-line errors, and whether there is a device at all.
#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>

namespace gdn_cuda {

// The error of a launch or call as one line; true when there was none.
bool cuda_ok(cudaError_t status, const char* what, char* message, std::size_t size);
// True when a CUDA device can be used; else the message says why.
bool device_present(char* message, std::size_t size);

}  // namespace gdn_cuda
