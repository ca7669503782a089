// Matched filter against the fault bank and the conventions; see identify.h.
#include "suites/identify.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <stdexcept>

#include "kernels/faulty/faults.h"
#include "reference/parallel.h"
#include "reference/recurrence.h"
#include "reference/rng.h"
#include "reference/sigma.h"
#include "reference/simulate.h"
#include "reference/strand.h"
#include "suites/standing.h"

namespace gdn {
namespace {
using I = std::int64_t;

// Errors and what suspects do are compared with their sizes compressed: up to kLinear sigma as they are, above by their logarithm. Else a few elements
// next to nothing, whose sigma is as small, would decide alone, and whatever changes them would explain everything.
constexpr double kLinear = 10;
double compressed(double z) {
  const double size = std::fabs(z);
  return size <= kLinear ? z : std::copysign(kLinear * (1 + std::log(size / kLinear)), z);
}

constexpr int kNulls = 24;
constexpr double kSure = 0.9;                      // of what is not rounding must be explained for a name,
constexpr double kMentioned = 0.5;                 // and for being mentioned as the nearest
constexpr std::size_t kKept = 4 * kRanked;         // of them some are found to show no more than rounding
constexpr double kSameSize = 2;                    // times larger or smaller an error may be than that of a fault
constexpr double kTie = 0.01;                      // of it two suspects may differ by and count as equal
constexpr double kWhole = 600;                     // token-heads of a case that is compared as a whole; of a larger one its worst head,
constexpr std::size_t kPool = 200000;              // elements of the outputs of a case with a pool that is compared: more take minutes
constexpr I kChannels = 16;                        // as far as kWhole reaches, in this many value channels, which do not see each other

// ---- a case as one long vector: the outputs of all runs ---------------------------------------------------------------
struct Block {
  std::size_t run, at, size, width;                // width: V
  std::string tensor;
  const TruthTensor* truth;                        // nullptr: the run has none, and only where it gives no numbers is compared
};
struct Layout {
  std::vector<Block> blocks;
  std::size_t size = 0, compared = 0;              // elements; of runs with a truth
  enum : std::uint8_t { no, weighed, always };
  std::vector<std::uint8_t> numbers;               // where a result that is no number is evidence: where its exact value is far from overflow, if it has a weight;
                                                   // in runs without truth where a kernel without a fault gives a number
  explicit Layout(const Golden& g) {
    const Case& c = g.the_case;
    for (std::size_t i = 0; i < c.runs.size() && i < g.truths.size(); ++i)
      for (const char* tensor : output_names(c.runs[i].problem)) {
        const auto truth = g.truths[i].find(std::string_view(tensor));
        const bool judged = c.runs[i].truth && truth != g.truths[i].end();
        if (c.runs[i].truth && !judged) continue;
        std::size_t elements = 1;
        for (const std::int64_t n : output_shape(c.runs[i].problem, tensor)) elements *= static_cast<std::size_t>(n);
        blocks.push_back({i, size, elements, static_cast<std::size_t>(c.runs[i].problem.value_dim), tensor, judged ? &truth->second : nullptr});
        size += elements;
        if (judged) compared += elements;
      }
  }
  std::size_t find(std::size_t run, std::string_view tensor) const {   // number of the block; blocks.size(): there is none
    std::size_t i = 0;
    while (i < blocks.size() && !(blocks[i].run == run && blocks[i].tensor == tensor)) ++i;
    return i;
  }
};

DType dtype_of(const Problem& p, std::string_view tensor) { return tensor == "o" ? p.io : p.state; }

// "past the end of o", whatever the place and the number of bytes.
std::set<std::string> without_numbers(const std::vector<Execution>& executions) {
  std::set<std::string> all;
  for (const Execution& e : executions)
    for (const std::string& v : e.violations)
      for (const char* what : {"past the end of ", "before the start of ", "between the rows of ", "input "})
        if (const auto at = v.find(what); at != std::string::npos) all.insert(v.substr(at, v.find_first_of(", ", at + std::string_view(what).size()) - at));
  return all;
}

// Rows (of V channels) where the runs break a relation that binds the kernel, as relation * 2^32 + row. The standings that it asks for are the same for all
// executions: after a first call others may follow from several threads.
std::set<std::uint64_t> broken_rows(const CheckInput& in, const std::vector<Execution>& executions) {
  std::set<std::uint64_t> rows;
  std::vector<TensorSet> results;
  if (!in.relations.empty())
    for (const Execution& e : executions) results.push_back(e.outputs);
  for (std::size_t i = 0; i < in.relations.size(); ++i) {
    const Relation& r = in.relations[i];
    if (!held_to(r, in)) continue;
    const Problem& p = in.golden.the_case.runs[r.rhs].problem;
    const Standings& standing = in.standings.of_run(r.rhs);
    for (const auto& [tensor, want] : r.expected(results)) {
      const auto got = results[r.rhs].find(tensor);
      if (got == results[r.rhs].end() || got->second.shape != want.shape) continue;
      std::set<I> skip;
      if (const auto s = r.skip.find(tensor); s != r.skip.end()) skip.insert(s->second.begin(), s->second.end());
      for (I e = 0; e < want.size(); ++e) {
        const double a = got->second.at(e), b = want.at(e);
        if (a == b || (std::isnan(a) && std::isnan(b)) || skip.count(e) || standing.of(tensor)[static_cast<std::size_t>(e)] != Standing::judged) continue;
        rows.insert((2 * i + (tensor == "o")) << 32 | static_cast<std::uint64_t>(e / p.value_dim));
      }
    }
  }
  return rows;
}

// The rounding that every kernel of the contract ends an output with: o, and states of fewer bits than the arithmetic has. None where it is drawn by lot.
std::optional<Store> last_rounding(const KernelInfo& kernel, const Problem& p, std::string_view tensor) {
  if (tensor != "o" && p.state == DType::f32) return std::nullopt;
  const Store last = for_problem(kernel.contract, p).at(tensor == "o" ? Point::out : Point::ht);
  return last.rounding == Rounding::stochastic ? std::nullopt : std::optional(last);
}

// Suspects in the order of their share, the best first; those within `tie` of it do as well as it.
void rank(Identification& id, std::vector<Resemblance> found, double tie, Evidence evidence) {
  std::stable_sort(found.begin(), found.end(), [](const Resemblance& a, const Resemblance& b) { return a.share > b.share; });
  id.ranked.clear();
  for (const Resemblance& x : found)
    if (x.share > 0 && id.ranked.size() < kRanked) id.ranked.push_back(x);
  for (Resemblance& x : id.ranked) x.correlation = x.share >= id.ranked[0].share - tie ? 1 : 0;
  if (!id.ranked.empty()) id.evidence = evidence;
}
double best_share(const std::vector<Resemblance>& found) {
  double best = 0;
  for (const Resemblance& x : found) best = std::max(best, x.share);
  return best;
}

double overlap_of(const std::set<std::uint64_t>& a, const std::set<std::uint64_t>& b) {
  std::size_t both = 0;
  for (const std::uint64_t x : a) both += b.count(x);
  return static_cast<double>(both) / static_cast<double>(std::max<std::size_t>(1, a.size() + b.size() - both));
}

// ---- sigma, and what correct executions show -------------------------------------------------------------------------
// Outputs are compared after their last rounding, that of the exact result included: what every correct kernel rounds alike
// is no error here, and a deviation below a unit in the last place shows where it turns that rounding over.
struct Yardstick {
  std::vector<double> weight;                      // 1/sigma; 0: not compared
  std::vector<double> exact;                       // the exact result as it is stored
  std::vector<std::vector<float>> nulls;           // errors of correct executions in sigma
  double typical = 0, most = 0;                    // sum of their squares: mean, and quantile
  std::string remark;

  Yardstick(const Layout& layout, const CheckInput& input)
      : weight(layout.size, 0.0), exact(layout.size, 0.0), nulls(kNulls + 1, std::vector<float>(layout.size)), stores_(layout.blocks.size()) {
    const Case& c = input.golden.the_case;
    const KernelInfo& kernel = input.kernel;
    for (std::size_t i = 0; i < layout.blocks.size(); ++i) {
      const Block& b = layout.blocks[i];
      stores_[i] = last_rounding(kernel, c.runs[b.run].problem, b.tensor);
      for (std::size_t e = 0; b.truth && e < b.size; ++e) exact[b.at + e] = stored(i, b.truth->hi[e]);
    }
    std::vector<double> squares(layout.size, 0.0);  // mean square of the errors of kSigmaRuns executions; of them and of the nulls
    struct Job { std::size_t run; Strand strand; I hv; };
    std::vector<Job> jobs;
    for (std::size_t i = 0; i < c.runs.size(); ++i) {
      if (!c.runs[i].truth) continue;
      for (const Strand& s : strands(c.runs[i]))
        for (I hv = 0; hv < c.runs[i].problem.value_heads; ++hv)
          if (!s.idle && !s.rows.empty()) jobs.push_back({i, s, hv});
    }
    parallel_for(static_cast<I>(jobs.size()), [&](I at) {
      const Job& job = jobs[static_cast<std::size_t>(at)];
      const Run& run = c.runs[job.run];
      const Problem& p = run.problem;
      const Contract contract = for_problem(kernel.contract, p);
      const HeadInputs in = head_inputs(run, job.strand, job.hv);
      const std::size_t none = layout.blocks.size(), o = layout.find(job.run, "o"), state = *job.strand.state ? layout.find(job.run, job.strand.state) : none;
      const std::uint64_t seed = philox(c.seed, hash_name("identify"), static_cast<std::uint64_t>(at));
      // f(element of the case, error of the execution there, from the exact result as it is stored)
      const auto each = [&](const HeadResult& x, auto f) {
        const auto error = [&](std::size_t i, std::size_t e, double got) {
          f(e, stores_[i] ? stored(i, got) - exact[e] : (got - exact[e]) - layout.blocks[i].truth->lo[e - layout.blocks[i].at]);
        };
        for (std::size_t t = static_cast<std::size_t>(job.strand.outputs); o < none && t < job.strand.rows.size(); ++t)
          for (I v = 0; v < p.value_dim; ++v)
            error(o, layout.blocks[o].at + static_cast<std::size_t>((job.strand.rows[t] * p.value_heads + job.hv) * p.value_dim + v), x.o[t * static_cast<std::size_t>(p.value_dim) + static_cast<std::size_t>(v)]);
        const I plane = p.key_dim * p.value_dim;
        for (I i = 0; state < none && i < plane; ++i)
          error(state, layout.blocks[state].at + static_cast<std::size_t>((job.strand.state_row * p.value_heads + job.hv) * plane + i), x.ht[static_cast<std::size_t>(i)]);
      };
      // The last rounding of o is not drawn by lot: it is done by stored(). That of a state is one more where the next call goes on from it.
      Contract open = contract;
      if (o < none && stores_[o]) open.at(Point::out) = Store{Format::fp64};
      const auto drawn = [&](const char* what, int r) { return simulate(open, in, SimulationMode::stochastic, philox(seed, hash_name(what), static_cast<std::uint64_t>(r)), job.strand.cuts); };
      for (int r = 0; r < kSigmaRuns; ++r)
        each(drawn("sigma", r), [&](std::size_t e, double error) { squares[e] += error * error / kSigmaRuns; });
      for (int r = 0; r <= kNulls; ++r)            // the last one rounds to nearest
        each(r < kNulls ? drawn("null", r) : simulate(contract, in, SimulationMode::nearest, seed, job.strand.cuts),
             [&](std::size_t e, double error) { nulls[static_cast<std::size_t>(r)][e] = static_cast<float>(error); });
    });
    std::size_t unrounded = 0, infinite = 0, counted = 0;
    for (const Block& b : layout.blocks) {
      if (!b.truth) continue;
      const Run& run = c.runs[b.run];
      const Standings& standing = input.standings.of_run(b.run);
      const Format format = format_of(dtype_of(run.problem, b.tensor));
      const auto ulps = [&](std::size_t from, std::size_t to) {          // a unit in the last place of the largest; 0 of zeros
        double size = 0;
        for (std::size_t e = from; e < to; ++e)
          if (std::isfinite(b.truth->hi[e])) size = std::max(size, std::fabs(b.truth->hi[e]));
        return size > 0 ? ulp_at(size, format) : 0;
      };
      double of_tensor = ulps(0, b.size);
      if (of_tensor == 0) of_tensor = 0x1p-22;     // a tensor of zeros has no size of its own
      std::vector<double> unit;                    // by row
      double turned = 1;                           // how often executions left the exact result by a unit, and once more: none seen does not mean never
      for (std::size_t row = 0; row < b.size; row += b.width) {
        unit.push_back(ulps(row, row + b.width));
        if (unit.back() == 0) unit.back() = of_tensor;
        for (std::size_t e = b.at + row; e < b.at + row + b.width; ++e) turned += kSigmaRuns * std::min(1.0, squares[e] / (unit.back() * unit.back()));
      }
      const double least = std::sqrt(std::min(1.0 / 12, turned / (kSigmaRuns * static_cast<double>(b.size))));
      for (std::size_t row = 0; row < b.size; row += b.width) {
        double pooled = 0;                           // the element's own executions are few
        for (std::size_t e = b.at + row; e < b.at + row + b.width; ++e) pooled += squares[e] / static_cast<double>(b.width);
        for (std::size_t e = row; e < row + b.width; ++e) {
          const Standing x = standing.of(b.tensor)[e];
          // Slots of a pool that nobody uses are compared too.
          if (x == Standing::tainted || (x == Standing::unowned && !(run.problem.pool() && b.tensor == "ht"))) continue;
          if (!std::isfinite(b.truth->hi[e]) || !std::isfinite(exact[b.at + e])) continue;
          ++counted;
          const double s = std::sqrt(0.7 * squares[b.at + e] + 0.3 * pooled), floor = least * unit[row / b.width];
          infinite += !std::isfinite(s);
          if (!std::isfinite(s)) continue;
          unrounded += s == 0;
          weight[b.at + e] = 1 / std::max(s, floor);
        }
      }
    }
    std::vector<double> energy;
    for (std::vector<float>& n : nulls) {
      double sum = 0;
      for (std::size_t e = 0; e < n.size(); ++e) {
        const double z = static_cast<double>(n[e]) * weight[e];
        n[e] = weight[e] > 0 && std::isfinite(z) ? static_cast<float>(compressed(z)) : 0.0f;
        sum += static_cast<double>(n[e]) * static_cast<double>(n[e]);
      }
      energy.push_back(sum);
    }
    double spread = 0;
    for (int r = 0; r < kNulls; ++r) typical += energy[static_cast<std::size_t>(r)] / kNulls;
    for (int r = 0; r < kNulls; ++r) spread += (energy[static_cast<std::size_t>(r)] - typical) * (energy[static_cast<std::size_t>(r)] - typical);
    most = std::max(typical, energy.back()) + kQuantile * std::sqrt(spread / (kNulls - 1));
    if (counted > 0 && 2 * infinite > counted) remark = "most elements are left out, where executions of the contract overflow";
    else if (counted > 0 && 2 * unrounded > counted) remark = "errors are weighed by units in the last place, since rounding changes few elements here";
  }
  // An output as the kernel stores it. Block by its number.
  double stored(std::size_t block, double x) const { return stores_[block] && std::isfinite(x) ? round_to(x, *stores_[block]) : x; }

 private:
  std::vector<std::optional<Store>> stores_;       // of outputs that are rounded alike by all; by block
};

// ---- suspects --------------------------------------------------------------------------------------------------------
struct Suspect {
  std::string name, mechanism;
  std::function<bool(Form)> has;
  std::function<std::vector<Execution>(Form, FaultScalar)> results;   // of the case; empty where it has none
  std::optional<Convention> declared;              // concerns kernels of this convention alone
  int alignment = 0;                               // concerns kernels that declare this alignment alone; its results come from memory laid out for it, and so do those without it
  bool is_for(const KernelInfo& k) const { return (!declared || *declared == k.convention) && (!alignment || alignment == k.capabilities.alignment); }
};

// What a fault of addressing does shows in calls on memory alone. They round, and so does the twin that they are compared with, alike.
std::vector<Execution> run_in_memory(const Fault& f, Form form, int alignment, const Case& c) {
  SessionOptions options;
  options.alignment = alignment;
  const std::unique_ptr<KernelSession> session = open_inline(faulty_kernel(f, form, FaultScalar::fp32)->name, options);
  std::vector<Execution> all;
  for (const Run& run : c.runs) {
    all.push_back(session->run(run, ""));
    if (all.back().outcome != Outcome::ok) return {};
  }
  return all;
}

std::vector<Suspect> suspects_of(const Case& c, const std::vector<Convention>& conventions, const std::set<int>& alignments) {
  std::vector<Suspect> all;
  for (const Fault& f : fault_bank()) {
    if (!concerns(f, c.problem)) continue;
    const auto has = [&f](Form form) { return f.has(form); };
    if (!misreads_memory(f)) all.push_back({f.name, f.mechanism, has, [&f, &c](Form form, FaultScalar scalar) { return run_fault(f, form, c.runs, scalar); }, {}});
    else
      for (const int alignment : alignments) all.push_back({f.name, f.mechanism, has, [&f, &c, alignment](Form form, FaultScalar) { return run_in_memory(f, form, alignment, c); }, {}, alignment});
  }
  for (const Convention& declared : conventions)
    for (const ConventionChange& real : neighbours(declared)) {
      const auto results = [&c, declared, real](Form form, FaultScalar scalar) {
        std::vector<Execution> executions;
        try {
          std::vector<Run> facts;
          for (const Run& run : c.runs) facts.push_back(mistaken_run(declared, real.convention, run));
          executions = run_fault(*find_fault("none"), form, facts, scalar);
          for (std::size_t i = 0; i < facts.size(); ++i) executions[i].outputs = mistaken_outputs(declared, real.convention, c.runs[i], std::move(executions[i].outputs));
        } catch (const std::invalid_argument&) {   // shows at once
          executions.clear();
        }
        return executions;
      };
      all.push_back({"convention " + real.name, "the kernel does what " + real.name + " means: " + real.meaning, [](Form) { return true; }, results, declared});
    }
  return all;
}

struct Signature {
  std::vector<double> value;                       // results with the suspect, NaN: no number; empty: nothing changes
  std::vector<std::size_t> missing;                // where the suspect gives no number
  std::set<std::string> violations;
};

// All outputs of the executions, one after the other; NaN where one is missing, or all are.
std::vector<double> flat(const Layout& layout, const std::vector<Execution>& executions) {
  std::vector<double> all(layout.size, std::numeric_limits<double>::quiet_NaN());
  for (const Block& b : layout.blocks) {
    if (executions.empty()) break;
    const TensorSet& outputs = executions[b.run].outputs;
    if (const auto x = outputs.find(b.tensor); x != outputs.end())
      for (std::size_t e = 0; e < b.size; ++e) all[b.at + e] = x->second.at(static_cast<I>(e));
  }
  return all;
}

Signature signature(const Layout& layout, const Case& c, const std::vector<Execution>& with, const std::vector<double>& without) {
  Signature s;
  if (with.empty()) return s;
  s.violations = without_numbers(with);
  std::vector<double> value = flat(layout, with);
  bool any = false;
  for (const Block& b : layout.blocks) {
    const double largest = info(format_of(dtype_of(c.runs[b.run].problem, b.tensor))).max_finite;
    for (std::size_t e = b.at; e < b.at + b.size; ++e) {
      if (value[e] == without[e]) continue;
      if (std::isnan(value[e]) && std::isnan(without[e])) {   // canaries may be NaN
        value[e] = without[e];
        continue;
      }
      any = true;
      if (std::fabs(value[e]) <= largest) continue;
      value[e] = std::numeric_limits<double>::quiet_NaN();
      s.missing.push_back(e);
    }
  }
  if (any) s.value = std::move(value);
  return s;
}

// Sums in eight parts, so that they are fast and the same with every compiler.
template <class A, class B>
double dot(const std::vector<A>& a, const std::vector<B>& b) {
  double part[8] = {};
  const std::size_t n = a.size(), whole = n / 8 * 8;
  for (std::size_t e = 0; e < whole; e += 8)
    for (std::size_t j = 0; j < 8; ++j) part[j] += static_cast<double>(a[e + j]) * static_cast<double>(b[e + j]);
  for (std::size_t e = whole; e < n; ++e) part[e - whole] += static_cast<double>(a[e]) * static_cast<double>(b[e]);
  return ((part[0] + part[4]) + (part[1] + part[5])) + ((part[2] + part[6]) + (part[3] + part[7]));
}

// Delta in sigma, compressed, shared by the results that it is compared with.
struct Pattern {
  std::vector<double> d;
  double energy = 0;

  Pattern(const Layout& layout, const std::vector<double>& with, const std::vector<double>& without, const Yardstick& y) : d(with.size()), y_(y) {
    for (std::size_t i = 0; i < layout.blocks.size(); ++i)
      for (std::size_t e = layout.blocks[i].at; e < layout.blocks[i].at + layout.blocks[i].size; ++e) {
        if (with[e] == without[e]) continue;
        const double x = (y.stored(i, with[e]) - y.stored(i, without[e])) * y.weight[e];
        d[e] = std::isfinite(x) ? compressed(x) : 0;
      }
    energy = dot(d, d);
  }
  // Quantile of z over correct executions.
  double limit() const {
    std::call_once(once_, [&] {
      if (!(energy > 0)) return;
      double squares = 0;
      for (int r = 0; r < kNulls; ++r) {
        const double z = dot(d, y_.nulls[static_cast<std::size_t>(r)]);
        squares += z * z / energy / kNulls;
      }
      limit_ = kQuantile * std::sqrt(squares) + std::max(0.0, dot(d, y_.nulls.back())) / std::sqrt(energy);
    });
    return limit_;
  }

 private:
  const Yardstick& y_;
  mutable std::once_flag once_;
  mutable double limit_ = 0;
};

double correlation(const Pattern& a, const Pattern& b) {
  return a.energy > 0 && b.energy > 0 ? dot(a.d, b.d) / std::sqrt(a.energy * b.energy) : a.energy == b.energy ? 1 : 0;
}

// ---- one result ------------------------------------------------------------------------------------------------------
struct Result {
  const CheckInput* in;
  const Yardstick* yardstick;
  Form form;
  std::vector<double> z;                           // errors in sigma, compressed; 0 where they are no numbers or not compared
  std::vector<std::size_t> missing;                // where they are no numbers
  std::set<std::string> violations;
  double energy = 0, fourth = 0;
  Identification id;
  struct Kept { Resemblance r; std::size_t index; double cost; std::shared_ptr<const Pattern> pattern; };
  std::vector<Kept> kept;
  std::unique_ptr<std::mutex> mutex = std::make_unique<std::mutex>();
};

// Of the bank's kernels, whose operands of the products are fp32 or bf16, those that are like this one.
FaultScalar own_precision(const Result& r) { return r.form == Form::chunkwise && unit(r.in->kernel.contract, Point::P) > 0 ? FaultScalar::bf16 : FaultScalar::fp32; }

Result result_of(const Layout& layout, const CheckInput& in, const Yardstick& y) {
  Result r{&in, &y, in.kernel.contract.form, std::vector<double>(layout.size, 0.0), {}, without_numbers(in.executions), 0, 0, {}, {}};
  r.id.remark = y.remark;
  for (const Block& b : layout.blocks) {
    const auto got = in.executions[b.run].outputs.find(b.tensor);
    // An output that is missing or of another shape has no errors to compare; soundness says what is wrong.
    if (got == in.executions[b.run].outputs.end() || got->second.size() != static_cast<I>(b.size)) {
      r.id.why_not = b.tensor + " is missing or of another shape";
      return r;
    }
    if (!b.truth) {
      for (std::size_t e = 0; e < b.size; ++e)
        if (layout.numbers[b.at + e] != Layout::no && !std::isfinite(got->second.at(static_cast<I>(e)))) r.missing.push_back(b.at + e);
      continue;
    }
    for (std::size_t e = 0; e < b.size; ++e) {
      const double w = y.weight[b.at + e], hi = b.truth->hi[e];
      if (w == 0) continue;
      const double value = got->second.at(static_cast<I>(e));
      if (!std::isfinite(value)) {
        if (layout.numbers[b.at + e] != Layout::no) r.missing.push_back(b.at + e);
        continue;
      }
      const double z = compressed(((value - y.exact[b.at + e]) - (y.exact[b.at + e] == hi ? b.truth->lo[e] : 0)) * w);
      r.z[b.at + e] = z;
      r.energy += z * z;
      r.fourth += z * z * z * z;
    }
  }
  return r;
}

void compare(const Layout& layout, Result& result, const Suspect& suspect, std::size_t index, const Signature& s, const std::shared_ptr<const Pattern>& pattern) {
  Resemblance r;
  r.name = suspect.name;
  r.mechanism = suspect.mechanism;
  if (result.violations.empty() != s.violations.empty() || (!s.violations.empty() && s.violations != result.violations)) r.overlap = 0;
  const Yardstick& y = *result.yardstick;
  double energy = result.energy, of_pattern = pattern ? pattern->energy : 0;
  std::size_t both = 0, missing = 0;
  for (const std::size_t e : s.missing) {
    if (layout.numbers[e] == Layout::no || (layout.numbers[e] == Layout::weighed && y.weight[e] == 0)) continue;
    ++missing;
    energy -= result.z[e] * result.z[e];
    both += std::binary_search(result.missing.begin(), result.missing.end(), e);
  }
  const std::size_t either = missing + result.missing.size() - both;
  if (either > 0) r.overlap *= static_cast<double>(both) / static_cast<double>(either);
  double cross = 0;
  if (pattern) {
    for (const std::size_t e : result.missing) of_pattern -= pattern->d[e] * pattern->d[e];
    cross = dot(result.z, pattern->d);
  }
  if (of_pattern > 0 && of_pattern >= 1e-12 * pattern->energy) {
    r.z = cross / std::sqrt(of_pattern);
    r.amplitude = cross / of_pattern;
  }
  energy = std::max(energy, 0.0);
  const double left = energy - (r.z > 0 ? r.z * r.z : 0);
  // The rest may be rounding, or rounding of the large wrong numbers that the fault makes.
  const bool evidence_elsewhere = !result.missing.empty() || !result.violations.empty();
  if (left <= y.most && (r.z > 0 || evidence_elsewhere)) r.share = 1;
  else r.share = r.z > 0 ? r.z * r.z / (r.z * r.z + left - std::min(left, y.typical)) : 0;
  r.share *= r.overlap;
  if (evidence_elsewhere && r.overlap == 0) return;
  if (!evidence_elsewhere && !(r.z > 0)) return;
  // Of another size it is the same shape by chance, or another slip of that shape.
  if (!evidence_elsewhere && (r.amplitude < 1 / kSameSize || r.amplitude > kSameSize)) return;
  if (r.overlap == 0) return;
  const double cost = energy - explained(r);
  const std::lock_guard lock(*result.mutex);
  auto& kept = result.kept;
  const auto before = [](const Result::Kept& a, const Result::Kept& b) {
    if (std::fabs(a.r.overlap - b.r.overlap) > 1e-9) return a.r.overlap > b.r.overlap;
    if (a.cost != b.cost) return a.cost < b.cost;
    return a.index < b.index;                      // the bank's order, not that of threads
  };
  kept.insert(std::upper_bound(kept.begin(), kept.end(), Result::Kept{r, index, cost, nullptr}, before), {r, index, cost, pattern});
  if (kept.size() > kKept) kept.pop_back();
}

void conclude(Result& r) {
  Identification& id = r.id;
  std::shared_ptr<const Pattern> best;
  for (Result::Kept& k : r.kept) {
    if (k.pattern) k.r.limit = k.pattern->limit();
    const bool numbers = r.missing.empty() && r.violations.empty();
    if (numbers && k.r.z <= k.r.limit) continue;   // no more of it than rounding shows
    if (id.ranked.size() == kRanked) break;
    if (!best) best = k.pattern;
    // Twins explain alike.
    else if (k.pattern) k.r.correlation = k.r.share > 0.8 * id.ranked[0].share ? correlation(*best, *k.pattern) : 0;
    id.ranked.push_back(k.r);
  }
  id.evidence = !r.violations.empty() ? Evidence::violations : !r.missing.empty() ? Evidence::missing_numbers : id.ranked.empty() ? Evidence::none : Evidence::values;
  id.elements = !r.missing.empty() ? static_cast<double>(r.missing.size()) : r.fourth > 0 ? r.energy * r.energy / r.fourth : 0;
}

// Nothing stands out of rounding: then the places where runs disagree that must agree; and where these are chance, because the runs
// differ by their rounding alone, which relations break in which outputs, of suspects that do no more in the kernel's precision either.
void compare_relations(const std::vector<Result*>& results, const std::vector<Suspect>& suspects, const Layout& layout, const Case& c, bool recurrent_alone) {
  struct Open { Result* r; std::set<std::uint64_t> broken; FaultScalar own; };
  std::vector<Open> open;
  for (Result* r : results)
    if (std::set<std::uint64_t> broken = broken_rows(*r->in, r->in->executions); !broken.empty())
      open.push_back({r, std::move(broken), own_precision(*r)});
  const auto kinds = [](const std::set<std::uint64_t>& rows) {
    std::set<std::uint64_t> all;
    for (const std::uint64_t row : rows) all.insert(row >> 32);
    return all;
  };
  const auto other = [](Form f) { return f == Form::recurrent ? Form::chunkwise : Form::recurrent; };
  std::map<Form, std::vector<double>> exact;
  // Places first, in double; relations and outputs for those that are not named then.
  for (const FaultScalar scalar : {FaultScalar::fp64, FaultScalar::fp32, FaultScalar::bf16}) {
    const bool places = scalar == FaultScalar::fp64;
    std::vector<Open*> now;
    for (Open& x : open)
      if (places || (x.own == scalar && named(x.r->id).empty())) now.push_back(&x);
    if (now.empty()) continue;
    std::vector<std::vector<Resemblance>> found(now.size(), std::vector<Resemblance>(suspects.size()));
    for (const Form form : {Form::recurrent, Form::chunkwise}) {
      const auto concerns = [&](const Suspect& s, const Open& x) { return s.is_for(x.r->in->kernel) && form == (recurrent_alone ? Form::recurrent : s.has(x.r->form) ? x.r->form : other(x.r->form)); };
      if (std::any_of(suspects.begin(), suspects.end(), [&](const Suspect& s) { return s.has(form) && std::any_of(now.begin(), now.end(), [&](const Open* x) { return concerns(s, *x); }); }) && !places)
        exact.try_emplace(form, flat(layout, run_fault(*find_fault("none"), form, c.runs)));
      parallel_for(static_cast<I>(suspects.size()), [&](I at) {
        const Suspect& s = suspects[static_cast<std::size_t>(at)];
        if (!s.has(form) || std::none_of(now.begin(), now.end(), [&](const Open* x) { return concerns(s, *x); })) return;
        const std::vector<Execution> plain = s.results(form, scalar);
        for (std::size_t i = 0; i < now.size() && !plain.empty(); ++i) {
          const Open& x = *now[i];
          if (!concerns(s, x)) continue;
          const CheckInput& in = *x.r->in;
          Resemblance& r = found[i][static_cast<std::size_t>(at)];
          r.name = s.name;
          r.mechanism = s.mechanism;
          if (places) {
            r.share = r.overlap = overlap_of(x.broken, broken_rows(in, plain));
            continue;
          }
          std::vector<Execution> stored = plain;     // as the kernel stores its outputs
          for (std::size_t run = 0; run < stored.size(); ++run)
            if (const auto o = stored[run].outputs.find("o"); o != stored[run].outputs.end()) {
              const std::optional<Store> store = last_rounding(in.kernel, c.runs[run].problem, "o");
              for (I e = 0; store && e < o->second.size(); ++e) o->second.set(e, round_to(o->second.at(e), *store));
            }
          const Signature changed = signature(layout, c, stored, exact.at(form));
          const bool more = !changed.missing.empty() || !changed.violations.empty() ||
                            (!changed.value.empty() && Pattern(layout, changed.value, exact.at(form), *x.r->yardstick).energy > x.r->yardstick->most);
          if (!more) r.share = r.overlap = overlap_of(kinds(x.broken), kinds(broken_rows(in, stored)));
        }
      });
    }
    for (std::size_t i = 0; i < now.size(); ++i) {
      Identification& id = now[i]->r->id;
      if (!places && best_share(found[i]) < kSure) continue;
      rank(id, std::move(found[i]), 0, Evidence::relations);
      id.elements = static_cast<double>(now[i]->broken.size());
    }
  }
}

// Faults that multiply rounding, such as inverses by products, leave errors whose signs are chance, and so nothing that a multiple of their delta
// explains: then how large errors are in which rows. Suspects are those whose delta in single precision is not explained by that in double.
void compare_sizes(const std::vector<Result*>& results, const std::vector<Suspect>& suspects, const Layout& layout, const Case& c, Form form) {
  const auto concerns = [&](const Suspect& s, const Result& r) { return !s.alignment && s.is_for(r.in->kernel) && r.form == form && s.has(form); };
  if (results.empty()) return;
  std::array<std::vector<double>, 2> without;      // in double, in single precision
  constexpr FaultScalar kScalars[] = {FaultScalar::fp64, FaultScalar::fp32};
  for (std::size_t i : {0, 1}) without[i] = flat(layout, run_fault(*find_fault("none"), form, c.runs, kScalars[i]));
  // ln(1 + mean square in sigma) of every row, and how many of its elements count
  const auto sizes = [&](const std::vector<double>& z) {
    std::vector<double> rows;
    for (const Block& b : layout.blocks)
      for (std::size_t row = b.at; row < b.at + b.size; row += b.width) {
        double squares = 0;
        for (std::size_t e = row; e < row + b.width; ++e) squares += z[e] * z[e];
        rows.push_back(std::log1p(squares / static_cast<double>(b.width)));
      }
    return rows;
  };
  std::vector<std::vector<double>> of_results;
  for (const Result* r : results) of_results.push_back(sizes(r->z));
  std::vector<std::vector<Resemblance>> found(results.size(), std::vector<Resemblance>(suspects.size()));
  parallel_for(static_cast<I>(suspects.size()), [&](I at) {
    const Suspect& s = suspects[static_cast<std::size_t>(at)];
    if (std::none_of(results.begin(), results.end(), [&](const Result* r) { return concerns(s, *r); })) return;
    std::array<Signature, 2> with;
    for (std::size_t i : {0, 1}) {
      with[i] = signature(layout, c, s.results(form, kScalars[i]), without[i]);
      if (with[i].value.empty() || !with[i].missing.empty() || !with[i].violations.empty()) return;
    }
    std::map<const Yardstick*, std::vector<double>> rows;   // empty: not of this sort
    for (std::size_t i = 0; i < results.size(); ++i) {
      const Result& r = *results[i];
      if (!concerns(s, r)) continue;
      auto [mean, first] = rows.try_emplace(r.yardstick);
      if (first) {
        const Pattern a(layout, with[0].value, without[0], *r.yardstick), b(layout, with[1].value, without[1], *r.yardstick);
        if (const double alike = correlation(a, b); alike * std::fabs(alike) < kSure) {
          mean->second = sizes(a.d);
          const std::vector<double> other = sizes(b.d);
          for (std::size_t k = 0; k < other.size(); ++k) mean->second[k] = (mean->second[k] + other[k]) / 2;
        }
      }
      if (mean->second.empty()) continue;
      double all = 0, left = 0;
      for (std::size_t k = 0; k < of_results[i].size(); ++k) {
        all += of_results[i][k] * of_results[i][k];
        left += (of_results[i][k] - mean->second[k]) * (of_results[i][k] - mean->second[k]);
      }
      Resemblance& x = found[i][static_cast<std::size_t>(at)];
      x.name = s.name;
      x.mechanism = s.mechanism;
      x.share = all > 0 ? std::max(0.0, 1 - left / all) : 0;
    }
  });
  for (std::size_t i = 0; i < results.size(); ++i)
    if (best_share(found[i]) >= kSure) rank(results[i]->id, std::move(found[i]), kTie, Evidence::sizes);
}

// ---- large cases -----------------------------------------------------------------------------------------------------
struct Part {
  Golden golden;
  std::vector<Execution> executions;
  std::string remark;
};

// The element with the greatest error in units of the bound, one that is no number before all others.
Location worst_of(const CheckInput& in, const Layout& layout) {
  double most = -1;
  Location where;
  for (const Block& b : layout.blocks) {
    if (!b.truth) continue;
    const Run& run = in.golden.the_case.runs[b.run];
    const Standings& standing = in.standings.of_run(b.run);
    const auto got = in.executions[b.run].outputs.find(b.tensor);
    for (std::size_t e = 0; got != in.executions[b.run].outputs.end() && e < b.size && static_cast<I>(e) < got->second.size(); ++e) {
      if (standing.of(b.tensor)[e] != Standing::judged) continue;
      const double error = std::fabs(got->second.at(static_cast<I>(e)) - b.truth->hi[e]);
      const double ratio = !std::isfinite(error) ? std::numeric_limits<double>::infinity() : error > 0 ? error / bound_of(in, b.run, b.tensor, static_cast<I>(e)) : 0;
      if (!(ratio > most)) continue;
      most = ratio;
      where = locate(run, b.run, b.tensor, static_cast<I>(e), 1);
    }
  }
  return where;
}

// One head of one sequence around the worst element, as a case of its own.
Part part_of(const CheckInput& in, const Location& where) {
  const Case& c = in.golden.the_case;
  const Run& run = c.runs[where.run];
  const Problem& p = run.problem;
  const I n = where.sequence, hv = where.head, h = hv / (p.value_heads / p.heads), K = p.key_dim, width = std::min(kChannels, p.value_dim);
  const I channel = std::min(where.column / kChannels * kChannels, p.value_dim - width), first = p.offsets()[static_cast<std::size_t>(n)];
  const I length = p.lengths[static_cast<std::size_t>(n)], T = std::min(length, static_cast<I>(kWhole * 16384 / static_cast<double>(K * width)));
  Part part;
  Golden& g = part.golden;
  g.edition = in.golden.edition;
  g.the_case.family = c.family;
  g.the_case.seed = c.seed;
  Run one;
  one.name = run.name;
  Problem& q = one.problem = p;
  q.scale = p.effective_scale();
  q.lengths = {T};
  q.heads = q.value_heads = 1;
  q.value_dim = width;
  q.padding = 0;
  q.strided = q.short_offsets = false;
  std::erase_if(q.split, [&](I cut) { return cut >= T; });
  q.final_state = p.final_state && T == length;
  g.the_case.problem = q;
  // Elements [rows,heads,width] of t: rows from..from+count, one head, columns from `column` on.
  const auto slice = [](const Tensor& t, I from, I count, I heads, I head, I of, I column, I columns, std::vector<std::int64_t> shape) {
    Tensor s(t.dtype, std::move(shape));
    for (I r = 0; r < count; ++r)
      for (I i = 0; i < columns; ++i) s.set_bits(r * columns + i, t.bits(((from + r) * heads + head) * of + column + i));
    return s;
  };
  const I state = (n * p.value_heads + hv) * K;
  for (const auto& [name, t] : run.inputs) {
    Tensor& to = one.inputs[name];
    if (name == "q" || name == "k") to = slice(t, first, T, p.heads, h, K, 0, K, {T, 1, K});
    else if (name == "v") to = slice(t, first, T, p.value_heads, hv, p.value_dim, channel, width, {T, 1, width});
    else if (name == "h0") to = slice(t, state, K, 1, 0, p.value_dim, channel, width, {1, 1, K, width});
    else if (name == "A_log" || name == "dt_bias") to = slice(t, hv, 1, 1, 0, 1, 0, 1, {1});
    else if (name != "cu_seqlens") to = slice(t, first, T, p.value_heads, hv, 1, 0, 1, {T, 1});
  }
  Tensor& cu = one.inputs["cu_seqlens"] = Tensor(DType::i64, {2});
  cu.set_bits(1, static_cast<std::uint64_t>(T));
  const auto truth = [&](const TruthTensor& t, I from, I count, I heads, I head, std::vector<std::int64_t> shape) {
    TruthTensor s;
    s.shape = std::move(shape);
    for (I r = 0; r < count; ++r)
      for (I i = 0; i < width; ++i) {
        const auto e = static_cast<std::size_t>(((from + r) * heads + head) * p.value_dim + channel + i);
        s.hi.push_back(t.hi[e]);
        s.lo.push_back(t.lo[e]);
        s.radius.push_back(t.radius[e]);
      }
    return s;
  };
  Execution e;
  const Truth& whole = in.golden.truths[where.run];
  const TensorSet& got = in.executions[where.run].outputs;
  g.truths.emplace_back();
  g.truths[0]["o"] = truth(whole.at("o"), first, T, p.value_heads, hv, {T, 1, width});
  e.outputs["o"] = slice(got.at("o"), first, T, p.value_heads, hv, p.value_dim, channel, width, {T, 1, width});
  if (q.final_state) {
    g.truths[0]["ht"] = truth(whole.at("ht"), state, K, 1, 0, {1, 1, K, width});
    e.outputs["ht"] = slice(got.at("ht"), state, K, 1, 0, p.value_dim, channel, width, {1, 1, K, width});
  }
  g.the_case.runs.push_back(std::move(one));
  part.executions.push_back(std::move(e));
  part.remark = "of this large case only head " + std::to_string(hv) + " of sequence " + std::to_string(n) + " is compared" +
                (T < length ? ", up to token " + std::to_string(T) : "") + ", so that no slip between heads or sequences is named";
  return part;
}

std::string number(double x) {
  char text[32];
  std::snprintf(text, sizeof text, std::fabs(x) < 10 ? "%.1f" : std::fabs(x) < 1e4 ? "%.0f" : "%.2g", x);
  return text;
}
std::string percent(double x) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f %%", 100 * x);
  return text;
}

}  // namespace

std::vector<Identification> identify(const std::vector<const CheckInput*>& results) {
  std::vector<Identification> all(results.size());
  if (results.empty()) return all;
  const Golden& g = results[0]->golden;
  const Case& c = g.the_case;
  if (own_tensors(c.problem)) {
    parallel_for(static_cast<I>(results.size()), [&](I i) { all[static_cast<std::size_t>(i)] = identify_stage(*results[static_cast<std::size_t>(i)]); });
    return all;
  }
  double token_heads = 0;
  const bool channels = gate_per_key_channel(c.problem.rule);
  for (const Run& run : c.runs) {
    token_heads += run.problem.token_heads();
    if (run.problem.rule == Rule::gated_delta || run.problem.rule == Rule::delta || (channels && gate_per_key_channel(run.problem.rule))) continue;
    for (Identification& id : all) id.why_not = std::string("the faults know no rule '") + name(run.problem.rule) + "'";
    return all;
  }
  Layout layout(g);
  const bool pool = std::any_of(c.runs.begin(), c.runs.end(), [](const Run& r) { return r.problem.pool(); });
  if (pool && layout.compared > kPool) {
    for (Identification& id : all) id.why_not = "the pool is too large to compare; gdn-cts minimize finds a smaller case";
    return all;
  }
  if (channels && token_heads > kWhole) {
    for (Identification& id : all) id.why_not = "a case with gates per key channel is too large to compare; gdn-cts minimize finds a smaller one";
    return all;
  }
  if (token_heads > kWhole && !pool && layout.compared > 0) {
    static const std::vector<Relation> none;
    for (std::size_t i = 0; i < results.size(); ++i) {
      const CheckInput& in = *results[i];
      bool whole = true;                           // an output that is missing or of another shape has nothing to cut
      for (const Block& b : layout.blocks) {
        const auto got = in.executions[b.run].outputs.find(b.tensor);
        whole = whole && got != in.executions[b.run].outputs.end() && got->second.size() == static_cast<I>(b.size);
      }
      if (!whole) {
        all[i].why_not = "an output is missing or of another shape";
        continue;
      }
      const Location worst = worst_of(in, layout);
      if (worst.sequence < 0) continue;            // nothing is judged
      const Part part = part_of(in, worst);
      all[i] = identify(CheckInput{part.golden, none, in.kernel, part.executions});
      all[i].remark += (all[i].remark.empty() ? "" : "; ") + part.remark;
    }
    return all;
  }
  std::vector<double> sound;
  if (layout.compared < layout.size) sound = flat(layout, run_fault(*find_fault("none"), Form::recurrent, c.runs, FaultScalar::fp32));
  for (const Block& b : layout.blocks) {
    const double largest = info(format_of(dtype_of(c.runs[b.run].problem, b.tensor))).max_finite;
    for (std::size_t e = 0; e < b.size; ++e)
      layout.numbers.push_back(b.truth ? (std::fabs(b.truth->hi[e]) < largest / 2 ? Layout::weighed : Layout::no) : std::isfinite(sound[b.at + e]) ? Layout::always : Layout::no);
  }
  std::map<std::string, std::unique_ptr<Yardstick>> yardsticks;   // by contract and what else decides which elements count
  std::vector<Result> work;
  for (const CheckInput* in : results) {
    auto& y = yardsticks[to_string(in->kernel.contract) + "/" + to_string(in->kernel.convention) + (in->kernel.properties.masks_select ? "/select" : "")];
    if (!y) y = std::make_unique<Yardstick>(layout, *in);
    work.push_back(result_of(layout, *in, *y));
  }
  std::vector<Convention> conventions;
  std::set<int> alignments;
  for (const CheckInput* in : results) {
    if (std::find(conventions.begin(), conventions.end(), in->kernel.convention) == conventions.end()) conventions.push_back(in->kernel.convention);
    alignments.insert(in->kernel.capabilities.alignment);
  }
  const std::vector<Suspect> suspects = suspects_of(c, conventions, alignments);
  const auto compare_all = [&](const std::vector<Result*>& some, FaultScalar scalar) {
    for (const Form form : {Form::recurrent, Form::chunkwise}) {
      if (some.empty() || ((pool || channels) && form != Form::recurrent)) continue;   // states in a pool and gates per key channel are there in the recurrent form alone
      // What only the recurrence can do wrong is compared with chunkwise results too; what needs chunks says nothing of a kernel that declares none.
      const auto concerns = [&](const Suspect& s, const Result& r) {
        return s.is_for(r.in->kernel) && r.id.why_not.empty() && s.has(form) && (pool || r.form == form || (r.form == Form::chunkwise && !s.has(r.form)));
      };
      const std::vector<double> exact = flat(layout, run_fault(*find_fault("none"), form, c.runs, scalar));
      std::map<int, std::vector<double>> in_memory;   // by alignment
      for (const int alignment : alignments) in_memory[alignment] = flat(layout, run_in_memory(*find_fault("none"), form, alignment, c));
      parallel_for(static_cast<I>(suspects.size()), [&](I at) {
        const Suspect& suspect = suspects[static_cast<std::size_t>(at)];
        if (std::none_of(some.begin(), some.end(), [&](const Result* r) { return concerns(suspect, *r); })) return;
        const std::vector<double>& without = suspect.alignment ? in_memory.at(suspect.alignment) : exact;
        const Signature s = signature(layout, c, suspect.results(form, scalar), without);
        if (s.value.empty() && s.violations.empty()) return;
        std::map<const Yardstick*, std::shared_ptr<const Pattern>> patterns;
        for (Result* r : some) {
          if (!concerns(suspect, *r)) continue;
          std::shared_ptr<const Pattern>& pattern = patterns[r->yardstick];
          if (!pattern && !s.value.empty()) pattern = std::make_shared<const Pattern>(layout, s.value, without, *r->yardstick);
          compare(layout, *r, suspect, static_cast<std::size_t>(at), s, pattern);
        }
      });
    }
    parallel_for(static_cast<I>(some.size()), [&](I i) { conclude(*some[static_cast<std::size_t>(i)]); });
  };
  const auto in_numbers = [](const Result& r) { return r.id.why_not.empty() && r.missing.empty() && r.violations.empty(); };
  std::vector<Result*> finite, others;
  for (Result& r : work) (r.missing.empty() ? finite : others).push_back(&r);
  compare_all(finite, FaultScalar::fp64);
  compare_all(others, FaultScalar::fp32);          // what is no number there is one in double more often
  for (const Form form : {Form::recurrent, Form::chunkwise}) {
    if ((pool || channels) && form != Form::recurrent) continue;
    std::vector<Result*> unnamed;
    for (Result& r : work)
      if (r.form == form && in_numbers(r) && r.energy > r.yardstick->most && named(r.id).empty()) unnamed.push_back(&r);
    compare_sizes(unnamed, suspects, layout, c, form);
  }
  std::vector<Result*> agreeing;                   // with rounding
  for (Result& r : work)
    if (r.id.ranked.empty() && in_numbers(r)) agreeing.push_back(&r);
  compare_relations(agreeing, suspects, layout, c, pool || channels);
  // What a fault does to values that are rounded anyway is hidden in double by the roundings that it takes the place of: kernels that are not named are
  // compared with the fault in their own precision, beside its twin there.
  for (const FaultScalar own : {FaultScalar::fp32, FaultScalar::bf16}) {
    std::vector<Result*> unnamed, again;
    std::vector<Result> fresh;
    for (Result& r : work)
      if (in_numbers(r) && own_precision(r) == own && named(r.id).empty()) unnamed.push_back(&r);
    for (const Result* r : unnamed) fresh.push_back(result_of(layout, *r->in, *r->yardstick));
    for (Result& r : fresh) again.push_back(&r);
    compare_all(again, own);
    for (std::size_t i = 0; i < fresh.size(); ++i)
      if (!named(fresh[i].id).empty()) unnamed[i]->id = std::move(fresh[i].id);
  }
  for (std::size_t i = 0; i < work.size(); ++i) all[i] = std::move(work[i].id);
  return all;
}

std::vector<Resemblance> named(const Identification& id, std::string_view without) {
  std::vector<Resemblance> list;
  double of_left_out = 0;
  for (const Resemblance& r : id.ranked)
    if (r.name == without) of_left_out = r.correlation;
  for (const Resemblance& r : id.ranked) {
    if (!without.empty() && (r.name == without || (of_left_out > kTwins && r.correlation > kTwins))) continue;
    if (list.empty()) {
      if (r.share < kSure) return {};
      list.push_back(r);
    } else if (r.overlap >= list[0].overlap - kTie && r.share >= list[0].share - kTie && explained(r) >= (1 - kTie) * explained(list[0]) - list[0].limit * list[0].limit) {
      list.push_back(r);
    }
  }
  return list;
}

std::string sentence(const Identification& id, std::string_view without) {
  if (!id.why_not.empty()) return "not compared: " + id.why_not;
  const std::vector<Resemblance> best = named(id, without);
  const auto remark = id.remark.empty() ? std::string() : "; " + id.remark;
  if (best.empty()) {
    for (const Resemblance& r : id.ranked)
      if (r.name != without && r.share >= kMentioned)
        return "nothing known; the nearest is " + r.name + ", which explains " + percent(r.share) + " of what is not rounding" + remark;
    return "nothing known" + remark;
  }
  const Resemblance& r = best[0];
  std::string text = r.name + ": " + r.mechanism + " (";
  const std::string places = id.elements == 1 ? "same element" : "same " + std::to_string(static_cast<long long>(id.elements)) + " elements";
  switch (id.evidence) {
    case Evidence::violations: text += "it touches the same memory outside the outputs"; break;
    case Evidence::missing_numbers: text += "NaN, Inf or nothing in the " + places; break;
    case Evidence::sizes: text += "errors of the same size in the same rows, by " + percent(r.share) + "; their signs are chance, since it multiplies rounding"; break;
    case Evidence::relations: text += "runs that must agree differ in the same places or outputs, within rounding"; break;
    default:
      if (r.z < 0.05) text += "the same deviations, far below a unit in the last place of the tensor, where rounding makes none";
      else text += "z=" + number(r.z) + " where rounding stays below " + number(std::max(r.limit, 0.1)) + ", explains " + percent(r.share) + " of what is not rounding";
  }
  text += remark + ")";
  if (best.size() > 1) {
    text += "; this case does not tell it from ";
    for (std::size_t i = 1; i < best.size() && i < 4; ++i) text += (i > 1 ? ", " : "") + best[i].name;
    if (best.size() > 4) text += " and " + std::to_string(best.size() - 4) + " more";
  }
  if (id.evidence != Evidence::sizes && id.evidence != Evidence::relations && id.evidence != Evidence::violations && id.elements < 2.5)
    text += "; the evidence is " + std::string(id.elements < 1.5 ? "one element" : "two elements") + ", which other slips leave as well";
  return text;
}

std::string resembles(const CheckInput& in) { return sentence(identify(in)); }

}  // namespace gdn
