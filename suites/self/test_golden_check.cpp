// The audit of golden directories finds what is wrong: foreign, missing, stale and edited files, false truth, false
// certificates; and the head-by-head generator makes the same goldens as the oracle of a whole run.
#include <hdf5.h>
#include "golden/check.h"
#include "golden/manifest.h"
#include "golden/stream.h"
#include "reference/parallel.h"
#include "suites/self/catch.h"
#include "suites/self/golden_fixture.h"

using namespace gdn;
using namespace gdn::test;

namespace {

Case real_case(const std::string& problem, std::uint64_t seed = 3) {
  Case c;
  c.family = "selftest";
  c.problem = parse_problem(problem);
  c.seed = seed;
  c.runs.push_back(random_run("base", c.problem, seed));
  return c;
}

// A golden as the oracle makes it, before anybody spoils it.
Golden real_golden(const Case& c) {
  Golden g;
  g.the_case = c;
  g.edition = kAccuracyEdition;
  for (const Run& r : c.runs) g.truths.push_back(oracle(r, &g.stats));
  return g;
}

std::vector<std::string> problems_of(const fs::path& dir, CheckSummary* summary = nullptr, const CheckOptions& o = {}) {
  std::vector<std::string> lines;
  const CheckSummary s = check_directory(dir, [&](const std::string& l) { lines.push_back(l); }, o);
  CHECK(s.problems == static_cast<std::int64_t>(lines.size()));
  for (const std::string& l : lines) CHECK(l.find('\n') == std::string::npos);
  if (summary) *summary = s;
  return lines;
}

const char* const kProblem = "prefill/n2_t9+4_h1_hv2_k8_v4/bf16/h0";

}  // namespace

TEST_CASE("the generator makes what the oracle makes, at any number of threads") {
  for (const char* problem : {kProblem, "prefill/n3_t5+0+1_h2_hv6_k4_v3/fp32/noht,pad=3", "prefill/n4_t1_h1_hv3_k8_v8/fp16/h0,state=bf16"}) {
    const Case c = real_case(problem);
    const Scratch whole, streamed, single;
    const fs::path a = write_golden(whole.path, real_golden(c));
    OracleStats stats;
    double last = 0;
    const fs::path b = generate_golden(streamed.path, c, &stats, [&](double x) { last = x; });
    CHECK(last == 1);
    CHECK(same(read_golden(a), read_golden(b)));
    CHECK(read_manifest(whole.path).begin()->second.sha256 == read_manifest(streamed.path).begin()->second.sha256);
    const int threads = max_threads();
    set_max_threads(threads == 1 ? 3 : 1);
    CHECK((bytes_of_file(generate_golden(single.path, c)) == bytes_of_file(b)));
    set_max_threads(threads);
  }
}

TEST_CASE("a sound directory passes the audit") {
  const Scratch dir;
  generate_golden(dir.path, real_case(kProblem));
  generate_golden(dir.path, real_case("prefill/n1_t6_h1_hv1_k4_v4/fp32/noht"));
  CheckSummary s;
  const auto lines = problems_of(dir.path, &s);
  INFO((lines.empty() ? "" : lines[0]));
  CHECK(lines.empty());
  CHECK(s.files == 2);
  CHECK(s.heads == 5);
  CHECK(s.audited_heads == 5);
  CHECK(s.elements == 13 * 2 * 4 + 2 * 2 * 8 * 4 + 6 * 4);
  CHECK(s.datasets == 13 + 9);
  CheckOptions large;
  large.small_case = 0;                            // now every case is large: at least one head of each
  problems_of(dir.path, &s, large);
  CHECK(s.audited_heads >= 2);
  CHECK(s.audited_heads < 5);
  CHECK_THROWS_AS(check_directory(dir / "none", [](const std::string&) {}), BadInput);
}

TEST_CASE("foreign, missing and stale files are named") {
  const Scratch dir, other;
  const Case c = real_case(kProblem);
  const fs::path file = generate_golden(dir.path, c);
  const std::string good = bytes_of_file(file);
  const auto only = [&](const std::string& name, const std::string& what) {
    const auto lines = problems_of(dir.path);
    REQUIRE(lines.size() == 1);
    INFO(lines[0]);
    CHECK(lines[0].rfind((dir / name).string() + ": ", 0) == 0);
    CHECK(contains(lines[0], what));
  };
  put_file(dir / "notes.txt", "x");
  only("notes.txt", "foreign");
  fs::remove(dir / "notes.txt");
  put_file(dir / ".gdn-tmp.1.0", "x");             // a writer at work
  CHECK(problems_of(dir.path).empty());

  fs::remove(file);
  only(file.filename().string(), "missing");
  Case changed = c;
  changed.runs[0].inputs["q"].set_bits(0, 0);
  fs::copy_file(generate_golden(other.path, changed), file);
  only(file.filename().string(), "stale: its content is not what the manifest lists");

  const Case second = real_case(kProblem, 4);
  put_file(file, bytes_of_file(generate_golden(other.path, second)));
  CHECK(problems_of(dir.path).size() == 3);        // content, case, name
  put_file(file, good.substr(0, good.size() / 2));
  only(file.filename().string(), "damaged or truncated");
  put_file(file, good);
  CheckOptions newer;
  newer.edition = "2031.1";
  const auto lines = problems_of(dir.path, nullptr, newer);
  REQUIRE(lines.size() == 1);
  CHECK(contains(lines[0], "stale: edition"));
  put_file(dir / kManifestName, "{}");
  CHECK(problems_of(dir.path).size() == 2);        // no manifest, and so a foreign file
}

TEST_CASE("a changed byte names the first wrong dataset") {
  const Scratch dir;
  const fs::path file = generate_golden(dir.path, real_case(kProblem));
  const std::string good = bytes_of_file(file);
  for (const char* path : {"/inputs/base/q", "/inputs/base/h0", "/truth/base/o_hi", "/truth/base/ht_lo", "/truth/base/ht_radius"}) {
    const hid_t f = H5Fopen(file.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT), d = H5Dopen2(f, path, H5P_DEFAULT), s = H5Dget_space(d);
    hsize_t offset[8], size = 0;
    unsigned mask = 0;
    haddr_t at = 0;
    REQUIRE(H5Dget_chunk_info(d, s, 0, offset, &mask, &at, &size) >= 0);
    H5Sclose(s);
    H5Dclose(d);
    H5Fclose(f);
    std::string bytes = good;
    bytes[at + size / 2] = static_cast<char>(bytes[at + size / 2] ^ 4);
    put_file(file, bytes);
    const auto lines = problems_of(dir.path);
    REQUIRE(lines.size() == 1);
    INFO(lines[0]);
    CHECK(contains(lines[0], file.string() + ": dataset " + path + ": "));
  }
}

TEST_CASE("false truth with right hashes is found by the audit, false certificates by counting") {
  const Case c = real_case(kProblem);
  const Golden good = real_golden(c);
  const auto spoilt = [&](const std::function<void(Golden&)>& spoil) {
    Golden g = good;
    spoil(g);
    const Scratch dir;
    write_golden(dir.path, g);
    const auto lines = problems_of(dir.path);
    std::string all;
    for (const std::string& l : lines) all += l + "\n";
    CheckOptions files_only;
    files_only.audit = false;
    return std::pair(all, problems_of(dir.path, nullptr, files_only).size());
  };
  CHECK(spoilt([](Golden&) {}).first.empty());
  {
    const auto [all, without] = spoilt([](Golden& g) { g.truths[0]["o"].hi[17] = std::nextafter(g.truths[0]["o"].hi[17], 2.0); });
    INFO(all);
    CHECK(contains(all, "run base, sequence "));
    CHECK(without == 0);                           // nothing but the audit can see it
  }
  {
    const auto [all, without] = spoilt([](Golden& g) { g.truths[0]["ht"].lo[40] = 0; });
    INFO(all);
    CHECK(contains(all, "sequence 0, head 1"));
    CHECK(without == 0);
  }
  {
    const auto [all, without] = spoilt([](Golden& g) { g.truths[0]["o"].radius[5] = 1; });   // certifies nothing any more
    INFO(all);
    CHECK(contains(all, "certificates: recorded"));
    CHECK(without == 1);
  }
  CHECK(contains(spoilt([](Golden& g) { g.stats.balls += 1; }).first, "certificates: recorded"));
}
