// The oracle against its independent audit, on every rule and on the inputs where certification is hard; exactness,
// special values, sizes, and that the audit and the certificates can fail.
#include <cstdlib>
#include <cstring>

#include "reference/certify.h"
#include "reference/truth.h"
#include "suites/self/catch.h"
#include "suites/self/oracle_inputs.h"

using namespace gdn;

namespace {
constexpr float kInf = std::numeric_limits<float>::infinity();

OracleStats audited(const HeadInputs& in) {
  OracleStats stats;
  const HeadTruth t = oracle_head(in, &stats);
  CHECK(audit_head(in, t) == "");
  CHECK(stats.elements == (in.T + in.K) * in.V);
  return stats;
}
}  // namespace

TEST_CASE("every rule agrees with the audit and is certified for every format") {
  for (Rule rule : {Rule::gated_delta, Rule::delta, Rule::gated_linear, Rule::retention, Rule::linear, Rule::kda})
    for (bool h0 : {false, true}) {
      INFO(name(rule));
      const OracleStats s = audited(random_head(rule, 40, 20, 19, 0.1, 2, h0));
      CHECK(s.uncertified_fp64 == 0);
      CHECK(s.balls == 0);
      if (has_delta(rule)) CHECK(s.multiprecision_heads == 0);  // short sums of products are ties now and then
    }
}

TEST_CASE("odd sizes, no tokens, one token, no gates and no beta") {
  for (std::int64_t V : {1, 7, 8, 9, 16, 17, 33})
    for (std::int64_t K : {1, 7, 8, 9}) audited(random_head(Rule::gated_delta, 3, K, V));
  HeadInputs in = random_head(Rule::gated_delta, 5, 8, 8);
  in.g.clear();
  in.beta.clear();
  audited(in);
  in = random_head(Rule::gated_delta, 0, 6, 5);
  OracleStats s;
  const HeadTruth t = oracle_head(in, &s);
  CHECK(t.o.hi.empty());
  for (std::size_t i = 0; i < in.h0.size(); ++i) {
    CHECK(t.ht.hi[i] == static_cast<double>(in.h0[i]));
    CHECK(t.ht.radius[i] == 0);
  }
  in.k.push_back(1);
  CHECK_THROWS_AS(oracle_head(in), std::invalid_argument);
}

TEST_CASE("exact inputs are decided exactly: zeros and ties have radius 0") {
  for (const HeadInputs& in : {one_hot_head(100, 16, 9), hadamard_head(60, 16, 9), hadamard_head(12, 64, 5)}) {
    OracleStats s;
    const HeadTruth t = oracle_head(in, &s);
    CHECK(audit_head(in, t) == "");
    CHECK(s.uncertified_fp64 == 0);
    CHECK(s.exact_heads == 1);
    std::int64_t zeros = 0;
    for (std::size_t i = 0; i < t.o.hi.size(); ++i) zeros += t.o.hi[i] == 0 && t.o.radius[i] == 0;
    CHECK(zeros > 0);
  }
  // Exact in more than 53 bits: halves of halves of numbers with different exponents.
  HeadInputs in = one_hot_head(300, 2, 3);
  std::fill(in.g.begin(), in.g.end(), 0.0f);
  std::fill(in.beta.begin(), in.beta.end(), 0.5f);
  const OracleStats s = audited(in);
  CHECK(s.balls == 0);
}

TEST_CASE("entries that were never written are exact zeros whatever the gates") {
  HeadInputs in = one_hot_head(50, 16, 4);
  in.h0.clear();
  for (float& g : in.g) g = -0.37f;
  OracleStats s;
  const HeadTruth t = oracle_head(in, &s);
  CHECK(audit_head(in, t) == "");
  CHECK(s.uncertified_fp64 == 0);
  CHECK(s.multiprecision_heads == 0);
}

TEST_CASE("dense zeros under generic gates are known to be zero in every narrow format") {
  const OracleStats s = audited(hadamard_head(30, 16, 4, -0.37f));
  CHECK(s.balls == 0);
  CHECK(s.multiprecision_heads == 1);
  CHECK(s.uncertified_fp64 > 0);                   // no finite precision proves a zero
}

TEST_CASE("resets: -inf is exactly zero, -1000 leaves a radius that no narrow format sees except at a tie") {
  OracleStats s = audited(one_hot_head(100, 16, 9, -kInf));
  CHECK(s.uncertified_fp64 == 0);
  HeadInputs in = one_hot_head(100, 16, 9, -1000);
  for (float& b : in.beta) b = std::round(b);      // 8 bits at most: no ties
  s = audited(in);
  CHECK(s.balls == 0);
  CHECK(s.uncertified_fp64 > 0);
  in = random_head(Rule::gated_delta, 4, 8, 8);
  in.g = {-0.5f, -kInf, -1000, -0.25f};
  s = audited(in);
  CHECK(s.balls == 0);
}

TEST_CASE("decay to 1e-300 and through it") {
  HeadInputs in = random_head(Rule::gated_delta, 45, 8, 8);
  std::fill(in.v.begin(), in.v.end(), 0.0f);
  for (float& g : in.g) g = -16;
  OracleStats s = audited(in);
  CHECK(s.balls == 0);
  const HeadTruth t = oracle_head(in);
  CHECK(std::fabs(t.ht.hi[0]) < 1e-300);           // 45 * 16 / ln 10 = 312
  CHECK(t.o.hi[static_cast<std::size_t>(42 * 8)] != 0);  // 1e-298, still known
  for (std::size_t i = 0; i < 42 * 8; ++i) {
    INFO(i);
    CHECK(certified(t.o.hi[i], t.o.lo[i], t.o.radius[i], Format::fp64));
  }
}

TEST_CASE("large values that are not written") {
  HeadInputs in = random_head(Rule::gated_delta, 30, 8, 8);
  for (float& v : in.v) v *= 1e30f;
  std::fill(in.beta.begin(), in.beta.end(), 0.0f);
  const OracleStats s = audited(in);
  CHECK(s.uncertified_fp64 == 0);
}

TEST_CASE("growth past the range of double ends in infinity, and does not hang") {
  HeadInputs in = random_head(Rule::gated_delta, 200, 8, 8, 0);
  for (float& k : in.k) k *= 16;
  in.beta.assign(200, 2.0f);
  const HeadTruth t = oracle_head(in);
  CHECK(audit_head(in, t) == "");
  CHECK(std::isinf(t.o.hi.back()));
  CHECK(std::isfinite(t.o.hi[0]));
}

TEST_CASE("non-finite inputs taint what they reach and nothing else") {
  for (Rule rule : {Rule::gated_delta, Rule::linear, Rule::kda}) {
    const HeadInputs clean = random_head(rule, 12, 8, 9);
    const HeadTruth base = oracle_head(clean);
    for (float bad : {kInf, -kInf, std::numeric_limits<float>::quiet_NaN()}) {
      HeadInputs in = clean;
      in.v[static_cast<std::size_t>(5 * 9 + 3)] = bad;
      HeadTruth t = oracle_head(in);
      CHECK(audit_head(in, t) == "");
      for (std::size_t i = 0; i < t.o.hi.size(); ++i) {
        const bool reached = i % 9 == 3 && i / 9 >= 5;
        CHECK(std::isfinite(t.o.hi[i]) == !reached);
        if (!reached) CHECK(t.o.hi[i] == base.o.hi[i]);
      }
      in = clean;
      in.q[7 * 8 + 2] = bad;
      t = oracle_head(in);
      for (std::size_t i = 0; i < t.o.hi.size(); ++i) CHECK(std::isfinite(t.o.hi[i]) == (i / 9 != 7));
      for (double x : t.ht.hi) CHECK(std::isfinite(x));
      in = clean;
      in.k[7 * 8 + 2] = bad;
      t = oracle_head(in);
      CHECK(audit_head(in, t) == "");
      for (std::size_t i = 0; i < t.o.hi.size(); ++i) CHECK(std::isfinite(t.o.hi[i]) == (i / 9 < 7));
    }
  }
  HeadInputs in = random_head(Rule::gated_delta, 4, 8, 3);
  in.g[2] = std::numeric_limits<float>::quiet_NaN();
  in.h0[1] = kInf;
  const HeadTruth t = oracle_head(in);
  CHECK(audit_head(in, t) == "");
  for (std::size_t i = 0; i < t.o.hi.size(); ++i) CHECK(std::isfinite(t.o.hi[i]) == (i % 3 != 1 && i / 3 < 2));
}

TEST_CASE("the audit notices every kind of wrong truth") {
  const HeadInputs in = random_head(Rule::gated_delta, 10, 8, 5);
  const HeadTruth good = oracle_head(in);
  REQUIRE(audit_head(in, good) == "");
  HeadTruth bad = good;
  bad.o.hi[13] = std::nextafter(bad.o.hi[13], 1);
  CHECK(audit_head(in, bad).find("o[2,3]") != std::string::npos);
  bad = good;
  bad.ht.lo[7] += std::fabs(bad.ht.hi[7]) * 0x1p-80;
  CHECK(audit_head(in, bad).find("ht[1,2]") != std::string::npos);
  bad = good;
  bad.o.hi[4] = std::numeric_limits<double>::quiet_NaN();
  CHECK(audit_head(in, bad) != "");
  bad = good;
  bad.ht.hi.pop_back();
  CHECK(audit_head(in, bad) != "");
  HeadInputs other = in;
  other.beta[3] = std::nextafter(other.beta[3], 2.0f);
  CHECK(audit_head(other, good) != "");
}

TEST_CASE("certified looks at rounding boundaries, not at the size of the radius") {
  CHECK(certified(1.0, 0, 0, Format::fp64));
  CHECK(certified(1 + 0x1p-9, 0, 0, Format::bf16));               // a tie that is exact
  CHECK_FALSE(certified(1 + 0x1p-8, 0, 0x1p-100f, Format::bf16));  // 1 + 2^-8 is the boundary of bf16
  CHECK(certified(1 + 0x1p-8, 0x1p-90, 0x1p-100f, Format::bf16));
  CHECK(certified(1 + 0x1p-8, 0, 0x1p-100f, Format::fp32));
  CHECK_FALSE(certified(1 + 0x1p-24, 0x1p-80, 0x1p-79f, Format::fp32));
  CHECK_FALSE(certified(1, 0x1p-53, 0x1p-100f, Format::fp64));
  CHECK(certified(1, 0x1p-53 * 0.75, 0x1p-60f, Format::fp64));
  CHECK_FALSE(certified(65520, 0, 1e-10f, Format::fp16));          // overflow threshold
  CHECK(certified(65519, 0, 1e-10f, Format::fp16));
  CHECK(certified(1e300, 0, 1e30f, Format::fp32));                 // far beyond
  CHECK_FALSE(certified(0, 0, 1e-30f, Format::fp32));
  CHECK(certified(0, 0, 1e-30f, Format::fp16));
  CHECK(certified(0, 0, 0x1p-149f, Format::fp32));                 // the code for a tiny radius
  CHECK_FALSE(certified(0, 0, 0x1p-149f, Format::fp64));
  CHECK_FALSE(certified(1, 0, kInf, Format::bf16));
  CHECK(certified(std::numeric_limits<double>::infinity(), 0, 0, Format::bf16));
}

TEST_CASE("stored radii are upper bounds and keep what they promise") {
  using namespace oracle_detail;
  for (double hi : {0.0, 1.0, -1e-60, 1e-200, 1e60, -1e200})
    for (double radius : {0.0, 1e-320, 1e-100, 1e-80, 1e-46, 1e-45, 1e-20, 1e30, 1e39, 1e180, 1e300}) {
      double h = hi, lo = 0;
      const float r = store_radius(h, lo, radius);
      INFO(hi << " " << radius << " -> " << h << " " << r);
      CHECK(static_cast<double>(r) >= radius);
      CHECK(stored_radius(h, r) >= radius + std::fabs(h - hi) * (h == hi ? 0 : 1 - 1e-9));
      CHECK((r == 0) == (radius == 0));
    }
}

TEST_CASE("runs: heads land in their places, padding is unknown, the same bits at any thread count") {
  Run run;
  run.problem = parse_problem("prefill/n2_t5+3_h1_hv3_k8_v6/bf16/h0,pad=2");
  const Problem& p = run.problem;
  const Random r(3, "x");
  std::uint64_t c = 0;
  const auto tensor = [&](const char* name, DType t, std::vector<std::int64_t> shape, double lo, double hi) {
    Tensor x(t, std::move(shape));
    for (std::int64_t i = 0; i < x.size(); ++i) x.set(i, r.uniform(c++, lo, hi));
    run.inputs.emplace(name, x);
  };
  tensor("q", DType::bf16, {10, 1, 8}, -1, 1);
  tensor("k", DType::bf16, {10, 1, 8}, -0.5, 0.5);
  tensor("v", DType::bf16, {10, 3, 6}, -1, 1);
  tensor("g", DType::f32, {10, 3}, -1, 0);
  tensor("beta", DType::f32, {10, 3}, 0, 1);
  tensor("h0", DType::f32, {2, 3, 8, 6}, -1, 1);
  OracleStats s;
  double last = 0;
  const Truth t = oracle(run, &s, [&](double x) { last = std::max(last, x); });
  CHECK(last == 1);
  CHECK(s.elements == 8 * 3 * 6 + 2 * 3 * 8 * 6);
  REQUIRE(t.at("o").shape == std::vector<std::int64_t>{10, 3, 6});
  REQUIRE(t.at("ht").shape == std::vector<std::int64_t>{2, 3, 8, 6});
  for (std::int64_t n = 0; n < 2; ++n)
    for (std::int64_t hv = 0; hv < 3; ++hv) {
      const HeadTruth h = oracle_head(head_inputs(run, n, hv));
      for (std::int64_t row = 0; row < p.lengths[static_cast<std::size_t>(n)]; ++row)
        for (std::int64_t v = 0; v < 6; ++v)
          CHECK(t.at("o").hi[static_cast<std::size_t>(((n * 5 + row) * 3 + hv) * 6 + v)] == h.o.hi[static_cast<std::size_t>(row * 6 + v)]);
      CHECK(std::memcmp(t.at("ht").hi.data() + (n * 3 + hv) * 48, h.ht.hi.data(), 48 * sizeof(double)) == 0);
    }
  CHECK(t.at("o").radius.back() == kInf);
}
