// The stack as one template over the arithmetics of the layer; see stack.h.
#include "reference/stack.h"

#include <cmath>
#include <stdexcept>

#include "reference/layer_budget.h"
#include "reference/layer_certified.h"

namespace gdn {

using layer_detail::at;
using layer_detail::I;

double attention_scale(const Stack& s) { return static_cast<double>(static_cast<float>(1 / std::sqrt(static_cast<double>(s.dim)))); }

namespace {

std::vector<float> floats(const TensorSet& set, const char* name) {
  const Tensor& t = set.at(name);
  std::vector<float> x(at(t.size()));
  for (I i = 0; i < t.size(); ++i) x[at(i)] = static_cast<float>(t.at(i));
  return x;
}

// y [T,hidden] of the attention over all tokens.
template <class A>
std::vector<typename A::N> attend(const A& a, const Stack& s, const std::vector<typename A::N>& x) {
  using N = typename A::N;
  const I T = s.problem.tokens(), D = s.problem.hidden, wide = s.heads * s.dim;
  const std::vector<float> norm = floats(s.attention, "norm_in_w"), wq = floats(s.attention, "w_q"), wk = floats(s.attention, "w_k"), wv = floats(s.attention, "w_v"),
                           wo = floats(s.attention, "w_out");
  std::vector<N> q(at(T * wide)), k(at(T * wide)), v(at(T * wide)), y(at(T * D));
  const N scale = a.input(attention_scale(s));
  for (I t = 0; t < T; ++t) {
    std::vector<N> u(x.begin() + t * D, x.begin() + (t + 1) * D);
    const N inverse = a.inverse_root(u.data(), D, true, kLayerEps);
    for (I i = 0; i < D; ++i) u[at(i)] = a.weighted(a.times(u[at(i)], inverse), norm[at(i)]);
    for (I i = 0; i < wide; ++i) {
      q[at(t * wide + i)] = a.dot(u.data(), &wq[at(i * D)], D);
      k[at(t * wide + i)] = a.dot(u.data(), &wk[at(i * D)], D);
      v[at(t * wide + i)] = a.dot(u.data(), &wv[at(i * D)], D);
    }
    std::vector<N> row;
    for (I h = 0; h < s.heads; ++h) {
      std::vector<N> p;
      std::size_t greatest = 0;
      for (I j = 0; j <= t; ++j) {
        p.push_back(a.times(a.dot(&q[at(t * wide + h * s.dim)], &k[at(j * wide + h * s.dim)], s.dim), scale));
        if (A::value(p.back()) > A::value(p[greatest])) greatest = p.size() - 1;
      }
      const N most = p[greatest];
      std::vector<N> ones(p.size(), a.input(1));
      for (std::size_t j = 0; j < p.size(); ++j) p[j] = j == greatest ? a.input(1) : a.exponential(a.minus(p[j], most));
      const N sum = a.dot(p.data(), ones.data(), static_cast<I>(p.size()));
      for (N& e : p) e = a.over(e, sum);
      for (I d = 0; d < s.dim; ++d) {
        std::vector<N> column;
        for (I j = 0; j <= t; ++j) column.push_back(v[at(j * wide + h * s.dim + d)]);
        row.push_back(a.dot(p.data(), column.data(), static_cast<I>(column.size())));
      }
    }
    for (I i = 0; i < D; ++i) y[at(t * D + i)] = a.result(a.dot(row.data(), &wo[at(i * wide)], wide));
  }
  return y;
}

template <class A>
std::vector<std::vector<typename A::N>> pass(const A& a, const Stack& s) {
  using N = typename A::N;
  if (s.problem.operation != Operation::layer_prefill || s.problem.sequences() != 1 || s.problem.initial_state || s.problem.padding) throw std::invalid_argument("stack: one fresh sequence of layer_prefill");
  std::vector<N> x;
  for (I i = 0; i < s.x.size(); ++i) x.push_back(a.input(s.x.at(i)));
  std::vector<std::vector<N>> after;
  const auto add = [&](const std::vector<N>& y) {
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = a.plus(x[i], y[i]);
    after.push_back(x);
  };
  for (const TensorSet& weights : s.layers) {
    Run run{"layer", s.problem, weights, true};
    run.inputs["x"] = s.x;                         // of the right shape; the pass reads hidden
    layer_detail::LayerPass<A> layer(a, run);
    layer.run(&x);
    add(layer.y);
  }
  if (!s.attention.empty()) add(attend(a, s, x));
  return after;
}

}  // namespace

std::vector<TruthTensor> stack_oracle(const Stack& s) {
  std::vector<TruthTensor> all;
  for (const auto& hidden : pass(layer_detail::Certified{}, s)) all.push_back(layer_detail::stored(hidden, s.x.shape, 0, nullptr));
  return all;
}

std::vector<std::vector<double>> stack_bound(const Contract& contract, const Stack& s) {
  std::vector<std::vector<double>> all;
  for (const auto& hidden : pass(layer_detail::Budget(for_problem(contract, s.problem)), s)) {
    std::vector<double>& to = all.emplace_back();
    for (const auto& e : hidden) to.push_back(e.r * (1 + 1e-9));
  }
  return all;
}

std::vector<std::vector<double>> simulate_stack(const Contract& contract, const Stack& s) {
  return pass(layer_detail::Carried<SimulationMode::nearest>(for_problem(contract, s.problem), 1), s);
}

}  // namespace gdn
