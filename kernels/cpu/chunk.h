// The chunkwise block functions of each instruction set they are compiled for; same bits.
#pragma once
#include "kernels/cpu/driver.h"

namespace gdn::cpu {

struct ChunkFunctions {
  void (*fp32)(const Block&);
  void (*bf16)(const Block&);
  void (*fp32_stage)(const StageBlock&);
  void (*bf16_stage)(const StageBlock&);
  std::size_t (*workspace)(std::int64_t rows, std::int64_t K, std::int64_t V);
};

namespace portable { extern const ChunkFunctions kChunkFunctions; }
#ifdef GDN_HAVE_AVX2
namespace avx2 { extern const ChunkFunctions kChunkFunctions; }
#endif
#ifdef GDN_HAVE_AVX512
namespace avx512 { extern const ChunkFunctions kChunkFunctions; }
#endif

}  // namespace gdn::cpu
