// Error against precision: what each storage format at each point of the algorithm costs in accuracy. Contracts are carried out
// (reference/simulate.h) on drawn inputs and compared with certified truth; kernels are measured on the same inputs.
// The studies are a table (precision_studies.cpp); results are points (reports/precision.h).
#pragma once
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/session.h"
#include "reference/contract.h"
#include "reference/head.h"
#include "reports/precision.h"

namespace gdn {

// A set of inputs. Text form: comma-separated key=value, every key optional, for example
//   T=1024,K=64,V=64,io=bf16,gate=0.01,beta=0..1,keys=0.3,call=0,draws=4,seed=1
// Draw d is one head of one sequence. Token t of a draw is the same at every T. The state is zero before it.
struct PrecisionInputs {
  std::int64_t T = 1024, K = 64, V = 64;
  DType io = DType::f32;                           // q, k, v are exact in it, and o is returned in it
  double gate = 0.01;                              // mean decay: g uniform in -(0.5 .. 1.5) gate; 0: no decay
  double beta_min = 0, beta_max = 1;               // beta uniform between them
  double keys = 0.3;                               // mean cosine of two keys, which have norm 1; 1: one key for all tokens
  std::int64_t call = 0;                           // tokens of a call, the state handed over between them; 0: one call
  int draws = 4;
  std::uint64_t seed = 1;
};
PrecisionInputs parse_precision_inputs(std::string_view text);   // throws std::invalid_argument, one line
std::string to_string(const PrecisionInputs& in);                // canonical, every key
HeadInputs precision_head(const PrecisionInputs& in, int draw);
Run precision_run(const PrecisionInputs& in, const std::vector<HeadInputs>& heads);   // all draws as the heads of one sequence

// What the stores of a contract hold per token and value head, in bits: elements that a point keeps, times the bits of its
// format (tf32: 19). Triangles count half, states once a chunk (or token), the operand of a decay only where it is formed
// (narrow). A measure of traffic and of operand width, good for comparing contracts of one form and chunk size.
double contract_cost(const Contract& c, std::int64_t K, std::int64_t V);

struct PrecisionStudySpec {
  PrecisionStudy view;                             // view.spread: sigma and bound are made beside the error
  // Settings, later ones over earlier: keys of PrecisionInputs, `contract`, options of a contract by their name (chunk, solve, ...),
  // point and format (that point stored in it), rounding (of every point narrower than the arithmetic).
  std::vector<std::pair<std::string, std::string>> fixed;
  struct Axis { std::string name; std::vector<std::string> ci, full; };   // full empty: as ci. The value * of `point`: every point
  std::vector<Axis> axes;
  bool measured = false;                           // kernels are run on its inputs
  bool search = false;                             // after it: the cheapest contract for each number of bits
};
const std::vector<PrecisionStudySpec>& precision_studies();      // in the order of the page
std::vector<PrecisionStudy> precision_views();

struct PrecisionOptions {
  const std::vector<PrecisionStudySpec>* table = &precision_studies();
  std::vector<std::string> studies;                // names; empty: all
  bool full = false;                               // size full, else ci
  std::uint64_t seed = 1;
  std::vector<KernelSession*> kernels;
  std::vector<PrecisionPoint> done;                // of an earlier part of this run: not made again
  std::function<void(const PrecisionPoint&)> point;             // every new point, in an order that depends on nothing else
  std::function<void(double share, const std::string& what)> progress;
  std::function<void(const std::string& kernel, const std::string& why)> note;   // inputs that a kernel could not be measured on
};
// Throws std::invalid_argument for an unknown study. Returns all points of the plan in order, done ones included.
std::vector<PrecisionPoint> run_precision(const PrecisionOptions& o);
// The command lines that make these points, one for each size and seed: a page says them even where it is made from points alone.
std::vector<std::string> precision_commands(const std::vector<PrecisionPoint>& points);
// One contract, and the kernels, on one set of inputs; study "one".
std::vector<PrecisionPoint> precision_at(const PrecisionInputs& in, const std::vector<Contract>& contracts, const std::vector<KernelSession*>& kernels,
                                         bool spread, const decltype(PrecisionOptions::note)& note = {});
struct PrecisionPlan { std::size_t points = 0, groups = 0; double seconds = 0; };
// How much there is to do, and about how long it takes on one processor.
PrecisionPlan precision_plan(const PrecisionOptions& o);

}  // namespace gdn
