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
struct RecordCheck {
  std::string check, status, clause, message;      // status: PASSED FAILED MISTRUSTED NOT_APPLICABLE
  std::optional<RecordElement> worst;
  long long judged = 0, vacuous = 0, failing = 0;
  std::string spread;                              // where the failing elements lie: "o of run base: heads 1, 3 of 4"
  std::map<std::string, double> metrics;
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
// For people: which cases now fail, pass, err more or are gone since `before`, records of the same kernel. Decides nothing.
std::string changes_since(const std::vector<Record>& before, const std::vector<Record>& now);

}  // namespace gdn
