// The generator against the known answers of its authors and an independent implementation: inputs of every case
// hang on these bits. Values come from the Random123 test vectors (philox4x32, 10 rounds) and from a few lines of
// Python with unbounded integers.
#include <cmath>

#include "reference/rng.h"
#include "suites/self/catch.h"

using namespace gdn;

TEST_CASE("Philox4x32-10 known answers") {
  // Counter (index, stream) and key seed, low words first; the first two output words, low word first.
  CHECK(philox(0, 0, 0) == 0xe169c58d6627e8d5u);
  CHECK(philox(~0ull, ~0ull, ~0ull) == 0x41c83b0e408f276du);
  CHECK(philox(0x299f31d0a4093822u, 0x0370734413198a2eu, 0x85a308d3243f6a88u) == 0x94fdccebd16cfe09u);
  CHECK(philox(1, 2, 3) == 0x663eff4fde08bf52u);
  CHECK(philox(0xdeadbeefcafebabeu, 0x0123456789abcdefu, 0xfedcba9876543210u) == 0xd6d94e2ecde37577u);
}

TEST_CASE("FNV-1a known answers") {
  CHECK(hash_name("") == 0xcbf29ce484222325u);
  CHECK(hash_name("a") == 0xaf63dc4c8601ec8cu);
  CHECK(hash_name("foobar") == 0x85944171f73967e8u);
}

TEST_CASE("derived numbers have fixed bits") {
  const Random r(7, "q");
  CHECK(r.normal(0) == 0x1.2ad1908e9ba09p-2);
  CHECK(r.normal(1) == -0x1.1df7e66331b71p+0);
  CHECK(r.normal(2) == -0x1.8016314914bcbp+0);
  const std::uint64_t digits[] = {3, 6, 7, 9, 1};
  for (std::uint64_t i = 0; i < 5; ++i) CHECK(r.below(i, 10) == digits[i]);
}

TEST_CASE("streams differ by seed, tensor and index, and have the moments they promise") {
  CHECK(Random(1, "q").bits(0) != Random(1, "k").bits(0));
  CHECK(Random(1, "q").bits(0) != Random(2, "q").bits(0));
  CHECK(Random(1, "q").bits(0) != Random(1, "q").bits(1));
  const Random r(5, "moments");
  double sum = 0, squares = 0, uniform = 0;
  constexpr int n = 20000;
  for (std::uint64_t i = 0; i < n; ++i) {
    const double x = r.normal(i), u = r.uniform(i);
    REQUIRE(std::fabs(x) <= 4.9);
    REQUIRE((u >= 0 && u < 1));
    sum += x;
    squares += x * x;
    uniform += u;
  }
  // Six standard deviations of the mean of n draws; the kurtosis of the sum of eight uniforms is 2.85.
  CHECK(std::fabs(sum / n) < 6 / std::sqrt(n));
  CHECK(std::fabs(squares / n - 1) < 6 * std::sqrt(1.85 / n));
  CHECK(std::fabs(uniform / n - 0.5) < 6 * std::sqrt(1.0 / 12 / n));
}
