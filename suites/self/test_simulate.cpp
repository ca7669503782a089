// The chunkwise template against the recurrence in wide arithmetic, and the simulation of contracts: every storage
// point acts, splits are calls, stochastic runs scatter like real rounding.
#include <boost/multiprecision/cpp_bin_float.hpp>
#include <cmath>

#include "reference/chunkwise.h"
#include "reference/lanes.h"
#include "reference/simulate.h"
#include "suites/self/catch.h"
#include "suites/self/small_heads.h"

using namespace gdn;
using namespace gdn::test;
using Wide = boost::multiprecision::number<boost::multiprecision::cpp_bin_float<50>, boost::multiprecision::et_off>;

namespace {

// Largest difference relative to the largest value, o and ht.
template <class A, class B>
double difference(const A& a, const B& b) {
  double worst = 0;
  auto both = [&](const auto& x, const auto& y) {
    REQUIRE(x.size() == y.size());
    double top = 1e-300, d = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      top = std::max(top, std::fabs(static_cast<double>(y[i])));
      const double e = std::fabs(static_cast<double>(x[i] - y[i]));
      d = e >= d ? e : d + (std::isnan(e) ? INFINITY : 0);
    }
    worst = std::max(worst, d / top);
  };
  both(a.o, b.o);
  both(a.ht, b.ht);
  return worst;
}

template <class N>
Plain<N> chunkwise(const Contract& c, const HeadInputs& in) {
  ExactPolicy<N> policy;
  Plain<N> r;
  r.ht.assign(static_cast<std::size_t>(in.K * in.V), N(0));
  for (std::size_t i = 0; i < in.h0.size(); ++i) r.ht[i] = N(in.h0[i]);
  Chunkwise<ExactPolicy<N>> form(c, in, policy);
  form.run(0, in.T, r.ht.data(), [&](std::int64_t, const N* o) { r.o.insert(r.o.end(), o, o + in.V); });
  return r;
}

HeadResult nearest(const std::string& contract, const HeadInputs& in, std::span<const std::int64_t> split = {}) {
  return simulate(parse_contract(contract), in, SimulationMode::nearest, 1, split);
}

}  // namespace

TEST_CASE("chunkwise form equals the recurrence, exactly in wide arithmetic") {
  for (Rule rule : {Rule::gated_delta, Rule::delta, Rule::gated_linear, Rule::retention, Rule::linear, Rule::kda})
    for (Style::Gates gates : {Style::mixed, Style::extreme}) {
      Style s;
      s.T = 21; s.K = 6; s.V = 3; s.rule = rule; s.gates = gates; s.beta = 1.5;
      const HeadInputs in = make_head(s, 5);
      const auto truth = recurrence<Wide>(in);
      for (const char* form : {"fp32-chunk;chunk=8", "fp32-chunk;vectors=residual;chunk=5", "fp32-chunk;block=3;solve=block_inverse;chunk=16",
                               "fp32-chunk;chunk=8;solve=neumann", "fp32-chunk;vectors=residual;chunk=64;solve=neumann"}) {
        INFO(name(rule) << " " << form);
        CHECK(difference(chunkwise<Wide>(parse_contract(form), in), truth) < 1e-40);
        CHECK(difference(chunkwise<long double>(parse_contract(form), in), truth) < 1e-17);
      }
    }
}

TEST_CASE("every form of the simulation is the algorithm, up to its precision") {
  for (Rule rule : {Rule::gated_delta, Rule::delta, Rule::gated_linear, Rule::linear, Rule::kda})
    for (Style::Gates gates : {Style::none, Style::slow, Style::mixed, Style::spikes, Style::resets, Style::extreme}) {
      Style s;
      s.rule = rule; s.gates = gates;
      const HeadInputs in = make_head(s, 9);
      const auto truth = recurrence<long double>(in);
      const double e64 = difference(nearest("fp64-recurrent", in), truth);
      INFO(name(rule) << " gates " << gates << " fp64 " << e64);
      CHECK(e64 < 3e-15);
      for (const char* form : {"fp32-recurrent", "fp32-recurrent;fma=yes", "fp32-chunk;chunk=16", "fp32-chunk;solve=block_inverse;block=8", "fp32-chunk;solve=neumann;chunk=16",
                               "fp32-chunk;vectors=residual;cadence=call", "fp32-chunk;accumulator=tensor_core;chunk=32", "fp32-chunk;solve=block_inverse;vectors=residual"}) {
        const double e = difference(nearest(form, in), truth);
        INFO(form << " " << e);
        CHECK(e < (rule == Rule::kda ? 1e-4 : 1e-5));  // sums of many gates near -104 keep few digits
        CHECK(e > 1e-9);
      }
      for (const char* form : {"bf16-chunk", "bf16-chunk;vectors=residual", "bf16-recurrent", "bf16-state", "tf32-chunk", "fp16-chunk", "bf16-io-chunk", "fp16-recurrent"}) {
        const double e = difference(nearest(form, in), truth);
        INFO(form << " " << e);
        CHECK(e < 0.1);
        CHECK(e > 1e-6);
      }
    }
}

TEST_CASE("gate sums: prefix sums absorb later gates, resets do not") {
  Style s;
  s.gates = Style::slow;
  HeadInputs in = make_head(s, 3);
  for (std::size_t t = 6; t < in.g.size(); ++t) in.g[t] = -0.5f;
  in.g[5] = -1e9f;
  const auto truth = recurrence<long double>(in);
  CHECK(difference(nearest("fp32-chunk", in), truth) < 1e-5);
  CHECK(difference(nearest("fp32-chunk;gate_sum=prefix_seq", in), truth) > 1e-2);
  CHECK(difference(nearest("fp32-chunk;gate_sum=prefix_tree", in), truth) > 1e-2);
  in.g[5] = -30;
  const auto mild = recurrence<long double>(in);
  CHECK(difference(nearest("fp32-chunk;gate_sum=prefix_seq", in), mild) < 1e-4);
  CHECK(difference(nearest("fp32-chunk;gate_sum=prefix_tree", in), mild) < 1e-4);
}

TEST_CASE("every storage point of every form acts") {
  Style s;
  s.format = Format::fp32;
  s.gates = Style::mixed;
  const HeadInputs in = make_head(s, 4);
  for (const char* form : {"fp32-recurrent", "fp32-chunk;chunk=16", "fp32-chunk;chunk=16;solve=block_inverse;block=4", "fp32-chunk;chunk=16;vectors=residual"}) {
    const HeadResult base = nearest(form, in);
    for (std::size_t i = 0; i < kPoints; ++i) {
      const auto p = static_cast<Point>(i);
      const HeadResult other = nearest(std::string(form) + ";" + name(p) + "=bf16", in);
      INFO(form << " " << name(p));
      CHECK((other.o != base.o || other.ht != base.ht) == uses(parse_contract(form), p));
    }
  }
}

TEST_CASE("splits are calls that hand the state over") {
  Style s;
  const HeadInputs in = make_head(s, 6);
  for (const char* form : {"fp32-recurrent;ht=bf16", "fp32-chunk;chunk=16;ht=bf16", "bf16-chunk;chunk=16;cadence=call;S_carried=fp16"}) {
    const std::vector<std::int64_t> cuts{0, 13, 32, 100};
    const HeadResult whole = nearest(form, in, cuts);
    HeadResult joined;
    std::vector<float> state = in.h0;
    std::int64_t begin = 0;
    for (std::int64_t cut : {0, 13, 32, 40}) {
      HeadInputs part = in;
      part.T = cut - begin;
      part.h0 = state;
      auto rows = [&](std::vector<float>& x, std::int64_t width) { x.assign(x.begin() + begin * width, x.begin() + cut * width); };
      rows(part.q, in.K); rows(part.k, in.K); rows(part.v, in.V); rows(part.g, 1); rows(part.beta, 1);
      const HeadResult r = nearest(form, part);
      joined.o.insert(joined.o.end(), r.o.begin(), r.o.end());
      state.assign(r.ht.begin(), r.ht.end());
      begin = cut;
    }
    CHECK(whole.o == joined.o);
    CHECK(std::equal(state.begin(), state.end(), whole.ht.begin()));
    CHECK(whole.o != nearest(form, in).o);
  }
}

TEST_CASE("stochastic runs depend on the seed only and scatter around the truth as nearest errors do") {
  Style s;
  s.T = 80; s.V = 16; s.K = 32;
  const HeadInputs in = make_head(s, 8);
  const auto truth = recurrence<long double>(in);
  for (const std::string& preset : contract_presets()) {
    if (preset == "fp64-recurrent") continue;
    const Contract c = parse_contract(preset);
    const HeadResult again = simulate(c, in, SimulationMode::stochastic, 1);
    CHECK(again.o == simulate(c, in, SimulationMode::stochastic, 1).o);
    constexpr int R = 24;
    std::vector<double> square(truth.o.size()), sum(truth.o.size());
    for (int r = 0; r < R; ++r) {
      const HeadResult run = simulate(c, in, SimulationMode::stochastic, static_cast<std::uint64_t>(r) + 1);
      for (std::size_t i = 0; i < sum.size(); ++i) {
        const double e = run.o[i] - static_cast<double>(truth.o[i]);
        sum[i] += e;
        square[i] += e * e;
      }
    }
    const HeadResult near = simulate(c, in, SimulationMode::nearest, 1);
    double total = 0, bias = 0, variance = 0, error = 0;
    for (std::size_t i = 0; i < sum.size(); ++i) {
      variance += square[i];
      bias += sum[i] * sum[i] / R;                 // expectation: variance of one run
      total += square[i] / R;
      const double e = near.o[i] - static_cast<double>(truth.o[i]);
      error += e * e;
    }
    variance /= R;
    INFO(preset << " nearest/sigma " << std::sqrt(error / variance) << " bias " << bias / variance);
    CHECK(std::sqrt(error / variance) < 1.0);
    CHECK(std::sqrt(error / variance) > 0.4);
    CHECK(bias / variance < 1.35);
    CHECK(bias / variance > 0.65);
  }
}

TEST_CASE("accumulator noise is that of stochastic rounding of every addition") {
  // A dot product read out of a constant state, nothing else rounded: g = 0, beta = 0.
  Style s;
  s.T = 60; s.K = 64; s.V = 8; s.gates = Style::none;
  HeadInputs in = make_head(s, 2);
  std::fill(in.beta.begin(), in.beta.end(), 0.0f);
  in.scale = 1;
  const Contract c = parse_contract("fp32-recurrent;out=tf32x3");
  const Store sr{Format::fp32, 1, Rounding::stochastic, Subnormals::keep};
  const Random random(1, "additions");
  double mine = 0, real = 0;
  std::uint64_t n = 0;
  const auto truth = recurrence<long double>(in);
  for (std::uint64_t run = 0; run < 40; ++run) {
    const HeadResult r = simulate(c, in, SimulationMode::stochastic, run);
    for (std::int64_t t = 0; t < in.T; ++t)
      for (std::int64_t j = 0; j < in.V; ++j) {
        const double exact = static_cast<double>(truth.o[static_cast<std::size_t>(t * in.V + j)]);
        double sum = 0;
        for (std::int64_t d = 0; d < in.K; ++d)
          sum = round_to(sum + static_cast<double>(in.q[static_cast<std::size_t>(t * in.K + d)]) * static_cast<double>(in.h0[static_cast<std::size_t>(d * in.V + j)]), sr, random.bits(n++));
        real += (sum - exact) * (sum - exact);
        const double e = r.o[static_cast<std::size_t>(t * in.V + j)] - exact;
        mine += e * e;
      }
  }
  INFO("ratio of standard deviations " << std::sqrt(mine / real));
  CHECK(std::sqrt(mine / real) > 0.8);
  CHECK(std::sqrt(mine / real) < 1.25);
}

TEST_CASE("the wide instruction set gives the bits of the base one") {
  if (!lanes::wide()) return;
  constexpr lanes::Index n = 37, terms = 11;
  const Random random(5, "lanes");
  std::vector<double> a(terms), b(terms * n), c(n), q(n, 0.0);
  std::vector<float> af, bf, cf;
  for (std::size_t i = 0; i < b.size(); ++i) b[i] = random.normal(i) * std::ldexp(1.0, static_cast<int>(random.below(i, 40)) - 20);
  for (std::size_t i = 0; i < a.size(); ++i) a[i] = random.normal(1000 + i);
  for (std::size_t i = 0; i < c.size(); ++i) c[i] = random.normal(2000 + i);
  af.assign(a.begin(), a.end()); bf.assign(b.begin(), b.end()); cf.assign(c.begin(), c.end());
  std::vector<std::uint32_t> bits(48), state(64);
  for (std::size_t i = 0; i < bits.size(); ++i) bits[i] = static_cast<std::uint32_t>(random.bits(i));
  for (std::size_t i = 0; i < state.size(); ++i) state[i] = static_cast<std::uint32_t>(random.bits(100 + i));

  auto same = [&]<class Body>(auto& base, auto& wide, auto&& call) {
    call.template operator()<false, Body>(base);
    call.template operator()<true, Body>(wide);
    CHECK(base == wide);
  };
  auto choose = []<bool wide, class Body>(auto... x) {
    if constexpr (wide) lanes::run_wide<Body>(x...);
    else lanes::run_base<Body>(x...);
  };
  auto sums = [&]<class Body, class R>(const std::vector<R>& start, const std::vector<R>& left, const std::vector<R>& right) {
    auto x = start, y = start;
    same.template operator()<Body>(x, y, [&]<bool wide, class B>(auto& v) {
      choose.template operator()<wide, B>(v.data(), left.data(), lanes::Index{1}, right.data(), n, terms, n);
    });
  };
  sums.template operator()<lanes::Products<double>>(c, a, b);
  sums.template operator()<lanes::Products<float>>(cf, af, bf);
  sums.template operator()<lanes::Products<float, lanes::Fused>>(cf, af, bf);
  sums.template operator()<lanes::Products<float, lanes::Truncated>>(cf, af, bf);
  auto x = c, y = c;
  auto qx = q, qy = q;
  choose.template operator()<false, lanes::NoisyProducts>(x.data(), qx.data(), a.data(), lanes::Index{1}, b.data(), n, terms, n);
  choose.template operator()<true, lanes::NoisyProducts>(y.data(), qy.data(), a.data(), lanes::Index{1}, b.data(), n, terms, n);
  CHECK(x == y);
  CHECK(qx == qy);
  same.template operator()<lanes::Cut>(x, y, [&]<bool wide, class B>(auto& v) { choose.template operator()<wide, B>(v.data(), bits.data(), 45, n); });
  same.template operator()<lanes::RoundNearest<Format::fp16, double>>(x, y, [&]<bool wide, class B>(auto& v) { choose.template operator()<wide, B>(v.data(), n); });
  auto s = state, t = state;
  std::vector<std::uint32_t> u(64), w(64);
  choose.template operator()<false, lanes::Xoshiro>(s.data(), u.data(), lanes::Index{4});
  choose.template operator()<true, lanes::Xoshiro>(t.data(), w.data(), lanes::Index{4});
  CHECK(u == w);
  CHECK(s == t);
  auto r1 = c, r2 = c, o1 = q, o2 = q, z1 = q, z2 = q;
  choose.template operator()<false, lanes::WriteReadAbsolute>(x.data(), 0.3, 0.3, b.data(), -0.7, 0.7, r1.data(), o1.data(), z1.data(), n);
  choose.template operator()<true, lanes::WriteReadAbsolute>(y.data(), 0.3, 0.3, b.data(), -0.7, 0.7, r2.data(), o2.data(), z2.data(), n);
  choose.template operator()<false, lanes::DecayRead>(x.data(), 0.9, -0.7, 0.7, r1.data(), o1.data(), n);
  choose.template operator()<true, lanes::DecayRead>(y.data(), 0.9, -0.7, 0.7, r2.data(), o2.data(), n);
  CHECK((x == y && r1 == r2 && o1 == o2 && z1 == z2));
}
