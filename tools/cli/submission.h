// Submissions: the folder of a gate's report with a statement beside it, so that somebody else can trust the figures: which
// suite, machine, kernel and gate, what came out, and the SHA-256 of every file and of the kernel's own files, which stay where they
// are. No signature: the hashes show that the files are those of the statement, not who wrote it.
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
// kernel_files: path and hash (hashes_of).
void write_submission(const std::string& dir, const std::vector<Record>& records, const GateVerdict& gate, const Facts& machine, const Facts& gate_facts,
                      const Facts& kernel_files);
// Path and SHA-256 of each. Throws std::runtime_error for one that cannot be read.
Facts hashes_of(const std::vector<std::string>& files);

struct Submission {
  std::string created, suite_version, edition;
  Facts machine, kernel, gate, kernel_files;
  GateVerdict verdict;
  std::vector<Record> records;
};
// Reads DIR and compares every hash, and the verdict with the records. Throws std::runtime_error, one line: what is
// missing, changed, newer than this program, or says other than its records.
Submission read_submission(const std::string& dir);

}  // namespace gdn::cli
