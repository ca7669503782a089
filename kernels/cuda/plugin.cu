// The CUDA kernels as a plugin: the entry point of the ABI over the kernels of this folder.
#include "kernels/gdn_kernel.h"

namespace gdn_cuda {
extern const gdn_kernel chunk_bf16_kernel, chunk_fp32_kernel, recurrent_fp32_kernel;
}

extern "C" const gdn_kernel* gdn_get_kernel(int32_t index) {
  static const gdn_kernel* const kernels[] = {&gdn_cuda::chunk_bf16_kernel, &gdn_cuda::chunk_fp32_kernel, &gdn_cuda::recurrent_fp32_kernel};
  return index >= 0 && index < static_cast<int32_t>(sizeof kernels / sizeof kernels[0]) ? kernels[index] : nullptr;
}
