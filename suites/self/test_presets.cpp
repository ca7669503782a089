// A correct kernel of every precision contract passes every family: the contract carried out by reference/simulate.h takes
// the kernel's place. Exists because a family that fails or mistrusts a correct kernel is worse than one that is missing, and
// the kernels at hand declare only a few contracts.
#include <cstdlib>

#include "reference/parallel.h"
#include "reference/recurrence.h"
#include "suites/runner.h"
#include "suites/self/catch.h"
#include "suites/simulated.h"

using namespace gdn;

namespace {

// All presets, and chunk sizes, solves and gate sums that no preset has.
std::vector<std::string> contracts() {
  std::vector<std::string> list = contract_presets();
  for (const char* more : {"fp32-chunk;gate_sum=prefix_seq;g_min=-10000", "bf16-chunk;gate_sum=prefix_tree;g_min=-10000;chunk=32",
                           "bf16-io-chunk;chunk=128;vectors=residual;cadence=call"})
    list.push_back(more);
  return list;
}

// Lines of what did not pass.
std::string failures(Level level, std::uint64_t seed, const std::vector<std::string>& only) {
  std::string text;
  for (const CaseId& id : cases_of(level, seed, only)) {
    const Case c = make_case(id);
    bool known = true;
    for (const Run& r : c.runs)
      known = known && (r.problem.operation == Operation::prefill || r.problem.operation == Operation::stages || r.problem.pool() || r.problem.layer()) && !gate_per_key_channel(r.problem.rule) && !r.refuse;
    if (!known) continue;
    const Golden g = make_golden(c);
    const auto presets = contracts();
    std::vector<std::string> lines(presets.size());
    parallel_for(static_cast<std::int64_t>(presets.size()), [&](std::int64_t at) {
      const auto i = static_cast<std::size_t>(at);
      KernelInfo info;
      info.name = info.how = presets[i];
      info.contract = parse_contract(presets[i]);
      info.properties.shape_invariant = true;
      if (c.problem.operation == Operation::stages && info.contract.form == Form::recurrent) return;
      if (c.problem.layer() && info.contract.accumulator == Accumulator::fp64) return;   // operands of the rule pass through fp32 there
      bool below = false;                          // its gate sums hold no gates so small
      std::vector<Execution> executions;
      for (const Run& run : c.runs) {
        below = below || (info.contract.g_min < 0 && run.problem.operation != Operation::stages && unsupported_reason({}, info.contract, run).find("g=") == 0);
        if (!below) executions.push_back(carry_out(info.contract, run));
      }
      if (below) return;
      const Record r = judge_results(g, c, info, executions, {false, {}});
      if (r.verdict != "PASSED") lines[i] = presets[i] + " " + case_id(c) + " " + r.verdict + ": " + r.reason + "\n";
    });
    for (const std::string& line : lines) text += line;
  }
  return text;
}

}  // namespace

TEST_CASE("a correct kernel of every preset passes every family") { CHECK(failures(Level::smoke, 1, {}) == ""); }

// By hand: GDN_FAMILIES=keys,values GDN_SEED=3 test_presets '[ci]'
TEST_CASE("the same at level ci", "[.][ci]") {
  const char *families = std::getenv("GDN_FAMILIES"), *seed = std::getenv("GDN_SEED");
  std::vector<std::string> only;
  for (std::string rest = families ? families : ""; !rest.empty();) {
    const auto comma = rest.find(',');
    only.push_back(rest.substr(0, comma));
    rest = comma == std::string::npos ? "" : rest.substr(comma + 1);
  }
  CHECK(failures(Level::ci, seed ? std::strtoull(seed, nullptr, 10) : 1, only) == "");
}
