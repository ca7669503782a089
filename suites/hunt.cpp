// Hill climbing for hard inputs, and their text form; see hunt.h.
#include "suites/hunt.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <sstream>
#include <stdexcept>

#include "reference/rng.h"
#include "suites/families/fill.h"
#include "suites/features.h"
#include "suites/runner.h"
#include "suites/signal.h"
#include "suites/standing.h"

namespace gdn {
namespace {

constexpr int kPatience = 120;                     // tries without a step up before a climb ends
constexpr const char* kTensors[] = {"q", "k", "v", "g", "beta", "h0"};

// Greatest |error| / bound of a run's results; negative when the kernel gives none.
double hardness(KernelSession& kernel, const Run& run) {
  Case c;
  c.family = "worst";
  c.problem = run.problem;
  c.runs.push_back(run);
  if (!unsupported_reason(kernel.info().capabilities, kernel.info().contract, run).empty()) return -1;
  const std::vector<Execution> executions{kernel.run(run, case_id(c))};
  if (executions[0].outcome != Outcome::ok) return -1;
  const Golden g = make_golden(c);
  const CheckInput in{g, c.relations, kernel.info(), executions};
  double worst = 0;
  for (const auto& [name, truth] : g.truths[0]) {
    const auto got = executions[0].outputs.find(name);
    if (got == executions[0].outputs.end() || got->second.shape != truth.shape || size_of(got->second.dtype) < 4) continue;
    const Signal signal(truth);
    for (std::int64_t e = 0; e < got->second.size(); ++e) {
      const auto i = static_cast<std::size_t>(e);
      const double bound = bound_of(in, 0, name, e), error = std::fabs((got->second.at(e) - truth.hi[i]) - truth.lo[i]);
      if (!(bound <= signal.at(e)) || !std::isfinite(truth.hi[i])) continue;   // vacuous elements decide nothing
      const double ratio = error > 0 ? error / (bound + static_cast<double>(truth.radius[i])) : 0;
      worst = std::isnan(ratio) ? std::numeric_limits<double>::infinity() : std::max(worst, ratio);
    }
  }
  return worst;
}

// One small change, drawn by r; every value stays a legal input of its dtype.
class Mutation {
 public:
  Mutation(std::uint64_t seed, std::int64_t step, double beta_max) : r_(seed, "mutation"), at_(static_cast<std::uint64_t>(step) << 8), beta_max_(beta_max) {}
  void apply(Run& run) {
    for (std::uint64_t n = 1 + r_.below(at_++, 3); n > 0; --n) one(run);
  }

 private:
  std::uint64_t draw(std::uint64_t n) { return r_.below(at_++, n); }
  void one(Run& run) {
    const char* name = kTensors[draw(std::size(kTensors))];
    const auto t = run.inputs.find(name);
    if (t == run.inputs.end() || t->second.size() == 0) return;
    Tensor& x = t->second;
    const auto i = static_cast<std::int64_t>(draw(static_cast<std::uint64_t>(x.size())));
    const bool gate = name[0] == 'g', beta = name[0] == 'b', key = name[0] == 'k' || name[0] == 'q';
    if (key && draw(2)) return copy_row(run, name);
    const double old = x.at(i);
    double fresh = old;
    switch (draw(gate || beta ? 5 : 4)) {
      case 0: fresh = x.at(static_cast<std::int64_t>(draw(static_cast<std::uint64_t>(x.size())))); break;
      case 1: fresh = gate || beta ? old : -old; break;
      case 2: fresh = key ? old : old * (draw(2) ? 2 : 0.5); break;
      case 3: x.set_bits(i, x.bits(i) ^ (std::uint64_t{1} << draw(8 * size_of(x.dtype) == 32 ? 16 : 4))); return;   // low digits
      default: {
        const double gates[] = {0, -1e-3, -0.1, -1, -20}, betas[] = {0, 0.5, 1, 0.99, beta_max_};
        fresh = gate ? gates[draw(5)] : betas[draw(5)];
      }
    }
    if (gate) fresh = std::max(fresh, -50.0);
    if (beta) fresh = std::clamp(fresh, 0.0, beta_max_);
    x.set(i, fresh);
  }
  // q or k of a token becomes that of another: equal keys make corrections large.
  void copy_row(Run& run, const char* name) {
    const Tensor& from = run.inputs.at(draw(2) ? "k" : name);
    Tensor& to = run.inputs.at(name);
    const std::int64_t K = to.shape.back(), rows = to.size() / K;
    const auto a = static_cast<std::int64_t>(draw(static_cast<std::uint64_t>(rows))), b = static_cast<std::int64_t>(draw(static_cast<std::uint64_t>(rows)));
    const bool flip = draw(4) == 0;
    std::vector<double> row;
    for (std::int64_t d = 0; d < K; ++d) row.push_back(from.at(a * K + d));
    for (std::int64_t d = 0; d < K; ++d) to.set(b * K + d, flip ? -row[static_cast<std::size_t>(d)] : row[static_cast<std::size_t>(d)]);
  }

  Random r_;
  std::uint64_t at_;
  double beta_max_;
};

std::string hex(double x) {
  char text[40];
  std::snprintf(text, sizeof text, "%a", x);
  return text;
}

}  // namespace

std::string to_line(const WorstInput& w) {
  char ratio[32];
  std::snprintf(ratio, sizeof ratio, "%.3g", w.ratio);
  std::string line = std::string(ratio) + " " + w.contract + " " + to_string(w.run.problem);
  for (const char* name : kTensors) {
    const auto t = w.run.inputs.find(name);
    if (t == w.run.inputs.end()) continue;
    line += std::string(" ") + name + "=";
    for (std::int64_t i = 0; i < t->second.size(); ++i) line += (i ? "," : "") + hex(t->second.at(i));
  }
  return line;
}

WorstInput parse_worst(const std::string& line) {
  std::istringstream in(line);
  std::string ratio, problem, item;
  WorstInput w;
  const auto fail = [&](const std::string& why) { throw std::invalid_argument("worst input '" + line.substr(0, 60) + "...': " + why); };
  if (!(in >> ratio >> w.contract >> problem)) fail("ratio, contract and problem are needed");
  const auto [end, error] = std::from_chars(ratio.data(), ratio.data() + ratio.size(), w.ratio);
  if (error != std::errc{} || end != ratio.data() + ratio.size()) fail("'" + ratio + "' is no ratio");
  w.run.problem = parse_problem(problem);
  validate(w.run.problem);
  if (w.run.problem.operation != Operation::prefill || w.run.problem.padding || w.run.problem.raw) fail("only plain prefill problems are kept");
  TensorSet& t = w.run.inputs = fill::allocate(w.run.problem);
  std::size_t given = 0;
  while (in >> item) {
    const std::size_t equals = item.find('=');
    const auto x = equals == std::string::npos ? t.end() : t.find(item.substr(0, equals));
    if (x == t.end() || x->first == "cu_seqlens") fail("'" + item.substr(0, 20) + "' is no input of the problem");
    std::int64_t i = 0;
    for (std::size_t at = equals; at < item.size(); ++i) {
      const std::size_t next = std::min(item.find(',', at + 1), item.size());
      const std::string number = item.substr(at + 1, next - at - 1);
      char* rest = nullptr;
      const double value = std::strtod(number.c_str(), &rest);
      if (number.empty() || *rest || i >= x->second.size()) fail(x->first + " needs " + std::to_string(x->second.size()) + " numbers");
      x->second.set(i, value);
      if (x->second.at(i) != value) fail(x->first + " element " + std::to_string(i) + " is no " + name(x->second.dtype));
      at = next;
    }
    if (i != x->second.size()) fail(x->first + " needs " + std::to_string(x->second.size()) + " numbers");
    ++given;
  }
  if (given + 1 != t.size()) fail("an input is missing");
  return w;
}

extern const char* const kWorstText;               // worst_data.cpp.in

const std::vector<WorstInput>& worst_inputs() {
  static const std::vector<WorstInput> all = [] {
    std::vector<WorstInput> list;
    std::istringstream in(kWorstText);
    for (std::string line; std::getline(in, line);)
      if (!line.empty() && line[0] != '#') list.push_back(parse_worst(line));
    if (list.empty()) throw std::logic_error("golden/worst holds no input");
    return list;
  }();
  return all;
}

HuntResult hunt(KernelSession& kernel, const HuntOptions& o, const std::function<void(double, double)>& progress) {
  const auto start = std::chrono::steady_clock::now();
  const auto elapsed = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(); };
  const auto over = [&](const HuntResult& r) { return r.tries >= o.tries || elapsed() >= o.seconds; };
  const std::vector<std::string> from = !o.families.empty() ? o.families : std::vector<std::string>{"typical", "long_memory", "random_tokens", "chunk_boundary"};
  for (const std::string& f : from) family_named(f);
  // Small, so that a line of text holds them; above and below a chunk, state in and out.
  const char* const sizes[] = {"n1_t6_h1_hv1_k4_v2", "n1_t12_h1_hv1_k8_v2", "n1_t20_h1_hv1_k4_v2", "n1_t70_h1_hv1_k4_v1"};
  const KernelInfo& info = kernel.info();
  const bool fp32 = std::find(info.capabilities.io.begin(), info.capabilities.io.end(), DType::f32) != info.capabilities.io.end();
  HuntResult result;
  double best = 0;
  for (std::uint64_t climb = 0; !over(result); ++climb) {
    const std::string& family = from[climb % from.size()];
    const std::string text = std::string("prefill/") + sizes[climb / from.size() % std::size(sizes)] + (fp32 ? "/fp32/h0" : "/bf16/h0");
    const Problem problem = fitted(parse_problem(text), info, false);
    Run run = make_case({family, problem, o.seed + climb}).runs[0];
    run.name = "base";
    double ratio = hardness(kernel, run);
    ++result.tries;
    ++result.climbs;
    result.first = std::max(result.first, ratio);
    if (ratio < 0) {
      if (climb >= 4 * from.size() * std::size(sizes) && best == 0) throw std::invalid_argument("the kernel gives no result on any small problem");
      continue;
    }
    int waited = 0;
    for (std::int64_t step = 0; waited < kPatience && !over(result); ++step) {
      Run changed = run;
      Mutation(o.seed * 1000003 + climb, step, info.capabilities.beta_max < 2 ? info.capabilities.beta_max : 1).apply(changed);
      const double now = hardness(kernel, changed);
      ++result.tries;
      ++waited;
      if (now > ratio) {
        ratio = now;
        run = std::move(changed);
        waited = 0;
      }
      best = std::max(best, ratio);
      if (progress && result.tries % 16 == 0)
        progress(std::max(elapsed() / o.seconds, static_cast<double>(result.tries) / static_cast<double>(o.tries)), best);
    }
    result.found.push_back({to_string(info.contract), ratio, std::move(run)});
    std::stable_sort(result.found.begin(), result.found.end(), [](const WorstInput& a, const WorstInput& b) { return a.ratio > b.ratio; });
    if (result.found.size() > o.keep) result.found.resize(o.keep);
  }
  return result;
}

}  // namespace gdn
