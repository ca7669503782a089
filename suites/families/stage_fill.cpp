// Inputs of the stage families; see stage_fill.h.
#include "suites/families/stage_fill.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>

#include "suites/families/fill.h"

namespace gdn::fill {
namespace {

using I = std::int64_t;

struct Heads {                                     // of one key head
  const Problem& p;
  I first(I h) const { return h * (p.value_heads / p.heads); }
  I count() const { return p.value_heads / p.heads; }
};

}  // namespace

std::vector<Problem> stage_problems(Stage stage, std::initializer_list<const char*> texts) {
  std::vector<Problem> all;
  for (const char* text : texts) {
    const std::string t = text;
    const std::size_t options = t.rfind('/');
    all.push_back(parse_problem("stages/" + t.substr(0, options + 1) + "stage=" + gdn::name(stage) + "," + t.substr(options + 1)));
  }
  return all;
}

Case stage_case(const std::string& family, Stage stage, const Problem& p, std::uint64_t seed, const std::vector<StageRegime>& regimes) {
  if (p.operation != Operation::stages || p.stage != stage) throw std::invalid_argument("family " + family + " is about stage " + gdn::name(stage) + ", not " + to_string(p));
  Problem layer = p;
  layer.operation = Operation::prefill;
  layer.stage = Stage::gate_sum;
  layer.chunk = 0;
  Style style;
  style.gates = {Gates::mild, Gates::slow};
  style.keys = {Keys::correlated};
  style.betas = {Betas::unit, Betas::high};
  TensorSet in = inputs(layer, seed, style);
  const Heads heads{p};
  const Random noise(seed, "stages"), weight(seed, "stages.beta");
  const I H = p.heads, HV = p.value_heads, K = p.key_dim, V = p.value_dim;
  const auto regime = [&](I h) { return regimes[static_cast<std::size_t>(h) % regimes.size()]; };
  const auto whole = [&](std::uint64_t i, std::uint64_t span) { return static_cast<double>(noise.below(i, 2 * span + 1)) - static_cast<double>(span); };
  Tensor &k = in.at("k"), &q = in.at("q"), &v = in.at("v"), &g = in.at("g"), &beta = in.at("beta");
  for (const ChunkPlace& c : chunk_places(p))
    for (I h = 0; h < H; ++h)
      for (I r = 0; r < c.rows; ++r) {
        const I row = c.token + r, at = (row * H + h) * K, first = ((c.token - c.number * p.chunk) * H + h) * K;
        for (I j = 0; j < heads.count(); ++j) {
          const I e = row * HV + heads.first(h) + j;
          const auto u = static_cast<std::uint64_t>(e);
          switch (regime(h)) {
            case StageRegime::typical: break;
            case StageRegime::equal:
              beta.set(e, 0.835);
              g.set(e, -0x1.0624dep-10);
              break;
            case StageRegime::opposite:
              beta.set(e, 2 - 0x1p-6 * (1 + weight.uniform(u)));
              g.set(e, -0x1p-10 * weight.uniform(u));
              break;
            case StageRegime::integers:
              beta.set(e, std::ldexp(1.0, static_cast<int>(weight.below(u, 3)) - 1));
              g.set(e, stage == Stage::gate_sum ? -static_cast<double>(weight.below(u, 8)) : 0);
              for (I d = 0; d < V; ++d) v.set(e * V + d, whole(static_cast<std::uint64_t>(e * V + d), 3));
              break;
            case StageRegime::strong: {
              constexpr double gates[] = {-100, -1000, -1e4, -0.5};
              if (weight.below(u, 6) == 0) g.set(e, gates[weight.below(u + 1, 4)]);
              break;
            }
            case StageRegime::huge:
              if (c.number % 2 == 0 && r == p.chunk / 2) g.set(e, p.gate == DType::f16 ? -60000 : -1e30);
              break;
            case StageRegime::wide:
              beta.set(e, 2 * weight.uniform(u));
              if (weight.below(u + 1, 2) == 0) g.set(e, 0);
              break;
          }
        }
        for (I d = 0; d < K; ++d) {
          switch (regime(h)) {
            case StageRegime::equal: k.set(at + d, k.at(first + d)); break;
            case StageRegime::opposite: k.set(at + d, (r % 2 ? -1 : 1) * k.at(first + d)); break;
            case StageRegime::integers: {
              const auto u = static_cast<std::uint64_t>(at + d);
              k.set(at + d, noise.below(u, 4) ? 0 : whole(u + 1, 1));
              q.set(at + d, whole(u, 2));
              break;
            }
            case StageRegime::wide: k.set(at + d, std::fabs(k.at(at + d))); break;
            default: break;
          }
        }
      }
  TensorSet of_stage = stage_inputs_from(p, in);
  // Whole numbers where the steps before would make others.
  const auto integers = [&](const char* name, std::uint64_t span, std::uint64_t zeros) {
    const auto t = of_stage.find(std::string_view(name));
    if (t == of_stage.end()) return;
    const bool states = t->second.shape.size() == 4;
    const I width = t->second.size() / std::max<I>(1, t->second.shape[0] * HV);
    for (I e = 0; e < t->second.size(); ++e) {
      const I row = e / width / HV, hv = e / width % HV;
      if (regime(hv / heads.count()) != StageRegime::integers || (!states && row >= p.tokens())) continue;
      const auto u = static_cast<std::uint64_t>(e);
      const auto fixed = by_definition(p, name, e);
      t->second.set(e, fixed ? *fixed : noise.below(u, zeros) ? 0 : whole(u + 7, span));
    }
  };
  if (stage == Stage::inverse) integers("L", 1, static_cast<std::uint64_t>(p.chunk) / 4);
  if (stage == Stage::uw) integers("M", 2, 3);
  if (stage == Stage::chunk_states) {
    integers("W", 1, 64);
    integers("U", 2, 4);
    integers("h0", 3, 1);
  }
  if (stage == Stage::output) {
    integers("Vn", 2, 1);
    integers("states", 3, 1);
  }
  return single(family, p, seed, std::move(of_stage));
}

}  // namespace gdn::fill
