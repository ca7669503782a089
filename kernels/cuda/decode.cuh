// The pool operations of cuda_recurrent_fp32 (decode.cu): one or a few tokens for each of many sequences, whose states lie in
// a pool that is changed in place.
#pragma once
#include "kernels/cuda/common.cuh"

namespace gdn_cuda {

// Launches a call of operation decode or verify (accuracy standard 1.8) on the call's stream. f: read from the call, with the
// pool as h0. GDN_OK, or GDN_ERROR with one line.
int run_pool(const gdn_call* call, const Forward& f, char* message, size_t size);

}  // namespace gdn_cuda
