// The power study: known faults are caught, on cases that their twin passes, and the study notices when they are not.
// Exists because a suite whose power is not measured passes everything sooner or later.
#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <set>

#include "suites/harness.h"
#include "suites/identify.h"
#include "suites/power.h"
#include "suites/runner.h"
#include "suites/self/catch.h"

using namespace gdn;

namespace {
PowerOptions smoke(std::vector<std::string> faults, std::vector<std::string> families = {}) {
  PowerOptions o;
  o.level = Level::smoke;
  o.faults = std::move(faults);
  o.families = std::move(families);
  return o;
}
}  // namespace

TEST_CASE("the first ten faults are caught in every form and scalar, and no twin fails") {
  const PowerResult r = measure_power(smoke({"state_zeroed_at_chunk_border", "state_leaks_into_next_sequence", "chunk_end_gate_zero_in_tail", "gate_clamped",
                                             "correction_before_decay", "one_element_wrong", "one_element_nan", "delta_term_missing",
                                             "one_element_unwritten", "heads_tiled"}));
  INFO(power_table(r));
  CHECK(r.alarms.empty());
  CHECK(r.faults.size() == 10);
  for (const FaultPower& f : r.faults)
    for (const VariantPower& v : f.variants) {
      INFO(f.fault->name << " " << v.name());
      CHECK(v.killed());
    }
  CHECK(r.score() == 1);
}

TEST_CASE("a full run names families, its cover kills the same, and its JSON can be read") {
  PowerOptions o = smoke({"delta_term_missing", "state_leaks_into_next_sequence", "initial_state_ignored"}, {"packed_sequences", "state_handoff"});
  o.full = true;
  const PowerResult r = measure_power(o);
  std::set<std::string> families;
  for (const Kill& k : r.faults[0].variants[0].kills) families.insert(r.cases[k.case_index].family);
  CHECK(families.size() == 2);
  std::set<std::size_t> covered;
  const std::vector<std::size_t> cover = greedy_cover(r);
  for (std::size_t f = 0; f < r.faults.size(); ++f)
    for (const VariantPower& v : r.faults[f].variants)
      for (const Kill& k : v.kills)
        if (std::find(cover.begin(), cover.end(), k.case_index) != cover.end()) covered.insert(f);
  CHECK(covered.size() == r.faults.size());
  CHECK_FALSE(unproven_kinds(r).empty());          // three faults cannot prove all kinds
  const auto j = nlohmann::json::parse(power_json(r));
  CHECK(j["faults"].size() == 3);
  CHECK(j["score"] == 1.0);
}

TEST_CASE("a fault that the cases cannot show survives and is not called equivalent") {
  PowerOptions o;
  o.case_ids = {"typical:prefill/n1_t20_h1_hv1_k16_v16/fp32/h0:1"};
  o.faults = {"state_leaks_into_next_sequence"};   // one sequence: nothing changes
  const PowerResult blind = measure_power(o);
  CHECK_FALSE(blind.faults[0].killed());
  CHECK_FALSE(blind.faults[0].equivalent());
  CHECK(blind.faults[0].certain);
  CHECK(blind.faults[0].variants[0].measured);
  CHECK(blind.faults[0].variants[0].delta == 0);
  CHECK(blind.score() == 0);
  CHECK(power_table(blind).find("changes nothing on these cases") != std::string::npos);
  CHECK_THROWS_AS(measure_power(smoke({"no such fault"})), std::invalid_argument);
}

TEST_CASE("a fault below the noise of every contract is equivalent, and has a signal-to-noise ratio") {
  PowerOptions o;
  o.case_ids = {"typical:prefill/n1_t20_h1_hv1_k16_v16/bf16/h0:1"};
  o.faults = {"final_state_in_bf16", "slow_gate_ignored", "queries_in_bf16"};   // the last changes nothing on bf16 inputs
  const PowerResult r = measure_power(o);
  for (const FaultPower& f : r.faults) {
    INFO(power_table(r));
    CHECK(f.equivalent() == (!f.killed() && f.variants[0].delta > 0 && f.variants[0].snr < 1));
    if (std::string_view(f.fault->name) == "queries_in_bf16") CHECK_FALSE(f.killed());
    if (std::string_view(f.fault->name) == "final_state_in_bf16") CHECK(f.killed());
  }
}

TEST_CASE("faults of the harness are noticed") {
  CHECK(harness_healthy() == "");
  for (const HarnessFault& f : harness_faults()) {
    INFO(f.name);
    CHECK(f.noticed() != "");
  }
}

TEST_CASE("a failing result names the fault it came from, a passing one nothing") {
  const Case c = make_case(parse_case_id("typical:prefill/n1_t70_h2_hv4_k32_v24/fp32/h0:1"));
  const Golden g = make_golden(c);
  for (const char* name : {"correction_before_decay", "scale_missing", "heads_tiled", "initial_state_transposed"}) {
    const Fault& f = *find_fault(name);
    const auto session = open_inline(faulty_kernel(f, Form::chunkwise, FaultScalar::fp32)->name, {});
    std::vector<Execution> executions;
    for (const Run& run : c.runs) executions.push_back(session->run(run, case_id(c)));
    const CheckInput in{g, c.relations, session->info(), executions};
    INFO(name << ": " << resembles(in));
    const std::vector<Resemblance> all = identify(in);
    REQUIRE_FALSE(all.empty());
    CHECK(all[0].fault == name);
    CHECK(all[0].share > 0.9);
    CHECK(judge_results(g, c, session->info(), executions).resembles.find(name) == 0);
  }
}

// Minutes of work, so by hand: GDN_FAMILIES=keys,sizes test_power '[kinds]', all families without it.
TEST_CASE("every kind that a family lists is killed by that family alone", "[.][kinds]") {
  const char* only = std::getenv("GDN_FAMILIES");
  for (const Family* f : families()) {
    if (only && ("," + std::string(only) + ",").find("," + f->name() + ",") == std::string::npos) continue;
    PowerOptions o;
    o.families = {f->name()};
    o.measure_survivors = false;
    for (const std::string& kind : f->kinds())
      if (std::any_of(fault_bank().begin(), fault_bank().end(), [&](const Fault& fault) { return kind == fault.kind; })) o.faults.push_back(kind);
    const PowerResult r = measure_power(o);
    std::string missing;
    for (const std::string& line : unproven_kinds(r)) missing += line + "\n";
    CHECK(missing == "");
    CHECK(r.alarms.empty());
  }
}
