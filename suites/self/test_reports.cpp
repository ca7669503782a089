// Reports: records survive the way through JSON bit for bit, bad lines are refused by file and line, and hostile
// text comes out harmless in every format.
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>

#include "reports/file.h"
#include "reports/record.h"
#include "suites/self/catch.h"

using namespace gdn;
namespace fs = std::filesystem;

namespace {

struct Directory {
  fs::path path = fs::temp_directory_path() / ("gdn_reports" + temporary_suffix());
  Directory() { fs::create_directories(path); }
  ~Directory() { fs::remove_all(path); }
  std::string operator/(const char* name) const { return (path / name).string(); }
};

Record passed(const std::string& family, const std::string& problem, double ratio) {
  Record r;
  r.kernel = "cpu_chunk_bf16";
  r.how = "--kernel cpu_chunk_bf16";
  r.contract = "bf16-chunk";
  r.family = family;
  r.problem = problem;
  r.case_id = family + ":" + problem + ":1";
  r.seed = 1;
  r.level = "smoke";
  r.verdict = "PASSED";
  r.metrics["max_ratio"] = ratio;
  RecordCheck c;
  c.check = "bound";
  c.status = "PASSED";
  c.judged = 8192;
  r.checks.push_back(c);
  return r;
}

Record failed() {
  Record r = passed("chunk_boundary", "prefill/n1_t65_h1_hv2_k64_v64/bf16/h0", 251);
  r.verdict = "FAILED";
  RecordCheck& c = r.checks[0];
  c.status = "FAILED";
  c.clause = "5";
  c.message = "17 of 8192 elements are outside the bound";
  c.failing = 17;
  RecordElement e;
  e.run = "base";
  e.tensor = "o";
  e.place = "sequence 0 token 64 head 1 channel 17 (chunk 1 row 0)";
  e.got_bits = "0xbd00";
  e.got_hex = "-0x1p-5";
  e.got = "-0.03125";
  e.expected_bits = "0x3f80";
  e.expected_hex = "0x1p+0";
  e.expected = "1";
  e.exact = "1.0000000000000002";
  e.error = 1.03125;
  e.error_ulp = 132;
  e.bound = 0.0041;
  e.ratio = 251;
  e.detail = "largest terms: rounding of the state 0.003, output 0.001";
  c.worst = e;
  r.first_bad_chunk = "1";
  r.resembles = "state zeroed at every chunk border (z=412)";
  r.repro = "gdn-cts verify --kernel cpu_chunk_bf16 --case 'chunk_boundary:prefill/n1_t65_h1_hv2_k64_v64/bf16/h0:1'";
  return r;
}

const std::string kHostile = std::string("</script><script>alert('x')</script> \" & ]]> | ` \x1b[31m \x01 \xff\xc0\xaf \xed\xa0\x80 ") +
                             "\xe2\x80\xae" + "\n# title\r\t" + std::string(1, '\0') + "end";

Record hostile() {
  Record r = failed();
  for (std::string* s : {&r.kernel, &r.kernel_version, &r.how, &r.contract, &r.convention, &r.module, &r.device, &r.case_id, &r.family,
                         &r.profile, &r.problem, &r.level, &r.reason, &r.resembles, &r.first_bad_chunk, &r.repro, &r.suite_version,
                         &r.edition, &r.golden_hash})
    *s = kHostile;
  r.packages[kHostile] = kHostile;
  RecordCheck& c = r.checks[0];
  for (std::string* s : {&c.check, &c.clause, &c.message, &c.worst->run, &c.worst->tensor, &c.worst->place, &c.worst->got_bits,
                         &c.worst->got_hex, &c.worst->got, &c.worst->expected_bits, &c.worst->expected_hex, &c.worst->expected,
                         &c.worst->exact, &c.worst->detail})
    *s = kHostile;
  return r;
}

std::string error_of(const std::string& line) {
  try {
    parse_record(line);
  } catch (const std::runtime_error& e) {
    return e.what();
  }
  return "";
}

bool same(double a, double b) { return std::memcmp(&a, &b, sizeof a) == 0 || (std::isnan(a) && std::isnan(b)); }

bool has_control(const std::string& s, const char* allowed) {
  for (unsigned char c : s)
    if ((c < 0x20 && !std::strchr(allowed, c)) || c == 0 || c == 0x7f) return true;
  return false;
}

// Tags balance, attributes are quoted, entities are known: enough of XML to notice text that leaks into markup.
bool well_formed(const std::string& xml) {
  std::vector<std::string> open;
  for (std::size_t i = 0; i < xml.size();) {
    if (xml[i] == '&') {
      const std::size_t end = xml.find(';', i);
      if (end == std::string::npos || end - i > 7) return false;
      i = end + 1;
    } else if (xml[i] == '<') {
      std::size_t j = i + 1;
      char quote = 0;
      for (; j < xml.size() && (quote || xml[j] != '>'); ++j) {
        if (quote ? xml[j] == quote : xml[j] == '"') quote = quote ? 0 : xml[j];
        else if (xml[j] == '<') return false;
      }
      const std::string tag = xml.substr(i + 1, j - i - 1);
      i = j + 1;
      if (tag[0] == '?') continue;
      if (tag[0] == '/') {
        if (open.empty() || open.back() != tag.substr(1)) return false;
        open.pop_back();
      } else if (tag.back() != '/') {
        open.push_back(tag.substr(0, tag.find(' ')));
      }
    } else {
      ++i;
    }
  }
  return open.empty();
}

}  // namespace

TEST_CASE("a record survives JSON, with every number to the last bit") {
  Record r = failed();
  r.seed = 18446744073709551615ull;
  r.packages = {{"torch", "2.9.1"}, {"transformers", "5.17"}};
  r.kernel_seconds = 0x1.23456789abcdep-13;
  r.metrics = {{"a", std::nan("")}, {"b", std::numeric_limits<double>::infinity()}, {"c", -std::numeric_limits<double>::infinity()},
               {"d", 5e-324}, {"e", -0.0}, {"f", 0.1}, {"g", 1.7976931348623157e308}};
  r.checks[0].metrics = r.metrics;
  r.checks[0].worst->error = std::nan("");
  r.checks[0].worst->ratio = std::numeric_limits<double>::infinity();
  const std::string line = to_json_line(r);
  CHECK(line.find('\n') == std::string::npos);
  const Record back = parse_record(line);
  CHECK(to_json_line(back) == line);
  CHECK(back.seed == r.seed);
  CHECK(back.packages == r.packages);
  CHECK(same(back.kernel_seconds, r.kernel_seconds));
  for (const auto& [k, v] : r.metrics) {
    CHECK(same(back.metrics.at(k), v));
    CHECK(same(back.checks.at(0).metrics.at(k), v));
  }
  CHECK(std::isnan(back.checks[0].worst->error));
  CHECK(std::isinf(back.checks[0].worst->ratio));
  CHECK(back.checks[0].worst->detail == r.checks[0].worst->detail);
  CHECK(back.repro == r.repro);
  CHECK(back.first_bad_chunk == "1");
  CHECK_FALSE(parse_record(to_json_line(passed("typical", "p", 0.5))).checks[0].worst.has_value());
}

TEST_CASE("bad records are refused in one line that names file and line") {
  const std::string good = to_json_line(failed());
  std::string newer = good;
  newer.replace(newer.find("\"schema_version\":1"), 18, "\"schema_version\":2");
  CHECK(error_of(newer) == "record schema version 2 is newer than this program's version 1");
  CHECK(error_of(good.substr(0, good.size() / 2)).find("syntax error at byte") != std::string::npos);
  CHECK(error_of("[1,2]") == "record is not a JSON object");
  CHECK(error_of("{}") == "field 'schema_version' is missing");
  CHECK(error_of(R"({"schema_version":-1})") == "field 'schema_version' is not a positive integer");
  CHECK(error_of(R"({"schema_version":1,"kernel":3})") == "field 'kernel' is not a string");
  CHECK(error_of(R"({"schema_version":1,"kernel":"k","case_id":"c","family":"f","verdict":"FINE"})") ==
        "field 'verdict' has the unknown value 'FINE'");
  const std::string begin = R"({"schema_version":1,"kernel":"k","case_id":"c","family":"f","verdict":"PASSED",)";
  CHECK(error_of(begin + R"("metrics":{"x":"many"}})").find("'metrics.x'") != std::string::npos);
  CHECK(error_of(begin + R"("checks":[{"check":"bound","status":"ok"}]})").find("'ok'") != std::string::npos);
  CHECK(error_of(begin + R"("checks":[{"check":"bound","status":"PASSED","judged":-1}]})").find("judged") != std::string::npos);
  CHECK(error_of(begin + R"("a_later_field":[1]})").empty());

  const Directory dir;
  const std::string file = dir / "r.jsonl";
  write_file(file, good + "\n\n" + good + "\n" + newer + "\n");
  try {
    read_records(file);
    FAIL("a newer schema was read");
  } catch (const std::runtime_error& e) {
    CHECK(std::string(e.what()) == file + ":4: record schema version 2 is newer than this program's version 1");
  }
  write_file(file, good + "\r\n" + good);
  CHECK(read_records(file).size() == 2);
  CHECK_THROWS_AS(read_records(dir / "missing.jsonl"), std::runtime_error);
  CHECK_THROWS_AS(read_records(dir.path.string()), std::runtime_error);
}

TEST_CASE("files appear whole or not at all") {
  const Directory dir;
  write_file(dir / "a", "one");
  write_file(dir / "a", "two");
  CHECK(read_file(dir / "a") == "two");
  fs::create_symlink("a", dir / "link");
  write_file(dir / "link", "three");
  CHECK(fs::is_symlink(dir / "link"));
  CHECK(read_file(dir / "a") == "three");
  fs::create_directory(dir / "folder");
  CHECK_THROWS_AS(write_file(dir / "folder", "x"), std::runtime_error);
  CHECK_THROWS_AS(write_file(dir / "none/x", "x"), std::runtime_error);
  if (fs::exists("/dev/full")) {
    CHECK_THROWS_AS(write_file("/dev/full", "x"), std::runtime_error);
    CHECK(fs::exists("/dev/full"));
  }
  for (const auto& entry : fs::directory_iterator(dir.path)) CHECK(entry.path().filename().string().find(".tmp") == std::string::npos);
}

TEST_CASE("the failure block holds everything that a person needs") {
  const std::string block = failure_block(failed());
  for (const char* part : {"FAILED  cpu_chunk_bf16  chunk_boundary:", "the kernel returned -0.03125 where the exact result is 1.0000000000000002",
                           "contract bf16-chunk is off by at most 0.0041 there; this one is off by 1.03, 251 times as much",
                           "check      bound (accuracy standard, clause 5)", "17 of 8192", "token 64 head 1 channel 17 (chunk 1 row 0)",
                           "0xbd00", "-0x1p-5", "0x3f80", "132 ulp", "largest terms", "chunk 1", "state zeroed at every chunk border",
                           "reproduce  gdn-cts verify --kernel cpu_chunk_bf16 --case 'chunk_boundary:"}) {
    CAPTURE(part, block);
    CHECK(block.find(part) != std::string::npos);
  }
  Record exact = failed();
  exact.checks[0].worst->bound = 0;
  CHECK(failure_block(exact).find("every correct kernel returns exactly") != std::string::npos);
  Record bad_number = failed();
  bad_number.checks[0].worst->got = "nan";
  CHECK(failure_block(bad_number).find("nan, which is not a finite number, where") != std::string::npos);
  Record crash = passed("typical", "p", 0);
  crash.checks.clear();
  crash.verdict = "RUNTIME_ERROR";
  crash.reason = "signal 11";
  CHECK(failure_block(crash).find("gave no result: signal 11") != std::string::npos);
}

TEST_CASE("the table counts verdicts per family") {
  std::vector<Record> records{passed("typical", "a", 0.25), passed("typical", "b", 0.5), failed()};
  Record other = passed("typical", "c", 0);
  other.metrics.clear();
  other.verdict = "NOT_SUPPORTED";
  records.push_back(other);
  const std::string table = console_table(records, false);
  CAPTURE(table);
  CHECK(table.find("cpu_chunk_bf16   contract bf16-chunk") != std::string::npos);
  CHECK(table.find("typical             3       2       -              1              0.5  b:1") != std::string::npos);
  CHECK(table.find("chunk_boundary      1       -       1              -              251  prefill/") != std::string::npos);
  CHECK(table.find('\x1b') == std::string::npos);
  CHECK(console_table(records, true).find("\x1b[31m") != std::string::npos);
  records[0].metrics["max_ratio"] = std::nan("");
  CHECK(console_table(records, false).find("nan  a:1") != std::string::npos);
  CHECK(console_table({}, false).empty());
}

TEST_CASE("hostile text is harmless in every format") {
  const std::vector<Record> records{hostile(), failed(), passed("typical", "a", 0.25)};
  for (const Record& r : records) {
    CHECK_FALSE(has_control(failure_block(r), "\n"));
    CHECK_FALSE(has_control(to_json_line(r), ""));
    CHECK_NOTHROW(parse_record(to_json_line(r)));
  }
  CHECK_FALSE(has_control(console_table(records, false), "\n"));

  const Directory dir;
  write_junit(dir / "junit.xml", records);
  const std::string xml = read_file(dir / "junit.xml");
  CHECK(well_formed(xml));
  CHECK_FALSE(has_control(xml, "\n\t"));
  CHECK(xml.find("<testsuites name=\"gdn-cts\" tests=\"3\" failures=\"2\" errors=\"0\"") != std::string::npos);
  CHECK(xml.find("]]>") == std::string::npos);

  const std::string markdown = markdown_summary(records);
  CHECK_FALSE(has_control(markdown, "\n"));
  CHECK(markdown.find("\n# title") == std::string::npos);

  write_pages(dir / "pages", records);
  const std::string html = read_file(dir / "pages/index.html");
  CHECK_FALSE(has_control(html, "\n"));
  std::size_t scripts = 0;
  for (std::size_t at = 0; (at = html.find("<script", at)) != std::string::npos; ++at) ++scripts;
  CHECK(scripts == 1);
  CHECK(html.find("alert('x')") == std::string::npos);
  for (const char* network : {"http:", "https:", "src=", "@import", "url("}) CHECK(html.find(network) == std::string::npos);
  CHECK(read_records(dir / "pages/records.jsonl").size() == 3);
  CHECK(fs::exists(dir / "pages/summary.md"));
}

TEST_CASE("the Markdown summary keeps to its size and says what it left out") {
  std::vector<Record> records(300, failed());
  const std::string all = markdown_summary(records);
  CHECK(all.find("left out") == std::string::npos);
  for (std::size_t limit : {std::size_t{0}, std::size_t{100}, std::size_t{1000}, std::size_t{5000}, all.size() / 2}) {
    const std::string cut = markdown_summary(records, limit);
    CHECK(cut.size() <= limit);
    if (limit >= 1000) CHECK(cut.find("failures left out: size limit") != std::string::npos);
  }
  Record ticks = failed();
  ticks.resembles = "`````";
  CHECK(markdown_summary({ticks}).find("\n``````text\n") != std::string::npos);
}

TEST_CASE("the gate's verdict rules over the counts") {
  const Directory dir;
  const std::vector<Record> records{passed("typical", "a", 0.25), failed()};
  const GateVerdict gate{false, "FAIL: 2 cases", {failed().case_id + " is FAILED: bound", "family <x>: no case PASSED"}};
  write_pages(dir.path.string(), records, &gate);
  for (const char* f : {"index.html", "summary.md"}) {
    const std::string text = read_file(dir / f);
    CHECK(text.find("FAIL: 2 cases") != std::string::npos);
    CHECK(text.find("family &lt;x&gt;: no case PASSED") != std::string::npos);
    CHECK(text.find("is FAILED: bound") == std::string::npos);  // its failure block says it
  }
  write_junit(dir / "j.xml", records, &gate);
  const std::string xml = read_file(dir / "j.xml");
  CHECK(well_formed(xml));
  CHECK(xml.find("tests=\"3\" failures=\"2\"") != std::string::npos);
  CHECK(xml.find("family &lt;x&gt;: no case PASSED") != std::string::npos);
}

TEST_CASE("the page of nothing says so") {
  const Directory dir;
  write_pages(dir.path.string(), {});
  CHECK(read_file(dir / "index.html").find("Nothing passed") != std::string::npos);
  write_junit(dir / "j.xml", {});
  CHECK(well_formed(read_file(dir / "j.xml")));
}

TEST_CASE("what changed since a baseline") {
  std::vector<Record> before{passed("typical", "a", 0.5), passed("typical", "b", 0.5), passed("typical", "c", 0.5), passed("typical", "d", 0.5)}, now = before;
  before[1].verdict = "FAILED";
  now[0].verdict = "TIMEOUT";
  now[2].metrics["max_ratio"] = 0.9;
  now.pop_back();
  now.push_back(passed("typical", "e", 0.1));
  const std::string text = changes_since(before, now);
  CHECK(text.find("newly failing or no longer run: 1\n  typical:a:1: TIMEOUT was PASSED\n") != std::string::npos);
  CHECK(text.find("newly passing or run: 1\n  typical:b:1: PASSED was FAILED\n") != std::string::npos);
  CHECK(text.find("error grown by a quarter or more: 1\n  typical:c:1: error/bound 0.9 was 0.5\n") != std::string::npos);
  CHECK(text.find("not asked any more: 1\n  typical:d:1\n") != std::string::npos);
  CHECK(text.find("unchanged: 0, new cases: 1\n") != std::string::npos);
  CHECK(changes_since(now, now) == "unchanged: 4, new cases: 0\n");
}

TEST_CASE("levels of error maps: the limit is the limit") {
  CHECK(error_level_of(error_level(0)) == 0);
  CHECK(error_level_of(error_level(1)) == kErrorLevelOfLimit);
  CHECK(error_level_of(error_level(std::nextafter(1, 2))) == kErrorLevelOfLimit + 1);
  CHECK(error_level_of(error_level(1e-300)) == 1);
  CHECK(error_level_of(error_level(1e300)) == 61);
  CHECK(error_level_of(error_level(std::nan(""))) == 61);
  CHECK(error_level_of('.') == -1);
  int before = 0;
  for (double ratio = 1e-8; ratio < 1e5; ratio *= 1.1) {
    const int level = error_level_of(error_level(ratio));
    CHECK(level >= before);
    CHECK((level > kErrorLevelOfLimit) == (ratio > 1));
    before = level;
  }
}

TEST_CASE("error maps survive JSON and show on the page") {
  Record r = failed();
  r.checks[0].maps = {{"o", "head", "token", 2, 130, 2, 4, std::string(".0") + error_level(0.5) + error_level(3) + "1111"}};
  const Record back = parse_record(to_json_line(r));
  CHECK(to_json_line(back) == to_json_line(r));
  const Directory dir;
  write_pages(dir.path.string(), {back, passed("typical", "a", 0.25)});
  const std::string html = read_file(dir / "index.html");
  CHECK(html.find("Where the error lies") != std::string::npos);
  CHECK(html.find("o over head and token in chunk_boundary:prefill/n1_t65_h1_hv2_k64_v64/bf16/h0:1: beyond the limit in some cells") != std::string::npos);
  CHECK(html.find("class=\"cross\"") != std::string::npos);
  CHECK(html.find("The element nearest to its limit") != std::string::npos);
  r.checks[0].maps[0].columns = 5;
  CHECK(error_of(to_json_line(r)) == "field 'checks[].maps.levels' does not have rows x columns characters");
}

TEST_CASE("two kernels side by side") {
  std::vector<Record> a{passed("typical", "a", 0.5), passed("typical", "b", 0.5), passed("keys", "c", 0.5), passed("keys", "d", 0.5)}, b = a;
  for (Record& r : a) r.metrics["o_rms_ratio"] = r.kernel_seconds = 0.001;
  for (Record& r : b) {
    r.kernel = "other";
    r.metrics["o_rms_ratio"] = 0.002;
    r.kernel_seconds = 0.0005;
  }
  b[1].verdict = "FAILED";
  b[2].golden_hash = "another";
  b.pop_back();
  for (const char* name : {"e", "f"}) {
    b.push_back(passed("keys", name, 0.5));
    b.back().kernel = "other";
  }
  a.push_back(passed("keys", "f", 0.5));
  a.back().verdict = "NOT_SUPPORTED";
  const Comparison c = compare(a, b);
  REQUIRE(c.rows.size() == 2);
  CHECK(c.only_a == 1);
  CHECK(c.only_b == 1);
  CHECK(c.not_run == 1);
  CHECK(c.other_golden == 1);
  CHECK(c.rows[0].error == 2);
  CHECK(std::isnan(c.rows[0].state_error));
  CHECK(c.rows[0].seconds == 0.5);
  const std::string table = comparison_table(c);
  CAPTURE(table);
  CHECK(table.find("typical:b:1: PASSED, FAILED") != std::string::npos);
  CHECK(table.find("Not compared: 1 cases of the first alone, 1 of the second alone, 1 that one of them did not run, 1 with other goldens.") != std::string::npos);
  const Directory dir;
  write_comparison(dir.path.string(), c, "gdn-cts compare a b");
  CHECK(read_file(dir / "index.html").find("cpu_chunk_bf16 and other") != std::string::npos);
  CHECK(read_file(dir / "comparison.csv").find("\"typical:b:1\",PASSED,FAILED") != std::string::npos);
  b[0].kernel = "third";
  CHECK_THROWS_AS(compare(a, b), std::runtime_error);
  CHECK_THROWS_AS(compare({}, a), std::runtime_error);
}

TEST_CASE("an index of runs says what changed") {
  std::vector<Record> first{passed("typical", "a", 0.5), passed("typical", "b", 0.5)}, second = first;
  second[1].verdict = "FAILED";
  const Directory dir;
  write_run_index(dir.path.string(), {{"monday<", "run1/index.html", first}, {"tuesday", "run2/index.html", second}}, "gdn-cts report --history");
  const std::string html = read_file(dir / "index.html");
  CHECK(html.find("monday&lt;") != std::string::npos);
  CHECK(html.find("first run") != std::string::npos);
  CHECK(html.find("newly failing or no longer run: 1") != std::string::npos);
  CHECK(html.find("typical:b:1: FAILED was PASSED") != std::string::npos);
  CHECK(html.find("href=\"run2/index.html\"") != std::string::npos);
}
