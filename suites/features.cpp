// Structural features and exemptions; see features.h.
#include "suites/features.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "reference/strand.h"

namespace gdn {
namespace {

bool holds(const std::vector<DType>& list, DType t) { return std::find(list.begin(), list.end(), t) != list.end(); }

bool holds(std::int64_t x, std::int64_t low, std::int64_t high, const std::vector<std::int64_t>& only) {
  return only.empty() ? low <= x && x <= high : std::find(only.begin(), only.end(), x) != only.end();
}

std::int64_t nearest(std::int64_t x, std::int64_t low, std::int64_t high, const std::vector<std::int64_t>& only) {
  if (only.empty()) return std::clamp(x, low, high);
  return *std::min_element(only.begin(), only.end(), [x](auto a, auto b) { return std::abs(a - x) < std::abs(b - x); });
}

}  // namespace

std::set<std::string> features(const Problem& p) {
  std::set<std::string> f{name(p.operation)};
  const bool stages = p.operation == Operation::stages;
  const std::int64_t chunk = stages ? p.chunk : 64;
  if (stages) f.insert(std::string("stage ") + name(p.stage));
  if (p.initial_state) f.insert("h0");
  if (!p.initial_state && p.operation == Operation::prefill) f.insert(p.sequences() > 1 ? "several sequences without h0" : "no h0");
  if (p.final_state && (!stages || p.stage == Stage::chunk_states)) f.insert("final state");
  if (p.value_heads > p.heads) f.insert(p.heads > 1 ? "grouped heads" : "one key head for several value heads");
  if (!p.cuts().empty()) f.insert("several calls");
  if (p.raw) f.insert("raw gates");
  if (p.layer()) {
    for (const std::int64_t length : p.lengths)
      if (length > 0 && length < p.conv - 1) f.insert("fewer tokens than the convolution reaches back");
    f.insert(std::string("l2norm ") + name(p.l2));
  }
  if (p.sequences() > 1) f.insert("several sequences");
  if (p.padding) f.insert("padding");
  for (const std::int64_t length : p.lengths) {
    if (p.pool()) break;                           // its calls have one token, or as many as there are drafts
    if (length == 0) f.insert("zero length");
    if (length == 1) f.insert("one token");
    if (length > 1 && length % (stages ? chunk : 16)) f.insert("ragged tail");
    if (length > 1 && length % chunk == 0) f.insert("whole chunks");
    if (length > chunk) f.insert("several chunks");
  }
  return f;
}

// Whether a kernel of this problem multiplies q by a scale that the problem may name.
static bool scales(const Problem& p) { return !p.layer() && (p.operation != Operation::stages || p.stage == Stage::output); }

std::string exemption(const Problem& p, const KernelInfo& k) {
  const Capabilities& c = k.capabilities;
  if (p.scale != 0 && k.convention.scale == ScaleHandling::fixed) return "the kernel's convention fixes the scale";
  if (int e; k.convention.scale == ScaleHandling::folded && scales(p) && std::frexp(p.effective_scale(), &e) != 0.5)
    return "the kernel's convention has the scale in q, which takes powers of two";
  if (k.convention.l2norm == L2Norm::in_kernel && !p.unit && !own_tensors(p)) return "the kernel normalises keys, and these are not of length exactly 1";
  if (!holds(c.io, p.io)) return std::string("io dtype ") + name(p.io) + " is not declared";
  if (!holds(c.state, p.state)) return std::string("state dtype ") + name(p.state) + " is not declared";
  if (!holds(c.gate, p.gate)) return std::string("gate dtype ") + name(p.gate) + " is not declared";
  if (!holds(c.beta, p.beta)) return std::string("beta dtype ") + name(p.beta) + " is not declared";
  if (p.rule != Rule::gated_delta && std::find(c.rules.begin(), c.rules.end(), p.rule) == c.rules.end())
    return std::string("rule ") + name(p.rule) + " is not declared";
  if (p.layer() && std::find(c.l2.begin(), c.l2.end(), p.l2) == c.l2.end()) return std::string("l2=") + name(p.l2) + " is not declared";
  if (p.strided && !c.strides) return "strides are not declared";
  if (p.far && k.device != "cpu") return "there is no sparse memory on a device";
  if (p.short_offsets && !c.short_offsets) return "cu_seqlens in int32 is not declared";
  if (!holds(p.key_dim, c.key_min, c.key_max, c.key_dims)) return "K=" + std::to_string(p.key_dim) + " is outside the declared sizes";
  if (!holds(p.value_dim, c.value_min, c.value_max, c.value_dims)) return "V=" + std::to_string(p.value_dim) + " is outside the declared sizes";
  if (c.equal_kv && p.key_dim != p.value_dim) return "K != V is outside the declared sizes";
  if (p.operation == Operation::stages)
    if (const auto chunks = stage_chunks(c, k.contract); std::find(chunks.begin(), chunks.end(), p.chunk) == chunks.end())
      return "chunk=" + std::to_string(p.chunk) + " is not declared";
  return {};
}

std::string exemption(const Case& c, const KernelInfo& k) {
  for (const Run& run : c.runs)
    if (std::string why = exemption(run.problem, k); !why.empty()) return why;
    else if (k.convention.l2norm == L2Norm::in_kernel && !has_unit_rows(run)) return "the kernel normalises keys, and some of this case are of another length";
    else if (!takes_scale(k.convention, run)) return "the kernel's convention has scale in q, and some of these queries cannot take it exactly in their dtype";
    else if (run.refuse && !k.capabilities.refuses_growth) return "gates above 0 are not for kernels that do not declare refuses_growth";
  return {};
}

Problem fitted(const Problem& p, const KernelInfo& k, bool exact_scale) {
  const Capabilities& c = k.capabilities;
  Problem q = p;
  if (!holds(c.io, q.io) && !c.io.empty()) q.io = c.io.front();
  if (!holds(c.state, q.state) && !c.state.empty()) q.state = c.state.front();
  if (!holds(c.gate, q.gate) && !c.gate.empty()) q.gate = c.gate.front();
  if (!holds(c.beta, q.beta) && !c.beta.empty()) q.beta = c.beta.front();
  if (p.operation == Operation::stages) q.chunk = nearest(p.chunk, 0, 0, stage_chunks(c, k.contract));
  if (p.layer() && std::find(c.l2.begin(), c.l2.end(), q.l2) == c.l2.end()) q.l2 = c.l2.front();
  q.key_dim = nearest(p.key_dim, c.key_min, c.key_max, c.key_dims);
  q.value_dim = nearest(c.equal_kv ? q.key_dim : p.value_dim, c.value_min, c.value_max, c.value_dims);
  q.unit = k.convention.l2norm == L2Norm::in_kernel && !p.layer();
  if (!scales(p)) return q;
  int e;
  const auto power_of_two = [&](const Problem& x) { return std::frexp(x.effective_scale(), &e) == 0.5; };
  if (k.convention.scale == ScaleHandling::fixed) {
    const bool wanted = exact_scale && power_of_two(p);
    q.scale = 0;
    for (const std::int64_t key_dim : {64, 256, 16}) {   // where K^-1/2 is one by itself
      Problem r = q;
      r.key_dim = key_dim;
      if (c.equal_kv) r.value_dim = key_dim;
      if (!wanted || power_of_two(q) || !exemption(r, k).empty()) continue;
      q = std::move(r);
    }
    if (wanted && !power_of_two(q)) q.scale = p.effective_scale();
  } else if (k.convention.scale == ScaleHandling::folded && !power_of_two(q)) {
    q.scale = std::exp2(std::round(std::log2(q.effective_scale())));
  } else if (exact_scale && power_of_two(p) && !power_of_two(q)) {
    q.scale = p.effective_scale();
  }
  return q;
}

std::vector<Problem> missing_problems(const std::vector<Problem>& all, const KernelInfo& k, bool exact_scale) {
  std::set<std::string> missing;
  for (const Problem& p : all) missing.merge(features(p));
  for (const Problem& p : all)
    if (exemption(p, k).empty())
      for (const std::string& f : features(p)) missing.erase(f);
  std::vector<Problem> added;
  for (const Problem& p : all) {
    const auto shown = features(p);
    if (exemption(p, k).empty() || std::none_of(shown.begin(), shown.end(), [&](const std::string& f) { return missing.count(f); })) continue;
    Problem q = fitted(p, k, exact_scale);
    if (!exemption(q, k).empty()) continue;        // nothing the kernel declares is near
    for (const std::string& f : shown) missing.erase(f);
    if (std::find(added.begin(), added.end(), q) == added.end()) added.push_back(std::move(q));
  }
  return added;
}

}  // namespace gdn
