// Registry of checks, locations and shared bounds; see check.h.
#include "suites/check.h"
#include "reference/parallel.h"

#include <algorithm>
#include <exception>

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

bool held_to(const Relation& r, const KernelInfo& kernel) {
  const Properties& p = kernel.properties;
  // A state that is rounded at the end of a call only goes on with other numbers after a cut.
  if (r.row == 20 && (unit(kernel.contract, Point::ht) > unit(kernel.contract, Point::S_carried) || kernel.contract.cadence == Cadence::call))
    return false;
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
  }
  return false;
}

bool any_relation(const CheckInput& in) {
  return std::any_of(in.relations.begin(), in.relations.end(), [&](const Relation& r) { return held_to(r, in.kernel); });
}

Contract Bounds::contract(std::size_t run) const { return for_problem(contract_, case_.runs[run].problem); }

namespace {
}  // namespace

const std::vector<ExactHead>& Certificates::of_run(std::size_t index) const {
  std::vector<ExactHead>& heads = runs_[index];
  const Run& run = case_.runs[index];
  const std::int64_t HV = run.problem.value_heads, count = run.problem.sequences() * HV;
  if (static_cast<std::int64_t>(heads.size()) == count) return heads;
  const Contract narrowed = for_problem(contract_, run.problem);
  std::vector<ExactHead> made(static_cast<std::size_t>(count));
  parallel_for(count, [&](std::int64_t i) { made[static_cast<std::size_t>(i)] = exact_head(narrowed, head_inputs(run, i / HV, i % HV), run.problem.split); });
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

const HeadResult& Bounds::of_run(std::size_t index) const {
  if (runs_[index]) return *runs_[index];
  const Run& run = case_.runs[index];
  const Problem& p = run.problem;
  const Contract narrowed = contract(index);
  const std::int64_t HV = p.value_heads, V = p.value_dim, KV = p.key_dim * V, count = p.sequences() * HV;
  const auto offsets = p.offsets();
  HeadResult all;
  all.o.resize(static_cast<std::size_t>(p.tokens() * HV * V));
  all.ht.resize(static_cast<std::size_t>(count * KV));
  parallel_for(count, [&](std::int64_t i) {
    const std::int64_t n = i / HV, hv = i % HV, first = offsets[static_cast<std::size_t>(n)];
    const HeadResult head = bound_head(narrowed, head_inputs(run, n, hv), p.split);
    for (std::int64_t t = 0; t < p.lengths[static_cast<std::size_t>(n)]; ++t)
      std::copy_n(head.o.begin() + t * V, V, all.o.begin() + ((first + t) * HV + hv) * V);
    std::copy_n(head.ht.begin(), KV, all.ht.begin() + i * KV);
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
  const std::int64_t HV = p.value_heads, V = p.value_dim;
  l.column = element % V;
  if (tensor == "ht") {
    l.row = element / V % p.key_dim;
    l.head = element / (V * p.key_dim) % HV;
    l.sequence = element / (V * p.key_dim * HV);
    return l;
  }
  l.head = element / V % HV;
  const std::int64_t token = element / (V * HV);
  const auto offsets = p.offsets();
  const auto next = std::upper_bound(offsets.begin(), offsets.end(), token);
  if (next == offsets.end()) return l;             // padding: of no sequence
  l.sequence = next - offsets.begin() - 1;
  l.token = token - offsets[static_cast<std::size_t>(l.sequence)];
  if (chunk <= 1) return l;
  std::int64_t start = 0;
  for (const std::int64_t cut : p.split)
    if (cut <= l.token) start = cut;
  l.chunk = (l.token - start) / chunk;
  l.chunk_row = (l.token - start) % chunk;
  return l;
}

std::string to_string(const Location& l) {
  auto part = [](const char* what, std::int64_t x) { return std::string(what) + std::to_string(x); };
  if (l.tensor == "ht") return part("sequence ", l.sequence) + part(" head ", l.head) + part(" row ", l.row) + part(" column ", l.column);
  if (l.sequence < 0) return part("padding, element ", l.element);
  return part("sequence ", l.sequence) + part(" token ", l.token) + part(" head ", l.head) + part(" channel ", l.column) +
         (l.chunk < 0 ? "" : part(" (chunk ", l.chunk) + part(" row ", l.chunk_row) + ")");
}

}  // namespace gdn
