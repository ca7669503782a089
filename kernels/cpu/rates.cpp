// Rates of this processor; see rates.h.
#include "kernels/cpu/rates.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <vector>

#include "reference/parallel.h"

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#define GDN_X86
#endif

namespace gdn::cpu {
namespace {

constexpr int kChains = 16;                        // independent sums: enough to hide the latency of one

// Each: `rounds` multiply-adds of every chain and lane; returns a number that depends on all of them.
template <int Lanes>
float plain(std::int64_t rounds) {
  float sum[kChains][Lanes];
  for (int i = 0; i < kChains * Lanes; ++i) sum[i / Lanes][i % Lanes] = static_cast<float>(i);   // chains that differ, or they become one
  for (std::int64_t r = 0; r < rounds; ++r)
    for (auto& chain : sum)
      for (float& x : chain) x = x * 0.999f + 0.001f;
  float all = 0;
  for (const auto& chain : sum)
    for (const float x : chain) all += x;
  return all;
}
#ifdef GDN_X86
__attribute__((target("avx2,fma"))) float fused8(std::int64_t rounds) {
  const __m256 a = _mm256_set1_ps(0.999f), b = _mm256_set1_ps(0.001f);
  __m256 sum[12];                                  // of 16 registers
  for (int i = 0; i < 12; ++i) sum[i] = _mm256_set1_ps(static_cast<float>(i));
  for (std::int64_t r = 0; r < rounds; ++r)
    for (auto& x : sum) x = _mm256_fmadd_ps(x, a, b);
  __m256 all = b;
  for (const auto& x : sum) all = _mm256_add_ps(all, x);
  return _mm256_cvtss_f32(all);
}
__attribute__((target("avx512f"))) float fused16(std::int64_t rounds) {
  const __m512 a = _mm512_set1_ps(0.999f), b = _mm512_set1_ps(0.001f);
  __m512 sum[kChains];
  for (int i = 0; i < kChains; ++i) sum[i] = _mm512_set1_ps(static_cast<float>(i));
  for (std::int64_t r = 0; r < rounds; ++r)
    for (auto& x : sum) x = _mm512_fmadd_ps(x, a, b);
  __m512 all = b;
  for (const auto& x : sum) all = _mm512_add_ps(all, x);
  return _mm512_cvtss_f32(all);
}
#endif

struct Peak { float (*work)(std::int64_t); double each; };   // multiply-adds of a round
Peak widest() {
#ifdef GDN_X86
  if (__builtin_cpu_supports("avx512f")) return {fused16, 16.0 * kChains};
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return {fused8, 8.0 * 12};
#endif
  return {plain<4>, 4.0 * kChains};
}

// Best of five, which is what the processor can do.
template <class F>
double least_seconds(F work) {
  double least = 0;
  for (int i = 0; i < 5; ++i) {
    const auto start = std::chrono::steady_clock::now();
    work();
    const double s = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    least = i == 0 ? s : std::min(least, s);
  }
  return least;
}

}  // namespace

Rates measure_rates() {
  Rates rates;
  const int threads = max_threads();
  const Peak peak = widest();
  constexpr std::int64_t rounds = 1'000'000;
  std::vector<float> kept(static_cast<std::size_t>(threads));
  const double arithmetic = least_seconds([&] { parallel_for(threads, threads, [&](std::int64_t i, int) { kept[static_cast<std::size_t>(i)] = peak.work(rounds); }, [] {}); });
  rates.multiply_adds_per_second = peak.each * static_cast<double>(rounds) * threads / arithmetic;
  const std::size_t part = (std::size_t{64} << 20) / static_cast<std::size_t>(threads);
  std::vector<std::byte> from(part * static_cast<std::size_t>(threads)), to(from.size());
  const double copy = least_seconds([&] {
    parallel_for(threads, threads, [&](std::int64_t i, int) { std::memcpy(to.data() + static_cast<std::size_t>(i) * part, from.data() + static_cast<std::size_t>(i) * part, part); }, [] {});
  });
  rates.bytes_per_second = 2.0 * static_cast<double>(from.size()) / copy;
  return rates;
}

}  // namespace gdn::cpu
