// Case families: registered, named kinds exist, deterministic, within the level's size, and fit to show a slip.
#include <algorithm>
#include <cmath>
#include <set>

#include "reference/strand.h"
#include "suites/family.h"
#include "suites/kinds.h"
#include "suites/self/catch.h"

using namespace gdn;

namespace {
std::int64_t rows(const Problem& p) { return p.tokens() + p.padding; }
}  // namespace

TEST_CASE("families are registered, sorted, and name known kinds") {
  REQUIRE(!families().empty());
  std::string before;
  for (const Family* f : families()) {
    CAPTURE(f->name());
    CHECK(before < f->name());
    before = f->name();
    CHECK(find_family(f->name()) == f);
    CHECK(f->rationale().size() > 80);
    REQUIRE(!f->kinds().empty());
    std::set<std::string> seen;
    for (const std::string& k : f->kinds()) {
      CAPTURE(k);
      CHECK(is_kind(k));
      CHECK(seen.insert(k).second);
    }
    CHECK(!f->problems(Level::smoke).empty());
    CHECK(!f->problems(Level::ci).empty());
  }
  CHECK(find_family("no such family") == nullptr);
  CHECK_THROWS_AS(make_case({"no such family", Problem{}, 1}), std::invalid_argument);
  CHECK_THROWS_AS(cases_of(Level::ci, 1, {"no such family"}), std::invalid_argument);
  CHECK_THROWS_AS(parse_level("tiny"), std::invalid_argument);
  std::set<std::string> slugs;
  for (const Kind& k : kKinds) CHECK(slugs.insert(k.slug).second);
}

TEST_CASE("levels keep to their sizes") {
  const double limit[] = {4000, 60000, 5e6};
  for (const Level level : {Level::smoke, Level::ci, Level::nightly}) {
    double sum = 0;
    std::set<std::string> ids;
    for (const CaseId& id : cases_of(level, 1)) {
      sum += id.problem.token_heads();
      CHECK(ids.insert(id.family + to_string(id.problem)).second);
    }
    CHECK(sum <= limit[static_cast<int>(level)]);
    WARN(name(level) << ": " << ids.size() << " cases, " << sum << " token-heads");
  }
}

TEST_CASE("cases are deterministic, well-formed and differ by seed") {
  for (const CaseId& id : cases_of(Level::smoke, 1)) {
    const Case c = make_case(id);
    CAPTURE(case_id(c));
    REQUIRE(!c.runs.empty());
    const Case again = make_case(parse_case_id(case_id(c)));
    REQUIRE(again.runs.size() == c.runs.size());
    for (std::size_t r = 0; r < c.runs.size(); ++r) {
      CHECK(again.runs[r].inputs == c.runs[r].inputs);
      const Problem& p = c.runs[r].problem;
      const TensorSet& t = c.runs[r].inputs;
      if (own_tensors(p)) {
        for (const StageTensor& want : own_inputs(p)) CHECK(t.at(want.name).shape == want.shape);
        CHECK(t.at("cu_seqlens").int_at(p.sequences()) == p.tokens());
        continue;
      }
      CHECK(t.at("q").shape == std::vector<std::int64_t>{rows(p), p.heads, p.key_dim});
      CHECK(t.at("k").shape == t.at("q").shape);
      CHECK(t.at("v").shape == std::vector<std::int64_t>{rows(p), p.value_heads, p.value_dim});
      CHECK(t.at("cu_seqlens").int_at(p.sequences()) == p.tokens());
      CHECK((t.count("h0") == 1) == p.initial_state);
      if (const auto g = t.find("g"); g != t.end())
        for (std::int64_t i = 0; i < p.tokens() * p.value_heads; ++i) REQUIRE_FALSE((g->second.at(i) > 0 && !c.runs[r].refuse));   // NaN in rows without a sequence
    }
    CaseId other = id;
    other.seed = 2;
    CHECK(make_case(other).runs[0].inputs != c.runs[0].inputs);
  }
}

// What anti_vacuity asks of the final state; kernels are not needed to see it, and nobody runs them on every level and seed.
TEST_CASE("a final state of random tokens still holds what was half-way, at every level") {
  for (const Level level : {Level::smoke, Level::ci, Level::nightly})
    for (const std::uint64_t seed : {1, 2, 3})
      for (const CaseId& id : cases_of(level, seed, {"random_tokens"})) {
        const Case c = make_case(id);
        CAPTURE(case_id(c));
        const std::int64_t T = id.problem.tokens(), HV = id.problem.value_heads;
        double most = -1e30;
        for (std::int64_t h = 0; h < HV; ++h) {
          double sum = 0;
          for (std::int64_t t = T / 2; t < T; ++t) sum += c.runs[0].inputs.at("g").at(t * HV + h);
          most = std::max(most, sum);
        }
        CHECK(most > -16.6);
      }
}
