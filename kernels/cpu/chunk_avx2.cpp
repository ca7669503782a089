// The chunkwise block functions for processors with AVX2. The macros keep Eigen's and our inline functions apart from
// those that other files compile for any processor. No fused multiply-add: the ordered products give the same bits.
#if defined(__AVX2__) && defined(GDN_HAVE_AVX2)
#define Eigen EigenAvx2
#define GDN_ISA avx2
#include "kernels/cpu/chunk.h"
#include "kernels/cpu/chunk_body.h"

namespace gdn::cpu::avx2 {
const ChunkFunctions kChunkFunctions{chunk<false, Library>, chunk<true, Ordered>, stage<false, Library>, stage<true, Ordered>};
}
#endif
