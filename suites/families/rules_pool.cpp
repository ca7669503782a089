// Case family `rules_pool`: gates per key channel (KDA), and turned pairs of key channels, step by step on a pool of states and with draft tokens.
// There to catch decode kernels that take one gate a head, or turn pairs wrongly; the rules with one gate a head are in the families of combinations.
#include "reference/recurrence.h"
#include "suites/families/pool.h"
#include "suites/families/relate.h"
#include "suites/family.h"

namespace gdn {
namespace {

using I = std::int64_t;

struct RulesPool final : Family {
  std::string name() const override { return "rules_pool"; }
  std::string profile() const override { return "rules_pool"; }
  std::string rationale() const override {
    return "A step of KDA is another piece of code than its prefill: a gate for every key channel, with complex decays one for every pair and an angle to turn it by. On a pool with rows without a sequence, token by token and "
           "with draft tokens of which some are accepted; complex decays once more without angles, and as KDA.";
  }
  std::string own_fault() const override { return "complex_angle_sign"; }
  std::vector<std::string> kinds() const override { return {"channel-gate-wrong", "complex-turn-wrong"}; }
  std::vector<Problem> problems(Level level) const override {
    if (level == Level::smoke) return fill::problems({"decode/n2_t3_h1_hv2_k8_v8/fp32/h0,slots=4,rule=complex_kda"});
    std::vector<Problem> p;
    for (const char* rule : {"kda", "complex_kda"})
      for (const char* shape : {"decode/n3_t9_h1_hv2_k16_v24/fp32/h0,slots=5", "decode/n2_t6_h2_hv4_k64_v32/bf16/h0,slots=4", "verify/n3_t10_h1_hv2_k16_v12/fp32/h0,slots=5,draft=3", "verify/n2_t5_h1_hv2_k32_v32/bf16/h0,slots=4,draft=2"})
        p.push_back(parse_problem(std::string(shape) + ",rule=" + rule));
    return p;
  }
  Case make(const Problem& p, std::uint64_t seed) const override {
    if (!p.pool() || !gate_per_key_channel(p.rule)) throw std::invalid_argument("family " + name() + " is about gates per key channel in decode and verify, not '" + to_string(p) + "'");
    fill::Style style;
    style.gates = {fill::Gates::mild, fill::Gates::slow, fill::Gates::zero};
    style.betas = {fill::Betas::sparse, fill::Betas::unit};
    const I N = p.sequences(), calls = static_cast<I>(p.cuts().size()) + 1;
    std::vector<I> slots = pool::live_slots(p, seed, N > 2 ? N - 1 : N);
    slots.resize(static_cast<std::size_t>(N), -1);                         // of three rows and more the last has no sequence
    Tensor indices(DType::i32, {calls, N}), accepted(DType::i32, {calls, N});
    for (I c = 0; c < calls; ++c)
      for (I n = 0; n < N; ++n) {
        const I slot = slots[static_cast<std::size_t>(n)];
        indices.set(c * N + n, static_cast<double>(slot));
        if (c > 0 && slot >= 0 && p.operation == Operation::verify) accepted.set(c * N + n, static_cast<double>((c * p.draft + n) % (p.draft + 1)));
      }
    TensorSet inputs = pool::inputs(p, seed, style, indices);
    if (p.operation == Operation::verify) inputs["accepted"] = accepted;
    Case c = fill::single(name(), p, seed, std::move(inputs));
    if (p.rule == Rule::kda) return c;
    relate::add_run(c, "without angles", [&](Run& r) { r.inputs["angle"] = Tensor(p.gate, r.inputs.at("angle").shape); }, true);
    relate::add_run(c, "as kda", [&](Run& r) {
      r.problem.rule = Rule::kda;
      Tensor g(p.gate, {p.tokens(), p.value_heads, p.key_dim});
      for (I i = 0; i < g.size(); ++i) g.set_bits(i, r.inputs.at("g").bits(i / 2));
      r.inputs["g"] = std::move(g);
      r.inputs.erase("angle");
    }, true);
    return c;
  }
};

const RulesPool family;
const RegisterFamily registered(&family);

}  // namespace
}  // namespace gdn
