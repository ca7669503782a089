// What changed between two sets of records of a kernel: for a pull request, whose author wants to know what the change did.
#include <fmt/format.h>

#include <map>

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

}  // namespace gdn
