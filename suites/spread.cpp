// Where failing elements lie; see spread.h.
#include "suites/spread.h"

#include <algorithm>

#include "reference/strand.h"
#include "suites/check.h"

namespace gdn {
namespace {

using I = std::int64_t;
constexpr std::size_t kRanges = 6;                 // printed at most; more say how many there are

struct Axis {
  const char* name;
  I size = 0;
  std::vector<bool> fails;
  Axis(const char* n, I s) : name(n), size(s), fails(static_cast<std::size_t>(s)) {}
  void mark(I i) { if (i >= 0 && i < size) fails[static_cast<std::size_t>(i)] = true; }
};

// "", or "heads 1, 3-5 of 8"; "odd heads" and "even heads" by name, since a stride slip looks like that.
std::string words(const Axis& a) {
  const I count = std::count(a.fails.begin(), a.fails.end(), true);
  if (a.size < 2 || count == a.size || count == 0) return "";
  I odd = 0;
  for (I i = 1; i < a.size; i += 2) odd += a.fails[static_cast<std::size_t>(i)];
  const std::string plural = std::string(a.name) + "s";
  if (a.size > 3 && count == odd && count == a.size / 2) return "all odd " + plural + " of " + std::to_string(a.size);
  if (a.size > 3 && odd == 0 && count == (a.size + 1) / 2) return "all even " + plural + " of " + std::to_string(a.size);
  std::string text;
  std::size_t ranges = 0;
  for (I i = 0; i < a.size; ++i) {
    if (!a.fails[static_cast<std::size_t>(i)]) continue;
    I last = i;
    while (last + 1 < a.size && a.fails[static_cast<std::size_t>(last + 1)]) ++last;
    if (ranges++ < kRanges) text += (text.empty() ? "" : ", ") + std::to_string(i) + (last > i ? "-" + std::to_string(last) : "");
    i = last;
  }
  if (ranges > kRanges && 2 * count >= a.size) return "";   // scattered over most of it: no pattern
  if (ranges > kRanges) return std::to_string(count) + " " + plural + " of " + std::to_string(a.size) + " (" + text + ", ...)";
  return (count > 1 ? plural : a.name) + " " + text + " of " + std::to_string(a.size);
}

// Of a stage: sequences, heads, chunks, rows of the chunk, and the last axis.
std::string stage_spread(const Problem& p, std::string_view tensor, const std::vector<I>& failing) {
  const std::vector<I> shape = output_shape(p, tensor);
  const bool state = shape.size() > 3;
  I chunks = 0;
  for (const I n : p.lengths) chunks = std::max(chunks, (n + p.chunk - 1) / p.chunk);
  Axis sequence("sequence", p.sequences()), head("head", p.value_heads), chunk("chunk", tensor == "ht" ? 0 : chunks),
      row(state ? "state row" : "chunk row", state ? p.key_dim : p.chunk), column(state ? "state column" : "column", shape.size() > 2 ? shape.back() : 0);
  Run run;
  run.problem = p;
  for (const I e : failing) {
    const Location l = locate(run, 0, tensor, e, 0);
    sequence.mark(l.sequence);
    head.mark(l.head);
    chunk.mark(l.chunk);
    row.mark(state ? l.row : l.chunk_row);
    column.mark(l.column);
  }
  std::string text;
  for (const Axis* a : {&sequence, &head, &chunk, &row, &column})
    if (const std::string w = words(*a); !w.empty()) text += (text.empty() ? "" : "; ") + w;
  return text.empty() ? "everywhere" : text;
}

// Of a layer: sequences and tokens of y, channels and columns of conv_state.
std::string layer_spread(const Problem& p, std::string_view tensor, const std::vector<I>& failing, I longest) {
  const bool y = tensor == "y";
  const std::vector<I> shape = output_shape(p, tensor);
  Axis sequence("sequence", p.sequences()), token("token", y ? longest : 0), row("channel", y ? 0 : shape[1]), column(y ? "hidden channel" : "column", shape.back());
  Run run;
  run.problem = p;
  for (const I e : failing) {
    const Location l = locate(run, 0, tensor, e, 0);
    sequence.mark(l.sequence);
    token.mark(l.token);
    row.mark(l.row);
    column.mark(l.column);
  }
  std::string text;
  for (const Axis* a : {&sequence, &token, &row, &column})
    if (const std::string w = words(*a); !w.empty()) text += (text.empty() ? "" : "; ") + w;
  return text.empty() ? "everywhere" : text;
}

}  // namespace

std::string spread(const Problem& p, std::string_view tensor, const std::vector<I>& failing, int chunk) {
  const I longest = p.lengths.empty() ? 0 : *std::max_element(p.lengths.begin(), p.lengths.end());
  if (p.operation == Operation::stages) return stage_spread(p, tensor, failing);
  if (p.layer() && tensor != "ht") return layer_spread(p, tensor, failing, longest);
  const bool state = tensor != "o", pool = p.pool() && tensor == "ht";
  Run run;
  run.problem = p;
  Axis sequence(pool ? "slot" : "sequence", pool ? p.slots : p.sequences()), head("head", p.value_heads), token("token", tensor == "ht" ? 0 : longest),
      row(state ? "state row" : "chunk row", state ? p.key_dim : longest > chunk && chunk > 1 ? chunk : 0),
      column(state ? "state column" : "channel", p.value_dim);
  for (const I e : failing) {
    const Location l = locate(run, 0, tensor, e, std::max(chunk, 1));
    sequence.mark(pool ? l.slot : l.sequence);
    head.mark(l.head);
    token.mark(l.token);
    row.mark(state ? l.row : l.chunk_row);
    column.mark(l.column);
  }
  std::string text;
  for (const Axis* a : {&sequence, &head, &token, &row, &column})
    if (const std::string w = words(*a); !w.empty()) text += (text.empty() ? "" : "; ") + w;
  return text.empty() ? "everywhere" : text;
}

}  // namespace gdn
