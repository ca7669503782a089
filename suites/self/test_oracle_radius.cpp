// The radius against 600-bit arithmetic: the true error stays inside it wherever it is hard, no certified rounding is
// wrong, and all instruction sets and thread counts give the same bits.
#include <mpfr.h>

#include <algorithm>
#include <boost/multiprecision/mpfr.hpp>
#include <cstdlib>
#include <cstring>
#include "reference/certify.h"
#include "reference/gates.h"
#include "reference/oracle_block.h"
#include "reference/parallel.h"
#include "reference/truth.h"
#include "suites/self/catch.h"
#include "suites/self/oracle_inputs.h"

using namespace gdn;

namespace {
using Wide = boost::multiprecision::number<boost::multiprecision::mpfr_float_backend<180, boost::multiprecision::allocate_stack>, boost::multiprecision::et_off>;

// x rounded to nearest even in f, by MPFR's own rounding in the format's exponent range.
double rounded(const Wide& x, Format f) {
  const FormatInfo& i = info(f);
  mpfr_t y;
  mpfr_init2(y, i.precision);
  const mpfr_exp_t emin = mpfr_get_emin(), emax = mpfr_get_emax();
  mpfr_set_emin(i.emin - i.precision + 2);
  mpfr_set_emax(i.emax + 1);
  const int t = mpfr_set(y, x.backend().data(), MPFR_RNDN);
  mpfr_subnormalize(y, mpfr_check_range(y, t, MPFR_RNDN), MPFR_RNDN);
  const double d = mpfr_get_d(y, MPFR_RNDN);
  mpfr_set_emin(emin);
  mpfr_set_emax(emax);
  mpfr_clear(y);
  return d;
}

struct Summary { double worst = 0; std::int64_t wrong = 0, outside = 0, uncertified = 0; };

// Channels [0, V) of the truth, straightforward loops.
Summary compare(const HeadInputs& in, const HeadTruth& truth) {
  Summary s;
  const auto n = [](std::int64_t i) { return static_cast<std::size_t>(i); };
  const auto see = [&](const TruthTensor& x, std::size_t at, const Wide& exact) {
    const double hi = x.hi[at], lo = x.lo[at];
    const double error = static_cast<double>(Wide(abs(Wide(exact - Wide(hi) - Wide(lo)))));
    const double radius = oracle_detail::stored_radius(hi, x.radius[at]);
    if (!(error <= radius)) ++s.outside;
    if (radius > 0) s.worst = std::max(s.worst, error / radius);
    for (Format f : {Format::fp64, Format::fp32, Format::fp16, Format::bf16}) {
      if (!certified(hi, lo, x.radius[at], f)) ++s.uncertified;
      else if (rounded(exact, f) != round_to(DD<double>{hi, lo}, f)) ++s.wrong;
    }
  };
  const bool per_key = gate_per_key_channel(in.rule);
  for (std::int64_t v = 0; v < in.V; ++v) {
    std::vector<Wide> state(n(in.K), Wide(0));
    if (!in.h0.empty()) for (std::int64_t d = 0; d < in.K; ++d) state[n(d)] = static_cast<double>(in.h0[n(d * in.V + v)]);
    for (std::int64_t t = 0; t < in.T; ++t) {
      Wide alpha(1), x(static_cast<double>(in.v[n(t * in.V + v)])), o(0);
      for (std::int64_t d = 0; d < in.K; ++d) {
        if (has_gate(in.rule) && (d == 0 || per_key)) alpha = exp(Wide(static_cast<double>(in.g[n(per_key ? t * in.K + d : t)])));
        state[n(d)] *= alpha;
        if (has_delta(in.rule)) x -= state[n(d)] * static_cast<double>(in.k[n(t * in.K + d)]);
      }
      if (!in.beta.empty()) x *= static_cast<double>(in.beta[n(t)]);
      for (std::int64_t d = 0; d < in.K; ++d) {
        state[n(d)] += x * static_cast<double>(in.k[n(t * in.K + d)]);
        o += state[n(d)] * static_cast<double>(in.q[n(t * in.K + d)]);
      }
      see(truth.o, n(t * in.V + v), o * in.scale);
    }
    for (std::int64_t d = 0; d < in.K; ++d) see(truth.ht, n(d * in.V + v), state[n(d)]);
  }
  return s;
}

void sound(const char* what, const HeadInputs& in, double certified_share, std::int64_t balls = 0) {
  OracleStats stats;
  const Summary s = compare(in, oracle_head(in, &stats));
  INFO(what << ": worst error/radius " << s.worst << ", uncertified " << s.uncertified << " of " << 4 * stats.elements);
  CHECK(s.outside == 0);
  CHECK(s.wrong == 0);
  CHECK(static_cast<double>(s.uncertified) <= (1 - certified_share) * 4 * static_cast<double>(stats.elements));
  CHECK(stats.balls <= balls);
}

std::vector<double> bits(const HeadTruth& t) {
  std::vector<double> all;
  for (const TruthTensor* x : {&t.o, &t.ht}) {
    all.insert(all.end(), x->hi.begin(), x->hi.end());
    all.insert(all.end(), x->lo.begin(), x->lo.end());
    all.insert(all.end(), x->radius.begin(), x->radius.end());
  }
  return all;
}
bool same_bits(const HeadTruth& a, const HeadTruth& b) {
  const std::vector<double> x = bits(a), y = bits(b);
  return x.size() == y.size() && std::memcmp(x.data(), y.data(), x.size() * sizeof(double)) == 0;
}

HeadInputs equal_keys(std::int64_t T, std::int64_t K, std::int64_t V, double beta) {
  HeadInputs in = random_head(Rule::gated_delta, T, K, V, 1e-3);
  for (std::int64_t t = 1; t < T; ++t) std::copy_n(in.k.begin(), K, in.k.begin() + t * K);
  in.beta.assign(static_cast<std::size_t>(T), static_cast<float>(beta));
  return in;
}
}  // namespace

TEST_CASE("the error stays inside the radius and no certified value is wrong") {
  for (Rule rule : {Rule::gated_delta, Rule::delta, Rule::gated_linear, Rule::linear, Rule::kda}) sound(name(rule), random_head(rule, 100, 64, 2, 0.05, 2), 1);
  sound("K = 256", random_head(Rule::gated_delta, 20, 256, 2), 1);
  sound("no forgetting, reflections", random_head(Rule::delta, 400, 32, 2, 0, 2), 1);
  sound("equal keys", equal_keys(200, 32, 2, 0.835), 1);
  sound("equal keys, beta 2", equal_keys(200, 32, 2, 2), 1);
  sound("one-hot", one_hot_head(100, 16, 3), 1);
  sound("one-hot, gates -1000", one_hot_head(100, 16, 3, -1000), 0.7, 2);  // two ties of bf16, moved by less than 2^-1298
  sound("Hadamard", hadamard_head(60, 16, 3), 1);
  sound("Hadamard, generic gates", hadamard_head(30, 16, 3, -0.37f), 0.7);

  HeadInputs in = random_head(Rule::gated_delta, 45, 16, 3);
  std::fill(in.v.begin(), in.v.end(), 0.0f);
  for (float& g : in.g) g = -16;
  sound("decay to 1e-312", in, 0.9);               // fp64 where the pair of doubles cannot hold the digits
  in = random_head(Rule::gated_delta, 30, 16, 3);
  for (float& v : in.v) v *= 1e30f;
  std::fill(in.beta.begin(), in.beta.end(), 0.0f);
  sound("|v| = 1e30, beta 0", in, 1);
  for (std::size_t t = 0; t < 30; t += 7) in.beta[t] = 1;
  for (std::size_t t = 3; t < 30; t += 7) in.g[t] = -100;
  sound("|v| = 1e30, erased again", in, 1);
  in = random_head(Rule::gated_delta, 30, 16, 3);
  for (float& v : in.v) v *= 0x1p-140f;
  for (float& h : in.h0) h *= 0x1p-140f;
  sound("subnormal floats", in, 1);
  in = random_head(Rule::kda, 40, 16, 3, 20);
  sound("kda, channels of very different decay", in, 0.9);
  in = random_head(Rule::gated_delta, 40, 16, 3, 0);
  for (float& k : in.k) k *= 4;
  sound("expansive keys", in, 1);
}

TEST_CASE("a radius that is too small is noticed") {
  const HeadInputs in = random_head(Rule::delta, 100, 64, 2);
  HeadTruth t = oracle_head(in);
  REQUIRE(compare(in, t).outside == 0);
  CHECK(compare(in, t).worst > 1e-7);              // the radius is not arbitrary either
  for (float& r : t.o.radius) r *= 1e-7f;
  CHECK(compare(in, t).outside > 0);
}

TEST_CASE("beta 2, no forgetting, keys normalised in bf16, 32768 tokens", "[.slow]") {
  HeadInputs in = random_head(Rule::gated_delta, 32768, 128, 2, 0, 2);
  in.beta.assign(32768, 2.0f);
  OracleStats stats;
  const HeadTruth t = oracle_head(in, &stats);
  const Summary s = compare(in, t);
  WARN("worst error/radius " << s.worst << ", uncertified for fp64 " << stats.uncertified_fp64 << ", balls " << stats.balls << ", multiprecision " << stats.multiprecision_heads);
  CHECK(s.outside == 0);
  CHECK(s.wrong == 0);
  CHECK(stats.balls == 0);
}

TEST_CASE("every instruction set and thread count gives the same bits") {
  std::vector<HeadInputs> heads;
  for (Rule rule : {Rule::gated_delta, Rule::linear, Rule::kda})
    for (std::int64_t V : {1, 21}) heads.push_back(random_head(rule, 30, 17, V, 0.3, 2));
  heads.push_back(random_head(Rule::gated_delta, 60, 64, 64));
  heads.push_back(hadamard_head(20, 16, 4, -0.37f));
  for (const HeadInputs& in : heads) {
    setenv("GDN_ISA", "portable", 1);
    const HeadTruth base = oracle_head(in);
    for (const char* isa : {"avx2", "avx512"}) {
      if (!oracle_detail::isa_available(isa)) continue;
      INFO(isa);
      setenv("GDN_ISA", isa, 1);
      CHECK(same_bits(base, oracle_head(in)));
    }
    unsetenv("GDN_ISA");
    const int threads = max_threads();
    for (int n : {1, 2, 5}) {
      set_max_threads(n);
      CHECK(same_bits(base, oracle_head(in)));
    }
    set_max_threads(threads);
  }
  setenv("GDN_ISA", "nonsense", 1);
  CHECK_THROWS_AS(oracle_head(heads[0]), std::invalid_argument);
  unsetenv("GDN_ISA");
}
