// Error against precision: inputs, jobs, measurement and the search for the cheapest contract; see precision.h.
#include "suites/precision.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <mutex>
#include <set>
#include <stdexcept>
#include <tuple>

#include "reference/bound.h"
#include "reference/certify.h"
#include "reference/parallel.h"
#include "reference/rng.h"
#include "reference/sigma.h"
#include "reference/simulate.h"
#include "reference/standard.h"
#include "reference/truth.h"

namespace gdn {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

std::string text_of(double x) {
  char buffer[32];
  return std::string(buffer, std::to_chars(buffer, buffer + sizeof buffer, x).ptr);
}

[[noreturn]] void fail(std::string_view text, const std::string& why) { throw std::invalid_argument("inputs '" + std::string(text) + "': " + why); }

double real(std::string_view text, std::string_view key, std::string_view value, double lo, double hi) {
  double x = 0;
  const auto r = std::from_chars(value.data(), value.data() + value.size(), x);
  if (r.ec != std::errc{} || r.ptr != value.data() + value.size() || !(x >= lo && x <= hi))
    fail(text, std::string(key) + " needs a number from " + text_of(lo) + " to " + text_of(hi) + ", not '" + std::string(value) + "'");
  return x == 0 ? 0 : x;                           // no negative zero
}

std::int64_t whole(std::string_view text, std::string_view key, std::string_view value, std::int64_t lo, std::int64_t hi) {
  std::int64_t x = 0;
  const auto r = std::from_chars(value.data(), value.data() + value.size(), x);
  if (r.ec != std::errc{} || r.ptr != value.data() + value.size() || x < lo || x > hi)
    fail(text, std::string(key) + " needs a whole number from " + std::to_string(lo) + " to " + std::to_string(hi) + ", not '" + std::string(value) + "'");
  return x;
}

Format format_of(DType t) { return t == DType::bf16 ? Format::bf16 : t == DType::f16 ? Format::fp16 : Format::fp32; }

void apply(PrecisionInputs& in, std::string_view text, std::string_view key, std::string_view value) {
  constexpr std::int64_t kMost = std::int64_t{1} << 24;
  if (key == "T") in.T = whole(text, key, value, 1, kMost);
  else if (key == "K") in.K = in.V = whole(text, key, value, 1, 4096);
  else if (key == "V") in.V = whole(text, key, value, 1, 4096);
  else if (key == "call") in.call = whole(text, key, value, 0, kMost);
  else if (key == "draws") in.draws = static_cast<int>(whole(text, key, value, 1, 1024));
  else if (key == "seed") in.seed = static_cast<std::uint64_t>(whole(text, key, value, 0, std::numeric_limits<std::int64_t>::max()));
  else if (key == "gate") in.gate = real(text, key, value, 0, 1e4);
  else if (key == "keys") in.keys = real(text, key, value, 0, 1);
  else if (key == "io") {
    in.io = parse_dtype(value);
    if (in.io != DType::f32 && in.io != DType::bf16 && in.io != DType::f16) fail(text, "io is one of fp32, bf16, fp16");
  } else if (key == "beta") {
    const std::size_t dots = value.find("..");
    in.beta_min = real(text, key, value.substr(0, dots), 0, 2);
    in.beta_max = dots == std::string_view::npos ? in.beta_min : real(text, key, value.substr(dots + 2), in.beta_min, 2);
  } else fail(text, "unknown key '" + std::string(key) + "'; keys: T, K, V, io, gate, beta, keys, call, draws, seed");
}

bool is_input(std::string_view key) {
  static const std::set<std::string, std::less<>> keys{"T", "K", "V", "io", "gate", "beta", "keys", "call", "draws", "seed"};
  return keys.count(key) > 0;
}

int width(const Store& s) { return (s.format == Format::tf32 ? 19 : info(s.format).bits) * s.terms; }

Point find_point(std::string_view text) {
  for (std::size_t i = 0; i < kPoints; ++i)
    if (text == name(static_cast<Point>(i))) return static_cast<Point>(i);
  throw std::invalid_argument("unknown storage point '" + std::string(text) + "'");
}

// ---- jobs ----

using Settings = std::map<std::string, std::string>;

struct Job {
  const PrecisionStudySpec* study = nullptr;       // nullptr: a question of its own
  PrecisionPoint point;                            // without results
  Contract contract;
  bool spread = false;
};
struct Group {                                     // of one set of inputs
  PrecisionInputs inputs;
  std::vector<Job> jobs;
  std::vector<Job> kernels;                        // contract: what the kernel declares; point.kernel names it
};

DType natural_io(const Contract& c) {
  const Format f = c.at(Point::out).format;
  return f == Format::bf16 ? DType::bf16 : f == Format::fp16 ? DType::f16 : DType::f32;
}

PrecisionPoint blank(const std::string& study, const Settings& axes, const Contract& c, const PrecisionInputs& in) {
  PrecisionPoint p;
  p.study = study;
  p.axes = axes;
  p.contract = to_string(c);
  p.inputs = to_string(in);
  p.tokens = in.T;
  p.key_dim = in.K;
  p.value_dim = in.V;
  p.chunk = c.chunk;
  p.cost = contract_cost(c, in.K, in.V);
  p.suite_version = kSuiteVersion;
  p.edition = kAccuracyEdition;
  return p;
}

// The contract of these settings, and the dtype of the tensors that go with it before a point is changed; false where the point is none of the
// form's, or has the format already.
bool contract_of(const Settings& s, Contract& c, DType& io) {
  std::string text;
  for (const auto& [key, value] : s)
    if (key == "contract") text = value + text;
    else if (!is_input(key) && key != "point" && key != "format" && key != "rounding") text += ";" + key + "=" + value;
  c = parse_contract(text);
  io = natural_io(c);
  const auto point = s.find("point");
  if (point != s.end() && point->second != "none") {
    const Point p = find_point(point->second);
    const Contract before = c;
    c.at(p) = parse_store(s.at("format"));
    if (!uses(c, p) || c == before) return false;
  }
  if (const auto r = s.find("rounding"); r != s.end())
    for (std::size_t i = 0; i < kPoints; ++i)
      if (unit(c, static_cast<Point>(i)) > 0) c.points[i].rounding = parse_rounding(r->second);
  return true;
}

PrecisionInputs inputs_of(const Settings& s, std::uint64_t seed, DType natural) {
  PrecisionInputs in;
  in.seed = seed;
  in.io = natural;
  for (const char* key : {"K", "V", "T", "io", "gate", "beta", "keys", "call", "draws", "seed"})   // K sets V too
    if (const auto at = s.find(key); at != s.end()) apply(in, at->second, key, at->second);
  return in;
}

const std::vector<std::string>& values(const PrecisionStudySpec::Axis& a, bool full) { return full && !a.full.empty() ? a.full : a.ci; }

// f(settings, axes) for every combination of the axes' values.
template <class F>
void combinations(const PrecisionStudySpec& study, bool full, const F& f) {
  Settings settings, axes;
  for (const auto& [key, value] : study.fixed) settings[key] = value;
  const auto walk = [&](const auto& self, std::size_t i) -> void {
    if (i == study.axes.size()) return f(settings, axes);
    const PrecisionStudySpec::Axis& axis = study.axes[i];
    const Settings outer_settings = settings, outer_axes = axes;
    const auto take = [&](const std::string& value) {
      settings[axis.name] = axes[axis.name] = value;
      self(self, i + 1);
      settings = outer_settings;
      axes = outer_axes;
    };
    if (axis.name == "format" && axes.count("point") && axes.at("point") == "none") return self(self, i + 1);
    for (const std::string& v : values(axis, full))
      if (v == "*") {
        for (std::size_t p = 0; p < kPoints; ++p) take(name(static_cast<Point>(p)));
      } else {
        take(v);
      }
  };
  walk(walk, 0);
}

std::vector<Group> plan(const PrecisionOptions& o) {
  std::vector<Group> groups;
  std::map<std::string, std::size_t> index;
  const auto group = [&](const PrecisionInputs& in) -> Group& {
    const auto [at, fresh] = index.emplace(to_string(in), groups.size());
    if (fresh) groups.push_back({in, {}, {}});
    return groups[at->second];
  };
  for (const std::string& s : o.studies)
    if (std::none_of(o.table->begin(), o.table->end(), [&](const PrecisionStudySpec& x) { return x.view.name == s; })) {
      std::string known;
      for (const PrecisionStudySpec& x : *o.table) known += (known.empty() ? "" : ", ") + x.view.name;
      throw std::invalid_argument("unknown study '" + s + "'; studies: " + known);
    }
  for (const PrecisionStudySpec& study : *o.table) {
    if (!o.studies.empty() && std::find(o.studies.begin(), o.studies.end(), study.view.name) == o.studies.end()) continue;
    combinations(study, o.full, [&](const Settings& settings, const Settings& axes) {
      Contract c;
      DType io{};
      if (!contract_of(settings, c, io)) return;
      const PrecisionInputs in = inputs_of(settings, o.seed, io);
      group(in).jobs.push_back({&study, blank(study.view.name, axes, c, in), c, study.view.spread});
    });
    if (!study.measured) continue;
    std::set<std::string> seen;
    for (const KernelSession* k : o.kernels)
      combinations(study, o.full, [&](const Settings& settings, Settings axes) {
        const KernelInfo& info = k->info();
        DType io = natural_io(info.contract);
        const auto& offered = info.capabilities.io;
        if (std::find(offered.begin(), offered.end(), io) == offered.end() && !offered.empty()) io = offered.front();
        const PrecisionInputs in = inputs_of(settings, o.seed, io);
        axes["contract"] = to_string(info.contract);
        Job job{&study, blank(study.view.name, axes, info.contract, in), info.contract, false};
        Group& g = group(in);
        // The declared contract carried out on the same inputs, so that measured and simulated can be compared.
        const std::string simulated = precision_key(job.point);
        const auto same = [&](const Job& j) { return precision_key(j.point) == simulated; };
        if (std::none_of(g.jobs.begin(), g.jobs.end(), same)) g.jobs.push_back(job);
        job.point.kernel = info.name;
        job.point.how = info.how;
        if (seen.insert(precision_key(job.point)).second) g.kernels.push_back(std::move(job));   // once, whatever contract the axis names
      });
  }
  return groups;
}

// ---- measurement ----

struct Reference {                                 // of one draw
  HeadInputs in;
  HeadTruth truth;
  double o = 0, ht = 0, radius = 0;                // rms of the exact values; greatest radius in units of it
};

double rms_of(const std::vector<double>& x) {
  double sum = 0;
  for (const double e : x) sum += e * e;
  return x.empty() ? 0 : std::sqrt(sum / static_cast<double>(x.size()));
}

Reference reference(const PrecisionInputs& inputs, int draw) {
  Reference r;
  r.in = precision_head(inputs, draw);
  r.truth = oracle_head(r.in);
  r.o = rms_of(r.truth.o.hi);
  r.ht = rms_of(r.truth.ht.hi);
  for (const auto& [t, scale] : {std::pair{&r.truth.o, r.o}, {&r.truth.ht, r.ht}})
    for (std::size_t i = 0; i < t->hi.size(); ++i)
      if (scale > 0) r.radius = std::max(r.radius, oracle_detail::stored_radius(t->hi[i], t->radius[i]) / scale);
  return r;
}

std::vector<std::int64_t> cuts(const PrecisionInputs& in) {
  std::vector<std::int64_t> c;
  for (std::int64_t t = in.call; in.call > 0 && t < in.T; t += in.call) c.push_back(t);
  return c;
}

struct Errors { double rms = 0, worst = 0; long long non_finite = 0; };

template <class At>
Errors compare(const TruthTensor& truth, double scale, const At& at) {
  Errors e;
  double sum = 0;
  for (std::size_t i = 0; i < truth.hi.size(); ++i) {
    const double x = at(i);
    if (!std::isfinite(x)) {
      ++e.non_finite;
      continue;
    }
    const double d = std::fabs((x - truth.hi[i]) - truth.lo[i]);
    sum += d * d;
    e.worst = std::max(e.worst, d);
  }
  e.rms = e.non_finite ? kInfinity : sum == 0 ? 0 : std::sqrt(sum / static_cast<double>(truth.hi.size())) / scale;
  e.worst = e.non_finite ? kInfinity : e.worst == 0 ? 0 : e.worst / scale;
  return e;
}

struct Draw {                                      // results of one job on one draw
  Errors o, ht;
  double o_sigma = 0, ht_sigma = 0, o_bound = 0, ht_bound = 0;
};

Draw carry_out(const Job& job, const PrecisionInputs& inputs, const Reference& r, int draw) {
  Problem p = precision_run(inputs, {}).problem;
  const Contract c = for_problem(job.contract, p);
  const std::vector<std::int64_t> split = cuts(inputs);
  Draw d;
  const HeadResult x = simulate(c, r.in, SimulationMode::nearest, static_cast<std::uint64_t>(draw) + 1, split);
  d.o = compare(r.truth.o, r.o, [&](std::size_t i) { return x.o[i]; });
  d.ht = compare(r.truth.ht, r.ht, [&](std::size_t i) { return x.ht[i]; });
  if (job.spread) {
    const HeadResult s = sigma_head(c, r.in, static_cast<std::uint64_t>(draw) + 1, split);
    d.o_sigma = rms_of(s.o) / r.o;
    d.ht_sigma = rms_of(s.ht) / r.ht;
    const HeadResult b = bound_head(c, r.in, split);
    d.o_bound = rms_of(b.o) / r.o;
    d.ht_bound = rms_of(b.ht) / r.ht;
  }
  return d;
}

void fill(PrecisionPoint& p, const std::vector<Draw>& draws, const std::vector<Reference>& refs, bool spread) {
  for (std::size_t d = 0; d < draws.size(); ++d) {
    p.o_rms.push_back(draws[d].o.rms);
    p.o_worst.push_back(draws[d].o.worst);
    p.ht_rms.push_back(draws[d].ht.rms);
    p.ht_worst.push_back(draws[d].ht.worst);
    p.non_finite += draws[d].o.non_finite + draws[d].ht.non_finite;
    p.truth = std::max(p.truth, refs[d].radius);
    if (!spread) continue;
    p.o_sigma.push_back(draws[d].o_sigma);
    p.ht_sigma.push_back(draws[d].ht_sigma);
    p.o_bound.push_back(draws[d].o_bound);
    p.ht_bound.push_back(draws[d].ht_bound);
  }
}

// Work in seconds on one processor, roughly: measured on a 2 GHz core with AVX-512, and only good for shares and estimates.
double oracle_work(const PrecisionInputs& in) {
  return 2.5e-9 * static_cast<double>(in.T * in.K * in.V) * in.draws + 4e-8 * static_cast<double>(in.T * (in.K + in.V)) * in.draws;
}
double work(const Job& job, const PrecisionInputs& in) {
  const double tokens = static_cast<double>(in.T) * in.draws, kv = static_cast<double>(in.K * in.V);
  double unit = 5e-10 * kv;
  if (job.contract.form == Form::chunkwise) unit += 3e-10 * static_cast<double>(job.contract.chunk * (in.K + in.V) + job.contract.chunk * job.contract.chunk);
  else if (gdn::unit(job.contract, Point::S_carried) > 0)
    unit += (job.contract.at(Point::S_carried).rounding == Rounding::nearest_even ? 1e-9 : 1e-8) * kv;
  return tokens * unit * (job.spread ? 70 : 1) * (job.point.kernel.empty() ? 1 : 3);
}

class Runner {
 public:
  explicit Runner(const PrecisionOptions& o) : o_(o) {
    for (const PrecisionPoint& p : o.done) known_.emplace(precision_key(p), p);
  }

  std::vector<PrecisionPoint> run(std::vector<Group> groups) {
    for (const Group& g : groups) {
      total_ += oracle_work(g.inputs);
      for (const auto* list : {&g.jobs, &g.kernels})
        for (const Job& j : *list) total_ += work(j, g.inputs);
    }
    for (Group& g : groups) one(g);
    return std::move(points_);
  }

 private:
  void one(Group& g) {
    std::vector<Job> missing;
    for (const auto* list : {&g.jobs, &g.kernels})
      for (const Job& j : *list)
        if (!known_.count(precision_key(j.point))) missing.push_back(j);
    refs_.clear();
    if (!missing.empty()) make(g.inputs);
    advance(oracle_work(g.inputs));
    measure(g.inputs, g.jobs);
    search(g);
    for (const Job& j : g.kernels) kernel(g.inputs, j);
  }

  void make(const PrecisionInputs& in) {
    refs_.resize(static_cast<std::size_t>(in.draws));
    parallel_for(in.draws, [&](std::int64_t d) { refs_[static_cast<std::size_t>(d)] = reference(in, static_cast<int>(d)); });
  }

  // Points of these jobs, in order; several jobs of one contract are carried out once.
  std::vector<PrecisionPoint> measure(const PrecisionInputs& in, const std::vector<Job>& jobs) {
    std::map<std::pair<std::string, bool>, std::size_t> index;
    std::vector<const Job*> unique;
    for (const Job& j : jobs)
      if (!known_.count(precision_key(j.point)) && index.emplace(std::pair{j.point.contract, j.spread}, unique.size()).second) unique.push_back(&j);
    const std::size_t draws = static_cast<std::size_t>(in.draws);
    std::vector<std::vector<Draw>> results(unique.size(), std::vector<Draw>(draws));
    if (!unique.empty() && refs_.empty()) make(in);
    double share = 0;
    for (const Job* j : unique) share += work(*j, in);
    std::mutex mutex;
    parallel_for(static_cast<std::int64_t>(unique.size() * draws), [&](std::int64_t i) {
      const std::size_t job = static_cast<std::size_t>(i) / draws, draw = static_cast<std::size_t>(i) % draws;
      results[job][draw] = carry_out(*unique[job], in, refs_[draw], static_cast<int>(draw));
      const std::lock_guard lock(mutex);
      advance(work(*unique[job], in) / static_cast<double>(draws), unique[job]->point.study);
    });
    double all = 0;
    for (const Job& j : jobs) all += work(j, in);
    advance(all - share);                          // what was known, or the same
    std::vector<PrecisionPoint> points;
    for (const Job& j : jobs) {
      const auto at = known_.find(precision_key(j.point));
      if (at != known_.end()) {
        points.push_back(at->second);
        points_.push_back(at->second);
        continue;
      }
      PrecisionPoint p = j.point;
      fill(p, results[index.at({j.point.contract, j.spread})], refs_, j.spread);
      emit(p);
      points.push_back(std::move(p));
    }
    return points;
  }

  void emit(PrecisionPoint p) {
    known_.emplace(precision_key(p), p);
    if (o_.point) o_.point(p);
    points_.push_back(std::move(p));
  }

  void kernel(const PrecisionInputs& in, const Job& job) {
    const auto at = known_.find(precision_key(job.point));
    if (at != known_.end()) {
      points_.push_back(at->second);
      return advance(work(job, in));
    }
    KernelSession* session = nullptr;
    for (KernelSession* k : o_.kernels)
      if (k->info().name == job.point.kernel) session = k;
    if (refs_.empty()) make(in);
    PrecisionPoint p = job.point;
    const std::string why = measure_kernel(*session, in, refs_, p);
    advance(work(job, in), job.point.study);
    if (why.empty()) emit(std::move(p));
    else if (o_.note && said_.insert(job.point.kernel + why).second) o_.note(job.point.kernel, why);
  }

 public:
  static std::string measure_kernel(KernelSession& session, const PrecisionInputs& in, const std::vector<Reference>& refs, PrecisionPoint& p) {
    std::vector<HeadInputs> heads;
    for (const Reference& r : refs) heads.push_back(r.in);
    const Run run = precision_run(in, heads);
    const std::string reason = unsupported_reason(session.info().capabilities, session.info().contract, run);
    if (!reason.empty()) return reason;
    const Execution e = session.run(run, "precision");
    if (e.outcome != Outcome::ok) return "it fails: " + e.message;
    const KernelInfo& info = session.info();       // an adapter may say more after its first call
    p.kernel_version = info.version;
    p.device = info.device;
    p.packages = info.packages;
    const std::int64_t D = in.draws, V = in.V, KV = in.K * V;
    const Tensor &o = e.outputs.at("o"), &ht = e.outputs.at("ht");
    std::vector<Draw> draws(refs.size());
    for (std::int64_t d = 0; d < D; ++d) {
      const Reference& r = refs[static_cast<std::size_t>(d)];
      Draw& x = draws[static_cast<std::size_t>(d)];
      x.o = compare(r.truth.o, r.o, [&](std::size_t i) { return o.at((static_cast<std::int64_t>(i) / V * D + d) * V + static_cast<std::int64_t>(i) % V); });
      x.ht = compare(r.truth.ht, r.ht, [&](std::size_t i) { return ht.at(d * KV + static_cast<std::int64_t>(i)); });
    }
    fill(p, draws, refs, false);
    return "";
  }

 private:
  // From the errors of single points: the contract of least cost whose squares of errors, added up, stay below the target. Then it is
  // carried out; while it errs by more than the target, the next one is sought below a sharper target.
  void search(const Group& g) {
    std::map<const PrecisionStudySpec*, std::vector<const Job*>> by_study;
    for (const Job& j : g.jobs)
      if (j.study && j.study->search) by_study[j.study].push_back(&j);
    for (const auto& [study, jobs] : by_study) {
      const Job* base = nullptr;
      double base_error = 0;
      struct Option { Store store; double cost, error; };
      std::map<Point, std::vector<Option>> options;
      const auto error = [](const PrecisionPoint& p) {
        const double e = std::max(reports::rms(p.o_rms), reports::rms(p.ht_rms));
        return e * e;
      };
      for (const Job* j : jobs)
        if (j->point.axes.at("point") == "none") base = j;
      if (!base) continue;
      base_error = error(known_.at(precision_key(base->point)));
      for (const Job* j : jobs) {
        if (j == base) continue;
        const Point p = find_point(j->point.axes.at("point"));
        auto& list = options[p];
        if (list.empty()) list.push_back({base->contract.at(p), base->point.cost, 0});
        // Beyond what the rest errs anyway; never below 0.
        list.push_back({j->contract.at(p), j->point.cost, std::max(0.0, error(known_.at(precision_key(j->point))) - base_error)});
      }
      for (const int bits : {8, 11, 16}) {
        const double target = std::ldexp(1.0, -2 * bits);
        double allowed = target - base_error;
        for (int attempt = 1; attempt <= 8; ++attempt) {
          Contract c = base->contract;
          if (attempt == 8 || !(allowed > 0)) {    // nothing below the target was found: the base, which may miss it as well
            attempt = 8;
          } else {
            const auto choose = [&](double price) {   // per point the option of least cost + price * error
              double sum = 0;
              for (const auto& [p, list] : options) {
                const Option* best = nullptr;
                const auto value = [&](const Option& x) { return x.cost + (x.error == 0 ? 0 : price * x.error); };
                for (const Option& x : list)
                  if (!best || value(x) < value(*best)) best = &x;
                c.at(p) = best->store;
                sum += best->error;
              }
              return sum;
            };
            double lo = -60, hi = 200;             // log2 of the price
            for (int i = 0; i < 80; ++i) {
              const double mid = (lo + hi) / 2;
              (choose(std::exp2(mid)) <= allowed ? hi : lo) = mid;
            }
            choose(std::exp2(hi));
          }
          Settings axes = base->point.axes;
          axes.erase("point");
          axes["bits"] = std::to_string(bits);
          axes["attempt"] = std::to_string(attempt);
          const Job job{study, blank(study->view.name, axes, c, g.inputs), c, false};
          const std::vector<PrecisionPoint> made = measure_extra(g.inputs, {job});
          const double got = error(made[0]);
          if (got <= target) break;
          allowed *= std::min(0.8, 0.9 * target / got);
        }
      }
    }
  }

  // Jobs that were not planned, so that progress does not count them.
  std::vector<PrecisionPoint> measure_extra(const PrecisionInputs& in, const std::vector<Job>& jobs) {
    for (const Job& j : jobs) total_ += work(j, in);
    return measure(in, jobs);
  }

  void advance(double work, const std::string& what = "") {
    done_ += work;
    if (o_.progress) o_.progress(total_ > 0 ? std::min(1.0, done_ / total_) : 1, what);
  }

  const PrecisionOptions& o_;
  std::map<std::string, PrecisionPoint> known_;
  std::vector<PrecisionPoint> points_;
  std::vector<Reference> refs_;                    // of the group at hand
  std::set<std::string> said_;
  double total_ = 0, done_ = 0;
};

}  // namespace

PrecisionInputs parse_precision_inputs(std::string_view text) {
  PrecisionInputs in;
  std::set<std::string, std::less<>> seen;
  for (std::size_t at = 0; at < text.size();) {
    const std::string_view item = text.substr(at, text.find(',', at) - at);
    at += item.size() + 1;
    const std::size_t equals = item.find('=');
    if (equals == std::string_view::npos) fail(text, "'" + std::string(item) + "' is not key=value");
    if (!seen.emplace(item.substr(0, equals)).second) fail(text, "'" + std::string(item.substr(0, equals)) + "' is given twice");
    const std::int64_t V = in.V;
    apply(in, text, item.substr(0, equals), item.substr(equals + 1));
    if (item.substr(0, equals) == "K" && seen.count("V")) in.V = V;   // K stands for V too, unless that is named
  }
  return in;
}

std::string to_string(const PrecisionInputs& in) {
  const std::string beta = in.beta_min == in.beta_max ? text_of(in.beta_min) : text_of(in.beta_min) + ".." + text_of(in.beta_max);
  return "T=" + std::to_string(in.T) + ",K=" + std::to_string(in.K) + ",V=" + std::to_string(in.V) + ",io=" + name(in.io) + ",gate=" + text_of(in.gate) + ",beta=" + beta +
         ",keys=" + text_of(in.keys) + ",call=" + std::to_string(in.call) + ",draws=" + std::to_string(in.draws) + ",seed=" + std::to_string(in.seed);
}

HeadInputs precision_head(const PrecisionInputs& in, int draw) {
  const std::uint64_t seed = philox(in.seed, hash_name("precision"), static_cast<std::uint64_t>(draw));
  const Random kn(seed, "k"), kc(seed, "k.common"), qn(seed, "q"), vn(seed, "v"), gn(seed, "g"), bn(seed, "beta");
  const Store store{format_of(in.io)};
  const auto T = static_cast<std::size_t>(in.T), K = static_cast<std::size_t>(in.K), V = static_cast<std::size_t>(in.V);
  HeadInputs h;
  h.T = in.T;
  h.K = in.K;
  h.V = in.V;
  h.scale = precision_run(in, {}).problem.effective_scale();
  h.k.resize(T * K);
  h.q.resize(T * K);
  h.v.resize(T * V);
  h.g.resize(T);
  h.beta.resize(T);
  const auto normalised = [&](std::vector<double>& x) {
    double sum = 0;
    for (const double e : x) sum += e * e;
    const double inverse = 1 / std::sqrt(sum);
    for (double& e : x) e *= inverse;
  };
  const auto put = [&](std::vector<float>& to, std::size_t at, const std::vector<double>& x) {
    for (std::size_t d = 0; d < x.size(); ++d) to[at + d] = static_cast<float>(round_to(x[d], store));
  };
  const double shared = std::sqrt(in.keys), own = std::sqrt(1 - in.keys);
  std::vector<double> k(K), q(K), before;
  for (std::size_t t = 0; t < T; ++t) {
    for (std::size_t d = 0; d < K; ++d) k[d] = shared * kc.normal(d) + own * kn.normal(t * K + d);
    normalised(k);
    put(h.k, t * K, k);
    // The query asks for the key before as well as for something else, so that reads see what is stored.
    for (std::size_t d = 0; d < K; ++d) q[d] = qn.normal(t * K + d);
    normalised(q);
    for (std::size_t d = 0; d < K; ++d) q[d] = 0.8 * q[d] + 0.6 * (t ? before[d] : k[d]);
    normalised(q);
    put(h.q, t * K, q);
    before = k;
    for (std::size_t j = 0; j < V; ++j) h.v[t * V + j] = static_cast<float>(round_to(vn.normal(t * V + j), store));
    h.g[t] = static_cast<float>(-in.gate * (0.5 + gn.uniform(t)));
    h.beta[t] = static_cast<float>(in.beta_min + (in.beta_max - in.beta_min) * bn.uniform(t));
  }
  return h;
}

Run precision_run(const PrecisionInputs& in, const std::vector<HeadInputs>& heads) {
  Run run;
  Problem& p = run.problem;
  p.lengths = {in.T};
  p.heads = p.value_heads = in.draws;
  p.key_dim = in.K;
  p.value_dim = in.V;
  p.io = in.io;
  p.split = cuts(in);
  if (heads.empty()) return run;
  const std::int64_t D = in.draws, T = in.T;
  TensorSet& t = run.inputs;
  t["q"] = Tensor(p.io, {T, D, in.K});
  t["k"] = Tensor(p.io, {T, D, in.K});
  t["v"] = Tensor(p.io, {T, D, in.V});
  t["g"] = Tensor(p.gate, {T, D});
  t["beta"] = Tensor(p.beta, {T, D});
  for (std::int64_t d = 0; d < D; ++d) {
    const HeadInputs& h = heads[static_cast<std::size_t>(d)];
    for (const auto& [name, from, width] : {std::tuple{"q", &h.q, in.K}, {"k", &h.k, in.K}, {"v", &h.v, in.V}, {"g", &h.g, std::int64_t{1}}, {"beta", &h.beta, std::int64_t{1}}}) {
      Tensor& to = t.find(std::string_view(name))->second;
      for (std::int64_t i = 0; i < T * width; ++i) to.set((i / width * D + d) * width + i % width, static_cast<double>((*from)[static_cast<std::size_t>(i)]));
    }
  }
  Tensor cu(DType::i64, {2});
  cu.set_bits(1, static_cast<std::uint64_t>(T));
  t["cu_seqlens"] = std::move(cu);
  return run;
}

double contract_cost(const Contract& c, std::int64_t K, std::int64_t V) {
  const double k = static_cast<double>(K), v = static_cast<double>(V), C = c.form == Form::chunkwise ? c.chunk : 1, triangle = (C + 1) / 2;
  double sum = 0;
  for (std::size_t i = 0; i < kPoints; ++i) {
    const auto p = static_cast<Point>(i);
    if (!uses(c, p)) continue;
    double elements = 0;
    switch (p) {
      case Point::q_in: case Point::k_in: case Point::bk: case Point::W: elements = k; break;
      case Point::q_scaled: case Point::k_scaled: elements = unit(c, p) > 0 ? k : 0; break;
      case Point::v_in: case Point::bv: case Point::U: case Point::Vn_o: case Point::Vn_s: case Point::out: elements = v; break;
      case Point::beta: case Point::G: elements = 1; break;
      case Point::D: elements = c.form == Form::chunkwise ? triangle : 1; break;
      case Point::gram: elements = 3 * triangle; break;
      case Point::M: case Point::P: elements = triangle; break;
      case Point::S_op: elements = c.form == Form::chunkwise || unit(c, p) > 0 ? k * v / C : 0; break;   // recurrent: the carried state itself
      case Point::S_carried: elements = c.cadence == Cadence::call ? 0 : k * v / C; break;
      default: break;                              // ht: once a call
    }
    sum += elements * width(c.at(p));
  }
  return sum;
}

std::vector<PrecisionPoint> run_precision(const PrecisionOptions& o) { return Runner(o).run(plan(o)); }

std::vector<std::string> precision_commands(const std::vector<PrecisionPoint>& points) {
  struct Made { std::set<std::string> studies; std::vector<std::string> kernels; };
  std::map<std::pair<std::string, std::string>, Made> by;   // of a size and seed
  const std::vector<PrecisionStudySpec>& table = precision_studies();
  // A study of which any point is beyond size ci was made at size full.
  std::set<std::string> full;
  for (const PrecisionPoint& p : points)
    for (const PrecisionStudySpec& s : table)
      if (s.view.name == p.study)
        for (const PrecisionStudySpec::Axis& a : s.axes)
          if (const auto at = p.axes.find(a.name); at != p.axes.end() && a.name != "contract" && !a.full.empty() && std::find(a.ci.begin(), a.ci.end(), at->second) == a.ci.end()) full.insert(p.study);
  for (const PrecisionPoint& p : points) {
    const std::size_t seed = p.inputs.find("seed=");
    Made& made = by[{full.count(p.study) ? "full" : "ci", seed == std::string::npos ? "1" : p.inputs.substr(seed + 5)}];
    made.studies.insert(p.study);
    if (!p.kernel.empty() && std::find(made.kernels.begin(), made.kernels.end(), p.how) == made.kernels.end()) made.kernels.push_back(p.how);
  }
  std::vector<std::string> lines;
  for (const auto& [key, made] : by) {
    std::string line = "gdn-cts precision --size " + key.first + " --seed " + key.second;
    if (made.studies.size() < table.size())
      for (const PrecisionStudySpec& s : table)
        if (made.studies.count(s.view.name)) line += " --study " + s.view.name;
    for (const std::string& how : made.kernels) line += " " + how;
    lines.push_back(line + " -o DIR");
  }
  return lines;
}

std::vector<PrecisionPoint> precision_at(const PrecisionInputs& in, const std::vector<Contract>& contracts, const std::vector<KernelSession*>& kernels,
                                         bool spread, const decltype(PrecisionOptions::note)& note) {
  PrecisionOptions o;
  o.kernels = kernels;
  o.note = note;
  Group g{in, {}, {}};
  for (const Contract& c : contracts) g.jobs.push_back({nullptr, blank("one", {{"contract", to_string(c)}}, c, in), c, spread});
  for (const KernelSession* k : kernels) {
    Job job{nullptr, blank("one", {{"contract", to_string(k->info().contract)}}, k->info().contract, in), k->info().contract, false};
    job.point.kernel = k->info().name;
    job.point.how = k->info().how;
    g.kernels.push_back(std::move(job));
  }
  return Runner(o).run({g});
}

PrecisionPlan precision_plan(const PrecisionOptions& o) {
  PrecisionPlan p;
  std::set<std::string> known;
  for (const PrecisionPoint& d : o.done) known.insert(precision_key(d));
  for (const Group& g : plan(o)) {
    ++p.groups;
    std::size_t left = 0;
    std::set<std::pair<std::string, bool>> unique;
    for (const auto* list : {&g.jobs, &g.kernels})
      for (const Job& j : *list) {
        ++p.points;
        if (known.count(precision_key(j.point))) continue;
        ++left;
        if (unique.emplace(j.point.contract + j.point.kernel, j.spread).second) p.seconds += work(j, g.inputs);
      }
    if (left) p.seconds += oracle_work(g.inputs);
  }
  return p;
}

}  // namespace gdn
