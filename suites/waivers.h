// Waivers: failures that are known and tolerated for a while, as data, so that a gate can stay switched on. One JSON object a
// line; blank lines and lines that begin with # are skipped:
//   {"case": "chunk_boundary:*", "kernel": "my_*", "verdict": "FAILED", "reason": "issue 12: ragged tails", "expires": "2027-01-31"}
// case and kernel are shell patterns (fnmatch) over the case id and the kernel's name; kernel may be left out, and verdict, which is
// FAILED then: a known wrong number does not excuse a crash. The verdict of a waived case stays what it is; the gate does not object to it. It does object to a waiver past its day (UTC, the day itself
// counts), to one whose case passes, and, where all cases ran, to one that meets no case: a waiver is an expected failure.
#pragma once
#include <string>
#include <vector>

#include "reports/record.h"

namespace gdn {

struct Waiver {
  std::string cases, kernel = "*", reason, expires, verdict = "FAILED";  // expires: YYYY-MM-DD
  std::string where;                                 // file:line
};
// Throws std::runtime_error, one line with file and line number: unreadable, no JSON, a key missing or unknown, no date.
std::vector<Waiver> read_waivers(const std::string& file);

std::string utc_today();                             // YYYY-MM-DD
// Writes Record::waived of the records that waivers in force cover, and returns what there is to object to, one line each.
// whole: these are all cases of a level, so that a waiver without a case is a mistake.
std::vector<std::string> apply_waivers(const std::vector<Waiver>& waivers, std::vector<Record>& records, bool whole, const std::string& today);

}  // namespace gdn
