// What the device reaches in plain work; see rates.cu.
#pragma once
#include <cuda_runtime_api.h>

namespace gdn_cuda {

// Both run `rounds` rounds on every multiprocessor and return the operations done. Errors show in cudaGetLastError.
double tensor_work(int rounds, cudaStream_t stream);   // bf16 wgmma
double fma_work(int rounds, cudaStream_t stream);

}  // namespace gdn_cuda
