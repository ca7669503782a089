// Counter-based random numbers; see rng.h.
#include "reference/rng.h"

namespace gdn {

std::uint64_t philox(std::uint64_t seed, std::uint64_t stream, std::uint64_t index) {
  auto k0 = static_cast<std::uint32_t>(seed), k1 = static_cast<std::uint32_t>(seed >> 32);
  std::uint32_t c[4] = {static_cast<std::uint32_t>(index), static_cast<std::uint32_t>(index >> 32),
                        static_cast<std::uint32_t>(stream), static_cast<std::uint32_t>(stream >> 32)};
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = std::uint64_t{0xD2511F53u} * c[0];
    const std::uint64_t p1 = std::uint64_t{0xCD9E8D57u} * c[2];
    const std::uint32_t n0 = static_cast<std::uint32_t>(p1 >> 32) ^ c[1] ^ k0;
    const std::uint32_t n2 = static_cast<std::uint32_t>(p0 >> 32) ^ c[3] ^ k1;
    c[1] = static_cast<std::uint32_t>(p1);
    c[3] = static_cast<std::uint32_t>(p0);
    c[0] = n0;
    c[2] = n2;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return std::uint64_t{c[1]} << 32 | c[0];
}

std::uint64_t hash_name(std::string_view s) {
  std::uint64_t h = 0xcbf29ce484222325u;
  for (char ch : s) h = (h ^ static_cast<unsigned char>(ch)) * 0x100000001b3u;
  return h;
}

double Random::normal(std::uint64_t i) const {
  const std::uint64_t a = philox(seed_, stream_, 2 * i), b = philox(seed_, ~stream_, 2 * i + 1);
  std::int64_t sum = 0;
  for (int s = 0; s < 64; s += 16) sum += static_cast<std::int64_t>((a >> s) & 0xffff) + static_cast<std::int64_t>((b >> s) & 0xffff);
  // Mean of one 16-bit uniform is 32767.5, variance (2^32 - 1)/12; eight of them.
  constexpr double inverse_deviation = 1.0 / 53509.91992145008;
  return (static_cast<double>(sum) - 8 * 32767.5) * inverse_deviation;
}

std::uint64_t Random::below(std::uint64_t i, std::uint64_t n) const {
  return static_cast<std::uint64_t>((static_cast<unsigned __int128>(bits(i)) * n) >> 64);
}

}  // namespace gdn
