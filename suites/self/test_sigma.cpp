// Sigma: nearest-rounding errors measured in it have the size that the accuracy standard states, faults do not.
#include <cmath>

#include "reference/sigma.h"
#include "reference/simulate.h"
#include "suites/self/catch.h"
#include "suites/self/small_heads.h"

using namespace gdn;
using namespace gdn::test;

namespace {
// Root mean square of error / sigma over o and ht.
double size_in_sigma(const HeadResult& got, const Plain<long double>& truth, const HeadResult& sigma) {
  double sum = 0, n = 0;
  auto each = [&](const auto& x, const auto& t, const auto& s) {
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double e = x[i] - static_cast<double>(t[i]);
      if (s[i] == 0 && e == 0) continue;
      sum += e / s[i] * (e / s[i]);
      n += 1;
    }
  };
  each(got.o, truth.o, sigma.o);
  each(got.ht, truth.ht, sigma.ht);
  return std::sqrt(sum / n);
}
}  // namespace

TEST_CASE("a correct kernel sits below one sigma, a kernel below its contract far above") {
  Style s;
  s.T = 130; s.K = 32; s.V = 16; s.gates = Style::mixed; s.format = Format::fp32;
  const HeadInputs in = make_head(s, 3);
  const auto truth = recurrence<long double>(in);
  for (const char* text : {"fp32-recurrent", "bf16-recurrent", "fp32-chunk", "bf16-io-chunk", "tf32-chunk", "fp16-chunk", "bf16-chunk", "bf16-state"}) {
    const Contract c = parse_contract(text);
    const HeadResult sigma = sigma_head(c, in, 1);
    const double correct = size_in_sigma(simulate(c, in, SimulationMode::nearest, 1), truth, sigma);
    INFO(text << " " << correct);
    CHECK(correct > 0.5);
    CHECK(correct < 0.9);
  }
  const HeadResult sigma = sigma_head(parse_contract("bf16-chunk"), in, 1);
  auto wrong = [&](const char* text) { return size_in_sigma(simulate(parse_contract(text), in, SimulationMode::nearest, 1), truth, sigma); };
  CHECK(wrong("bf16-chunk;U=fp8_e4m3;P=fp8_e4m3") > 1.5);
  CHECK(wrong("bf16-chunk;Vn_s=bf16/rz;S_op=bf16/rz;Vn_o=bf16/rz;P=bf16/rz;out=bf16/rz") > 1.0);
}

TEST_CASE("sigma is deterministic, zero where nothing is rounded, infinite where a run overflows") {
  Style s;
  s.T = 20;
  HeadInputs in = make_head(s, 1);
  const Contract c = parse_contract("fp16-chunk");
  CHECK(sigma_head(c, in, 5).o == sigma_head(c, in, 5).o);
  CHECK(sigma_head(c, in, 5).o != sigma_head(c, in, 6).o);
  const std::int64_t cuts[] = {7};
  CHECK(sigma_head(c, in, 5, cuts).o != sigma_head(c, in, 5).o);
  CHECK_THROWS_AS(sigma_head(c, in, 5, {}, 1), std::invalid_argument);
  HeadInputs large = in;
  for (float& x : large.h0) x *= 1e6f;
  CHECK(std::isinf(sigma_head(c, large, 5).o[0]));
  std::fill(in.v.begin(), in.v.end(), 0.0f);
  in.h0.clear();
  for (double x : sigma_head(c, in, 5).o) CHECK(x == 0);
}

TEST_CASE("0.7 of the variance is the element's own, 0.3 the row's") {
  // Two executions: the squared difference halved is the own variance.
  Style s;
  s.T = 6; s.V = 3;
  const HeadInputs in = make_head(s, 2);
  const Contract c = parse_contract("bf16-chunk");
  const HeadResult sigma = sigma_head(c, in, 9, {}, 2);
  const HeadResult a = simulate(c, in, SimulationMode::stochastic, philox(9, hash_name("sigma"), 0)), b = simulate(c, in, SimulationMode::stochastic, philox(9, hash_name("sigma"), 1));
  for (std::size_t t = 0; t < 6; ++t) {
    double own[3], row = 0;
    for (std::size_t j = 0; j < 3; ++j) row += own[j] = (a.o[t * 3 + j] - b.o[t * 3 + j]) * (a.o[t * 3 + j] - b.o[t * 3 + j]) / 2;
    for (std::size_t j = 0; j < 3; ++j) CHECK(std::fabs(sigma.o[t * 3 + j] - std::sqrt(0.7 * own[j] + 0.3 * row / 3)) <= 1e-12);
  }
}
