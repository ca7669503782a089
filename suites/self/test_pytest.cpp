// The pytest plugin of the adapter package, from outside: a test per case, failures with their block, skips with their reason.
#include <sys/wait.h>

#include <array>
#include <cstdio>

#include "suites/self/catch.h"

namespace {

struct Result { int status; std::string out; };

Result pytest(const std::string& arguments) {
  const std::string line = "cd \"$(mktemp -d)\" && unset GDN_CTS_PROGRAM; PYTHONPATH='" GDN_SOURCE_DIR "/tools/adapters' /usr/bin/python3 -m pytest -q -p no:cacheprovider -p gdn_cts_adapter.pytest_plugin "
                           "--gdn-cts-program '" GDN_PROGRAM "' " + arguments + " 2>&1";
  std::FILE* pipe = ::popen(line.c_str(), "r");
  REQUIRE(pipe != nullptr);
  Result r{};
  std::array<char, 4096> buffer;
  std::size_t n;
  while ((n = std::fread(buffer.data(), 1, buffer.size(), pipe)) > 0) r.out.append(buffer.data(), n);
  r.status = WEXITSTATUS(::pclose(pipe));
  return r;
}

bool contains(const std::string& s, const std::string& part) { return s.find(part) != std::string::npos; }

const std::string kKernel = "--gdn-cts-kernel '" GDN_SOURCE_DIR "/suites/self/adapters/pytest_kernel.py:";

}  // namespace

TEST_CASE("a right kernel passes a test per case, and the gate") {
  const Result r = pytest(kKernel + "good' --gdn-cts-options '--family typical,sizes'");
  CAPTURE(r.out);
  CHECK(r.status == 0);
  CHECK(contains(r.out, " passed"));
  CHECK_FALSE(contains(r.out, " failed"));
}

TEST_CASE("a wrong one fails the cases that show it, with the block that explains it") {
  const Result r = pytest(kKernel + "bad' -k 'typical and h2_hv4 or typical and h1_hv2'");
  CAPTURE(r.out);
  CHECK(r.status == 1);
  CHECK(contains(r.out, "the kernel returned"));
  const bool quoted = contains(GDN_PROGRAM, " ");  // a checkout in a folder of two words
  CHECK(contains(r.out, quoted ? "reproduce  '" GDN_PROGRAM "' verify" : "reproduce  " GDN_PROGRAM " verify"));
  CHECK(contains(r.out, "deselected"));
  const Result whole = pytest(kKernel + "bad' --gdn-cts-options '--family typical'");
  CHECK(contains(whole.out, "gdn-cts::gate"));
}

TEST_CASE("a kernel without a declaration, or a program that is not there, is one line") {
  const Result r = pytest(kKernel + "undeclared'");
  CAPTURE(r.out);
  CHECK(r.status == 4);                            // wrong usage, says pytest
  CHECK(contains(r.out, "has no attribute gdn_cts"));
  const Result none = pytest(kKernel + "good' --gdn-cts-program /no/such/program");
  CAPTURE(none.out);
  CHECK(none.status == 4);
  CHECK(contains(none.out, "--gdn-cts-program says where it is"));
}
