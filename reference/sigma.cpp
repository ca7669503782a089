// Standard deviations over stochastic executions; see sigma.h.
#include "reference/sigma.h"

#include <cmath>
#include <limits>
#include <stdexcept>

#include "reference/rng.h"
#include "reference/simulate.h"

namespace gdn {
namespace {

// Running mean and sum of squared deviations (Welford).
struct Spread {
  std::vector<double> mean, squares;
  void add(const std::vector<double>& x, int run) {
    if (run == 0) {
      mean = x;
      squares.assign(x.size(), 0.0);
      return;
    }
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double before = x[i] - mean[i];
      mean[i] += before / (run + 1);
      squares[i] += before * (x[i] - mean[i]);
    }
  }
  std::vector<double> sigma(int runs, std::size_t width) const {
    std::vector<double> out(squares.size());
    for (std::size_t row = 0; row < squares.size(); row += width) {
      double pooled = 0;
      for (std::size_t j = 0; j < width; ++j) pooled += squares[row + j];
      pooled /= static_cast<double>(width);
      for (std::size_t j = 0; j < width; ++j) {
        const double s = std::sqrt((0.7 * squares[row + j] + 0.3 * pooled) / (runs - 1));
        out[row + j] = s == s ? s : std::numeric_limits<double>::infinity();
      }
    }
    return out;
  }
};

}  // namespace

HeadResult sigma_head(const Contract& c, const HeadInputs& in, std::uint64_t seed, std::span<const std::int64_t> split, int runs) {
  if (runs < 2) throw std::invalid_argument("sigma: at least 2 executions are needed, not " + std::to_string(runs));
  Spread o, ht;
  for (int r = 0; r < runs; ++r) {
    const HeadResult x = simulate(c, in, SimulationMode::stochastic, philox(seed, hash_name("sigma"), static_cast<std::uint64_t>(r)), split);
    o.add(x.o, r);
    ht.add(x.ht, r);
  }
  const auto width = static_cast<std::size_t>(in.V);
  return {o.sigma(runs, width), ht.sigma(runs, width)};
}

}  // namespace gdn
