// The hybrid stack in fp32; see hybrid.h.
#include "suites/hybrid.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "reference/rng.h"
#include "suites/families/layer_fill.h"

namespace gdn {
namespace {

using I = std::int64_t;
std::size_t at(I i) { return static_cast<std::size_t>(i); }

Tensor normals(std::uint64_t seed, const char* name, std::vector<I> shape, double deviation) {
  const Random r(seed, name);
  Tensor t(DType::f32, std::move(shape));
  for (I i = 0; i < t.size(); ++i) t.set(i, deviation * r.normal(static_cast<std::uint64_t>(i)));
  return t;
}

std::vector<float> floats(const Tensor& t) {
  std::vector<float> x(at(t.size()));
  for (I i = 0; i < t.size(); ++i) x[at(i)] = static_cast<float>(t.at(i));
  return x;
}

float dot(const float* a, const float* b, I n) {
  float s = 0;
  for (I i = 0; i < n; ++i) s += a[i] * b[i];
  return s;
}

}  // namespace

Stack drawn_stack(const Problem& problem, I layers, I heads, I dim, std::uint64_t seed) {
  Stack s;
  s.problem = problem;
  s.heads = heads;
  s.dim = dim;
  fill::LayerStyle style;
  style.history = false;                           // a fresh sequence
  for (I i = 0; i < layers; ++i) {
    TensorSet t = fill::layer_inputs(problem, philox(seed, hash_name("stack"), static_cast<std::uint64_t>(i)), style);
    if (i == 0) s.x = t.at("x");
    t.erase("x");
    s.layers.push_back(std::move(t));
  }
  const I D = problem.hidden;
  const double wide = 1 / std::sqrt(static_cast<double>(D));
  Tensor norm(DType::f32, {D});
  for (I i = 0; i < D; ++i) norm.set(i, Random(seed, "attention.norm").uniform(static_cast<std::uint64_t>(i), 0.5, 1.5));
  s.attention["norm_in_w"] = std::move(norm);
  s.attention["w_q"] = normals(seed, "attention.q", {heads * dim, D}, 2 * wide);   // so that the softmax is no mean
  s.attention["w_k"] = normals(seed, "attention.k", {heads * dim, D}, wide);
  s.attention["w_v"] = normals(seed, "attention.v", {heads * dim, D}, wide);
  s.attention["w_out"] = normals(seed, "attention.out", {D, heads * dim}, 1 / std::sqrt(static_cast<double>(heads * dim)));
  return s;
}

HybridStack::HybridStack(const Stack& stack, std::unique_ptr<KernelSession> layer) : s_(stack), layer_(std::move(layer)) {
  const Problem& p = s_.problem;
  states_.assign(s_.layers.size(), Tensor(p.state, {1, p.value_heads, p.key_dim, p.value_dim}));
  for (const TensorSet& t : s_.layers) histories_.push_back(t.at("conv_state"));
}

HybridStack::Sizes HybridStack::sizes() const {
  Sizes s{0, 0, static_cast<I>((keys_.size() + values_.size()) * sizeof(float))};
  for (const Tensor& t : states_) s.states += static_cast<I>(t.data.size());
  for (const Tensor& t : histories_) s.histories += static_cast<I>(t.data.size());
  return s;
}

std::vector<float> HybridStack::advance(I count) {
  const I D = s_.problem.hidden, wide = s_.heads * s_.dim;
  std::vector<float> x(at(count * D));
  for (I i = 0; i < count * D; ++i) x[at(i)] = static_cast<float>(s_.x.at(position_ * D + i));
  hidden_ = {x};
  for (std::size_t l = 0; l < s_.layers.size(); ++l) {
    Run run{"stack", s_.problem, s_.layers[l], true};
    run.problem.lengths = {count};
    run.problem.initial_state = true;
    run.problem.operation = count == 1 ? Operation::layer_decode : Operation::layer_prefill;
    Tensor hidden(s_.problem.io, {count, D});
    for (I i = 0; i < count * D; ++i) hidden.set(i, static_cast<double>(x[at(i)]));
    run.inputs["x"] = std::move(hidden);
    run.inputs["h0"] = states_[l];
    run.inputs["conv_state"] = histories_[l];
    Tensor cu(DType::i64, {2});
    cu.set_bits(1, static_cast<std::uint64_t>(count));
    run.inputs["cu_seqlens"] = std::move(cu);
    Execution e = layer_->run(run, "hybrid stack");
    if (e.outcome != Outcome::ok) throw std::runtime_error("hybrid stack: " + layer_->info().name + ": " + e.message);
    const std::vector<float> y = floats(e.outputs.at("y"));
    for (std::size_t i = 0; i < x.size(); ++i) x[i] += y[i];
    hidden_.push_back(x);
    states_[l] = std::move(e.outputs.at("ht"));
    histories_[l] = std::move(e.outputs.at("conv_state"));
  }
  const std::vector<float> norm = floats(s_.attention.at("norm_in_w")), wq = floats(s_.attention.at("w_q")), wk = floats(s_.attention.at("w_k")), wv = floats(s_.attention.at("w_v")),
                           wo = floats(s_.attention.at("w_out"));
  const auto scale = static_cast<float>(attention_scale(s_));
  for (I t = 0; t < count; ++t) {
    std::vector<float> u(x.begin() + t * D, x.begin() + (t + 1) * D), q(at(wide)), row(at(wide));
    const float inverse = 1 / std::sqrt(dot(u.data(), u.data(), D) / static_cast<float>(D) + static_cast<float>(kLayerEps));
    for (I i = 0; i < D; ++i) u[at(i)] = u[at(i)] * inverse * norm[at(i)];
    for (I i = 0; i < wide; ++i) {
      q[at(i)] = dot(u.data(), &wq[at(i * D)], D);
      keys_.push_back(dot(u.data(), &wk[at(i * D)], D));
      values_.push_back(dot(u.data(), &wv[at(i * D)], D));
    }
    const I seen = position_ + t + 1;
    for (I h = 0; h < s_.heads; ++h) {
      std::vector<float> p(at(seen));
      for (I j = 0; j < seen; ++j) p[at(j)] = dot(&q[at(h * s_.dim)], &keys_[at(j * wide + h * s_.dim)], s_.dim) * scale;
      const float most = *std::max_element(p.begin(), p.end());
      float sum = 0;
      for (float& e : p) sum += e = std::exp(e - most);
      for (I j = 0; j < seen; ++j)
        for (I d = 0; d < s_.dim; ++d) row[at(h * s_.dim + d)] += p[at(j)] / sum * values_[at(j * wide + h * s_.dim + d)];
    }
    for (I i = 0; i < D; ++i) x[at(t * D + i)] += dot(row.data(), &wo[at(i * wide)], wide);
  }
  hidden_.push_back(x);
  position_ += count;
  return x;
}

}  // namespace gdn
