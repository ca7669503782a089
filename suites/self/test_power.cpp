// The power study: known faults are caught, on cases that their twin passes, and the study notices when they are not.
// Exists because a suite whose power is not measured passes everything sooner or later.
#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
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

namespace {
// A fault's kernel on a case, as the checks see it.
struct Failing {
  Case c;
  Golden g;
  std::unique_ptr<KernelSession> session;
  std::vector<Execution> executions;
  Failing(const char* id, const char* fault, Form form, FaultScalar scalar) : c(make_case(parse_case_id(id))), g(make_golden(c)) {
    session = open_inline(faulty_kernel(*find_fault(fault), form, scalar)->name, {});
    forget_calls();
    for (const Run& run : c.runs) executions.push_back(session->run(run, case_id(c)));
  }
  CheckInput input() const { return {g, c.relations, session->info(), executions}; }
};
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

// A fault may sit in the decode kernel alone; prefill families do not help there.
TEST_CASE("what faults do to decode or to verify is caught by families of that operation") {
  PowerOptions o;
  o.measure_survivors = false;
  o.faults = {"beta_clamped_to_one", "gate_clamped", "very_negative_gate_ignored", "exponent_wraps_as_integer", "infinite_gate_taken_as_zero", "scale_argument_ignored",
              "scale_one_taken_as_default", "only_first_sequences_launched", "only_first_heads_launched", "value_tail_not_stored", "key_tail_dropped",
              "key_vector_tail_counted_twice", "head_ratio_as_shift", "head_ratio_dispatched_down", "half_subnormals_flushed", "short_gate_keeps_its_dtype",
              "slot_number_in_8_bits", "slot_zero_is_none", "rows_past_32_skipped", "state_clamped", "short_key_taken_as_zero", "zero_key_gives_nan"};
  for (const char* operation : {"decode", "verify"}) {
    o.families.clear();
    for (const Family* f : families())
      if (name(f->problems(Level::ci)[0].operation) == std::string_view(operation)) o.families.push_back(f->name());
    if (operation[0] == 'v') o.faults.insert(o.faults.end(), {"snapshots_of_four_drafts", "accepted_limited_to_four"});
    const PowerResult r = measure_power(o);
    INFO(power_table(r));
    CHECK(r.alarms.empty());
    for (const FaultPower& f : r.faults) {
      INFO(operation << " " << f.fault->name);
      CHECK(std::any_of(f.variants.begin(), f.variants.end(), [](const VariantPower& v) { return v.form == Form::recurrent && v.killed(); }));
    }
  }
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

TEST_CASE("a family is missed where it alone catches a fault in the kernel of its operation, for who claims its profile") {
  PowerOptions o = smoke({"infinite_gate_taken_as_zero", "beta_clamped_to_one", "delta_term_missing", "mild_chunk_factored"}, {"gate_edges", "decode_gate_edges", "decode_pool", "decode_reflections", "relation_causality", "typical"});
  o.losses = true;
  o.measure_survivors = false;
  const PowerResult r = measure_power(o);
  INFO(family_table(r));
  std::map<std::string, std::vector<std::string>> alone;
  for (const FamilyPower& f : families_alone(r)) alone[f.family] = f.alone;
  CHECK(alone["gate_edges"] == std::vector<std::string>{"infinite_gate_taken_as_zero"});        // in prefill; in decode another family does
  CHECK(alone["decode_gate_edges"] == std::vector<std::string>{"infinite_gate_taken_as_zero"});
  CHECK(alone["decode_reflections"] == std::vector<std::string>{"beta_clamped_to_one"});
  CHECK(alone["relation_causality"] == std::vector<std::string>{"mild_chunk_factored"});
  CHECK(alone["typical"].empty());                 // what it sees, others of core see too
  CHECK(families_without_loss(r) == std::vector<std::string>{"typical"});
  PowerResult again;
  add_power_json(again, power_json(r));
  CHECK(family_table(again) == family_table(r));
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

TEST_CASE("a decay that is flushed fails where the contract keeps subnormals, and passes where it flushes them") {
  const Failing f("values:prefill/n1_t35_h1_hv4_k32_v32/fp32/h0:1", "subnormal_decay_flushed", Form::recurrent, FaultScalar::fp32);
  KernelInfo info = f.session->info();
  CHECK(judge_results(f.g, f.c, info, f.executions, {false, {}}).verdict == "FAILED");
  info.contract = parse_contract("fp32-recurrent;D=fp32/flush");
  const Record r = judge_results(f.g, f.c, info, f.executions, {false, {}});
  CAPTURE(r.reason);
  CHECK(r.verdict == "PASSED");
}

TEST_CASE("a mistaken convention is named") {
  const Case c = make_case(parse_case_id("typical:prefill/n1_t21_h2_hv6_k16_v24/fp32/h0:1"));
  const Golden g = make_golden(c);
  const auto session = open_inline(faulty_kernel(*find_fault("none"), Form::recurrent, FaultScalar::fp32)->name, {});
  const Run& run = c.runs[0];
  const auto name_of = [&](const Run& fact, const char* declared, const std::function<void(TensorSet&)>& back) {
    Execution e = session->run(fact, case_id(c));
    back(e.outputs);
    KernelInfo info = session->info();
    info.convention = parse_convention(declared);
    const std::vector<Execution> executions{e};
    const CheckInput in{g, c.relations, info, executions};
    const Identification id = identify(in);
    INFO(sentence(id));
    for (const Resemblance& r : named(id))
      if (r.name.find("convention ") == 0) return r.name;
    return sentence(id);
  };
  // Canonical kernels that declare another convention: what they are given is in it.
  Run fact = run;                                  // gates in base 2, taken as natural logarithms
  Tensor& gates = fact.inputs.at("g");
  for (std::int64_t i = 0; i < gates.size(); ++i) gates.set(i, gates.at(i) * 1.4426950408889634);
  CHECK(name_of(fact, "gate=log2", [](TensorSet&) {}) == "convention gate=log");
  fact = run;                                      // value heads in tiled order, taken as grouped: place j holds head j % 2 * 3 + j / 2
  const auto head = [](std::int64_t j) { return j % 2 * 3 + j / 2; };
  const auto permuted = [&](const Tensor& t, std::int64_t width, bool into) {
    Tensor p = t;
    for (std::int64_t row = 0; row < t.size() / (6 * width); ++row)
      for (std::int64_t j = 0; j < 6; ++j)
        for (std::int64_t i = 0; i < width; ++i) {
          const std::int64_t native = (row * 6 + j) * width + i, canonical = (row * 6 + head(j)) * width + i;
          if (into) p.set_bits(native, t.bits(canonical));
          else p.set_bits(canonical, t.bits(native));
        }
    return p;
  };
  for (const auto& [name, width] : std::map<std::string, std::int64_t>{{"v", 24}, {"g", 1}, {"beta", 1}, {"h0", 16 * 24}})
    fact.inputs.at(name) = permuted(run.inputs.at(name), width, true);
  CHECK(name_of(fact, "heads=tiled", [&](TensorSet& out) {
          out.at("o") = permuted(out.at("o"), 24, false);
          out.at("ht") = permuted(out.at("ht"), 16 * 24, false);
        }) == "convention heads=grouped");
  fact = run;                                      // states [V,K] taken as [K,V], and back
  CHECK(name_of(fact, "", [](TensorSet&) {}).find("nothing known") == 0);
  Tensor& h0 = fact.inputs.at("h0");
  for (std::int64_t at = 0; at < 6; ++at)
    for (std::int64_t k = 0; k < 16; ++k)
      for (std::int64_t v = 0; v < 24; ++v) h0.set_bits(at * 384 + v * 16 + k, run.inputs.at("h0").bits(at * 384 + k * 24 + v));
  CHECK(name_of(fact, "state=VK", [](TensorSet& out) {
          const Tensor ht = out.at("ht");
          for (std::int64_t at = 0; at < 6; ++at)
            for (std::int64_t k = 0; k < 16; ++k)
              for (std::int64_t v = 0; v < 24; ++v) out.at("ht").set_bits(at * 384 + k * 24 + v, ht.bits(at * 384 + v * 16 + k));
        }) == "convention state=KV");
}

TEST_CASE("of a large case one head is compared") {
  const Failing f("typical:prefill/n1_t33_h16_hv32_k128_v128/bf16/h0:1", "correction_before_decay", Form::recurrent, FaultScalar::bf16);
  const Identification id = identify(f.input());
  INFO(sentence(id));
  REQUIRE_FALSE(named(id).empty());
  CHECK(named(id)[0].name == "correction_before_decay");
  CHECK(sentence(id).find("of this large case only head ") != std::string::npos);
}

TEST_CASE("faults of the harness are noticed") {
  CHECK(harness_healthy() == "");
  for (const HarnessFault& f : harness_faults()) {
    INFO(f.name);
    CHECK(f.noticed() != "");
  }
}

TEST_CASE("a failing result names the fault it came from, a passing one nothing") {
  for (const char* fault : {"correction_before_decay", "scale_missing", "heads_tiled", "initial_state_transposed", "none"}) {
    const Failing f("typical:prefill/n1_t70_h2_hv4_k32_v24/fp32/h0:1", fault, Form::chunkwise, FaultScalar::fp32);
    const Identification id = identify(f.input());
    INFO(fault << ": " << sentence(id));
    if (std::string_view(fault) == "none") {       // rounding alone resembles nothing
      CHECK(named(id).empty());
      CHECK(sentence(id).find("nothing known") == 0);
      continue;
    }
    REQUIRE_FALSE(named(id).empty());
    CHECK(named(id)[0].name == fault);
    CHECK(id.ranked[0].z > id.ranked[0].limit);
    CHECK(judge_results(f.g, f.c, f.session->info(), f.executions).resembles.find(fault) == 0);
    // What is not in the bank is not known: the same with the fault left out.
    CHECK(named(id, fault).empty());
    CHECK(sentence(id, fault).find("nothing known") == 0);
  }
}

TEST_CASE("a fault below the bound is told from rounding by its pattern alone") {
  const Failing f("random_tokens:prefill/n1_t96_h1_hv2_k64_v64/bf16/h0:1", "gate_in_bf16", Form::recurrent, FaultScalar::bf16);
  const Identification id = identify(f.input());
  INFO(sentence(id));
  REQUIRE_FALSE(named(id).empty());
  CHECK(named(id)[0].name == "gate_in_bf16");
}

TEST_CASE("identification says how much its evidence is worth") {
  const char* const typical = "typical:prefill/n1_t21_h2_hv4_k64_v32/fp32/h0:1";
  const Failing nan(typical, "one_element_nan", Form::recurrent, FaultScalar::fp32);
  const Identification of_nan = identify(nan.input());
  INFO(sentence(of_nan));
  CHECK(of_nan.evidence == Evidence::missing_numbers);
  CHECK(of_nan.elements == 1);
  CHECK(sentence(of_nan).find("one element, which other slips leave as well") != std::string::npos);
  // A value that is not there and one that is no number are in the same place.
  CHECK(sentence(of_nan).find("this case does not tell it from one_element_unwritten") != std::string::npos);
  const Failing memory(typical, "writes_past_the_end", Form::recurrent, FaultScalar::fp32);
  CHECK(sentence(identify(memory.input())).find("writes_past_the_end: ") == 0);
  // Scales are wrong by a factor, and a factor is all that shows; the right one comes first.
  const Failing scale("typical:prefill/n1_t3_h1_hv1_k16_v16/fp32/h0:1", "scale_missing", Form::recurrent, FaultScalar::fp32);
  CHECK(named(identify(scale.input()))[0].name == "scale_missing");
}

TEST_CASE("faults are named by what they do to memory, to the last bit, and to rounding") {
  const struct { const char *case_id, *fault; Form form; FaultScalar scalar; Evidence evidence; } seen[] = {
      // Strides and alignment show in calls on memory alone.
      {"layouts:prefill/n1_t20_h1_hv2_k32_v16/bf16/h0,strided:1", "key_strides_of_query", Form::recurrent, FaultScalar::fp32, Evidence::missing_numbers},
      {"sizes:prefill/n1_t9_h1_hv2_k60_v24/bf16/h0,scale=0x1p-2:1", "vector_loads_aligned_down", Form::recurrent, FaultScalar::bf16, Evidence::missing_numbers},
      {"layouts:prefill/n1_t20_h1_hv2_k32_v16/bf16/h0,strided:1", "writes_past_the_end", Form::recurrent, FaultScalar::bf16, Evidence::violations},
      // Deviations far below a unit in the last place of the output turn some of its roundings over.
      {"inverse_steps:prefill/n1_t10_h2_hv2_k8_v8/bf16/h0:1", "query_normalised_again", Form::recurrent, FaultScalar::bf16, Evidence::values},
      {"raw_gates:prefill/n1_t36_h2_hv4_k32_v32/bf16/h0,raw:1", "output_through_fp16", Form::recurrent, FaultScalar::bf16, Evidence::values},
      // Signs are chance.
      {"relation_algebra:prefill/n1_t70_h1_hv2_k64_v32/bf16/h0:1", "inverse_by_doubling", Form::chunkwise, FaultScalar::fp32, Evidence::sizes},
      // Single precision ends before double does.
      {"values:prefill/n1_t35_h1_hv4_k32_v32/fp32/h0,state=bf16:1", "linear_gate_taken_as_log", Form::recurrent, FaultScalar::fp32, Evidence::missing_numbers},
      // A first call finds snapshots that nobody wrote; a pool keeps what is not written.
      {"verify_gate_edges:verify/n2_t9_h1_hv2_k8_v8/bf16/h0,slots=3,draft=4:1", "accepted_count_ignored", Form::recurrent, FaultScalar::fp32, Evidence::missing_numbers},
      {"verify_reflections:verify/n2_t9_h1_hv2_k8_v8/bf16/h0,slots=3,draft=4:1", "final_state_kept_from_first_call", Form::recurrent, FaultScalar::fp32, Evidence::values},
      // A run that has no truth shows where there are no numbers.
      {"relation_repeat:prefill/n1_t70_h1_hv2_k64_v32/bf16/h0:1", "offsets_cached_in_plan", Form::chunkwise, FaultScalar::fp32, Evidence::missing_numbers},
      // Rounding of outputs that every correct kernel shows is no evidence: here only two runs disagree.
      {"inverse_steps:prefill/n1_t10_h2_hv2_k8_v8/bf16/h0:1", "repeat_differs", Form::recurrent, FaultScalar::bf16, Evidence::relations},
      {"packed_sequences:prefill/n4_t33+0+1+40_h1_hv2_k64_v32/bf16/h0:1", "summation_order_by_batch", Form::recurrent, FaultScalar::fp32, Evidence::relations},
  };
  for (const auto& x : seen) {
    const Failing f(x.case_id, x.fault, x.form, x.scalar);
    const Identification id = identify(f.input());
    INFO(x.fault << ": " << sentence(id));
    const std::vector<Resemblance> names = named(id);
    CHECK(std::any_of(names.begin(), names.end(), [&](const Resemblance& r) { return r.name == x.fault; }));
    CHECK(id.evidence == x.evidence);
  }
}

TEST_CASE("power measures identification, and parts are put together") {
  PowerOptions o;
  o.case_ids = {"typical:prefill/n1_t21_h2_hv4_k64_v32/fp32/h0:1", "chunk_boundary:prefill/n1_t65_h1_hv2_k64_v64/bf16/h0:1"};
  o.faults = {"gate-shifted", "scale-wrong"};
  o.full = o.identify = true;
  o.measure_survivors = false;
  const PowerResult whole = measure_power(o);
  PowerResult parts;
  for (std::size_t i = 0; i < 2; ++i) {
    o.shard = i;
    o.shards = 2;
    add_power_json(parts, power_json(measure_power(o)));
  }
  CHECK(parts.killed() == whole.killed());
  for (std::size_t f = 0; f < whole.faults.size(); ++f) {
    INFO(whole.faults[f].fault->name);
    CHECK(parts.faults[f].compared() == whole.faults[f].compared());
    CHECK(parts.faults[f].named() == whole.faults[f].named());
    if (whole.faults[f].killed()) CHECK(whole.faults[f].named() == whole.faults[f].compared());
  }
  CHECK(naming_table(parts) == naming_table(whole));
  CHECK(family_table(parts) == family_table(whole));
  CHECK(power_page(whole).find("gate_shifted_by_one") != std::string::npos);
  CHECK_THROWS_AS(add_power_json(parts, "{}"), std::invalid_argument);
}

TEST_CASE("level smoke is what its file says") {
  std::map<std::string, std::set<std::string>> by_family;
  for (const CaseId& id : cases_of(Level::smoke, 1)) by_family[id.family].insert(to_string(id.problem));
  std::ifstream file(GDN_SOURCE_DIR "/suites/smoke.txt");
  REQUIRE(file);
  std::map<std::string, std::set<std::string>> chosen;
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line[0] == '#') continue;
    const auto space = line.find(' ');
    chosen[line.substr(0, space)].insert(line.substr(space + 1));
  }
  for (const auto& [family, problems] : chosen) {
    INFO(family);
    REQUIRE(find_family(family) != nullptr);
    for (const std::string& p : problems) CHECK(by_family[family].count(p) == 1);
  }
  for (const CaseId& id : own_cases_of(Level::smoke)) CHECK(by_family[id.family].count(to_string(id.problem)) == 1);
  std::set<std::string> ci;                        // a level holds those below
  for (const CaseId& id : cases_of(Level::ci, 1)) ci.insert(id.family + ":" + to_string(id.problem));
  for (const auto& [family, problems] : by_family)
    for (const std::string& p : problems) {
      INFO(family << ":" << p);
      CHECK(ci.count(family + ":" + p) == 1);
    }
}

// That nobody else who is asked of the same kernel does is proven by `gdn-cts power --level ci --losses`: minutes.
TEST_CASE("every family catches the fault that it states as its own") {
  for (const Family* f : families()) {
    PowerOptions o;
    o.families = {f->name()};
    o.faults = {f->own_fault()};
    o.losses = true;                               // no further than the first kill of each operation
    o.measure_survivors = false;
    const PowerResult r = measure_power(o);
    INFO(f->name() << " " << f->own_fault());
    CHECK(r.killed() == 1);
    CHECK(r.alarms.empty());
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
