// The program from outside, as a shell sees it: output, exit status, files.
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "reports/file.h"
#include "reports/record.h"
#include "suites/self/catch.h"

using namespace gdn;
namespace fs = std::filesystem;

namespace {

struct Result {
  int status = -1;
  std::string out, err;
};

struct Directory {
  fs::path path = fs::temp_directory_path() / ("gdn_cli" + temporary_suffix());
  Directory() { fs::create_directories(path); }
  ~Directory() { fs::remove_all(path); }
  std::string operator/(const std::string& name) const { return (path / name).string(); }
};

// arguments is shell text.
Result shell(const std::string& line) {
  static const Directory dir;
  const std::string err = dir / "stderr";
  std::FILE* pipe = ::popen(("( " + line + "\n) 2>'" + err + "'").c_str(), "r");
  REQUIRE(pipe != nullptr);
  Result r;
  std::array<char, 4096> buffer;
  std::size_t n;
  while ((n = std::fread(buffer.data(), 1, buffer.size(), pipe)) > 0) r.out.append(buffer.data(), n);
  const int status = ::pclose(pipe);
  r.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  r.err = read_file(err);
  return r;
}

Result gdn_cts(const std::string& arguments) { return shell("'" GDN_PROGRAM "' " + arguments); }

std::size_t lines(const std::string& s) { return static_cast<std::size_t>(std::count(s.begin(), s.end(), '\n')); }

bool contains(const std::string& s, const std::string& part) { return s.find(part) != std::string::npos; }

// Wrong use: nothing on standard output, one line on standard error, exit status 2.
void refused(const std::string& arguments, const std::string& part) {
  const Result r = gdn_cts(arguments);
  CAPTURE(arguments, r.out, r.err);
  CHECK(r.status == 2);
  CHECK(r.out.empty());
  CHECK(lines(r.err) == 1);
  CHECK(r.err.compare(0, 9, "gdn-cts: ") == 0);
  CHECK(contains(r.err, part));
}

}  // namespace

TEST_CASE("wrong use is one line and exit status 2") {
  refused("", "subcommand");
  refused("frobnicate", "gdn-cts --help");
  refused("list", "topic");
  refused("list nonsense", "'nonsense'");
  refused("list cases --level enormous", "unknown level 'enormous'");
  refused("list cases --family nonsense", "unknown case family 'nonsense'");
  refused("list cases --seed -1", "--seed");
  refused("list cases --seed 1 --seed 2", "--seed");
  refused("list cases --seed 99999999999999999999999", "--seed");
  refused("explain nonsense", "'nonsense'");
  refused("explain typical:prefill/n1_t0_h2_hv3_k8_v8/bf16:1", "multiple");
  refused("report /nonexistent/records.jsonl", "/nonexistent/records.jsonl");
}

TEST_CASE("help and version") {
  for (const char* a : {"--help", "list --help", "explain --help", "report --help", "--version"}) {
    const Result r = gdn_cts(a);
    CHECK(r.status == 0);
    CHECK_FALSE(r.out.empty());
    CHECK(r.err.empty());
  }
}

TEST_CASE("list and explain know everything by name") {
  for (const char* topic : {"families", "cases", "contracts", "kernels", "conventions", "kinds"}) {
    const Result text = gdn_cts(std::string("list ") + topic), json = gdn_cts(std::string("list --json ") + topic);
    CAPTURE(topic, text.out);
    CHECK(text.status == 0);
    CHECK(lines(text.out) > 2);
    CHECK(json.status == 0);
    CHECK(lines(json.out) == lines(text.out) + 1);  // brackets instead of the header
    // The first name of the list explains itself.
    const std::string row = text.out.substr(text.out.find('\n') + 1);
    const std::string first = row.substr(0, row.find_first_of(" \n"));
    const Result about = gdn_cts("explain '" + first + "'");
    CAPTURE(first, about.err);
    CHECK(about.status == 0);
    CHECK(contains(about.out, first));
  }
}

TEST_CASE("standard output that ends early or is full") {
  CHECK(shell("'" GDN_PROGRAM "' list cases --level nightly | head -1").status == 0);
  const Result closed = shell("{ '" GDN_PROGRAM "' list cases --level nightly; echo $? >&2; } | head -1");
  CHECK(closed.err == "0\n");
  if (fs::exists("/dev/full")) {
    const Result full = gdn_cts("list kinds > /dev/full");
    CHECK(full.status == 3);
    CHECK(lines(full.err) == 1);
  }
}

TEST_CASE("report makes pages from records, and refuses newer ones") {
  const Directory dir;
  Record r;
  r.kernel = "k";
  r.family = "f";
  r.case_id = "f:p:1";
  r.verdict = "PASSED";
  write_jsonl(dir / "a.jsonl", {r});
  r.verdict = "FAILED";
  write_jsonl(dir / "b.jsonl", {r});
  const Result ok = gdn_cts("report '" + dir / "a.jsonl" + "' '" + dir / "b.jsonl" + "' -o '" + dir / "out" + "' --junit '" + dir / "j.xml" + "'");
  CAPTURE(ok.out, ok.err);
  CHECK(ok.status == 0);
  CHECK(contains(ok.out, "FAIL: 1 of 2 cases"));
  for (const char* f : {"out/index.html", "out/records.jsonl", "out/summary.md", "j.xml"}) CHECK(fs::exists(dir / f));
  std::string newer = read_file(dir / "a.jsonl");
  newer.replace(newer.find("\"schema_version\":1"), 18, "\"schema_version\":9");
  write_file(dir / "c.jsonl", newer);
  refused("report '" + dir / "c.jsonl" + "'", "c.jsonl:1: record schema version 9 is newer");
  refused("report '" + dir / "a.jsonl" + "' -o '" + dir / "a.jsonl" + "'", "a.jsonl");
  refused("report '" + dir / "a.jsonl" + "' --junit '" + dir / "no/such/j.xml" + "'", "no/such/j.xml");
}
