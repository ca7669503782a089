// Audit of the stages: each once more in cpp_bin_float with 237 bits, from its definition, summed in the opposite order and sharing
// no code with stage_oracle (the inverse from X (I+L) = I, by columns), so that a slip in one shows in the other.
#include <boost/multiprecision/cpp_bin_float.hpp>
#include <cmath>
#include <functional>
#include <limits>
#include <map>

#include "reference/stages.h"

namespace gdn {
namespace {

namespace mp = boost::multiprecision;
using Wide = mp::number<mp::cpp_bin_float<237, mp::digit_base_2, void, std::int32_t>, mp::et_off>;
using I = std::int64_t;

Wide power(double x, double y) {                   // e^(x-y)
  const Wide d = Wide(x) - Wide(y);
  return d < -1e6 ? Wide(0) : mp::exp(d);
}

struct Auditor {
  const Problem& p;
  const TensorSet& in;
  std::map<std::string, std::vector<Wide>> made;
  std::map<std::string, std::vector<bool>> owned;

  double key(const char* name, I row, I hv, I d) const {          // q, k: by key head
    return in.at(name).at((row * p.heads + hv / (p.value_heads / p.heads)) * p.key_dim + d);
  }
  double value(const char* name, I row, I hv, I width, I c) const { return in.at(name).at((row * p.value_heads + hv) * width + c); }
  void say(const char* name, I element, const Wide& x) {
    made.at(name)[static_cast<std::size_t>(element)] = x;
    owned.at(name)[static_cast<std::size_t>(element)] = true;
  }
  I at(I row, I hv, I width, I c) const { return (row * p.value_heads + hv) * width + c; }

  void chunk(I first, I n, I hv, I number, std::vector<Wide>& S) {
    const I K = p.key_dim, V = p.value_dim, C = p.chunk;
    const auto G = [&](I r) { return value("G", first + r, hv, 1, 0); };
    const auto beta = [&](I r) { return Wide(value("beta", first + r, hv, 1, 0)); };
    const auto sum = [](I count, const std::function<Wide(I)>& term) {
      Wide s = 0;
      for (I i = count; i-- > 0;) s += term(i);
      return s;
    };
    switch (p.stage) {
      case Stage::gate_sum:
        for (I r = 0; r < n; ++r) {
          bool infinite = false;
          for (I i = 0; i <= r; ++i) infinite = infinite || std::isinf(value("g", first + i, hv, 1, 0));
          say("G", at(first + r, hv, 1, 0), infinite ? Wide(-std::numeric_limits<Wide>::infinity()) : sum(r + 1, [&](I i) { return Wide(value("g", first + i, hv, 1, 0)); }));
        }
        break;
      case Stage::gram:
        for (I i = 0; i < n; ++i)
          for (I j = 0; j < C; ++j)
            say("L", at(first + i, hv, C, j), j >= i ? Wide(0) : power(G(i), G(j)) * beta(i) * sum(K, [&](I d) { return Wide(key("k", first + j, hv, d)) * key("k", first + i, hv, d); }));
        break;
      case Stage::inverse:
        for (I i = 0; i < n; ++i) {
          std::vector<Wide> row(static_cast<std::size_t>(C), Wide(0));
          row[static_cast<std::size_t>(i)] = 1;
          for (I j = i; j-- > 0;)
            row[static_cast<std::size_t>(j)] = -sum(i - j, [&](I t) { return row[static_cast<std::size_t>(j + 1 + t)] * Wide(value("L", first + j + 1 + t, hv, C, j)); });
          for (I j = 0; j < C; ++j) say("M", at(first + i, hv, C, j), row[static_cast<std::size_t>(j)]);
        }
        break;
      case Stage::uw:
        for (I i = 0; i < n; ++i) {
          const auto weight = [&](I j) { return Wide(value("M", first + i, hv, C, j)) * beta(j); };
          for (I c = 0; c < V; ++c) say("U", at(first + i, hv, V, c), sum(i + 1, [&](I j) { return weight(j) * value("v", first + j, hv, V, c); }));
          for (I d = 0; d < K; ++d) say("W", at(first + i, hv, K, d), sum(i + 1, [&](I j) { return weight(j) * (power(G(j), 0) * key("k", first + j, hv, d)); }));
        }
        break;
      case Stage::chunk_states: {
        std::vector<Wide> vn(static_cast<std::size_t>(n * V));
        for (I e = 0; e < K * V; ++e) say("states", (number * p.value_heads + hv) * K * V + e, S[static_cast<std::size_t>(e)]);
        for (I r = 0; r < n; ++r)
          for (I c = 0; c < V; ++c) {
            Wide& x = vn[static_cast<std::size_t>(r * V + c)];
            x = Wide(value("U", first + r, hv, V, c)) - sum(K, [&](I d) { return S[static_cast<std::size_t>(d * V + c)] * value("W", first + r, hv, K, d); });
            say("Vn", at(first + r, hv, V, c), x);
          }
        for (I d = 0; d < K; ++d)
          for (I c = 0; c < V; ++c) {
            Wide& s = S[static_cast<std::size_t>(d * V + c)];
            s = sum(n, [&](I r) { return power(G(n - 1), G(r)) * key("k", first + r, hv, d) * vn[static_cast<std::size_t>(r * V + c)]; }) + s * power(G(n - 1), 0);
          }
        break;
      }
      case Stage::output:
        for (I r = 0; r < n; ++r) {
          std::vector<Wide> score(static_cast<std::size_t>(r + 1));
          for (I j = 0; j <= r; ++j) score[static_cast<std::size_t>(j)] = power(G(r), G(j)) * sum(K, [&](I d) { return Wide(key("k", first + j, hv, d)) * key("q", first + r, hv, d); });
          for (I c = 0; c < V; ++c)
            say("o", at(first + r, hv, V, c),
                Wide(p.effective_scale()) * (sum(r + 1, [&](I j) { return score[static_cast<std::size_t>(j)] * value("Vn", first + j, hv, V, c); }) +
                                             sum(K, [&](I d) { return Wide(key("q", first + r, hv, d)) * in.at("states").at(((number * p.value_heads + hv) * K + d) * V + c); }) * power(G(r), 0)));
        }
        break;
    }
  }

  void all() {
    I number = 0, first = 0;
    for (std::size_t n = 0; n < p.lengths.size(); first += p.lengths[n++]) {
      const I length = p.lengths[n], chunks = (length + p.chunk - 1) / p.chunk;
      for (I hv = 0; hv < p.value_heads; ++hv) {
        std::vector<Wide> S(static_cast<std::size_t>(p.key_dim * p.value_dim), Wide(0));
        if (p.initial_state)
          for (std::size_t e = 0; e < S.size(); ++e) S[e] = in.at("h0").at((static_cast<I>(n) * p.value_heads + hv) * p.key_dim * p.value_dim + static_cast<I>(e));
        for (I c = 0; c < chunks; ++c) chunk(first + c * p.chunk, std::min(p.chunk, length - c * p.chunk), hv, number + c, S);
        if (p.stage == Stage::chunk_states && p.final_state)
          for (std::size_t e = 0; e < S.size(); ++e) say("ht", (static_cast<I>(n) * p.value_heads + hv) * p.key_dim * p.value_dim + static_cast<I>(e), S[e]);
      }
      number += chunks;
    }
  }
};

}  // namespace

std::string audit_stage(const Run& run, const Truth& truth) {
  Auditor a{run.problem, run.inputs, {}, {}};
  for (const StageTensor& o : stage_outputs(run.problem)) {
    std::size_t size = 1;
    for (const I n : o.shape) size *= static_cast<std::size_t>(n);
    const auto t = truth.find(std::string_view(o.name));
    if (t == truth.end() || t->second.hi.size() != size || t->second.lo.size() != size || t->second.radius.size() != size)
      return std::string("audit: ") + o.name + " is missing or has not " + std::to_string(size) + " elements";
    a.made[o.name].assign(size, Wide(0));
    a.owned[o.name].assign(size, false);
  }
  a.all();
  for (const auto& [name, values] : a.made) {
    const TruthTensor& t = truth.find(name)->second;
    Wide peak = 0;
    for (const Wide& x : values)
      if (mp::isfinite(x)) peak = std::max(peak, Wide(mp::abs(x)));
    const Wide slack = mp::ldexp(peak, -150);      // far above this arithmetic's own error, far below hi + lo's
    for (std::size_t i = 0; i < values.size(); ++i) {
      const bool defined = a.owned.at(name)[i], known = t.radius[i] < std::numeric_limits<float>::infinity() || std::fabs(t.hi[i]) > 0x1p190;
      const char* what = nullptr;
      if (defined != known) what = defined ? "is not known" : "is known although it is nobody's";
      else if (defined && !mp::isfinite(values[i])) what = static_cast<double>(values[i]) == t.hi[i] ? nullptr : "is not the infinity it should be";
      else if (defined && !(mp::abs(values[i] - Wide(t.hi[i]) - Wide(t.lo[i])) <= Wide(static_cast<double>(t.radius[i])) + slack)) what = "lies outside the radius";
      if (what) return "audit: " + name + ", element " + std::to_string(i) + ", " + what + " (audit " + values[i].str(30, std::ios::scientific) + ")";
    }
  }
  return {};
}

}  // namespace gdn
