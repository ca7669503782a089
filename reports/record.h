// The record: one JSON line per case, the only thing reports see. Schema in reports/record.schema.json, versioned.
// Plain strings and numbers only, so that reports depend on no other part of the suite.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace gdn {

inline constexpr int kRecordSchemaVersion = 1;

struct RecordElement {                             // the worst element, ready to print
  std::string run, tensor, place;                  // "o", "sequence 0 token 63 head 2 channel 17 (chunk 0 row 63)"
  std::string got_bits, got_hex, got, expected_bits, expected_hex, expected, exact;
  double error = 0, error_ulp = 0, bound = 0, ratio = 0;
  std::string detail;
};
// The greatest error/bound of every cell of a coarse grid over a tensor of the base run: over heads and tokens of o, over key and value
// channels of ht. levels: rows x columns, one character a cell (error_level).
struct RecordMap {
  std::string tensor, row_label, column_label;     // "o", "head", "token"
  long long row_count = 0, column_count = 0;       // of the tensor; the grid has rows x columns cells
  long long rows = 0, columns = 0;
  std::string levels;
};
// '.': nothing judged; else a digit or letter that stands for 0 (no error) .. 61: half octaves of error/bound, 41 up to the limit, 61 beyond
// 2^10 or not finite.
char error_level(double ratio);
int error_level_of(char level);                    // -1 for '.' and what is no level
inline constexpr int kErrorLevelOfLimit = 41;

struct RecordCheck {
  std::string check, status, clause, message;      // status: PASSED FAILED MISTRUSTED NOT_APPLICABLE
  std::optional<RecordElement> worst;
  long long judged = 0, vacuous = 0, failing = 0;
  std::string spread;                              // where the failing elements lie: "o of run base: heads 1, 3 of 4"
  std::map<std::string, double> metrics;
  std::vector<RecordMap> maps;                     // of the bound
};
struct Record {
  std::string kernel, kernel_version, how, contract, convention, module, device;
  std::map<std::string, std::string> packages;
  std::string case_id, family, profile, problem, level;
  unsigned long long seed = 0;
  std::string verdict, reason;                     // verdict: as name(Verdict) prints it
  std::string waived;                              // why its failure is tolerated, and until when; empty: it is not
  std::vector<RecordCheck> checks;
  std::string resembles, first_bad_chunk, repro;   // first_bad_chunk: the number, "1"; repro: "gdn-cts verify ..."
  double kernel_seconds = 0, check_seconds = 0, golden_seconds = 0, token_heads = 0;
  std::map<std::string, double> metrics;           // rms_ratio, nmse, max_abs, max_ratio ...
  std::string suite_version, edition, golden_hash;
};

// What the gate made of the records: known to who ran it, not to who reads records later.
struct GateVerdict {
  bool passed = false;
  std::string summary;                             // one line
  std::vector<std::string> objections;             // why it does not pass, one line each
};

std::string to_json_line(const Record& r);
Record parse_record(const std::string& line);      // throws std::runtime_error; refuses a newer schema in one line
std::vector<Record> read_records(const std::string& file);   // names file and line

// Writers. All write through a temporary name.
void write_jsonl(const std::string& file, const std::vector<Record>& r);
void write_junit(const std::string& file, const std::vector<Record>& r, const GateVerdict* gate = nullptr);
std::string markdown_summary(const std::vector<Record>& r, std::size_t size_limit = 1000000, const GateVerdict* gate = nullptr);
// index.html and beside it records.jsonl, summary.md
void write_pages(const std::string& dir, const std::vector<Record>& r, const GateVerdict* gate = nullptr);
std::string console_table(const std::vector<Record>& r, bool colour);
std::string failure_block(const Record& r);        // the block that explains one failure
// Why cases were not run: a line for each reason, the most frequent first; "" when all were.
std::string unsupported_reasons(const std::vector<Record>& r);
// Two kernels, or two versions of one, side by side on the cases that both were asked.
struct Comparison {
  struct Side { std::string kernel, version, contract, device; };
  struct Row { const Record *a = nullptr, *b = nullptr; double error = 0, state_error = 0, ratio = 0, seconds = 0; };   // b's figure divided by a's; nan: not both have it
  Side a, b;
  std::vector<Row> rows;                           // cases of both
  // Not in rows: cases of one; cases that one of them did not run (not supported, skipped); cases whose goldens differ.
  std::size_t only_a = 0, only_b = 0, not_run = 0, other_golden = 0;
};
// Records of one kernel each; pointers into them. Throws std::runtime_error, one line, where a side holds no or several kernels.
Comparison compare(const std::vector<Record>& a, const std::vector<Record>& b);
std::string comparison_table(const Comparison& c); // a line per family, for terminals
// index.html and comparison.csv
void write_comparison(const std::string& dir, const Comparison& c, const std::string& command);

// Runs in order of time, each with its records and where its page lies: an index of them, with what changed since the run before of the same kernel.
struct RunOfRecords { std::string name, page; std::vector<Record> records; };
void write_run_index(const std::string& dir, const std::vector<RunOfRecords>& runs, const std::string& command);

// For people: which cases now fail, pass, err more or are gone since `before`, records of the same kernel. Decides nothing.
std::string changes_since(const std::vector<Record>& before, const std::vector<Record>& now);

}  // namespace gdn
