// Audit of the layer's oracle: the layer token by token from its definition, in cpp_bin_float with 237 bits, states and histories as they
// go; shares no code with layer_pass.h, so that a slip in one shows in the other.
#include <boost/multiprecision/cpp_bin_float.hpp>
#include <cmath>
#include <string>
#include <vector>

#include "reference/layer.h"

namespace gdn {
namespace {

namespace mp = boost::multiprecision;
using Wide = mp::number<mp::cpp_bin_float<237, mp::digit_base_2, void, std::int32_t>, mp::et_off>;
using Row = std::vector<Wide>;
using I = std::int64_t;
std::size_t n(I i) { return static_cast<std::size_t>(i); }

Wide logistic(const Wide& x) {
  if (x >= 0) return Wide(1) / (Wide(1) + mp::exp(Wide(-x)));
  const Wide e = mp::exp(x);
  return e / (Wide(1) + e);
}
Wide log_one_plus_exp(const Wide& x) {
  if (x > 60) {                                    // x + y - y^2/2 + ..., y = e^-x < 2^-86
    const Wide y = mp::exp(Wide(-x));
    return x + y * (Wide(1) - y * (Wide(0.5) - y / 3));
  }
  if (x > -60) return mp::log(Wide(1) + mp::exp(x));
  const Wide y = mp::exp(x);                       // 1 + y would lose what counts
  return y * (Wide(1) - y * (Wide(0.5) - y / 3));
}

struct Auditor {
  const Run& run;
  const Problem& p = run.problem;
  const Truth& truth;

  Wide element(const char* tensor, I i) const { return Wide(run.inputs.at(tensor).at(i)); }
  Wide product(const char* weights, I row, const Row& x) const {
    Wide sum = 0;
    for (std::size_t i = x.size(); i-- > 0;) sum += element(weights, row * static_cast<I>(x.size()) + static_cast<I>(i)) * x[i];
    return sum;
  }
  static Row normed(const Row& x) {                // by the root of the mean square
    Wide sum = 0;
    for (const Wide& e : x) sum += e * e;
    const Wide length = mp::sqrt(Wide(sum / static_cast<double>(x.size()) + Wide(kLayerEps)));
    Row y;
    for (const Wide& e : x) y.push_back(e / length);
    return y;
  }
  Row unit(const Row& x) const {
    if (p.l2 == L2Form::none) return x;
    Wide sum = 0;
    for (const Wide& e : x) sum += e * e;
    Wide length = mp::sqrt(Wide(p.l2 == L2Form::root ? Wide(sum + Wide(kLayerEps)) : sum));
    if (p.l2 == L2Form::max && length < Wide(kLayerEps)) length = kLayerEps;
    Row y;
    for (const Wide& e : x) y.push_back(e / length);
    return y;
  }
  // slack: the audit's own error, 237 bits and the length of its sums, relative to the size of what is compared.
  std::string compare(const char* tensor, I i, const Wide& value, const Wide& size) const {
    const TruthTensor& t = truth.at(tensor);
    const double hi = t.hi.at(n(i)), lo = t.lo.at(n(i)), radius = static_cast<double>(t.radius.at(n(i)));
    const Wide error = mp::abs(Wide(value - Wide(hi) - Wide(lo)));
    const double allowed = std::isinf(radius) ? std::ldexp(std::fabs(hi), -60) : radius;   // the code of huge values
    if (error <= Wide(allowed) + size * Wide(0x1p-190)) return {};
    return std::string("audit: ") + tensor + "[" + std::to_string(i) + "]: outside the radius (hi " + std::to_string(hi) + ", error " + error.str(3, std::ios::scientific) + ", radius " + std::to_string(radius) + ")";
  }

  std::string sequence(I s, I first) const {
    const I D = p.hidden, W = p.conv, H = p.heads, HV = p.value_heads, K = p.key_dim, V = p.value_dim, C = layer_channels(p);
    std::vector<Row> history(n(C), Row(n(W - 1)));  // oldest first
    for (I c = 0; c < C; ++c)
      for (I i = 0; i < W - 1; ++i) history[n(c)][n(i)] = element("conv_state", (s * C + c) * (W - 1) + i);
    std::vector<Row> state(n(HV), Row(n(K * V)));
    if (p.initial_state)
      for (I h = 0; h < HV; ++h)
        for (I i = 0; i < K * V; ++i) state[n(h)][n(i)] = element("h0", (s * HV + h) * K * V + i);
    for (I t = 0; t < p.lengths[n(s)]; ++t) {
      Row x;
      for (I i = 0; i < D; ++i) x.push_back(element("x", (first + t) * D + i));
      x = normed(x);
      for (I i = 0; i < D; ++i) x[n(i)] *= element("norm_in_w", i);
      Row mixed;
      for (I c = 0; c < C; ++c) {
        Row& past = history[n(c)];
        past.push_back(product("w_qkv", c, x));
        const Wide sum = product("w_conv", c, past);
        mixed.push_back(sum * logistic(sum));
        past.erase(past.begin());
      }
      Row gathered;
      for (I h = 0; h < HV; ++h) {
        const auto part = [&](I from, I count) { return Row(mixed.begin() + from, mixed.begin() + from + count); };
        const I key_head = h * H / HV;             // HV/H value heads each
        const Row q = unit(part(key_head * K, K)), k = unit(part((H + key_head) * K, K)), v = part(2 * H * K + h * V, V);
        const Wide rate = mp::exp(element("A_log", h)) * log_one_plus_exp(Wide(product("w_a", h, x) + element("dt_bias", h)));
        const Wide alpha = mp::exp(Wide(-rate)), beta = logistic(product("w_b", h, x));
        Row& S = state[n(h)];
        Row out(n(V));
        for (I c = 0; c < V; ++c) {
          Wide held = 0;
          for (I d = 0; d < K; ++d) held += (S[n(d * V + c)] *= alpha) * k[n(d)];
          for (I d = 0; d < K; ++d) {
            S[n(d * V + c)] += k[n(d)] * beta * (v[n(c)] - held);
            out[n(c)] += S[n(d * V + c)] * q[n(d)];
          }
          out[n(c)] *= Wide(p.effective_scale());
        }
        out = normed(out);
        for (I c = 0; c < V; ++c) {
          const Wide z = product("w_z", h * V + c, x);
          gathered.push_back(out[n(c)] * element("norm_w", c) * z * logistic(z));
        }
      }
      for (I i = 0; i < D; ++i) {
        Wide size = 0;
        for (std::size_t j = 0; j < gathered.size(); ++j) size += mp::abs(Wide(gathered[j] * element("w_out", i * static_cast<I>(gathered.size()) + static_cast<I>(j))));
        // The norm divides by at least eps^1/2: errors of o may grow by 1/eps.
        if (std::string bad = compare("y", (first + t) * D + i, product("w_out", i, gathered), Wide(size + Wide(0x1p-60))); !bad.empty()) return bad;
      }
    }
    for (I c = 0; c < C; ++c)
      for (I i = 0; i < W - 1; ++i)
        if (std::string bad = compare("conv_state", (s * C + c) * (W - 1) + i, history[n(c)][n(i)], Wide(1)); !bad.empty()) return bad;
    for (I h = 0; p.final_state && h < HV; ++h)
      for (I i = 0; i < K * V; ++i)
        if (std::string bad = compare("ht", (s * HV + h) * K * V + i, state[n(h)][n(i)], Wide(1)); !bad.empty()) return bad;
    return {};
  }
};

}  // namespace

std::string audit_layer(const Run& run, const Truth& truth) {
  for (const StageTensor& t : layer_outputs(run.problem))
    if (const auto at = truth.find(std::string_view(t.name)); at == truth.end() || at->second.shape != t.shape) return std::string("audit: ") + t.name + " is missing or has another shape";
  const Auditor auditor{run, run.problem, truth};
  const auto offsets = run.problem.offsets();
  for (I s = 0; s < run.problem.sequences(); ++s)
    if (std::string bad = auditor.sequence(s, offsets[n(s)]); !bad.empty()) return bad;
  return {};
}

}  // namespace gdn
