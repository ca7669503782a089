// The search for hard inputs: it climbs, repeats itself, finds a kernel that exceeds its bound, and what it keeps is read
// back exactly and run by family `worst`.
#include <set>

#include "suites/family.h"
#include "suites/hunt.h"
#include "suites/runner.h"
#include "suites/self/catch.h"
#include "suites/simulated.h"

using namespace gdn;

namespace {
HuntOptions few(std::int64_t tries) {
  HuntOptions o;
  o.seconds = 1e6;
  o.tries = tries;
  return o;
}
std::unique_ptr<KernelSession> carried_out(const char* contract, const char* declared) { return open_simulated(parse_contract(contract), parse_contract(declared)); }
}  // namespace

TEST_CASE("a hunt climbs above where it began, and finds the same again") {
  const auto kernel = carried_out("fp32-chunk", "fp32-chunk");
  const HuntResult a = hunt(*kernel, few(300)), b = hunt(*kernel, few(300));
  CHECK(a.tries == 300);
  REQUIRE(!a.found.empty());
  CHECK(a.found[0].ratio > a.first);
  CHECK(a.found[0].ratio <= 1);
  CHECK(to_line(a.found[0]) == to_line(b.found[0]));
}

TEST_CASE("a hunt finds a kernel that exceeds its bound where the cases it began with do not") {
  const auto kernel = carried_out("bf16-chunk;accumulator=fp32;U=bf16/rz;P=bf16/rz;Vn_s=bf16/rz;Vn_o=bf16/rz", "bf16-chunk");
  const HuntResult r = hunt(*kernel, few(600));
  REQUIRE(!r.found.empty());
  INFO(r.first << " to " << r.found[0].ratio);
  CHECK(r.found[0].ratio > r.first);
}

TEST_CASE("lines are exact, and what is wrong with one is said in one line") {
  const auto kernel = carried_out("fp32-recurrent", "fp32-recurrent");
  const HuntResult r = hunt(*kernel, few(40));
  REQUIRE(!r.found.empty());
  const WorstInput& w = r.found[0];
  const WorstInput again = parse_worst(to_line(w));
  CHECK(again.contract == w.contract);
  CHECK(again.run.problem == w.run.problem);
  CHECK(again.run.inputs == w.run.inputs);
  const std::string line = to_line(w);
  for (const std::string& bad : {std::string(), std::string("0.5 fp32-chunk"), "x" + line, line.substr(0, line.size() - 3) + ",", line + " z=1", line + ",0x1p+0",
                                 line.substr(0, line.rfind(' '))}) {
    INFO(bad.substr(0, 80));
    CHECK_THROWS_AS(parse_worst(bad), std::invalid_argument);
  }
  HuntOptions unknown = few(1);
  unknown.families = {"no such family"};
  CHECK_THROWS_AS(hunt(*kernel, unknown), std::invalid_argument);
}

TEST_CASE("family worst runs every kept input as it was found, at every level and at other sizes") {
  const Family* family = find_family("worst");
  REQUIRE(family);
  std::size_t runs = 0;
  for (const Problem& p : family->problems(Level::smoke)) runs += family->make(p, 1).runs.size() - 1;   // the last is a relation's
  CHECK(runs == worst_inputs().size());
  CHECK(family->problems(Level::smoke) == family->problems(Level::nightly));
  const WorstInput& w = worst_inputs()[0];
  CHECK(family->make(w.run.problem, 1).runs[0].inputs == w.run.inputs);
  const Case large = family->make(parse_problem("prefill/n2_t9+0_h2_hv4_k64_v48/bf16/h0,pad=2"), 3);
  CHECK(large.runs[0].inputs.at("k").shape == std::vector<std::int64_t>{11, 2, 64});
  // Found with these contracts at these ratios: the climb can be walked again.
  for (const WorstInput& x : worst_inputs()) {
    const Contract c = parse_contract(x.contract);
    Case one;
    one.family = "worst";
    one.problem = x.run.problem;
    one.runs.push_back(x.run);
    const Record r = judge_case(make_golden(one), one, *open_simulated(c, c), {false, {}});
    INFO(x.contract << " " << to_string(x.run.problem) << " " << r.reason);
    CHECK(r.verdict == "PASSED");
  }
}
