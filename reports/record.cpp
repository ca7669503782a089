// Records to and from JSON lines. Field names are those of the struct; JSON has no nan or infinity, so these travel as the
// strings "nan", "inf", "-inf".
#include "reports/record.h"

#include <algorithm>
#include <cmath>
#include <string_view>

#include "reports/file.h"
#include "reports/json.h"

namespace gdn {
namespace {

using namespace reports;

void one_of(const std::string& value, const char* field, std::initializer_list<const char*> allowed) {
  for (const char* a : allowed)
    if (value == a) return;
  fail("field '" + std::string(field) + "' has the unknown value '" + value.substr(0, 40) + "'");
}

Json to_json(const RecordElement& e) {
  return Json{{"run", e.run}, {"tensor", e.tensor}, {"place", e.place},
              {"got_bits", e.got_bits}, {"got_hex", e.got_hex}, {"got", e.got},
              {"expected_bits", e.expected_bits}, {"expected_hex", e.expected_hex}, {"expected", e.expected},
              {"exact", e.exact}, {"error", number(e.error)}, {"error_ulp", number(e.error_ulp)},
              {"bound", number(e.bound)}, {"ratio", number(e.ratio)}, {"detail", e.detail}};
}

RecordElement element_from(const Json& j) {
  const Reader in(j, "checks[].worst");
  RecordElement e;
  in.get("run", e.run);
  in.get("tensor", e.tensor);
  in.get("place", e.place);
  in.get("got_bits", e.got_bits);
  in.get("got_hex", e.got_hex);
  in.get("got", e.got);
  in.get("expected_bits", e.expected_bits);
  in.get("expected_hex", e.expected_hex);
  in.get("expected", e.expected);
  in.get("exact", e.exact);
  in.get("error", e.error);
  in.get("error_ulp", e.error_ulp);
  in.get("bound", e.bound);
  in.get("ratio", e.ratio);
  in.get("detail", e.detail);
  return e;
}

RecordMap map_from(const Json& j) {
  const Reader in(j, "checks[].maps");
  RecordMap m;
  in.get("tensor", m.tensor);
  in.get("row_label", m.row_label);
  in.get("column_label", m.column_label);
  in.get_integer("row_count", m.row_count);
  in.get_integer("column_count", m.column_count);
  in.get_integer("rows", m.rows);
  in.get_integer("columns", m.columns);
  in.get("levels", m.levels);
  constexpr long long kMost = 4096;                // cells along one side: what a page can draw
  if (m.rows > kMost || m.columns > kMost || static_cast<std::size_t>(m.rows * m.columns) != m.levels.size()) fail("field 'checks[].maps.levels' does not have rows x columns characters");
  return m;
}

constexpr std::string_view kLevels = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

}  // namespace

char error_level(double ratio) {
  if (ratio == 0) return kLevels[0];
  if (!(ratio < 1024)) return kLevels[61];         // NaN too
  // The level whose half octave ends at or above the ratio, so that what is within the limit stays within it.
  return kLevels[static_cast<std::size_t>(std::clamp(static_cast<int>(std::ceil(2 * std::log2(ratio))) + kErrorLevelOfLimit, 1, 61))];
}

int error_level_of(char level) {
  const std::size_t at = kLevels.find(level);
  return at == std::string_view::npos ? -1 : static_cast<int>(at);
}

std::string to_json_line(const Record& r) {
  Json checks = Json::array();
  for (const RecordCheck& c : r.checks) {
    Json j{{"check", c.check}, {"status", c.status}, {"clause", c.clause}, {"message", c.message}};
    if (c.worst) j["worst"] = to_json(*c.worst);
    j["judged"] = c.judged;
    j["vacuous"] = c.vacuous;
    j["failing"] = c.failing;
    if (!c.spread.empty()) j["spread"] = c.spread;
    j["metrics"] = numbers(c.metrics);
    if (!c.maps.empty()) {
      Json maps = Json::array();
      for (const RecordMap& m : c.maps)
        maps.push_back(Json{{"tensor", m.tensor}, {"row_label", m.row_label}, {"column_label", m.column_label}, {"row_count", m.row_count}, {"column_count", m.column_count}, {"rows", m.rows}, {"columns", m.columns}, {"levels", m.levels}});
      j["maps"] = std::move(maps);
    }
    checks.push_back(std::move(j));
  }
  Json packages = Json::object();
  for (const auto& [k, v] : r.packages) packages[k] = v;
  const Json j{{"schema_version", kRecordSchemaVersion},
               {"kernel", r.kernel}, {"kernel_version", r.kernel_version}, {"how", r.how}, {"contract", r.contract},
               {"convention", r.convention}, {"module", r.module}, {"device", r.device}, {"packages", packages},
               {"case_id", r.case_id}, {"family", r.family}, {"profile", r.profile}, {"problem", r.problem},
               {"level", r.level}, {"seed", r.seed}, {"verdict", r.verdict}, {"reason", r.reason}, {"waived", r.waived}, {"checks", checks},
               {"resembles", r.resembles}, {"first_bad_chunk", r.first_bad_chunk}, {"repro", r.repro},
               {"kernel_seconds", number(r.kernel_seconds)}, {"check_seconds", number(r.check_seconds)},
               {"golden_seconds", number(r.golden_seconds)}, {"token_heads", number(r.token_heads)},
               {"metrics", numbers(r.metrics)}, {"suite_version", r.suite_version}, {"edition", r.edition},
               {"golden_hash", r.golden_hash}};
  return dump(j);
}

Record parse_record(const std::string& line) {
  const Json j = parse_line(line, "record");
  const Reader in(j, "record");
  in.version(kRecordSchemaVersion, "record");
  Record r;
  in.get("kernel", r.kernel, true);
  in.get("kernel_version", r.kernel_version);
  in.get("how", r.how);
  in.get("contract", r.contract);
  in.get("convention", r.convention);
  in.get("module", r.module);
  in.get("device", r.device);
  in.get("packages", r.packages);
  in.get("case_id", r.case_id, true);
  in.get("family", r.family, true);
  in.get("profile", r.profile);
  in.get("problem", r.problem);
  in.get("level", r.level);
  in.get_integer("seed", r.seed);
  in.get("verdict", r.verdict, true);
  one_of(r.verdict, "verdict", {"PASSED", "FAILED", "MISTRUSTED", "NOT_SUPPORTED", "SKIPPED", "RUNTIME_ERROR", "TIMEOUT", "UNTESTED"});
  in.get("reason", r.reason);
  in.get("waived", r.waived);
  if (const Json* checks = in.find("checks")) {
    if (!checks->is_array()) fail("field 'checks' is not an array");
    for (const Json& item : *checks) {
      const Reader ci(item, "checks[]");
      RecordCheck c;
      ci.get("check", c.check, true);
      ci.get("status", c.status, true);
      one_of(c.status, "checks[].status", {"PASSED", "FAILED", "MISTRUSTED", "NOT_APPLICABLE"});
      ci.get("clause", c.clause);
      ci.get("message", c.message);
      if (const Json* worst = ci.find("worst")) c.worst = element_from(*worst);
      ci.get_integer("judged", c.judged);
      ci.get_integer("vacuous", c.vacuous);
      ci.get_integer("failing", c.failing);
      ci.get("spread", c.spread);
      ci.get("metrics", c.metrics);
      if (const Json* maps = ci.find("maps")) {
        if (!maps->is_array()) fail("field 'checks[].maps' is not an array");
        for (const Json& one : *maps) c.maps.push_back(map_from(one));
      }
      r.checks.push_back(std::move(c));
    }
  }
  in.get("resembles", r.resembles);
  in.get("first_bad_chunk", r.first_bad_chunk);
  in.get("repro", r.repro);
  in.get("kernel_seconds", r.kernel_seconds);
  in.get("check_seconds", r.check_seconds);
  in.get("golden_seconds", r.golden_seconds);
  in.get("token_heads", r.token_heads);
  in.get("metrics", r.metrics);
  in.get("suite_version", r.suite_version);
  in.get("edition", r.edition);
  in.get("golden_hash", r.golden_hash);
  return r;
}

std::vector<Record> read_records(const std::string& file) {
  std::vector<Record> records;
  for_each_line(file, [&](const std::string& line) { records.push_back(parse_record(line)); });
  return records;
}

void write_jsonl(const std::string& file, const std::vector<Record>& records) {
  std::string content;
  for (const Record& r : records) content += to_json_line(r) + "\n";
  write_file(file, content);
}

}  // namespace gdn
