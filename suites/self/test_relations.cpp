// Relations of class bound hold between the exact results, so that judging every run against its own is judging the relation.
// Also a test of the oracle by algebra that it does not use.
#include <algorithm>
#include <cmath>

#include "suites/family.h"
#include "suites/runner.h"
#include "suites/self/catch.h"

using namespace gdn;

namespace {

using I = std::int64_t;

const Truth& truth_of(const Golden& g, const std::string& run) {
  for (std::size_t i = 0; i < g.the_case.runs.size(); ++i)
    if (g.the_case.runs[i].name == run) return g.truths[i];
  FAIL("no run " << run);
  return g.truths[0];
}
double at(const TruthTensor& t, I i) { return t.hi[static_cast<std::size_t>(i)]; }
// Largest |a - b| over the elements that `pair` names as (i, j), relative to the largest |a|; negative where there are none.
template <class F>
double difference(const TruthTensor& a, const TruthTensor& b, I count, F pair) {
  double worst = -1, top = 0;
  for (I n = 0; n < count; ++n) {
    const auto [i, j] = pair(n);
    if (i < 0) continue;
    top = std::max(top, std::fabs(at(a, i)));
    worst = std::max(worst, std::fabs(at(a, i) - at(b, j)));
  }
  return top > 0 ? worst / top : worst;
}
constexpr double kExact = 1e-14;                   // hi alone is compared, with 2^-53 of the largest value on each side

}  // namespace

TEST_CASE("keys: permuted, turned, asked back, written twice, exchanged (rows 14, 15, 30, 31, 35)") {
  const Case c = make_case(parse_case_id("keys:prefill/n1_t66_h5_hv10_k16_v16/fp32/h0:3"));
  const Golden g = make_golden(c);
  const Problem& p = c.problem;
  const I HV = p.value_heads, K = p.key_dim, V = p.value_dim, T = p.tokens();
  const Truth &base = g.truths[0], &reversed = truth_of(g, "key_channels_reversed"), &turned = truth_of(g, "exact_keys_in_another_basis"),
              &exchanged = truth_of(g, "orthogonal_keys_exchanged");
  const auto same = [](I n) { return std::pair{n, n}; };
  CHECK(difference(base.at("o"), reversed.at("o"), T * HV * V, same) < kExact);
  CHECK(difference(base.at("ht"), reversed.at("ht"), HV * K * V, [&](I n) { return std::pair{n, (n / (K * V) * K + K - 1 - n / V % K) * V + n % V}; }) < kExact);
  CHECK(difference(base.at("o"), turned.at("o"), T * HV * V, same) < kExact);
  // Value heads 2 and 3 read key head 1, that of the exact keys.
  const auto exact_head = [&](I n) { return n / V % HV / 2 == 1; };
  const Run& run = c.runs[0];
  I asked = 0, twice = 0;
  for (I n = 0; n < T * HV * V; ++n) {
    if (!exact_head(n)) continue;
    const I t = n / (HV * V), row = (t * p.heads + 1) * K;
    bool asks = true;
    for (I d = 0; d < K; ++d) asks = asks && run.inputs.at("q").at(row + d) == run.inputs.at("k").at(row + d);
    if (!asks) continue;
    ++asked;
    REQUIRE(std::fabs(at(base.at("o"), n) - p.effective_scale() * run.inputs.at("v").at(n)) <= kExact * std::fabs(at(base.at("o"), n)));
  }
  CHECK(asked > T * V);
  // The state after a token and after it once more: the same sequence without the second one ends in the same state.
  Run shorter = run;
  shorter.problem.lengths = {T - 1};
  for (auto& [name, t] : shorter.inputs)
    if (name != "h0" && name != "cu_seqlens") {
      t.shape[0] = T - 1;
      t.data.resize(t.data.size() / static_cast<std::size_t>(T) * static_cast<std::size_t>(T - 1));
    }
  shorter.inputs["cu_seqlens"].set_bits(1, static_cast<std::uint64_t>(T - 1));
  const Truth before = oracle(shorter);
  for (I n = 0; n < HV * K * V; ++n)
    if (n / (K * V) / 2 == 1) {
      ++twice;
      REQUIRE(std::fabs(at(before.at("ht"), n) - at(base.at("ht"), n)) <= 1e-13);
    }
  CHECK(twice == 2 * K * V);
  CHECK(difference(base.at("ht"), exchanged.at("ht"), HV * K * V, same) < kExact);
  CHECK(difference(base.at("o"), exchanged.at("o"), T * HV * V, [&](I n) {
    const I t = n / (HV * V);
    // Between the exchanged tokens the states differ; a tail of fewer than four tokens is not exchanged.
    return std::pair{exact_head(n) && t % 8 < 4 && t / 8 * 8 + 3 < T ? -1 : n, n};
  }) < kExact);
}

TEST_CASE("reflections: the same keys backwards restore h0 and every step keeps the norm (row 33)") {
  const Case c = make_case(parse_case_id("reflections:prefill/n1_t34_h4_hv4_k16_v16/fp32/h0:2"));
  const Golden g = make_golden(c);
  const I plane = c.problem.key_dim * c.problem.value_dim;
  for (I n = 0; n < plane; ++n) REQUIRE(std::fabs(at(g.truths[0].at("ht"), n) - c.runs[0].inputs.at("h0").at(n)) <= kExact);
  double before = 0, after = 0;
  for (I n = 0; n < plane; ++n) {
    before += std::pow(c.runs[0].inputs.at("h0").at(n), 2);
    after += std::pow(at(g.truths[0].at("ht"), n), 2);
  }
  CHECK(std::fabs(before - after) < 1e-12 * before);
}

TEST_CASE("cuts, identity tokens and the ungated rule do not change the exact result (rows 21, 23, 27)") {
  for (const char* id : {"state_handoff:prefill/n1_t21_h1_hv2_k64_v16/fp32/h0:1", "rules:prefill/n1_t66_h1_hv2_k32_v32/fp32/h0,rule=delta:1"}) {
    const Case c = make_case(parse_case_id(id));
    const Golden g = make_golden(c);
    for (std::size_t r = 1; r < c.runs.size(); ++r) {
      if (!c.runs[r].truth || c.runs[r].name == "values_negated") continue;
      CAPTURE(id, c.runs[r].name);
      const auto& a = g.truths[0].at("ht");
      CHECK(difference(a, g.truths[r].at("ht"), static_cast<I>(a.hi.size()), [](I n) { return std::pair{n, n}; }) < kExact);
    }
  }
}

namespace {
// The final state by the recurrence in fp32 with fused multiply-adds, as GPU kernels have it.
std::vector<float> fused_state(const Run& r) {
  const Problem& p = r.problem;
  const I HV = p.value_heads, K = p.key_dim, V = p.value_dim;
  const auto at = [&](const char* tensor, I i) { return static_cast<float>(r.inputs.at(tensor).at(i)); };
  std::vector<float> states(static_cast<std::size_t>(HV * K * V));
  for (I hv = 0; hv < HV; ++hv) {
    float* S = &states[static_cast<std::size_t>(hv * K * V)];
    for (I i = 0; i < K * V; ++i) S[i] = at("h0", hv * K * V + i);
    for (I t = 0; t < p.tokens(); ++t) {
      const I gate = t * HV + hv, key = (t * p.heads + hv * p.heads / HV) * K;
      const float alpha = std::exp(at("g", gate)), beta = at("beta", gate);
      std::vector<float> k(static_cast<std::size_t>(K)), y(static_cast<std::size_t>(V));
      for (I i = 0; i < K; ++i) k[static_cast<std::size_t>(i)] = at("k", key + i);
      for (I i = 0; i < K * V; ++i) {
        S[i] *= alpha;
        float& sum = y[static_cast<std::size_t>(i % V)];
        sum = std::fma(S[i], k[static_cast<std::size_t>(i / V)], sum);
      }
      for (I j = 0; j < V; ++j) y[static_cast<std::size_t>(j)] = beta * (at("v", gate * V + j) - y[static_cast<std::size_t>(j)]);
      for (I i = 0; i < K * V; ++i) S[i] = std::fma(k[static_cast<std::size_t>(i / V)], y[static_cast<std::size_t>(i % V)], S[i]);
    }
  }
  return states;
}
}  // namespace

// Where one of the states is subnormal for a moment and the other is zero, a product of 8 and 24 digits that lies between two numbers is rounded
// by what is left of it, or to even: row 8 demands the same bits only where nothing leaves the range.
TEST_CASE("values and state times 8 give a state times 8 to the bit, with fused sums too (row 8)") {
  for (const int seed : {1, 3, 4, 5}) {
    const Case c = make_case(parse_case_id("relation_algebra:prefill/n1_t130_h2_hv4_k64_v32/bf16/h0:" + std::to_string(seed)));
    const auto times = std::find_if(c.runs.begin(), c.runs.end(), [](const Run& r) { return r.name == "values_times_8"; });
    REQUIRE(times != c.runs.end());
    std::vector<float> base = fused_state(c.runs[0]);
    for (float& s : base) s *= 8;
    INFO("seed " << seed);
    CHECK(base == fused_state(*times));
  }
}
