// Inputs for the tests of the oracle: one head of a named kind, the same on every machine.
#pragma once
#include <bit>
#include <cmath>
#include <limits>

#include "reference/format.h"
#include "reference/head.h"
#include "reference/recurrence.h"
#include "reference/rng.h"

namespace gdn {

inline float to_bf16(double x) { return static_cast<float>(round_to(x, Store{Format::bf16})); }

// Random bf16 q, k (unit length before rounding), v; gates -|normal| * gate (0: none); beta uniform in (0, beta_max).
inline HeadInputs random_head(Rule rule, std::int64_t T, std::int64_t K, std::int64_t V, double gate = 0.1, double beta_max = 1, bool h0 = true,
                              std::uint64_t seed = 1) {
  HeadInputs in;
  in.T = T, in.K = K, in.V = V, in.rule = rule;
  in.scale = static_cast<double>(static_cast<float>(1 / std::sqrt(static_cast<double>(K))));
  const auto n = [](std::int64_t i) { return static_cast<std::size_t>(i); };
  const auto u = [](std::int64_t i) { return static_cast<std::uint64_t>(i); };
  const Random rq(seed, "q"), rk(seed, "k"), rv(seed, "v"), rg(seed, "g"), rb(seed, "beta"), rh(seed, "h0");
  for (std::int64_t t = 0; t < T; ++t) {
    double sum = 0;
    for (std::int64_t d = 0; d < K; ++d) sum += rk.normal(u(t * K + d)) * rk.normal(u(t * K + d));
    for (std::int64_t d = 0; d < K; ++d) {
      in.q.push_back(to_bf16(rq.normal(u(t * K + d))));
      in.k.push_back(to_bf16(rk.normal(u(t * K + d)) / std::sqrt(sum)));
    }
    for (std::int64_t v = 0; v < V; ++v) in.v.push_back(to_bf16(rv.normal(u(t * V + v))));
    if (has_gate(rule))
      for (std::int64_t d = 0; d < (gate_per_key_channel(rule) ? K : 1); ++d)
        in.g.push_back(static_cast<float>(-std::fabs(rg.normal(u(rule == Rule::retention ? 0 : t * K + d))) * gate));
    if (rule != Rule::linear && rule != Rule::retention) in.beta.push_back(static_cast<float>(rb.uniform(u(t)) * beta_max));
  }
  if (h0) for (std::int64_t i = 0; i < K * V; ++i) in.h0.push_back(static_cast<float>(rh.normal(u(i))));
  in.q.resize(n(T * K));
  return in;
}

// One-hot keys and queries, small integers, beta 0, 1/2 or 1, gates 0 or `reset` now and then.
inline HeadInputs one_hot_head(std::int64_t T, std::int64_t K, std::int64_t V, float reset = -std::numeric_limits<float>::infinity(), std::uint64_t seed = 1) {
  HeadInputs in = random_head(Rule::gated_delta, T, K, V, 0, 1, true, seed);
  const Random r(seed, "one_hot");
  std::fill(in.q.begin(), in.q.end(), 0.0f);
  std::fill(in.k.begin(), in.k.end(), 0.0f);
  for (std::int64_t t = 0; t < T; ++t) {
    const auto i = static_cast<std::uint64_t>(8 * t);
    in.k[static_cast<std::size_t>(t * K) + r.below(i, static_cast<std::uint64_t>(K))] = 1;
    in.q[static_cast<std::size_t>(t * K) + r.below(i + 1, static_cast<std::uint64_t>(K))] = 1;
    in.beta[static_cast<std::size_t>(t)] = t % 5 == 4 ? 0.5f : static_cast<float>(r.below(i + 2, 2));
    in.g[static_cast<std::size_t>(t)] = r.below(i + 3, 16) == 0 ? reset : 0.0f;
  }
  for (std::size_t i = 0; i < in.v.size(); ++i) in.v[i] = static_cast<float>(static_cast<int>(r.below(1000000 + i, 511)) - 255);
  for (std::size_t i = 0; i < in.h0.size(); ++i) in.h0[i] = static_cast<float>(static_cast<int>(r.below(9000000 + i, 511)) - 255);
  in.scale = 1;
  return in;
}

// Keys and queries +-K^-1/2 from the Sylvester-Hadamard matrix, v in {-1,0,1}, zero state; K a power of four.
inline HeadInputs hadamard_head(std::int64_t T, std::int64_t K, std::int64_t V, float gate = 0, std::uint64_t seed = 1) {
  HeadInputs in = random_head(Rule::gated_delta, T, K, V, 0, 1, false, seed);
  const Random r(seed, "hadamard");
  const float unit = static_cast<float>(1 / std::sqrt(static_cast<double>(K)));
  for (std::int64_t t = 0; t < T; ++t) {
    const std::uint64_t a = r.below(static_cast<std::uint64_t>(2 * t), static_cast<std::uint64_t>(K)), b = r.below(static_cast<std::uint64_t>(2 * t + 1), static_cast<std::uint64_t>(K));
    for (std::int64_t d = 0; d < K; ++d) {
      in.k[static_cast<std::size_t>(t * K + d)] = std::popcount(a & static_cast<std::uint64_t>(d)) % 2 ? -unit : unit;
      in.q[static_cast<std::size_t>(t * K + d)] = std::popcount(b & static_cast<std::uint64_t>(d)) % 2 ? -unit : unit;
    }
    in.beta[static_cast<std::size_t>(t)] = t % 3 == 2 ? 0.5f : 1.0f;
    in.g[static_cast<std::size_t>(t)] = gate;
  }
  for (std::size_t i = 0; i < in.v.size(); ++i) in.v[i] = static_cast<float>(static_cast<int>(r.below(1000000 + i, 3)) - 1);
  in.scale = 1;
  return in;
}

}  // namespace gdn
