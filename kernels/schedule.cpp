// Runs as calls with the state handed over; see schedule.h.
#include "kernels/schedule.h"

#include <algorithm>
#include <cstring>

namespace gdn {
namespace {

// Tokens of sequence `length` that lie before the c-th cut; all of them past the last cut.
std::int64_t before(const Problem& p, std::int64_t length, std::size_t c) {
  if (c == 0) return 0;
  return c > p.split.size() ? length : std::min(length, p.split[c - 1]);
}

bool per_token(std::string_view tensor) {
  for (const char* t : {"q", "k", "v", "g", "beta", "a", "x", "o", "do"})
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
void each_block(const Problem& p, std::size_t c, F f) {
  const auto offsets = p.offsets();
  std::int64_t to = 0;
  for (std::size_t n = 0; n < p.lengths.size(); ++n) {
    const std::int64_t begin = before(p, p.lengths[n], c), end = before(p, p.lengths[n], c + 1);
    f(offsets[n] + begin, to, end - begin);
    to += end - begin;
  }
  f(offsets.back(), to, p.padding);
}

}  // namespace

std::vector<Problem> call_problems(const Problem& p) {
  const std::size_t count = p.split.size() + 1;
  std::vector<Problem> calls(count, p);
  for (std::size_t c = 0; c < count; ++c) {
    Problem& call = calls[c];
    call.split.clear();
    for (std::size_t n = 0; n < p.lengths.size(); ++n)
      call.lengths[n] = before(p, p.lengths[n], c + 1) - before(p, p.lengths[n], c);
    if (c > 0) call.initial_state = true;
    if (c + 1 < count) call.final_state = true;
  }
  return calls;
}

Execution run_schedule(const Run& run, const std::function<Execution(const Run& call)>& execute) {
  const Problem& p = run.problem;
  if (p.split.empty()) return execute(run);
  const std::vector<Problem> problems = call_problems(p);
  Execution whole;
  Tensor state;
  for (std::size_t c = 0; c < problems.size(); ++c) {
    const Problem& problem = problems[c];
    Run call;
    call.name = run.name;
    call.problem = problem;
    call.truth = run.truth;
    for (const auto& [name, tensor] : run.inputs) {
      if (name == "h0") continue;
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
        const std::size_t bytes = row_bytes(tensor);
        each_block(p, c, [&](std::int64_t from, std::int64_t to, std::int64_t n) {
          if (n > 0)
            std::memcpy(rows.data.data() + static_cast<std::size_t>(to) * bytes,
                        tensor.data.data() + static_cast<std::size_t>(from) * bytes, static_cast<std::size_t>(n) * bytes);
        });
        call.inputs.emplace(name, std::move(rows));
      } else {
        call.inputs.emplace(name, tensor);
      }
    }
    if (c > 0)
      call.inputs.emplace("h0", std::move(state));
    else if (const auto h0 = run.inputs.find("h0"); h0 != run.inputs.end())
      call.inputs.emplace("h0", h0->second);

    Execution part = execute(call);
    const std::string prefix = "call " + std::to_string(c + 1) + " of " + std::to_string(problems.size()) + ": ";
    whole.seconds += part.seconds;
    for (auto& v : part.violations) whole.violations.push_back(prefix + v);
    const auto ht = part.outputs.find("ht");
    const auto o = part.outputs.find("o");
    if (part.outcome == Outcome::ok && problem.final_state && ht == part.outputs.end()) {
      part.outcome = Outcome::error;
      part.message = "no final state";
    } else if (part.outcome == Outcome::ok && o != part.outputs.end() &&
               (o->second.shape.empty() || o->second.shape[0] != problem.tokens() + problem.padding)) {
      part.outcome = Outcome::error;
      part.message = "o has shape " + shape_text(o->second.shape);
    }
    if (part.outcome != Outcome::ok) {
      whole.outcome = part.outcome;
      whole.message = prefix + part.message;
      whole.outputs.clear();
      return whole;
    }
    if (ht != part.outputs.end()) state = std::move(ht->second);
    if (o != part.outputs.end()) {
      auto [at, fresh] = whole.outputs.try_emplace("o");
      if (fresh) {
        auto shape = o->second.shape;
        shape[0] = p.tokens() + p.padding;
        at->second = Tensor(o->second.dtype, std::move(shape));
      }
      const std::size_t bytes = row_bytes(o->second);
      each_block(p, c, [&](std::int64_t to, std::int64_t from, std::int64_t n) {
        if (n > 0)
          std::memcpy(at->second.data.data() + static_cast<std::size_t>(to) * bytes,
                      o->second.data.data() + static_cast<std::size_t>(from) * bytes, static_cast<std::size_t>(n) * bytes);
      });
    }
  }
  if (p.final_state) whole.outputs.emplace("ht", std::move(state));
  return whole;
}

}  // namespace gdn
