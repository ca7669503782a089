// Internal: the random numbers of stochastically rounded executions.
#pragma once
#include <cstdint>
#include <vector>

#include "reference/lanes.h"
#include "reference/rng.h"

namespace gdn {

// A stream of 32-bit random numbers.
class Random32 {
 public:
  explicit Random32(std::uint64_t seed) {
    for (std::uint64_t i = 0; i < kSize; ++i) s_[i] = static_cast<std::uint32_t>(philox(seed, hash_name("simulate"), i) >> 13);
  }
  const std::uint32_t* next(std::int64_t n) {      // the next n numbers, rounded up to whole groups
    const std::int64_t groups = (n + lanes::Xoshiro::kLanes - 1) / lanes::Xoshiro::kLanes;
    const auto size = static_cast<std::size_t>(groups * lanes::Xoshiro::kLanes);
    if (buffer_.size() < size) buffer_.resize(size);
    lanes::run<lanes::Xoshiro>(s_, buffer_.data(), groups);
    return buffer_.data();
  }
  std::uint32_t one() {                            // the next number, out of a whole group
    if (left_ == 0) {
      one_ = next(lanes::Xoshiro::kLanes);
      left_ = lanes::Xoshiro::kLanes;
    }
    return one_[--left_];
  }

 private:
  static constexpr std::uint64_t kSize = 4 * lanes::Xoshiro::kLanes;
  std::uint32_t s_[kSize];
  std::vector<std::uint32_t> buffer_;
  const std::uint32_t* one_ = nullptr;             // the rest of the group of one(), which next() overwrites: a stream is drawn by one of the two
  std::int64_t left_ = 0;
};

}  // namespace gdn
