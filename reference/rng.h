// Counter-based random numbers: the value of element i of tensor t of a case depends on (seed, t, i) alone,
// so inputs are the same at any thread count and can be made head by head. No std distribution, no libm:
// integer arithmetic and correctly rounded operations only, so the bits are the same everywhere.
#pragma once
#include <cstdint>
#include <string_view>

namespace gdn {

// Philox4x32-10 (Salmon, Moraes, Dror, Shaw: Parallel random numbers: as easy as 1, 2, 3; SC 2011),
// the first 64 of its 128 output bits for counter (index, stream) and key seed.
std::uint64_t philox(std::uint64_t seed, std::uint64_t stream, std::uint64_t index);

std::uint64_t hash_name(std::string_view s);       // FNV-1a 64, to make stream numbers from names

class Random {                                     // one stream: (case seed, tensor name)
 public:
  Random(std::uint64_t seed, std::string_view tensor) : seed_(seed), stream_(hash_name(tensor)) {}
  std::uint64_t bits(std::uint64_t i) const { return philox(seed_, stream_, i); }
  double uniform(std::uint64_t i) const { return static_cast<double>(bits(i) >> 11) * 0x1p-53; }  // [0,1)
  double uniform(std::uint64_t i, double lo, double hi) const { return lo + (hi - lo) * uniform(i); }
  // Near-normal, mean 0, variance 1, |x| <= 4.9: sum of eight 16-bit uniforms (Irwin-Hall), exact.
  double normal(std::uint64_t i) const;
  std::uint64_t below(std::uint64_t i, std::uint64_t n) const;  // uniform integer in [0,n)
 private:
  std::uint64_t seed_, stream_;
};

}  // namespace gdn
