// The committed golden set: sound by the audit, complete, and the same as what this build makes.
#include "golden/check.h"
#include "golden/manifest.h"
#include "golden/stream.h"
#include "suites/family.h"
#include "suites/self/catch.h"
#include "suites/self/golden_fixture.h"

using namespace gdn;
using namespace gdn::test;

TEST_CASE("golden/data is sound, complete and what this build makes") {
  const fs::path room = fs::path(GDN_SOURCE_DIR) / "golden";
  INFO("if a family or the oracle was changed on purpose: make it again as golden/README.md says");
  const CheckSummary s = check_directory(room / "data", [](const std::string& line) { FAIL_CHECK(line); });
  std::ifstream list(room / "data.txt");
  const Manifest committed = read_manifest(room / "data");
  std::size_t lines = 0;
  const Scratch dir;
  for (std::string id; std::getline(list, id); ++lines) {
    const Case c = make_case(parse_case_id(id));
    const std::string file = generate_golden(dir.path, c).filename().string();
    INFO(id);
    REQUIRE(committed.count(file) == 1);
    CHECK(committed.at(file).case_id == id);
    CHECK(committed.at(file).sha256 == GoldenReader(dir / file).content_hash());
  }
  CHECK(lines >= 10);
  CHECK(lines == committed.size());
  CHECK(s.files == static_cast<std::int64_t>(lines));
  CHECK(s.audited_heads == s.heads);
}
