// Waivers; see waivers.h.
#include "suites/waivers.h"

#include <fnmatch.h>

#include <algorithm>
#include <cctype>
#include <ctime>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>
#include <string_view>

#include "reports/file.h"
#include "reports/text.h"

namespace gdn {
namespace {

bool is_date(const std::string& s) {
  if (s.size() != 10 || s[4] != '-' || s[7] != '-') return false;
  for (std::size_t i : {0, 1, 2, 3, 5, 6, 8, 9})
    if (!std::isdigit(static_cast<unsigned char>(s[i]))) return false;
  const int month = std::stoi(s.substr(5, 2)), day = std::stoi(s.substr(8, 2));
  return month >= 1 && month <= 12 && day >= 1 && day <= 31;
}

Waiver parse(const std::string& line) {
  nlohmann::json j;
  try {
    j = nlohmann::json::parse(line);
  } catch (const nlohmann::json::parse_error& e) {
    throw std::runtime_error("not a JSON object (syntax error at byte " + std::to_string(e.byte) + ")");
  }
  if (!j.is_object()) throw std::runtime_error("not a JSON object");
  Waiver w;
  for (const auto& [key, value] : j.items()) {
    std::string* to = key == "case" ? &w.cases : key == "kernel" ? &w.kernel : key == "reason" ? &w.reason : key == "expires" ? &w.expires : key == "verdict" ? &w.verdict : nullptr;
    if (!to) throw std::runtime_error("unknown key '" + reports::printable(key) + "'; there are case, kernel, verdict, reason, expires");
    if (!value.is_string()) throw std::runtime_error("'" + key + "' is no text");
    *to = value.get<std::string>();
  }
  if (w.cases.empty()) throw std::runtime_error("'case' is missing");
  constexpr std::string_view verdicts[] = {"FAILED", "MISTRUSTED", "UNTESTED", "RUNTIME_ERROR", "TIMEOUT"};
  if (std::find(std::begin(verdicts), std::end(verdicts), w.verdict) == std::end(verdicts))
    throw std::runtime_error("'verdict' is '" + reports::printable(w.verdict) + "', none of FAILED, MISTRUSTED, UNTESTED, RUNTIME_ERROR, TIMEOUT");
  if (w.reason.empty()) throw std::runtime_error("'reason' is missing: a waiver says why");
  if (!is_date(w.expires)) throw std::runtime_error("'expires' is no date YYYY-MM-DD: a waiver ends");
  return w;
}

bool matches(const std::string& pattern, const std::string& text) { return ::fnmatch(pattern.c_str(), text.c_str(), 0) == 0; }

}  // namespace

std::vector<Waiver> read_waivers(const std::string& file) {
  std::istringstream in(read_file(file));
  std::vector<Waiver> waivers;
  std::string line;
  for (int number = 1; std::getline(in, line); ++number) {
    const std::size_t first = line.find_first_not_of(" \t\r");
    if (first == std::string::npos || line[first] == '#') continue;
    const std::string where = file + ":" + std::to_string(number);
    try {
      waivers.push_back(parse(line));
    } catch (const std::runtime_error& e) {
      throw std::runtime_error(where + ": " + e.what());
    }
    waivers.back().where = where;
  }
  return waivers;
}

std::string utc_today() {
  const std::time_t now = std::time(nullptr);
  std::tm day{};
  ::gmtime_r(&now, &day);
  char text[16];
  std::strftime(text, sizeof text, "%Y-%m-%d", &day);
  return text;
}

std::vector<std::string> apply_waivers(const std::vector<Waiver>& waivers, std::vector<Record>& records, bool whole, const std::string& today) {
  std::vector<std::string> objections;
  for (const Waiver& w : waivers) {
    const bool expired = w.expires < today;        // dates of this form sort as text
    bool met = false, used = false;
    for (Record& r : records) {
      if (!matches(w.cases, r.case_id) || !matches(w.kernel, r.kernel)) continue;
      met = true;
      if (r.verdict == "PASSED") objections.push_back("waiver " + w.where + ": " + r.case_id + " passes; take it out of the waiver");
      if (r.verdict != w.verdict) continue;
      used = true;
      if (!expired && r.waived.empty()) r.waived = w.reason + " (until " + w.expires + ")";
    }
    if (used && expired) objections.push_back("waiver " + w.where + " expired on " + w.expires + ": " + w.reason);
    if (!met && whole) objections.push_back("waiver " + w.where + ": no case is called '" + w.cases + "'");
  }
  return objections;
}

}  // namespace gdn
