// Speed of the oracle against the multiprecision types that it replaces, on one thread, in the same run.
#pragma once
#include <cstdint>
#include <string>

namespace gdn {

struct OracleBench {
  std::string isa;                                 // instance of the inner loop that ran
  std::int64_t T = 0, K = 0, V = 0;
  // Processor seconds for one head of T tokens, K x V, gated delta rule. double_double is oracle_head, complete with
  // radius and certification. The other two are the bare recurrence on `sample` tokens, times T / sample.
  double double_double = 0, mpfr_50_digits = 0, cpp_bin_float_quad = 0;
  std::int64_t sample = 0;
  double ns_per_multiply_add(double seconds) const;  // 3 K V multiply-adds per token
};
OracleBench bench_oracle(std::int64_t T = 4096, std::int64_t K = 128, std::int64_t V = 128, std::int64_t sample = 24);

}  // namespace gdn
