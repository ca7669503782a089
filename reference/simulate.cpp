// A contract carried out. Nearest mode computes in the declared arithmetic itself (float or double); stochastic mode
// computes in double, rounds every point stochastically and adds to every dot product the noise of its additions.
#include "reference/simulate.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "reference/chunkwise.h"
#include "reference/exp.h"
#include "reference/gates.h"
#include "reference/lanes.h"
#include "reference/random32.h"
#include "reference/recurrence.h"
#include "reference/rng.h"
#include "reference/stages.h"

namespace gdn {
namespace {

template <Format F, class Real>
void round_all(Real* x, std::int64_t n) {
  lanes::run<lanes::RoundNearest<F, Real>>(x, n);
}

// Values already in the arithmetic's format, stored at points that are narrower than it.
template <class Real>
class Stores {
 public:
  Stores(const Contract& c, std::uint64_t seed) : c_(c), random_(seed) {
    for (std::size_t i = 0; i < kPoints; ++i) active_[i] = unit(c, static_cast<Point>(i)) > 0 || underflow(c, static_cast<Point>(i)) > 0;
  }
  void store(Point p, Real* x, std::int64_t n) {
    if (!active_[static_cast<std::size_t>(p)]) return;
    const Store& s = c_.at(p);
    if (s.terms == 1 && s.rounding == Rounding::nearest_even && s.subnormals == Subnormals::keep) {
      switch (s.format) {
        case Format::fp64: return;
        case Format::fp32: return round_all<Format::fp32>(x, n);
        case Format::tf32: return round_all<Format::tf32>(x, n);
        case Format::fp16: return round_all<Format::fp16>(x, n);
        case Format::bf16: return round_all<Format::bf16>(x, n);
        case Format::fp8_e4m3: return round_all<Format::fp8_e4m3>(x, n);
        case Format::fp8_e5m2: return round_all<Format::fp8_e5m2>(x, n);
      }
    }
    const std::uint32_t* bits = s.rounding == Rounding::stochastic ? random_.next(2 * n) : nullptr;
    for (std::int64_t i = 0; i < n; ++i) {
      const std::uint64_t b = bits ? std::uint64_t{bits[2 * i]} << 32 | bits[2 * i + 1] : 0;
      x[i] = static_cast<Real>(round_to(static_cast<double>(x[i]), s, b));
    }
  }

 private:
  const Contract& c_;
  Random32 random_;
  std::array<bool, kPoints> active_{};
};

template <class R>
class Nearest {
 public:
  using Real = R;
  static constexpr bool kGateProducts = false, kChained = false;
  Nearest(const Contract& c, std::uint64_t seed, double exp_bias)
      : stores_(c, seed), tensor_core_(c.accumulator == Accumulator::tensor_core), fma_(c.fma), exp_(1 + exp_bias) {}
  Real exp(Real x) const { return x == Real(0) ? Real(1) : static_cast<Real>(std::min(exp_portable(static_cast<double>(x)) * exp_, 1.0)); }
  bool starts_anew(double g) const { return g < (sizeof(Real) == 4 ? -104 : -746); }
  Real sum(Real a, Real b) const { return a + b; }
  void store(Point p, Real* x, std::int64_t n) { stores_.store(p, x, n); }
  void accumulate(Real* c, const Real* a, std::int64_t stride_a, const Real* b, std::int64_t stride_b, std::int64_t terms, std::int64_t width) {
    if constexpr (sizeof(Real) == 4) {
      if (tensor_core_) return lanes::run<lanes::Products<Real, lanes::Truncated>>(c, a, stride_a, b, stride_b, terms, width);
    }
    if (fma_) lanes::run<lanes::Products<Real, lanes::Fused>>(c, a, stride_a, b, stride_b, terms, width);
    else lanes::run<lanes::Products<Real>>(c, a, stride_a, b, stride_b, terms, width);
  }
  void update(Real* s, Real k, const Real* y, std::int64_t n) const {      // s += k y
    if (fma_) lanes::run<lanes::Products<Real, lanes::Fused>>(s, &k, std::int64_t{1}, y, n, std::int64_t{1}, n);
    else lanes::run<lanes::Products<Real>>(s, &k, std::int64_t{1}, y, n, std::int64_t{1}, n);
  }

 private:
  Stores<Real> stores_;
  bool tensor_core_, fma_;
  double exp_;
};

class Stochastic {
 public:
  using Real = double;
  static constexpr bool kGateProducts = false, kChained = true;   // the noisier way
  Stochastic(const Contract& c, std::uint64_t seed, double exp_bias) : c_(c), random_(seed), fp64_(c.accumulator == Accumulator::fp64),
      exp_(1 + exp_bias), u_(fp64_ ? 0x1p-53 : c.accumulator == Accumulator::tensor_core ? 0x1p-23 : 0x1p-24) {}
  double exp(double x) const { return x == 0 ? 1 : std::min(exp_portable(x) * exp_, 1.0); }
  bool starts_anew(double g) const { return g < (fp64_ ? -746 : -104); }
  double sum(double a, double b) {                 // every addition rounds: one gate sum moves a whole chunk
    if (fp64_) return a + b;
    return round_to(a + b, Store{Format::fp32, 1, Rounding::stochastic, Subnormals::keep}, std::uint64_t{*random_.next(1)} << 32);
  }

  void store(Point p, double* x, std::int64_t n) {
    Store s = c_.at(p);
    if (s.format == Format::fp64 || n == 0) return;
    s.rounding = Rounding::stochastic;
    const std::uint32_t* bits = random_.next(n);
    const FormatInfo& f = info(s.format);
    const std::uint64_t least = std::bit_cast<std::uint64_t>(std::ldexp(1.0, f.emin)), span = std::bit_cast<std::uint64_t>(f.max_finite / 2) - least;
    bool ordinary = s.terms == 1;
    if (ordinary) {                                // zero or normal, and far from overflow
      std::uint64_t odd = 0;
      lanes::run<lanes::OutOfRange>(static_cast<const double*>(x), least, span, &odd, n);
      ordinary = odd >> 63 == 0;
    }
    if (ordinary) return lanes::run<lanes::Cut>(x, bits, 53 - f.precision, n);
    for (std::int64_t i = 0; i < n; ++i) x[i] = round_to(x[i], s, std::uint64_t{bits[i]} << 32);
  }

  void accumulate(double* c, const double* a, std::int64_t stride_a, const double* b, std::int64_t stride_b, std::int64_t terms, std::int64_t width) {
    if (squares_.size() < static_cast<std::size_t>(width)) squares_.resize(static_cast<std::size_t>(width));
    double* q = squares_.data();
    std::fill(q, q + width, 0.0);
    lanes::run<lanes::NoisyProducts>(c, q, a, stride_a, b, stride_b, terms, width);
    // Normal deviates as sums of four 8-bit uniforms: mean 510, variance 4 (2^16 - 1) / 12.
    const std::uint32_t* bits = random_.next(width);
    const double unit = u_ / std::sqrt(3.0 * 4 * 65535 / 12);
    for (std::int64_t j = 0; j < width; ++j) {
      const std::uint32_t r = bits[j];
      const auto sum = static_cast<std::int32_t>((r & 255) + (r >> 8 & 255) + (r >> 16 & 255) + (r >> 24)) - 510;
      const double noise = unit * static_cast<double>(sum) * std::sqrt(q[j]);
      c[j] += noise - noise == 0 ? noise : 0;      // an overflowed sum has no noise
    }
  }
  void update(double* s, double k, const double* y, std::int64_t n) const {
    lanes::run<lanes::Products<double>>(s, &k, std::int64_t{1}, y, n, std::int64_t{1}, n);
  }

 private:
  const Contract& c_;
  Random32 random_;
  bool fp64_;
  double exp_, u_;
  std::vector<double> squares_;
};

// One token after another, tokens [begin, end).
template <class Policy, class Sink>
void recurrent(const Contract& c, const HeadInputs& in, Policy& policy, std::int64_t begin, std::int64_t end, typename Policy::Real* state, Sink&& sink) {
  using Real = typename Policy::Real;
  const auto K = static_cast<std::size_t>(in.K), V = static_cast<std::size_t>(in.V);
  const bool gated = !in.g.empty() && in.rule != Rule::delta && in.rule != Rule::linear;
  const bool delta = has_delta(in.rule);
  const std::size_t gates = gated && gate_per_key_channel(in.rule) ? K : 1;
  const bool narrow_operand = unit(c, Point::S_op) > 0 || underflow(c, Point::S_op) > 0;
  std::vector<Real> k(K), q(K), y(V), o(V), alpha(gates, Real(1)), operand(narrow_operand ? K * V : 0);
  const auto vwidth = static_cast<std::int64_t>(V), kwidth = static_cast<std::int64_t>(K);
  auto state_operand = [&]() -> const Real* {
    if (!narrow_operand) return state;
    std::copy_n(state, K * V, operand.data());
    policy.store(Point::S_op, operand.data(), kwidth * vwidth);
    return operand.data();
  };
  for (std::int64_t t = begin; t < end; ++t) {
    const auto row = static_cast<std::size_t>(t);
    for (std::size_t d = 0; d < K; ++d) {
      k[d] = in.k[row * K + d];
      q[d] = in.q[row * K + d];
    }
    for (std::size_t j = 0; j < V; ++j) y[j] = in.v[row * V + j];
    Real beta = in.beta.empty() ? Real(1) : Real(in.beta[row]);
    policy.store(Point::k_in, k.data(), kwidth);
    policy.store(Point::q_in, q.data(), kwidth);
    policy.store(Point::v_in, y.data(), vwidth);
    policy.store(Point::beta, &beta, 1);
    if (gated) {
      for (std::size_t d = 0; d < gates; ++d) alpha[d] = static_cast<Real>(gate_value(in, row * gates + d));
      policy.store(Point::G, alpha.data(), static_cast<std::int64_t>(gates));
      for (Real& a : alpha) a = policy.exp(a);
      policy.store(Point::D, alpha.data(), static_cast<std::int64_t>(gates));
      for (std::size_t d = 0; d < K; ++d) {
        const Real a = alpha[gates == 1 ? 0 : d];
        if (a != Real(1)) lanes::run<lanes::Scale<Real>>(state + d * V, a, vwidth);
      }
      for (std::size_t j = 0; j < in.angle.size() / static_cast<std::size_t>(in.T); ++j) {   // complex_kda
        const Real across = static_cast<Real>(cosine(in.angle[row * K / 2 + j]).hi), up = static_cast<Real>(sine(in.angle[row * K / 2 + j]).hi);
        Real *re = state + 2 * j * V, *im = re + V;
        for (std::size_t v = 0; v < V; ++v) {
          const Real x = across * re[v] - up * im[v];
          im[v] = up * re[v] + across * im[v];
          re[v] = x;
        }
      }
    }
    if (delta) {
      for (std::size_t j = 0; j < V; ++j) o[j] = Policy::kChained ? Real(0) - y[j] : Real(0);
      policy.accumulate(o.data(), k.data(), 1, state_operand(), vwidth, kwidth, vwidth);
      for (std::size_t j = 0; j < V; ++j) y[j] = Policy::kChained ? Real(0) - o[j] : y[j] - o[j];
    }
    for (std::size_t j = 0; j < V; ++j) y[j] = beta * y[j];
    policy.store(Point::Vn_s, y.data(), vwidth);
    for (std::size_t d = 0; d < K; ++d) {
      policy.update(state + d * V, k[d], static_cast<const Real*>(y.data()), vwidth);
      if (c.cadence == Cadence::token) policy.store(Point::S_carried, state + d * V, vwidth);
    }
    std::fill(o.begin(), o.end(), Real(0));
    policy.accumulate(o.data(), q.data(), 1, state_operand(), vwidth, kwidth, vwidth);
    for (Real& x : o) x = Real(in.scale) * x;
    policy.store(Point::out, o.data(), vwidth);
    sink(t, static_cast<const Real*>(o.data()));
  }
  if (c.cadence == Cadence::call) policy.store(Point::S_carried, state, kwidth * vwidth);
}

template <class Policy>
HeadResult run(const Contract& c, const HeadInputs& in, std::uint64_t seed, std::span<const std::int64_t> split, double exp_bias) {
  using Real = typename Policy::Real;
  const auto V = static_cast<std::size_t>(in.V), states = static_cast<std::size_t>(in.K * in.V);
  Policy policy(c, seed, exp_bias);
  HeadResult result;
  result.o.resize(static_cast<std::size_t>(in.T) * V);
  std::vector<Real> state(states, Real(0));
  if (!in.h0.empty()) std::copy(in.h0.begin(), in.h0.end(), state.begin());
  auto sink = [&](std::int64_t t, const Real* o) { std::copy_n(o, V, result.o.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(t) * V)); };
  Chunkwise<Policy> chunkwise(c, in, policy);
  std::int64_t begin = 0;
  for (std::size_t call = 0; call <= split.size(); ++call) {
    const std::int64_t end = call < split.size() ? std::min(split[call], in.T) : in.T;
    if (c.form == Form::recurrent) recurrent(c, in, policy, begin, end, state.data(), sink);
    else chunkwise.run(begin, end, state.data(), sink);
    policy.store(Point::ht, state.data(), static_cast<std::int64_t>(states));
    begin = end;
  }
  result.ht.assign(state.begin(), state.end());
  return result;
}

}  // namespace

namespace {

template <class Policy>
void run_stage(const Contract& c, const Run& run, TensorSet& outputs) {
  using Real = typename Policy::Real;
  const Problem& p = run.problem;
  const std::int64_t HV = p.value_heads, K = p.key_dim, V = p.value_dim, C = p.chunk, KV = K * V;
  const auto input = [&](const char* name) -> const Tensor* {
    const auto t = run.inputs.find(std::string_view(name));
    return t == run.inputs.end() ? nullptr : &t->second;
  };
  const auto rows = [&](const char* name, const ChunkPlace& at, std::int64_t hv, std::int64_t width, auto& to, std::int64_t otherwise) {
    const Tensor* t = input(name);
    to.clear();
    if (!t) return to.resize(static_cast<std::size_t>(otherwise));
    const std::int64_t heads = t->shape[1], h = hv / (HV / heads), full = t->shape.size() > 2 ? t->shape[2] : 1;
    for (std::int64_t r = 0; r < at.rows; ++r)
      for (std::int64_t e = 0; e < width; ++e) to.push_back(static_cast<typename std::decay_t<decltype(to)>::value_type>(t->at(((at.token + r) * heads + h) * full + e)));
  };
  const std::vector<ChunkPlace> places = chunk_places(p);
  for (std::int64_t hv = 0; hv < HV; ++hv) {
    std::vector<Real> state(static_cast<std::size_t>(KV), Real(0));
    std::int64_t sequence = -1;
    const auto begin = [&](std::int64_t n) {       // sequences without tokens come and go here too
      for (; p.stage == Stage::chunk_states && sequence < n;) {
        if (sequence >= 0 && p.final_state)
          for (std::int64_t e = 0; e < KV; ++e) outputs.at("ht").set((sequence * HV + hv) * KV + e, static_cast<double>(state[static_cast<std::size_t>(e)]));
        if (++sequence == p.sequences()) return;
        for (std::int64_t e = 0; e < KV; ++e) state[static_cast<std::size_t>(e)] = p.initial_state ? static_cast<Real>(input("h0")->at((sequence * HV + hv) * KV + e)) : Real(0);
      }
    };
    for (std::size_t number = 0; number < places.size(); ++number) {
      const ChunkPlace& at = places[number];
      begin(at.sequence);
      const std::int64_t n = at.rows, plane = (static_cast<std::int64_t>(number) * HV + hv) * KV;
      HeadInputs in;
      in.T = n;
      in.K = K;
      in.V = V;
      in.scale = p.effective_scale();
      rows("q", at, hv, K, in.q, n * K);
      rows("k", at, hv, K, in.k, n * K);
      rows("v", at, hv, V, in.v, n * V);
      rows("g", at, hv, 1, in.g, n);
      rows("beta", at, hv, 1, in.beta, n);
      Policy policy(c, 1, 0);
      Chunkwise<Policy> chunkwise(c, in, policy);
      typename Chunkwise<Policy>::StageRows x;
      rows("G", at, hv, 1, x.G, 0);
      rows("L", at, hv, n, x.L, 0);
      rows("M", at, hv, n, x.M, 0);
      rows("U", at, hv, V, x.U, 0);
      rows("W", at, hv, K, x.W, 0);
      rows("Vn", at, hv, V, x.Vn, 0);
      if (p.stage == Stage::output)
        for (std::int64_t e = 0; e < KV; ++e) state[static_cast<std::size_t>(e)] = static_cast<Real>(input("states")->at(plane + e));
      chunkwise.stage(p.stage, n, x, state.data());
      const auto put = [&](const char* name, const std::vector<Real>& from, std::int64_t width, std::int64_t full) {
        Tensor& t = outputs.find(std::string_view(name))->second;
        for (std::int64_t r = 0; r < n; ++r)
          for (std::int64_t e = 0; e < full; ++e)
            t.set(((at.token + r) * HV + hv) * full + e, e < width ? static_cast<double>(from[static_cast<std::size_t>(r * width + e)]) : 0);
      };
      switch (p.stage) {
        case Stage::gate_sum: put("G", x.G, 1, 1); break;
        case Stage::gram: put("L", x.L, n, C); break;
        case Stage::inverse: put("M", x.M, n, C); break;
        case Stage::uw:
          put("U", x.U, V, V);
          put("W", x.W, K, K);
          break;
        case Stage::chunk_states:
          put("Vn", x.Vn, V, V);
          for (std::int64_t e = 0; e < KV; ++e) outputs.at("states").set(plane + e, static_cast<double>(x.operand[static_cast<std::size_t>(e)]));
          break;
        case Stage::output: put("o", x.o, V, V); break;
      }
    }
    begin(p.sequences());
  }
}

}  // namespace

TensorSet simulate_stage(const Contract& c, const Run& run) {
  TensorSet outputs;
  for (const StageTensor& o : stage_outputs(run.problem)) {
    Tensor& t = outputs[o.name] = Tensor(DType::f64, o.shape);
    for (std::int64_t i = 0; i < t.size(); ++i) t.set(i, std::nan(""));
  }
  if (c.accumulator == Accumulator::fp64) run_stage<Nearest<double>>(c, run, outputs);
  else run_stage<Nearest<float>>(c, run, outputs);
  return outputs;
}

HeadResult simulate(const Contract& c, const HeadInputs& in, SimulationMode mode, std::uint64_t seed, std::span<const std::int64_t> split,
                    double exp_bias) {
  if (mode == SimulationMode::stochastic) return run<Stochastic>(c, in, seed, split, exp_bias);
  if (c.accumulator == Accumulator::fp64) return run<Nearest<double>>(c, in, seed, split, exp_bias);
  return run<Nearest<float>>(c, in, seed, split, exp_bias);
}

}  // namespace gdn
