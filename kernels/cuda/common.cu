// Host side of common.cuh: reading calls, error lines.
#include <cstring>

#include "kernels/cuda/common.cuh"

namespace gdn_cuda {
bool read_view(const gdn_call* call, int role, const char* name, bool required, int ndim, View* out, char* message, size_t size) {
  const gdn_tensor* t = gdn_find(call, role);
  if (!t || !t->t.data) {
    if (required) std::snprintf(message, size, "tensor %s is missing", name);
    return !required;
  }
  if (t->t.device.device_type != GDN_DEVICE_CUDA) {
    std::snprintf(message, size, "tensor %s is not on a CUDA device", name);
    return false;
  }
  if (t->t.ndim != ndim) {
    std::snprintf(message, size, "tensor %s has %d dimensions, expected %d", name, static_cast<int>(t->t.ndim), ndim);
    return false;
  }
  const gdn_dtype d = t->t.dtype;
  if (d.code == GDN_CODE_FLOAT && d.bits == 32) out->type = Type::f32;
  else if (d.code == GDN_CODE_FLOAT && d.bits == 16) out->type = Type::f16;
  else if (d.code == GDN_CODE_BFLOAT && d.bits == 16) out->type = Type::bf16;
  else if (d.code == GDN_CODE_INT && d.bits == 32) out->type = Type::i32;
  else if (d.code == GDN_CODE_INT && d.bits == 64) out->type = Type::i64;
  else {
    std::snprintf(message, size, "tensor %s has an unsupported dtype (code %d, %d bits)", name, d.code, d.bits);
    return false;
  }
  out->data = static_cast<char*>(t->t.data) + t->t.byte_offset;
  int64_t* strides[4] = {&out->s0, &out->s1, &out->s2, &out->s3};
  for (int i = 0; i < ndim; ++i) *strides[i] = t->t.strides[i];
  if (ndim >= 3 && t->t.strides[ndim - 1] != 1 && t->t.shape[ndim - 1] > 1) {
    std::snprintf(message, size, "tensor %s is not contiguous in its last dimension", name);
    return false;
  }
  return true;
}

bool read_call(const gdn_call* call, Forward* f, char* message, size_t size) {
  const gdn_problem& p = *call->problem;
  f->N = p.N;
  f->T = p.T;
  f->H = static_cast<int>(p.H);
  f->HV = static_cast<int>(p.HV);
  f->K = static_cast<int>(p.K);
  f->V = static_cast<int>(p.V);
  f->scale = static_cast<float>(p.scale);
  const bool rows = p.T > 0;                       // no tokens: tensors may be empty
  const bool packed = p.operation == GDN_PREFILL;  // rows of a pool are equally long
  return read_view(call, GDN_Q, "q", rows, 3, &f->q, message, size) && read_view(call, GDN_K, "k", rows, 3, &f->k, message, size) &&
         read_view(call, GDN_V, "v", rows, 3, &f->v, message, size) && read_view(call, GDN_G, "g", false, 2, &f->g, message, size) &&
         read_view(call, GDN_BETA, "beta", false, 2, &f->beta, message, size) &&
         read_view(call, GDN_H0, "h0", false, 4, &f->h0, message, size) &&
         read_view(call, GDN_CU_SEQLENS, "cu_seqlens", packed, 1, &f->cu, message, size) &&
         read_view(call, GDN_O, "o", rows, 3, &f->o, message, size) && read_view(call, GDN_HT, "ht", false, 4, &f->ht, message, size);
}

bool cuda_ok(cudaError_t status, const char* what, char* message, size_t size) {
  if (status == cudaSuccess) return true;
  std::snprintf(message, size, "%s: %s (%s)", what, cudaGetErrorString(status), cudaGetErrorName(status));
  cudaGetLastError();
  return false;
}

bool device_present(char* message, size_t size) {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status != cudaSuccess || count == 0) {
    std::snprintf(message, size, "no CUDA device (%s)", status == cudaSuccess ? "none found" : cudaGetErrorString(status));
    cudaGetLastError();
    return false;
  }
  return true;
}

}  // namespace gdn_cuda
