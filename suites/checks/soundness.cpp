// Check `soundness`: shapes, dtypes, every element written, nothing else touched, no unexplained NaN or Inf.
// Runs first: without it the other checks would judge memory that the kernel never wrote.
#include <cmath>
#include <vector>

#include "reference/strand.h"
#include "suites/spread.h"
#include "suites/standing.h"

namespace gdn {
namespace {

struct Soundness final : Check {
  std::string name() const override { return "soundness"; }
  int order() const override { return 10; }
  std::string clause() const override { return "5.1"; }
  std::string rationale() const override {
    return "A result must have the right shape and dtype, every element must be written, guards and inputs must be intact, and a "
           "NaN or Inf is legal only where a non-finite input reaches or the exact value, widened by the bound, overflows.";
  }
  CheckResult run(const CheckInput& in) const override {
    CheckResult r;
    r.check = name();
    r.clause = clause();
    for (std::size_t i = 0; i < in.golden.the_case.runs.size(); ++i) judge(in, i, r);
    return r;
  }

 private:
  static void fail(CheckResult& r, const std::string& message) {
    r.status = CheckStatus::failed;
    if (r.message.empty()) r.message = message;
  }

  void judge(const CheckInput& in, std::size_t index, CheckResult& r) const {
    const Run& run = in.golden.the_case.runs[index];
    const Problem& p = run.problem;
    const Execution& e = in.executions[index];
    const std::string where = "run '" + run.name + "': ";
    for (const std::string& v : e.violations) {
      ++r.failing;
      fail(r, where + v);
    }
    const Standings& standing = in.standings.of_run(index);
    for (const char* tensor : output_names(p)) {
      const DType dtype = output_dtype(p, tensor);
      const std::vector<std::int64_t> want = output_shape(p, tensor);
      const auto it = e.outputs.find(std::string_view(tensor));
      if (it == e.outputs.end()) {
        ++r.failing;
        fail(r, where + tensor + " is missing");
        continue;
      }
      const Tensor& t = it->second;
      if (t.shape != want || t.dtype != dtype) {
        ++r.failing;
        fail(r, where + tensor + " is " + gdn::name(t.dtype) + shape_text(t.shape) + ", expected " + gdn::name(dtype) + shape_text(want));
        continue;
      }
      elements(in, index, tensor, t, standing.of(tensor), where, r);
      if (p.pool() && tensor[0] == 'h') idle_slots(in, index, t, where, r);
    }
  }

  // Slots of the pool that no sequence uses keep their bits.
  static void idle_slots(const CheckInput& in, std::size_t index, const Tensor& pool, const std::string& where, CheckResult& r) {
    const Run& run = in.golden.the_case.runs[index];
    const Tensor& before = run.inputs.at("h0");
    const std::int64_t width = pool.size() / run.problem.slots;
    std::int64_t changed = 0, first = -1;
    for (const Strand& s : strands(run))
      for (std::int64_t i = s.state_row * width; s.idle && i < (s.state_row + 1) * width; ++i) {
        ++r.judged;
        if (pool.bits(i) == before.bits(i)) continue;
        ++changed;
        if (first < 0) first = i;
      }
    if (changed == 0) return;
    const Location l = locate(run, index, "ht", first, std::max(in.kernel.contract.chunk, 1));
    r.failing += changed;
    fail(r, where + std::to_string(changed) + " elements of the pool changed in slots that no sequence uses, the first at " + to_string(l));
  }

  void elements(const CheckInput& in, std::size_t index, const std::string& tensor, const Tensor& t, const std::vector<Standing>& standing,
                const std::string& where, CheckResult& r) const {
    const std::uint64_t poison = poison_bits(t.dtype);
    const Format format = overflow_format(in, index, tensor);
    const Truth* truths = index < in.golden.truths.size() ? &in.golden.truths[index] : nullptr;
    const TruthTensor* truth = nullptr;
    if (truths)
      if (const auto it = truths->find(tensor); it != truths->end()) truth = &it->second;
    std::int64_t unwritten = 0, nonfinite = 0;
    std::vector<std::int64_t> wrong;
    for (std::int64_t i = 0, n = t.size(); i < n; ++i) {
      const Standing s = standing[static_cast<std::size_t>(i)];
      if (s == Standing::unowned) continue;
      ++r.judged;
      const bool empty = t.bits(i) == poison;
      bool bad = empty;
      if (!empty && s == Standing::judged) {
        const double x = t.at(i);
        if (!std::isfinite(x))
          bad = !truth || !overflow_allowed(x, truth->hi[static_cast<std::size_t>(i)], bound_of(in, index, tensor, i),
                                            truth->radius[static_cast<std::size_t>(i)], format);
      }
      if (!bad) continue;
      (empty ? unwritten : nonfinite)++;
      wrong.push_back(i);
    }
    if (wrong.empty()) return;
    const std::int64_t first = wrong[0];
    const Location l = locate(in.golden.the_case.runs[index], index, tensor, first, std::max(in.kernel.contract.chunk, 1));
    std::string message = where + tensor + ": ";
    if (unwritten) message += std::to_string(unwritten) + " elements never written";
    if (unwritten && nonfinite) message += ", ";
    if (nonfinite) message += std::to_string(nonfinite) + " elements NaN or Inf where the truth is finite";
    message += ", the first at " + to_string(l);
    if (r.status == CheckStatus::passed) {
      r.worst = finding(in, index, tensor, first, 0);
      r.worst->ratio = std::numeric_limits<double>::infinity();
      r.first = l;
      r.spread = tensor + " of run " + in.golden.the_case.runs[index].name + ": " +
                 spread(in.golden.the_case.runs[index].problem, tensor, wrong, in.kernel.contract.chunk);
    }
    r.failing += unwritten + nonfinite;
    fail(r, message);
  }
};

const Soundness check;
const RegisterCheck registered(&check);

}  // namespace
}  // namespace gdn
