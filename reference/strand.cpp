// Strands of a run; see strand.h.
#include "reference/strand.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <stdexcept>
#include <string>

#include "reference/certify.h"
#include "reference/gates.h"
#include "reference/layer.h"
#include "reference/stages.h"

namespace gdn {
namespace {

using I = std::int64_t;

// Rows first..first+count of tensor [T,heads,width], one head.
std::vector<float> gather(const Tensor& t, const std::vector<I>& rows, I heads, I head, I width) {
  std::vector<float> out(rows.size() * static_cast<std::size_t>(width));
  for (std::size_t r = 0; r < rows.size(); ++r)
    for (I c = 0; c < width; ++c) out[r * static_cast<std::size_t>(width) + static_cast<std::size_t>(c)] = static_cast<float>(t.at((rows[r] * heads + head) * width + c));
  return out;
}

// Entry [call, row] of an index tensor of a pool run.
class Calls {
 public:
  Calls(const Run& run, const char* name) : problem_(run.problem), name_(name) {
    const auto at = run.inputs.find(std::string_view(name));
    const std::vector<I> want{static_cast<I>(run.problem.cuts().size()) + 1, run.problem.sequences()};
    if (at == run.inputs.end() || at->second.shape != want || is_floating(at->second.dtype))
      contradiction("is missing, or no integers of shape [calls,N] = " + shape_text(want));
    tensor_ = &at->second;
  }
  I at(I call, I n) const { return tensor_->int_at(call * problem_.sequences() + n); }
  [[noreturn]] void contradiction(const std::string& what) const {
    throw std::invalid_argument(to_string(problem_) + ": " + name_ + " " + what);
  }

 private:
  const Problem& problem_;
  const char* name_;
  const Tensor* tensor_ = nullptr;
};

// Slots by call and row, checked: -1 or a slot of the pool, none twice in a call.
std::vector<std::vector<I>> slots_of(const Run& run) {
  const Problem& p = run.problem;
  const Calls indices(run, "state_indices");
  std::vector<std::vector<I>> all(p.cuts().size() + 1, std::vector<I>(p.lengths.size()));
  for (std::size_t c = 0; c < all.size(); ++c) {
    std::vector<bool> used(static_cast<std::size_t>(p.slots), false);
    for (std::size_t n = 0; n < p.lengths.size(); ++n) {
      const I slot = all[c][n] = indices.at(static_cast<I>(c), static_cast<I>(n));
      if (slot < -1 || slot >= p.slots) indices.contradiction("holds " + std::to_string(slot) + ", and there are " + std::to_string(p.slots) + " slots");
      if (slot < 0) continue;
      if (used[static_cast<std::size_t>(slot)]) indices.contradiction("holds slot " + std::to_string(slot) + " twice in call " + std::to_string(c + 1));
      used[static_cast<std::size_t>(slot)] = true;
    }
  }
  return all;
}

std::vector<Strand> pool_strands(const Run& run) {
  const Problem& p = run.problem;
  if (p.operation == Operation::decode && p.draft) throw std::invalid_argument(to_string(p) + ": a plain step after draft tokens is no run of its own");
  const auto slots = slots_of(run);
  const auto offsets = p.offsets();
  const bool verify = p.operation == Operation::verify;
  const I step = verify ? p.draft : 1;
  std::vector<Strand> states(static_cast<std::size_t>(p.slots)), extra;     // of the slots; of every snapshot
  for (I s = 0; s < p.slots; ++s) {
    Strand& state = states[static_cast<std::size_t>(s)];
    state.start = state.state_row = s;
    state.state = "ht";
    state.idle = true;
  }
  struct Draft { I slot = -1; std::vector<I> rows; };
  std::vector<Draft> drafts(p.lengths.size());     // of the call before
  for (std::size_t c = 0; c < slots.size(); ++c)
    for (std::size_t n = 0; n < p.lengths.size(); ++n) {
      const I slot = slots[c][n], first = offsets[n] + static_cast<I>(c) * step;
      Draft& draft = drafts[n];
      I accepted = 0;
      if (verify) {
        const Calls counts(run, "accepted");
        accepted = counts.at(static_cast<I>(c), static_cast<I>(n));
        if (accepted < 0 || accepted > static_cast<I>(draft.rows.size()) || (accepted > 0 && slot != draft.slot))
          counts.contradiction("holds " + std::to_string(accepted) + " where row " + std::to_string(n) + " of call " + std::to_string(c + 1) +
                               " has no such draft tokens of the same slot before it");
      }
      if (slot < 0) {
        draft = {};
        continue;
      }
      Strand& state = states[static_cast<std::size_t>(slot)];
      state.idle = false;
      state.rows.insert(state.rows.end(), draft.rows.begin(), draft.rows.begin() + accepted);
      draft = {};
      if (verify) state.outputs = static_cast<I>(state.rows.size());       // o of drafts belongs to their snapshots
      if (!state.rows.empty() && (state.cuts.empty() || state.cuts.back() < static_cast<I>(state.rows.size())))
        state.cuts.push_back(static_cast<I>(state.rows.size()));
      const bool plain = !verify || (c + 1 == slots.size() && c > 0);
      if (plain) {
        state.rows.push_back(first);
        continue;
      }
      draft.slot = slot;
      Strand snapshot = state;
      snapshot.state = "snapshots";
      for (I t = 0; t < step; ++t) {
        draft.rows.push_back(first + t);
        snapshot.rows.push_back(first + t);
        snapshot.outputs = static_cast<I>(snapshot.rows.size()) - 1;
        snapshot.state_row = first + t;
        extra.push_back(snapshot);
      }
    }
  states.insert(states.end(), extra.begin(), extra.end());
  return states;
}

Strand sequence(const Problem& p, I n, I first) {
  Strand s;
  s.rows.resize(static_cast<std::size_t>(p.lengths[static_cast<std::size_t>(n)]));
  std::iota(s.rows.begin(), s.rows.end(), first);
  s.cuts = p.split;
  if (p.initial_state) s.start = n;
  if (p.final_state) {
    s.state = "ht";
    s.state_row = n;
  }
  return s;
}

}  // namespace

std::vector<Strand> strands(const Run& run) {
  const Problem& p = run.problem;
  if (own_tensors(p)) throw std::logic_error(to_string(p) + ": a stage or a layer has no strands");
  if (p.pool()) return pool_strands(run);
  std::vector<Strand> all;
  const auto offsets = p.offsets();
  for (I n = 0; n < p.sequences(); ++n) all.push_back(sequence(p, n, offsets[static_cast<std::size_t>(n)]));
  return all;
}

HeadInputs head_inputs(const Run& run, std::int64_t n, std::int64_t hv) {
  const Problem& p = run.problem;
  if (p.pool()) return head_inputs(run, strands(run).at(static_cast<std::size_t>(n)), hv);
  return head_inputs(run, sequence(p, n, p.offsets()[static_cast<std::size_t>(n)]), hv);
}

HeadInputs head_inputs(const Run& run, const Strand& s, std::int64_t hv) {
  const Problem& p = run.problem;
  HeadInputs in;
  in.T = static_cast<I>(s.rows.size());
  in.K = p.key_dim;
  in.V = p.value_dim;
  in.rule = p.rule;
  in.scale = p.effective_scale();
  const I h = hv / (p.value_heads / p.heads);
  in.q = gather(run.inputs.at("q"), s.rows, p.heads, h, in.K);
  in.k = gather(run.inputs.at("k"), s.rows, p.heads, h, in.K);
  in.v = gather(run.inputs.at("v"), s.rows, p.value_heads, hv, in.V);
  if (const auto g = run.inputs.find("g"); g != run.inputs.end()) in.g = gather(g->second, s.rows, p.value_heads, hv, p.gate_width());
  if (p.rule == Rule::complex_kda) {
    const std::vector<float> moduli = std::move(in.g);
    in.g.clear();
    for (const float g : moduli) in.g.insert(in.g.end(), 2, g);
    in.angle = gather(run.inputs.at("angle"), s.rows, p.value_heads, hv, p.gate_width());
  }
  if (p.raw) {
    in.a = gather(run.inputs.at("a"), s.rows, p.value_heads, hv, 1);
    in.A_log = static_cast<float>(run.inputs.at("A_log").at(hv));
    in.dt_bias = static_cast<float>(run.inputs.at("dt_bias").at(hv));
    set_raw_gates(in);
  }
  if (const auto b = run.inputs.find("beta"); b != run.inputs.end()) in.beta = gather(b->second, s.rows, p.value_heads, hv, 1);
  if (s.start >= 0) in.h0 = gather(run.inputs.at("h0"), {s.start}, p.value_heads, hv, in.K * in.V);
  return in;
}

void set_raw_gates(HeadInputs& in) {
  in.raw_g.clear();
  in.g.clear();
  for (const float a : in.a) {
    const DD<double> exact = raw_gate(a, in.A_log, in.dt_bias);
    const bool zero = in.A_log == -std::numeric_limits<float>::infinity() || static_cast<double>(a) + static_cast<double>(in.dt_bias) == -std::numeric_limits<double>::infinity();
    float g = static_cast<float>(exact.hi);
    if (static_cast<double>(g) < exact.hi || (static_cast<double>(g) == exact.hi && exact.lo > 0)) g = std::nextafter(g, 0.0f);
    if (std::isinf(g) && std::isfinite(exact.hi)) g = -std::numeric_limits<float>::max();
    if (g == 0 && !zero) g = -std::numeric_limits<float>::denorm_min();
    in.raw_g.push_back(exact.hi);
    in.g.push_back(g);
  }
  oracle_detail::free_thread_caches();             // loops over heads end in threads that may end
}

StrandPlace find_strand(const std::vector<Strand>& all, std::string_view tensor, std::int64_t row) {
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Strand& s = all[i];
    if (tensor != "o") {
      if (tensor == s.state && row == s.state_row) return {static_cast<I>(i), -1};
      continue;
    }
    const auto at = std::find(s.rows.begin() + s.outputs, s.rows.end(), row);
    if (at != s.rows.end()) return {static_cast<I>(i), at - s.rows.begin()};
  }
  return {};
}

std::vector<StageTensor> own_inputs(const Problem& p) { return p.layer() ? layer_inputs(p) : stage_inputs(p); }
std::vector<StageTensor> own_outputs(const Problem& p) { return p.layer() ? layer_outputs(p) : stage_outputs(p); }

std::vector<const char*> output_names(const Problem& p) {
  std::vector<const char*> names{"o"};
  if (own_tensors(p)) {
    names.clear();
    for (const StageTensor& t : own_outputs(p)) names.push_back(t.name);
    return names;
  }
  if (p.final_state) names.push_back("ht");
  if (p.operation == Operation::verify) names.push_back("snapshots");
  return names;
}

std::vector<std::int64_t> output_shape(const Problem& p, std::string_view tensor) {
  if (own_tensors(p))
    for (const StageTensor& t : own_outputs(p))
      if (tensor == t.name) return t.shape;
  if (tensor == "o") return {p.tokens() + p.padding, p.value_heads, p.value_dim};
  return {tensor == "snapshots" ? p.tokens() : p.states(), p.value_heads, p.key_dim, p.value_dim};
}

DType output_dtype(const Problem& p, std::string_view tensor) {
  if (own_tensors(p))
    for (const StageTensor& t : own_outputs(p))
      if (tensor == t.name) return t.dtype;
  return tensor == "o" ? p.io : p.state;
}

}  // namespace gdn
