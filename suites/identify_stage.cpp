// Identification for stages and layers: faults of that stage, or of the layer, by everything that all runs of the case return (some show in a run that is cut
// alone). Errors are weighed by the bound, beyond which no correct result lies, and a simulated execution shows how much of them rounding makes.
#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/faulty/faults.h"
#include "reference/layer.h"
#include "reference/simulate.h"
#include "reference/strand.h"
#include "suites/identify.h"
#include "suites/standing.h"

namespace gdn {

namespace {

// Products of one execution of a layer that is compared; of a larger one the faults would take minutes.
constexpr double kProducts = 2e8;

double products(const Problem& p) {
  if (!p.layer()) return 0;
  const std::int64_t values = p.value_heads * p.value_dim;
  return static_cast<double>(p.tokens()) * static_cast<double>(p.hidden) * static_cast<double>(layer_channels(p) + 2 * values + 2 * p.value_heads);
}

}  // namespace

Identification identify_stage(const CheckInput& in) {
  Identification id;
  const std::vector<Run>& runs = in.golden.the_case.runs;
  const Problem& p = in.golden.the_case.problem;
  const Form form = p.layer() ? Form::recurrent : Form::chunkwise;
  double size = 0;
  for (const Run& run : runs) size += products(run.problem);
  if (size > kProducts) {
    id.why_not = "the layer is too large to compare; gdn-cts minimize finds a smaller case";
    return id;
  }
  const std::vector<Execution> exact = run_fault(*find_fault("none"), form, runs);
  const auto difference = [](double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)) ? 0 : a - b; };
  // Outputs are compared as they are stored, as those of the rule are: a slip below a unit in the last place turns roundings over.
  const auto stored = [](double x, DType type) { return std::isfinite(x) ? round_to(x, Store{format_of(type)}) : x; };
  struct Element { std::size_t run; std::string tensor; std::int64_t index; DType type; double error, weight, rounding; };   // rounding: of a correct execution
  std::vector<Element> elements;
  double energy = 0, fourth = 0, missing = 0, typical = 0;
  for (std::size_t i = 0; i < runs.size() && i < in.golden.truths.size(); ++i) {
    if (!runs[i].truth) continue;
    const Standings& standing = in.standings.of_run(i);
    const Contract contract = for_problem(in.kernel.contract, runs[i].problem);
    const TensorSet correct = p.layer() ? simulate_layer(contract, runs[i]) : simulate_stage(contract, runs[i]);
    for (const char* tensor : output_names(runs[i].problem)) {
      const auto got = in.executions.at(i).outputs.find(std::string_view(tensor));
      const auto truth = in.golden.truths[i].find(std::string_view(tensor));
      if (got == in.executions[i].outputs.end() || truth == in.golden.truths[i].end() || got->second.shape != truth->second.shape) {
        id.why_not = std::string(tensor) + " is missing or of another shape";
        return id;
      }
      for (std::int64_t e = 0; e < got->second.size(); ++e) {
        if (standing.of(tensor)[static_cast<std::size_t>(e)] != Standing::judged) continue;
        const double hi = truth->second.hi[static_cast<std::size_t>(e)], bound = bound_of(in, i, tensor, e);
        const double error = difference(got->second.at(e), stored(hi, got->second.dtype)), weight = std::isfinite(hi) && std::isfinite(bound) ? 1 / (bound + 0.5 * ulp_at(hi, format_of(got->second.dtype))) : 0;
        const auto simulated = correct.find(std::string_view(tensor));
        const double rounding = simulated == correct.end() ? 0 : difference(stored(simulated->second.at(e), got->second.dtype), stored(hi, got->second.dtype));
        elements.push_back({i, tensor, e, got->second.dtype, error, weight, std::isfinite(rounding) ? rounding : 0});
        if (!std::isfinite(error)) {
          ++missing;
          continue;
        }
        const double square = error * weight * error * weight;
        typical += elements.back().rounding * weight * elements.back().rounding * weight;
        energy += square;
        fourth += square * square;
      }
    }
  }
  if (!(energy > 0) && missing == 0) return id;
  id.evidence = missing > 0 ? Evidence::missing_numbers : Evidence::values;
  id.elements = missing > 0 ? missing : energy * energy / fourth;
  for (const Fault& f : fault_bank()) {
    if (!concerns(f, p)) continue;
    const std::vector<Execution> with = run_fault(f, form, runs);
    Resemblance r;
    r.name = f.name;
    r.mechanism = f.mechanism;
    double cross = 0, own = 0, known = 0, both = 0, either = 0, changed = 0, by_chance = 0;
    for (const Element& e : elements) {
      const double d = difference(stored(with[e.run].outputs.find(e.tensor)->second.at(e.index), e.type), stored(exact[e.run].outputs.find(e.tensor)->second.at(e.index), e.type));
      const bool no_error = !std::isfinite(e.error), no_delta = !std::isfinite(d);
      both += no_error && no_delta;
      either += no_error || no_delta;
      if (no_error || no_delta) continue;
      changed += d != 0;
      cross += e.error * d * e.weight * e.weight;
      own += d * d * e.weight * e.weight;
      by_chance += d * d * e.weight * e.weight * e.rounding * e.rounding * e.weight * e.weight;
      known += e.error * e.error * e.weight * e.weight;
    }
    r.overlap = either > 0 ? both / either : 1;
    if (own > 0) {
      r.z = cross / std::sqrt(own);
      r.amplitude = cross / own;
    }
    // What chance may show of the fault: as much as the bound allows, and what errors of the size of rounding add up to.
    if (own > 0) r.limit = std::min(std::sqrt(changed), kQuantile * std::sqrt(by_chance / own));
    const double left = known - r.z * r.z, rest = left - std::min(left, typical);
    r.share = either > 0 ? r.overlap : r.z > r.limit ? std::min(1.0, r.z * r.z / (r.z * r.z + rest)) : 0;
    if (r.share > 0) id.ranked.push_back(std::move(r));
  }
  std::stable_sort(id.ranked.begin(), id.ranked.end(), [](const Resemblance& a, const Resemblance& b) { return a.share != b.share ? a.share > b.share : explained(a) > explained(b); });
  if (id.ranked.size() > kRanked) id.ranked.resize(kRanked);
  return id;
}

}  // namespace gdn
