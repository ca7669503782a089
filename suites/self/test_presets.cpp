// A correct kernel of every precision contract passes every family: the contract carried out by reference/simulate.h takes
// the kernel's place. Exists because a family that fails or mistrusts a correct kernel is worse than one that is missing, and
// the kernels at hand declare only a few contracts.
#include <cstdlib>

#include "reference/simulate.h"
#include "reference/strand.h"
#include "suites/runner.h"
#include "suites/self/catch.h"
#include "suites/standing.h"

using namespace gdn;

namespace {

// What a kernel that does exactly what its contract says returns.
Execution simulated(const Contract& contract, const Run& run) {
  const Problem& p = run.problem;
  const Contract narrowed = for_problem(contract, p);
  const std::int64_t HV = p.value_heads, V = p.value_dim, KV = p.key_dim * V;
  Execution e;
  for (const char* name : output_names(p)) e.outputs[name] = Tensor(name[0] == 'o' ? p.io : p.state, output_shape(p, name));
  if (p.pool()) e.outputs["ht"] = run.inputs.at("h0");   // in place
  Tensor& o = e.outputs["o"];
  for (const Strand& s : strands(run))
    for (std::int64_t h = 0; h < HV && !s.idle; ++h) {
      const HeadResult r = simulate(narrowed, head_inputs(run, s, h), SimulationMode::nearest, 1, s.cuts);
      for (std::int64_t i = s.outputs * V; i < static_cast<std::int64_t>(r.o.size()); ++i)
        o.set((s.rows[static_cast<std::size_t>(i / V)] * HV + h) * V + i % V, r.o[static_cast<std::size_t>(i)]);
      for (std::int64_t i = 0; i < KV && *s.state; ++i) e.outputs[s.state].set((s.state_row * HV + h) * KV + i, r.ht[static_cast<std::size_t>(i)]);
    }
  return e;
}

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
      known = known && (r.problem.operation == Operation::prefill || r.problem.pool()) && r.problem.rule != Rule::kda && !r.refuse;
    if (!known) continue;
    const Golden g = make_golden(c);
    std::string of_case;
    const auto presets = contracts();
#pragma omp parallel for schedule(dynamic)
    for (std::size_t i = 0; i < presets.size(); ++i) {
      KernelInfo info;
      info.name = info.how = presets[i];
      info.contract = parse_contract(presets[i]);
      info.properties.shape_invariant = true;
      bool below = false;                          // its gate sums hold no gates so small
      std::vector<Execution> executions;
      for (const Run& run : c.runs) {
        below = below || (info.contract.g_min < 0 && unsupported_reason({}, info.contract, run).find("g=") == 0);
        if (!below) executions.push_back(simulated(info.contract, run));
      }
      if (below) continue;
      const Record r = judge_results(g, c, info, executions, {false, {}});
      if (r.verdict == "PASSED") continue;
#pragma omp critical
      of_case += presets[i] + " " + case_id(c) + " " + r.verdict + ": " + r.reason + "\n";
    }
    text += of_case;
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
