// Checks: one way to judge a result each, one file each in suites/checks/, run in order().
#pragma once
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "golden/store.h"
#include "kernels/session.h"
#include "reference/bound.h"
#include "reference/layer.h"
#include "reference/stage_bound.h"
#include "reports/record.h"
#include "suites/exact.h"
#include "suites/statistics.h"

namespace gdn {

enum class Verdict : std::uint8_t { passed, failed, mistrusted, not_supported, skipped, runtime_error, timeout, untested };
const char* name(Verdict v);                       // "PASSED", ...

// Where a value sits, for people: sequence, token, head, channel, chunk and row; or state row and column.
struct Location {
  std::size_t run = 0;
  std::string run_name, tensor;                    // "o", "ht", "snapshots"; of a stage "L", ...
  std::int64_t element = -1, slot = -1, sequence = -1, token = -1, head = -1, row = -1, column = -1, chunk = -1, chunk_row = -1;
};

struct Finding {                                   // one element shown to a person
  Location where;
  double got = 0, expected_hi = 0, expected_lo = 0, radius = 0, bound = 0, ratio = 0;
  double error_ulp = 0;
  std::uint64_t got_bits = 0, expected_bits = 0;
  DType dtype = DType::f32;
  std::string detail;                              // for example the bound's largest terms
};

enum class CheckStatus : std::uint8_t { passed, failed, mistrusted, not_applicable };
struct CheckResult {
  std::string check;
  CheckStatus status = CheckStatus::passed;
  std::string clause;                              // of the accuracy standard
  std::string message;                             // one line when not passed
  std::optional<Finding> worst;
  std::optional<Location> first;                       // first failing output in token order
  std::string spread;                              // where the failing elements lie, see spread.h
  std::int64_t judged = 0, vacuous = 0, failing = 0;   // elements
  std::map<std::string, double> metrics;
  std::vector<RecordMap> maps;                     // of the base run, see RecordMap
};

// Bounds of the outputs of a run, in the shapes of the outputs; elements that are nobody's have none (0).
struct RunBounds {
  std::vector<double> o, ht, snapshots;
  StageBounds stage;                               // of a stage or a layer
  const std::vector<double>& of(std::string_view tensor) const {
    if (const auto at = stage.find(tensor); at != stage.end()) return at->second;
    return tensor == "o" ? o : tensor == "ht" ? ht : snapshots;
  }
};

// Error bounds of a case under a kernel's contract, made when first asked for and shared by the checks of the case.
class Bounds {
 public:
  Bounds(const Case& c, const Contract& contract) : case_(c), contract_(contract), runs_(c.runs.size()) {}
  // Made in parallel by heads, the same numbers at any thread count.
  const RunBounds& of_run(std::size_t run) const;
  Contract contract(std::size_t run) const;        // narrowed to the run's problem

 private:
  const Case& case_;
  const Contract& contract_;
  mutable std::vector<std::optional<RunBounds>> runs_;
};

// Exactness certificates of a case under a contract, in the same way.
class Certificates {
 public:
  Certificates(const Case& c, const Contract& contract) : case_(c), contract_(contract), runs_(c.runs.size()) {}
  const std::vector<ExactHead>& of_run(std::size_t run) const;     // index strand * HV + hv (reference/strand.h)
  bool any() const;                                // some head of some run is certified

 private:
  const Case& case_;
  const Contract& contract_;
  mutable std::vector<std::vector<ExactHead>> runs_;
};

// Which elements may be judged (suites/standing.h), in the same way.
struct Standings;
class CaseStandings {
 public:
  CaseStandings(const Case& c, const KernelInfo& kernel) : case_(c), kernel_(kernel), runs_(c.runs.size()) {}
  const Standings& of_run(std::size_t run) const;

 private:
  const Case& case_;
  const KernelInfo& kernel_;
  mutable std::vector<std::shared_ptr<const Standings>> runs_;
};

// A check sees this and nothing else. One CheckInput is used by one thread at a time.
struct CheckInput {
  const Golden& golden;                            // case, inputs, truth
  const std::vector<Relation>& relations;
  const KernelInfo& kernel;
  const std::vector<Execution>& executions;        // per run, all with outcome ok
  Bounds bounds{golden.the_case, kernel.contract};
  Certificates certificates{golden.the_case, kernel.contract};
  Statistics statistics{golden, kernel.contract};
  CaseStandings standings{golden.the_case, kernel};
};

class Check {
 public:
  virtual ~Check() = default;
  virtual std::string name() const = 0;
  virtual int order() const = 0;                   // as numbered in the accuracy standard, times 10
  virtual std::string rationale() const = 0;
  virtual std::string clause() const = 0;
  virtual CheckResult run(const CheckInput& in) const = 0;
};
const std::vector<const Check*>& checks();         // in order
const Check* find_check(std::string_view name);
struct RegisterCheck { explicit RegisterCheck(const Check* c); };

// Verdict of a run without looking at its results: of one that has to be refused, and of one that did not come to an end.
std::optional<Verdict> verdict_of(const Run& run, const Execution& e);

// Whether the kernel is held to a relation of the case, by the properties and the contract it declares.
bool held_to(const Relation& r, const CheckInput& in);
// Whether any relation of the case binds the kernel.
bool any_relation(const CheckInput& in);
// Why the statistical check says nothing of this case, one line; empty where it judges some run.
std::string no_statistics(const CheckInput& in);
std::string no_layer_statistics(const CheckInput& in);   // the same of layers
// Whether a run of a layer is judged by the size of its errors: its contract scatters, or its bound exceeds the signal in more than half of its elements.
bool judged_by_size(const CheckInput& in, std::size_t run);

// chunk: rows per chunk of the kernel's contract, counted from the start of the call that the token is in; 1: no chunks. Of a
// stage the problem's chunks count.
Location locate(const Run& run, std::size_t run_index, std::string_view tensor, std::int64_t element, int chunk);
std::string to_string(const Location& l);          // "sequence 0 token 63 head 2 channel 17 (chunk 0 row 63)"

}  // namespace gdn
