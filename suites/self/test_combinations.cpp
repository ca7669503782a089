// The family `combinations` covers what it says: all pairs of options within every block, and a fault that needs a combination fails.
// Exists because a breaker planted forty faults, each on one combination of options, that every other family let through.
#include <algorithm>
#include <cstdlib>
#include <functional>
#include <map>

#include "suites/families/combinations.h"
#include "suites/features.h"
#include "suites/runner.h"
#include "suites/self/catch.h"

using namespace gdn;
namespace cb = gdn::combinations;
using I = std::int64_t;

TEST_CASE("all pairs of options are covered, for every seed") {
  for (const std::uint64_t seed : {1, 2, 77}) {
    std::string text;
    for (const cb::Part part : cb::kParts) {
      std::vector<covering::Row> rows;
      for (const CaseId& id : cases_of(Level::ci, seed, {cb::family_name(part)})) rows.push_back(cb::levels_of(id.problem));
      std::size_t cases = 0;
      for (const covering::Block& block : cb::blocks(part, Level::ci)) {
        const auto cost = [&](const covering::Row& r) { return cb::cost(part, r); };
        const covering::Tally pairs = covering::tally(cb::axes(), block, cost, rows, 2), triples = covering::tally(cb::axes(), block, cost, rows, 3);
        INFO("seed " << seed << ", " << block.name << ": " << pairs.missing << " is not covered");
        CHECK(pairs.shown == pairs.asked);
        CHECK(pairs.asked > 20);
        CHECK(2 * triples.shown > triples.asked);
        const auto n = std::count_if(rows.begin(), rows.end(), [&](const covering::Row& r) { return block.holds(r); });
        cases += static_cast<std::size_t>(n);
        text += block.name + ": " + std::to_string(n) + " cases, " + std::to_string(pairs.shown) + " of " + std::to_string(pairs.asked) + " pairs, " + std::to_string(triples.shown) +
                " of " + std::to_string(triples.asked) + " triples\n";
      }
      CHECK(cases > 0);
    }
    if (seed == 1) WARN(text);
  }
}

TEST_CASE("a level that is missing is noticed") {
  const cb::Part part = cb::Part::prefill;
  const auto cost = [&](const covering::Row& r) { return cb::cost(part, r); };
  std::vector<covering::Row> rows;
  for (const CaseId& id : cases_of(Level::ci, 1, {cb::family_name(part)}))
    if (id.problem.key_dim != 128 || id.problem.initial_state) rows.push_back(cb::levels_of(id.problem));
  std::size_t lost = 0;
  for (const covering::Block& block : cb::blocks(part, Level::ci)) {
    const covering::Tally t = covering::tally(cb::axes(), block, cost, rows, 2);
    lost += t.asked - t.shown;
  }
  CHECK(lost > 0);
}

namespace {

// A fault that shows at some tokens of some problems only. Sequence and token count from 0; of a pool n is the row of the batch.
struct Trigger {
  const char* name;
  std::function<bool(const Problem&)> when;
  std::function<bool(const Problem&, I n, I t)> at;
};

bool short_type(DType t) { return size_of(t) == 2; }
bool everywhere(const Problem&, I, I) { return true; }
auto token(I wanted) {
  return [wanted](const Problem&, I, I t) { return t == wanted; };
}
auto past(I last) {
  return [last](const Problem&, I, I t) { return t > last; };
}

// What the breaker planted. All of it passed level ci of every other family.
std::vector<Trigger> planted() {
  using P = const Problem&;
  const auto prefill = [](P p) { return p.operation == Operation::prefill; };
  const auto plain = [=](P p) { return prefill(p) && !p.raw && p.rule == Rule::gated_delta; };
  const auto many = [=](P p) { return prefill(p) && p.sequences() > 1; };
  const auto delta = [=](P p) { return prefill(p) && p.rule == Rule::delta; };
  const auto raw = [=](P p) { return prefill(p) && p.raw; };
  const auto strided = [=](P p) { return prefill(p) && p.strided; };
  std::vector<Trigger> list{
      {"K=128 past token 640", [=](P p) { return plain(p) && p.key_dim == 128; }, past(640)},
      {"K=64 past token 1024", [=](P p) { return plain(p) && p.key_dim == 64; }, past(1024)},
      {"any past token 4352", plain, past(4352)},
      {"HV>32", [=](P p) { return plain(p) && p.value_heads > 32; }, everywhere},
      {"HV/H>=3 at token 256", [=](P p) { return plain(p) && p.value_heads >= 3 * p.heads; }, token(256)},
      {"no h0 with K=128 at token 64", [=](P p) { return plain(p) && !p.initial_state && p.key_dim == 128; }, token(64)},
      {"no h0 with K=128 at token 258", [=](P p) { return plain(p) && !p.initial_state && p.key_dim == 128; }, token(258)},
      {"fp16 with K>64", [=](P p) { return plain(p) && p.io == DType::f16 && p.key_dim > 64; }, everywhere},
      {"fp16 with V>K", [=](P p) { return plain(p) && p.io == DType::f16 && p.value_dim > p.key_dim; }, everywhere},
      {"N>1 at token 192", many, token(192)},
      {"N>1 with K=128 past token 66", [=](P p) { return many(p) && p.key_dim == 128; }, past(66)},
      {"N>8 with K>=96", [=](P p) { return many(p) && p.sequences() > 8 && p.key_dim >= 96; }, everywhere},
      {"sequence 8 on with K>=96 in bf16", [=](P p) { return many(p) && p.io == DType::bf16 && p.key_dim >= 96; }, [](P, I n, I) { return n >= 8; }},
      {"N>1, packed row 1000 on", many, [](P p, I n, I t) { return p.offsets()[static_cast<std::size_t>(n)] + t >= 1000; }},
      {"N>1, h0 without ht", [=](P p) { return many(p) && p.initial_state && !p.final_state; }, everywhere},
      {"N>70 with K=64", [=](P p) { return many(p) && p.sequences() > 70 && p.key_dim == 64; }, everywhere},
      {"sequence 600 on", many, [](P, I n, I) { return n >= 600; }},
      {"16-bit state with K>=96", [=](P p) { return plain(p) && short_type(p.state) && p.key_dim >= 96; }, everywhere},
      {"16-bit gate at token 128", [=](P p) { return plain(p) && short_type(p.gate); }, token(128)},
      {"V>=256 at token 64", [=](P p) { return plain(p) && p.value_dim >= 256; }, token(64)},
      {"N>1 with V>128", [=](P p) { return many(p) && p.value_dim > 128; }, everywhere},
      {"strided with int32 offsets and N>1", [=](P p) { return strided(p) && p.short_offsets && p.sequences() > 1; }, everywhere},
      {"strided fp16", [=](P p) { return strided(p) && p.io == DType::f16; }, everywhere},
      {"strided with 16-bit state", [=](P p) { return strided(p) && short_type(p.state); }, everywhere},
      {"strided, N>2", [=](P p) { return strided(p) && p.sequences() > 2; }, everywhere},
      {"strided past token 70", strided, past(70)},
      {"int32 offsets with K=128", [=](P p) { return prefill(p) && p.short_offsets && p.key_dim == 128; }, everywhere},
      {"delta with V!=K", [=](P p) { return delta(p) && p.value_dim != p.key_dim; }, everywhere},
      {"delta past token 130", delta, past(130)},
      {"delta, N>1 with K=64", [=](P p) { return delta(p) && p.sequences() > 1 && p.key_dim == 64; }, everywhere},
      {"delta fp16", [=](P p) { return delta(p) && p.io == DType::f16; }, everywhere},
      {"delta with 16-bit state", [=](P p) { return delta(p) && short_type(p.state); }, everywhere},
      {"delta strided", [=](P p) { return delta(p) && p.strided; }, everywhere},
      {"raw, N>1 with K=64", [=](P p) { return raw(p) && p.sequences() > 1 && p.key_dim == 64; }, everywhere},
      {"raw fp16", [=](P p) { return raw(p) && p.io == DType::f16; }, everywhere},
      {"raw with 16-bit state", [=](P p) { return raw(p) && short_type(p.state); }, everywhere},
      {"raw strided", [=](P p) { return raw(p) && p.strided; }, everywhere},
      {"raw past token 200", raw, past(200)},
      {"more than 9 drafts", [](P p) { return p.operation == Operation::verify; }, [](P p, I, I t) { return t % p.draft > 9; }},
  };
  for (const Operation op : {Operation::decode, Operation::verify}) {
    const auto of = [=](P p) { return p.operation == op; };
    const bool v = op == Operation::verify;
    list.push_back({v ? "verify on a 16-bit pool with K=128" : "decode on a 16-bit pool with K=128", [=](P p) { return of(p) && short_type(p.state) && p.key_dim == 128; }, everywhere});
    list.push_back({v ? "verify fp16 with K=64" : "decode fp16 with K=64", [=](P p) { return of(p) && p.io == DType::f16 && p.key_dim == 64; }, everywhere});
    list.push_back({v ? "verify with more than 24 slots" : "decode with more than 24 slots", [=](P p) { return of(p) && p.slots > 24; }, everywhere});
    list.push_back({v ? "verify, row 11 on" : "decode, row 11 on", of, [](P, I n, I) { return n >= 11; }});
    list.push_back({v ? "verify strided with K=128" : "decode strided with K=128", [=](P p) { return of(p) && p.strided && p.key_dim == 128; }, everywhere});
  }
  return list;
}

// What goes wrong at a token: the kernel is given other inputs there, which makes a faulty one of every kernel and contract.
enum class Slip { write_skipped, decay_ignored, query_negated };

// False where the slip changes nothing.
bool spoil(Run& run, const Trigger& trigger, Slip slip) {
  const Problem& p = run.problem;
  const char* const name = slip == Slip::query_negated ? "q" : slip == Slip::write_skipped ? (run.inputs.count("beta") ? "beta" : "v") : p.raw ? "a" : "g";
  const auto x = run.inputs.find(std::string_view(name));
  if (x == run.inputs.end()) return false;
  const I width = x->second.size() / (p.tokens() + p.padding);
  bool changed = false;
  for (std::size_t n = 0; n < p.lengths.size(); ++n)
    for (I t = 0; t < p.lengths[n]; ++t) {
      if (!trigger.at(p, static_cast<I>(n), t)) continue;
      changed = true;
      for (I e = (p.offsets()[n] + t) * width; e < (p.offsets()[n] + t + 1) * width; ++e)
        x->second.set(e, slip == Slip::query_negated ? -x->second.at(e) : slip == Slip::decay_ignored && p.raw ? -200 : 0);
    }
  return changed;
}

struct Asked { Case c; Golden g; };

// Whether some case of level ci fails for a kernel with the slip at the trigger, by name of the case; the smallest cases first.
std::string killed(const Trigger& trigger, Slip slip, const std::vector<CaseId>& ids, std::map<std::string, Asked>& made, KernelSession& kernel, int most) {
  for (const CaseId& id : ids) {
    if (!trigger.when(id.problem) || most == 0) continue;
    const std::string text = id.family + ":" + to_string(id.problem);
    bool any = false;
    for (std::size_t n = 0; n < id.problem.lengths.size(); ++n)
      for (I t = 0; t < id.problem.lengths[n] && !any; ++t) any = trigger.at(id.problem, static_cast<I>(n), t);
    if (!any) continue;
    auto at = made.find(text);
    if (at == made.end()) {
      Case c = make_case(id);
      Golden g = make_golden(c);
      at = made.emplace(text, Asked{std::move(c), std::move(g)}).first;
    }
    const Asked& a = at->second;
    std::vector<Execution> executions;
    for (Run run : a.c.runs)
      if (spoil(run, trigger, slip) && unsupported_reason(kernel.info().capabilities, kernel.info().contract, run).empty()) executions.push_back(kernel.run(run, text));
    if (executions.size() != a.c.runs.size()) continue;
    for (Execution& e : executions) e.violations.clear();
    --most;
    const Record r = judge_results(a.g, a.c, kernel.info(), executions, {false, {}});
    if (r.verdict == "FAILED") return text;
  }
  return {};
}

std::vector<CaseId> all_cases(std::uint64_t seed) {
  std::vector<std::string> names;
  for (const cb::Part part : cb::kParts) names.push_back(cb::family_name(part));
  std::vector<CaseId> ids = cases_of(Level::ci, seed, names);
  const auto size = [](const CaseId& id) { return id.problem.token_heads() + static_cast<double>(id.problem.states() * id.problem.value_heads * id.problem.key_dim * id.problem.value_dim) / 4096; };
  std::stable_sort(ids.begin(), ids.end(), [&](const CaseId& a, const CaseId& b) { return size(a) < size(b); });
  return ids;
}

}  // namespace

TEST_CASE("every planted combination is met, whatever the seed") {
  for (const std::uint64_t seed : {1, 2, 3, 4}) {
    const std::vector<CaseId> ids = all_cases(seed);
    for (const Trigger& trigger : planted()) {
      INFO("seed " << seed << ": " << trigger.name);
      CHECK(std::any_of(ids.begin(), ids.end(), [&](const CaseId& id) {
        if (!trigger.when(id.problem)) return false;
        for (std::size_t n = 0; n < id.problem.lengths.size(); ++n)
          for (I t = 0; t < id.problem.lengths[n]; ++t)
            if (trigger.at(id.problem, static_cast<I>(n), t)) return true;
        return false;
      }));
    }
  }
}

TEST_CASE("every planted combination fails") {
  const std::vector<CaseId> ids = all_cases(1);
  std::map<std::string, Asked> made;
  const auto recurrent = open_inline("cpu_recurrent_fp32", {});
  for (const Trigger& trigger : planted())
    for (const Slip slip : {Slip::write_skipped, Slip::decay_ignored, Slip::query_negated}) {
      INFO(trigger.name << ", " << (slip == Slip::write_skipped ? "write skipped" : slip == Slip::decay_ignored ? "decay ignored" : "query negated"));
      if (slip == Slip::decay_ignored && std::string_view(trigger.name).starts_with("delta")) continue;
      CHECK(killed(trigger, slip, ids, made, *recurrent, 8) != "");
    }
  WARN(made.size() << " cases");
}

TEST_CASE("a seed draws other combinations, and the same ones again") {
  const auto texts = [](std::uint64_t seed) {
    std::vector<std::string> list;
    for (const CaseId& id : cases_of(Level::ci, seed, {"combinations_packed"})) list.push_back(to_string(id.problem));
    return list;
  };
  CHECK(texts(5) == texts(5));
  CHECK(texts(5) != texts(6));
}
