// Matched filter against the fault bank; see identify.h.
#include "suites/identify.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <set>

#include "kernels/faulty/faults.h"
#include "reference/parallel.h"
#include "reference/strand.h"
#include "suites/kinds.h"
#include "suites/standing.h"

namespace gdn {
namespace {

constexpr double kEnough = 0.5;                    // of the error must be explained to be mentioned
constexpr double kSure = 0.9;                      // and to be named,
constexpr double kLoud = 6;                        // and this many times its own noise
constexpr double kTwin = 0.02;                     // share by which a twin may be worse
constexpr double kLargestRun = 600;                // token-heads of a run on which whole-run faults are tried

// Errors and weights of the elements that are compared, in the order in which deltas are given.
struct Errors {
  std::vector<double> e, weight;                   // weight 1/sigma^2; e not finite: written as no number
  double energy = 0;
  bool nonfinite = false;
  void add(double error, double sigma) {
    e.push_back(error);
    const double w = std::isfinite(sigma) && sigma > 0 ? 1 / (sigma * sigma) : 0;
    weight.push_back(std::isfinite(w) ? w : 0);
    if (std::isfinite(error)) energy += error * error * weight.back();
    else nonfinite = true;
  }
};

Resemblance match(const Fault& f, const Errors& errors, const std::vector<double>& delta) {
  Resemblance r;
  r.fault = f.name;
  double cross = 0, energy = 0, both = 0, either = 0, known = 0;
  for (std::size_t i = 0; i < delta.size(); ++i) {
    const bool bad_error = !std::isfinite(errors.e[i]), bad_delta = !std::isfinite(delta[i]);
    both += bad_error && bad_delta;
    either += bad_error || bad_delta;
    if (bad_error || bad_delta) continue;
    cross += errors.e[i] * delta[i] * errors.weight[i];
    energy += delta[i] * delta[i] * errors.weight[i];
    known += errors.e[i] * errors.e[i] * errors.weight[i];
  }
  const double overlap = either > 0 ? both / either : 1;
  if (energy > 0) {
    r.z = cross / std::sqrt(energy);
    r.amplitude = cross / energy;
  }
  const double explained = energy > 0 && known > 0 && cross > 0 ? cross * cross / (energy * known) : 0;
  // Where numbers are missing their places must be the fault's; what is left finite may be plain rounding.
  if (errors.nonfinite) {
    r.amplitude = 1;
    r.share = overlap * (known > static_cast<double>(delta.size()) ? std::max(explained, 0.5) : 1);
    r.z = std::numeric_limits<double>::infinity();
  } else {
    r.share = either > 0 ? 0 : explained;
  }
  return r;
}

bool between_heads(const Fault& f) {
  for (const Kind& k : kKinds)
    if (std::string_view(k.slug) == f.kind)
      for (const char* area : {"sequences", "states", "heads", "sizes", "layout", "memory", "pools"})
        if (std::string_view(k.area) == area) return true;
  return false;
}

// Judged, or in a slot of a pool that nobody uses and that must keep what it holds.
bool counts(const Problem& p, const Standings& s, std::string_view tensor, std::int64_t e) {
  const Standing x = s.of(tensor)[static_cast<std::size_t>(e)];
  return x == Standing::judged || (x == Standing::unowned && p.pool() && tensor == "ht");
}
double difference(double a, double b) { return std::isnan(a) && std::isnan(b) ? 0 : a - b; }   // canaries may be NaN

std::string number(double x) {
  char text[32];
  std::snprintf(text, sizeof text, std::fabs(x) < 1e4 ? "%.0f" : "%.2g", x);
  return text;
}

}  // namespace

std::vector<Resemblance> identify(const CheckInput& in) {
  // The run that fails worst, and its worst head: greatest |e|/bound, no number counting most.
  const Case& c = in.golden.the_case;
  struct Worst { double ratio = -1; std::size_t run = 0; Location where; } worst;
  for (std::size_t i = 0; i < c.runs.size(); ++i) {
    if (!c.runs[i].truth || i >= in.golden.truths.size()) continue;
    if (c.runs[i].problem.rule != Rule::gated_delta && c.runs[i].problem.rule != Rule::delta) continue;
    const Standings standing = standings(c.runs[i], in.kernel);
    for (const char* tensor : output_names(c.runs[i].problem)) {
      const auto got = in.executions[i].outputs.find(std::string_view(tensor));
      const auto truth = in.golden.truths[i].find(std::string_view(tensor));
      if (truth == in.golden.truths[i].end()) continue;
      // An output that is missing or of another shape has no errors to compare; soundness says what is wrong.
      if (got == in.executions[i].outputs.end() || got->second.shape != truth->second.shape) return {};
      const auto count = std::min<std::int64_t>(got->second.size(), static_cast<std::int64_t>(truth->second.hi.size()));
      for (std::int64_t e = 0; e < count; ++e) {
        if (!counts(c.runs[i].problem, standing, tensor, e)) continue;
        const double error = std::fabs(difference(got->second.at(e), truth->second.hi[static_cast<std::size_t>(e)]));
        const double bound = bound_of(in, i, tensor, e);
        const double ratio = !std::isfinite(error) ? std::numeric_limits<double>::infinity() : error > 0 ? error / bound : 0;
        if (ratio > worst.ratio) worst = {ratio, i, locate(c.runs[i], i, tensor, e, std::max(in.kernel.contract.chunk, 1))};
      }
    }
  }
  std::vector<Resemblance> all;
  if (worst.ratio <= 0) return all;
  const std::size_t index = worst.run;
  const Run& run = c.runs[index];
  const Problem& p = run.problem;
  const TensorSet& got = in.executions[index].outputs;
  const Truth& truth = in.golden.truths[index];
  const Standings standing = standings(run, in.kernel);
  const Form preferred = p.pool() ? Form::recurrent : in.kernel.contract.form;
  const Fault& none = *find_fault("none");
  const std::int64_t HV = p.value_heads, K = p.key_dim, V = p.value_dim;

  // One head, sixteen channels around the worst: the value channels of a head do not see each other.
  const bool split = !p.split.empty() || p.pool();
  const std::int64_t n = split ? 0 : worst.where.sequence, hv = worst.where.head, width = std::min<std::int64_t>(16, V);
  const std::int64_t first_channel = std::min(worst.where.column / 4 * 4, V - width), T = p.lengths[static_cast<std::size_t>(n)];
  HeadInputs head = head_inputs(run, n, hv);
  auto slice = [&](std::vector<float>& a) {
    std::vector<float> narrow;
    for (std::size_t row = 0; row * static_cast<std::size_t>(V) < a.size(); ++row)
      for (std::int64_t v = 0; v < width; ++v) narrow.push_back(a[row * static_cast<std::size_t>(V) + static_cast<std::size_t>(first_channel + v)]);
    a = std::move(narrow);
  };
  slice(head.v);
  slice(head.h0);
  head.V = width;
  auto elements = [&](auto visit) {                // tensor, element of the run, element of the sliced head
    const std::int64_t first = p.offsets()[static_cast<std::size_t>(n)];
    for (std::int64_t t = 0; t < T; ++t)
      for (std::int64_t v = 0; v < width; ++v) visit("o", ((first + t) * HV + hv) * V + first_channel + v, t * width + v);
    if (p.final_state)
      for (std::int64_t r = 0; r < K; ++r)
        for (std::int64_t v = 0; v < width; ++v) visit("ht", ((n * HV + hv) * K + r) * V + first_channel + v, r * width + v);
  };
  auto sigma_of = [&](std::string_view tensor, std::int64_t e) {
    const Tensor& t = got.find(tensor)->second;
    return bound_of(in, index, tensor, e) + 0.5 * ulp_at(truth.find(tensor)->second.hi[static_cast<std::size_t>(e)], format_of(t.dtype));
  };
  auto error_of = [&](std::string_view tensor, std::int64_t e) {
    if (!counts(p, standing, tensor, e)) return 0.0;
    const TruthTensor& t = truth.find(tensor)->second;
    return difference(got.find(tensor)->second.at(e), t.hi[static_cast<std::size_t>(e)]) - t.lo[static_cast<std::size_t>(e)];
  };
  Errors local;
  if (!split) elements([&](const char* tensor, std::int64_t e, std::int64_t) { local.add(error_of(tensor, e), sigma_of(tensor, e)); });
  Errors whole;
  for (const char* tensor : output_names(p)) {
    if (!got.count(tensor) || !truth.count(tensor)) continue;
    const auto count = static_cast<std::int64_t>(truth.find(std::string_view(tensor))->second.hi.size());
    for (std::int64_t e = 0; e < count; ++e) whole.add(error_of(tensor, e), sigma_of(tensor, e));
  }

  const auto& bank = fault_bank();
  std::vector<Resemblance> found(bank.size());
  HeadResult exact_head[2];
  TensorSet exact_run[2];
  for (const Form form : {Form::recurrent, Form::chunkwise}) {
    if (p.pool() && form != preferred) continue;   // states in a pool are there in the recurrent form alone
    if (!split) exact_head[static_cast<int>(form)] = run_fault(none, form, head);
    exact_run[static_cast<int>(form)] = run_fault(none, form, run);
  }
  parallel_for(static_cast<std::int64_t>(bank.size()), [&](std::int64_t at) {
    const auto i = static_cast<std::size_t>(at);
    const Fault& f = bank[i];
    const Form form = f.has(preferred) ? preferred : preferred == Form::recurrent ? Form::chunkwise : Form::recurrent;
    if (p.pool() && form != preferred) return;
    std::vector<double> delta;
    bool any = false;
    if (!split && !between_heads(f)) {
      const HeadResult with = run_fault(f, form, head);
      const HeadResult& without = exact_head[static_cast<int>(form)];
      elements([&](const char* tensor, std::int64_t, std::int64_t e) {
        const auto at = static_cast<std::size_t>(e);
        delta.push_back(tensor[0] == 'o' ? with.o[at] - without.o[at] : with.ht[at] - without.ht[at]);
        any = any || delta.back() != 0;
      });
      if (any) found[i] = match(f, local, delta);
    }
    if (any || p.token_heads() > kLargestRun) return;
    delta.clear();
    const TensorSet with = run_fault(f, form, run);
    const TensorSet& without = exact_run[static_cast<int>(form)];
    for (const char* tensor : output_names(p)) {
      if (!got.count(tensor) || !truth.count(tensor)) continue;
      const auto count = static_cast<std::int64_t>(truth.find(std::string_view(tensor))->second.hi.size());
      const auto a = with.find(std::string_view(tensor)), b = without.find(std::string_view(tensor));
      for (std::int64_t e = 0; e < count; ++e) {
        const bool judged = counts(p, standing, tensor, e);
        delta.push_back(!judged ? 0 : a == with.end() ? std::numeric_limits<double>::quiet_NaN() : difference(a->second.at(e), b->second.at(e)));
        any = any || delta.back() != 0;
      }
    }
    if (any) found[i] = match(f, whole, delta);
  });
  for (Resemblance& r : found)
    if (r.share > 0) all.push_back(std::move(r));
  // Of faults of one shape (scales) the one of the right size comes first: half of the rank is what delta itself explains.
  auto rank = [](const Resemblance& r) { return r.share * (1 - 0.5 * std::min(1.0, (r.amplitude - 1) * (r.amplitude - 1))); };
  std::stable_sort(all.begin(), all.end(), [&](const Resemblance& a, const Resemblance& b) { return rank(a) > rank(b); });
  return all;
}

std::string resembles(const CheckInput& in) {
  const std::vector<Resemblance> all = identify(in);
  if (all.empty() || all[0].share < kEnough) return "nothing known";
  const Resemblance& best = all[0];
  char share[32];
  std::snprintf(share, sizeof share, "%.1f", 100 * best.share);
  // A fault outside the bank can still look a little like one inside.
  std::string text = (best.share < kSure || best.z < kLoud ? "nothing known; the nearest is " : "") + best.fault + ": " + find_fault(best.fault)->mechanism + " (";
  if (std::isfinite(best.z)) text += "z=" + number(best.z) + ", ";
  text += std::string("explains ") + share + " % of the error";
  int twins = 0;
  for (std::size_t i = 1; i < all.size() && twins < 3; ++i)
    if (all[i].share >= best.share - kTwin) text += (twins++ ? ", " : "; as well as ") + all[i].fault;
  return text + ")";
}

}  // namespace gdn
