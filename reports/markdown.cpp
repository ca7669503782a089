// Markdown summary for pull requests and job pages, never longer than the size such pages accept.
#include <fmt/format.h>

#include <algorithm>

#include "reports/text.h"

namespace gdn {
namespace {

using namespace reports;

// Text inside a table cell or a line: no markup of its own.
std::string inline_text(const std::string& text) {
  std::string out;
  for (char c : printable(text)) {
    if (c == '&') out += "&amp;";
    else if (c == '<') out += "&lt;";
    else if (c == '>') out += "&gt;";
    else if (std::string_view("\\`*_[]|~#!").find(c) != std::string_view::npos) (out += '\\') += c;
    else if (c == '@') out += "&#64;";             // would notify people
    else out += c;
  }
  return out;
}

// A code block whose fence is longer than any run of backticks inside.
std::string fenced(const std::string& text) {
  std::size_t longest = 0, run = 0;
  for (char c : text) longest = std::max(longest, run = c == '`' ? run + 1 : 0);
  const std::string fence(std::max<std::size_t>(3, longest + 1), '`');
  return fence + "text\n" + text + (text.empty() || text.back() != '\n' ? "\n" : "") + fence + "\n";
}

}  // namespace

std::string markdown_summary(const std::vector<Record>& records, std::size_t size_limit, const GateVerdict* gate) {
  // Pieces are added whole while they and the closing note still fit.
  constexpr std::size_t note = 200;
  std::string s;
  const auto fits = [&](const std::string& piece) { return s.size() + piece.size() + note <= size_limit; };
  const auto add = [&](const std::string& piece) {
    const bool ok = fits(piece);
    if (ok) s += piece;
    return ok;
  };
  add(fmt::format("## GDN-CTS: {}\n\n", inline_text(headline(records, gate))));
  if (gate)
    for (const std::string& line : other_objections(records, *gate)) add("- " + inline_text(line) + "\n");
  for (const Record& r : records)
    if (!r.waived.empty()) add(fmt::format("- {} is {}, waived: {}\n", inline_text(r.case_id), r.verdict, inline_text(r.waived)));

  std::string kernel;
  std::size_t shown = 0;
  const std::vector<Tally> tallies = tally(records);
  for (const Tally& t : tallies) {
    std::string piece;
    if (shown == 0 || t.kernel != kernel) {
      kernel = t.kernel;
      const auto r = std::find_if(records.begin(), records.end(), [&](const Record& x) { return x.kernel == kernel; });
      piece = fmt::format("\n**{}** {} · contract {} · level {} · accuracy standard {} · suite {}\n\n", inline_text(kernel), inline_text(r->kernel_version),
                          inline_text(r->contract), inline_text(r->level), inline_text(r->edition), inline_text(r->suite_version));
      piece += "| family | cases | passed | failed | not supported | max error/bound | worst case |\n|---|--:|--:|--:|--:|--:|---|\n";
    }
    piece += fmt::format("| {}{} | {} | {} | {} | {} | {} | {} |\n", t.bad() ? "❌ " : "", inline_text(t.family), t.cases, t.passed, t.bad(),
                         t.not_supported + t.skipped + t.waived, t.has_ratio ? short_number(t.max_ratio) : "-", t.has_ratio ? inline_text(t.worst_case) : "-");
    if (!add(piece)) break;
    ++shown;
  }
  if (shown < tallies.size()) {
    s += fmt::format("\n{} more families left out: size limit.\n", tallies.size() - shown);
    return s.substr(0, size_limit);
  }

  std::size_t failures = 0, printed = 0;
  bool room = true;
  for (const Record& r : records) {
    if (!is_failure(r)) continue;
    if (failures++ == 0) room = add("\n### Failures\n");
    room = room && add("\n" + fenced(failure_block(r)));
    printed += room;
  }
  if (printed < failures)
    s += fmt::format("\n{} of {} failures left out: size limit. The records hold all.\n", failures - printed, failures);
  return s.substr(0, size_limit);
}

}  // namespace gdn
