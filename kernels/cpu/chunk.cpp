// cpu_chunk_fp32, cpu_chunk_bf16: the chunkwise form in chunks of 64 tokens.
#define GDN_ISA portable
#include "kernels/cpu/chunk.h"
#include "kernels/cpu/chunk_body.h"
#include "kernels/registry.h"

namespace gdn::cpu {

namespace portable {
const ChunkFunctions kChunkFunctions{chunk<false>, chunk<true>, stage<false>, stage<true>, workspace};
}

namespace {

const ChunkFunctions& best() {
#ifdef GDN_HAVE_AVX512
  static const bool avx512 = __builtin_cpu_supports("avx512f");
  if (avx512) return avx512::kChunkFunctions;
#endif
#ifdef GDN_HAVE_AVX2
  static const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  if (avx2) return avx2::kChunkFunctions;
#endif
  return portable::kChunkFunctions;
}

int create_fp32(const gdn_problem* problem, void** plan, char* message, std::size_t size) {
  return create({portable::kChunk, false, false, false, best().workspace, best().fp32, false, best().fp32_stage}, problem, plan, message, size);
}

int create_bf16(const gdn_problem* problem, void** plan, char* message, std::size_t size) {
  return create({portable::kChunk, true, true, false, best().workspace, best().bf16, false, best().bf16_stage}, problem, plan, message, size);
}

const gdn_kernel kChunkFp32{
    GDN_ABI_VERSION, GDN_DEVICE_CPU, sizeof(gdn_kernel), "cpu_chunk_fp32",
    "chunkwise in fp32: residual form, forward substitution", "1", "", "fp32-chunk;vectors=residual",
    "ops=prefill,stages;stages=gate_sum,gram,inverse,uw,chunk_states,output;chunks=16,32,64,128;rules=gated_delta,delta,gated_linear,retention,linear;io=fp32,bf16,fp16;state=fp32,bf16,fp16;"
    "gate=fp32,bf16,fp16;beta=fp32,bf16,fp16;varlen;h0;ht;noht;empty;raw_gates;g_min=-inf;beta_max=2;align=8;strides;short_offsets;refuses_growth",
    "deterministic;symmetric;masks_select", create_fp32, run, destroy};

const gdn_kernel kChunkBf16{
    GDN_ABI_VERSION, GDN_DEVICE_CPU, sizeof(gdn_kernel), "cpu_chunk_bf16",
    "chunkwise as on matrix units: bf16 operands, fp32 sums and state, W/U form, block inverse", "1", "", "bf16-chunk",
    "ops=prefill,stages;stages=gate_sum,gram,inverse,uw,chunk_states,output;chunks=16,32,64,128;rules=gated_delta,delta,gated_linear,retention,linear;io=bf16;state=fp32,bf16,fp16;"
    "gate=fp32,bf16,fp16;beta=fp32,bf16,fp16;varlen;h0;ht;noht;empty;raw_gates;g_min=-inf;beta_max=2;align=8;strides;short_offsets;refuses_growth",
    "deterministic;shape_invariant;symmetric;masks_select", create_bf16, run, destroy};

const RegisterKernel fp32(&kChunkFp32), bf16(&kChunkBf16);

}  // namespace
}  // namespace gdn::cpu
