// Check `residual`: of stage inverse, |(I+L) X - I| against its own bound. The bound of X itself grows with the conditioning of L, because an
// error in one row is passed on by all later ones; what a row fails of its own equation is small in every correct kernel, and shows a row
// that went wrong however large M is.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>

#include "reference/strand.h"
#include "suites/spread.h"
#include "suites/standing.h"

namespace gdn {
namespace {

using I = std::int64_t;

struct Residual final : Check {
  std::string name() const override { return "residual"; }
  int order() const override { return 52; }
  std::string clause() const override { return "10.4"; }
  std::string rationale() const override {
    return "The bound of an inverse grows with its conditioning, for an error in one row is passed on by every later row; what a row of X fails of (I+L) X = I "
           "is small in every correct kernel. Where M is large the residual still shows a wrong row that the bound of M lets pass. Stage inverse alone.";
  }
  CheckResult run(const CheckInput& in) const override {
    CheckResult r;
    r.check = name();
    r.clause = clause();
    r.status = CheckStatus::not_applicable;
    for (std::size_t i = 0; i < in.golden.the_case.runs.size(); ++i) {
      const Run& run = in.golden.the_case.runs[i];
      const Problem& p = run.problem;
      if (!run.truth || p.operation != Operation::stages || p.stage != Stage::inverse) continue;
      const auto got = in.executions[i].outputs.find(std::string_view("M"));
      if (got == in.executions[i].outputs.end() || got->second.shape != output_shape(p, "M")) continue;   // soundness says so
      if (r.status == CheckStatus::not_applicable) r.status = CheckStatus::passed;
      judge(in, i, got->second, r);
    }
    return r;
  }

 private:
  static void judge(const CheckInput& in, std::size_t index, const Tensor& X, CheckResult& r) {
    const Run& run = in.golden.the_case.runs[index];
    const Problem& p = run.problem;
    const Tensor& L = run.inputs.at("L");
    const std::vector<double>& bound = in.bounds.of_run(index).of("residual");
    const I C = p.chunk, HV = p.value_heads;
    double worst = r.metrics["max_ratio"];
    I worst_element = -1;
    double worst_value = 0;
    std::vector<I> failing;
    for (const ChunkPlace& c : chunk_places(p))
      for (I hv = 0; hv < HV; ++hv)
        for (I i = 0; i < c.rows; ++i)
          for (I j = 0; j <= i; ++j) {
            const auto x = [&](I row) { return X.at(((c.token + row) * HV + hv) * C + j); };
            const I e = ((c.token + i) * HV + hv) * C + j;
            double sum = x(i) - (i == j ? 1 : 0), size = std::fabs(x(i)) + 1;   // products are exact in double, the sum errs by its own size
            for (I t = j; t < i; ++t) {
              const double product = L.at(((c.token + i) * HV + hv) * C + t) * x(t);
              sum += product;
              size += std::fabs(product);
            }
            const double allowed = bound[static_cast<std::size_t>(e)] + static_cast<double>(C) * 0x1p-52 * size, ratio = std::fabs(sum) / allowed;
            ++(allowed <= std::max(1.0, std::fabs(x(i))) ? r.judged : r.vacuous);
            if (bound[static_cast<std::size_t>(e)] == std::numeric_limits<double>::infinity()) continue;
            if (!(std::fabs(sum) <= allowed)) failing.push_back(e);
            if (!(ratio <= worst)) {
              worst = std::isnan(ratio) ? std::numeric_limits<double>::infinity() : ratio;
              worst_element = e;
              worst_value = sum;
            }
          }
    r.metrics["max_ratio"] = worst;
    if (worst_element >= 0) {
      Finding f = finding(in, index, "M", worst_element, bound[static_cast<std::size_t>(worst_element)]);
      f.ratio = worst;
      char text[120];
      std::snprintf(text, sizeof text, "((I+L) X - I) is %.3g there, and %.3g in a correct kernel at most", worst_value, bound[static_cast<std::size_t>(worst_element)]);
      f.detail = text;
      r.worst = f;
    }
    if (failing.empty()) return;
    r.status = CheckStatus::failed;
    r.failing += static_cast<I>(failing.size());
    if (!r.first) r.first = locate(run, index, "M", failing[0], 0);
    r.message = std::to_string(r.failing) + " elements of (I+L) X - I beyond their bound, the worst at M, " + to_string(r.worst->where);
    if (r.spread.empty()) r.spread = "residual of run " + run.name + ": " + spread(p, "M", failing, 0);
  }
};

const Residual check;
const RegisterCheck registered(&check);

}  // namespace
}  // namespace gdn
