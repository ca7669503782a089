// The layer's rounding-error bound and its contract carried out, by the pass of layer_pass.h; see layer_budget.h.
#include <limits>

#include "reference/layer_budget.h"

namespace gdn {
namespace {

using layer_detail::at;
using layer_detail::Budget;
using layer_detail::Carried;
using layer_detail::I;
using layer_detail::LayerPass;

template <class X, class F>
auto by_name(const Problem& p, const LayerPass<X>& pass, F f) {
  for (const StageTensor& t : layer_outputs(p)) {
    const std::string_view name = t.name;
    f(t, name == "y" ? pass.y : name == "ht" ? pass.ht : pass.conv_state);
  }
}

template <SimulationMode mode>
TensorSet carried_out(const Contract& contract, const Run& run, std::uint64_t seed) {
  const Carried<mode> arithmetic(contract, seed);
  LayerPass<Carried<mode>> pass(arithmetic, run);
  pass.run();
  TensorSet all;
  by_name(run.problem, pass, [&](const StageTensor& t, const std::vector<double>& values) {
    Tensor& to = all[t.name] = Tensor(DType::f64, t.shape);
    for (I i = 0; i < to.size(); ++i) to.set(i, at(i) < values.size() ? values[at(i)] : std::numeric_limits<double>::quiet_NaN());
  });
  return all;
}

}  // namespace

StageBounds layer_bound(const Contract& contract, const Run& run) {
  const Budget arithmetic(contract);
  LayerPass<Budget> pass(arithmetic, run);
  pass.run();
  StageBounds all;
  by_name(run.problem, pass, [&](const StageTensor& t, const std::vector<Budget::N>& values) {
    std::vector<double>& to = all[t.name];
    for (const Budget::N& x : values) to.push_back(x.r * (1 + 1e-9));      // its own arithmetic is double
    I count = 1;
    for (const I d : t.shape) count *= d;
    to.resize(at(count), 0.0);
  });
  return all;
}

TensorSet simulate_layer(const Contract& contract, const Run& run, SimulationMode mode, std::uint64_t seed) {
  return mode == SimulationMode::nearest ? carried_out<SimulationMode::nearest>(contract, run, seed) : carried_out<SimulationMode::stochastic>(contract, run, seed);
}

}  // namespace gdn
