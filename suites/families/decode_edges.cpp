// Case families `decode_gate_edges`, `decode_reflections`, `verify_gate_edges`, `verify_reflections`: what gate_edges and reflections ask of
// prefill, asked of steps and of draft tokens on a pool. There to catch decode kernels that are another piece of code than prefill: gates
// down to -inf, and beta up to 2.
#include <limits>

#include "suites/families/pool.h"
#include "suites/family.h"

namespace gdn {
namespace {

using I = std::int64_t;

struct PoolEdges final : Family {
  PoolEdges(Operation operation, bool reflections) : operation_(operation), reflections_(reflections) {}
  std::string name() const override { return std::string(gdn::name(operation_)) + (reflections_ ? "_reflections" : "_gate_edges"); }
  std::string profile() const override { return std::string(gdn::name(operation_)) + (reflections_ ? "_negative_eigenvalues" : "_gate_edges"); }
  std::string rationale() const override {
    return reflections_ ? "Prefill may take beta up to 2 and the kernel that continues its states limit it to 1: both were written at different times. Tokens "
                          "here have beta at 1, 2, their neighbours and anything between, with keys of norm 1 and 1.4 and gates that forget little."
                        : "A kernel that takes single steps forms exp(g) of one gate and no sums, and so is thought safe; what it has are clamps, fill values "
                          "and integer exponents. Tokens here have gates of -inf, -1e30 and every size above, between slow ones; -inf has to erase the state "
                          "and leave the token's own write, and -90 makes of a state of 2^120 one that counts. Values of some heads are beyond fp16.";
  }
  std::string own_fault() const override { return reflections_ ? "beta_clamped_to_one" : "infinite_gate_taken_as_zero"; }
  std::vector<std::string> kinds() const override {
    if (reflections_) return {"beta-clamped", "correction-wrong-weight"};
    return {"gate-infinite", "gate-reset-lost", "gate-clamped", "gate-tiny-lost", "saturation-wrong"};
  }
  std::vector<Problem> problems(Level level) const override {
    const bool verify = operation_ == Operation::verify;
    const std::vector<const char*> texts = level == Level::smoke ? std::vector<const char*>{"n2_t9_h1_hv2_k8_v8/*/h0,slots=3"}
                                           : std::vector<const char*>{"n2_t21_h1_hv2_k32_v24/*/h0,slots=4", "n1_t17_h1_hv2_k64_v64/*/h0,slots=2",
                                                                      "n1_t13_h1_hv2_k128_v128/*/h0,slots=2"};
    std::vector<Problem> list;
    for (const char* dtype : {"bf16", "fp32"})
      for (std::string t : texts) list.push_back(parse_problem(gdn::name(operation_) + ("/" + t.replace(t.find('*'), 1, dtype)) + (verify ? ",draft=4" : "")));
    return list;
  }
  Case make(const Problem& p, std::uint64_t seed) const override {
    fill::require_pool(name(), p, operation_);
    fill::Style style;
    style.gates = {fill::Gates::slow, fill::Gates::mild};
    style.betas = {fill::Betas::unit};
    const I N = p.sequences(), calls = static_cast<I>(p.cuts().size()) + 1, HV = p.value_heads, K = p.key_dim, V = p.value_dim, length = p.lengths[0];
    const std::vector<I> slots = pool::live_slots(p, seed, N);
    Tensor indices(DType::i32, {calls, N}), accepted = indices;
    for (I i = 0; i < indices.size(); ++i) {
      const bool live = i % N < static_cast<I>(slots.size());
      indices.set(i, live ? static_cast<double>(slots[static_cast<std::size_t>(i % N)]) : -1);
      if (live && i >= N && p.draft) accepted.set(i, static_cast<double>(1 + i % p.draft));
    }
    TensorSet t = pool::inputs(p, seed, style, indices);
    if (operation_ == Operation::verify) t["accepted"] = accepted;
    const auto g = t.find("g"), beta = t.find("beta");
    Tensor &k = t.at("k"), &h0 = t.at("h0");
    const Random choose(seed, "edge");
    const bool gated = g != t.end() && p.rule == Rule::gated_delta;
    for (I i = 0; i < p.tokens() * HV; ++i) {
      const auto u = static_cast<std::uint64_t>(i);
      const I at = i / HV % length, h = i % HV;
      if (reflections_) {
        constexpr double weights[] = {2, 1, 2 - 0x1p-22, 1 + 0x1p-23, 1.5, 2 - 0x1p-7, 1 + 0x1p-7, 1.25};
        if (beta != t.end()) beta->second.set(i, at % 3 == 2 ? choose.uniform(u) : choose.below(u, 2) ? weights[choose.below(u | 1ull << 50, 8)] : choose.uniform(u, 0x1p-7, 2));
      } else if (gated) {
        constexpr double edges[] = {-std::numeric_limits<double>::infinity(), -0.5, -1e30, -1e-3, -1e4, -20, 0, -90, -1e-7};
        const bool early = at < length / 4;        // after that every second head keeps what it has
        if (at == 0) g->second.set(i, h % 2 ? -90 : -0.25);
        else if ((early || h % 2) && choose.below(u, 3) == 0) g->second.set(i, edges[choose.below(u | 1ull << 50, 9)]);
      }
    }
    for (I row = 0; row < p.tokens() && reflections_ && !p.unit; ++row)   // where beta is at most 1 the key has norm 1.4: a step goes no further than a reflection
      for (I e = row * p.heads * K; row % length % 3 == 2 && e < (row + 1) * p.heads * K; ++e) k.set(e, 1.4 * k.at(e));
    if (!reflections_ && p.io != DType::f16 && p.state != DType::f16)   // and what every second head holds is beyond fp16
      for (I e = 0; e < t.at("v").size(); ++e)
        if (e / V % HV % 2) t.at("v").set(e, t.at("v").at(e) * 0x1p20);
    if (!reflections_ && gated && p.state != DType::f16)
      for (const I slot : slots)
        for (I e = slot * HV * K * V; e < (slot + 1) * HV * K * V; ++e)
          if (e / (K * V) % HV % 2) h0.set(e, h0.at(e) * 0x1p120);
    fill::poison_idle_rows(p, t);
    return fill::single(name(), p, seed, std::move(t));
  }

 private:
  Operation operation_;
  bool reflections_;
};

const PoolEdges decode_edges(Operation::decode, false), decode_reflections(Operation::decode, true), verify_edges(Operation::verify, false),
    verify_reflections(Operation::verify, true);
const RegisterFamily registered_1(&decode_edges), registered_2(&decode_reflections), registered_3(&verify_edges), registered_4(&verify_reflections);

}  // namespace
}  // namespace gdn
