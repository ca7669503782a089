// The chunkwise block functions for processors with AVX-512; see chunk_body.h.
#if defined(__AVX512F__) && defined(GDN_HAVE_AVX512)
#define GDN_ISA avx512
#include "kernels/cpu/chunk.h"
#include "kernels/cpu/chunk_body.h"

namespace gdn::cpu::avx512 {
const ChunkFunctions kChunkFunctions{chunk<false>, chunk<true>, stage<false>, stage<true>, workspace};
}
#endif
