// Check `exactness`: on inputs proven exact for the contract, the result must be the one number that is possible.
// No tolerance at all: masks, borders, tails and algebra slips show whatever their size.
#include <cmath>
#include <limits>
#include <stdexcept>

#include "reference/strand.h"
#include "suites/exact_stage.h"
#include "suites/spread.h"
#include "suites/standing.h"

namespace gdn {
namespace {

using I = std::int64_t;

struct Exactness final : Check {
  std::string name() const override { return "exactness"; }
  int order() const override { return 30; }
  std::string clause() const override { return "5.3"; }
  std::string rationale() const override {
    return "Where a tracker proves that every stored value of the contract is exact (suites/exact.h), rounding cannot be the "
           "cause of any difference: the result must equal the truth, rounded once into the output. Judged head by head.";
  }
  CheckResult run(const CheckInput& in) const override {
    CheckResult r;
    r.check = name();
    r.clause = clause();
    std::int64_t heads = 0, certified = 0;
    for (std::size_t i = 0; i < in.golden.the_case.runs.size(); ++i) {
      const Run& run = in.golden.the_case.runs[i];
      if (!run.truth) continue;
      // An epsilon beside the squared lengths that fp16 holds does not round away in double.
      if (in.kernel.convention.l2norm == L2Norm::in_kernel && run.problem.io == DType::f16) continue;
      if (run.problem.operation == Operation::stages) {
        stage(in, i, r, heads, certified);
        continue;
      }
      if (run.problem.layer()) continue;           // nothing of it is proven exact
      const Standings& standing = in.standings.of_run(i);
      const std::vector<ExactHead>& all = in.certificates.of_run(i);
      const std::vector<Strand> list = strands(run);
      const I HV = run.problem.value_heads;
      Failing failing{{"o", {}}, {"ht", {}}, {"snapshots", {}}};
      for (std::size_t h = 0; h < all.size(); ++h) {
        ++heads;
        if (!all[h].certified) continue;
        ++certified;
        judge(in, i, list[h / static_cast<std::size_t>(HV)], static_cast<I>(h) % HV, all[h], standing, r, failing);
      }
      for (const auto& [tensor, elements] : failing)
        if (r.spread.empty() && !elements.empty())
          r.spread = tensor + " of run " + run.name + ": " + spread(run.problem, tensor, elements, in.kernel.contract.chunk);
    }
    r.metrics["heads"] = static_cast<double>(heads);
    r.metrics["heads_certified"] = static_cast<double>(certified);
    if (certified == 0) r.status = CheckStatus::not_applicable;
    if (r.failing) {
      r.status = CheckStatus::failed;
      r.message = std::to_string(r.failing) + " of " + std::to_string(r.judged) + " elements differ from the only possible result, first: " +
                  r.worst->where.tensor + ", " + to_string(r.worst->where);
    }
    return r;
  }

 private:
  // Certified elements of a stage: the truth, rounded as the contract says or once into the tensor.
  static void stage(const CheckInput& in, std::size_t index, CheckResult& r, std::int64_t& tensors, std::int64_t& certified) {
    const Run& run = in.golden.the_case.runs[index];
    const Contract contract = in.bounds.contract(index);
    const Standings& standing = in.standings.of_run(index);
    for (const auto& [tensor, exact] : exact_stage(contract, run)) {
      ++tensors;
      const auto got = in.executions[index].outputs.find(tensor);
      const auto truth = in.golden.truths.at(index).find(tensor);
      if (got == in.executions[index].outputs.end() || truth == in.golden.truths.at(index).end() || got->second.shape != truth->second.shape) continue;
      const std::vector<Store> last = stage_stores(contract, run.problem, tensor);
      std::vector<I> failing;
      bool any = false;
      for (I e = 0; e < static_cast<I>(exact.size()); ++e) {
        const auto i = static_cast<std::size_t>(e);
        if (!exact[i] || standing.of(tensor)[i] != Standing::judged) continue;
        if (truth->second.radius[i] != 0 || truth->second.lo[i] != 0) throw std::logic_error("tracker and golden disagree at " + tensor + ", " + to_string(locate(run, index, tensor, e, 1)));
        any = true;
        ++r.judged;
        const double want = truth->second.hi[i], x = got->second.at(e);
        double stored = want;
        for (const Store& s : last) stored = round_to(stored, s);
        if (x == stored || x == rounded(want, 0, format_of(got->second.dtype))) continue;
        failing.push_back(e);
        if (++r.failing > 1) continue;
        r.worst = finding(in, index, tensor, e, 0);
        r.worst->ratio = std::numeric_limits<double>::infinity();
        r.worst->detail = "every stored value is exact here: no rounding can explain a difference";
        r.first = r.worst->where;
      }
      certified += any;
      if (r.spread.empty() && !failing.empty()) r.spread = tensor + " of run " + run.name + ": " + spread(run.problem, tensor, failing, 0);
    }
  }
  using Failing = std::vector<std::pair<std::string, std::vector<I>>>;   // elements of o, ht and snapshots

  static void judge(const CheckInput& in, std::size_t index, const Strand& strand, I hv, const ExactHead& exact, const Standings& standing, CheckResult& r,
                    Failing& failing) {
    const Run& run = in.golden.the_case.runs[index];
    const Problem& p = run.problem;
    const I HV = p.value_heads, V = p.value_dim, KV = p.key_dim * V;
    for (const char* tensor : {"o", strand.state}) {
      const bool state = tensor[0] != 'o';
      const auto it = in.executions[index].outputs.find(std::string_view(tensor));
      if (it == in.executions[index].outputs.end()) continue;
      const Tensor& got = it->second;
      const std::vector<double>& expected = state ? exact.expected.ht : exact.expected.o;
      const std::vector<double>& finer = state ? exact.finer.ht : exact.finer.o;
      const std::vector<double>& before = state ? exact.exact.ht : exact.exact.o;
      const std::vector<Standing>& judged = standing.of(tensor);
      const I size = got.size();
      const TruthTensor* truth = nullptr;
      if (index < in.golden.truths.size())
        if (const auto t = in.golden.truths[index].find(std::string_view(tensor)); t != in.golden.truths[index].end()) truth = &t->second;
      for (I e = state ? 0 : strand.outputs * V; e < static_cast<I>(expected.size()); ++e) {
        const I at = state ? (strand.state_row * HV + hv) * KV + e : (strand.rows[static_cast<std::size_t>(e / V)] * HV + hv) * V + e % V;
        const auto i = static_cast<std::size_t>(at);
        if (at >= size || judged[i] != Standing::judged) continue;
        const double want = expected[static_cast<std::size_t>(e)];
        if (std::isnan(want)) continue;            // the contract leaves a choice
        // The tracker and the oracle share no code; where both speak they must agree.
        if (truth && !before.empty() && !(std::fabs((before[static_cast<std::size_t>(e)] - truth->hi[i]) - truth->lo[i]) <= truth->radius[i]))
          throw std::logic_error(std::string("tracker and golden disagree at ") + tensor + ", " + to_string(locate(run, index, tensor, at, 1)));
        ++r.judged;
        // The last rounding as declared, or none but that into the tensor. False for NaN.
        const double g = got.at(at);
        if (g == want || g == rounded(finer[static_cast<std::size_t>(e)], 0, format_of(got.dtype))) continue;
        failing[!state ? 0 : tensor[0] == 'h' ? 1 : 2].second.push_back(at);
        if (++r.failing > 1) continue;
        Finding f = finding(in, index, tensor, at, 0);
        f.expected_hi = want;
        f.expected_lo = 0;
        f.radius = 0;
        f.expected_bits = encode(want, format_of(got.dtype));
        f.error_ulp = std::fabs(f.got - want) / ulp_at(want, format_of(got.dtype));
        f.ratio = std::numeric_limits<double>::infinity();
        f.detail = "every stored value is exact here: no rounding can explain a difference";
        r.worst = f;
        if (!state) r.first = f.where;
      }
    }
  }
};

const Exactness check;
const RegisterCheck registered(&check);

}  // namespace
}  // namespace gdn
