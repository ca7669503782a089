// What all writers share: hostile text made harmless, numbers for people, and the tallies of a set of records.
#pragma once
#include <cmath>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "reports/record.h"

namespace gdn::reports {

// Valid UTF-8 without control characters (bad bytes become U+FFFD; newline and tab stay).
std::string clean(std::string_view text);
// One line for a terminal: clean, and newline, tab and other control characters as \n, \t, \xNN.
std::string printable(std::string_view text);
std::string xml_escape(std::string_view text);     // clean, then & < > " ' as entities; for XML and HTML
// A page by itself, with the style and script of all pages (tables of class "sortable" sort by a click). body: HTML inside <main>.
std::string html_page(std::string_view title, std::string_view body);
// Rules that set the colours of all pages and plots as variables (--fg, --s1 ...), for light and dark.
std::string plot_colours();
std::string short_number(double x);                // "0.0312", "3.1e-09", "nan"

bool is_failure(const Record& r);                  // FAILED MISTRUSTED UNTESTED RUNTIME_ERROR TIMEOUT, and not waived
double max_ratio(const Record& r);                 // metrics["max_ratio"], else the largest of its checks; nan when none
const RecordCheck* failing_check(const Record& r); // the first check that did not pass, nullptr when none
// case id without its family
std::string case_rest(const Record& r);

// Is ratio a worse than b? nan is worst of all.
inline bool worse(double a, double b) { return std::isnan(b) ? false : std::isnan(a) || a > b; }

// The block that explains one failure, before it is laid out. Texts are raw: the writer escapes them.
struct Block {
  std::vector<std::string> sentences;              // for somebody who has read only the README
  std::vector<std::pair<std::string, std::string>> rows;  // label and value
};
Block explain_failure(const Record& r);

struct Tally {                                     // one kernel and family
  std::string kernel, family;
  long long cases = 0, passed = 0, failed = 0, errors = 0, mistrusted = 0, untested = 0, not_supported = 0, skipped = 0, waived = 0;
  long long judged = 0, vacuous = 0;
  bool has_ratio = false;
  double max_ratio = 0, seconds = 0;
  std::string worst_case;                          // without family
  long long bad() const { return failed + errors + mistrusted + untested; }
  void add(const Record& r);
};
std::vector<Tally> tally(const std::vector<Record>& r);   // in order of first appearance
Tally total(const std::vector<Record>& r);
std::string verdict_counts(const Tally& t);        // "12 passed, 1 failed, 3 not supported"
// One line for each kernel whose declared contract allows far more than it errs, by the statistical check: the root mean square error of o
// or of ht is below a quarter (two bits) of what the contract carried out to nearest shows, in every case that the check judged.
std::vector<std::string> loose_contracts(const std::vector<Record>& r);
// From records alone: "FAIL: 1 of 16 cases ..." or "No case failed: ..."; with the gate's verdict its summary.
std::string headline(const std::vector<Record>& r, const GateVerdict* gate = nullptr);
// Objections that are not just one of the failing records again.
std::vector<std::string> other_objections(const std::vector<Record>& r, const GateVerdict& gate);

}  // namespace gdn::reports
