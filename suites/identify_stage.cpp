// Identification for stages and layers: faults of that stage, or of the layer, by everything that it returns. Rounding is weighed by the bound, since a
// correct result is nowhere beyond it: z of one is at most the root of the number of elements that the fault changes.
#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/faulty/faults.h"
#include "reference/strand.h"
#include "suites/identify.h"
#include "suites/standing.h"

namespace gdn {

Identification identify_stage(const CheckInput& in) {
  Identification id;
  const Run& run = in.golden.the_case.runs.at(0);
  const Problem& p = run.problem;
  const Standings standing = standings(run, in.kernel);
  const Form form = p.layer() ? Form::recurrent : Form::chunkwise;
  const int stage = p.layer() ? kStages : static_cast<int>(p.stage);
  const TensorSet exact = run_fault(*find_fault("none"), form, run);
  const auto difference = [](double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)) ? 0 : a - b; };
  struct Element { std::string tensor; std::int64_t index; double error, weight; };
  std::vector<Element> elements;
  double energy = 0, fourth = 0, missing = 0;
  for (const char* tensor : output_names(p)) {
    const auto got = in.executions.at(0).outputs.find(std::string_view(tensor));
    const auto truth = in.golden.truths.at(0).find(std::string_view(tensor));
    if (got == in.executions[0].outputs.end() || truth == in.golden.truths[0].end() || got->second.shape != truth->second.shape) {
      id.why_not = std::string(tensor) + " is missing or of another shape";
      return id;
    }
    for (std::int64_t e = 0; e < got->second.size(); ++e) {
      if (standing.of(tensor)[static_cast<std::size_t>(e)] != Standing::judged) continue;
      const double hi = truth->second.hi[static_cast<std::size_t>(e)], bound = bound_of(in, 0, tensor, e);
      const double error = difference(got->second.at(e), hi), weight = std::isfinite(hi) && std::isfinite(bound) ? 1 / (bound + 0.5 * ulp_at(hi, format_of(got->second.dtype))) : 0;
      elements.push_back({tensor, e, error, weight});
      if (!std::isfinite(error)) {
        ++missing;
        continue;
      }
      const double square = error * weight * error * weight;
      energy += square;
      fourth += square * square;
    }
  }
  if (!(energy > 0) && missing == 0) return id;
  id.evidence = missing > 0 ? Evidence::missing_numbers : Evidence::values;
  id.elements = missing > 0 ? missing : energy * energy / fourth;
  for (const Fault& f : fault_bank()) {
    if (f.stage != stage) continue;
    const TensorSet with = run_fault(f, form, run);
    Resemblance r;
    r.name = f.name;
    r.mechanism = f.mechanism;
    double cross = 0, own = 0, known = 0, both = 0, either = 0, changed = 0;
    for (const Element& e : elements) {
      const double d = difference(with.find(e.tensor)->second.at(e.index), exact.find(e.tensor)->second.at(e.index));
      const bool no_error = !std::isfinite(e.error), no_delta = !std::isfinite(d);
      both += no_error && no_delta;
      either += no_error || no_delta;
      if (no_error || no_delta) continue;
      changed += d != 0;
      cross += e.error * d * e.weight * e.weight;
      own += d * d * e.weight * e.weight;
      known += e.error * e.error * e.weight * e.weight;
    }
    r.overlap = either > 0 ? both / either : 1;
    if (own > 0) {
      r.z = cross / std::sqrt(own);
      r.amplitude = cross / own;
    }
    r.limit = std::sqrt(changed);
    r.share = either > 0 ? r.overlap : own > 0 && known > 0 && r.z > 0 ? std::min(1.0, cross * cross / (own * known)) : 0;
    if (r.share > 0) id.ranked.push_back(std::move(r));
  }
  std::stable_sort(id.ranked.begin(), id.ranked.end(), [](const Resemblance& a, const Resemblance& b) { return a.share > b.share; });
  if (id.ranked.size() > kRanked) id.ranked.resize(kRanked);
  return id;
}

}  // namespace gdn
