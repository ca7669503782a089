// The CUDA kernels among the built-in ones.
#include "kernels/registry.h"

namespace gdn_cuda {
extern const gdn_kernel chunk_bf16_kernel, chunk_fp32_kernel, chunk_tf32_kernel, recurrent_fp32_kernel;
}

namespace gdn {
namespace {
const RegisterKernel registered[] = {RegisterKernel(&gdn_cuda::chunk_bf16_kernel), RegisterKernel(&gdn_cuda::chunk_fp32_kernel),
                                     RegisterKernel(&gdn_cuda::chunk_tf32_kernel), RegisterKernel(&gdn_cuda::recurrent_fp32_kernel)};
}  // namespace
}  // namespace gdn
