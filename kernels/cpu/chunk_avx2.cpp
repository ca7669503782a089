// The chunkwise block functions for processors with AVX2 and fused multiply-adds; see chunk_body.h.
#if defined(__AVX2__) && defined(__FMA__) && defined(GDN_HAVE_AVX2)
#define GDN_ISA avx2
#include "kernels/cpu/chunk.h"
#include "kernels/cpu/chunk_body.h"

namespace gdn::cpu::avx2 {
const ChunkFunctions kChunkFunctions{chunk<false>, chunk<true>, stage<false>, stage<true>, workspace};
}
#endif
