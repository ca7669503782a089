// Runs as calls with the state handed over; see schedule.h.
#include "kernels/schedule.h"

#include <algorithm>
#include <cstring>

namespace gdn {
namespace {

// Tokens of sequence `length` that lie before the c-th cut; all of them past the last cut.
std::int64_t before(const std::vector<std::int64_t>& cuts, std::int64_t length, std::size_t c) {
  if (c == 0) return 0;
  return c > cuts.size() ? length : std::min(length, cuts[c - 1]);
}

bool per_token(std::string_view tensor) {
  for (const char* t : {"q", "k", "v", "g", "angle", "beta", "a", "x", "o", "y", "do"})
    if (tensor == t) return true;
  return false;
}

std::size_t row_bytes(const Tensor& t) {
  std::size_t n = size_of(t.dtype);
  for (std::size_t i = 1; i < t.shape.size(); ++i) n *= static_cast<std::size_t>(t.shape[i]);
  return n;
}

// Rows of call c lie in the run at other places; f(first row in the run, first row in the call, rows).
template <typename F>
void each_block(const Problem& p, const std::vector<std::int64_t>& cuts, std::size_t c, F f) {
  const auto offsets = p.offsets();
  std::int64_t to = 0;
  for (std::size_t n = 0; n < p.lengths.size(); ++n) {
    const std::int64_t begin = before(cuts, p.lengths[n], c), end = before(cuts, p.lengths[n], c + 1);
    f(offsets[n] + begin, to, end - begin);
    to += end - begin;
  }
  f(offsets.back(), to, p.padding);
}

// Rows first..first+n of `from` to row `at` on of `to`.
void copy_rows(const Tensor& from, std::int64_t first, Tensor& to, std::int64_t at, std::int64_t n) {
  const std::size_t bytes = row_bytes(from);
  if (n > 0)
    std::memcpy(to.data.data() + static_cast<std::size_t>(at) * bytes, from.data.data() + static_cast<std::size_t>(first) * bytes,
                static_cast<std::size_t>(n) * bytes);
}

// Row c of [calls,N].
Tensor row_of(const Tensor& t, std::size_t c) {
  Tensor row(t.dtype, {t.shape[1]});
  copy_rows(t, static_cast<std::int64_t>(c), row, 0, 1);
  return row;
}

}  // namespace

std::vector<Problem> call_problems(const Problem& p) {
  const std::vector<std::int64_t> cuts = p.cuts();
  const std::size_t count = cuts.size() + 1;
  std::vector<Problem> calls(count, p);
  for (std::size_t c = 0; c < count; ++c) {
    Problem& call = calls[c];
    call.split.clear();
    for (std::size_t n = 0; n < p.lengths.size(); ++n)
      call.lengths[n] = before(cuts, p.lengths[n], c + 1) - before(cuts, p.lengths[n], c);
    if (c > 0) call.initial_state = true;
    if (c + 1 < count) call.final_state = true;
    if (p.operation == Operation::verify && c > 0 && c + 1 == count) call.operation = Operation::decode;
  }
  return calls;
}

Execution run_schedule(const Run& run, const std::function<Execution(const Run& call)>& execute) {
  const Problem& p = run.problem;
  if (p.cuts().empty() && !p.pool()) return execute(run);
  const std::vector<std::int64_t> cuts = p.cuts();
  const std::vector<Problem> problems = call_problems(p);
  Execution whole;
  Tensor state, snapshots, history;
  for (std::size_t c = 0; c < problems.size(); ++c) {
    const Problem& problem = problems[c];
    Run call;
    call.name = run.name;
    call.problem = problem;
    call.truth = run.truth;
    call.least_aligned = run.least_aligned;
    call.threads = run.threads;
    for (const auto& [name, tensor] : run.inputs) {
      if (name == "h0" || (name == "conv_state" && c > 0)) continue;
      if (name == "cu_seqlens") {
        Tensor offsets(tensor.dtype, tensor.shape);
        const auto values = problem.offsets();
        for (std::size_t i = 0; i < values.size(); ++i)
          offsets.set_bits(static_cast<std::int64_t>(i), static_cast<std::uint64_t>(values[i]));
        call.inputs.emplace(name, std::move(offsets));
      } else if (per_token(name)) {
        auto shape = tensor.shape;
        shape[0] = problem.tokens() + problem.padding;
        Tensor rows(tensor.dtype, std::move(shape));
        each_block(p, cuts, c, [&](std::int64_t from, std::int64_t to, std::int64_t n) { copy_rows(tensor, from, rows, to, n); });
        call.inputs.emplace(name, std::move(rows));
      } else if (name == "state_indices" || name == "accepted") {
        call.inputs.emplace(name, row_of(tensor, c));
      } else {
        call.inputs.emplace(name, tensor);
      }
    }
    if (c > 0)
      call.inputs.emplace("h0", std::move(state));
    else if (const auto h0 = run.inputs.find("h0"); h0 != run.inputs.end())
      call.inputs.emplace("h0", h0->second);
    if (c > 0 && p.operation == Operation::verify) call.inputs.emplace("snapshots", std::move(snapshots));
    if (c > 0 && p.layer()) call.inputs.emplace("conv_state", std::move(history));

    Execution part = execute(call);
    const std::string prefix = problems.size() == 1 ? "" : "call " + std::to_string(c + 1) + " of " + std::to_string(problems.size()) + ": ";
    whole.seconds += part.seconds;
    for (auto& v : part.violations) whole.violations.push_back(prefix + v);
    const auto ht = part.outputs.find("ht");
    const auto o = part.outputs.find(p.layer() ? "y" : "o");
    const auto kept = part.outputs.find("conv_state");
    const auto shots = part.outputs.find("snapshots");
    if (part.outcome == Outcome::ok && problem.final_state && ht == part.outputs.end()) {
      part.outcome = Outcome::error;
      part.message = "no final state";
    } else if (part.outcome == Outcome::ok && problem.operation == Operation::verify && shots == part.outputs.end()) {
      part.outcome = Outcome::error;
      part.message = "no snapshots";
    } else if (part.outcome == Outcome::ok && p.layer() && kept == part.outputs.end()) {
      part.outcome = Outcome::error;
      part.message = "no conv_state";
    } else if (part.outcome == Outcome::ok && o != part.outputs.end() &&
               (o->second.shape.empty() || o->second.shape[0] != problem.tokens() + problem.padding)) {
      part.outcome = Outcome::error;
      part.message = o->first + " has shape " + shape_text(o->second.shape);
    }
    if (part.outcome != Outcome::ok) {
      whole.outcome = part.outcome;
      whole.message = prefix + part.message;
      whole.outputs.clear();
      return whole;
    }
    if (ht != part.outputs.end()) state = std::move(ht->second);
    if (p.layer()) history = std::move(kept->second);
    const auto put_rows = [&](const char* name, const Tensor& t) {
      auto [at, fresh] = whole.outputs.try_emplace(name);
      if (fresh) {
        auto shape = t.shape;
        shape[0] = p.tokens() + p.padding;
        at->second = Tensor(t.dtype, std::move(shape));
      }
      each_block(p, cuts, c, [&](std::int64_t to, std::int64_t from, std::int64_t n) { copy_rows(t, from, at->second, to, n); });
    };
    if (o != part.outputs.end()) put_rows(o->first.c_str(), o->second);
    if (problem.operation == Operation::verify) {
      put_rows("snapshots", shots->second);
      snapshots = std::move(shots->second);
    }
  }
  if (p.final_state) whole.outputs.emplace("ht", std::move(state));
  if (p.layer()) whole.outputs.emplace("conv_state", std::move(history));
  return whole;
}

}  // namespace gdn
