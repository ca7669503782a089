// The memory experiments; see experiments.h.
#include "suites/experiments.h"

#include <bit>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <algorithm>
#include <limits>
#include <stdexcept>
#include <string_view>

#include "reference/recurrence.h"
#include "reference/rng.h"
#include "reference/stack.h"
#include "suites/hybrid.h"

namespace gdn {
extern const char* const kCapacityText;

namespace {

using I = std::int64_t;
using Vector = std::vector<double>;
std::size_t n(I i) { return static_cast<std::size_t>(i); }

// ---- the recurrence in doubles

struct Tokens {                                    // rows of K or V; alpha the decay itself, not its logarithm
  I K, V;
  Vector k, v, q, alpha, beta;
  I size() const { return static_cast<I>(alpha.size()); }
  void add(const Vector& key, const Vector& value, double a, double b, const Vector& query) {
    k.insert(k.end(), key.begin(), key.end());
    v.insert(v.end(), value.begin(), value.end());
    q.insert(q.end(), query.begin(), query.end());
    alpha.push_back(a);
    beta.push_back(b);
  }
};

struct Channel {
  const Tokens& in;
  I channel;
  Rule rule;
  double value(I t) const { return in.v[n(t * in.V + channel)]; }
  double beta(I t) const { return rule == Rule::linear ? 1 : in.beta[n(t)]; }
  double alpha(I t) const { return has_gate(rule) ? in.alpha[n(t)] : 1; }
  double alpha(I t, I) const { return alpha(t); }
  double alpha_read(I t) const { return alpha(t); }
  double key(I t, I d) const { return in.k[n(t * in.K + d)]; }
  double read_key(I t, I d) const { return key(t, d); }
  double query(I t, I d) const { return in.q[n(t * in.K + d)]; }
};

struct Outputs {
  Vector& o;
  I V, channel;
  void begin() const {}
  void element(double) const {}
  void token(I t, double, double, double, double out) const { o[n(t * V + channel)] = out; }
};

struct Memory { Vector o, state; };                // [T,V], [K,V]

Memory run(Rule rule, const Tokens& in, const Vector& h0 = {}) {
  Memory m{Vector(n(in.size() * in.V)), Vector(n(in.K * in.V))};
  for (I c = 0; c < in.V; ++c) {
    Vector s(n(in.K));
    for (I d = 0; d < in.K && !h0.empty(); ++d) s[n(d)] = h0[n(d * in.V + c)];
    Outputs watch{m.o, in.V, c};
    recurrence(rule, PlainArithmetic<double>{}, Channel{in, c, rule}, in.size(), in.K, s.data(), watch);
    for (I d = 0; d < in.K; ++d) m.state[n(d * in.V + c)] = s[n(d)];
  }
  return m;
}

double dot(const double* a, const double* b, I size) {
  double sum = 0;
  for (I i = 0; i < size; ++i) sum += a[i] * b[i];
  return sum;
}
double length(const Vector& x) { return std::sqrt(dot(x.data(), x.data(), static_cast<I>(x.size()))); }
Vector unit(Vector x) {
  const double size = length(x);
  for (double& e : x) e /= size;
  return x;
}
Vector one_hot(I size, I at) {
  Vector x(n(size));
  x[n(at)] = 1;
  return x;
}
Vector normals(std::string_view stream, std::uint64_t at, I size) {
  const Random r(1, stream);
  Vector x(n(size));
  for (I i = 0; i < size; ++i) x[n(i)] = r.normal(at * 1000 + static_cast<std::uint64_t>(i));
  return x;
}
double distance(const Vector& a, const Vector& b) {
  double most = 0;
  for (std::size_t i = 0; i < a.size(); ++i) most = std::max(most, std::fabs(a[i] - b[i]));
  return most;
}
std::string text(double x) {
  char buffer[32];
  const auto [end, error] = std::to_chars(buffer, buffer + sizeof buffer, x);
  return std::string(buffer, end);
}

// ---- experiments

Experiment overwrite() {
  Experiment e{"overwrite", "One key written twice",
               "Keys A and B are orthogonal; A gets (10,0,0,0), B (0,-5,0,0), then A again (0,0,99,0). What is read with the key just written: a plain sum "
               "returns both values of A, the delta rule the last one.",
               "after writing", {"sum 0", "sum 1", "sum 2", "sum 3", "delta 0", "delta 1", "delta 2", "delta 3"}, {}, 3, "", "", false};
  Tokens t{4, 4, {}, {}, {}, {}, {}};
  const Vector a = one_hot(4, 0), b = one_hot(4, 1);
  t.add(a, {10, 0, 0, 0}, 1, 1, a);
  t.add(b, {0, -5, 0, 0}, 1, 1, b);
  t.add(a, {0, 0, 99, 0}, 1, 1, a);
  const Memory sum = run(Rule::linear, t), delta = run(Rule::delta, t);
  const char* const labels[] = {"A", "B", "A again"};
  for (I i = 0; i < 3; ++i) {
    ExperimentRow row{labels[i], {}};
    for (const Memory* m : {&sum, &delta}) row.values.insert(row.values.end(), m->o.begin() + i * 4, m->o.begin() + (i + 1) * 4);
    e.rows.push_back(row);
  }
  return e;
}

Experiment decay() {
  Experiment e{"decay", "A stored value over idle steps",
               "10 is written once, then twenty steps decay by 0.9 and write nothing (beta 0): what is read is 10 times 0.9 to the number of steps.",
               "step", {"read", "10 * 0.9^step"}, {}, 3, "idle steps", "value read", false};
  Tokens t{4, 1, {}, {}, {}, {}, {}};
  const Vector a = one_hot(4, 0);
  for (int i = 0; i <= 20; ++i) t.add(a, {10}, 0.9, i == 0 ? 1 : 0, a);
  const Memory m = run(Rule::gated_delta, t);
  double power = 1;
  for (int i = 0; i <= 20; ++i, power *= 0.9) e.rows.push_back({text(i), {m.o[n(i)], 10 * power}});
  return e;
}

Experiment two_cells() {
  Experiment e{"two_cells", "Two cells by hand",
               "S = (2, 10), k = (1, 0), v = 6. With alpha 1/2 and beta 1/4 the memory decays to (1, 5) and a quarter of the difference 6 - 1 is written: (2.25, 5). "
               "Who takes the difference from the memory before its decay writes a quarter of 6 - 2: (2, 5).",
               "alpha, beta", {"cell 0", "cell 1"}, {}, 3, "", "", false};
  const auto step = [](double alpha, double beta) {
    Tokens t{2, 1, {}, {}, {}, {}, {}};
    t.add({1, 0}, {6}, alpha, beta, {1, 0});
    return run(Rule::gated_delta, t, {2, 10}).state;
  };
  e.rows.push_back({"0.5, 0.25", step(0.5, 0.25)});
  e.rows.push_back({"0.5, 0.25, difference before the decay", {0.5 * 2 + 0.25 * (6 - 2), 0.5 * 10}});
  e.rows.push_back({"1, 1", step(1, 1)});
  e.rows.push_back({"0, 0.25", step(0, 0.25)});
  e.rows.push_back({"0.5, 0", step(0.5, 0)});
  return e;
}

// Mean cosine of what is read with every key and its value, as the seed forms it.
double recall(Rule rule, I count, const Vector& keys, const double* values) {
  constexpr I d = 16;
  Tokens t{d, d, {}, {}, {}, {}, {}};
  for (I i = 0; i < count; ++i) {
    const Vector k(keys.begin() + i * d, keys.begin() + (i + 1) * d);
    t.add(k, Vector(values + i * d, values + (i + 1) * d), 1, 1, k);
  }
  const Memory m = run(rule, t);
  double sum = 0;
  for (I i = 0; i < count; ++i) {
    Vector read(n(d)), value(values + i * d, values + (i + 1) * d);
    for (I c = 0; c < d; ++c)
      for (I r = 0; r < d; ++r) read[n(c)] += keys[n(i * d + r)] * m.state[n(r * d + c)];
    sum += dot(read.data(), value.data(), d) / (length(read) * length(value) + 1e-8);
  }
  return sum / static_cast<double>(count);
}

Experiment capacity_orthogonal() {
  Experiment e{"capacity_orthogonal", "Capacity with orthogonal keys",
               "N pairs are written into a 16 by 16 state, then every key is asked; mean cosine with its value. Orthogonal keys do not meet, so up to 16 of them even a plain sum "
               "keeps apart. Keys: 16 by 16 of the numbers of default_rng(0) made orthonormal.",
               "N", {"delta", "sum"}, {}, 3, "", "", false};
  const Vector& numbers = capacity_numbers();
  std::vector<Vector> basis;                       // columns made orthonormal, twice each
  for (I c = 0; c < 16; ++c) {
    Vector x(16);
    for (I r = 0; r < 16; ++r) x[n(r)] = numbers[n(r * 16 + c)];
    for (int again = 0; again < 2; ++again)
      for (const Vector& b : basis) {
        const double s = dot(b.data(), x.data(), 16);
        for (std::size_t i = 0; i < 16; ++i) x[i] -= s * b[i];
      }
    basis.push_back(unit(x));
  }
  for (const I count : {1, 4, 8, 12, 16}) {
    Vector keys;                                   // rows of the matrix whose columns these are
    for (I i = 0; i < count; ++i)
      for (I c = 0; c < 16; ++c) keys.push_back(basis[n(c)][n(i)]);
    const double* values = numbers.data() + 256;
    e.rows.push_back({text(static_cast<double>(count)), {recall(Rule::delta, count, keys, values), recall(Rule::linear, count, keys, values)}});
  }
  return e;
}

Experiment capacity_random() {
  Experiment e{"capacity_random", "Capacity with random keys",
               "The same with random unit keys. Beyond the first few pairs the delta rule recalls less than the sum does: replacing what a key finds there damages its neighbours. What it is "
               "for is replacing, not holding more.",
               "N", {"delta", "sum"}, {}, 3, "pairs written", "mean cosine of recalled and true value", false};
  const Vector& numbers = capacity_numbers();
  for (const I count : {1, 4, 8, 16, 32, 64}) {
    Vector keys;
    for (I i = 0; i < count; ++i) {
      const Vector k = unit(Vector(numbers.begin() + i * 16, numbers.begin() + (i + 1) * 16));
      keys.insert(keys.end(), k.begin(), k.end());
    }
    const double* values = numbers.data() + count * 16;
    e.rows.push_back({text(static_cast<double>(count)), {recall(Rule::delta, count, keys, values), recall(Rule::linear, count, keys, values)}});
  }
  return e;
}

Experiment retention() {
  Experiment e{"retention", "One item among noise",
               "Twenty noise pairs, the item, then more noise; d = 16, 64 trials; median of |read - value| / |value| with the item's key: 0 is perfect, 1 as good as nothing. With the same gates for "
               "every token (decay 0.9, beta 1) every rule loses the item, the gated ones because it fades. Gates that follow the token keep it: the state is emptied before the item, noise is written with "
               "beta 1/100. The sum cannot choose; the delta rule alone can choose what to write but not empty; decay alone can do both as long as no key comes twice.",
               "noise after", {"sum", "decay 0.9", "delta", "gated delta 0.9", "delta chosen", "decay chosen", "gated delta chosen"}, {}, 3, "noise writes after the item", "relative error of the item", true};
  constexpr I d = 16, trials = 64, before = 20;
  for (const I after : {0, 1, 2, 5, 10, 20, 50, 100, 200}) {
    ExperimentRow row{text(static_cast<double>(after)), {}};
    const auto median = [&](Rule rule, double item_alpha, double noise_alpha, double noise_beta) {
      Vector errors;
      for (I trial = 0; trial < trials; ++trial) {
        Tokens t{d, d, {}, {}, {}, {}, {}};
        const auto draw = [&](const char* what, I i) { return normals(what, static_cast<std::uint64_t>(trial * 1000 + i), d); };
        const Vector key = unit(draw("item.k", 0)), value = draw("item.v", 0);
        for (I i = 0; i < before + after + 1; ++i) {
          if (i == before) t.add(key, value, item_alpha, 1, key);
          else t.add(unit(draw("noise.k", i)), draw("noise.v", i), noise_alpha, noise_beta, key);
        }
        const Memory m = run(rule, t);
        Vector rest(m.o.end() - d, m.o.end());
        for (std::size_t i = 0; i < rest.size(); ++i) rest[i] -= value[i];
        errors.push_back(length(rest) / length(value));
      }
      std::sort(errors.begin(), errors.end());
      return (errors[trials / 2 - 1] + errors[trials / 2]) / 2;
    };
    row.values = {median(Rule::linear, 1, 1, 1), median(Rule::gated_linear, 0.9, 0.9, 1), median(Rule::delta, 1, 1, 1), median(Rule::gated_delta, 0.9, 0.9, 1),
                  median(Rule::delta, 1, 1, 0.01), median(Rule::gated_linear, 0, 1, 0.01), median(Rule::gated_delta, 0, 1, 0.01)};
    e.rows.push_back(row);
  }
  return e;
}

// A = alpha (I - beta k k^T) applied to S on the left, B = beta k v^T.
Vector step_matrix(I K, const Vector& k, double alpha, double beta) {
  Vector a(n(K * K));
  for (I i = 0; i < K; ++i)
    for (I j = 0; j < K; ++j) a[n(i * K + j)] = alpha * ((i == j ? 1 : 0) - beta * k[n(i)] * k[n(j)]);
  return a;
}
Vector product(const Vector& a, const Vector& b, I rows, I inner, I columns) {
  Vector c(n(rows * columns));
  for (I i = 0; i < rows; ++i)
    for (I l = 0; l < inner; ++l)
      for (I j = 0; j < columns; ++j) c[n(i * columns + j)] += a[n(i * inner + l)] * b[n(l * columns + j)];
  return c;
}
Vector plus(Vector a, const Vector& b, double factor = 1) {
  for (std::size_t i = 0; i < a.size(); ++i) a[i] += factor * b[i];
  return a;
}
Vector outer(const Vector& k, const Vector& v, double factor) {
  Vector x;
  for (const double a : k)
    for (const double b : v) x.push_back(factor * a * b);
  return x;
}

Experiment composition() {
  Experiment e{"composition", "Two steps are one, in order",
               "A step is S <- A S + B with A = alpha (I - beta k k^T), B = beta k v^T, so two are A2 A1 S + A2 B1 + B2. Greatest difference to running both steps (d = 8, random): the order matters.",
               "formed as", {"greatest difference"}, {}, 3, "", "", false};
  constexpr I d = 8;
  Tokens t{d, d, {}, {}, {}, {}, {}};
  const Vector k1 = unit(normals("compose.k", 1, d)), k2 = unit(plus(k1, normals("compose.k", 2, d), 0.3)), v1 = normals("compose.v", 1, d), v2 = normals("compose.v", 2, d);
  const Vector s = normals("compose.s", 0, d * d);
  t.add(k1, v1, 0.9, 0.7, k1);
  t.add(k2, v2, 0.6, 0.8, k2);
  const Vector both = run(Rule::gated_delta, t, s).state;
  const Vector a1 = step_matrix(d, k1, 0.9, 0.7), a2 = step_matrix(d, k2, 0.6, 0.8), b1 = outer(k1, v1, 0.7), b2 = outer(k2, v2, 0.8);
  const auto mul = [](const Vector& a, const Vector& b) { return product(a, b, d, d, d); };
  e.rows.push_back({"A2 A1 S + A2 B1 + B2", {distance(both, plus(plus(mul(mul(a2, a1), s), mul(a2, b1)), b2))}});
  e.rows.push_back({"A1 A2 S + A2 B1 + B2", {distance(both, plus(plus(mul(mul(a1, a2), s), mul(a2, b1)), b2))}});
  e.rows.push_back({"A2 A1 S + A1 B2 + B1", {distance(both, plus(plus(mul(mul(a2, a1), s), mul(a1, b2)), b1))}});
  e.rows.push_back({"A2 A1 S + B1 + B2", {distance(both, plus(plus(mul(mul(a2, a1), s), b1), b2))}});
  return e;
}

Experiment gradient_step() {
  Experiment e{"gradient_step", "One step of gradient descent",
               "The update is alpha S minus a step along the gradient of 1/2 |S^T k - v|^2. Which point and which step size? The gradient at the decayed state with step beta is the rule itself; "
               "a step alpha beta, at either state, is another rule (alpha 0.6, beta 0.8, d = 8, random).",
               "gradient at, step size", {"greatest difference"}, {}, 3, "", "", false};
  constexpr I d = 8;
  const double alpha = 0.6, beta = 0.8;
  const Vector k = unit(normals("descent.k", 0, d)), v = normals("descent.v", 0, d), s = normals("descent.s", 0, d * d);
  Tokens t{d, d, {}, {}, {}, {}, {}};
  t.add(k, v, alpha, beta, k);
  const Vector rule = run(Rule::gated_delta, t, s).state;
  for (const bool decayed : {true, false})
    for (const bool joint : {false, true}) {
      Vector at = s, start = s;
      for (double& x : start) x *= alpha;
      if (decayed) at = start;
      const Vector gradient = outer(k, plus(product(k, at, 1, d, d), v, -1), 1);
      e.rows.push_back({std::string(decayed ? "alpha S, " : "S, ") + (joint ? "alpha beta" : "beta"), {distance(rule, plus(start, gradient, joint ? -alpha * beta : -beta))}});
    }
  return e;
}

Experiment fixed_point() {
  Experiment e{"fixed_point", "What constant gates converge to",
               "The same unit key and value 6 at every step, alpha 0.9 and beta 0.5: the read converges to beta v / (1 - alpha (1 - beta)) = 5.4545, not to v, because the memory fades between writes.",
               "step", {"read", "limit"}, {}, 6, "steps", "value read", false};
  Tokens t{1, 1, {}, {}, {}, {}, {}};
  for (int i = 0; i < 40; ++i) t.add({1}, {6}, 0.9, 0.5, {1});
  const Memory m = run(Rule::gated_delta, t);
  for (int i = 0; i < 40; ++i) e.rows.push_back({text(i + 1), {m.o[n(i)], 0.5 * 6 / (1 - 0.9 * (1 - 0.5))}});
  return e;
}

Experiment long_keys() {
  Experiment e{"long_keys", "Keys that are no unit vectors",
               "After a write the key reads (1 - beta |k|^2) old + beta |k|^2 v: an interpolation for |k| = 1 only. With beta 1, old value 2 and new value 6; and what 20 such writes of 0 leave of 1: beyond "
               "|k|^2 = 2 the memory grows without end. Layers normalise keys (l2norm); code that leaves it out computes something else.",
               "|k|^2", {"read / |k|^2 after one write", "left after 20 writes of 0"}, {}, 3, "", "", false};
  for (const double square : {0.25, 1.0, 1.5, 2.0, 2.25, 4.0}) {
    const double k = std::sqrt(square);
    Tokens one{1, 1, {}, {}, {}, {}, {}}, many = one;
    one.add({k}, {6}, 1, 1, {k});
    for (int i = 0; i < 20; ++i) many.add({k}, {0}, 1, 1, {k});
    e.rows.push_back({text(square), {run(Rule::delta, one, {2 / k}).o[0], std::fabs(run(Rule::delta, many, {1}).state[0])}});
  }
  return e;
}

Experiment gate_forms() {
  Experiment e{"gate_forms", "The gate as a sigmoid and as a softplus",
               "One text takes alpha as a sigmoid of a projection, models form exp(-exp(A_log) softplus(x)). For A_log = 0 the latter is sigmoid(-x): the same gate with the sign of its projection turned; A_log raises it to "
               "the power exp(A_log), so that a head can forget slowly without an extreme projection. The last column has softplus as log1p(exp(x)) in fp32, as one text writes it, for A_log = -8: from x = 89 on it is infinite "
               "and the state is dropped.",
               "x", {"sigmoid(-x)", "A_log 0", "A_log -2", "A_log 2", "A_log -8", "A_log -8, log1p(exp(x)) in fp32"}, {}, 4, "x = a + dt_bias", "alpha", false};
  for (const double x : {-16.0, -8.0, -4.0, -2.0, -1.0, 0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 88.0, 89.0, 100.0}) {
    const double softplus = std::max(x, 0.0) + std::log1p(std::exp(-std::fabs(x)));
    const auto alpha = [&](double A_log) { return std::exp(-std::exp(A_log) * softplus); };
    const float narrow = std::log1p(std::exp(static_cast<float>(x)));
    e.rows.push_back({text(x), {1 / (1 + std::exp(x)), alpha(0), alpha(-2), alpha(2), alpha(-8), std::exp(-std::exp(-8.0) * static_cast<double>(narrow))}});
  }
  return e;
}

Experiment state_size() {
  Experiment e{"state_size", "State and KV cache",
               "MiB of one layer: 16 heads of 128 by 128 in fp32 whatever the length, beside keys and values of 16 heads of 128 in bf16 for every position. Equal at 128 positions; 64 times at 8192.",
               "positions", {"state", "KV cache"}, {}, 3, "positions", "MiB", true};
  for (I positions = 32; positions <= 262144; positions *= 2)
    e.rows.push_back({text(static_cast<double>(positions)), {16.0 * 128 * 128 * 4 / 1048576, static_cast<double>(positions) * 2 * 16 * 128 * 2 / 1048576}});
  return e;
}

// The paths through a stack [L,L,L,F] of three layers of the rule and a softmax attention, in fp32 on the CPU.
const char* const kStackProblem = "layer_prefill/n1_t12_h2_hv4_k8_v8/fp32/hidden=24,conv=4";

Experiment hybrid_caches() {
  Experiment e{"hybrid_caches", "What a hybrid stack keeps",
               "KiB held after so many tokens by three layers of the gated delta rule (2 key heads, 4 value heads of 8 by 8, fp32) and one softmax attention (2 heads of 8, fp32): states and histories stay, keys and values grow. "
               "Counted from the tensors that the calls hand over; fewer tokens than 3 leave a history of the same size.",
               "tokens", {"states of 3 L", "histories of 3 L", "keys and values of F"}, {}, 3, "tokens", "KiB", false};
  Problem p = parse_problem(kStackProblem);
  p.lengths = {96};
  const Stack stack = drawn_stack(p, 3, 2, 8, 1);
  HybridStack run(stack, open_inline("cpu_layer_fp32", {}));
  I tokens = 0;
  for (const I count : {1, 1, 10, 12, 24, 48}) {
    run.advance(count);
    const HybridStack::Sizes s = run.sizes();
    e.rows.push_back({text(static_cast<double>(tokens += count)), {static_cast<double>(s.states) / 1024, static_cast<double>(s.histories) / 1024, static_cast<double>(s.keys_values) / 1024}});
  }
  return e;
}

Experiment hybrid_paths() {
  Experiment e{"hybrid_paths", "Decode, prefill and resume through a hybrid stack",
               "12 tokens through [L,L,L,F], each layer added to what goes into it: in one call, cut at every token (the worst of all cuts), and token by token. How many of the 288 final hidden states are other numbers than those of the one "
               "call; the greatest error against the certified result of the whole stack; and, layer by layer on the hidden states that it really had, the greatest error beside the rounding-error bound of fp32 and a sum in fp32.",
               "path", {"other numbers", "greatest error", "layer 1, error / bound", "layer 2", "layer 3", "attention"}, {}, 3, "", "", false, true};
  const Stack stack = drawn_stack(parse_problem(kStackProblem), 3, 2, 8, 1);
  const I T = stack.problem.tokens();
  const TruthTensor truth = stack_oracle(stack).back();
  const auto path = [&](const std::vector<I>& calls) {   // hidden states before and after each layer, of all calls
    HybridStack run(stack, open_inline("cpu_layer_fp32", {}));
    std::vector<std::vector<float>> all(5);
    for (const I count : calls) {
      run.advance(count);
      for (std::size_t l = 0; l < all.size(); ++l) all[l].insert(all[l].end(), run.hidden()[l].begin(), run.hidden()[l].end());
    }
    return all;
  };
  const std::vector<float> whole = path({T}).back();
  // One layer alone: greatest error / bound of what it made of the hidden states before it.
  const auto alone = [&](std::size_t l, const std::vector<float>& before, const std::vector<float>& after) {
    Stack one = stack;
    one.layers.clear();
    if (l < 3) one.layers = {stack.layers[l]}, one.attention.clear();
    for (std::size_t i = 0; i < before.size(); ++i) one.x.set(static_cast<I>(i), static_cast<double>(before[i]));
    const TruthTensor exact = stack_oracle(one).back();
    const Vector bound = stack_bound(parse_contract("fp32-recurrent"), one).back();
    double worst = 0;
    for (std::size_t i = 0; i < after.size(); ++i) worst = std::max(worst, std::fabs((static_cast<double>(after[i]) - exact.hi[i]) - exact.lo[i]) / bound[i]);
    return worst;
  };
  const auto row = [&](const char* label, const std::vector<std::vector<I>>& paths) {
    Vector worst(6);
    for (const auto& calls : paths) {
      const auto hidden = path(calls);
      const std::vector<float>& x = hidden.back();
      double other = 0;
      for (std::size_t i = 0; i < x.size(); ++i) {
        other += x[i] != whole[i];
        worst[1] = std::max(worst[1], std::fabs((static_cast<double>(x[i]) - truth.hi[i]) - truth.lo[i]));
      }
      worst[0] = std::max(worst[0], other);
      for (std::size_t l = 0; l < 4; ++l) worst[l + 2] = std::max(worst[l + 2], alone(l, hidden[l], hidden[l + 1]));
    }
    e.rows.push_back({label, worst});
  };
  std::vector<std::vector<I>> cuts;
  for (I cut = 1; cut < T; ++cut) cuts.push_back({cut, T - cut});
  row("one call", {{T}});
  row("resumed", cuts);
  row("token by token", {std::vector<I>(n(T), 1)});
  return e;
}

// The chunkwise pseudocode of the notes, word for word where it says something: scores under a decay mask, values as they are, the state
// read as it was left by the chunk before. Its update_gated_state is not given; here it is the true one.
Experiment pseudocode() {
  Experiment e{"pseudocode", "A chunkwise form without its correction",
               "Chunks of 8 rows whose output is (decay mask * Q K^T) V + Q S, as pseudocode has it: values are not corrected by what the chunk has written, beta does not appear, and the read of the state is not "
               "decayed. Greatest difference to the recurrences over 16 tokens (d = 8, random, alpha 0.9): it is gated linear attention with beta 1 inside the first chunk, and none of them beyond it.",
               "compared with", {"first chunk", "second chunk"}, {}, 3, "", "", false};
  constexpr I d = 8, T = 16, C = 8;
  Tokens t{d, d, {}, {}, {}, {}, {}};
  for (I i = 0; i < T; ++i) {
    const auto at = static_cast<std::uint64_t>(i);
    t.add(unit(normals("pseudo.k", at, d)), normals("pseudo.v", at, d), 0.9, 0.5, unit(normals("pseudo.q", at, d)));
  }
  const auto chunk_form = [&](Rule rule, const Tokens& in) {
    Vector o(n(T * d)), state(n(d * d));
    for (I first = 0; first < T; first += C) {
      for (I r = first; r < first + C; ++r) {
        const Vector q(in.q.begin() + r * d, in.q.begin() + (r + 1) * d);
        Vector row = product(q, state, 1, d, d);
        double mask = 1;
        for (I j = r; j >= first; --j) {
          const double score = mask * dot(&in.q[n(r * d)], &in.k[n(j * d)], d);
          for (I c = 0; c < d; ++c) row[n(c)] += score * in.v[n(j * d + c)];
          mask *= in.alpha[n(j)];
        }
        std::copy(row.begin(), row.end(), o.begin() + r * d);
      }
      Tokens part{d, d, {}, {}, {}, {}, {}};
      for (I r = first; r < first + C; ++r)
        part.add(Vector(in.k.begin() + r * d, in.k.begin() + (r + 1) * d), Vector(in.v.begin() + r * d, in.v.begin() + (r + 1) * d), in.alpha[n(r)], in.beta[n(r)], Vector(n(d)));
      state = run(rule, part, state).state;
    }
    return o;
  };
  const auto compare = [&](const char* label, Rule rule, double beta) {
    Tokens in = t;
    std::fill(in.beta.begin(), in.beta.end(), beta);
    const Vector want = run(rule, in).o, got = chunk_form(rule, in);
    const auto part = [&](I first) { return distance(Vector(want.begin() + first * d, want.begin() + (first + C) * d), Vector(got.begin() + first * d, got.begin() + (first + C) * d)); };
    e.rows.push_back({label, {part(0), part(C)}});
  };
  compare("gated delta rule, beta 0.5", Rule::gated_delta, 0.5);
  compare("gated delta rule, beta 1", Rule::gated_delta, 1);
  compare("gated linear attention, beta 1", Rule::gated_linear, 1);
  return e;
}

}  // namespace

double Experiment::at(const std::string& row, const std::string& column) const {
  for (const ExperimentRow& r : rows)
    if (r.label == row)
      for (std::size_t c = 0; c < columns.size(); ++c)
        if (columns[c] == column) return r.values.at(c);
  throw std::out_of_range("experiment " + name + " has no '" + row + "', '" + column + "'");
}

const std::vector<double>& capacity_numbers() {
  static const std::vector<double> numbers = [] {
    std::vector<double> x;
    const std::string_view text = kCapacityText;
    for (std::size_t i = 0; i + 16 <= text.size(); i += 17) {
      std::uint64_t bits = 0;
      std::from_chars(text.data() + i, text.data() + i + 16, bits, 16);
      x.push_back(std::bit_cast<double>(bits));
    }
    return x;
  }();
  return numbers;
}

const std::vector<Experiment>& experiments() {
  static const std::vector<Experiment> all{overwrite(), decay(), two_cells(), capacity_orthogonal(), capacity_random(), retention(), composition(), gradient_step(), fixed_point(), long_keys(), gate_forms(), state_size(), hybrid_caches(), hybrid_paths(), pseudocode()};
  return all;
}

const Experiment& experiment(const std::string& name) {
  for (const Experiment& e : experiments())
    if (e.name == name) return e;
  throw std::invalid_argument("unknown experiment '" + name + "'");
}

}  // namespace gdn
