// Runs on which all arithmetic is exact, and what the accuracy standard says they return: for tests of kernels and of
// conventions, which need no tolerance then.
#pragma once
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "kernels/session.h"
#include "reference/head.h"
#include "reference/recurrence.h"
#include "reference/rng.h"

namespace gdn::exact {

constexpr double kInf = std::numeric_limits<double>::infinity();

// Small integers and powers of two in every tensor, one-hot keys with beta in {0,1}, gates 0 or a reset: the state
// stays a table of small integers, so every format and every order of summation gives the same numbers.
inline Run exact_run(const std::string& text, std::uint64_t seed = 1, double reset = -1000) {
  Run run;
  run.problem = parse_problem(text);
  const Problem& p = run.problem;
  const std::int64_t rows = p.tokens() + p.padding;
  const auto fill = [&](const char* name, DType t, std::vector<std::int64_t> shape, auto value) {
    Tensor x(t, std::move(shape));
    const Random random(seed, name);
    for (std::int64_t i = 0; i < x.size(); ++i) x.set(i, value(random, i));
    run.inputs.emplace(name, std::move(x));
  };
  const auto integer = [](const Random& r, std::int64_t i) { return static_cast<double>(r.below(static_cast<std::uint64_t>(i), 9)) - 4; };
  fill("q", p.io, {rows, p.heads, p.key_dim}, integer);
  const Random slot(seed, "slot");
  fill("k", p.io, {rows, p.heads, p.key_dim}, [&](const Random&, std::int64_t i) {
    const auto row = static_cast<std::uint64_t>(i / p.key_dim);
    return slot.below(row, static_cast<std::uint64_t>(std::min<std::int64_t>(p.key_dim, 5))) == static_cast<std::uint64_t>(i % p.key_dim) ? 1.0 : 0.0;
  });
  fill("v", p.io, {rows, p.value_heads, p.value_dim}, integer);
  const bool gated = p.rule != Rule::delta && p.rule != Rule::linear;
  std::vector<std::int64_t> gates{rows, p.value_heads};
  if (gate_per_key_channel(p.rule)) gates.push_back(p.gate_width());
  if (gated) fill("g", p.gate, gates, [&](const Random& r, std::int64_t i) { return r.below(static_cast<std::uint64_t>(i), 12) == 0 ? reset : 0.0; });
  if (p.rule == Rule::complex_kda) fill("angle", DType::f32, gates, [](const Random&, std::int64_t) { return 0.0; });   // a cosine of 1 is exact
  if (p.rule != Rule::retention && p.rule != Rule::linear)
    fill("beta", p.beta, {rows, p.value_heads}, [](const Random& r, std::int64_t i) { return static_cast<double>(r.below(static_cast<std::uint64_t>(i), 2)); });
  if (p.initial_state) fill("h0", p.state, {p.sequences(), p.value_heads, p.key_dim, p.value_dim}, integer);
  Tensor cu(DType::i64, {p.sequences() + 1});
  for (std::int64_t n = 0; n <= p.sequences(); ++n) cu.set(n, static_cast<double>(p.offsets()[static_cast<std::size_t>(n)]));
  run.inputs.emplace("cu_seqlens", std::move(cu));
  // Rows past the last sequence are nobody's.
  for (auto& [name, t] : run.inputs)
    if (name == "q" || name == "k" || name == "v" || name == "g" || name == "angle" || name == "beta")
      for (std::int64_t i = t.size() / std::max<std::int64_t>(rows, 1) * p.tokens(); i < t.size(); ++i) t.set(i, std::nan(""));
  return run;
}

// The recurrence of the accuracy standard, clause 1.1, in double.
inline TensorSet expected(const Run& run) {
  const Problem& p = run.problem;
  const std::int64_t K = p.key_dim, V = p.value_dim;
  Tensor o(p.io, {p.tokens() + p.padding, p.value_heads, V}), ht(p.state, {p.sequences(), p.value_heads, K, V});
  const bool delta = p.rule == Rule::gated_delta || p.rule == Rule::delta || gate_per_key_channel(p.rule);
  for (std::int64_t n = 0; n < p.sequences(); ++n)
    for (std::int64_t hv = 0; hv < p.value_heads; ++hv) {
      const HeadInputs in = head_inputs(run, n, hv);
      std::vector<double> S(static_cast<std::size_t>(K * V));
      for (std::size_t i = 0; i < in.h0.size(); ++i) S[i] = in.h0[i];
      for (std::int64_t t = 0; t < in.T; ++t)
        for (std::int64_t c = 0; c < V; ++c) {
          double r = 0, y = 0;
          for (std::int64_t d = 0; d < K; ++d) {
            const std::size_t gate = static_cast<std::size_t>(gate_per_key_channel(p.rule) ? t * K + d : t);
            double& s = S[static_cast<std::size_t>(d * V + c)];
            if (!in.g.empty()) s *= std::exp(static_cast<double>(in.g[gate]));
            r += s * in.k[static_cast<std::size_t>(t * K + d)];
          }
          const double beta = in.beta.empty() ? 1 : in.beta[static_cast<std::size_t>(t)];
          y = beta * (in.v[static_cast<std::size_t>(t * V + c)] - (delta ? r : 0));
          double sum = 0;
          for (std::int64_t d = 0; d < K; ++d) {
            double& s = S[static_cast<std::size_t>(d * V + c)];
            s += in.k[static_cast<std::size_t>(t * K + d)] * y;
            sum += s * in.q[static_cast<std::size_t>(t * K + d)];
          }
          o.set(((p.offsets()[static_cast<std::size_t>(n)] + t) * p.value_heads + hv) * V + c, sum * in.scale);
        }
      for (std::int64_t i = 0; i < K * V; ++i) ht.set((n * p.value_heads + hv) * K * V + i, S[static_cast<std::size_t>(i)]);
    }
  TensorSet out{{"o", o}};
  if (p.final_state) out.emplace("ht", ht);
  return out;
}

// Number of elements that differ as numbers; rows past the last sequence must still hold poison.
inline std::int64_t differing(const Run& run, const TensorSet& got, const TensorSet& want) {
  std::int64_t count = 0;
  for (const auto& [name, w] : want) {
    const auto at = got.find(name);
    if (at == got.end() || at->second.dtype != w.dtype || at->second.shape != w.shape) return -1;
    const std::int64_t judged = name == "o" && w.shape[0] ? w.size() / w.shape[0] * run.problem.tokens() : w.size();
    for (std::int64_t i = 0; i < w.size(); ++i)
      count += i < judged ? !(at->second.at(i) == w.at(i)) : at->second.bits(i) != poison_bits(w.dtype);
  }
  return got.size() == want.size() ? count : -1;
}

}  // namespace gdn::exact
