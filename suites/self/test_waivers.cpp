// Waivers: known failures pass the gate until their day, unexpected passes and waivers for nothing do not, bad files are refused by line.
#include <filesystem>

#include "reports/file.h"
#include "reports/text.h"
#include "suites/self/catch.h"
#include "suites/waivers.h"

using namespace gdn;
namespace fs = std::filesystem;

namespace {

Record record(const std::string& id, const std::string& verdict) {
  Record r;
  r.kernel = "my_kernel";
  r.case_id = id;
  r.family = id.substr(0, id.find(':'));
  r.verdict = verdict;
  return r;
}

Waiver waiver(const std::string& cases, const std::string& expires, const std::string& kernel = "*") { return {cases, kernel, "issue 12", expires, "FAILED", "w:1"}; }

struct File {
  std::string name = (fs::temp_directory_path() / ("gdn_waivers" + temporary_suffix())).string();
  explicit File(const std::string& text) { write_file(name, text); }
  ~File() { fs::remove(name); }
};

std::string refusal(const std::string& text) {
  const File f(text);
  try {
    read_waivers(f.name);
  } catch (const std::runtime_error& e) {
    return std::string(e.what()).substr(f.name.size());
  }
  return "";
}

}  // namespace

TEST_CASE("a failure is waived up to its day, and only for its kernel") {
  for (const char* verdict : {"FAILED", "TIMEOUT", "RUNTIME_ERROR", "MISTRUSTED", "UNTESTED"}) {
    std::vector<Record> r{record("a:x:1", verdict), record("b:x:1", verdict)};
    Waiver w = waiver("a:*", "2027-01-31");
    if (std::string(verdict) != "FAILED") {        // a wrong number that is known excuses nothing else
      CHECK(apply_waivers({w}, r, true, "2027-01-31").empty());
      CHECK(reports::is_failure(r[0]));
    }
    w.verdict = verdict;
    CHECK(apply_waivers({w}, r, true, "2027-01-31").empty());
    CHECK_FALSE(reports::is_failure(r[0]));
    CHECK(reports::is_failure(r[1]));
    CHECK(r[0].verdict == verdict);
    CHECK(r[0].waived == "issue 12 (until 2027-01-31)");
    CHECK(reports::total(r).waived == 1);
    CHECK(reports::total(r).bad() == 1);
  }
  std::vector<Record> r{record("a:x:1", "FAILED")};
  const auto late = apply_waivers({waiver("a:*", "2027-01-31")}, r, true, "2027-02-01");
  REQUIRE(late.size() == 1);
  CHECK(late[0] == "waiver w:1 expired on 2027-01-31: issue 12");
  CHECK(reports::is_failure(r[0]));
  CHECK(apply_waivers({waiver("a:*", "2027-01-31", "other*")}, r, false, "2027-01-01").empty());
  CHECK(reports::is_failure(r[0]));
}

TEST_CASE("an unexpected pass and a waiver for nothing are objected to") {
  std::vector<Record> r{record("a:x:1", "PASSED"), record("a:y:1", "FAILED"), record("b:x:1", "NOT_SUPPORTED")};
  const auto passes = apply_waivers({waiver("a:*", "2027-01-31")}, r, true, "2027-01-01");
  REQUIRE(passes.size() == 1);
  CHECK(passes[0].find("a:x:1 passes") != std::string::npos);
  CHECK(apply_waivers({waiver("b:*", "2027-01-31")}, r, true, "2027-01-01").empty());
  CHECK(apply_waivers({waiver("c:*", "2027-01-31")}, r, true, "2027-01-01").size() == 1);
  CHECK(apply_waivers({waiver("c:*", "2027-01-31")}, r, false, "2027-01-01").empty());
}

TEST_CASE("files of waivers are read, or refused by line") {
  const File good("# known\n\n{\"case\": \"a:*\", \"reason\": \"r\", \"expires\": \"2027-01-31\"}\n"
                  "{\"case\": \"b:*\", \"kernel\": \"k\", \"reason\": \"s\", \"expires\": \"2027-02-28\"}\n");
  const auto w = read_waivers(good.name);
  REQUIRE(w.size() == 2);
  CHECK(w[0].kernel == "*");
  CHECK(w[0].where == good.name + ":3");
  CHECK(w[1].kernel == "k");
  CHECK(refusal("{\"case\": \"a\"") .find(":1: not a JSON object") == 0);
  CHECK(refusal("\n[]") == ":2: not a JSON object");
  CHECK(refusal("{\"reason\": \"r\", \"expires\": \"2027-01-31\"}") == ":1: 'case' is missing");
  CHECK(refusal("{\"case\": \"a\", \"expires\": \"2027-01-31\"}").find("'reason' is missing") != std::string::npos);
  CHECK(refusal("{\"case\": \"a\", \"reason\": \"r\"}").find("'expires' is no date") != std::string::npos);
  CHECK(refusal("{\"case\": \"a\", \"reason\": \"r\", \"expires\": \"2027-13-01\"}").find("'expires' is no date") != std::string::npos);
  CHECK(refusal("{\"case\": \"a\", \"reason\": \"r\", \"expires\": \"soon\"}").find("'expires' is no date") != std::string::npos);
  CHECK(refusal("{\"case\": 3, \"reason\": \"r\", \"expires\": \"2027-01-31\"}") == ":1: 'case' is no text");
  CHECK(refusal("{\"case\": \"a\", \"verdict\": \"PASSED\", \"reason\": \"r\", \"expires\": \"2027-01-31\"}").find("'verdict' is 'PASSED'") != std::string::npos);
  CHECK(refusal("{\"Case\": \"a\"}").find("unknown key 'Case'") != std::string::npos);
}
