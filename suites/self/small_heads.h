// Small random and adversarial heads for the tests of simulation and bounds, and their plain recurrence in any scalar.
#pragma once
#include <cmath>
#include <limits>
#include <vector>

#include "reference/format.h"
#include "reference/head.h"
#include "reference/rng.h"

namespace gdn::test {

template <class N>
struct Plain { std::vector<N> o, ht; };

// The canonical operation, token by token.
template <class N>
Plain<N> recurrence(const HeadInputs& in) {
  using std::exp;
  const auto T = static_cast<std::size_t>(in.T), K = static_cast<std::size_t>(in.K), V = static_cast<std::size_t>(in.V);
  Plain<N> r;
  r.ht.assign(K * V, N(0));
  for (std::size_t i = 0; i < in.h0.size(); ++i) r.ht[i] = N(in.h0[i]);
  const bool gated = !in.g.empty() && in.rule != Rule::delta && in.rule != Rule::linear;
  const bool delta = in.rule == Rule::gated_delta || in.rule == Rule::delta || in.rule == Rule::kda;
  for (std::size_t t = 0; t < T; ++t) {
    if (gated)
      for (std::size_t d = 0; d < K; ++d) {
        const float g = in.rule == Rule::kda ? in.g[t * K + d] : in.g[t];
        const N alpha = std::isinf(g) ? N(0) : exp(N(g));
        for (std::size_t j = 0; j < V; ++j) r.ht[d * V + j] *= alpha;
      }
    for (std::size_t j = 0; j < V; ++j) {
      N x = N(in.v[t * V + j]);
      if (delta)
        for (std::size_t d = 0; d < K; ++d) x -= r.ht[d * V + j] * N(in.k[t * K + d]);
      if (!in.beta.empty()) x *= N(in.beta[t]);
      for (std::size_t d = 0; d < K; ++d) r.ht[d * V + j] += x * N(in.k[t * K + d]);
      N o = N(0);
      for (std::size_t d = 0; d < K; ++d) o += r.ht[d * V + j] * N(in.q[t * K + d]);
      r.o.push_back(o * N(in.scale));
    }
  }
  return r;
}

struct Style {
  std::int64_t T = 40, K = 16, V = 8;
  Rule rule = Rule::gated_delta;
  Format format = Format::bf16;        // q, k, v are exact in it
  enum Gates { none, slow, fast, mixed, spikes, resets, extreme } gates = slow;
  double beta = 1, key_norm = 1, value = 1, state = 1;   // beta up to `beta`; sizes of k, v and h0 (0: no h0)
  bool equal_keys = false, constant_beta = false;
};

inline HeadInputs make_head(const Style& s, std::uint64_t seed) {
  HeadInputs in;
  in.T = s.T; in.K = s.K; in.V = s.V; in.rule = s.rule;
  in.scale = static_cast<float>(1 / std::sqrt(static_cast<double>(s.K)));
  const auto T = static_cast<std::size_t>(s.T), K = static_cast<std::size_t>(s.K), V = static_cast<std::size_t>(s.V);
  auto stored = [&](double x) { return static_cast<float>(round_to(round_to(x, Store{s.format}), Store{Format::fp32})); };
  const Random kr(seed, "k"), qr(seed, "q"), vr(seed, "v"), gr(seed, "g"), br(seed, "beta"), hr(seed, "h0");
  auto unit_rows = [&](const Random& r, double norm, bool same) {
    std::vector<float> x(T * K);
    for (std::size_t t = 0; t < T; ++t) {
      double sum = 0;
      for (std::size_t d = 0; d < K; ++d) sum += std::pow(r.normal(same ? d : t * K + d), 2);
      for (std::size_t d = 0; d < K; ++d) x[t * K + d] = stored(norm * r.normal(same ? d : t * K + d) / std::sqrt(sum));
    }
    return x;
  };
  in.k = unit_rows(kr, s.key_norm, s.equal_keys);
  in.q = unit_rows(qr, 1, false);
  for (std::size_t i = 0; i < T * V; ++i) in.v.push_back(stored(s.value * vr.normal(i)));
  for (std::size_t t = 0; t < T; ++t) in.beta.push_back(static_cast<float>(s.constant_beta ? s.beta : s.beta * br.uniform(t)));
  const float inf = std::numeric_limits<float>::infinity();
  const std::size_t gates = s.rule == Rule::kda ? K : 1;
  if (s.gates != Style::none)
    for (std::size_t i = 0; i < T * gates; ++i) {
      const double u = gr.uniform(2 * i);
      const std::uint64_t pick = gr.below(2 * i + 1, 12);
      double g = 0;
      switch (s.gates) {
        case Style::none: break;
        case Style::slow: g = -0.01 * u; break;
        case Style::fast: g = -8 * u; break;
        case Style::mixed: g = pick < 4 ? 0 : pick < 8 ? -1e-3 : pick < 10 ? -0.5 : -5; break;
        case Style::spikes: g = pick == 0 ? -100 : pick == 1 ? -20 : -0.05 * u; break;
        case Style::resets: g = pick == 0 ? -1000 : pick == 1 ? -103.9 : pick == 2 ? -104.1 : -0.3 * u; break;
        case Style::extreme: g = pick == 0 ? -inf : pick == 1 ? -1e30 : pick == 2 ? -1e4 : -0.1 * u; break;
      }
      in.g.push_back(static_cast<float>(g));
    }
  if (s.state > 0)
    for (std::size_t i = 0; i < K * V; ++i) in.h0.push_back(static_cast<float>(s.state * hr.normal(i)));
  return in;
}

}  // namespace gdn::test
