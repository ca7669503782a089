// The block function of the recurrent kernels, which the layer kernels use as it is.
#pragma once
#include <cstddef>
#include <cstdint>

#include "kernels/cpu/driver.h"

namespace gdn::cpu {

std::size_t recurrent_workspace(std::int64_t rows, std::int64_t K, std::int64_t V);
void recurrent_block(const Block& b);

}  // namespace gdn::cpu
