// Speed of the oracle; see oracle_bench.h.
#include "reference/oracle_bench.h"

#include <boost/multiprecision/cpp_bin_float.hpp>
#include <boost/multiprecision/mpfr.hpp>
#include <cmath>
#include <ctime>
#include <vector>

#include "reference/oracle_block.h"
#include "reference/parallel.h"
#include "reference/recurrence.h"
#include "reference/rng.h"
#include "reference/truth.h"

namespace gdn {
namespace {

double processor_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

HeadInputs inputs(std::int64_t T, std::int64_t K, std::int64_t V) {
  HeadInputs in;
  in.T = T;
  in.K = K;
  in.V = V;
  in.scale = static_cast<double>(static_cast<float>(1 / std::sqrt(static_cast<double>(K))));
  const auto fill = [](const char* tensor, std::int64_t n, double factor) {
    const Random r(1, tensor);
    std::vector<float> x(static_cast<std::size_t>(n));
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(round_to(r.normal(i) * factor, Store{Format::bf16}));
    return x;
  };
  in.q = fill("q", T * K, 1);
  in.k = fill("k", T * K, in.scale);
  in.v = fill("v", T * V, 1);
  for (std::int64_t t = 0; t < T; ++t) {
    in.g.push_back(static_cast<float>(-0.1 * Random(1, "g").uniform(static_cast<std::uint64_t>(t))));
    in.beta.push_back(static_cast<float>(Random(1, "beta").uniform(static_cast<std::uint64_t>(t))));
  }
  return in;
}

template <class N>
double bare_seconds(const HeadInputs& in) {
  struct Source {
    std::int64_t K, V, channel = 0;
    std::vector<N> q, k, v, a, b;
    const N& value(std::int64_t t) const { return v[static_cast<std::size_t>(t * V + channel)]; }
    const N& alpha(std::int64_t t) const { return a[static_cast<std::size_t>(t)]; }
    const N& alpha_read(std::int64_t t) const { return alpha(t); }
    const N& beta(std::int64_t t) const { return b[static_cast<std::size_t>(t)]; }
    const N& query(std::int64_t t, std::int64_t d) const { return q[static_cast<std::size_t>(t * K + d)]; }
    const N& key(std::int64_t t, std::int64_t d) const { return k[static_cast<std::size_t>(t * K + d)]; }
    const N& read_key(std::int64_t t, std::int64_t d) const { return key(t, d); }
  };
  struct Watch {
    N sum = N(0);
    void begin() {}
    void element(const N&) {}
    void token(std::int64_t, const N&, const N&, const N&, const N& out) { sum += out; }
  };
  const auto numbers = [](const std::vector<float>& x) {
    std::vector<N> y;
    for (float f : x) y.emplace_back(static_cast<double>(f));
    return y;
  };
  Source source{in.K, in.V, 0, numbers(in.q), numbers(in.k), numbers(in.v), {}, numbers(in.beta)};
  for (float g : in.g) source.a.push_back(exp(N(static_cast<double>(g))));
  Watch watch;
  std::vector<N> state(static_cast<std::size_t>(in.K));
  const double start = processor_seconds();
  for (; source.channel < in.V; ++source.channel) {
    std::fill(state.begin(), state.end(), N(0));
    recurrence<true, false>(PlainArithmetic<N>{}, source, in.T, in.K, state.data(), watch);
  }
  return processor_seconds() - start;
}

}  // namespace

double OracleBench::ns_per_multiply_add(double seconds) const { return seconds / (3.0 * static_cast<double>(T * K * V)) * 1e9; }

OracleBench bench_oracle(std::int64_t T, std::int64_t K, std::int64_t V, std::int64_t sample) {
  OracleBench b;
  b.isa = oracle_detail::choose_isa().name;
  b.T = T;
  b.K = K;
  b.V = V;
  b.sample = sample;
  const HeadInputs large = inputs(T, K, V), small = inputs(sample, K, V);
  const int threads = max_threads();
  set_max_threads(1);
  const double start = processor_seconds();
  oracle_head(large);
  b.double_double = processor_seconds() - start;
  set_max_threads(threads);
  const double factor = static_cast<double>(T) / static_cast<double>(sample);
  b.mpfr_50_digits = factor * bare_seconds<boost::multiprecision::mpfr_float_50>(small);
  b.cpp_bin_float_quad = factor * bare_seconds<boost::multiprecision::cpp_bin_float_quad>(small);
  return b;
}

}  // namespace gdn
