// Harness faults as decorators of the checks; see harness.h.
#include "suites/harness.h"

#include <cmath>
#include <memory>

#include "suites/power.h"
#include "suites/runner.h"

namespace gdn {
namespace {

// Passes a changed view of the case to every check of the suite.
struct Seen {
  Golden golden;
  std::vector<Execution> executions;
};
using Change = void (*)(Seen& seen);

class Blinded final : public Check {
 public:
  Blinded(const Check* check, Change change) : check_(check), change_(change) {}
  std::string name() const override { return check_->name(); }
  int order() const override { return check_->order(); }
  std::string rationale() const override { return check_->rationale(); }
  std::string clause() const override { return check_->clause(); }
  CheckResult run(const CheckInput& in) const override {
    Seen seen{in.golden, in.executions};
    change_(seen);
    // Comparison with the truth is what these faults break, so it has to catch the sentinels alone.
    static const std::vector<Relation> none;
    const CheckInput changed{seen.golden, none, in.kernel, seen.executions, in.bounds};
    return check_->run(changed);
  }

 private:
  const Check* check_;
  Change change_;
};

template <class F>
void each_output(Seen& s, F f) {
  for (std::size_t i = 0; i < s.executions.size() && i < s.golden.truths.size(); ++i)
    for (auto& [name, tensor] : s.executions[i].outputs)
      if (const auto truth = s.golden.truths[i].find(name); truth != s.golden.truths[i].end()) f(tensor, truth->second);
}

// |a - b| > tolerance is false for NaN: such elements pass as if they were the truth.
void nan_passes(Seen& s) {
  for (std::size_t i = 0; i < s.executions.size(); ++i)  // runs without a truth
    if (i >= s.golden.truths.size() || s.golden.truths[i].empty())
      for (auto& [name, t] : s.executions[i].outputs)
        for (std::int64_t e = 0; e < t.size(); ++e)
          if (std::isnan(t.at(e))) t.set(e, 0);
  each_output(s, [](Tensor& t, TruthTensor& truth) {
    for (std::int64_t e = 0; e < static_cast<std::int64_t>(truth.hi.size()); ++e)
      if (std::isnan(t.at(e))) t.set(e, truth.hi[static_cast<std::size_t>(e)]);
  });
}
// The expected values are the candidate's own.
void compared_with_itself(Seen& s) {
  each_output(s, [](Tensor& t, TruthTensor& truth) {
    for (std::size_t e = 0; e < truth.hi.size(); ++e) {
      truth.hi[e] = t.at(static_cast<std::int64_t>(e));
      truth.lo[e] = 0;
    }
  });
}
void guards_off(Seen& s) {
  for (Execution& e : s.executions) e.violations.clear();
}
// Final states are not looked at.
void final_state_unchecked(Seen& s) {
  each_output(s, [](Tensor& t, TruthTensor& truth) {
    if (t.shape.size() == 4)
      for (std::int64_t e = 0; e < static_cast<std::int64_t>(truth.hi.size()); ++e) t.set(e, truth.hi[static_cast<std::size_t>(e)]);
  });
}
// Only the first token is compared.
void first_token_only(Seen& s) {
  each_output(s, [](Tensor& t, TruthTensor& truth) {
    for (std::int64_t e = t.shape[0] ? t.size() / t.shape[0] : 0; e < static_cast<std::int64_t>(truth.hi.size()); ++e)
      t.set(e, truth.hi[static_cast<std::size_t>(e)]);
  });
}
// A tolerance that an earlier, looser case left behind: half of what is expected.
void tolerance_leaks(Seen& s) {
  each_output(s, [](Tensor& t, TruthTensor& truth) {
    for (std::size_t e = 0; e < truth.hi.size(); ++e) {
      const double x = t.at(static_cast<std::int64_t>(e));
      if (std::fabs(x - truth.hi[e]) <= 0.5 * std::fabs(truth.hi[e])) t.set(static_cast<std::int64_t>(e), truth.hi[e]);
    }
  });
}
// Every result is compared with the truth of another place: a correct kernel fails.
void truth_shifted(Seen& s) {
  for (Truth& all : s.golden.truths)
    for (auto& [name, truth] : all)
      for (std::size_t e = 1; e < truth.hi.size(); ++e) truth.hi[e - 1] = truth.hi[e];
}
void unchanged(Seen&) {}

PowerOptions sentinels() {
  PowerOptions o;
  o.case_ids = {"chunk_boundary:prefill/n1_t65_h1_hv2_k64_v64/fp32/h0:1", "chunk_boundary:prefill/n1_t65_h1_hv2_k64_v64/bf16/h0:1"};
  o.faults = {"one_element_nan", "writes_past_the_end", "one_element_wrong", "chunk_end_gate_zero_in_tail", "delta_term_missing"};
  o.measure_survivors = false;
  return o;
}

std::string run_with(Change change) {
  PowerOptions o = sentinels();
  std::vector<std::unique_ptr<Blinded>> own;
  for (const Check* c : checks()) {
    own.push_back(std::make_unique<Blinded>(c, change));
    o.checks.push_back(own.back().get());
  }
  const PowerResult r = measure_power(o);
  if (!r.alarms.empty()) return "the twin fails: " + r.alarms[0].message;
  for (const FaultPower& f : r.faults)
    if (!f.killed()) return std::string("sentinel ") + f.fault->name + " lives";
  return "";
}

// A gate whose families are all lost must not pass.
std::string no_case_run() {
  const auto why = objections(GateOptions{}, KernelInfo{}, {});
  return why.empty() ? "" : "the gate refuses: " + why[0];
}

}  // namespace

std::string harness_healthy() { return run_with(unchanged); }

const std::vector<HarnessFault>& harness_faults() {
  static const std::vector<HarnessFault> all{
      {"comparison_passes_nan", "a NaN passes because it is not greater than the tolerance", [] { return run_with(nan_passes); }},
      {"tolerance_leaks", "a loose tolerance of one case stays in force for the next", [] { return run_with(tolerance_leaks); }},
      {"no_case_run", "no case is run, and that counts as success", no_case_run},
      {"candidate_compared_with_itself", "the expected values are the candidate's own results", [] { return run_with(compared_with_itself); }},
      {"guard_check_off", "writes outside the outputs are not looked for", [] { return run_with(guards_off); }},
      {"final_state_unchecked", "final states are not compared", [] { return run_with(final_state_unchecked); }},
      {"first_token_only", "only the first token is compared", [] { return run_with(first_token_only); }},
      {"truth_misaligned", "expected values stand one element beside their results", [] { return run_with(truth_shifted); }},
  };
  return all;
}

}  // namespace gdn
