// Check `relations`: the metamorphic relations of the case, run against run, compared as numbers.
// Which relations a kernel is held to follows from what it declares; bit relations hold for every deterministic kernel.
#include <cmath>
#include <limits>
#include <set>

#include "suites/spread.h"
#include "suites/standing.h"

namespace gdn {
namespace {

struct Relations final : Check {
  std::string name() const override { return "relations"; }
  int order() const override { return 40; }
  std::string clause() const override { return "5.4"; }
  std::string rationale() const override {
    return "Relations between runs (section 6) need no reference and no tolerance: a permuted, split, scaled or extended problem "
           "must return the same numbers, moved or scaled accordingly.";
  }
  CheckResult run(const CheckInput& in) const override {
    CheckResult r;
    r.check = name();
    r.clause = clause();
    std::int64_t applied = 0, undeclared = 0;
    std::vector<TensorSet> results;
    if (!in.relations.empty())
      for (const Execution& e : in.executions) results.push_back(e.outputs);
    for (const Relation& relation : in.relations) {
      if (!held_to(relation, in)) {
        ++undeclared;
        continue;
      }
      ++applied;
      compare(in, relation, results, r);
    }
    r.metrics["relations"] = static_cast<double>(applied);
    r.metrics["relations_not_declared"] = static_cast<double>(undeclared);
    if (applied == 0) r.status = CheckStatus::not_applicable;
    return r;
  }

 private:
  static void compare(const CheckInput& in, const Relation& relation, const std::vector<TensorSet>& results, CheckResult& r) {
    const TensorSet expected = relation.expected(results);
    const Run& run = in.golden.the_case.runs.at(relation.rhs);
    const Standings& standing = in.standings.of_run(relation.rhs);
    std::int64_t failing = 0;
    std::string tensor_of_first;
    std::vector<std::int64_t> elements;            // that differ in that tensor
    for (const auto& [tensor, want] : expected) {
      const auto it = results.at(relation.rhs).find(tensor);
      if (it == results[relation.rhs].end() || it->second.shape != want.shape) {
        ++r.failing;
        set_failed(r, relation, "run '" + run.name + "' has no " + tensor + " of shape " + shape_text(want.shape));
        continue;
      }
      const Tensor& got = it->second;
      std::set<std::int64_t> skip;
      if (const auto s = relation.skip.find(tensor); s != relation.skip.end()) skip.insert(s->second.begin(), s->second.end());
      const std::vector<Standing>& judged = standing.of(tensor);
      for (std::int64_t e = 0, n = got.size(); e < n; ++e) {
        // What a relation compares it names itself; a non-finite input's reach is part of rows 17 and 19.
        if (judged[static_cast<std::size_t>(e)] != Standing::judged || (!skip.empty() && skip.count(e))) continue;
        ++r.judged;
        const double a = got.at(e), b = want.at(e);
        if (a == b || (std::isnan(a) && std::isnan(b))) continue;
        ++failing;
        if (elements.empty()) tensor_of_first = tensor;
        if (tensor == tensor_of_first) elements.push_back(e);
      }
    }
    if (failing == 0) return;
    r.failing += failing;
    const bool fresh = !r.worst;
    const std::int64_t first = elements[0];
    const Location l = locate(run, relation.rhs, tensor_of_first, first, std::max(in.kernel.contract.chunk, 1));
    set_failed(r, relation, std::to_string(failing) + " elements differ, the first: " + tensor_of_first + ", " + to_string(l));
    if (!fresh) return;
    r.spread = tensor_of_first + " of run " + run.name + ": " + spread(run.problem, tensor_of_first, elements, in.kernel.contract.chunk);
    const Tensor& want = expected.find(tensor_of_first)->second;
    Finding f = finding(in, relation.rhs, tensor_of_first, first, 0);
    f.expected_hi = want.at(first);
    f.expected_lo = 0;
    f.radius = 0;
    f.expected_bits = want.bits(first);
    f.error_ulp = std::fabs(f.got - f.expected_hi) / ulp_at(f.expected_hi, format_of(want.dtype));
    f.ratio = std::numeric_limits<double>::infinity();
    f.detail = relation.statement;
    r.worst = f;
    if (tensor_of_first == "o") r.first = l;
  }

  static void set_failed(CheckResult& r, const Relation& relation, const std::string& what) {
    r.status = CheckStatus::failed;
    if (r.message.empty()) r.message = "relation " + std::to_string(relation.row) + " (" + relation.statement + "): " + what;
  }
};

const Relations check;
const RegisterCheck registered(&check);

}  // namespace
}  // namespace gdn
