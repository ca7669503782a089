// Null distributions of a layer; see layer_statistics.h.
#include "suites/layer_statistics.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "golden/store.h"
#include "reference/layer.h"
#include "reference/parallel.h"
#include "reference/rng.h"
#include "reference/sigma.h"
#include "suites/statistics.h"

namespace gdn {
namespace {

using I = std::int64_t;
constexpr I kLeast = 8;                            // elements of a stratum that is looked at
constexpr const char* kMeasures[] = {"rms", "bias", "bias along the sign"};

struct Sums {
  double n = 0, zz = 0, z = 0, zs = 0;             // count, sum of z^2, of z, of z sign(truth)
};

// How the elements of a tensor are put together: all, by row of the last axis, by place in it, and of states by head.
struct Strata {
  const char* name;
  I count, divide, modulo;                         // stratum of element i: i / divide % modulo
};
std::vector<Strata> strata(const TruthTensor& t) {
  const I width = t.shape.back(), size = static_cast<I>(t.hi.size());
  if (size == 0) return {};
  std::vector<Strata> all{{"", 1, size, 1}, {" by row", size / width, width, size / width}, {" by column", width, 1, width}};
  if (t.shape.size() == 4) all.push_back({" by head", t.shape[1], t.shape[2] * t.shape[3], t.shape[1]});
  return all;
}

std::vector<std::string> names_of(const Truth& truth) {
  std::vector<std::string> names;
  for (const auto& [name, t] : truth) {
    names.push_back("greatest error of " + name);
    for (const Strata& s : strata(t))
      for (const char* m : kMeasures) names.push_back(std::string(m) + " of " + name + s.name);
  }
  return names;
}

bool decides(const TruthTensor& t, std::size_t i) { return std::isfinite(t.radius[i]) && std::isfinite(t.hi[i]); }

}  // namespace

bool scatters(const Contract& c) {
  const FormatInfo& mine = info(arithmetic(c).format);
  for (const LayerPoint p : {LayerPoint::x_norm, LayerPoint::proj, LayerPoint::conv_sum, LayerPoint::conv, LayerPoint::unit})
    if (const Store& s = c.at(p); info(s.format).precision * s.terms < mine.precision) return true;
  return false;
}

std::vector<double> layer_values(const LayerNull& null, const Truth& truth, const TensorSet& outputs, std::int64_t& judged) {
  std::vector<double> values;
  judged = 0;
  for (const auto& [name, sigma] : null.sigma) {
    const TruthTensor& want = truth.at(name);
    const Tensor& got = outputs.at(name);
    std::vector<double> z(sigma.size(), std::numeric_limits<double>::quiet_NaN());
    double greatest = 0;
    for (std::size_t i = 0; i < z.size(); ++i) {
      if (!(sigma[i] > 0) || !decides(want, i)) continue;
      const double e = (got.at(static_cast<I>(i)) - want.hi[i]) - want.lo[i];
      z[i] = std::isnan(e) ? std::numeric_limits<double>::infinity() : e / sigma[i];
      greatest = std::max(greatest, std::fabs(z[i]));
      ++judged;
    }
    values.push_back(greatest);
    for (const Strata& s : strata(want)) {
      std::vector<Sums> sums(static_cast<std::size_t>(s.count));
      for (std::size_t i = 0; i < z.size(); ++i) {
        if (std::isnan(z[i])) continue;
        Sums& to = sums[static_cast<std::size_t>(static_cast<I>(i) / s.divide % s.modulo)];
        to.n += 1, to.zz += z[i] * z[i], to.z += z[i], to.zs += want.hi[i] > 0 ? z[i] : want.hi[i] < 0 ? -z[i] : 0;
      }
      for (int m = 0; m < 3; ++m) {
        double most = 0;
        for (const Sums& x : sums) {
          if (x.n < kLeast) continue;
          const double value = m == 0 ? std::sqrt(x.zz / x.n) : std::fabs(m == 1 ? x.z : x.zs) / std::sqrt(x.n);
          most = value > most || !(value == value) ? value : most;
        }
        values.push_back(most);
      }
    }
  }
  return values;
}

LayerNull layer_null(const Contract& c, const Run& run, const Truth& truth, std::uint64_t seed) {
  LayerNull null;
  null.names = names_of(truth);
  std::vector<TensorSet> executions(kSigmaRuns + kNullRuns);
  TensorSet nearest;
  parallel_for(static_cast<I>(executions.size()) + 1, [&](I i) {
    if (i == static_cast<I>(executions.size())) nearest = simulate_layer(c, run);
    else executions[static_cast<std::size_t>(i)] = simulate_layer(c, run, SimulationMode::stochastic, philox(seed, hash_name("layer"), static_cast<std::uint64_t>(i)));
  });
  // As sigma_head: 0.7 of an element's own variance and 0.3 of its row's, because few executions leave the estimate noisy. Rows of a few elements (a history has
  // W-1 columns) are put together: where all executions round two of three alike, the third, if small, would say that they are known to its last digit.
  for (const auto& [name, t] : truth) {
    const I size = static_cast<I>(t.hi.size());
    I width = 1;
    for (std::size_t d = t.shape.size(); d-- > 0 && width < kLeast;) width *= t.shape[d];
    std::vector<double>& sigma = null.sigma[name] = std::vector<double>(static_cast<std::size_t>(size), 0.0);
    for (I row = 0; row < size; row += width) {
      double mean_variance = 0;
      for (I i = row; i < row + width; ++i) {
        // Relative to the first: where all agree the deviation is 0, and no rounding of a mean.
        const auto moved = [&](int r) { return executions[static_cast<std::size_t>(r)].at(name).at(i) - executions[0].at(name).at(i); };
        double mean = 0, squares = 0;
        for (int r = 0; r < kSigmaRuns; ++r) mean += moved(r) / kSigmaRuns;
        for (int r = 0; r < kSigmaRuns; ++r) squares += (moved(r) - mean) * (moved(r) - mean);
        sigma[static_cast<std::size_t>(i)] = squares / (kSigmaRuns - 1);
        if (!decides(t, static_cast<std::size_t>(i))) continue;
        if (!std::isfinite(squares)) null.why_not = "executions of the contract overflow on this case";
        mean_variance += squares / (kSigmaRuns - 1) / static_cast<double>(width);
      }
      for (I i = row; i < row + width; ++i) {
        double& x = sigma[static_cast<std::size_t>(i)];
        x = kept(std::sqrt(0.7 * x + 0.3 * mean_variance));
      }
    }
  }
  if (!null.why_not.empty()) return null;
  // Results are handed over in the output's dtype, which the contract's last points say; executions and kernels alike.
  std::vector<std::vector<double>> values(kNullRuns);
  I judged = 0;
  parallel_for(kNullRuns, [&](I r) {
    I unused = 0;
    values[static_cast<std::size_t>(r)] = layer_values(null, truth, executions[static_cast<std::size_t>(kSigmaRuns + r)], unused);
  });
  null.nearest = layer_values(null, truth, nearest, judged);
  if (judged == 0) null.why_not = "nothing is rounded on this case";
  const double deviations = gumbel_deviations(kFamilyWiseRate / kStatisticalTests);
  for (std::size_t s = 0; s < null.names.size(); ++s) {
    std::vector<double> x;
    for (const auto& v : values) x.push_back(v[s]);
    const Moments m = moments(x);
    null.limits.push_back(kept(std::max(m.mean, null.nearest[s]) + deviations * m.deviation));
    null.nearest[s] = kept(null.nearest[s]);
    const std::string& name = null.names[s];
    if (name.rfind("rms of ", 0) == 0 && name.find(" by ") == std::string::npos && !(null.nearest[s] <= kRegular))
      null.why_not = "executions of the contract to nearest err by " + std::to_string(null.nearest[s]) + " sigma here, which is not regular";
  }
  return null;
}

TensorSet to_tensors(const LayerNull& null, const Truth& truth) {
  TensorSet t;
  const auto put = [&](const std::string& name, const std::vector<I>& shape, const std::vector<double>& values) {
    Tensor x(DType::f32, shape);
    for (I i = 0; i < x.size(); ++i) x.set(i, values[static_cast<std::size_t>(i)]);
    t.emplace(name, std::move(x));
  };
  for (const auto& [name, sigma] : null.sigma) put("sigma_" + name, truth.at(name).shape, sigma);
  put("limits", {static_cast<I>(null.limits.size())}, null.limits);
  put("nearest", {static_cast<I>(null.nearest.size())}, null.nearest);
  return t;
}

LayerNull from_tensors(const TensorSet& tensors, const Truth& truth) {
  LayerNull null;
  null.names = names_of(truth);
  const auto get = [&](const std::string& name, std::size_t size) {
    const auto x = tensors.find(name);
    if (x == tensors.end() || static_cast<std::size_t>(x->second.size()) != size) throw BadInput(name + " is missing or has the wrong size");
    std::vector<double> values(size);
    for (std::size_t i = 0; i < size; ++i) values[i] = x->second.at(static_cast<I>(i));
    return values;
  };
  for (const auto& [name, t] : truth) null.sigma[name] = get("sigma_" + name, t.hi.size());
  null.limits = get("limits", null.names.size());
  null.nearest = get("nearest", null.names.size());
  return null;
}

}  // namespace gdn
