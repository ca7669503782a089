// Check `bound`: |result - truth| <= bound + radius, element by element, outputs and final states.
// The bound comes from the kernel's declared contract alone (reference/bound.h): no tolerance from taste.
#include <cmath>
#include <limits>
#include <optional>

#include "reference/strand.h"
#include "reports/text.h"
#include "suites/signal.h"
#include "suites/spread.h"
#include "suites/standing.h"

namespace gdn {
namespace {

// The coarse map of error/bound over o (heads and tokens) or ht (key and value channels, all states and heads together).
struct Grid {
  static constexpr long long kTokens = 48, kHeads = 32, kChannels = 16;
  RecordMap m;
  std::int64_t width = 1;                          // value channels
  bool state = false;
  std::vector<double> worst;                       // below 0: nothing judged

  static std::optional<Grid> of(const Problem& p, const std::string& tensor) {
    Grid g;
    if (p.operation == Operation::stages) return {};
    if (tensor == "o") g.m = {tensor, "head", "token", p.value_heads, p.tokens(), 0, 0, {}};
    else if (tensor == "ht") g.m = {tensor, "key channel", "value channel", p.key_dim, p.value_dim, 0, 0, {}};
    else return {};
    g.state = tensor == "ht";
    g.width = p.value_dim;
    g.m.rows = std::min(g.m.row_count, g.state ? kChannels : kHeads);
    g.m.columns = std::min(g.m.column_count, g.state ? kChannels : kTokens);
    if (g.m.rows == 0 || g.m.columns == 0) return {};
    g.worst.assign(static_cast<std::size_t>(g.m.rows * g.m.columns), -1);
    return g;
  }
  void add(std::int64_t e, double ratio) {         // o [T,HV,V], ht [N,HV,K,V]
    const std::int64_t row = e / width % m.row_count, column = state ? e % width : e / width / m.row_count;
    if (column >= m.column_count) return;          // padding
    double& w = worst[static_cast<std::size_t>(row * m.rows / m.row_count * m.columns + column * m.columns / m.column_count)];
    w = std::max(w, std::isnan(ratio) ? std::numeric_limits<double>::infinity() : ratio);
  }
  RecordMap map() const {
    RecordMap out = m;
    for (const double w : worst) out.levels += w < 0 ? '.' : error_level(w);
    return out;
  }
};

struct Bound final : Check {
  std::string name() const override { return "bound"; }
  int order() const override { return 50; }
  std::string clause() const override { return "5.5"; }
  std::string rationale() const override {
    return "A kernel that honours its declared precision contract cannot be further from the exact value than the contract's "
           "rounding-error bound. Elements whose bound exceeds the signal are counted as vacuous: passing there decides "
           "nothing, but a result beyond its bound fails everywhere.";
  }
  CheckResult run(const CheckInput& in) const override {
    CheckResult r;
    r.check = name();
    r.clause = clause();
    r.metrics["max_ratio"] = 0;
    r.metrics["max_abs"] = 0;
    bool any = false;
    for (std::size_t i = 0; i < in.golden.the_case.runs.size(); ++i) {
      if (!in.golden.the_case.runs[i].truth || i >= in.golden.truths.size()) continue;
      for (const char* tensor : output_names(in.golden.the_case.runs[i].problem)) {
        const auto truth = in.golden.truths[i].find(std::string_view(tensor));
        const auto got = in.executions[i].outputs.find(std::string_view(tensor));
        if (truth == in.golden.truths[i].end()) continue;
        any = true;
        if (got == in.executions[i].outputs.end() || got->second.shape != truth->second.shape) continue;   // soundness says so
        compare(in, i, tensor, got->second, truth->second, r);
      }
    }
    if (!any) r.status = CheckStatus::not_applicable;
    if (r.failing) {
      r.status = CheckStatus::failed;
      r.message = std::to_string(r.failing) + " elements of " + std::to_string(r.judged + r.vacuous) + " beyond the bound of " +
                  to_string(in.kernel.contract) + ", the worst by a factor of " + reports::short_number(r.metrics["max_ratio"]) + ": " +
                  r.worst->where.tensor + ", " + to_string(r.worst->where);
      r.worst->detail = explain(in, *r.worst);
    }
    return r;
  }

 private:
  static void compare(const CheckInput& in, std::size_t index, const std::string& tensor, const Tensor& got, const TruthTensor& truth,
                      CheckResult& r) {
    const Run& run = in.golden.the_case.runs[index];
    const std::vector<Standing>& standing = in.standings.of_run(index).of(tensor);
    const std::vector<double>& bound = in.bounds.of_run(index).of(tensor);
    const Signal signal(truth, tensor == "y");
    const Format format = overflow_format(in, index, tensor);
    double error2 = 0, truth2 = 0, max_abs = 0, own_worst = 0, worst = r.metrics["max_ratio"];
    std::int64_t worst_element = -1;
    std::vector<std::int64_t> failing;
    std::optional<Grid> grid;
    if (index == 0) grid = Grid::of(run.problem, tensor);
    const auto count = static_cast<std::int64_t>(std::min({truth.hi.size(), bound.size(), static_cast<std::size_t>(got.size())}));
    for (std::int64_t e = 0; e < count; ++e) {
      const auto i = static_cast<std::size_t>(e);
      if (standing[i] != Standing::judged) continue;
      const double x = got.at(e), b = bound[i], hi = truth.hi[i];
      if (!std::isfinite(hi)) {                    // beyond double: no format holds it, soundness judged it; a sum of -inf is just that
        if (tensor == "G" && x != hi) failing.push_back(e);
        r.judged += tensor == "G";
        continue;
      }
      const double error = std::fabs((x - hi) - truth.lo[i]), allowed = b + static_cast<double>(truth.radius[i]);
      // Written so that a NaN anywhere fails.
      const bool within = error <= allowed || (!std::isfinite(x) && overflow_allowed(x, hi, b, truth.radius[i], format));
      const bool judged = b <= signal.at(e);
      ++(judged ? r.judged : r.vacuous);
      if (std::isfinite(error)) {
        error2 += error * error;
        truth2 += hi * hi;
        max_abs = std::max(max_abs, error);
      }
      const double ratio = within ? (std::isfinite(error) && error > 0 ? error / allowed : 0)
                                  : std::isfinite(error) && allowed > 0 ? error / allowed : std::numeric_limits<double>::infinity();
      own_worst = std::max(own_worst, ratio);
      if (grid) grid->add(e, ratio);
      if (!within) {
        failing.push_back(e);
      }
      if (ratio > worst || (worst_element < 0 && !r.worst)) {
        worst = std::max(worst, ratio);
        worst_element = e;
      }
    }
    if (grid) r.maps.push_back(grid->map());
    const std::string prefix = tensor + "_";
    // Of several runs the worst is recorded.
    auto record = [&](const std::string& key, double x) {
      const auto [it, fresh] = r.metrics.try_emplace(key, x);
      if (!fresh && !(x <= it->second)) it->second = x;
    };
    record(prefix + "nmse", truth2 > 0 ? error2 / truth2 : error2 > 0 ? std::numeric_limits<double>::infinity() : 0);
    record(prefix + "rms_ratio", std::sqrt(r.metrics[prefix + "nmse"]));
    record("max_abs", max_abs);
    record(prefix + "max_ratio", own_worst);
    r.metrics["max_ratio"] = worst;
    if (worst_element >= 0) {
      r.worst = finding(in, index, tensor, worst_element, bound[static_cast<std::size_t>(worst_element)]);
      r.worst->ratio = worst;
    }
    if (failing.empty()) return;
    if (!r.worst) r.worst = finding(in, index, tensor, failing[0], 0);
    r.failing += static_cast<std::int64_t>(failing.size());
    if ((tensor == "o" || own_tensors(run.problem)) && !r.first) r.first = locate(run, index, tensor, failing[0], in.kernel.contract.chunk);
    if (r.spread.empty()) r.spread = tensor + " of run " + run.name + ": " + spread(run.problem, tensor, failing, in.kernel.contract.chunk);
  }

  static std::string explain(const CheckInput& in, const Finding& f) {
    const Location& l = f.where;
    const Run& run = in.golden.the_case.runs[l.run];
    const Problem& p = run.problem;
    if (p.operation == Operation::stages) return explain_stage_bound(in.bounds.contract(l.run), run, l.tensor, l.element);
    if (p.layer()) return "";
    const bool state = l.tensor != "o";
    const std::int64_t width = p.value_heads * p.value_dim * (state ? p.key_dim : 1);
    const std::vector<Strand> all = strands(run);
    const StrandPlace at = find_strand(all, l.tensor, l.element / width);
    if (at.strand < 0) return "";
    const Strand& s = all[static_cast<std::size_t>(at.strand)];
    return explain_bound(in.bounds.contract(l.run), head_inputs(run, s, l.head), state, state ? l.row : at.token, l.column, s.cuts);
  }
};

const Bound check;
const RegisterCheck registered(&check);

}  // namespace
}  // namespace gdn
