// The limits between the rules: where one rule is another, their exact results agree within their radii.
#include <cmath>

#include "reference/truth.h"
#include "suites/family.h"
#include "suites/self/catch.h"

using namespace gdn;

TEST_CASE("a rule is its neighbour's limit") {
  const Family* f = find_family("rules");
  REQUIRE(f != nullptr);
  std::size_t pairs = 0;
  for (const Problem& p : f->problems(Level::smoke)) {
    const Case c = f->make(p, 3);
    CAPTURE(to_string(p));
    REQUIRE(c.runs.size() >= 2);
    const bool writes_out = p.rule == Rule::gated_linear;    // the two runs without writes agree, and not with the base
    const Truth base = oracle(c.runs[writes_out ? 1 : 0]);
    for (std::size_t r = writes_out ? 2 : 1; r < c.runs.size(); ++r) {
      const Truth other = oracle(c.runs[r]);
      ++pairs;
      for (const auto& [name, t] : base) {
        const TruthTensor& x = other.at(name);
        for (std::size_t i = 0; i < t.hi.size(); ++i)
          REQUIRE(std::fabs((t.hi[i] - x.hi[i]) + (t.lo[i] - x.lo[i])) <= static_cast<double>(t.radius[i]) + static_cast<double>(x.radius[i]));
      }
    }
    if (writes_out) CHECK(oracle(c.runs[0]).at("o").hi != base.at("o").hi);
  }
  CHECK(pairs == 6);
}
