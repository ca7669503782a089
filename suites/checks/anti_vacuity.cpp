// Check `anti_vacuity`: could this case have seen a fault at all?
// A suite passes everything when its inputs forget, its truth is zero or its tolerance exceeds the signal; such a
// case is MISTRUSTED, which is not a pass.
#include <algorithm>
#include <cmath>
#include <map>

#include "reference/stages.h"
#include "reference/strand.h"
#include "suites/exact_stage.h"
#include "suites/signal.h"
#include "suites/standing.h"

namespace gdn {
namespace {

struct AntiVacuity final : Check {
  std::string name() const override { return "anti_vacuity"; }
  int order() const override { return 20; }
  std::string clause() const override { return "5.2"; }
  std::string rationale() const override {
    return "The truth must not be mostly zeros, the final state must depend on what came before its last half, and where no relation "
           "applies the bound must be smaller than the signal somewhere in at least half of the rows of some output (a row: the V "
           "channels of one token and head, or of one state row; what a fault changes, it changes in rows). Else the case is MISTRUSTED.";
  }
  CheckResult run(const CheckInput& in) const override {
    CheckResult r;
    r.check = name();
    r.clause = clause();
    std::int64_t zeros = 0, elements = 0, vacuous = 0;
    struct Rows { std::int64_t all = 0, blind = 0; };
    std::map<std::string, Rows> rows;              // per output
    // Relations and exact values decide without a bound, on inputs that may well be zeros or forget by design; so does
    // the size of errors where it is known.
    const bool related = any_relation(in) || in.certificates.any() || exact_stages(in), sized = no_statistics(in).empty() || no_layer_statistics(in).empty();
    bool states = false, dependent = false, truth = false;
    for (std::size_t i = 0; i < in.golden.the_case.runs.size(); ++i) {
      const Run& run = in.golden.the_case.runs[i];
      if (!run.truth) continue;
      truth = true;
      if (i >= in.golden.truths.size()) continue;
      const Standings& standings = in.standings.of_run(i);
      for (const char* tensor : output_names(run.problem)) {
        const auto it = in.golden.truths[i].find(std::string_view(tensor));
        if (it == in.golden.truths[i].end()) continue;
        const std::vector<Standing>& standing = standings.of(tensor);
        const std::vector<double>* bound = related ? nullptr : &in.bounds.of_run(i).of(tensor);
        const Signal signal(it->second, std::string_view(tensor) == "y");
        const auto size = static_cast<std::int64_t>(it->second.hi.size()), width = it->second.shape.empty() ? 1 : it->second.shape.back();
        for (std::int64_t row = 0; row < size; row += width) {
          std::int64_t judged = 0, beyond = 0;
          for (std::int64_t e = row; e < row + width; ++e) {
            if (standing[static_cast<std::size_t>(e)] != Standing::judged) continue;
            if (run.problem.operation == Operation::stages && by_definition(run.problem, tensor, e)) continue;
            ++judged;
            zeros += it->second.hi[static_cast<std::size_t>(e)] == 0;
            beyond += bound && !((*bound)[static_cast<std::size_t>(e)] <= signal.at(e));
          }
          elements += judged;
          vacuous += beyond;
          rows[tensor].all += judged > 0;
          rows[tensor].blind += judged > 0 && beyond == judged;
        }
      }
      prefix(run, states, dependent);
    }
    r.judged = elements;
    r.vacuous = vacuous;
    r.metrics["zero_share"] = elements ? static_cast<double>(zeros) / static_cast<double>(elements) : 0;
    auto mistrust = [&](const std::string& why) {
      r.status = CheckStatus::mistrusted;
      if (!r.message.empty()) r.message += "; ";
      r.message += why;
    };
    if (!truth && !related) mistrust("no run has a truth and no relation is judged");
    if (truth && elements == 0) mistrust("no element can be judged");
    if (!related && 2 * zeros > elements)
      mistrust(std::to_string(zeros) + " of " + std::to_string(elements) + " expected values are zero");
    if (!related && states && !dependent) mistrust("no final state depends on the first half of its tokens or on h0");
    bool seen = false;
    std::string blind;
    for (const auto& [tensor, of] : rows) {
      if (of.all == 0) continue;
      seen = seen || 2 * of.blind <= of.all;
      blind += (blind.empty() ? "" : ", ") + std::to_string(of.blind) + " of " + std::to_string(of.all) + " rows of " + tensor;
    }
    if (!seen && !blind.empty() && !sized) mistrust("the bound of " + to_string(in.kernel.contract) + " exceeds the signal all over " + blind);
    return r;
  }

 private:
  static bool exact_stages(const CheckInput& in) {
    for (std::size_t i = 0; i < in.golden.the_case.runs.size(); ++i)
      if (const Run& run = in.golden.the_case.runs[i]; run.truth && run.problem.operation == Operation::stages)
        for (const auto& [tensor, certified] : exact_stage(in.bounds.contract(i), run))
          if (std::find(certified.begin(), certified.end(), 1) != certified.end()) return true;
    return false;
  }
  // Does the final state of any head still hold more than 2^-24 of what it held half-way?
  static void prefix(const Run& run, bool& states, bool& dependent) {
    const Problem& p = run.problem;
    if (!p.final_state || p.gate_width() > 1 || own_tensors(p)) return;
    const auto g = run.inputs.find("g");
    for (const Strand& s : strands(run)) {
      const std::size_t length = s.rows.size();
      if (length < 2 && (!p.initial_state || s.idle)) continue;
      states = true;
      for (std::int64_t h = 0; h < p.value_heads; ++h) {
        double sum = 0;
        if (p.raw) {
          const std::vector<double> raw = head_inputs(run, s, h).raw_g;
          for (std::size_t t = length / 2; t < length; ++t) sum += raw[t];
        } else if (g != run.inputs.end())
          for (std::size_t t = length / 2; t < length; ++t) sum += g->second.at(s.rows[t] * p.value_heads + h);
        dependent = dependent || sum > -16.6;
      }
    }
  }
};

const AntiVacuity check;
const RegisterCheck registered(&check);

}  // namespace
}  // namespace gdn
