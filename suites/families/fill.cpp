// Fill rules shared by the case families; see fill.h.
#include "suites/families/fill.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <stdexcept>

namespace gdn::fill {
namespace {

using I = std::int64_t;
std::uint64_t u(I i) { return static_cast<std::uint64_t>(i); }

bool has_gate(Rule r) { return r != Rule::delta && r != Rule::linear; }
bool has_beta(Rule r) { return r != Rule::retention && r != Rule::linear; }

void normalise(std::vector<double>& x) {
  double sum = 0;
  for (double e : x) sum += e * e;
  const double inverse = 1 / std::sqrt(sum);
  for (double& e : x) e *= inverse;
}

// Length exactly 1 in every format: the 4^m largest entries become +-2^-m, which keeps directions that keys share.
void make_unit(std::vector<double>& x) {
  std::size_t count = 1;
  while (4 * count <= x.size()) count *= 4;
  if (count == x.size() && count > 1) count /= 4;  // not all entries alike but for their sign
  std::vector<std::size_t> order(x.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return std::fabs(x[a]) > std::fabs(x[b]); });
  const double entry = 1 / std::sqrt(static_cast<double>(count));
  std::vector<double> unit(x.size(), 0.0);
  for (std::size_t i = 0; i < count; ++i) unit[order[i]] = x[order[i]] < 0 ? -entry : entry;
  x = std::move(unit);
}

double slow_gate(const Random& r, I i) {
  const std::uint64_t pick = r.below(u(2 * i), 8);
  if (pick == 0) return 0;
  if (pick == 1) return -0x1.0624dep-10;  // -1e-3 in fp32
  return r.uniform(u(2 * i + 1), -4e-3, 0);
}

double gate(Gates regime, const Random& r, const Random& choose, I i) {
  switch (regime) {
    case Gates::zero: return 0;
    case Gates::slow: return slow_gate(r, i);
    case Gates::mild: return choose.below(u(i), 2) ? slow_gate(r, i) : r.uniform(u(2 * i), -1, 0);
    case Gates::mixed: {
      const std::uint64_t x = choose.below(u(i), 100);
      return x < 30 ? 0 : x < 60 ? -0x1.0624dep-10 : x < 80 ? -0.05 : x < 95 ? -0.5 : x < 99 ? -5 : -20;
    }
    case Gates::spikes: return choose.below(u(i), 48) ? slow_gate(r, i) : -100;
    case Gates::resets: return choose.below(u(i), 48) ? slow_gate(r, i) : -1000;
    case Gates::faded: return choose.below(u(i), 48) ? slow_gate(r, i) : -64;
    case Gates::long_lived: {
      const double x = r.uniform(u(i), 0x1p-6, 1);
      return x * x * x * x * -0.125;
    }
    case Gates::short_lived: {
      const double x = r.uniform(u(i), 0x1p-6, 1);
      return -x * x;
    }
  }
  return 0;
}

double beta(Betas kind, const Random& r, const Random& choose, I i) {
  const double x = r.uniform(u(i));
  switch (kind) {
    case Betas::unit: return choose.below(u(i), 8) ? 0x1p-8 + (1 - 0x1p-7) * x : 1;
    case Betas::high: return choose.below(u(i), 4) ? 0.75 + 0.25 * x : 1;
    case Betas::sparse: return choose.below(u(i), 4) ? 0 : x;
    case Betas::rare: return choose.below(u(i), 16) ? 0 : x;
    case Betas::open: return r.uniform(u(i), 0x1p-7, 1 - 0x1p-7);
    case Betas::wide: return choose.below(u(i), 8) ? 0x1p-7 + (2 - 0x1p-6) * x : 2;
  }
  return 0;
}

template <class T>
T of(const std::vector<T>& list, I i) {
  return list[static_cast<std::size_t>(i) % list.size()];
}

// Integers of v and h0 of the dictionary's head hv. Odd ones up to 255 have even differences up to 510, so 8 digits hold
// both; where halves are replaced three times only -15..15 leave room.
double integer(const Random& r, I i, I hv) {
  const bool halves = hv % 4 == 2;
  const double x = halves ? 1 + static_cast<double>(r.below(u(i), 15)) : 1 + 2 * static_cast<double>(r.below(u(i), 128));
  return r.bits(u(i)) & 1 ? -x : x;
}

void fill_keys_and_queries(const Problem& p, std::uint64_t seed, const Style& style, TensorSet& t) {
  const I H = p.heads, K = p.key_dim, T = p.tokens();
  const Random noise(seed, "k"), common(seed, "k.common"), choose(seed, "k.choose"), qnoise(seed, "q");
  Tensor &kt = t.at("k"), &qt = t.at("q");
  for (I h = 0; h < H; ++h) {
    const Keys regime = of(style.keys, h);
    std::vector<std::vector<double>> made;     // keys of this head, in double
    made.reserve(static_cast<std::size_t>(T));
    for (I i = 0; i < T; ++i) {
      const I at = (i * H + h) * K;
      std::vector<double> k(static_cast<std::size_t>(K)), q(k);
      const bool again = i >= 4 && regime != Keys::random && (regime == Keys::correlated ? choose.below(u(i * H + h), 5) == 0
                                                               : choose.below(u(i * H + h), 7) == 0);
      const auto& earlier = again ? made[static_cast<std::size_t>(i - 1 - static_cast<I>(choose.below(u(i * H + h) | 1ull << 40, 4)))] : k;
      for (I d = 0; d < K; ++d) {
        const auto D = static_cast<std::size_t>(d);
        const double n = noise.normal(u(at + d));
        switch (regime) {
          case Keys::correlated: k[D] = again ? earlier[D] : 0.77 * common.normal(u(h * K + d)) + 0.64 * n; break;
          case Keys::independent: k[D] = again ? -earlier[D] : n; break;
          case Keys::positive: k[D] = std::fabs(n); break;
          case Keys::random: k[D] = 0.63 * common.normal(u(h * K + d)) + 0.77 * n; break;
        }
      }
      normalise(k);
      if (p.unit) make_unit(k);
      for (I d = 0; d < K; ++d) q[static_cast<std::size_t>(d)] = qnoise.normal(u(at + d));
      normalise(q);
      // The query asks for the last key as well as for something else, so that reads see recent and old values.
      for (std::size_t d = 0; d < q.size(); ++d) q[d] = 0.8 * q[d] + 0.6 * (i ? made.back()[d] : k[d]);
      normalise(q);
      if (p.unit) make_unit(q);
      for (I d = 0; d < K; ++d) {
        kt.set(at + d, k[static_cast<std::size_t>(d)]);
        qt.set(at + d, q[static_cast<std::size_t>(d)]);
      }
      made.push_back(std::move(k));
    }
  }
}

}  // namespace

TensorSet allocate(const Problem& p) {
  const I rows = p.tokens() + p.padding;
  TensorSet t;
  t["q"] = Tensor(p.io, {rows, p.heads, p.key_dim});
  t["k"] = Tensor(p.io, {rows, p.heads, p.key_dim});
  t["v"] = Tensor(p.io, {rows, p.value_heads, p.value_dim});
  if (p.rule == Rule::kda || p.rule == Rule::complex_kda) t["g"] = Tensor(p.gate, {rows, p.value_heads, p.gate_width()});
  else if (has_gate(p.rule)) t[p.raw ? "a" : "g"] = Tensor(p.gate, {rows, p.value_heads});
  if (p.rule == Rule::complex_kda) t["angle"] = t.at("g");
  if (p.raw) t["A_log"] = t["dt_bias"] = Tensor(DType::f32, {p.value_heads});
  if (has_beta(p.rule)) t["beta"] = Tensor(p.beta, {rows, p.value_heads});
  if (p.initial_state) t["h0"] = Tensor(p.state, {p.states(), p.value_heads, p.key_dim, p.value_dim});
  if (p.pool()) {
    const I calls = static_cast<I>(p.cuts().size()) + 1, N = p.sequences();
    Tensor indices(DType::i32, {calls, N});
    for (I i = 0; i < calls * N; ++i) indices.set(i, i % N < p.slots ? static_cast<double>(i % N) : -1);
    t["state_indices"] = std::move(indices);
    if (p.operation == Operation::verify) t["accepted"] = Tensor(DType::i32, {calls, N});
  }
  Tensor cu(DType::i64, {p.sequences() + 1});
  const auto offsets = p.offsets();
  for (std::size_t n = 0; n < offsets.size(); ++n) cu.set_bits(static_cast<I>(n), static_cast<std::uint64_t>(offsets[n]));
  t["cu_seqlens"] = std::move(cu);
  return t;
}

void poison_padding(const Problem& p, TensorSet& t) {
  const I rows = p.tokens() + p.padding;
  for (auto& [name, tensor] : t) {
    if (rows == 0 || tensor.shape[0] != rows || !is_floating(tensor.dtype) || name == "h0" || name == "A_log" || name == "dt_bias") continue;
    const I width = tensor.size() / rows;
    for (I i = p.tokens() * width; i < tensor.size(); ++i) tensor.set(i, std::numeric_limits<double>::quiet_NaN());
  }
}

TensorSet inputs(const Problem& p, std::uint64_t seed, const Style& style) {
  TensorSet t = allocate(p);
  fill_keys_and_queries(p, seed, style, t);
  const I HV = p.value_heads, T = p.tokens();
  const Random rv(seed, "v"), rg(seed, "g"), cg(seed, "g.choose"), rb(seed, "beta"), cb(seed, "beta.choose"), rh(seed, "h0");
  Tensor& v = t.at("v");
  for (I i = 0; i < T * HV * p.value_dim; ++i) v.set(i, rv.normal(u(i)));
  if (const auto g = t.find("g"); g != t.end()) {
    const I width = p.gate_width();
    for (I i = 0; i < T; ++i)
      for (I h = 0; h < HV; ++h)
        for (I w = 0; w < width; ++w) {
          // Retention decays by a constant per head.
          const I at = p.rule == Rule::retention ? h : (i * HV + h) * width + w;
          const double x = p.rule == Rule::retention ? -0x1p-4 / static_cast<double>(1 + h) : gate(of(style.gates, h), rg, cg, at);
          g->second.set((i * HV + h) * width + w, x);
        }
  }
  if (const auto a = t.find("angle"); a != t.end())
    for (I i = 0; i < T * HV * p.gate_width(); ++i) a->second.set(i, Random(seed, "angle").uniform(u(i), -3, 3));
  if (const auto b = t.find("beta"); b != t.end())
    for (I i = 0; i < T * HV; ++i) b->second.set(i, beta(of(style.betas, i % HV), rb, cb, i));
  if (const auto h = t.find("h0"); h != t.end())
    for (I i = 0; i < h->second.size(); ++i) h->second.set(i, style.state * rh.normal(u(i)));
  poison_padding(p, t);
  return t;
}

TensorSet dictionary(const Problem& p, std::uint64_t seed) {
  TensorSet t = allocate(p);
  const I H = p.heads, HV = p.value_heads, K = p.key_dim, V = p.value_dim, r = HV / H, few = std::min<I>(K, 24);
  const Random key(seed, "k"), sign(seed, "k.sign"), query(seed, "q"), value(seed, "v"), choose(seed, "beta"), state(seed, "h0");
  const auto beta = t.find("beta"), h0 = t.find("h0");
  Tensor &k = t.at("k"), &q = t.at("q"), &v = t.at("v");
  if (h0 != t.end())
    for (I i = 0; i < h0->second.size(); ++i) h0->second.set(i, integer(state, i, i / (K * V) % HV));
  for (std::size_t n = 0; n < p.lengths.size(); ++n)
    for (I h = 0; h < H; ++h) {
      std::vector<int> halved(static_cast<std::size_t>(r * K), 0);
      std::vector<I> written;
      // One token has a key of eight digits, on a row that holds nothing before and is never written again.
      const I lone = K > 24 && !p.unit ? K - 1 : -1, lone_token = lone < 0 ? -1 : p.lengths[n] / 3;
      if (lone >= 0 && h0 != t.end())
        for (I hv = h * r; hv < (h + 1) * r; ++hv)
          for (I j = 0; j < V; ++j) h0->second.set(((static_cast<I>(n) * HV + hv) * K + lone) * V + j, 0);
      for (I i = 0; i < p.lengths[n]; ++i) {
        const I token = p.offsets()[n] + i;
        const std::uint64_t c = u(token * H + h);
        // Every third token writes the key of the one before again; few keys are in use, so most are rewritten.
        const bool again = i % 3 == 1;
        const I drawn = again && written.back() != lone ? written.back() : static_cast<I>(key.below(c, u(few))) * K / few;
        const I d = i == lone_token ? lone : drawn;
        written.push_back(d);
        k.set((token * H + h) * K + d, (sign.below(c, 2) ? 1 : -1) * (d == lone ? 171 : 1));
        const I back = static_cast<I>(query.below(c, u(std::min<I>(i + 1, 40))));
        const I asked = query.below(c | 1ull << 50, 4) ? written[static_cast<std::size_t>(i - back)] : static_cast<I>(query.below(c | 1ull << 51, u(K)));
        constexpr double amplitudes[] = {1, -2, 1, -1, 211, -149};
        const double amplitude = asked == lone ? 1 : amplitudes[query.below(c | 1ull << 52, 6)];
        q.set((token * H + h) * K + asked, p.unit ? std::copysign(1.0, amplitude) : amplitude);
        for (I j = 0; j < r && beta != t.end(); ++j) {
          const I hv = h * r + j, row = (token * HV + hv) * V;
          const std::uint64_t at = u(token * HV + hv);
          double b = choose.below(at, 4) ? 1 : 0;
          for (I e = 0; e < V; ++e) v.set(row + e, d == lone ? (value.bits(u(row + e)) & 1 ? 1 : -1) : integer(value, row + e, hv));
          if (d == lone) {
            b = 1;
          } else if (hv % 4 == 2) {                // replaces half, at most three times
            int& uses = halved[static_cast<std::size_t>(j * K + d)];
            b = b == 1 && uses < 3 ? 0.5 : 0;
            uses += b != 0;
          } else if (hv % 4 == 3) {                // erases a row, then writes it with a weight of eight digits
            const bool pair = again && d == written[written.size() - 2];
            b = pair ? 0x1p-8 * static_cast<double>(2 * choose.below(at | 1ull << 50, 128) + 1) : 1;
            for (I e = 0; e < V; ++e) v.set(row + e, pair ? (value.bits(u(row + e)) & 1 ? 256 : -256) : 0);
          }
          beta->second.set(static_cast<I>(at), b);
        }
      }
    }
  poison_padding(p, t);
  return t;
}

Case single(const std::string& family, const Problem& p, std::uint64_t seed, TensorSet inputs) {
  Case c;
  c.family = family;
  c.problem = p;
  c.seed = seed;
  c.runs.push_back({"base", p, std::move(inputs), true});
  return c;
}

bool takes_identity_tokens(const Run& r) {
  const Problem& p = r.problem;
  return p.sequences() == 1 && p.padding == 0 && !p.raw && r.inputs.count("beta");
}

void add_identity_tokens(Run& r, const std::vector<std::int64_t>& to, std::int64_t tokens, std::uint64_t seed, const Style& style) {
  r.problem.lengths[0] = tokens;
  const TensorSet other = inputs(r.problem, seed + 0x9e3779b97f4a7c15u, style);
  TensorSet grown = allocate(r.problem);
  for (auto& [name, t] : grown) {
    if (name == "cu_seqlens") continue;
    const Tensor& old = r.inputs.at(name);
    if (name == "h0") {
      t = old;
      continue;
    }
    if (name != "g" && name != "beta") t = other.at(name);
    const auto rows = static_cast<std::int64_t>(to.size()), width = rows > 0 ? old.size() / rows : 0;
    for (std::int64_t i = 0; i < rows; ++i)
      for (std::int64_t e = 0; e < width; ++e) t.set_bits(to[static_cast<std::size_t>(i)] * width + e, old.bits(i * width + e));
  }
  r.inputs = std::move(grown);
}

void require_prefill(const std::string& family, const Problem& p) {
  if (p.operation != Operation::prefill)
    throw std::invalid_argument("family " + family + " makes prefill cases only, not '" + to_string(p) + "'");
  if (p.rule == Rule::complex_kda && family != "rules") throw std::invalid_argument("complex_kda is a matter of family rules, not of '" + to_string(p) + "'");
}

void require_pool(const std::string& family, const Problem& p, Operation operation) {
  if (p.operation != operation)
    throw std::invalid_argument("family " + family + " makes " + name(operation) + " cases only, not '" + to_string(p) + "'");
}

void poison_idle_rows(const Problem& p, TensorSet& t) {
  const Tensor& indices = t.at("state_indices");
  const auto offsets = p.offsets();
  const I N = p.sequences(), calls = indices.shape[0], step = p.operation == Operation::verify ? p.draft : 1;
  for (auto& [name, tensor] : t) {
    if (!is_floating(tensor.dtype) || name == "h0" || name == "A_log" || name == "dt_bias") continue;
    const I width = tensor.size() / p.tokens();
    for (I c = 0; c < calls; ++c)
      for (I n = 0; n < N; ++n) {
        if (indices.int_at(c * N + n) >= 0) continue;
        const I first = offsets[static_cast<std::size_t>(n)] + c * step, last = std::min(first + step, offsets[static_cast<std::size_t>(n) + 1]);
        for (I i = first * width; i < last * width; ++i) tensor.set(i, std::numeric_limits<double>::quiet_NaN());
      }
  }
}

std::vector<Problem> problems(std::initializer_list<const char*> texts) {
  std::vector<Problem> list;
  for (const char* t : texts) list.push_back(parse_problem(t));
  return list;
}

}  // namespace gdn::fill
