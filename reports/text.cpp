// Shared by the writers; see text.h.
#include "reports/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

namespace gdn::reports {
namespace {

// Length of the valid UTF-8 sequence at s[i], 0 when there is none (RFC 3629: no overlongs, surrogates, > 10FFFF).
std::size_t sequence_at(std::string_view s, std::size_t i) {
  const auto byte = [&](std::size_t k) { return k < s.size() ? static_cast<unsigned char>(s[k]) : 0u; };
  const auto tail = [&](std::size_t k, unsigned lo = 0x80, unsigned hi = 0xbf) { return byte(k) >= lo && byte(k) <= hi; };
  const unsigned b = byte(i);
  if (b < 0x80) return 1;
  if (b >= 0xc2 && b <= 0xdf) return tail(i + 1) ? 2 : 0;
  if (b >= 0xe0 && b <= 0xef)
    return tail(i + 1, b == 0xe0 ? 0xa0 : 0x80, b == 0xed ? 0x9f : 0xbf) && tail(i + 2) ? 3 : 0;
  if (b >= 0xf0 && b <= 0xf4)
    return tail(i + 1, b == 0xf0 ? 0x90 : 0x80, b == 0xf4 ? 0x8f : 0xbf) && tail(i + 2) && tail(i + 3) ? 4 : 0;
  return 0;
}

// Calls emit(sequence, is_control) for every character; bad bytes arrive as U+FFFD.
template <class Emit>
void each_character(std::string_view s, Emit emit) {
  for (std::size_t i = 0; i < s.size();) {
    const std::size_t n = sequence_at(s, i);
    if (n == 0) {
      emit("\xef\xbf\xbd", false);
      ++i;
      continue;
    }
    const std::string_view c = s.substr(i, n);
    i += n;
    const auto first = static_cast<unsigned char>(c[0]);
    const bool c1 = n == 2 && first == 0xc2 && static_cast<unsigned char>(c[1]) < 0xa0;      // U+0080..9F
    const bool noncharacter = n == 3 && first == 0xef && static_cast<unsigned char>(c[1]) == 0xbf &&
                              static_cast<unsigned char>(c[2]) >= 0xbe;                     // U+FFFE, FFFF
    const bool direction = n == 3 && first == 0xe2 && ((c[1] == '\x80' && static_cast<unsigned char>(c[2]) >= 0xaa &&
                                                        static_cast<unsigned char>(c[2]) <= 0xae) ||
                                                       (c[1] == '\x81' && static_cast<unsigned char>(c[2]) >= 0xa6 &&
                                                        static_cast<unsigned char>(c[2]) <= 0xa9));  // bidi overrides
    emit(c, (n == 1 && (first < 0x20 || first == 0x7f)) || c1 || noncharacter || direction);
  }
}

}  // namespace

std::string clean(std::string_view text) {
  std::string out;
  each_character(text, [&](std::string_view c, bool control) {
    if (!control || c == "\n" || c == "\t") out += c;
  });
  return out;
}

std::string printable(std::string_view text) {
  std::string out;
  each_character(text, [&](std::string_view c, bool control) {
    if (!control) out += c;
    else if (c == "\n") out += "\\n";
    else if (c == "\t") out += "\\t";
    else
      for (char b : c) out += fmt::format("\\x{:02x}", static_cast<unsigned char>(b));
  });
  return out;
}

std::string xml_escape(std::string_view text) {
  std::string out;
  for (char c : clean(text)) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      case '\'': out += "&#39;"; break;
      default: out += c;
    }
  }
  return out;
}

std::string short_number(double x) {
  if (std::isnan(x)) return "nan";
  return fmt::format("{:.3g}", x);
}

bool is_failure(const Record& r) {
  return r.waived.empty() && r.verdict != "PASSED" && r.verdict != "NOT_SUPPORTED" && r.verdict != "SKIPPED";
}

double max_ratio(const Record& r) {
  if (const auto at = r.metrics.find("max_ratio"); at != r.metrics.end()) return at->second;
  bool any = false;
  double ratio = 0;
  for (const RecordCheck& c : r.checks)
    if (c.worst) {
      if (!any || worse(c.worst->ratio, ratio)) ratio = c.worst->ratio;
      any = true;
    }
  return any ? ratio : std::nan("");
}

const RecordCheck* failing_check(const Record& r) {
  for (const RecordCheck& c : r.checks)
    if (c.status == "FAILED" || c.status == "MISTRUSTED") return &c;
  return nullptr;
}

std::string case_rest(const Record& r) {
  if (r.case_id.compare(0, r.family.size() + 1, r.family + ":") == 0) return r.case_id.substr(r.family.size() + 1);
  return r.case_id;
}

void Tally::add(const Record& r) {
  ++cases;
  if (!r.waived.empty()) ++waived;
  else if (r.verdict == "PASSED") ++passed;
  else if (r.verdict == "FAILED") ++failed;
  else if (r.verdict == "MISTRUSTED") ++mistrusted;
  else if (r.verdict == "UNTESTED") ++untested;
  else if (r.verdict == "NOT_SUPPORTED") ++not_supported;
  else if (r.verdict == "SKIPPED") ++skipped;
  else ++errors;
  for (const RecordCheck& c : r.checks) {
    judged += c.judged;
    vacuous += c.vacuous;
  }
  seconds += r.kernel_seconds + r.check_seconds + r.golden_seconds;
  const double ratio = reports::max_ratio(r);
  const bool measured = r.metrics.count("max_ratio") || !std::isnan(ratio);
  if (measured && (!has_ratio || worse(ratio, max_ratio))) {
    has_ratio = true;
    max_ratio = ratio;
    worst_case = case_rest(r);
  }
}

std::vector<Tally> tally(const std::vector<Record>& records) {
  std::vector<Tally> tallies;
  std::map<std::pair<std::string, std::string>, std::size_t> index;
  for (const Record& r : records) {
    const auto [at, fresh] = index.try_emplace({r.kernel, r.family}, tallies.size());
    if (fresh) {
      tallies.emplace_back();
      tallies.back().kernel = r.kernel;
      tallies.back().family = r.family;
    }
    tallies[at->second].add(r);
  }
  return tallies;
}

Tally total(const std::vector<Record>& records) {
  Tally t;
  for (const Record& r : records) t.add(r);
  return t;
}

std::string verdict_counts(const Tally& t) {
  std::string text;
  auto part = [&](long long n, const char* what) {
    if (n) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", n, what);
  };
  part(t.passed, "passed");
  part(t.failed, "failed");
  part(t.errors, "without a result");
  part(t.mistrusted, "mistrusted");
  part(t.untested, "untested");
  part(t.not_supported, "not supported");
  part(t.skipped, "skipped");
  part(t.waived, "waived");
  return text.empty() ? "no cases" : text;
}

std::string headline(const std::vector<Record>& records, const GateVerdict* gate) {
  if (gate) return gate->summary;
  const Tally t = total(records);
  if (t.bad()) return fmt::format("FAIL: {} of {} cases did not pass ({})", t.bad(), t.cases, verdict_counts(t));
  if (!t.passed) return fmt::format("Nothing passed: {}", verdict_counts(t));
  return fmt::format("No case failed: {} of {} passed{}", t.passed, t.cases, t.passed == t.cases ? "" : fmt::format(" ({})", verdict_counts(t)));
}

std::vector<std::string> other_objections(const std::vector<Record>& records, const GateVerdict& gate) {
  std::set<std::string> failing;                   // what an objection to a failing case or its family begins with
  for (const Record& r : records)
    if (is_failure(r)) {
      failing.insert(r.case_id + " ");
      failing.insert("family " + r.family + ": ");
      failing.insert("no case PASSED");
    }
  std::vector<std::string> others;
  for (const std::string& line : gate.objections)
    if (std::none_of(failing.begin(), failing.end(), [&](const std::string& start) { return line.compare(0, start.size(), start) == 0; }))
      others.push_back(line);
  return others;
}

std::vector<std::string> loose_contracts(const std::vector<Record>& records) {
  constexpr double kTwoBits = 0.25;
  std::vector<std::string> kernels, lines;
  std::map<std::string, std::map<std::string, double>> shares;   // kernel -> tensor -> greatest share
  std::map<std::string, const Record*> any;
  for (const Record& r : records) {
    if (any.emplace(r.kernel, &r).second) kernels.push_back(r.kernel);
    for (const RecordCheck& c : r.checks)
      for (const char* tensor : {"o", "ht"})
        if (const auto at = c.metrics.find(std::string(tensor) + "_share_of_contract"); at != c.metrics.end()) {
          double& share = shares[r.kernel][tensor];
          share = std::max(share, at->second);
        }
  }
  for (const std::string& kernel : kernels) {
    std::string what;
    for (const auto& [tensor, share] : shares[kernel])
      if (share < kTwoBits) what += (what.empty() ? "" : ", ") + fmt::format("{} times as large in {}", short_number(share), tensor);
    if (!what.empty())
      lines.push_back(kernel + " declares a looser contract than it needs: its errors are " + what + " as those that " + any[kernel]->contract +
                      " makes; a slip of the size between passes unseen. gdn-cts infer finds the tightest contract that it meets");
  }
  return lines;
}

}  // namespace gdn::reports
