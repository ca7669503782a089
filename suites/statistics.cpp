// Null distributions of the statistical check; see statistics.h.
#include "suites/statistics.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <limits>
#include <mutex>

#include "golden/sha256.h"
#include "reference/parallel.h"
#include "reference/rng.h"
#include "reference/sigma.h"
#include "reference/simulate.h"
#include "reference/standard.h"

namespace gdn {
namespace {

constexpr int kVersion = 3;                        // of what a cache file holds
// Deviations of the amplitude that must fit below its limit. It is a sum of many small terms, hence normal; 6 deviations, of a
// deviation known from 48 runs, are exceeded with a probability of 1.3e-7 (Student's t, 47 degrees of freedom).
constexpr double kAmplitudeSpreads = 6;

// A departure whose pattern other rounding scatters to less than twice this is left to the sizes of errors.
constexpr double kLeastLimit = 0.2;
constexpr std::size_t kKeptPatterns = std::size_t{1} << 25;   // numbers

enum Stratum : std::size_t { o_all, o_row, o_chunk, o_token, o_head, o_channel, ht_all, ht_head, ht_row, ht_column, strata };
constexpr const char* kStratumNames[strata] = {"o", "o by chunk row", "o by chunk", "o by token", "o by head", "o by channel",
                                               "ht", "ht by head", "ht by key channel", "ht by value channel"};
constexpr const char* kMeasures[] = {"rms", "bias", "bias along the sign"};
constexpr std::int64_t kLeast = 8;                 // elements of a stratum that is looked at

struct Sums {
  double n = 0, zz = 0, z = 0, zs = 0;             // count, sum of z^2, of z, of z sign(truth)
  void add(const Sums& x) { n += x.n, zz += x.zz, z += x.z, zs += x.zs; }
};

// Sums of one execution over all strata, and the greatest |z|.
struct Tally {
  std::array<std::vector<Sums>, strata> sums;
  double greatest[2] = {0, 0};                     // o, ht
  explicit Tally(const std::array<std::size_t, strata>& sizes) {
    for (std::size_t s = 0; s < strata; ++s) sums[s].resize(sizes[s]);
  }
  void add(const Tally& x) {
    for (std::size_t s = 0; s < strata; ++s)
      for (std::size_t i = 0; i < sums[s].size(); ++i) sums[s][i].add(x.sums[s][i]);
    for (int i = 0; i < 2; ++i) greatest[i] = std::max(greatest[i], x.greatest[i]);
  }
  std::vector<double> values() const {
    std::vector<double> v{greatest[0], greatest[1]};
    for (std::size_t s = 0; s < strata; ++s)
      for (int m = 0; m < 3; ++m) {
        double most = 0;
        for (const Sums& x : sums[s]) {
          if (x.n < kLeast) continue;
          const double value = m == 0 ? std::sqrt(x.zz / x.n) : std::fabs(m == 1 ? x.z : x.zs) / std::sqrt(x.n);
          most = value > most || !(value == value) ? value : most;
        }
        v.push_back(most);
      }
    return v;
  }
};

struct Shape {
  const Problem& p;
  int chunk;
  std::vector<std::int64_t> offsets;
  explicit Shape(const Run& run, const Contract& c) : p(run.problem), chunk(c.chunk > 1 ? c.chunk : 64), offsets(p.offsets()) {}
  std::array<std::size_t, strata> sizes() const {
    const auto u = [](std::int64_t x) { return static_cast<std::size_t>(x); };
    return {1, u(chunk), u(p.tokens() / chunk + 1 + p.sequences()), u(p.tokens()), u(p.value_heads), u(p.value_dim),
            1, u(p.value_heads), u(p.key_dim), u(p.value_dim)};
  }
};

// Adds z [rows,V] of one head (o of sequence n, or ht) with the signs of the truth; elements without sigma hold z = NaN.
void tally_head(Tally& t, const Shape& s, std::int64_t n, std::int64_t hv, bool state, const std::vector<double>& z, const std::vector<double>& truth) {
  const std::int64_t V = s.p.value_dim, rows = static_cast<std::int64_t>(z.size()) / V;
  const std::int64_t first = s.offsets[static_cast<std::size_t>(n)];
  for (std::int64_t r = 0; r < rows; ++r) {
    Sums row;
    for (std::int64_t v = 0; v < V; ++v) {
      const auto i = static_cast<std::size_t>(r * V + v);
      const double x = z[i];
      if (std::isnan(x)) continue;
      const Sums one{1, x * x, x, truth[i] > 0 ? x : truth[i] < 0 ? -x : 0};
      row.add(one);
      t.sums[state ? ht_column : o_channel][static_cast<std::size_t>(v)].add(one);
      t.greatest[state] = std::max(t.greatest[state], std::fabs(x));
    }
    const auto add = [&](Stratum k, std::int64_t at) { t.sums[k][static_cast<std::size_t>(at)].add(row); };
    if (state) {
      add(ht_all, 0), add(ht_head, hv), add(ht_row, r);
      continue;
    }
    std::int64_t start = 0;
    for (const std::int64_t cut : s.p.split)
      if (cut <= r) start = cut;
    add(o_all, 0), add(o_row, (r - start) % s.chunk), add(o_chunk, (first + r) / s.chunk), add(o_token, first + r), add(o_head, hv);
  }
}

// One head of a run: its own part of the run's tensors.
struct Head {
  std::int64_t n, hv;
  HeadInputs in;
  HeadResult hi, lo;
};

Head head_of(const Run& run, const Truth& truth, std::int64_t n, std::int64_t hv) {
  const Problem& p = run.problem;
  const std::int64_t HV = p.value_heads, V = p.value_dim, KV = p.key_dim * V, first = p.offsets()[static_cast<std::size_t>(n)];
  Head h{n, hv, head_inputs(run, n, hv), {}, {}};
  const auto gather = [&](const std::vector<double>& o, const std::vector<double>* ht, HeadResult& to) {
    for (std::int64_t t = 0; t < h.in.T; ++t)
      to.o.insert(to.o.end(), o.begin() + ((first + t) * HV + hv) * V, o.begin() + ((first + t) * HV + hv + 1) * V);
    if (ht) to.ht.assign(ht->begin() + (n * HV + hv) * KV, ht->begin() + (n * HV + hv + 1) * KV);
  };
  const auto ht = truth.find("ht");
  gather(truth.at("o").hi, ht == truth.end() ? nullptr : &ht->second.hi, h.hi);
  gather(truth.at("o").lo, ht == truth.end() ? nullptr : &ht->second.lo, h.lo);
  return h;
}

std::vector<double> errors(const std::vector<double>& got, const std::vector<double>& hi, const std::vector<double>& lo) {
  std::vector<double> e(hi.size());
  for (std::size_t i = 0; i < e.size(); ++i) e[i] = (got[i] - hi[i]) - lo[i];
  return e;
}

// e / sigma; NaN where there is no sigma, infinity where there is no number.
std::vector<double> in_sigma(const std::vector<double>& e, const std::vector<double>& sigma) {
  std::vector<double> z(e.size());
  for (std::size_t i = 0; i < z.size(); ++i)
    z[i] = !(sigma[i] > 0) ? std::numeric_limits<double>::quiet_NaN() : std::isnan(e[i]) ? std::numeric_limits<double>::infinity() : e[i] / sigma[i];
  return z;
}

// d / sigma of a departure, o then ht.
std::vector<float> pattern(const HeadResult& with, const HeadResult& without, const HeadResult& sigma, bool state) {
  std::vector<float> d;
  const auto add = [&](const std::vector<double>& a, const std::vector<double>& b, const std::vector<double>& s) {
    for (std::size_t i = 0; i < s.size(); ++i) d.push_back(s[i] > 0 ? static_cast<float>((a[i] - b[i]) / s[i]) : 0.0f);
  };
  add(with.o, without.o, sigma.o);
  if (state) add(with.ht, without.ht, sigma.ht);
  return d;
}

double dot(const std::vector<float>& d, const std::vector<double>& z_o, const std::vector<double>& z_ht) {
  double sum = 0;
  std::size_t at = 0;
  for (const auto* z : {&z_o, &z_ht})
    for (const double x : *z) {
      const double y = static_cast<double>(d[at++]);
      sum += y != 0 ? x * y : 0;
    }
  return sum;
}

// What one head adds to a null.
struct Part {
  HeadResult sigma;
  std::vector<Tally> tallies;                      // kNullRuns stochastic executions, then the others
  std::vector<double> energy;                      // per departure: sum(d^2 / sigma^2)
  std::vector<std::vector<double>> cross;          // per departure and execution: sum(e d / sigma^2); last: of one that departs
};

// Executions that a correct kernel may come near to, beside the stochastic ones: the contract carried out to nearest, the
// same with products fused or not, and with an exp that errs all one way by what the contract allows.
struct Variant { bool flip_fma; double exp_bias; };
std::vector<Variant> variants(const Contract& c) {
  const double bias = c.u_exp > 0 ? c.u_exp : 4 * unit_roundoff(arithmetic(c));
  return {{false, 0}, {true, 0}, {false, bias}, {false, -bias}};
}

Part part_of(const Contract& c, const Run& run, const Head& h, const Shape& shape, const std::vector<Departure>& all, std::uint64_t seed) {
  Part part;
  const bool state = !h.hi.ht.empty();
  part.sigma = sigma_head(c, h.in, seed, run.problem.split);
  for (double& s : part.sigma.o) s = std::isfinite(s) ? kept(s) : s;
  for (double& s : part.sigma.ht) s = std::isfinite(s) ? kept(s) : s;
  if (!state) part.sigma.ht.clear();
  std::vector<std::vector<double>> z_o, z_ht;
  const auto take = [&](HeadResult x) {
    if (!state) x.ht.clear();
    z_o.push_back(in_sigma(errors(x.o, h.hi.o, h.lo.o), part.sigma.o));
    z_ht.push_back(in_sigma(errors(x.ht, h.hi.ht, h.lo.ht), part.sigma.ht));
    part.tallies.emplace_back(shape.sizes());
    tally_head(part.tallies.back(), shape, h.n, h.hv, false, z_o.back(), h.hi.o);
    if (state) tally_head(part.tallies.back(), shape, h.n, h.hv, true, z_ht.back(), h.hi.ht);
  };
  for (int r = 0; r < kNullRuns; ++r)
    take(simulate(c, h.in, SimulationMode::stochastic, philox(seed, hash_name("null"), static_cast<std::uint64_t>(r)), run.problem.split));
  for (const Variant& v : variants(c)) {
    Contract other = c;
    other.fma = v.flip_fma ? !c.fma : c.fma;
    take(simulate(other, h.in, SimulationMode::nearest, seed, run.problem.split, v.exp_bias));
  }
  const HeadResult exact = depart(c, nullptr, h.in, run.problem.split);
  for (const Departure& d : all) {
    const std::vector<float> p = pattern(depart(c, &d, h.in, run.problem.split), exact, part.sigma, state);
    double energy = 0;
    for (const float x : p) energy += static_cast<double>(x) * static_cast<double>(x);
    part.energy.push_back(energy);
    std::vector<double> cross(z_o.size() + 1, 0.0);
    if (energy > 0) {
      for (std::size_t r = 0; r < z_o.size(); ++r) cross[r] = dot(p, z_o[r], z_ht[r]);
      const HeadResult x = depart_within(c, d, h.in, run.problem.split);
      cross.back() = dot(p, in_sigma(errors(x.o, h.hi.o, h.lo.o), part.sigma.o),
                         state ? in_sigma(errors(x.ht, h.hi.ht, h.lo.ht), part.sigma.ht) : std::vector<double>());
    }
    part.cross.push_back(std::move(cross));
  }
  return part;
}

// Puts a head's part into the run's tensors.
void place(const Problem& p, const Head& h, const HeadResult& from, HeadResult& to) {
  const std::int64_t HV = p.value_heads, V = p.value_dim, first = p.offsets()[static_cast<std::size_t>(h.n)];
  for (std::int64_t t = 0; t < h.in.T; ++t) std::copy_n(from.o.begin() + t * V, V, to.o.begin() + ((first + t) * HV + h.hv) * V);
  if (!from.ht.empty()) std::copy(from.ht.begin(), from.ht.end(), to.ht.begin() + (h.n * HV + h.hv) * p.key_dim * V);
}

std::vector<Head> heads_of(const Run& run, const Truth& truth) {
  std::vector<Head> heads;
  for (std::int64_t n = 0; n < run.problem.sequences(); ++n)
    for (std::int64_t hv = 0; hv < run.problem.value_heads; ++hv) heads.push_back(head_of(run, truth, n, hv));
  return heads;
}

RunNull make_null(const Contract& c, const Run& run, const Truth& truth, std::uint64_t case_seed) {
  RunNull null;
  const Problem& p = run.problem;
  const Shape shape(run, c);
  const std::vector<Departure> all = departures(c);
  const std::vector<Head> heads = heads_of(run, truth);
  std::vector<Part> parts(heads.size());
  parallel_for(static_cast<std::int64_t>(heads.size()), [&](std::int64_t i) {
    const auto at = static_cast<std::size_t>(i);
    parts[at] = part_of(c, run, heads[at], shape, all, philox(case_seed, hash_name("statistics"), static_cast<std::uint64_t>(i)));
  });
  null.sigma.o.assign(static_cast<std::size_t>((p.tokens() + p.padding) * p.value_heads * p.value_dim), 0.0);
  if (p.final_state) null.sigma.ht.assign(static_cast<std::size_t>(p.sequences() * p.value_heads * p.key_dim * p.value_dim), 0.0);
  for (std::size_t i = 0; i < heads.size(); ++i) place(p, heads[i], parts[i].sigma, null.sigma);
  for (const auto* s : {&null.sigma.o, &null.sigma.ht})
    if (std::any_of(s->begin(), s->end(), [](double x) { return !std::isfinite(x); })) null.why_not = "executions of the contract overflow on this case";
  if (!null.why_not.empty()) return null;

  std::vector<std::vector<double>> values;         // per execution
  for (std::size_t r = 0; r < parts[0].tallies.size(); ++r) {
    Tally sum(shape.sizes());
    for (const Part& part : parts) sum.add(part.tallies[r]);
    values.push_back(sum.values());
  }
  null.nearest = values[kNullRuns];
  const double c_statistic = gumbel_deviations(kFamilyWiseRate / kStatisticalTests);
  for (std::size_t s = 0; s < statistic_names().size(); ++s) {
    std::vector<double> x;
    for (int r = 0; r < kNullRuns; ++r) x.push_back(values[static_cast<std::size_t>(r)][s]);
    const Moments m = moments(x);
    double center = m.mean;
    for (std::size_t v = kNullRuns; v < values.size(); ++v) center = std::max(center, values[v][s]);
    null.limits.push_back(kept(center + c_statistic * m.deviation));
  }
  for (const std::size_t s : {o_all, ht_all})
    if (!(null.nearest[2 + 3 * s] <= kRegular))
      null.why_not = "executions of the contract to nearest err by " + std::to_string(null.nearest[2 + 3 * s]) + " sigma here, which is not regular";

  for (std::size_t d = 0; d < all.size(); ++d) {
    double energy = 0;
    std::vector<double> a(values.size() + 1, 0.0);
    for (const Part& part : parts) energy += part.energy[d];
    if (!(energy > 0) || !std::isfinite(energy)) continue;
    for (std::size_t r = 0; r < a.size(); ++r)
      for (const Part& part : parts) a[r] += part.cross[d][r] / energy;
    const Moments m = moments({a.begin(), a.begin() + kNullRuns});
    double center = std::fabs(m.mean);
    for (std::size_t v = kNullRuns; v < values.size(); ++v) center = std::max(center, std::fabs(a[v]));
    const double spread = center + kAmplitudeSpreads * m.deviation, limit = std::min(0.5, a.back() / 2);
    if (limit >= kLeastLimit && spread < limit) null.departures.push_back({d, all[d].name, kept(std::sqrt(energy)), kept(spread), kept(limit)});
  }
  return null;
}

// ---- cache -----------------------------------------------------------------------------------------------------------

TensorSet to_tensors(const RunNull& n, const Problem& p) {
  TensorSet t;
  const auto put = [&](const char* name, std::vector<std::int64_t> shape, const auto& value) {
    Tensor x(DType::f32, std::move(shape));
    for (std::int64_t i = 0; i < x.size(); ++i) x.set(i, value(static_cast<std::size_t>(i)));
    t.emplace(name, std::move(x));
  };
  const auto size = [](const auto& v) { return static_cast<std::int64_t>(v.size()); };
  put("sigma_o", {p.tokens() + p.padding, p.value_heads, p.value_dim}, [&](std::size_t i) { return n.sigma.o[i]; });
  if (!n.sigma.ht.empty()) put("sigma_ht", {p.sequences(), p.value_heads, p.key_dim, p.value_dim}, [&](std::size_t i) { return n.sigma.ht[i]; });
  put("limits", {size(n.limits)}, [&](std::size_t i) { return n.limits[i]; });
  put("nearest", {size(n.nearest)}, [&](std::size_t i) { return n.nearest[i]; });
  put("departures", {size(n.departures), 4}, [&](std::size_t i) {
    const DepartureNull& d = n.departures[i / 4];
    const double columns[] = {static_cast<double>(d.index), d.snr, d.spread, d.limit};
    return columns[i % 4];
  });
  return t;
}

RunNull from_tensors(const TensorSet& t, const Contract& c, const Problem& p) {
  RunNull n;
  const auto get = [&](const char* name, std::vector<double>& to, std::size_t size) {
    const auto x = t.find(name);
    if (x == t.end() || (size && static_cast<std::size_t>(x->second.size()) != size)) throw BadInput(std::string(name) + " is missing or has the wrong size");
    to.resize(static_cast<std::size_t>(x->second.size()));
    for (std::size_t i = 0; i < to.size(); ++i) to[i] = x->second.at(static_cast<std::int64_t>(i));
  };
  get("sigma_o", n.sigma.o, static_cast<std::size_t>((p.tokens() + p.padding) * p.value_heads * p.value_dim));
  if (p.final_state) get("sigma_ht", n.sigma.ht, static_cast<std::size_t>(p.sequences() * p.value_heads * p.key_dim * p.value_dim));
  get("limits", n.limits, statistic_names().size());
  get("nearest", n.nearest, statistic_names().size());
  std::vector<double> flat;
  get("departures", flat, 0);
  const std::vector<Departure> all = departures(c);
  for (std::size_t i = 0; i + 3 < flat.size(); i += 4) {
    const auto index = static_cast<std::size_t>(flat[i]);
    if (index >= all.size()) throw BadInput("departures do not fit the contract");
    n.departures.push_back({index, all[index].name, flat[i + 1], flat[i + 2], flat[i + 3]});
  }
  return n;
}

}  // namespace

double gumbel_deviations(double p) { return (-std::log(p) - 0.57721566490153286) * std::sqrt(6.0) / M_PI; }

// g++ 12 drops a cast to float and back after sqrt, so it is done on bits.
double kept(double x) { return round_to(x, Store{}); }

Moments moments(const std::vector<double>& x) {
  Moments m;
  for (const double v : x) m.mean += v / static_cast<double>(x.size());
  double squares = 0;
  for (const double v : x) squares += (v - m.mean) * (v - m.mean);
  m.deviation = std::sqrt(squares / static_cast<double>(x.size() - 1));
  return m;
}

bool complete(const Truth& truth, const TensorSet& got) {
  for (const auto& [name, t] : truth) {
    const auto x = got.find(name);
    if (x == got.end() || x->second.shape != t.shape) return false;
  }
  return true;
}

const std::vector<std::string>& statistic_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all{"greatest error of o", "greatest error of ht"};
    for (const char* s : kStratumNames)
      for (const char* m : kMeasures) all.push_back(std::string(m) + " of " + s);
    return all;
  }();
  return names;
}

using Patterns = std::vector<std::vector<std::vector<float>>>;   // per head and departure asked for

struct Statistics::State {
  const Golden& golden;
  Contract contract;
  std::filesystem::path cache;
  std::vector<std::unique_ptr<RunNull>> nulls;
  std::vector<std::unique_ptr<LayerNull>> layers;
  std::mutex mutex;
  // Patterns of the departures asked for, per run and head, kept when small: a power study judges hundreds of results.
  std::vector<std::shared_ptr<const Patterns>> patterns;
  State(const Golden& g, const Contract& c, std::filesystem::path dir) : golden(g), contract(c), cache(std::move(dir)), nulls(g.the_case.runs.size()), layers(nulls.size()), patterns(nulls.size()) {}

  std::filesystem::path file(std::size_t run, const Contract& narrowed) const {
    const std::string text = "gdn-null " + std::to_string(kVersion) + "\n" + kAccuracyEdition + "\n" + to_string(narrowed) + "\n" + std::to_string(run) + "\n" + golden.content() + "\n";
    return cache / (sha256_hex(text) + ".h5");
  }

  // The null, from the cache where it is there, else made and written there.
  template <class Null, class Make, class Read, class Write>
  const Null& obtain(std::unique_ptr<Null>& null, std::size_t index, Make&& make, Read&& read, Write&& write) {
    const std::lock_guard<std::mutex> held(mutex);
    if (null) return *null;
    const Run& run = golden.the_case.runs[index];
    const Contract narrowed = for_problem(contract, run.problem);
    const std::filesystem::path at = cache.empty() ? std::filesystem::path() : file(index, narrowed);
    if (!at.empty() && std::filesystem::exists(at)) {
      try {
        null = std::make_unique<Null>(read(read_tensors(at), narrowed, run.problem));
        return *null;
      } catch (const BadInput&) {                  // damaged: made and written again
      }
    }
    const auto start = std::chrono::steady_clock::now();
    null = std::make_unique<Null>(make(narrowed, run));
    null->seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (!at.empty() && null->why_not.empty()) {
      std::filesystem::create_directories(cache);
      write_tensors(at, case_id(golden.the_case), run.problem, write(*null, run.problem));
    }
    return *null;
  }
};

Statistics::Statistics(const Golden& g, const Contract& contract, std::filesystem::path cache)
    : s_(std::make_shared<State>(g, contract, std::move(cache))) {}

const RunNull& Statistics::of_run(std::size_t index) const {
  return s_->obtain(s_->nulls[index], index, [&](const Contract& narrowed, const Run& run) { return make_null(narrowed, run, s_->golden.truths[index], s_->golden.the_case.seed); },
                    [](const TensorSet& t, const Contract& narrowed, const Problem& p) { return from_tensors(t, narrowed, p); },
                    [](const RunNull& null, const Problem& p) { return to_tensors(null, p); });
}

const LayerNull& Statistics::of_layer(std::size_t index) const {
  const Truth& truth = s_->golden.truths[index];
  return s_->obtain(s_->layers[index], index, [&](const Contract& narrowed, const Run& run) { return layer_null(narrowed, run, truth, s_->golden.the_case.seed); },
                    [&](const TensorSet& t, const Contract&, const Problem&) { return from_tensors(t, truth); },
                    [&](const LayerNull& null, const Problem&) { return to_tensors(null, truth); });
}

StatisticValues Statistics::measure(std::size_t index, const TensorSet& outputs) const {
  const RunNull& null = of_run(index);
  const Run& run = s_->golden.the_case.runs[index];
  const Problem& p = run.problem;
  const Contract c = for_problem(s_->contract, p);
  const Shape shape(run, c);
  const std::vector<Departure> all = departures(c);
  const std::vector<Head> heads = heads_of(run, s_->golden.truths[index]);
  const auto plain = [](const Tensor& t) {
    std::vector<double> x(static_cast<std::size_t>(t.size()));
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = t.at(static_cast<std::int64_t>(i));
    return x;
  };
  // The outputs, cut into heads just as the truth is.
  const auto cut = [&](const HeadResult& whole, const Head& h) {
    Truth t;
    t["o"].hi = t["o"].lo = whole.o;
    if (!h.hi.ht.empty()) t["ht"].hi = t["ht"].lo = whole.ht;
    return head_of(run, t, h.n, h.hv).hi;
  };
  HeadResult got;
  got.o = plain(outputs.at("o"));
  if (p.final_state) got.ht = plain(outputs.at("ht"));
  const bool keep = null.departures.size() * (null.sigma.o.size() + null.sigma.ht.size()) <= kKeptPatterns;
  const auto fresh = std::make_shared<Patterns>(heads.size());
  std::shared_ptr<const Patterns> known;
  {
    const std::lock_guard<std::mutex> held(s_->mutex);
    known = s_->patterns[index];
  }
  struct Own { std::unique_ptr<Tally> tally; std::vector<double> cross; };
  std::vector<Own> own(heads.size());
  parallel_for(static_cast<std::int64_t>(heads.size()), [&](std::int64_t i) {
    const auto at = static_cast<std::size_t>(i);
    const Head& h = heads[at];
    const bool state = !h.hi.ht.empty();
    const HeadResult mine = cut(got, h), sigma = cut(null.sigma, h);
    const std::vector<double> z_o = in_sigma(errors(mine.o, h.hi.o, h.lo.o), sigma.o), z_ht = in_sigma(errors(mine.ht, h.hi.ht, h.lo.ht), sigma.ht);
    own[at].tally = std::make_unique<Tally>(shape.sizes());
    tally_head(*own[at].tally, shape, h.n, h.hv, false, z_o, h.hi.o);
    if (state) tally_head(*own[at].tally, shape, h.n, h.hv, true, z_ht, h.hi.ht);
    if (known) {
      for (const std::vector<float>& pattern_of : (*known)[at]) own[at].cross.push_back(dot(pattern_of, z_o, z_ht));
      return;
    }
    const HeadResult exact = depart(c, nullptr, h.in, p.split);
    for (const DepartureNull& d : null.departures) {
      std::vector<float> made = pattern(depart(c, &all[d.index], h.in, p.split), exact, sigma, state);
      own[at].cross.push_back(dot(made, z_o, z_ht));
      if (keep) (*fresh)[at].push_back(std::move(made));
    }
  });
  if (keep && !known) {
    const std::lock_guard<std::mutex> held(s_->mutex);
    s_->patterns[index] = fresh;
  }
  Tally sum(shape.sizes());
  StatisticValues v;
  v.amplitudes.assign(null.departures.size(), 0.0);
  for (const Own& o : own) {
    sum.add(*o.tally);
    for (std::size_t d = 0; d < v.amplitudes.size(); ++d) v.amplitudes[d] += o.cross[d] / (null.departures[d].snr * null.departures[d].snr);
  }
  v.values = sum.values();
  v.judged = static_cast<std::int64_t>(sum.sums[o_all][0].n + sum.sums[ht_all][0].n);
  return v;
}

}  // namespace gdn
