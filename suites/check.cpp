// Registry of checks, locations and shared bounds; see check.h.
#include "suites/check.h"
#include "reference/parallel.h"

#include <algorithm>
#include <exception>

#include "reference/strand.h"
#include "suites/family.h"
#include "suites/signal.h"
#include "suites/standing.h"

namespace gdn {
namespace {
constexpr const char* kVerdicts[] = {"PASSED", "FAILED", "MISTRUSTED", "NOT_SUPPORTED", "SKIPPED", "RUNTIME_ERROR", "TIMEOUT", "UNTESTED"};

std::vector<const Check*>& registry() {
  static std::vector<const Check*> r;
  return r;
}
}  // namespace

const char* name(Verdict v) { return kVerdicts[static_cast<int>(v)]; }

RegisterCheck::RegisterCheck(const Check* c) {
  auto& r = registry();
  r.insert(std::upper_bound(r.begin(), r.end(), c, [](auto* a, auto* b) { return a->order() < b->order(); }), c);
}

const std::vector<const Check*>& checks() { return registry(); }

const Check* find_check(std::string_view name) {
  for (const Check* c : registry())
    if (c->name() == name) return c;
  return nullptr;
}

std::optional<Verdict> verdict_of(const Run& run, const Execution& e) {
  if (run.refuse && e.outcome == Outcome::ok) return Verdict::failed;
  if (run.refuse && (e.outcome == Outcome::not_supported || e.outcome == Outcome::error)) return Verdict::passed;
  switch (e.outcome) {
    case Outcome::ok: return std::nullopt;
    case Outcome::not_supported: return Verdict::not_supported;
    case Outcome::timeout: return Verdict::timeout;
    case Outcome::error: case Outcome::crashed: break;
  }
  return Verdict::runtime_error;
}

bool held_to(const Relation& r, const CheckInput& in) {
  const KernelInfo& kernel = in.kernel;
  const Properties& p = kernel.properties;
  const Contract contract = in.bounds.contract(r.rhs);
  // A state that is rounded at the end of a call only goes on with other numbers after a cut.
  if ((r.row == 20 || r.row == 21 || r.row == 37) && (unit(contract, Point::ht) > unit(contract, Point::S_carried) || contract.cadence == Cadence::call))
    return false;
  // So does a layer whose projections are rounded in its history only.
  if ((r.row == 21 || r.row == 37) && in.golden.the_case.runs[r.rhs].problem.layer()) {
    const FormatInfo &kept = info(contract.at(LayerPoint::proj).format), &handed = info(contract.at(LayerPoint::conv_state).format);
    if (kept.precision > handed.precision || kept.emin - kept.precision < handed.emin - handed.precision) return false;
  }
  // Powers of two are exact in the range of fp32 and bf16 only.
  if (r.row >= 8 && r.row <= 10)
    for (std::size_t i = 0; i < kPoints; ++i)
      if (uses(kernel.contract, static_cast<Point>(i)) && info(kernel.contract.points[i].format).emin > -126) return false;
  // Lengths of q and k do not reach a kernel that normalises them itself.
  if ((r.row == 9 || r.row == 10) && kernel.convention.l2norm == L2Norm::in_kernel) return false;
  if (!p.deterministic) return false;
  switch (r.cls) {
    case RelationClass::bit: case RelationClass::deterministic: return true;
    case RelationClass::shape_invariant: return p.shape_invariant;
    case RelationClass::masks_select: return p.masks_select;
    case RelationClass::symmetric_rounding: return p.symmetric;
    case RelationClass::steps_as_prefill: return p.steps_as_prefill;
    case RelationClass::recurrent: return p.shape_invariant && kernel.contract.form == Form::recurrent;
  }
  return false;
}

bool any_relation(const CheckInput& in) {
  return std::any_of(in.relations.begin(), in.relations.end(), [&](const Relation& r) { return held_to(r, in); });
}

std::string no_statistics(const CheckInput& in) {
  const Family* family = find_family(in.golden.the_case.family);
  if (!family || !family->random()) return "the family's inputs are not random";
  if (in.kernel.convention.l2norm == L2Norm::in_kernel) return "keys are normalised inside the kernel, which the contract does not describe";
  std::string why = "no run has a truth";
  for (std::size_t i = 0; i < in.golden.the_case.runs.size() && i < in.golden.truths.size(); ++i)
    if (in.golden.the_case.runs[i].truth && (why = in.statistics.of_run(i).why_not).empty()) break;
  return why;
}

bool judged_by_size(const CheckInput& in, std::size_t index) {
  const Run& run = in.golden.the_case.runs[index];
  if (!run.problem.layer() || !run.truth || index >= in.golden.truths.size()) return false;
  if (scatters(in.bounds.contract(index))) return true;
  const Standings& standing = in.standings.of_run(index);
  std::int64_t elements = 0, vacuous = 0;
  for (const auto& [tensor, truth] : in.golden.truths[index]) {
    const Signal signal(truth, tensor == "y");
    const std::vector<double>& bound = in.bounds.of_run(index).of(tensor);
    for (std::size_t e = 0; e < truth.hi.size(); ++e) {
      if (standing.of(tensor)[e] != Standing::judged) continue;
      ++elements;
      vacuous += !(bound[e] <= signal.at(static_cast<std::int64_t>(e)));
    }
  }
  return 2 * vacuous > elements;
}

std::string no_layer_statistics(const CheckInput& in) {
  std::string why = "no run of a layer has a truth";
  for (std::size_t i = 0; i < in.golden.the_case.runs.size() && i < in.golden.truths.size(); ++i) {
    if (!in.golden.the_case.runs[i].problem.layer() || !in.golden.the_case.runs[i].truth) continue;
    if (!judged_by_size(in, i)) why = "the bound decides";
    else if ((why = in.statistics.of_layer(i).why_not).empty()) break;
  }
  return why;
}

const Standings& CaseStandings::of_run(std::size_t run) const {
  if (!runs_[run]) runs_[run] = std::make_shared<const Standings>(standings(case_.runs[run], kernel_));
  return *runs_[run];
}

Contract Bounds::contract(std::size_t run) const { return for_problem(contract_, case_.runs[run].problem); }

const std::vector<ExactHead>& Certificates::of_run(std::size_t index) const {
  std::vector<ExactHead>& heads = runs_[index];
  const Run& run = case_.runs[index];
  if (!heads.empty() || own_tensors(run.problem)) return heads;   // exact_stage.h has those of stages; a layer has none
  const std::vector<Strand> all = strands(run);
  const std::int64_t HV = run.problem.value_heads, count = static_cast<std::int64_t>(all.size()) * HV;
  const Contract narrowed = for_problem(contract_, run.problem);
  std::vector<ExactHead> made(static_cast<std::size_t>(count));
  parallel_for(count, [&](std::int64_t i) {
    const Strand& s = all[static_cast<std::size_t>(i / HV)];
    if (s.idle) return;                            // soundness compares its bits
    made[static_cast<std::size_t>(i)] = exact_head(narrowed, head_inputs(run, s, i % HV), s.cuts);
  });
  heads = std::move(made);
  return heads;
}

bool Certificates::any() const {
  for (std::size_t i = 0; i < runs_.size(); ++i)
    if (case_.runs[i].truth)
      for (const ExactHead& h : of_run(i))
        if (h.certified) return true;
  return false;
}

const RunBounds& Bounds::of_run(std::size_t index) const {
  if (runs_[index]) return *runs_[index];
  const Run& run = case_.runs[index];
  const Problem& p = run.problem;
  const Contract narrowed = contract(index);
  if (own_tensors(p)) {
    RunBounds made;
    made.stage = p.layer() ? layer_bound(narrowed, run) : stage_bound(narrowed, run);
    runs_[index] = std::move(made);
    return *runs_[index];
  }
  const std::vector<Strand> list = strands(run);
  const std::int64_t HV = p.value_heads, V = p.value_dim, KV = p.key_dim * V, count = static_cast<std::int64_t>(list.size()) * HV;
  RunBounds all;
  all.o.resize(static_cast<std::size_t>((p.tokens() + p.padding) * HV * V));   // of padding: 0, nobody asks
  if (p.final_state) all.ht.resize(static_cast<std::size_t>(p.states() * HV * KV));
  if (p.operation == Operation::verify) all.snapshots.resize(static_cast<std::size_t>(p.tokens() * HV * KV));
  parallel_for(count, [&](std::int64_t i) {
    const Strand& s = list[static_cast<std::size_t>(i / HV)];
    const std::int64_t hv = i % HV;
    if (s.idle) return;
    const HeadResult head = bound_head(narrowed, head_inputs(run, s, hv), s.cuts);
    for (std::size_t t = static_cast<std::size_t>(s.outputs); t < s.rows.size(); ++t)
      std::copy_n(head.o.begin() + static_cast<std::int64_t>(t) * V, V, all.o.begin() + (s.rows[t] * HV + hv) * V);
    if (*s.state) std::copy_n(head.ht.begin(), KV, (s.state[0] == 'h' ? all.ht : all.snapshots).begin() + (s.state_row * HV + hv) * KV);
  });
  runs_[index] = std::move(all);
  return *runs_[index];
}

Location locate(const Run& run, std::size_t run_index, std::string_view tensor, std::int64_t element, int chunk) {
  const Problem& p = run.problem;
  Location l;
  l.run = run_index;
  l.run_name = run.name;
  l.tensor = tensor;
  l.element = element;
  if (p.layer() && tensor != "ht") {
    const std::vector<std::int64_t> shape = output_shape(p, tensor);
    l.column = element % shape.back();
    if (tensor == "conv_state") {
      l.row = element / shape.back() % shape[1];
      l.sequence = element / shape.back() / shape[1];
      return l;
    }
    const auto offsets = p.offsets();
    const std::int64_t token = element / p.hidden;
    const auto next = std::upper_bound(offsets.begin(), offsets.end(), token);
    if (next == offsets.end()) return l;           // padding: of no sequence
    l.sequence = next - offsets.begin() - 1;
    l.token = token - offsets[static_cast<std::size_t>(l.sequence)];
    return l;
  }
  if (p.operation == Operation::stages) {
    const std::vector<std::int64_t> shape = output_shape(p, tensor == "residual" ? "M" : tensor);
    std::int64_t width = 1;
    for (std::size_t d = 2; d < shape.size(); ++d) width *= shape[d];
    const std::int64_t first = element / width / p.value_heads;
    l.head = element / width % p.value_heads;
    if (shape.size() > 2) l.column = element % shape.back();
    if (shape.size() > 3) l.row = element % width / shape.back();
    if (tensor == "ht") {
      l.sequence = first;
      return l;
    }
    const std::vector<ChunkPlace> places = chunk_places(p);
    for (std::size_t i = 0; i < places.size(); ++i) {
      const ChunkPlace& c = places[i];
      if (tensor == "states" ? static_cast<std::int64_t>(i) != first : first < c.token || first >= c.token + c.rows) continue;
      l.sequence = c.sequence;
      l.chunk = c.number;
      if (tensor == "states") return l;
      l.chunk_row = first - c.token;
      l.token = c.number * p.chunk + l.chunk_row;
    }
    return l;
  }
  const std::int64_t HV = p.value_heads, V = p.value_dim;
  l.column = element % V;
  const bool state = tensor != "o";
  l.head = element / (state ? V * p.key_dim : V) % HV;
  const std::int64_t token = element / (state ? V * p.key_dim * HV : V * HV);
  if (state) l.row = element / V % p.key_dim;
  if (tensor == "ht") {
    (p.pool() ? l.slot : l.sequence) = token;
    return l;
  }
  const auto offsets = p.offsets();
  const auto next = std::upper_bound(offsets.begin(), offsets.end(), token);
  if (next == offsets.end()) return l;             // padding: of no sequence
  l.sequence = next - offsets.begin() - 1;
  l.token = token - offsets[static_cast<std::size_t>(l.sequence)];
  if (chunk <= 1) return l;
  std::int64_t start = 0;
  for (const std::int64_t cut : p.cuts())
    if (cut <= l.token) start = cut;
  l.chunk = (l.token - start) / chunk;
  l.chunk_row = (l.token - start) % chunk;
  return l;
}

std::string to_string(const Location& l) {
  auto part = [](const char* what, std::int64_t x) { return std::string(what) + std::to_string(x); };
  const std::string state = part(" head ", l.head) + part(" row ", l.row) + part(" column ", l.column);
  const bool triangle = l.tensor == "L" || l.tensor == "M" || l.tensor == "residual";
  if (l.tensor == "states") return part("sequence ", l.sequence) + part(" before chunk ", l.chunk) + state;
  if (l.sequence >= 0 && (triangle || l.tensor == "G"))
    return part("sequence ", l.sequence) + part(" chunk ", l.chunk) + part(" row ", l.chunk_row) + (triangle ? part(" column ", l.column) : "") + part(" head ", l.head) +
           part(" (token ", l.token) + ")";
  if (l.tensor == "conv_state") return part("sequence ", l.sequence) + part(" channel ", l.row) + part(" column ", l.column);
  if (l.tensor == "y" && l.sequence >= 0) return part("sequence ", l.sequence) + part(" token ", l.token) + part(" hidden channel ", l.column);
  if (l.slot >= 0) return part("slot ", l.slot) + state;
  if (l.tensor == "ht") return part("sequence ", l.sequence) + state;
  if (l.tensor == "snapshots") return part("sequence ", l.sequence) + part(" after token ", l.token) + state;
  if (l.sequence < 0) return part("padding, element ", l.element);
  return part("sequence ", l.sequence) + part(" token ", l.token) + part(" head ", l.head) + part(" channel ", l.column) +
         (l.chunk < 0 ? "" : part(" (chunk ", l.chunk) + part(" row ", l.chunk_row) + ")");
}

}  // namespace gdn
