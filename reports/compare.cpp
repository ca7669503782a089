// Two sets of records beside each other: what changed since a run before, for a pull request whose author wants to know what the change
// did; two kernels on the same cases; and an index over runs.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <map>
#include <stdexcept>
#include <tuple>

#include "reports/file.h"

#include "reports/text.h"

namespace gdn {

using namespace reports;

std::string changes_since(const std::vector<Record>& before, const std::vector<Record>& now) {
  constexpr double kGrowth = 1.25;                 // of error/bound that is worth a line: nothing is decided by it
  std::map<std::string, const Record*> old;
  for (const Record& r : before) old[r.case_id] = &r;
  std::vector<std::string> failing, passing, grown, lost;
  std::size_t fresh = 0, same = 0;
  for (const Record& r : now) {
    const auto at = old.find(r.case_id);
    if (at == old.end()) {
      ++fresh;
      continue;
    }
    const Record& b = *at->second;
    old.erase(at);
    const double ratio = max_ratio(r), ratio_before = max_ratio(b);
    const std::string verdicts = fmt::format("{}: {} was {}", r.case_id, r.verdict, b.verdict);
    if (is_failure(r) && !is_failure(b)) failing.push_back(verdicts);
    else if (!is_failure(r) && is_failure(b)) passing.push_back(verdicts);
    else if (r.verdict != b.verdict) (r.verdict == "PASSED" ? passing : failing).push_back(verdicts);
    else if (ratio > kGrowth * ratio_before) grown.push_back(fmt::format("{}: error/bound {} was {}", r.case_id, short_number(ratio), short_number(ratio_before)));
    else ++same;
  }
  std::string text;
  const auto list = [&](const char* what, const std::vector<std::string>& lines) {
    constexpr std::size_t kShown = 20;
    if (lines.empty()) return;
    text += fmt::format("{}: {}\n", what, lines.size());
    for (std::size_t i = 0; i < std::min(lines.size(), kShown); ++i) text += "  " + printable(lines[i]) + "\n";
    if (lines.size() > kShown) text += fmt::format("  and {} more\n", lines.size() - kShown);
  };
  for (const auto& [id, r] : old) lost.push_back(id);
  list("newly failing or no longer run", failing);
  list("newly passing or run", passing);
  list("error grown by a quarter or more", grown);
  list("not asked any more", lost);
  return text + fmt::format("unchanged: {}, new cases: {}\n", same, fresh);
}

namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

std::string esc(const std::string& text) { return xml_escape(printable(text)); }

double metric(const Record& r, const char* name) {
  const auto at = r.metrics.find(name);
  return at == r.metrics.end() ? kNan : at->second;
}

// b / a; two zeros are equal.
double quotient(double b, double a) { return a == 0 && b == 0 ? 1 : b / a; }

std::string times(double x) { return std::isnan(x) ? "-" : fmt::format("{:.3g}", x); }

double median(std::vector<double> x) {
  x.erase(std::remove_if(x.begin(), x.end(), [](double v) { return std::isnan(v); }), x.end());
  if (x.empty()) return kNan;
  std::sort(x.begin(), x.end());
  return x.size() % 2 ? x[x.size() / 2] : (x[x.size() / 2 - 1] + x[x.size() / 2]) / 2;
}

Comparison::Side side(const std::vector<Record>& records, const char* which) {
  if (records.empty()) throw std::runtime_error(std::string("the ") + which + " side holds no records");
  for (const Record& r : records)
    if (r.kernel != records[0].kernel) throw std::runtime_error(std::string("the ") + which + " side holds several kernels: " + printable(records[0].kernel) + ", " + printable(r.kernel));
  return {records[0].kernel, records[0].kernel_version, records[0].contract, records[0].device};
}

struct FamilySums {
  std::size_t cases = 0, a_passed = 0, b_passed = 0, differ = 0;
  std::vector<double> error, state_error, seconds;
};

// Families in order of appearance, "all" last.
std::vector<std::pair<std::string, FamilySums>> by_family(const Comparison& c) {
  std::vector<std::pair<std::string, FamilySums>> list;
  FamilySums all;
  for (const Comparison::Row& row : c.rows) {
    auto at = std::find_if(list.begin(), list.end(), [&](const auto& x) { return x.first == row.a->family; });
    if (at == list.end()) at = list.insert(list.end(), {row.a->family, {}});
    for (FamilySums* f : {&at->second, &all}) {
      ++f->cases;
      f->a_passed += row.a->verdict == "PASSED";
      f->b_passed += row.b->verdict == "PASSED";
      f->differ += row.a->verdict != row.b->verdict;
      f->error.push_back(row.error);
      f->state_error.push_back(row.state_error);
      f->seconds.push_back(row.seconds);
    }
  }
  list.emplace_back("all", all);
  return list;
}

std::string not_compared(const Comparison& c) {
  if (!c.only_a && !c.only_b && !c.not_run && !c.other_golden) return {};
  return fmt::format("Not compared: {} cases of the first alone, {} of the second alone, {} that one of them did not run, {} with other goldens.", c.only_a, c.only_b, c.not_run, c.other_golden);
}

// What is the same in both is named once.
std::string title(const Comparison::Side& s, const Comparison::Side& other) {
  return s.kernel + (s.kernel == other.kernel || s.version != other.version ? " " + s.version : "");
}

}  // namespace

Comparison compare(const std::vector<Record>& a, const std::vector<Record>& b) {
  Comparison c;
  c.a = side(a, "first");
  c.b = side(b, "second");
  std::map<std::string, const Record*> first;
  for (const Record& r : a) first[r.case_id] = &r;
  for (const Record& r : b) {
    const auto at = first.find(r.case_id);
    if (at == first.end()) {
      ++c.only_b;
      continue;
    }
    const Record& before = *at->second;
    first.erase(at);
    const auto run = [](const Record& x) { return x.verdict != "NOT_SUPPORTED" && x.verdict != "SKIPPED"; };
    if (!run(before) || !run(r)) {
      ++c.not_run;
      continue;
    }
    if (before.golden_hash != r.golden_hash || before.edition != r.edition) {
      ++c.other_golden;
      continue;
    }
    const auto of = [&](const char* name) { return quotient(metric(r, name), metric(before, name)); };
    c.rows.push_back({&before, &r, of("o_rms_ratio"), of("ht_rms_ratio"), of("max_ratio"), before.kernel_seconds > 0 && r.kernel_seconds > 0 ? r.kernel_seconds / before.kernel_seconds : kNan});
  }
  c.only_a = first.size();
  return c;
}

std::string comparison_table(const Comparison& c) {
  std::string s = fmt::format("first   {} {}, contract {}, {}\nsecond  {} {}, contract {}, {}\n", printable(c.a.kernel), printable(c.a.version), printable(c.a.contract), printable(c.a.device), printable(c.b.kernel),
                              printable(c.b.version), printable(c.b.contract), printable(c.b.device));
  s += fmt::format("{:<26} {:>6} {:>12} {:>13} {:>14} {:>15} {:>15} {:>12}\n", "family", "cases", "first passed", "second passed", "verdicts differ", "error o, times", "error ht, times", "time, times");
  for (const auto& [family, f] : by_family(c))
    s += fmt::format("{:<26} {:>6} {:>12} {:>13} {:>15} {:>15} {:>15} {:>12}\n", printable(family), f.cases, f.a_passed, f.b_passed, f.differ, times(median(f.error)), times(median(f.state_error)), times(median(f.seconds)));
  s += "times: the second's figure divided by the first's, median over cases; error: relative rms\n";
  for (const Comparison::Row& r : c.rows)
    if (r.a->verdict != r.b->verdict) s += fmt::format("  {}: {}, {}\n", printable(r.a->case_id), r.a->verdict, r.b->verdict);
  if (const std::string rest = not_compared(c); !rest.empty()) s += rest + "\n";
  return s;
}

void write_comparison(const std::string& dir, const Comparison& c, const std::string& command) {
  std::filesystem::create_directories(dir);
  const std::string a = title(c.a, c.b), b = title(c.b, c.a);
  std::string s = "<p class=\"dim\">GDN-CTS, two kernels side by side</p>\n<h1>" + esc(a) + " and " + esc(b) + "</h1>\n<pre>" + esc(command) + "</pre>\n";
  s += "<div class=\"scroll\"><table><thead><tr><th></th><th>first</th><th>second</th></tr></thead><tbody>\n";
  for (const auto& [what, x, y] : {std::tuple{"kernel", c.a.kernel, c.b.kernel}, {"version", c.a.version, c.b.version}, {"contract", c.a.contract, c.b.contract}, {"device", c.a.device, c.b.device}})
    s += fmt::format("<tr><th>{}</th><td>{}</td><td>{}</td></tr>\n", what, esc(x), esc(y));
  s += fmt::format("</tbody></table></div>\n<p>{} cases on the same goldens. {}</p>\n", c.rows.size(), not_compared(c));
  s += "<h2>By family</h2>\n<p class=\"dim\">Times: the second's figure divided by the first's, median over cases. Below 1 the second errs less or is faster. Error: relative rms of o and of the final state.</p>\n"
       "<div class=\"scroll\"><table class=\"sortable\"><thead><tr><th>family</th><th class=\"n\">cases</th><th class=\"n\">first passed</th><th class=\"n\">second passed</th><th class=\"n\">verdicts differ</th>"
       "<th class=\"n\">error o, times</th><th class=\"n\">error ht, times</th><th class=\"n\">time, times</th></tr></thead><tbody>\n";
  const auto cell = [](double x) { return fmt::format("<td class=\"n\" data-k=\"{:.6g}\">{}</td>", std::isnan(x) ? -1 : std::min(x, 1e300), times(x)); };
  for (const auto& [family, f] : by_family(c))
    s += fmt::format("<tr><th>{}</th><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n{}\">{}</td>", esc(family), f.cases, f.a_passed, f.b_passed, f.differ ? " warn" : "", f.differ) + cell(median(f.error)) +
         cell(median(f.state_error)) + cell(median(f.seconds)) + "</tr>\n";
  s += "</tbody></table></div>\n<h2>By case</h2>\n<div class=\"scroll\"><table class=\"sortable\"><thead><tr><th>case</th><th>first</th><th>second</th><th class=\"n\">error/bound first</th><th class=\"n\">second</th>"
       "<th class=\"n\">error o first</th><th class=\"n\">second</th><th class=\"n\">times</th><th class=\"n\">error ht, times</th><th class=\"n\">seconds first</th><th class=\"n\">second</th><th class=\"n\">times</th></tr></thead><tbody>\n";
  std::string csv = "case,first,second,first_max_ratio,second_max_ratio,first_o_rms,second_o_rms,first_ht_rms,second_ht_rms,first_seconds,second_seconds\n";
  const auto figure = [](double x) { return fmt::format("<td class=\"n\" data-k=\"{:.6g}\">{}</td>", std::isnan(x) ? -1 : std::min(x, 1e300), std::isnan(x) ? "-" : short_number(x)); };
  for (const Comparison::Row& r : c.rows) {
    const auto verdict = [](const Record& x) { return fmt::format("<td class=\"{}\">{}</td>", x.verdict == "PASSED" ? "pass" : is_failure(x) ? "fail" : "warn", esc(x.verdict)); };
    s += "<tr><td class=\"id\">" + esc(r.a->case_id) + "</td>" + verdict(*r.a) + verdict(*r.b) + figure(max_ratio(*r.a)) + figure(max_ratio(*r.b)) + figure(metric(*r.a, "o_rms_ratio")) + figure(metric(*r.b, "o_rms_ratio")) + cell(r.error) +
         cell(r.state_error) + figure(r.a->kernel_seconds) + figure(r.b->kernel_seconds) + cell(r.seconds) + "</tr>\n";
    csv += fmt::format("\"{}\",{},{}", printable(r.a->case_id), printable(r.a->verdict), printable(r.b->verdict));
    for (const double x : {max_ratio(*r.a), max_ratio(*r.b), metric(*r.a, "o_rms_ratio"), metric(*r.b, "o_rms_ratio"), metric(*r.a, "ht_rms_ratio"), metric(*r.b, "ht_rms_ratio"), r.a->kernel_seconds, r.b->kernel_seconds})
      csv += std::isnan(x) ? std::string(",") : fmt::format(",{:.9g}", x);
    csv += "\n";
  }
  s += "</tbody></table></div>\n<p>The same data: <a href=\"comparison.csv\">comparison.csv</a>.</p>\n";
  const std::filesystem::path base = dir;
  write_file((base / "comparison.csv").string(), csv);
  write_file((base / "index.html").string(), html_page("GDN-CTS: " + a + " and " + b, s));
}

void write_run_index(const std::string& dir, const std::vector<RunOfRecords>& runs, const std::string& command) {
  std::filesystem::create_directories(dir);
  std::string s = "<p class=\"dim\">GDN-CTS, conformance of Gated DeltaNet kernels</p>\n<h1>Runs</h1>\n<pre>" + esc(command) + "</pre>\n";
  s += "<div class=\"scroll\"><table class=\"sortable\"><thead><tr><th>run</th><th>kernel</th><th class=\"n\">passed</th><th class=\"n\">not passed</th><th>since the run before</th><th class=\"n\">max error/bound</th>"
       "<th class=\"n\">cases</th><th class=\"n\">not supported</th><th>level</th><th>version</th><th>suite</th></tr></thead><tbody>\n";
  std::map<std::string, const std::vector<Record>*> last;   // the run before of each kernel
  std::vector<std::vector<Record>> parts;                   // records of one kernel of one run, kept for `last`
  std::size_t most = 0;
  for (const RunOfRecords& run : runs) most += run.records.size();
  parts.reserve(most + 1);
  std::string changes;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const RunOfRecords& run = runs[i];
    std::vector<std::string> kernels;
    for (const Record& r : run.records)
      if (std::find(kernels.begin(), kernels.end(), r.kernel) == kernels.end()) kernels.push_back(r.kernel);
    for (const std::string& kernel : kernels) {
      std::vector<Record>& part = parts.emplace_back();
      Tally t;
      for (const Record& r : run.records)
        if (r.kernel == kernel) {
          t.add(r);
          part.push_back(r);
        }
      std::string since = "first run";
      if (const auto at = last.find(kernel); at != last.end()) {
        const std::string text = changes_since(*at->second, part);
        const std::string id = fmt::format("change{}", parts.size());
        const bool same = std::count(text.begin(), text.end(), '\n') == 1;
        since = same ? esc(text.substr(0, text.size() - 1)) : fmt::format("<a href=\"#{}\">{}</a>", id, esc(text.substr(0, text.find('\n'))));
        if (!same) changes += fmt::format("<h3 id=\"{}\">{}: {}</h3>\n<pre>{}</pre>\n", id, esc(run.name), esc(kernel), xml_escape(clean(text)));
      }
      last[kernel] = &part;
      s += fmt::format("<tr><td><a href=\"{}\">{}</a></td><td>{}</td><td class=\"n\">{}</td><td class=\"n {}\">{}</td><td>{}</td><td class=\"n\" data-k=\"{:.6g}\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td>{}</td><td>{}</td><td>{}</td></tr>\n", esc(run.page),
                       esc(run.name), esc(kernel), t.passed, t.bad() ? "fail" : "pass", t.bad(), since, t.has_ratio && std::isfinite(t.max_ratio) ? t.max_ratio : t.has_ratio ? 1e300 : -1, t.has_ratio ? short_number(t.max_ratio) : "-", t.cases,
                       t.not_supported + t.skipped, esc(part[0].level), esc(part[0].kernel_version), esc(part[0].suite_version));
    }
  }
  s += "</tbody></table></div>\n";
  if (!changes.empty()) s += "<h2>What changed</h2>\n" + changes;
  write_file((std::filesystem::path(dir) / "index.html").string(), html_page("GDN-CTS: runs", s));
}

}  // namespace gdn
