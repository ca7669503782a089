// Submissions; see submission.h.
#include "tools/cli/submission.h"

#include <ctime>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "golden/sha256.h"
#include "reports/file.h"
#include "reports/text.h"

namespace gdn::cli {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

constexpr const char* kFiles[] = {"records.jsonl", "summary.md", "index.html"};

std::string now() {
  const std::time_t t = std::time(nullptr);
  std::tm day{};
  ::gmtime_r(&t, &day);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &day);
  return text;
}

Json object(const Facts& facts) {
  Json j = Json::object();
  for (const auto& [key, value] : facts) j[key] = value;
  return j;
}

// Over everything but the hash itself, as dumped.
std::string own_hash(Json j) {
  j.erase("sha256");
  return sha256_hex(j.dump());
}

Facts facts_of(const Json& j) {
  Facts f;
  for (const auto& [key, value] : j.items()) f.emplace_back(key, value.get<std::string>());
  return f;
}

Facts kernel_facts(const std::vector<Record>& records) {
  if (records.empty()) return {};
  const Record& r = records[0];
  Facts f{{"name", r.kernel}, {"version", r.kernel_version}, {"how", r.how}, {"module", r.module}, {"device", r.device}, {"contract", r.contract}, {"convention", r.convention}};
  for (const auto& [package, version] : r.packages) f.emplace_back("package " + package, version);
  return f;
}

}  // namespace

Facts hashes_of(const std::vector<std::string>& files) {
  Facts f;
  for (const std::string& file : files) f.emplace_back(file, sha256_hex(read_file(file)));
  return f;
}

void write_submission(const std::string& dir, const std::vector<Record>& records, const GateVerdict& gate, const Facts& machine, const Facts& gate_facts,
                      const Facts& kernel_files) {
  write_pages(dir, records, &gate);
  Json j{{"schema_version", kSubmissionSchemaVersion}, {"created", now()},
         {"suite_version", records.empty() ? "" : records[0].suite_version}, {"edition", records.empty() ? "" : records[0].edition},
         {"machine", object(machine)}, {"kernel", object(kernel_facts(records))}, {"kernel_files", object(kernel_files)}, {"gate", object(gate_facts)},
         {"passed", gate.passed}, {"summary", gate.summary}, {"objections", gate.objections}, {"cases", records.size()}};
  Json files = Json::object();
  for (const char* name : kFiles) files[name] = sha256_hex(read_file((fs::path(dir) / name).string()));
  j["files"] = files;
  j["sha256"] = own_hash(j);
  write_file((fs::path(dir) / kSubmissionFile).string(), j.dump(1) + "\n");
}

Submission read_submission(const std::string& dir) {
  const std::string file = (fs::path(dir) / kSubmissionFile).string();
  const auto fail = [&](const std::string& what) { throw std::runtime_error(file + ": " + what); };
  const std::string text = read_file(file);
  Submission s;
  try {
    const Json j = Json::parse(text);
    if (j.at("schema_version").get<int>() > kSubmissionSchemaVersion)
      fail("schema version " + j.at("schema_version").dump() + " is newer than this program's version " + std::to_string(kSubmissionSchemaVersion));
    if (j.at("sha256").get<std::string>() != own_hash(j)) fail("was changed: it has not the hash that it states");
    for (const char* name : kFiles) {
      const std::string path = (fs::path(dir) / name).string();
      if (j.at("files").at(name).get<std::string>() != sha256_hex(read_file(path))) fail(path + " has not the stated hash");
    }
    s.created = j.at("created").get<std::string>();
    s.suite_version = j.at("suite_version").get<std::string>();
    s.edition = j.at("edition").get<std::string>();
    s.machine = facts_of(j.at("machine"));
    s.kernel = facts_of(j.at("kernel"));
    s.gate = facts_of(j.at("gate"));
    if (j.contains("kernel_files")) s.kernel_files = facts_of(j["kernel_files"]);   // older statements have none
    s.verdict.passed = j.at("passed").get<bool>();
    s.verdict.summary = j.at("summary").get<std::string>();
    s.verdict.objections = j.at("objections").get<std::vector<std::string>>();
    s.records = read_records((fs::path(dir) / "records.jsonl").string());
    if (j.at("cases").get<std::size_t>() != s.records.size()) fail("states " + j.at("cases").dump() + " cases, the records hold " + std::to_string(s.records.size()));
  } catch (const nlohmann::json::exception& e) {
    fail("no submission: " + std::string(e.what()));
  }
  // The hashes can be made again by whoever edits the files; a verdict against its own records is a mistake all the same.
  if (s.verdict.passed && (reports::total(s.records).bad() || !s.verdict.objections.empty())) fail("says that the gate passed, its records or objections say otherwise");
  return s;
}

}  // namespace gdn::cli
