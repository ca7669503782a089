// Submissions: the folder of a gate's report with a statement beside it, so that somebody else can trust the figures: which
// suite, machine, kernel and gate, what came out, and the SHA-256 of every file. No signature: the hashes show that the files
// are those of the statement, not who wrote it.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "reports/record.h"

namespace gdn::cli {

inline constexpr const char* kSubmissionFile = "submission.json";
inline constexpr int kSubmissionSchemaVersion = 1;

using Facts = std::vector<std::pair<std::string, std::string>>;
// Writes the pages of write_pages, then submission.json over them. gate_facts: level, seed, profiles ... in words.
void write_submission(const std::string& dir, const std::vector<Record>& records, const GateVerdict& gate, const Facts& machine, const Facts& gate_facts);

struct Submission {
  std::string created, suite_version, edition;
  Facts machine, kernel, gate;
  GateVerdict verdict;
  std::vector<Record> records;
};
// Reads DIR and compares every hash, and the verdict with the records. Throws std::runtime_error, one line: what is
// missing, changed, newer than this program, or says other than its records.
Submission read_submission(const std::string& dir);

}  // namespace gdn::cli
