// Bounds: never exceeded by the simulation of any contract on random and adversarial heads, tight enough to be of
// use, infinite rather than wrong or NaN where a value may leave its format, and explained by their largest terms.
#include <cmath>
#include <map>

#include "reference/bound.h"
#include "reference/simulate.h"
#include "suites/self/catch.h"
#include "suites/self/small_heads.h"

using namespace gdn;
using namespace gdn::test;

namespace {

struct Judged {
  double o = 0, ht = 0;                            // largest |error| / bound
  long elements = 0, infinite = 0, nan = 0, loose = 0;
  std::string worst;
};

void judge(const Contract& c, const HeadInputs& in, std::span<const std::int64_t> split, Judged& j, std::uint64_t seed) {
  const HeadResult got = simulate(c, in, SimulationMode::nearest, seed, split), bound = bound_head(c, in, split);
  const auto truth = recurrence<long double>(in);
  auto each = [&](const auto& x, const auto& t, const auto& b, double& top) {
    REQUIRE(x.size() == b.size());
    for (std::size_t i = 0; i < x.size(); ++i) {
      ++j.elements;
      if (std::isnan(b[i]) || b[i] < 0) ++j.nan;
      if (std::isinf(b[i])) {
        ++j.infinite;
        continue;
      }
      // A narrow output may overflow where the value with its bound may.
      const double top_value = static_cast<double>(std::fabs(t[i])) + b[i];
      const Point p = static_cast<const void*>(&x) == static_cast<const void*>(&got.o) ? Point::out : Point::ht;
      if (!std::isfinite(x[i]) && top_value > info(c.at(p).format).max_finite) continue;
      if (b[i] > static_cast<double>(std::fabs(t[i]))) ++j.loose;
      const double e = static_cast<double>(std::fabs(static_cast<long double>(x[i]) - t[i]));
      const double ratio = e == 0 ? 0 : std::isnan(e) ? INFINITY : e / b[i];
      top = std::max(top, ratio);
    }
  };
  each(got.o, truth.o, bound.o, j.o);
  each(got.ht, truth.ht, bound.ht, j.ht);
}

std::vector<Style> styles() {
  std::vector<Style> all;
  auto add = [&](auto&& change) {
    Style s;
    s.T = 37; s.K = 12; s.V = 5;
    change(s);
    all.push_back(s);
  };
  add([](Style&) {});
  add([](Style& s) { s.gates = Style::none; s.beta = 2; });
  add([](Style& s) { s.gates = Style::none; s.equal_keys = true; s.constant_beta = true; s.beta = 0.835; });
  add([](Style& s) { s.equal_keys = true; s.beta = 1.9; s.constant_beta = true; });
  add([](Style& s) { s.gates = Style::fast; });
  add([](Style& s) { s.gates = Style::mixed; s.format = Format::fp32; });
  add([](Style& s) { s.gates = Style::spikes; s.state = 100; });
  add([](Style& s) { s.gates = Style::resets; });
  add([](Style& s) { s.gates = Style::extreme; s.format = Format::fp16; });
  add([](Style& s) { s.key_norm = 1.4; s.beta = 1.2; s.format = Format::fp32; });
  add([](Style& s) { s.key_norm = 0.05; s.value = 1e-3; });
  add([](Style& s) { s.value = 1e30; s.state = 1e30; s.format = Format::fp32; });
  add([](Style& s) { s.value = 1e-36; s.state = 1e-38; s.format = Format::fp32; s.gates = Style::fast; });
  add([](Style& s) { s.state = 1e4; s.beta = 0.1; });
  add([](Style& s) { s.value = 1e-5; s.state = 1e-4; s.gates = Style::mixed; });
  add([](Style& s) { s.T = 1; });
  add([](Style& s) { s.T = 0; });
  add([](Style& s) { s.rule = Rule::delta; });
  add([](Style& s) { s.rule = Rule::gated_linear; s.gates = Style::resets; });
  add([](Style& s) { s.rule = Rule::linear; });
  add([](Style& s) { s.state = 0; s.gates = Style::mixed; s.beta = 0; });
  return all;
}

}  // namespace

TEST_CASE("no preset exceeds its bound on random and adversarial heads") {
  std::map<std::string, std::vector<double>> tightness;
  for (const std::string& preset : contract_presets()) {
    const Contract wide = parse_contract(preset);
    Judged j;
    for (const Style& s : styles())
      for (std::uint64_t seed = 1; seed <= 2; ++seed) {
        Contract c = wide;
        if (c.form == Form::chunkwise) c.chunk = seed == 1 ? 64 : 8;
        const HeadInputs in = make_head(s, seed);
        const std::int64_t cuts[] = {0, 11, 16};
        Judged one;
        judge(c, in, seed == 1 ? std::span<const std::int64_t>{} : cuts, one, seed);
        INFO(preset << " T " << s.T << " gates " << s.gates << " beta " << s.beta << " value " << s.value << " state " << s.state << " rule " << name(s.rule) << " seed " << seed
                    << " o " << one.o << " ht " << one.ht);
        CHECK(one.o <= 1);
        CHECK(one.ht <= 1);
        CHECK(one.nan == 0);
        j.elements += one.elements;
        j.infinite += one.infinite;
        if (s.T > 1 && s.value == 1) tightness[preset].push_back(one.o);
      }
    INFO(preset << " infinite " << j.infinite << " of " << j.elements);
    CHECK(j.infinite < j.elements / 4);
  }
  for (auto& [preset, ratios] : tightness) {
    std::sort(ratios.begin(), ratios.end());
    const double median = ratios[ratios.size() / 2];
    INFO(preset << " median of the largest ratio of each case: " << median);
    CHECK(median >= (preset.starts_with("fp32") ? 0.003 : preset == "fp64-recurrent" ? 0.003 : 0.05));
  }
}

TEST_CASE("no contract with changed points, forms or rounding exceeds its bound") {
  const Random random(2, "overrides");
  std::uint64_t n = 0;
  const auto all = styles();
  const char* stores[] = {"bf16", "bf16/rz", "fp16", "fp16/rz/flush", "tf32/rna", "bf16/sr", "tf32/flush", "bf16x2", "fp32", "fp32/rz", "fp8_e5m2"};
  for (int trial = 0; trial < 400; ++trial) {
    const auto presets = contract_presets();
    Contract c = parse_contract(presets[random.below(n++, presets.size())]);
    const auto changes = random.below(n++, 5);
    for (std::uint64_t i = 0; i < changes; ++i, n += 2) c.points[random.below(n, kPoints)] = parse_store(stores[random.below(n + 1, std::size(stores))]);
    if (c.form == Form::chunkwise) {
      c.solve = static_cast<Solve>(random.below(n++, 3));
      c.vectors = static_cast<Vectors>(random.below(n++, 2));
      c.gate_sum = static_cast<GateSum>(random.below(n++, 3));
      c.chunk = static_cast<int>(1 + random.below(n++, 40));
      c.block = static_cast<int>(1 + random.below(n++, 16));
      if (random.below(n++, 4) == 0) c.cadence = Cadence::call;
    }
    if (c.accumulator != Accumulator::fp64 && random.below(n++, 3) == 0) c.accumulator = Accumulator::tensor_core;
    c.fma = random.below(n++, 2);
    const Style& s = all[random.below(n++, all.size())];
    const HeadInputs in = make_head(s, n);
    const std::int64_t cuts[] = {static_cast<std::int64_t>(random.below(n++, 38))};
    Judged j;
    ++n;
    judge(c, in, random.below(n, 2) ? std::span<const std::int64_t>{} : cuts, j, n);
    INFO(to_string(c) << " T " << s.T << " gates " << s.gates << " beta " << s.beta << " value " << s.value << " state " << s.state << " rule " << name(s.rule) << " o " << j.o << " ht " << j.ht);
    CHECK(j.o <= 1);
    CHECK(j.ht <= 1);
    CHECK(j.nan == 0);
  }
}

TEST_CASE("a kernel below its declared precision exceeds the bound") {
  Style s;
  s.T = 64; s.K = 32; s.V = 16; s.format = Format::fp32;
  const HeadInputs in = make_head(s, 1);
  const auto truth = recurrence<long double>(in);
  auto ratio = [&](const char* declared, const char* real) {
    const HeadResult got = simulate(parse_contract(real), in, SimulationMode::nearest, 1), bound = bound_head(parse_contract(declared), in);
    double top = 0;
    for (std::size_t i = 0; i < got.o.size(); ++i) top = std::max(top, std::fabs(got.o[i] - static_cast<double>(truth.o[i])) / bound.o[i]);
    for (std::size_t i = 0; i < got.ht.size(); ++i) top = std::max(top, std::fabs(got.ht[i] - static_cast<double>(truth.ht[i])) / bound.ht[i]);
    return top;
  };
  CHECK(ratio("fp32-chunk", "tf32-chunk") > 10);
  CHECK(ratio("tf32-chunk", "tf32-chunk") < 1);
  CHECK(ratio("fp32-recurrent", "bf16-state") > 10);
  CHECK(ratio("fp32-chunk", "fp32-chunk;M=bf16;solve=block_inverse") > 3);
  CHECK(ratio("bf16-recurrent", "bf16-recurrent;out=bf16/rz") > 1);
  CHECK(ratio("bf16-recurrent;out=bf16/rz", "bf16-recurrent;out=bf16/rz") < 1);
}

TEST_CASE("log-depth inversion is known to lose what substitution keeps") {
  // Equal keys, beta .835, g -1e-3, 64 rows: powers of L reach 1e12 while |M| stays below 1.
  Style s;
  s.T = 64; s.equal_keys = true; s.constant_beta = true; s.beta = 0.835; s.gates = Style::none; s.state = 0;
  HeadInputs in = make_head(s, 1);
  in.g.assign(64, -1e-3f);
  const double neumann = bound_head(parse_contract("fp32-chunk;solve=neumann"), in).o.back(), substitution = bound_head(parse_contract("fp32-chunk"), in).o.back();
  CHECK(neumann > 1e3 * substitution);
  Judged j;
  judge(parse_contract("fp32-chunk;solve=neumann"), in, {}, j, 1);
  CHECK(j.o <= 1);
}

TEST_CASE("bounds are infinite where a stored value may overflow, never NaN") {
  Style s;
  s.state = 1e6;
  const HeadInputs in = make_head(s, 1);
  const HeadResult b = bound_head(parse_contract("fp16-chunk"), in);
  CHECK(std::isinf(b.o[0]));
  CHECK(std::isinf(b.ht[0]));
  CHECK(std::isfinite(bound_head(parse_contract("bf16-chunk"), in).o[0]));
  CHECK(explain_bound(parse_contract("fp16-chunk"), in, false, 0, 0).find("range of its format") != std::string::npos);
  Style t;
  t.gates = Style::extreme;
  const HeadInputs gates = make_head(t, 3);
  for (const char* form : {"fp32-chunk", "fp32-chunk;gate_sum=prefix_seq", "fp32-chunk;gate_sum=prefix_tree"}) {
    const HeadResult r = bound_head(parse_contract(form), gates);
    long infinite = 0;
    for (double x : r.o) {
      CHECK_FALSE(std::isnan(x));
      infinite += std::isinf(x);
    }
    CHECK((infinite > 0) == (std::string(form) != "fp32-chunk"));
  }
}

TEST_CASE("the explanation names the terms that matter") {
  Style s;
  s.T = 70; s.K = 32; s.V = 8;
  const HeadInputs in = make_head(s, 1);
  const std::string fp32 = explain_bound(parse_contract("fp32-recurrent"), in, false, 69, 3);
  const std::string bf16 = explain_bound(parse_contract("bf16-chunk"), in, true, 31, 7);
  const std::string out = explain_bound(parse_contract("bf16-recurrent"), in, false, 5, 0);
  INFO(fp32 << "\n" << bf16 << "\n" << out);
  CHECK(fp32.find(": accumulation ") != std::string::npos);
  CHECK(out.find(": out=bf16 9") != std::string::npos);
  CHECK(bf16.find("=bf16 ") != std::string::npos);
  CHECK(bf16.find('\n') == std::string::npos);
  // The channel alone gives the same bound as the whole head.
  char text[32];
  std::snprintf(text, sizeof text, "bound %.3g:", bound_head(parse_contract("bf16-chunk"), in).ht[31 * 8 + 7]);
  CHECK(bf16.starts_with(text));
  CHECK_THROWS_AS(explain_bound(parse_contract("bf16-chunk"), in, false, 70, 0), std::invalid_argument);
}
