// The program from outside, as a shell sees it: output, exit status, files.
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>

#include "golden/store.h"
#include "kernels/session.h"
#include "reports/file.h"
#include "reports/record.h"
#include "suites/family.h"
#include "suites/self/catch.h"

using namespace gdn;
namespace fs = std::filesystem;

namespace {

struct Result {
  int status = -1;
  std::string out, err;
};

struct Directory {
  static inline int count = 0;
  fs::path path = fs::temp_directory_path() / ("gdn_cli" + std::to_string(++count) + temporary_suffix());
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

// GDN_CTS_PROGRAM would replace the worker, which is the program itself.
Result gdn_cts(const std::string& arguments) { return shell("unset GDN_CTS_PROGRAM; '" GDN_PROGRAM "' " + arguments); }

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
  refused("frobnicate", "there are list, explain, ");
  refused("verify --kernel cpu_recurent_fp32", "did you mean 'cpu_recurrent_fp32'");
  refused("verify --kernel cpu_recurrent_fp32 --profile nonsense", " gate_edges ");
  refused("verify --kernel cpu_recurrent_fp32 --shard ''", "--shard: needs a value, this one is empty");
  refused("verfy --kernel cpu_recurrent_fp32", "no subcommand is called 'verfy'; did you mean 'verify'? (gdn-cts --help says more)");
  refused("explain typcial", "nothing is called 'typcial'; did you mean 'typical'?");
  refused("explain cpu_chunk", "'cpu_chunk_bf16'");
  refused("generate -o /nonexistent --level smoke --family typicl", "unknown case family 'typicl'; did you mean 'typical'?");
  refused("verify --kernel cpu_recurrent_fp32 --family chunk_bondary", "did you mean 'chunk_boundary'?");
  refused("list", "families, cases, contracts");
  refused("list nonsense", "'nonsense'");
  refused("list cases --level enormous", "unknown level 'enormous'");
  refused("list cases --family nonsense", "unknown case family 'nonsense'");
  refused("list cases --seed -1", "--seed");
  refused("list cases --seed 1 --seed 2", "--seed");
  refused("list cases --seed 99999999999999999999999", "--seed");
  refused("explain nonsense", "'nonsense'");
  refused("explain typical:prefill/n1_t0_h2_hv3_k8_v8/bf16:1", "multiple");
  refused("report /nonexistent/records.jsonl", "/nonexistent/records.jsonl");
  refused("verify", "--kernel");
  refused("verify --kernel nonsense", "'nonsense'");
  refused("verify --kernel cpu_recurrent_fp32 --exec cat", "--exec");
  refused("verify --plugin /nonexistent.so", "/nonexistent.so");
  refused("verify --kernel cpu_recurrent_fp32 --profile nonsense", "'nonsense'");
  refused("verify --kernel cpu_recurrent_fp32 --case nonsense", "'nonsense'");
  refused("verify --kernel cpu_recurrent_fp32 --family nonsense", "'nonsense'");
  refused("verify --kernel cpu_recurrent_fp32 --timeout -1", "--timeout");
  refused("verify --kernel cpu_recurrent_fp32 --json /nonexistent/r.jsonl", "/nonexistent/r.jsonl");
  refused("generate --level smoke", "-o");
  refused("generate -o /nonexistent/x", "exactly one");
  refused("generate --inputs /nonexistent.h5 -o /nonexistent/x", "/nonexistent.h5");
  refused("judge --golden /nonexistent.h5 --kernel cpu_recurrent_fp32", "/nonexistent.h5");
  refused("check /nonexistent", "/nonexistent");
  refused("bench --what nonsense", "'nonsense'");
  refused("verify --kernel cpu_recurrent_fp32 --shard 3/2", "'3/2' is not I/N");
  refused("verify --kernel cpu_recurrent_fp32 --shard 1/2x", "'1/2x' is not I/N");
  refused("verify --kernel cpu_recurrent_fp32 --baseline /no/such/file", "/no/such/file");
  refused("verify --kernel cpu_recurrent_fp32 --baseline /dev/null", "--baseline: /dev/null holds no records");
  refused("verify --kernel cpu_recurrent_fp32 --baseline /dev/zero", "/dev/zero: more than 1 GiB");
  refused("verify --kernel cpu_recurrent_fp32 --contract @/dev/zero", "'/dev/zero' is no contract");
  refused("verify --kernel cpu_recurrent_fp32 --json /tmp/x --junit /tmp/./x", "same file");
  refused("verify --kernel cpu_recurrent_fp32 --jobs 0", "--jobs");
  refused("verify --kernel cpu_recurrent_fp32 --waivers /no/such/file", "/no/such/file");
  refused("verify --kernel cpu_recurrent_fp32 --resume /tmp/x --submission /tmp/y", "a submission is of one run");
  refused("compare /no/such/a /no/such/b", "/no/such/a");
  refused("report --history /no/such/a", "--history needs -o");
  refused("precision --study nonsense", "'nonsense'");
  refused("precision --size huge", "'huge'");
  refused("precision --contract bf16-chunk", "--inputs");
  refused("precision --inputs T=64", "--contract");
  refused("precision --inputs T=x --contract bf16-chunk", "T needs a whole number");
  refused("precision --inputs T=64 --contract nonsense", "'nonsense'");
  refused("precision --from /no/such/file", "/no/such/file");
  refused("precision --study keys --resume /dev/zero", "is no file");
  refused("precision --kernel nonsense", "'nonsense'");
  refused("precision --study points --kernel cpu_chunk_bf16", "studies length, far, gates");
  const Result none = gdn_cts("precision --inputs T=8 --kernel cpu_layer_fp32");   // it takes no such inputs: said, and no success
  CHECK(none.status == 2);
  CHECK(contains(none.err, "not measured at all: cpu_layer_fp32: ops=prefill"));
  refused("bench --device tpu", "'tpu' is none of cpu, cuda");
  if (!fs::exists("/dev/nvidiactl")) refused("bench --device cuda", "--device cuda: ");
}

TEST_CASE("help and version") {
  for (const char* a : {"--help", "list --help", "verify --help", "generate --help", "judge --help", "check --help", "bench --help", "--version"}) {
    const Result r = gdn_cts(a);
    CHECK(r.status == 0);
    CHECK_FALSE(r.out.empty());
    CHECK(r.err.empty());
  }
}

TEST_CASE("list and explain know everything by name") {
  for (const char* topic : {"families", "cases", "contracts", "kernels", "faults", "checks", "conventions", "capabilities", "profiles", "kinds"}) {
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

TEST_CASE("profiles, single conventions and contracts with overrides explain themselves") {
  CHECK(contains(gdn_cts("explain core").out, "typical"));
  CHECK(contains(gdn_cts("explain gate=linear").out, "the decay exp(g) itself"));
  CHECK(contains(gdn_cts("explain 'bf16-chunk;chunk=32'").out, "chunk        32"));
  CHECK(contains(gdn_cts("explain S_carried").out, "bf16-state       bf16"));
  CHECK(contains(gdn_cts("explain W").out, "fp32-recurrent   not in this form"));
  CHECK(contains(gdn_cts("explain conv_state").out, "layer: history"));
  refused("explain 'bf16-chunk;chunk=nonsense'", "nonsense");
  for (const char* subject : {"g_min", "u_exp", "chunk", "block", "solve", "neumann", "block_inverse", "prefix_tree", "tensor_core"}) {
    const Result r = gdn_cts("explain " + std::string(subject));
    CAPTURE(subject, r.out, r.err);
    CHECK(r.status == 0);
    CHECK(r.out.compare(0, std::string(subject).size() + 1, subject + std::string(":")) == 0);
    CHECK(contains(r.out, "precision contracts"));
  }
  for (const auto& [subject, part] : {std::pair("h0", "a flag of capabilities"), {"io", "a key of capabilities"}, {"masks_select", "a promise"}, {"5.3", "exactness: a check"}, {"clause 5.3", "exactness: a check"}}) {
    const Result r = gdn_cts("explain '" + std::string(subject) + "'");
    CAPTURE(subject, r.out, r.err);
    CHECK(r.status == 0);
    CHECK(contains(r.out, part));
  }
  CHECK(gdn_cts("explain core").out.starts_with("core: a profile"));
  refused("explain ''", "explain what?");
  refused("explain 'bf16-chunk;block=32;chunk=16'", "block=32 is more than a chunk of 16 rows has");
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
  CHECK(ok.status == 1);                           // merged shards must not look green
  CHECK(contains(ok.out, "FAIL: 1 of 2 cases"));
  CHECK(gdn_cts("report '" + dir / "a.jsonl" + "'").status == 0);
  write_file(dir / "empty.jsonl", "");
  refused("report '" + dir / "empty.jsonl" + "'", "no records");
  refused("verify --kernel cpu_recurrent_fp32 --only-failed '" + dir / "empty.jsonl" + "'", "holds no records");
  for (const char* f : {"out/index.html", "out/records.jsonl", "out/summary.md", "j.xml"}) CHECK(fs::exists(dir / f));
  std::string newer = read_file(dir / "a.jsonl");
  newer.replace(newer.find("\"schema_version\":1"), 18, "\"schema_version\":9");
  write_file(dir / "c.jsonl", newer);
  refused("report '" + dir / "c.jsonl" + "'", "c.jsonl:1: record schema version 9 is newer");
  refused("report '" + dir / "a.jsonl" + "' -o '" + dir / "a.jsonl" + "'", "a.jsonl");
  refused("report '" + dir / "a.jsonl" + "' --junit '" + dir / "no/such/j.xml" + "'", "no/such/j.xml");
}

TEST_CASE("a correct kernel passes the gate") {
  const Directory dir;
  const Result r = gdn_cts("verify --kernel cpu_recurrent_fp32 --level smoke --golden '" + dir / "golden" + "' --report '" + dir / "page" + "' --json '" +
                           dir / "r.jsonl" + "' --junit '" + dir / "j.xml" + "'");
  CAPTURE(r.out, r.err);
  CHECK(r.status == 0);
  CHECK(contains(r.out, "PASS: "));
  CHECK(contains(r.out, "reduced"));
  for (const char* f : {"page/index.html", "page/summary.md", "j.xml"}) CHECK(contains(read_file(dir / f), "recurrent"));
  const std::vector<Record> records = read_records(dir / "r.jsonl");
  CHECK(records.size() > 20);
  CHECK(to_json_line(records.at(0)) == to_json_line(read_records(dir / "page/records.jsonl").at(0)));

  // The goldens it left are sound, until a byte of one is changed.
  CHECK(gdn_cts("check --files-only '" + dir / "golden" + "'").status == 0);
  for (const auto& entry : fs::directory_iterator(dir / "golden")) {
    if (entry.path().extension() != ".h5") continue;
    std::string content = read_file(entry.path().string());
    content[content.size() / 2] = static_cast<char>(content[content.size() / 2] ^ 0x55);
    write_file(entry.path().string(), content);
    const Result judged = gdn_cts("judge --golden '" + entry.path().string() + "' --kernel cpu_recurrent_fp32");
    CAPTURE(judged.out, judged.err);
    CHECK(judged.status == 2);
    CHECK(lines(judged.err) == 1);
    CHECK(contains(judged.err, entry.path().filename().string()));
    break;
  }
  const Result audit = gdn_cts("check --files-only '" + dir / "golden" + "'");
  CHECK(audit.status == 2);
  CHECK(contains(audit.out, "BROKEN: "));
}

TEST_CASE("a run that was ended goes on where it was") {
  const Directory dir;
  const std::string question = "verify --kernel cpu_recurrent_fp32 --family typical --resume '" + dir / "log.jsonl" + "'";
  const Result whole = gdn_cts(question);
  CHECK(whole.status == 0);
  std::string log = read_file(dir / "log.jsonl");
  const std::size_t count = lines(log);
  REQUIRE(count > 2);
  // Ended while the third line was written; the first says what no second run would say.
  log.resize(log.find('\n', log.find('\n') + 1) + 40);
  const std::string passed = "\"verdict\":\"PASSED\"";
  log.replace(log.find(passed), passed.size(), "\"verdict\":\"FAILED\"");
  write_file(dir / "log.jsonl", log);
  const Result rest = gdn_cts(question);
  CAPTURE(rest.out, rest.err);
  CHECK(rest.status == 1);
  CHECK(contains(rest.err, "2 cases are in "));
  CHECK(lines(read_file(dir / "log.jsonl")) == count);
  refused(question + " --seed 2", "is of another run");
  write_file(dir / "log.jsonl", "nonsense\n");
  refused(question, "log.jsonl:1: ");
}

TEST_CASE("a faulty kernel fails, and the line that it prints fails again") {
  const Directory dir;
  const Result r = gdn_cts("verify --kernel faulty/correction_before_decay/chunk-fp32 --family typical --failures 1 --report '" + dir / "page" + "'");
  CAPTURE(r.out, r.err);
  CHECK(r.status == 1);
  CHECK(contains(r.out, "FAIL: "));
  CHECK(contains(r.out, "more failures are not shown"));
  CHECK(contains(read_file(dir / "page/index.html"), "class=\"banner fail\""));
  const std::size_t at = r.out.find("  reproduce  ");
  REQUIRE(at != std::string::npos);
  const std::string line = r.out.substr(at + 13, r.out.find('\n', at) - at - 13);
  CHECK(contains(line, GDN_PROGRAM));
  const Result again = shell("unset GDN_CTS_PROGRAM; " + line);
  CAPTURE(line, again.out, again.err);
  CHECK(again.status == 1);
  CHECK(contains(again.out, line));
  // The case explains itself.
  const std::size_t quote = line.find("--case '") + 8;
  const Result about = gdn_cts("explain '" + line.substr(quote, line.rfind('\'') - quote) + "'");
  CHECK(about.status == 0);
  CHECK(contains(about.out, "Truth, certified"));
}

TEST_CASE("the same records at any number of jobs") {
  const Directory dir;
  // Fails in several families; with and without stopping at the first.
  for (const char* more : {"", " --fail-fast"}) {
    std::vector<std::string> lines_of[2];
    for (const int jobs : {1, 3}) {
      const std::string file = dir / ("j" + std::to_string(jobs));
      const Result r = gdn_cts("verify --kernel faulty/correction_before_decay/chunk-fp32 --family typical,packed_sequences,chunk_boundary -j " + std::to_string(jobs) + more +
                               " --json '" + file + "'");
      CAPTURE(r.out, r.err);
      CHECK(r.status == 1);
      for (Record record : read_records(file)) {
        record.kernel_seconds = record.check_seconds = record.golden_seconds = 0;
        lines_of[jobs > 1].push_back(to_json_line(record));
      }
    }
    CHECK(lines_of[0].size() == (*more ? 1 : lines_of[1].size()));
    CHECK(lines_of[0] == lines_of[1]);
  }
}

TEST_CASE("what was asked is counted once, and nothing asked is no pass") {
  const Directory dir;
  const std::string id = "--case 'typical:prefill/n1_t9_h1_hv2_k16_v16/fp32:1' ", kernel = "verify --kernel cpu_recurrent_fp32 ", records = dir / "r.jsonl";
  const Result twice = gdn_cts(kernel + id + id + "--json '" + records + "'");
  CHECK(twice.status == 0);
  CHECK(read_records(records).size() == 1);
  refused(kernel + id + "--shard 2/2", "there is no case for 2/2, of 1 in all");
  // Earlier records: of this kernel, of these cases.
  refused("verify --kernel cpu_chunk_fp32 " + id + "--baseline '" + records + "'", "has no records of cpu_chunk_fp32, it is of cpu_recurrent_fp32");
  REQUIRE(gdn_cts(kernel + "--family typical --json '" + records + "'").status == 0);
  const Result narrowed = gdn_cts(kernel + "--case '" + read_records(records).at(0).case_id + "' --baseline '" + records + "'");
  CAPTURE(narrowed.out);
  CHECK(contains(narrowed.out, "unchanged: 1, new cases: 0"));
  CHECK_FALSE(contains(narrowed.out, "not asked any more"));
  CHECK(contains(gdn_cts(kernel + "--family typical --seed 2 --baseline '" + records + "'").out, "unchanged: 0"));
}

TEST_CASE("a case that ran out of time is repeated with the time that it had") {
  const Directory dir;
  write_file(dir / "slow.sh", "read hello\necho '{\"gdn_cts\": 1, \"name\": \"slow\", \"contract\": \"fp32-recurrent\"}'\nread request\nsleep 60\n");
  const Result slow = gdn_cts("verify --exec 'sh " + dir / "slow.sh" + "' --timeout 0.3 --case 'typical:prefill/n1_t9_h1_hv2_k16_v16/fp32:1'");
  CAPTURE(slow.out, slow.err);
  CHECK(slow.status == 1);
  CHECK(contains(slow.out, "TIMEOUT"));
  CHECK(contains(slow.out, ":1' --timeout 0.3\n"));
}

TEST_CASE("known failures are waived, unexpected passes are not") {
  const Directory dir;
  const std::string verify = "verify --family typical,long_memory --waivers '" + dir / "w" + "' --kernel ", faulty = "faulty/correction_before_decay/chunk-fp32";
  write_file(dir / "w", "{\"case\": \"typical:*\", \"reason\": \"issue 12\", \"expires\": \"9999-12-31\"}\n");
  const Result one = gdn_cts(verify + faulty);
  CAPTURE(one.out, one.err);
  CHECK(one.status == 1);                          // long_memory is not waived
  CHECK(contains(one.out, "waived\n  typical:"));
  write_file(dir / "w", "{\"case\": \"*\", \"kernel\": \"faulty/*\", \"reason\": \"issue 12\", \"expires\": \"2020-12-31\"}\n");
  const Result late = gdn_cts(verify + faulty);
  CHECK(late.status == 1);
  CHECK(contains(late.out, "expired on 2020-12-31"));
  write_file(dir / "w", "{\"case\": \"typical:*\", \"reason\": \"issue 12\", \"expires\": \"9999-12-31\"}\n");
  const Result passes = gdn_cts(verify + "cpu_recurrent_fp32");
  CHECK(passes.status == 1);
  CHECK(contains(passes.out, "passes; take it out of the waiver"));
}

TEST_CASE("a submission states the kernel's own files") {
  const Directory dir;
  const std::string kernel = dir / "mine.sh", folder = dir / "s", report = "report '" + folder + "'";
  const std::string gated = "exec '" GDN_BINARY_DIR "/tools/adapters/gdn-cts-cpp-recurrence'\n";
  write_file(kernel, gated);
  const std::string exec = "verify --family typical --submission '" + folder + "' --exec \"sh '" + kernel + "'\"";
  REQUIRE(gdn_cts(exec).status == 0);
  CHECK(contains(gdn_cts(report).out, kernel + " is the file that was gated"));
  CHECK(gdn_cts(report + " --kernel-file '" + kernel + "'").status == 0);
  write_file(kernel, "# another kernel\n" + gated);
  CHECK(contains(gdn_cts(report).out, kernel + " HAS CHANGED since"));
  const Result other = gdn_cts(report + " --kernel-file '" + kernel + "'");
  CHECK(other.status == 2);
  CHECK(contains(other.err, "mine.sh is no file of the kernel that was gated"));
  // A kernel that writes to its own file while it is gated.
  write_file(kernel, "echo '#' >> '" + kernel + "'\n" + gated);
  const Result restless = gdn_cts(exec);
  CHECK(restless.status == 2);
  CHECK(contains(restless.err, "changed while it was gated"));
  fs::remove(kernel);
  CHECK(contains(gdn_cts(report).out, kernel + " is not here"));
  REQUIRE(gdn_cts("verify --kernel cpu_recurrent_fp32 --family typical --submission '" + folder + "'").status == 0);
  CHECK(contains(gdn_cts(report).out, "gdn-cts is the file that was gated"));
}

TEST_CASE("a submission says what it is of, and any change to it shows") {
  const Directory dir;
  const std::string folder = dir / "s";
  REQUIRE(gdn_cts("verify --kernel cpu_recurrent_fp32 --family typical --submission '" + folder + "'").status == 0);
  const Result read = gdn_cts("report '" + folder + "'");
  CAPTURE(read.out, read.err);
  CHECK(read.status == 0);
  for (const char* part : {"the files are those of the statement", "name cpu_recurrent_fp32;", "processor ", "families typical;"}) CHECK(contains(read.out, part));
  for (const char* file : {"records.jsonl", "summary.md", "index.html", "submission.json"}) {
    const std::string path = folder + "/" + file, whole = read_file(path);
    std::string changed = whole;
    changed[changed.size() / 2] = changed[changed.size() / 2] == 'a' ? 'b' : 'a';
    write_file(path, changed);
    refused("report '" + folder + "'", file);
    fs::remove(path);
    refused("report '" + folder + "'", file);
    write_file(path, whole);
  }
  CHECK(gdn_cts("report '" + folder + "'").status == 0);
  write_file(folder + "/submission.json", "[1, 2");
  refused("report '" + folder + "'", "no submission");
}

TEST_CASE("blind: inputs alone travel, and are judged as the whole golden is") {
  const Directory dir;
  const std::string id = "typical:prefill/n1_t21_h2_hv4_k64_v32/fp32/h0:7";
  REQUIRE(gdn_cts("generate --blind --case '" + id + "' -o '" + dir.path.string() + "'").status == 0);
  std::string blind;
  for (const auto& entry : fs::directory_iterator(dir.path))
    if (entry.path().extension() == ".h5") blind = entry.path().string();
  CHECK(read_golden(blind).truths.at(0).empty());
  for (const char* kernel : {"cpu_recurrent_fp32", "faulty/correction_before_decay/recurrent-fp32"}) {
    const Case c = make_case(parse_case_id(id));
    const Execution e = open_inline(kernel, {})->run(c.runs[0], id);
    write_tensors(dir / "candidate.h5", id, c.problem, e.outputs);
    const Result r = gdn_cts("judge --golden '" + blind + "' --candidate '" + dir / "candidate.h5" + "' --contract fp32-recurrent");
    CAPTURE(r.out, r.err);
    CHECK(r.status == (kernel[0] == 'f' ? 1 : 0));
    CHECK(contains(r.out, kernel[0] == 'f' ? "FAILED" : "PASSED"));
    CHECK(contains(r.err, "holds no expected results, making them"));
  }
}

TEST_CASE("blind: a folder of inputs has nothing of the results, and is judged as the kernel itself is") {
  const Directory dir;
  const std::string inputs = dir / "in", whole = dir / "whole", results = dir / "out";
  std::string cases;
  for (const char* id : {"typical:prefill/n1_t21_h2_hv4_k64_v32/fp32/h0:7", "random_tokens:prefill/n1_t40_h1_hv2_k16_v16/fp32/h0:1", "typical:prefill/n1_t9_h1_hv2_k16_v16/bf16/h0:1"})
    cases += " --case '" + std::string(id) + "'";
  REQUIRE(gdn_cts("generate --blind" + cases + " -o '" + inputs + "'").status == 0);
  REQUIRE(gdn_cts("generate" + cases + " -o '" + whole + "'").status == 0);
  std::vector<std::string> files;
  for (const auto& entry : fs::directory_iterator(inputs))
    if (entry.path().extension() == ".h5") files.push_back(entry.path().filename().string());
  REQUIRE(files.size() == 3);
  for (const std::string& file : files) {
    // The expected values lie uncompressed in a whole golden: their bytes are there, and in a blind one they are not.
    const std::string shown = read_file(whole + "/" + file), shipped = read_file(inputs + "/" + file);
    std::size_t found = 0, leaked = 0;
    const Golden expected = read_golden(whole + "/" + file), blind = read_golden(inputs + "/" + file);
    for (const auto& [tensor, truth] : expected.truths.at(0))
      for (const double x : truth.hi) {
        if (x == 0 || std::fabs(x) == std::exp2(std::ilogb(x))) continue;   // a power of two may be an attribute
        const std::string bytes(reinterpret_cast<const char*>(&x), sizeof x);
        found += contains(shown, bytes);
        leaked += contains(shipped, bytes);
      }
    CHECK(found > 100);
    CHECK(leaked == 0);
    for (const Truth& t : blind.truths) CHECK(t.empty());
  }
  const std::string judge = "judge --golden '" + inputs + "' --candidate '" + results + "' --contract fp32-recurrent --json '" + dir / "judged" + "'";
  fs::create_directories(results);
  for (const char* kernel : {"cpu_recurrent_fp32", "faulty/correction_before_decay/recurrent-fp32"}) {
    const auto session = open_inline(kernel, {});
    for (const std::string& file : files) {
      const Golden g = read_golden(inputs + "/" + file);
      const std::string id = case_id(g.the_case);
      REQUIRE(g.the_case.runs.size() == 1);
      write_tensors(results + "/" + file, id, g.the_case.problem, session->run(g.the_case.runs[0], id).outputs);
    }
    const Result judged = gdn_cts(judge), verified = gdn_cts("verify --kernel " + std::string(kernel) + cases + " --json '" + dir / "verified" + "'");
    CAPTURE(kernel, judged.out, judged.err, verified.out);
    CHECK(judged.status == verified.status);
    CHECK(judged.status == (kernel[0] == 'f' ? 1 : 0));
    std::map<std::string, std::string> by_judge, by_verify;
    for (const Record& r : read_records(dir / "judged")) by_judge[r.case_id] = r.verdict + " " + r.reason;
    for (const Record& r : read_records(dir / "verified")) by_verify[r.case_id] = r.verdict + " " + r.reason;
    CHECK(by_judge.size() == 3);
    CHECK(by_judge == by_verify);
  }
  CHECK(gdn_cts(judge + " --capabilities 'ops=prefill;io=fp32;h0;ht'").status == 1);
  const std::string bf16 = results + "/" + *std::find_if(files.begin(), files.end(), [](const std::string& f) { return contains(f, "bf16"); });
  fs::remove(bf16);
  const Result missing = gdn_cts(judge);
  CHECK(missing.status == 1);
  CHECK(contains(missing.out, "The kernel gave no result: run 'base': no results: there is no " + bf16));
  CHECK(contains(gdn_cts(judge + " --capabilities 'io=fp32;h0;ht'").out, "io=bf16 not in declared io=fp32"));
  refused("judge --golden '" + inputs + "' --candidate '" + inputs + "/" + files[0] + "' --contract fp32-recurrent", "--candidate has to be one");
  refused(judge + " --profile decode", "holds no case of profile decode");
  refused(judge + " --profile nosuch", "no case family belongs to profile 'nosuch'; there are:");
  refused("judge --golden '" + inputs + "' --candidate '" + results + "'", "Give --contract");
  fs::create_directories(dir / "empty");
  refused("judge --golden '" + dir / "empty" + "' --candidate '" + results + "' --contract fp32-recurrent", "holds no case");
}

TEST_CASE("blind: what a folder holds beside the profile that is claimed is not required, and nothing passes by leaving files out") {
  const Directory dir;
  const std::string inputs = dir / "in", results = dir / "out";
  std::string cases;
  for (const char* id : {"typical:prefill/n1_t21_h2_hv4_k64_v32/fp32/h0:7", "decode_steps:decode/n2_t4_h2_hv4_k64_v64/fp32/h0,slots=3:1", "random_tokens:prefill/n1_t40_h1_hv2_k16_v16/fp32/h0:1"})
    cases += " --case '" + std::string(id) + "'";
  REQUIRE(gdn_cts("generate --blind" + cases + " -o '" + inputs + "'").status == 0);
  fs::create_directories(results);
  const auto session = open_inline("cpu_recurrent_fp32", {});
  for (const auto& entry : fs::directory_iterator(inputs)) {
    if (entry.path().extension() != ".h5") continue;
    const Golden g = read_golden(entry.path());
    if (g.the_case.problem.operation == Operation::decode) continue;
    write_tensors(results + "/" + entry.path().filename().string(), case_id(g.the_case), g.the_case.problem, session->run(g.the_case.runs[0], case_id(g.the_case)).outputs);
  }
  const std::string judge = "judge --golden '" + inputs + "' --candidate '" + results + "' --contract fp32-recurrent";
  const Result prefill = gdn_cts(judge + " --capabilities 'ops=prefill;io=fp32;h0;ht'");
  CAPTURE(prefill.out, prefill.err);
  CHECK(prefill.status == 0);
  CHECK(contains(prefill.out, "narrowed to the cases of the folder, required: core"));
  CHECK(gdn_cts(judge + " --capabilities 'ops=prefill;io=fp32;h0;ht' --profile core --profile decode").status == 1);
  const Result all = gdn_cts(judge);               // all that the folder asks, decode as well
  CHECK(all.status == 1);
  CHECK(contains(all.out, "no results: there is no"));
  CHECK_FALSE(contains(all.out, "not in declared"));
  // A folder that lost a file, or holds one twice, is not what was shipped.
  const std::string one = inputs + "/" + file_stem("random_tokens:prefill/n1_t40_h1_hv2_k16_v16/fp32/h0:1") + ".h5";
  fs::copy_file(one, inputs + "/zz.h5");
  refused(judge, "zz.h5: holds case random_tokens:");
  fs::remove(inputs + "/zz.h5");
  fs::remove(one);
  refused(judge, "is missing, the manifest lists it");
}

TEST_CASE("blind: answer runs a kernel on a folder of inputs, and what it leaves is judged as verify judges the kernel") {
  const Directory dir;
  const std::string inputs = dir / "in", results = dir / "out";
  // One run, several runs, several calls, a pool, tokens to be refused, what only some kernels do.
  std::string cases;
  for (const char* family : {"typical", "gate_positive", "state_handoff", "decode_pool", "verify_snapshots"}) {
    const std::vector<CaseId> all = cases_of(Level::smoke, 1, {family});
    for (std::size_t i = 0; i < std::min<std::size_t>(2, all.size()); ++i) cases += " --case '" + case_id(all[i]) + "'";
  }
  REQUIRE(gdn_cts("generate --blind" + cases + " -o '" + inputs + "'").status == 0);
  const std::string nothing_claimed = " --kernel cpu_chunk_bf16", wrong = " --kernel faulty/correction_before_decay/recurrent-fp32";
  for (const std::string& kernel : {std::string(" --kernel cpu_recurrent_fp32"), nothing_claimed, wrong, std::string(" --exec '/usr/bin/python3 " GDN_SOURCE_DIR "/tools/adapters/numpy_recurrence.py'")}) {
    fs::remove_all(results);
    const Result answered = gdn_cts("answer --inputs '" + inputs + "' -o '" + results + "'" + kernel);
    const Result judged = gdn_cts("judge --golden '" + inputs + "' --candidate '" + results + "' --json '" + dir / "judged" + "'");
    const Result verified = gdn_cts("verify" + kernel + cases + " --json '" + dir / "verified" + "'");
    CAPTURE(kernel, answered.out, answered.err, judged.out, judged.err, verified.out);
    CHECK(answered.status == 0);
    CHECK(contains(answered.out, "judge them with\n  "));
    std::map<std::string, std::string> by_judge, by_verify;
    for (const Record& r : read_records(dir / "judged")) by_judge[r.case_id] = r.kernel + " " + r.contract + " " + r.verdict + " " + r.reason;
    for (const Record& r : read_records(dir / "verified")) by_verify[r.case_id] = r.kernel + " " + r.contract + " " + r.verdict + " " + r.reason;
    CHECK(by_verify.size() > 7);
    CHECK(by_judge == by_verify);
    CHECK((judged.status == 1) == (kernel == wrong));
  }
  // A kernel that dies is a failure in both places.
  write_file(dir / "dies.sh", "read hello\necho '{\"gdn_cts\": 1, \"name\": \"dies\", \"contract\": \"fp32-recurrent\"}'\nread request\nexit 3\n");
  const Result died = gdn_cts("answer --inputs '" + inputs + "' -o '" + results + "' --exec 'sh " + dir / "dies.sh" + "'");
  CAPTURE(died.out, died.err);
  CHECK(died.status == 1);
  CHECK(contains(died.err, "ended with exit status 3"));
  const Result of_dead = gdn_cts("judge --golden '" + inputs + "' --candidate '" + results + "'");
  CHECK(of_dead.status == 1);
  CHECK(contains(of_dead.out, "The kernel gave no result: run 'base': adapter ended with exit status 3"));
  refused("answer -o x --kernel cpu_recurrent_fp32", "--inputs DIR is required");
  refused("answer --inputs '" + inputs + "' --kernel cpu_recurrent_fp32", "-o DIR is required");
  refused("answer --inputs '" + inputs + "' -o '" + inputs + "' --kernel cpu_recurrent_fp32", "same folder");
  refused("answer --inputs '" + inputs + "' -o '" + results + "'", "which kernel?");
  // Files of two kernels are results of neither.
  for (const auto& entry : fs::directory_iterator(inputs))
    if (entry.path().extension() == ".h5" && gdn_cts("answer --inputs '" + entry.path().string() + "' -o '" + results + "' --kernel cpu_recurrent_fp32").status == 0) break;
  refused("judge --golden '" + inputs + "' --candidate '" + results + "'", "declares another kernel than");
}

TEST_CASE("output that a closed standard output loses is no success, and costs no file") {
  const Directory dir;
  const Result verified = shell("unset GDN_CTS_PROGRAM; '" GDN_PROGRAM "' verify --family typical --json '" + dir / "r" + "' --kernel cpu_recurrent_fp32 <&- >&-");
  CHECK(verified.status == 3);
  CHECK(contains(verified.err, "gdn-cts: cannot write to standard output: it is closed\n"));
  CHECK(read_records(dir / "r").size() > 1);
  for (const char* arguments : {"list cases >&-", "--version >&-", "explain W >&-"}) {
    const Result r = gdn_cts(arguments);
    CAPTURE(arguments, r.err);
    CHECK(r.status == 3);
    CHECK(lines(r.err) == 1);
  }
  refused("frobnicate >&-", "frobnicate");         // nothing was to be printed
}

TEST_CASE("judge agrees with verify, on results computed elsewhere") {
  const Directory dir;
  const std::string id = "typical:prefill/n1_t21_h2_hv4_k64_v32/fp32/h0:7";
  REQUIRE(gdn_cts("generate --case '" + id + "' -o '" + dir.path.string() + "'").status == 0);
  std::string golden;
  for (const auto& entry : fs::directory_iterator(dir.path))
    if (entry.path().extension() == ".h5") golden = entry.path().string();
  const Case c = make_case(parse_case_id(id));
  for (const char* kernel : {"cpu_recurrent_fp32", "faulty/correction_before_decay/recurrent-fp32"}) {
    const auto session = open_inline(kernel, {});
    const Execution e = session->run(c.runs[0], id);
    write_tensors(dir / "candidate.h5", id, c.problem, e.outputs);
    const std::string judge = "judge --golden '" + golden + "' --candidate '" + dir / "candidate.h5" + "'";
    const Result judged = gdn_cts(judge + " --contract fp32-recurrent"), verified = gdn_cts("verify --kernel " + std::string(kernel) + " --case '" + id + "'");
    CAPTURE(kernel, judged.out, judged.err, verified.out);
    CHECK(judged.status == verified.status);
    CHECK(judged.status == (kernel[0] == 'f' ? 1 : 0));
    refused(judge, "--contract");
    refused(judge + " --contract nonsense", "nonsense");
    TensorSet wrong = e.outputs;
    wrong.erase("ht");
    write_tensors(dir / "candidate.h5", id, c.problem, wrong);
    refused(judge + " --contract fp32-recurrent", "/ht: dataset is missing");
    wrong["ht"] = Tensor(DType::f32, {1, 4, 32, 64});
    write_tensors(dir / "candidate.h5", id, c.problem, wrong);
    refused(judge + " --contract fp32-recurrent", "/ht: shape [1,4,32,64], want [1,4,64,32]");
  }
}

TEST_CASE("minimize finds the smallest problem that shows a fault") {
  const Result r = gdn_cts("minimize typical:prefill/n1_t70_h2_hv4_k16_v16/fp32/h0:1 --kernel faulty/state_zeroed_at_chunk_border/chunk-fp32");
  CAPTURE(r.out, r.err);
  CHECK(r.status == 1);
  CHECK(contains(r.out, "smallest: typical:prefill/n1_t65_h1_hv1_k1_v1/fp32/noht:1"));  // the first token after the border
  const Result sound = gdn_cts("minimize typical:prefill/n1_t70_h2_hv4_k16_v16/fp32/h0:1 --kernel cpu_chunk_fp32");
  CHECK(sound.status == 0);
  CHECK(contains(sound.out, "does not fail, it is PASSED"));
}

TEST_CASE("infer rules out what a kernel does not keep") {
  const Result r = gdn_cts("infer --kernel cpu_chunk_bf16 --family long_memory");
  CAPTURE(r.out, r.err);
  CHECK(r.status == 0);
  CHECK(contains(r.out, "\nbf16-chunk                         yes "));
  CHECK(contains(r.out, "\nfp32-chunk;solve=block_inverse     no "));
  CHECK(contains(r.out, "tightest contract that it meets here: bf16-chunk"));
}

TEST_CASE("a contract looser than needed is said to be so, a fitting one is not") {
  const std::string verify = "verify --family random_tokens --kernel simulated/bf16-";
  const Result loose = gdn_cts(verify + "io-chunk --contract bf16-chunk"), fits = gdn_cts(verify + "chunk");
  CAPTURE(loose.out, fits.out);
  CHECK(loose.status == 0);
  CHECK(contains(loose.out, "declares a looser contract than it needs: its errors are "));
  CHECK_FALSE(contains(fits.out, "looser contract"));
}

TEST_CASE("bench measures, and says on what") {
  const Directory dir;
  const Result r = gdn_cts("bench --what kernels,checks --repeats 2 --problem prefill/n1_t16_h1_hv1_k16_v16/fp32 --json '" + dir / "b.json" + "'");
  CAPTURE(r.out, r.err);
  CHECK(r.status == 0);
  for (const char* part : {"compiler", "processor", "kernel cpu_recurrent_fp32", "all checks"}) {
    CHECK(contains(r.out, part));
    CHECK(contains(read_file(dir / "b.json"), part));
  }
}

TEST_CASE("Ctrl-C and termination leave nothing half-written") {
  for (const auto& [signal, status] : {std::pair{"INT", 130}, {"TERM", 143}}) {
    const Directory dir;
    const Result r = shell(std::string("unset GDN_CTS_PROGRAM; timeout --preserve-status -s ") + signal + " 0.5 '" GDN_PROGRAM
                           "' generate --problem prefill/n1_t65536_h16_hv32_k128_v128/bf16 -o '" + dir.path.string() + "'");
    CAPTURE(signal, r.out, r.err);
    CHECK(r.status == status);
    CHECK(r.out.empty());
    CHECK(contains(r.err, std::string(signal) == "INT" ? "interrupted" : "terminated"));
    for (const auto& entry : fs::directory_iterator(dir.path)) {
      CAPTURE(entry.path());
      CHECK(entry.path().filename() == ".gdn-lock");
    }
  }
}

TEST_CASE("a precision study is resumed with the same bytes, and one question answered") {
  const Directory dir;
  const std::string whole = dir / "whole.jsonl", cut = dir / "cut.jsonl";
  const Result first = gdn_cts("precision --study keys --resume " + whole + " -o " + (dir / "out"));
  CAPTURE(first.out, first.err);
  REQUIRE(first.status == 0);
  CHECK(contains(first.out, "- "));                // findings
  const std::string lines_of_it = read_file(whole);
  CHECK(lines_of_it == read_file((fs::path(dir / "out") / "points.jsonl").string()));
  CHECK(contains(read_file((fs::path(dir / "out") / "summary.md").string()), "gdn-cts precision --size ci --seed 1 --study keys"));
  write_file(cut, std::string_view(lines_of_it).substr(0, lines_of_it.size() / 3));   // ended in the middle of a line
  const Result second = gdn_cts("precision --study keys --threads 1 --resume " + cut);
  CAPTURE(second.err);
  CHECK(second.status == 0);
  CHECK(read_file(cut) == lines_of_it);
  CHECK(second.out == first.out.substr(0, second.out.size()));
  write_file(cut, "{\"schema_version\":1}\n");
  refused("precision --study keys --resume " + cut, "cut.jsonl:1: field 'study' is missing");

  // Without gnuplot: one line says so, and the tables are there. Pages can be made again from the points.
  const Result plain = shell("PATH=/nonexistent; export PATH; '" GDN_PROGRAM "' precision --from " + whole + " -o " + (dir / "plain"));
  CAPTURE(plain.err);
  CHECK(plain.status == 0);
  CHECK(plain.err == "gdn-cts: gnuplot is not installed: the page has its tables but no plots\n");
  CHECK(contains(read_file((fs::path(dir / "plain") / "index.html").string()), "<table class=\"sortable\">"));

  const Result one = gdn_cts("precision --inputs T=64,K=16,io=bf16 --contract bf16-chunk --kernel cpu_chunk_bf16");
  CAPTURE(one.out, one.err);
  CHECK(one.status == 0);
  CHECK(contains(one.out, "T=64,K=16,V=16,io=bf16,gate=0.01,beta=0..1,keys=0.3,call=0,draws=4,seed=1"));
  CHECK(contains(one.out, "\nbf16-chunk "));
  CHECK(contains(one.out, "\ncpu_chunk_bf16 "));
}

TEST_CASE("records of several runs: an index, and two kernels side by side") {
  const Directory dir;
  const std::string cases = " --level smoke --family alternation --json ";
  REQUIRE(gdn_cts("verify --kernel cpu_chunk_fp32" + cases + (dir / "a.jsonl")).status == 0);
  REQUIRE(gdn_cts("verify --kernel cpu_recurrent_fp32" + cases + (dir / "b.jsonl")).status == 0);
  const Result both = gdn_cts("compare " + (dir / "a.jsonl") + " " + (dir / "b.jsonl") + " -o " + (dir / "compared"));
  CAPTURE(both.out, both.err);
  CHECK(both.status == 0);
  CHECK(contains(both.out, "first   cpu_chunk_fp32 "));
  CHECK(contains(both.out, "\nalternation "));
  CHECK(contains(read_file((fs::path(dir / "compared") / "index.html").string()), "cpu_chunk_fp32 and cpu_recurrent_fp32"));
  const Result index = gdn_cts("report --history " + (dir / "a.jsonl") + " " + (dir / "b.jsonl") + " " + (dir / "a.jsonl") + " -o " + (dir / "runs"));
  CAPTURE(index.out, index.err);
  CHECK(index.status == 0);
  const std::string page = read_file((fs::path(dir / "runs") / "index.html").string());
  CHECK(contains(page, "first run"));
  CHECK(contains(page, "unchanged: "));
  for (const char* run : {"run1", "run2", "run3"}) CHECK(contains(read_file((fs::path(dir / "runs") / run / "index.html").string()), "Where the error lies"));
}
