// The block function of the recurrent kernels, which the layer kernels use as it is, and its instances.
#pragma once
#include <cstddef>
#include <cstdint>

#include "kernels/cpu/driver.h"

namespace gdn::cpu {

std::size_t recurrent_workspace(std::int64_t rows, std::int64_t K, std::int64_t V);
void recurrent_block(const Block& b);

// One gate per head, by instruction set; same bits (recurrent_body.h).
struct RecurrentFunctions {
  void (*rows)(const Block&);
  std::int64_t (*floats)(std::int64_t K);          // of workspace
};
namespace portable { extern const RecurrentFunctions kRecurrentFunctions; }
#ifdef GDN_HAVE_AVX2
namespace avx2 { extern const RecurrentFunctions kRecurrentFunctions; }
#endif
#ifdef GDN_HAVE_AVX512
namespace avx512 { extern const RecurrentFunctions kRecurrentFunctions; }
#endif

}  // namespace gdn::cpu
