// For terminals: the table of families and the block that explains one failure.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "reports/text.h"

namespace gdn {
namespace {

using namespace reports;

std::size_t width(const std::string& s) {          // characters, not bytes
  return static_cast<std::size_t>(std::count_if(s.begin(), s.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

std::string pad(const std::string& s, std::size_t w, bool right) {
  const std::string space(w > width(s) ? w - width(s) : 0, ' ');
  return right ? space + s : s + space;
}

bool not_finite(const std::string& text) {
  return text.find("nan") != std::string::npos || text.find("inf") != std::string::npos ||
         text.find("NaN") != std::string::npos || text.find("Inf") != std::string::npos;
}

// Plain sentences about the worst element.
std::vector<std::string> in_words(const Record& r, const RecordElement& e) {
  // An exact value may be printed as an unevaluated sum; its first term is enough in a sentence.
  const std::string exact = e.exact.empty() ? e.expected : e.exact.substr(0, e.exact.find(' '));
  const bool finite = !not_finite(e.got) && !not_finite(exact);
  const RecordCheck* c = failing_check(r);
  if (c && c->check == "relations")                // the other side is what other runs returned, not the truth
    return {fmt::format("In {}{}{}, run {} returned {} where what the kernel returned in the case's other runs demands {}.", e.tensor, e.place.empty() ? "" : ", ", e.place,
                        e.run, e.got, exact),
            "The relation holds for every kernel with the properties that this one declares: one of the runs is wrong, or the property."};
  std::vector<std::string> s{fmt::format("In {}{}{}, the kernel returned {}{} where the exact result is {}.", e.tensor.empty() ? "the result" : e.tensor,
                                         e.place.empty() ? "" : ", ", e.place, e.got,
                                         not_finite(e.got) && !not_finite(exact) ? ", which is not a finite number," : "", exact)};
  if (finite && e.bound > 0 && e.ratio > 1)
    s.push_back(fmt::format("A correct kernel with the precision contract {} is off by at most {} there; this one is off by {}, {} times as much.",
                            r.contract, short_number(e.bound), short_number(std::fabs(e.error)), short_number(e.ratio)));
  else if (finite && e.bound == 0)
    s.push_back("On this input every correct kernel returns exactly the expected number, so any difference is a fault.");
  return s;
}

std::string why(const Record& r) {
  const RecordCheck* c = failing_check(r);
  const std::string reason = !r.reason.empty() ? r.reason : c ? c->message : "";
  if (r.verdict == "MISTRUSTED") return "This case could not have seen a fault, so passing it would mean nothing: " + reason;
  if (r.verdict == "RUNTIME_ERROR") return "The kernel gave no result: " + reason;
  if (r.verdict == "TIMEOUT") return "The kernel did not finish in time: " + reason;
  if (r.verdict == "UNTESTED") return "No check decided this case, which the kernel claims to support: " + reason;
  return reason;
}

}  // namespace

namespace reports {

Block explain_failure(const Record& r) {
  Block b;
  const RecordCheck* c = failing_check(r);
  if (c && c->worst && r.verdict == "FAILED") b.sentences = in_words(r, *c->worst);
  else if (std::string reason = why(r); !reason.empty()) b.sentences.push_back(std::move(reason));
  const auto row = [&](const char* label, const std::string& text) {
    if (!text.empty()) b.rows.emplace_back(label, text);
  };
  if (c) {
    row("check", c->check + (c->clause.empty() ? "" : " (accuracy standard, clause " + c->clause + ")") + (c->message.empty() ? "" : ": " + c->message));
    if (c->failing) row("failing", fmt::format("{} of {} elements{}{}", c->failing, c->judged + c->vacuous, c->spread.empty() ? "" : "; ", c->spread));
    if (c->worst) {
      const RecordElement& e = *c->worst;
      row("worst", fmt::format("run {}, tensor {}, {}", e.run, e.tensor, e.place));
      // Bits, hexadecimal and decimal stand in columns.
      const std::size_t bits = std::max(e.got_bits.size(), e.expected_bits.size()), hex = std::max(e.got_hex.size(), e.expected_hex.size());
      row("got", fmt::format("{:<{}}  {:<{}}  {}", e.got_bits, bits, e.got_hex, hex, e.got));
      row("expected", fmt::format("{:<{}}  {:<{}}  {}", e.expected_bits, bits, e.expected_hex, hex, e.expected));
      row("exact", e.exact);
      row("error", fmt::format("{} = {} ulp", short_number(e.error), short_number(e.error_ulp)));
      row("bound", e.bound == 0 ? "0 (must be equal)" : fmt::format("{}, error/bound {}", short_number(e.bound), short_number(e.ratio)));
      row("detail", e.detail);
    }
  }
  if (!r.first_bad_chunk.empty()) row("first bad", "chunk " + r.first_bad_chunk + " is the first with a wrong output");
  for (const RecordCheck& other : r.checks)
    if (&other != c && (other.status == "FAILED" || other.status == "MISTRUSTED")) row("also", other.check + ": " + other.message);
  row("resembles", r.resembles);
  row("reproduce", r.repro);
  return b;
}

}  // namespace reports

std::string console_table(const std::vector<Record>& records, bool colour) {
  std::vector<Tally> tallies = tally(records);
  const Tally sum = total(records);
  // Families of which a kernel supports nothing, such as those of other operations, are named below its table.
  const auto nothing = [](const Tally& t) { return t.not_supported == t.cases && t.cases > 0; };
  std::map<std::string, std::map<std::string, std::string>> outside;   // kernel, profile
  std::map<std::string, std::string> profile;
  for (const Record& r : records) profile[r.family] = r.profile;
  for (const Tally& t : tallies)
    if (nothing(t) && std::any_of(tallies.begin(), tallies.end(), [&](const Tally& o) { return o.kernel == t.kernel && !nothing(o); })) {
      std::string& list = outside[t.kernel][profile[t.family]];
      list += (list.empty() ? "" : ", ") + printable(t.family);
    }
  std::erase_if(tallies, [&](const Tally& t) { return nothing(t) && outside.count(t.kernel); });
  const auto paint = [&](const std::string& s, const char* code) { return colour ? fmt::format("\x1b[{}m{}\x1b[0m", code, s) : s; };

  struct Column { std::string head; bool right; std::vector<std::string> cells; };
  std::vector<Column> columns{{"family", false, {}}, {"cases", true, {}}, {"passed", true, {}}, {"failed", true, {}}};
  const auto number = [](long long n) { return n ? std::to_string(n) : std::string("-"); };
  const auto optional = [&](const char* head, long long Tally::* field) {
    if (sum.*field == 0) return;
    columns.push_back({head, true, {}});
    for (const Tally& t : tallies) columns.back().cells.push_back(number(t.*field));
  };
  for (const Tally& t : tallies) {
    columns[0].cells.push_back(printable(t.family));
    columns[1].cells.push_back(number(t.cases));
    columns[2].cells.push_back(number(t.passed));
    columns[3].cells.push_back(number(t.failed));
  }
  optional("no result", &Tally::errors);
  optional("mistrusted", &Tally::mistrusted);
  optional("untested", &Tally::untested);
  columns.push_back({"not supported", true, {}});
  for (const Tally& t : tallies) columns.back().cells.push_back(number(t.not_supported));
  optional("skipped", &Tally::skipped);
  optional("waived", &Tally::waived);
  columns.push_back({"max error/bound", true, {}});
  columns.push_back({"worst case", false, {}});
  for (const Tally& t : tallies) {
    columns[columns.size() - 2].cells.push_back(t.has_ratio ? short_number(t.max_ratio) : "-");
    columns.back().cells.push_back(t.has_ratio ? printable(t.worst_case) : "-");
  }

  std::vector<std::size_t> widths;
  for (const Column& c : columns) {
    std::size_t w = width(c.head);
    for (const std::string& cell : c.cells) w = std::max(w, width(cell));
    widths.push_back(w);
  }
  const auto row = [&](auto cell) {
    std::string line;
    for (std::size_t i = 0; i < columns.size(); ++i) line += (i ? "  " : "") + pad(cell(columns[i]), widths[i], columns[i].right);
    return line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  };
  const std::string header = row([](const Column& c) { return c.head; });
  std::string text, kernel;
  for (std::size_t i = 0; i < tallies.size(); ++i) {
    if (i == 0 || tallies[i].kernel != kernel) {
      kernel = tallies[i].kernel;
      const auto first = std::find_if(records.begin(), records.end(), [&](const Record& r) { return r.kernel == kernel; });
      text += fmt::format("{}{}   contract {}\n{}", i ? "\n" : "", printable(kernel), printable(first->contract), header);
    }
    const std::string line = row([&](const Column& c) { return c.cells[i]; });
    text += tallies[i].bad() ? paint(line.substr(0, line.size() - 1), "31") + "\n" : line;
    if (const auto o = outside.find(kernel); o != outside.end() && (i + 1 == tallies.size() || tallies[i + 1].kernel != kernel))
      for (const auto& [of, list] : o->second) text += fmt::format("not supported, of profile {}: {}\n", printable(of), list);
  }
  for (const std::string& line : loose_contracts(records)) text += printable(line) + "\n";
  return text;
}

std::string failure_block(const Record& r) {
  std::string s = printable(fmt::format("{}  {}  {}", r.verdict, r.kernel, r.case_id)) + "\n";
  const Block b = explain_failure(r);
  for (const std::string& sentence : b.sentences) s += "  " + printable(sentence) + "\n";
  for (const auto& [label, value] : b.rows) s += fmt::format("  {:<10} {}\n", label, printable(value));
  return s;
}

std::string unsupported_reasons(const std::vector<Record>& records) {
  std::map<std::string, std::pair<long long, std::string>> reasons;   // count, an example
  long long cases = 0;
  for (const Record& r : records) {
    if (r.verdict != "NOT_SUPPORTED") continue;
    ++cases;
    auto& [count, example] = reasons[r.reason];
    if (count++ == 0) example = r.case_id;
  }
  if (cases == 0) return "";
  std::vector<std::pair<std::string, std::pair<long long, std::string>>> sorted(reasons.begin(), reasons.end());
  std::stable_sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.second.first > b.second.first; });
  constexpr std::size_t kShown = 8;
  std::string text = fmt::format("{} cases NOT_SUPPORTED:\n", cases);
  for (std::size_t i = 0; i < std::min(sorted.size(), kShown); ++i)
    text += fmt::format("  {:>4}  {}   for example {}\n", sorted[i].second.first, printable(sorted[i].first), printable(sorted[i].second.second));
  if (sorted.size() > kShown) text += fmt::format("  and {} reasons more, in the records\n", sorted.size() - kShown);
  return text;
}

}  // namespace gdn
