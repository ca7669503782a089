// Case families `raw_gates` (prefill), `raw_gates_decode` and `raw_gate_extremes`: gates as the layer has them, a, A_log, dt_bias.
// There to catch softplus and exponentials that overflow, vanish or give NaN where their product is an ordinary gate.
#include <limits>
#include <span>
#include <stdexcept>

#include "suites/families/pool.h"
#include "suites/family.h"

namespace gdn {
namespace {

using I = std::int64_t;

// What one value head is made of: its rate, its bias, and where x = a + dt_bias lies. Gates stay above -1e4.
struct Head {
  double A_log, dt_bias, from, to;
  double now_and_then;                             // x of every fifth token
};
constexpr double kNone = -std::numeric_limits<double>::infinity();
constexpr Head kOrdinary[] = {
    {0, 0.5, -100, -8, -17},         // memory without end: softplus must not vanish below -16.6
    {16.125, 0.25, -24, -15, -18},   // rate 1e7: g = -0.15 at x = -18
    {-10, 0.125, 80, 100, 89},       // log(1 + e^x) overflows above 88, g = -0.004
    {kNone, 0.5, -100, 100, 100},    // no decay at all: 0 times whatever softplus is
    {2.75, 2, -18, -2, -17},         // the rate 16 of models
    {-3, -0.5, -5, 12, 5},           // ordinary gates
};
constexpr Head kExtreme[] = {
    {100, 1, -108, -98, -200},       // exp(100) is beyond fp32, e^(A_log + x) is not; e^-200 is below it
    {-100, -1, -100, 100, 0},        // no decay to speak of, whatever x
    {95, -2, -101, -94, -180},
};

// Sets a, A_log and dt_bias. Which of the heads a problem has follows from its lengths, so that a family shows all of them.
void put_raw_gates(const Problem& p, std::uint64_t seed, std::span<const Head> heads, TensorSet& t) {
  Tensor &a = t.at("a"), &A_log = t.at("A_log"), &dt_bias = t.at("dt_bias");
  const Random place(seed, "a");
  for (I h = 0; h < p.value_heads; ++h) {
    const Head& head = heads[static_cast<std::size_t>(h + p.lengths[0]) % heads.size()];
    A_log.set(h, head.A_log);
    dt_bias.set(h, head.dt_bias);
    for (I r = 0; r < p.tokens(); ++r) {
      const auto i = static_cast<std::uint64_t>(r * p.value_heads + h);
      a.set(r * p.value_heads + h, (r % 5 == 3 ? head.now_and_then : place.uniform(i, head.from, head.to)) - head.dt_bias);
    }
  }
}

std::vector<std::string> kinds_of_slip() { return {"raw-gate-overflow", "raw-gate-underflow", "raw-gate-nan", "head-map-wrong", "gate-domain-mixed"}; }

std::vector<Problem> in_both(std::initializer_list<const char*> texts) {
  std::vector<Problem> list;
  for (const char* dtype : {"bf16", "fp32"})
    for (const char* text : texts) {
      std::string t = text;
      t.replace(t.find('*'), 1, dtype);
      list.push_back(parse_problem(t));
    }
  return list;
}

[[noreturn]] void refuse(const std::string& family, const Problem& p) {
  throw std::invalid_argument("family " + family + " needs the option raw: '" + to_string(p) + "'");
}

Case prefilled(const std::string& family, const Problem& p, std::uint64_t seed, std::span<const Head> heads) {
  fill::require_prefill(family, p);
  if (!p.raw) refuse(family, p);
  fill::Style style;
  style.betas = {fill::Betas::sparse, fill::Betas::unit};
  TensorSet t = fill::inputs(p, seed, style);
  put_raw_gates(p, seed, heads, t);
  fill::poison_padding(p, t);
  return fill::single(family, p, seed, std::move(t));
}

struct RawGates final : Family {
  std::string name() const override { return "raw_gates"; }
  std::string profile() const override { return "raw_gates"; }
  std::string rationale() const override {
    return "Layers give kernels raw gates: g = -exp(A_log) softplus(a + dt_bias). Written down as it stands, in fp32, softplus is "
           "infinite above 88 and 0 below -16.6, where a rate of 1e7 still makes a real decay of it. Heads here take rates from 0 "
           "to 1e7 and x from -100 to 100; their gates are ordinary ones.";
  }
  std::string own_fault() const override { return "raw_no_rate_nan"; }
  std::vector<std::string> kinds() const override { return kinds_of_slip(); }
  std::vector<Problem> problems(Level level) const override {
    std::vector<Problem> list = level == Level::smoke
        ? in_both({"prefill/n1_t36_h2_hv4_k32_v32/*/h0,raw", "prefill/n1_t40_h2_hv4_k32_v32/*/h0,raw", "prefill/n1_t24_h1_hv2_k64_v64/*/h0,raw",
                   "prefill/n1_t20_h1_hv2_k64_v64/*/h0,raw"})
        : in_both({"prefill/n1_t72_h2_hv4_k64_v64/*/h0,raw", "prefill/n1_t76_h2_hv4_k64_v64/*/h0,raw", "prefill/n1_t130_h1_hv2_k64_v32/*/h0,raw",
                   "prefill/n1_t65_h1_hv2_k64_v64/*/raw", "prefill/n1_t99_h1_hv2_k32_v48/*/h0,raw,split=33", "prefill/n3_t33+0+70_h2_hv4_k32_v32/*/h0,pad=2,raw",
                   "prefill/n1_t40_h2_hv4_k128_v128/*/h0,raw", "prefill/n1_t36_h2_hv4_k128_v128/*/h0,raw", "prefill/n1_t72_h1_hv8_k16_v16/*/h0,g=bf16,raw"});
    if (level == Level::nightly || level == Level::exhaustive)
      for (Problem& more : fill::problems({"prefill/n1_t2000_h2_hv8_k64_v64/bf16/h0,raw", "prefill/n1_t2000_h2_hv8_k64_v64/fp32/h0,raw"})) list.push_back(std::move(more));
    return list;
  }
  Case make(const Problem& p, std::uint64_t seed) const override { return prefilled(name(), p, seed, kOrdinary); }
};

struct RawGateExtremes final : Family {
  std::string name() const override { return "raw_gate_extremes"; }
  std::string profile() const override { return "raw_extremes"; }
  std::string rationale() const override {
    return "exp(A_log) of 95 and 100 is beyond fp32, and softplus(-200) is below it: a product of the two overflows, vanishes or gives "
           "NaN where g is an ordinary gate, so the exponents have to meet before one is taken. Kernels that form the factor by itself "
           "declare A_log_max=88.";
  }
  std::string own_fault() const override { return "raw_rate_overflows"; }
  std::vector<std::string> kinds() const override { return {"raw-gate-overflow", "raw-gate-underflow", "raw-gate-nan"}; }
  std::vector<Problem> problems(Level level) const override {
    if (level == Level::smoke) return in_both({"prefill/n1_t18_h1_hv3_k32_v32/*/h0,raw", "prefill/n1_t9_h1_hv2_k64_v64/*/h0,raw", "prefill/n1_t3_h1_hv2_k128_v128/*/h0,raw"});
    return in_both({"prefill/n1_t72_h1_hv3_k32_v32/*/h0,raw", "prefill/n1_t66_h1_hv3_k64_v64/*/h0,raw", "prefill/n1_t33_h1_hv2_k128_v128/*/h0,raw"});
  }
  Case make(const Problem& p, std::uint64_t seed) const override { return prefilled(name(), p, seed, kExtreme); }
};

struct RawGatesDecode final : Family {
  std::string name() const override { return "raw_gates_decode"; }
  std::string profile() const override { return "raw_decode"; }
  std::string rationale() const override {
    return "Decode kernels are the ones that take raw gates most often, and form them by another piece of code than prefill does: "
           "the same rates and tails as in raw_gates, step by step on a pool.";
  }
  std::string own_fault() const override { return "raw_no_rate_nan"; }
  std::vector<std::string> kinds() const override { return kinds_of_slip(); }
  std::vector<Problem> problems(Level level) const override {
    if (level == Level::smoke)
      return in_both({"decode/n2_t6_h2_hv4_k32_v32/*/h0,slots=4,raw", "decode/n2_t10_h2_hv4_k32_v32/*/h0,slots=4,raw", "decode/n1_t6_h1_hv2_k64_v64/*/h0,slots=2,raw",
                      "decode/n1_t8_h1_hv2_k64_v64/*/h0,slots=2,raw"});
    return in_both({"decode/n2_t24_h2_hv4_k32_v48/*/h0,slots=4,raw", "decode/n2_t20_h2_hv4_k32_v48/*/h0,slots=4,raw", "decode/n2_t16_h2_hv4_k64_v64/*/h0,slots=4,raw",
                    "decode/n2_t12_h2_hv4_k64_v64/*/h0,slots=4,raw", "decode/n2_t8_h2_hv4_k128_v128/*/h0,slots=4,raw", "decode/n2_t12_h2_hv4_k128_v128/*/h0,slots=4,raw"});
  }
  Case make(const Problem& p, std::uint64_t seed) const override {
    fill::require_pool(name(), p, Operation::decode);
    if (!p.raw) refuse(name(), p);
    fill::Style style;
    style.betas = {fill::Betas::sparse, fill::Betas::unit};
    const I N = p.sequences(), calls = static_cast<I>(p.cuts().size()) + 1;
    const std::vector<I> slots = pool::live_slots(p, seed, N);
    Tensor indices(DType::i32, {calls, N});
    for (I i = 0; i < indices.size(); ++i) indices.set(i, i % N < static_cast<I>(slots.size()) ? static_cast<double>(slots[static_cast<std::size_t>(i % N)]) : -1);
    TensorSet t = pool::inputs(p, seed, style, indices);
    put_raw_gates(p, seed, kOrdinary, t);
    fill::poison_idle_rows(p, t);
    return fill::single(name(), p, seed, std::move(t));
  }
};

const RawGates prefill;
const RawGatesDecode decode;
const RawGateExtremes extremes;
const RegisterFamily registered_prefill(&prefill), registered_decode(&decode), registered_extremes(&extremes);

}  // namespace
}  // namespace gdn
