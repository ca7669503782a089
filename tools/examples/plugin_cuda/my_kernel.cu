// A Gated DeltaNet kernel on a CUDA device as a plugin of GDN-CTS: one block a head, one thread a value channel.
#include <cuda_runtime.h>

#include <cstdio>

#include "gdn_kernel.h"

namespace {

struct Tensors { const float *q, *k, *v, *g, *beta, *h0; const int64_t* offsets; float *o, *ht; };

__global__ void recurrence(gdn_problem p, Tensors x) {
  const int64_t n = blockIdx.x, hv = blockIdx.y, state = (n * p.HV + hv) * p.K * p.V;
  for (int64_t j = threadIdx.x; j < p.V; j += blockDim.x) {
    float S[256];
    for (int64_t i = 0; i < p.K; ++i) S[i] = x.h0 ? x.h0[state + i * p.V + j] : 0.0f;
    for (int64_t t = x.offsets[n]; t < x.offsets[n + 1]; ++t) {
      const int64_t gate = t * p.HV + hv, key = (t * p.H + hv / (p.HV / p.H)) * p.K;
      float r = 0, out = 0;
      for (int64_t i = 0; i < p.K; ++i) r += (S[i] *= expf(x.g[gate])) * x.k[key + i];
      const float y = x.beta[gate] * (x.v[gate * p.V + j] - r);
      for (int64_t i = 0; i < p.K; ++i) out += (S[i] += x.k[key + i] * y) * x.q[key + i];
      x.o[gate * p.V + j] = static_cast<float>(p.scale) * out;
    }
    for (int64_t i = 0; x.ht && i < p.K; ++i) x.ht[state + i * p.V + j] = S[i];
  }
}

template <class T = float> T* data(const gdn_call* call, int32_t role) {
  const gdn_tensor* t = gdn_find(call, role);
  return t ? reinterpret_cast<T*>(static_cast<char*>(t->t.data) + t->t.byte_offset) : nullptr;
}

int create(const gdn_problem*, void** plan, char* message, size_t size) {
  int devices = 0;
  *plan = nullptr;
  if (cudaGetDeviceCount(&devices) == cudaSuccess && devices > 0) return GDN_OK;
  std::snprintf(message, size, "no CUDA device");
  return GDN_NOT_SUPPORTED;
}

int run(void*, const gdn_call* call, char* message, size_t size) {
  const Tensors x{data(call, GDN_Q), data(call, GDN_K), data(call, GDN_V), data(call, GDN_G), data(call, GDN_BETA), data(call, GDN_H0),
                  data<int64_t>(call, GDN_CU_SEQLENS), data(call, GDN_O), data(call, GDN_HT)};
  recurrence<<<dim3(call->problem->N, call->problem->HV), 128, 0, static_cast<cudaStream_t>(call->stream)>>>(*call->problem, x);
  const cudaError_t status = cudaGetLastError();
  if (status != cudaSuccess) std::snprintf(message, size, "launch: %s", cudaGetErrorString(status));
  return status == cudaSuccess ? GDN_OK : GDN_ERROR;
}

void destroy(void*) {}

const gdn_kernel kernel = {GDN_ABI_VERSION, GDN_DEVICE_CUDA, sizeof(gdn_kernel), "my_cuda_kernel", "an example", "1.0", "", "fp32-recurrent",
                           "ops=prefill;io=fp32;K=1..256;varlen;h0;ht;empty;g_min=-inf", "", create, run, destroy};

}  // namespace

const gdn_kernel* gdn_get_kernel(int32_t index) { return index == 0 ? &kernel : nullptr; }
