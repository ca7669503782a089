// The exactness certificate: what it certifies, what it refuses, and that the exact families certify for every preset.
#include <cmath>
#include <map>

#include "suites/exact.h"
#include "suites/family.h"
#include "suites/self/catch.h"

using namespace gdn;

namespace {

const char* const kExactFamilies[] = {"exact_dictionary", "exact_resets"};

// A tiny head: T tokens with one-hot keys in turn, v = 1, q asks for the first key.
HeadInputs tiny(std::int64_t T, std::int64_t K) {
  HeadInputs in;
  in.T = T;
  in.K = K;
  in.V = 1;
  in.scale = 0.25;
  in.q.assign(static_cast<std::size_t>(T * K), 0);
  in.k = in.q;
  for (std::int64_t t = 0; t < T; ++t) {
    in.k[static_cast<std::size_t>(t * K + t % K)] = 1;
    in.q[static_cast<std::size_t>(t * K)] = 1;
  }
  in.v.assign(static_cast<std::size_t>(T), 1);
  in.g.assign(static_cast<std::size_t>(T), 0);
  in.beta.assign(static_cast<std::size_t>(T), 1);
  in.h0.assign(static_cast<std::size_t>(K), 3);
  return in;
}

}  // namespace

TEST_CASE("small exact inputs are certified with the right numbers") {
  for (const std::string& preset : contract_presets()) {
    const ExactHead e = exact_head(parse_contract(preset), tiny(6, 4));
    CAPTURE(preset, e.why_not);
    REQUIRE(e.certified);
    CHECK(!e.pass_through);
    CHECK(e.expected.o == std::vector<double>(6, 0.25));   // written 1 at the first token
    CHECK(e.expected.ht == std::vector<double>(4, 1.0));
  }
}

TEST_CASE("what is not exact is refused, with the reason") {
  const Contract bf16 = parse_contract("bf16-chunk"), fp32 = parse_contract("fp32-recurrent");
  auto refused = [](const Contract& c, const HeadInputs& in, const char* why) {
    const ExactHead e = exact_head(c, in);
    CAPTURE(e.why_not);
    CHECK(!e.certified);
    CHECK(e.why_not.find(why) != std::string::npos);
  };
  HeadInputs in = tiny(6, 4);
  in.g[3] = -0.5f;
  refused(fp32, in, "gate");
  in = tiny(6, 4);
  in.scale = 0.3;
  refused(fp32, in, "scale");
  in = tiny(6, 4);
  in.v[2] = 257;                                   // nine digits
  refused(bf16, in, "v_in");
  CHECK(exact_head(fp32, in).certified);
  in = tiny(6, 4);
  in.h0[1] = 0x1p-30f;
  for (auto& q : in.q) q = 1;                      // 3 and 2^-30 meet in one sum
  refused(fp32, in, "sum");
  in = tiny(6, 4);
  in.v[5] = std::nanf("");
  refused(fp32, in, "finite");
  in = tiny(6, 4);
  in.rule = Rule::kda;
  refused(fp32, in, "rule");
}

TEST_CASE("absorbed gate sums are exact only where sums restart at a reset") {
  HeadInputs in = tiny(6, 4);
  in.g[1] = -1e30f;
  in.g[3] = -1000;
  CHECK(exact_head(parse_contract("fp32-chunk"), in).certified);
  CHECK(!exact_head(parse_contract("fp32-chunk;gate_sum=prefix_seq"), in).certified);
  in.g[1] = -1000;
  const ExactHead e = exact_head(parse_contract("fp32-chunk;gate_sum=prefix_seq"), in);
  CHECK(e.certified);
  CHECK(e.expected.ht == std::vector<double>({1, 1, 0, 1}));
}

TEST_CASE("log-depth products of equal keys are refused, block inverses are not") {
  HeadInputs in = tiny(64, 4);
  for (std::int64_t t = 0; t < 64; ++t)
    for (std::int64_t d = 0; d < 4; ++d) in.k[static_cast<std::size_t>(t * 4 + d)] = d == 0;
  CHECK(exact_head(parse_contract("fp32-chunk;solve=block_inverse"), in).certified);
  CHECK(!exact_head(parse_contract("fp32-chunk;solve=neumann"), in).certified);
}

TEST_CASE("pass-through reads the state as the contract stores it") {
  HeadInputs in = tiny(3, 4);
  in.beta.assign(3, 0);
  in.h0 = {1.0f + 0x1p-20f, 0.3f, -2.7f, 5};
  const Contract fp32 = parse_contract("fp32-recurrent");
  ExactHead e = exact_head(fp32, in);
  REQUIRE(e.certified);
  CHECK(e.expected.o[2] == 0.25 * static_cast<double>(in.h0[0]));
  CHECK(e.expected.ht[1] == static_cast<double>(in.h0[1]));
  const Contract chunk = parse_contract("bf16-chunk");
  e = exact_head(chunk, in);
  REQUIRE(e.certified);
  CHECK(e.pass_through);
  CHECK(e.expected.o[0] == 0.25);                  // the operand S is bf16
  CHECK(e.expected.ht[0] == static_cast<double>(in.h0[0]));   // the carried state is not
  const Contract state = parse_contract("bf16-state");
  e = exact_head(state, in);
  REQUIRE(e.certified);
  CHECK(e.expected.ht[0] == 1);
  CHECK(std::isnan(e.expected.o[0]));              // read before or after the rounding: the kernel's choice
  CHECK(e.finer.ht[0] == static_cast<double>(in.h0[0]));
  in.beta[1] = 0.5f;
  CHECK(!exact_head(chunk, in).certified);
}

TEST_CASE("every case of the exact families certifies for every preset, and fills the digits it may") {
  std::map<std::string, std::array<int, kPoints>> most;
  std::map<std::string, int> sums;
  for (const char* family : kExactFamilies)
    for (const CaseId& id : cases_of(Level::ci, 1, {family})) {
      if (id.problem.tokens() > (id.problem.key_dim > 64 ? 70 : 140)) continue;   // time
      const Case c = make_case(id);
      for (const std::string preset : {"fp32-recurrent", "bf16-state", "bf16-chunk", "tf32-chunk", "bf16-chunk;vectors=residual"})
        for (std::int64_t hv = 0; hv < std::min<std::int64_t>(id.problem.value_heads, 4); ++hv) {
          const Contract contract = for_problem(parse_contract(preset), id.problem);
          const ExactHead e = exact_head(contract, head_inputs(c.runs[0], 0, hv), id.problem.split);
          CAPTURE(case_id(c), preset, hv, e.why_not);
          // Weights of 8 digits meet their like in tf32 inverses and in residuals: there the fourth head says nothing.
          if (hv < 3 || (preset != "tf32-chunk" && preset != "bf16-chunk;vectors=residual")) CHECK(e.certified);
          if (!e.certified) continue;
          for (std::size_t p = 0; p < kPoints; ++p) most[preset][p] = std::max(most[preset][p], e.digits[p]);
          sums[preset] = std::max(sums[preset], e.sum_digits);
        }
    }
  // A format of one digit less at any point of the 16-bit chunkwise form could not hold the values: nothing is left to luck.
  for (const Point p : {Point::q_in, Point::k_in, Point::v_in, Point::M, Point::bv, Point::bk, Point::U, Point::W, Point::Vn_o, Point::Vn_s,
                        Point::S_op, Point::P})
    CHECK(most["bf16-chunk"][static_cast<std::size_t>(p)] == 8);
  CHECK(most["bf16-state"][static_cast<std::size_t>(Point::S_carried)] == 8);
  for (const auto& [preset, digits] : most) {
    std::string line = preset + ": sums " + std::to_string(sums[preset]);
    for (std::size_t p = 0; p < kPoints; ++p) line += std::string(" ") + name(static_cast<Point>(p)) + "=" + std::to_string(digits[p]);
    WARN(line);
  }
}

TEST_CASE("pass_through certifies for every preset") {
  for (const CaseId& id : cases_of(Level::ci, 1, {"pass_through"}))
    for (const std::string& preset : contract_presets()) {
      const Case c = make_case(id);
      const ExactHead e = exact_head(for_problem(parse_contract(preset), id.problem), head_inputs(c.runs[0], 0, 0), id.problem.split);
      CAPTURE(case_id(c), preset, e.why_not);
      CHECK(e.certified);
    }
}
