// Tensors of the layer and its certified oracle; see layer.h, layer_pass.h and layer_certified.h.
#include "reference/layer.h"

#include <limits>
#include <stdexcept>

#include "reference/certify.h"
#include "reference/layer_certified.h"

namespace gdn {
namespace layer_detail {

TruthTensor stored(const std::vector<Certified::N>& x, std::vector<I> shape, I rows_missing, OracleStats* stats) {
  TruthTensor t;
  t.shape = std::move(shape);
  for (const Certified::N& e : x) {
    double hi = e.v.hi, lo = e.v.lo;
    if (const double sum = hi + lo; std::isfinite(sum) && sum != hi) lo = (hi - sum) + lo, hi = sum;
    const float radius = oracle_detail::store_radius(hi, lo, e.r);
    t.hi.push_back(hi);
    t.lo.push_back(lo);
    t.radius.push_back(radius);
    if (!stats) continue;
    ++stats->elements;
    const oracle_detail::Decided d = oracle_detail::decided(hi, lo, radius);
    stats->uncertified_fp64 += d != oracle_detail::Decided::all;
    stats->balls += d == oracle_detail::Decided::nothing;
  }
  const std::size_t all = x.size() + at(rows_missing);
  t.hi.resize(all, 0);
  t.lo.resize(all, 0);
  t.radius.resize(all, std::numeric_limits<float>::infinity());
  return t;
}

}  // namespace layer_detail

using layer_detail::at;
using layer_detail::Certified;
using layer_detail::I;
using layer_detail::LayerPass;

std::vector<StageTensor> layer_inputs(const Problem& p) {
  const I rows = p.tokens() + p.padding, D = p.hidden, HV = p.value_heads, Z = HV * p.value_dim, C = layer_channels(p);
  std::vector<StageTensor> all{{"x", p.io, {rows, D}}, {"norm_in_w", DType::f32, {D}}, {"w_qkv", p.io, {C, D}}, {"w_z", p.io, {Z, D}},
                               {"w_a", p.io, {HV, D}}, {"w_b", p.io, {HV, D}}, {"w_conv", p.io, {C, p.conv}}, {"w_out", p.io, {D, Z}},
                               {"norm_w", DType::f32, {p.value_dim}}, {"A_log", p.gate, {HV}}, {"dt_bias", p.gate, {HV}},
                               {"conv_state", p.io, {p.sequences(), C, p.conv - 1}}};
  if (p.initial_state) all.push_back({"h0", p.state, {p.sequences(), HV, p.key_dim, p.value_dim}});
  return all;
}

std::vector<StageTensor> layer_outputs(const Problem& p) {
  std::vector<StageTensor> all{{"y", p.io, {p.tokens() + p.padding, p.hidden}}, {"conv_state", p.io, {p.sequences(), layer_channels(p), p.conv - 1}}};
  if (p.final_state) all.push_back({"ht", p.state, {p.sequences(), p.value_heads, p.key_dim, p.value_dim}});
  return all;
}

Truth layer_oracle(const Run& run, OracleStats* stats) {
  const Problem& p = run.problem;
  const Certified arithmetic;
  LayerPass<Certified> pass(arithmetic, run);
  pass.run();
  Truth truth;
  for (const StageTensor& t : layer_outputs(p)) {
    const std::string_view name = t.name;
    const bool y = name == "y";
    truth[t.name] = layer_detail::stored(y ? pass.y : name == "ht" ? pass.ht : pass.conv_state, t.shape, y ? p.padding * p.hidden : 0, stats);
  }
  return truth;
}

}  // namespace gdn
