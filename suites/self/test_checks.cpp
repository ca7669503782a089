// Checks: a correct result passes all of them, and for each check there is a fault that it catches and that nothing
// before it does.
#include <cmath>
#include <limits>

#include "suites/check.h"
#include "suites/families/fill.h"
#include "suites/runner.h"
#include "suites/self/catch.h"
#include "suites/spread.h"
#include "suites/standing.h"

using namespace gdn;

namespace {

KernelInfo kernel(const char* contract = "fp32-recurrent") {
  KernelInfo k;
  k.name = "hand-made";
  k.how = "--kernel hand-made";
  k.contract = parse_contract(contract);
  return k;
}

// One run, no relation: what is judged is up to the test.
Case typical(const char* problem = "prefill/n1_t20_h1_hv2_k16_v8/fp32/h0") {
  Case c = make_case({"typical", parse_problem(problem), 1});
  c.runs.resize(1);
  c.relations.clear();
  return c;
}

// What a perfect kernel returns: the truth, rounded once.
std::vector<Execution> perfect(const Golden& g) {
  std::vector<Execution> all;
  for (std::size_t i = 0; i < g.the_case.runs.size(); ++i) {
    const Problem& p = g.the_case.runs[i].problem;
    Execution e;
    for (const auto& [name, truth] : g.truths[i]) {
      Tensor t(name == "ht" ? p.state : p.io, truth.shape);
      for (std::int64_t j = 0; j < t.size(); ++j)
        t.set(j, rounded(truth.hi[static_cast<std::size_t>(j)], truth.lo[static_cast<std::size_t>(j)], format_of(t.dtype)));
      e.outputs.emplace(name, std::move(t));
    }
    all.push_back(std::move(e));
  }
  return all;
}

struct Bench {
  Case c;
  Golden g;
  KernelInfo info = kernel();
  std::vector<Execution> e;
  explicit Bench(Case the_case) : c(std::move(the_case)), g(make_golden(c)), e(perfect(g)) {}
  CheckResult run(const char* check) const { return find_check(check)->run({g, c.relations, info, e}); }
  CheckStatus status(const char* check) const { return run(check).status; }
  Record record() const { return judge_results(g, c, info, e); }
  Tensor& o() { return e[0].outputs.at("o"); }
  Tensor& ht() { return e[0].outputs.at("ht"); }
};

// The check fails, and every check with a smaller order passes (or does not apply).
void caught_by(const Bench& b, const std::string& name) {
  for (const Check* check : checks()) {
    CAPTURE(check->name());
    const CheckResult r = check->run({b.g, b.c.relations, b.info, b.e});
    if (check->name() == name) {
      CHECK(r.status == CheckStatus::failed);
      CHECK(r.failing > 0);
      CHECK(!r.message.empty());
      CHECK(r.clause == check->clause());
      CHECK(b.record().verdict == "FAILED");
      return;
    }
    CHECK((r.status == CheckStatus::passed || r.status == CheckStatus::not_applicable));
  }
  FAIL("no check " << name);
}

Relation same_output(const char* statement, RelationClass cls, std::size_t rhs) {
  Relation r;
  r.row = 36;
  r.statement = statement;
  r.cls = cls;
  r.rhs = rhs;
  r.expected = [](const std::vector<TensorSet>& results) { return TensorSet{{"o", results[0].at("o")}}; };
  return r;
}

}  // namespace

TEST_CASE("checks are registered in the order of the standard") {
  REQUIRE(checks().size() >= 4);
  for (std::size_t i = 1; i < checks().size(); ++i) CHECK(checks()[i - 1]->order() < checks()[i]->order());
  for (const Check* c : checks()) {
    CHECK(find_check(c->name()) == c);
    CHECK(c->rationale().size() > 60);
    CHECK(!c->clause().empty());
  }
  CHECK(find_check("no such check") == nullptr);
}

TEST_CASE("a correct result passes every check") {
  for (const char* problem : {"prefill/n1_t20_h1_hv2_k16_v8/fp32/h0", "prefill/n3_t9+0+1_h2_hv4_k8_v4/fp32/h0,pad=3",
                              "prefill/n1_t30_h1_hv2_k16_v16/fp32/noht"}) {
    const Bench b(typical(problem));
    const Record r = b.record();
    CAPTURE(problem, r.reason);
    CHECK(r.verdict == "PASSED");
    CHECK(b.run("bound").judged > 0);
  }
  Bench b(typical("prefill/n1_t20_h1_hv2_k16_v8/bf16/h0"));
  b.info = kernel("bf16-recurrent");
  CHECK(b.record().verdict == "PASSED");
}

TEST_CASE("soundness catches what was never written, written outside, and NaN") {
  SECTION("missing tensor") { Bench b(typical()); b.e[0].outputs.erase("ht"); caught_by(b, "soundness"); }
  SECTION("wrong shape") { Bench b(typical()); b.o().shape = {20, 8, 2}; caught_by(b, "soundness"); }
  SECTION("wrong dtype") {
    Bench b(typical());
    b.e[0].outputs["o"] = Tensor(DType::bf16, {20, 2, 8});
    caught_by(b, "soundness");
  }
  SECTION("one element unwritten") { Bench b(typical()); b.ht().set_bits(17, poison_bits(DType::f32)); caught_by(b, "soundness"); }
  SECTION("a write outside, as the session saw it") {
    Bench b(typical());
    b.e[0].violations = {"wrote 4 bytes past the end of o"};
    caught_by(b, "soundness");
    CHECK(b.run("soundness").message.find("past the end of o") != std::string::npos);
  }
  SECTION("a NaN, and which") {
    Bench b(typical());
    b.o().set((7 * 2 + 1) * 8 + 3, std::numeric_limits<double>::quiet_NaN());
    caught_by(b, "soundness");
    const CheckResult r = b.run("soundness");
    CHECK(to_string(r.worst->where) == "sequence 0 token 7 head 1 channel 3");
    CHECK(b.status("bound") == CheckStatus::failed);   // a comparison never lets NaN through
  }
  SECTION("an infinity") { Bench b(typical()); b.ht().set(0, -std::numeric_limits<double>::infinity()); caught_by(b, "soundness"); }
  SECTION("padding is nobody's") {
    Bench b(typical("prefill/n1_t6_h1_hv1_k8_v4/fp32/h0,pad=2"));
    b.o().set_bits(6 * 4, poison_bits(DType::f32));
    CHECK(b.record().verdict == "PASSED");
  }
}

TEST_CASE("a final state of an empty sequence is judged unless declared untouched") {
  Bench b(typical("prefill/n2_t0+5_h1_hv1_k8_v4/fp32/h0"));
  b.ht().set_bits(3, poison_bits(DType::f32));
  caught_by(b, "soundness");
  b.info.convention.empty = EmptySequence::untouched;
  CHECK(b.record().verdict == "PASSED");
  b.ht().set_bits(8 * 4, poison_bits(DType::f32));     // of the sequence that is not empty
  CHECK(b.record().verdict == "FAILED");
}

TEST_CASE("non-finite inputs taint what they can reach and nothing else") {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const Problem p = parse_problem("prefill/n2_t10_h1_hv2_k8_v4/fp32/h0");
  auto with = [&](const char* tensor, std::int64_t at, double x) {
    Case c = typical("prefill/n2_t10_h1_hv2_k8_v4/fp32/h0");
    c.runs[0].inputs.at(tensor).set(at, x);
    return c.runs[0];
  };
  const KernelInfo info = kernel();
  auto o = [&](const Standings& s, int token, int head, int channel) { return s.o[static_cast<std::size_t>((token * 2 + head) * 4 + channel)]; };
  auto ht = [&](const Standings& s, int n, int head, int row, int col) { return s.ht[static_cast<std::size_t>(((n * 2 + head) * 8 + row) * 4 + col)]; };
  Standings s = standings(with("v", (3 * 2 + 1) * 4 + 2, nan), info);   // token 3, head 1, channel 2 of sequence 0
  CHECK(o(s, 3, 1, 2) == Standing::tainted);
  CHECK(o(s, 9, 1, 2) == Standing::tainted);
  CHECK(o(s, 2, 1, 2) == Standing::judged);
  CHECK(o(s, 3, 1, 1) == Standing::judged);
  CHECK(o(s, 3, 0, 2) == Standing::judged);
  CHECK(o(s, 10, 1, 2) == Standing::judged);          // next sequence
  CHECK(ht(s, 0, 1, 5, 2) == Standing::tainted);
  CHECK(ht(s, 0, 1, 5, 1) == Standing::judged);
  CHECK(ht(s, 1, 1, 5, 2) == Standing::judged);
  s = standings(with("k", 3 * 8 + 1, nan), info);
  CHECK(o(s, 3, 0, 0) == Standing::tainted);
  CHECK(o(s, 9, 1, 3) == Standing::tainted);
  CHECK(o(s, 2, 1, 3) == Standing::judged);
  s = standings(with("q", 3 * 8 + 1, nan), info);
  CHECK(o(s, 3, 0, 0) == Standing::tainted);
  CHECK(o(s, 4, 0, 0) == Standing::judged);
  CHECK(ht(s, 0, 0, 0, 0) == Standing::judged);
  s = standings(with("g", 3 * 2 + 1, -std::numeric_limits<double>::infinity()), info);
  CHECK(o(s, 3, 1, 0) == Standing::judged);           // -inf is a reset, not damage
  s = standings(with("g", 3 * 2 + 1, nan), info);
  CHECK(o(s, 3, 1, 0) == Standing::tainted);
  CHECK(o(s, 3, 0, 0) == Standing::judged);
  s = standings(with("h0", ((1 * 2 + 0) * 8 + 3) * 4 + 1, std::numeric_limits<double>::infinity()), info);
  CHECK(o(s, 10, 0, 1) == Standing::tainted);
  CHECK(o(s, 9, 0, 1) == Standing::judged);
  // A chunkwise kernel that multiplies by its mask may lose the rows before, in the same chunk only.
  KernelInfo chunk = kernel("fp32-chunk;chunk=16");
  s = standings(with("v", (3 * 2 + 1) * 4 + 2, nan), chunk);
  CHECK(o(s, 0, 1, 2) == Standing::tainted);
  CHECK(o(s, 0, 1, 1) == Standing::judged);
  chunk.properties.masks_select = true;
  s = standings(with("v", (3 * 2 + 1) * 4 + 2, nan), chunk);
  CHECK(o(s, 2, 1, 2) == Standing::judged);
}

TEST_CASE("near overflow both sides are right, elsewhere an infinity is wrong") {
  const double inf = std::numeric_limits<double>::infinity();
  CHECK(overflow_allowed(inf, 65500, 10, 0, Format::fp16));
  CHECK(overflow_allowed(inf, 1e6, 0, 0, Format::fp16));
  CHECK(!overflow_allowed(-inf, 65500, 10, 0, Format::fp16));
  CHECK(overflow_allowed(-inf, -65500, 10, 0, Format::fp16));
  CHECK(!overflow_allowed(inf, 65000, 10, 0, Format::fp16));
  CHECK(!overflow_allowed(65000, 65500, 10, 0, Format::fp16));
  CHECK(!overflow_allowed(std::nan(""), 1e6, 10, 0, Format::fp16));
  CHECK(overflow_allowed(std::nan(""), 500, 0, 0, Format::fp8_e4m3));
  CHECK(!overflow_allowed(inf, 65000, std::nan(""), 0, Format::fp16));
}

TEST_CASE("rounding a pair to a format never rounds twice") {
  CHECK(rounded(1 + 0x1p-8, 0x1p-60, Format::bf16) == 1 + 0x1p-7);   // just above the midpoint
  CHECK(rounded(1 + 0x1p-8, -0x1p-60, Format::bf16) == 1);
  CHECK(rounded(1 + 0x1p-8, 0, Format::bf16) == 1);
  CHECK(rounded(-1 - 3 * 0x1p-8, 0x1p-70, Format::bf16) == -1 - 0x1p-7);
  CHECK(rounded(0, 0, Format::bf16) == 0);
  CHECK(ulp_at(1.5, Format::fp32) == 0x1p-23);
  CHECK(ulp_at(0, Format::fp16) == 0x1p-24);
}

TEST_CASE("bound catches a single wrong element, which soundness cannot") {
  Bench b(typical());
  const std::int64_t at = (11 * 2 + 1) * 8 + 5;
  b.o().set(at, b.o().at(at) + 0.25);
  caught_by(b, "bound");
  const CheckResult r = b.run("bound");
  REQUIRE(r.worst);
  CHECK(r.failing == 1);
  CHECK(r.worst->where.element == at);
  CHECK(r.worst->where.token == 11);
  CHECK(r.worst->where.head == 1);
  CHECK(r.worst->where.column == 5);
  CHECK(r.worst->ratio > 1);
  CHECK(r.worst->error_ulp > 1);
  CHECK(!r.worst->detail.empty());
  CHECK(r.metrics.at("max_abs") == Approx(0.25).margin(1e-5));
  const Record record = b.record();
  CHECK(record.reason.find("bound (clause 5.5)") == 0);
  CHECK(record.first_bad_chunk.empty());           // a recurrent kernel has no chunks
  CHECK(record.repro == "gdn-cts verify --kernel hand-made --case '" + case_id(b.c) + "'");
}

TEST_CASE("the bound maps its error over tokens, heads and state") {
  Bench b(typical("prefill/n2_t9+60_h1_hv3_k16_v8/fp32/h0,pad=2"));
  const std::int64_t token = 67, head = 1;         // of 69 tokens on 48 columns
  b.o().set((token * 3 + head) * 8 + 5, 1e3);
  b.ht().set(((1 * 3 + 2) * 16 + 11) * 8 + 6, 1e3);
  const CheckResult r = b.run("bound");
  REQUIRE(r.maps.size() == 2);
  for (const RecordMap& m : r.maps) {
    const bool o = m.tensor == "o";
    CHECK(m.rows == (o ? 3 : 16));
    CHECK(m.columns == (o ? 48 : 8));
    for (std::int64_t i = 0; i < m.rows; ++i)
      for (std::int64_t j = 0; j < m.columns; ++j) {
        const bool wrong = o ? i == head && j == token * 48 / 69 : i == 11 && j == 6;
        CAPTURE(m.tensor, i, j);
        CHECK((error_level_of(m.levels[static_cast<std::size_t>(i * m.columns + j)]) > kErrorLevelOfLimit) == wrong);
      }
  }
}

TEST_CASE("bound judges final states, NaN truths of the harness and exact zeros") {
  Bench b(typical());
  b.ht().set(40, b.ht().at(40) + 0.25);
  caught_by(b, "bound");
  CHECK(b.run("bound").worst->where.tensor == "ht");
  CHECK(b.run("bound").worst->where.row == 5);
  // 0/0: a zero bound with a zero error passes, with any error fails.
  Bench z(typical("prefill/n1_t0_h1_hv1_k8_v4/fp32/h0"));
  CHECK(z.record().verdict == "PASSED");
  z.ht().set(3, z.ht().at(3) * (1 + 0x1p-20));
  CHECK(z.status("bound") == CheckStatus::failed);
}

TEST_CASE("exactness catches what the bound forgives") {
  Case c = make_case({"exact_dictionary", parse_problem("prefill/n1_t20_h1_hv2_k16_v8/fp32/h0"), 1});
  Bench b(c);
  CHECK(b.record().verdict == "PASSED");
  CHECK(b.run("exactness").judged == 2 * (20 * 2 * 8 + 2 * 16 * 8));   // two runs
  const std::int64_t at = 77;
  b.ht().set(at, std::nextafterf(static_cast<float>(b.ht().at(at)), 1e9f));
  caught_by(b, "exactness");
  CHECK(b.status("bound") == CheckStatus::passed);
  CHECK(b.run("exactness").worst->where.element == at);
  // A golden that is wrong is a defect of the suite: neither a pass nor the kernel's failure.
  Bench wrong(c);
  wrong.g.truths[0].at("o").hi[5] += 1;
  CHECK(wrong.record().verdict == "MISTRUSTED");
  CHECK(wrong.record().reason.find("disagree") != std::string::npos);
}

TEST_CASE("relations catch what no reference judges") {
  Case c = typical();
  c.runs.push_back(c.runs[0]);
  c.runs[1].name = "again";
  c.relations.push_back(same_output("two runs give the same bits", RelationClass::deterministic, 1));
  Bench b(c);
  CHECK(b.record().verdict == "PASSED");
  const std::int64_t at = 33;
  const double x = b.e[1].outputs.at("o").at(at);
  b.e[1].outputs.at("o").set(at, std::nextafterf(static_cast<float>(x), 1e9f));   // one ulp: far inside the bound
  caught_by(b, "relations");
  CHECK(b.status("bound") == CheckStatus::passed);
  const CheckResult r = b.run("relations");
  CHECK(r.worst->where.element == at);
  CHECK(r.worst->where.run_name == "again");
  CHECK(r.worst->error_ulp == Approx(1));
  SECTION("not held to what it does not declare") {
    b.info.properties.deterministic = false;
    CHECK(b.status("relations") == CheckStatus::not_applicable);
  }
  SECTION("skipped elements are not compared") {
    b.c.relations[0].skip["o"] = {at};
    CHECK(b.status("relations") == CheckStatus::passed);
  }
  SECTION("zeros of both signs are one number, NaN differs from a number") {
    b.e[1].outputs.at("o").set(at, x);
    b.e[0].outputs.at("o").set(0, 0.0);
    b.e[1].outputs.at("o").set(0, -0.0);
    CHECK(b.status("relations") == CheckStatus::passed);
    b.e[1].outputs.at("o").set(0, std::nan(""));
    CHECK(b.status("relations") == CheckStatus::failed);
    b.e[0].outputs.at("o").set(0, std::nan(""));
    CHECK(b.status("relations") == CheckStatus::passed);
  }
}

TEST_CASE("a case that could not see a fault is mistrusted") {
  SECTION("all values zero") {
    Case c = typical("prefill/n1_t20_h1_hv2_k16_v8/fp32");
    Tensor& v = c.runs[0].inputs.at("v");
    v = Tensor(v.dtype, v.shape);
    CHECK(Bench(c).record().verdict == "MISTRUSTED");
  }
  SECTION("every head forgets") {
    Case c = typical();
    Tensor& g = c.runs[0].inputs.at("g");
    for (std::int64_t i = 0; i < g.size(); ++i) g.set(i, -5);
    const Bench b(c);
    CHECK(b.record().verdict == "MISTRUSTED");
    CHECK(b.run("anti_vacuity").message.find("first half") != std::string::npos);
  }
  SECTION("a contract so coarse that the bound exceeds the signal") {
    Bench b(typical());
    b.info = kernel("bf16-recurrent;S_carried=fp8_e5m2;out=fp8_e5m2;k_in=fp8_e5m2;v_in=fp8_e5m2;q_in=fp8_e5m2");
    CHECK(b.status("anti_vacuity") == CheckStatus::mistrusted);
    CHECK(b.record().verdict == "MISTRUSTED");
  }
  SECTION("no truth, no relation") {
    Case c = typical();
    c.runs[0].truth = false;
    Bench b(c);
    b.e = Bench(typical()).e;
    CHECK(b.record().verdict == "MISTRUSTED");
  }
}

TEST_CASE("a case that no check decided is untested") {
  Case c = typical();
  c.runs.push_back(c.runs[0]);
  for (Run& r : c.runs) r.truth = false;
  c.relations.push_back(same_output("the same", RelationClass::masks_select, 1));
  Bench b(c);
  b.e = {Bench(typical()).e[0], Bench(typical()).e[0]};
  for (auto& e : b.e) CHECK(!e.outputs.empty());
  CHECK((b.record().verdict == "UNTESTED" || b.record().verdict == "MISTRUSTED"));
  b.info.properties.masks_select = true;
  CHECK(b.record().verdict == "PASSED");
}

TEST_CASE("tolerances do not leak from one case into the next") {
  const Bench good(typical());
  Bench bad(typical());
  bad.o().set(5, bad.o().at(5) + 0.25);
  for (int i = 0; i < 3; ++i) {
    CHECK(good.record().verdict == "PASSED");
    CHECK(bad.record().verdict == "FAILED");
  }
}

TEST_CASE("the places of failing elements are told as sequences, heads, tokens and channels") {
  const Problem p = parse_problem("prefill/n2_t10+70_h2_hv4_k8_v4/fp32");
  const auto at = [&](std::int64_t token, std::int64_t head, std::int64_t channel) { return (token * 4 + head) * 4 + channel; };
  std::vector<std::int64_t> e;
  for (std::int64_t t = 0; t < 80; ++t)
    for (std::int64_t v = 0; v < 4; ++v) e.insert(e.end(), {at(t, 1, v), at(t, 3, v)});
  CHECK(spread(p, "o", e, 64) == "all odd heads of 4");
  CHECK(spread(p, "o", {at(10 + 64, 2, 0), at(10 + 66, 2, 1)}, 64) == "sequence 1 of 2; head 2 of 4; tokens 64, 66 of 70; chunk rows 0, 2 of 64; channels 0-1 of 4");
  CHECK(spread(p, "o", {at(10 + 64, 2, 0)}, 1) == "sequence 1 of 2; head 2 of 4; token 64 of 70; channel 0 of 4");
  CHECK(spread(p, "ht", {0, 1, 2, 3}, 64) == "sequence 0 of 2; head 0 of 4; state row 0 of 8");
  e.clear();
  for (std::int64_t i = 0; i < 2 * 4 * 8 * 4; ++i) e.push_back(i);
  CHECK(spread(p, "ht", e, 64) == "everywhere");
}
