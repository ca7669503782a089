// Simulated kernels; see simulated.h.
#include "suites/simulated.h"

#include <algorithm>
#include <chrono>

#include "reference/parallel.h"
#include "reference/simulate.h"

namespace gdn {
namespace {

class Simulated final : public KernelSession {
 public:
  Simulated(const Contract& carried_out, const Contract& declared) : contract_(carried_out) {
    info_.name = "simulated/" + to_string(carried_out);
    info_.description = "the contract " + to_string(carried_out) + " carried out";
    info_.version = "1";
    info_.how = "--kernel 'simulated/" + to_string(carried_out) + "'" + (carried_out == declared ? "" : " --contract '" + to_string(declared) + "'");
    info_.contract = declared;
    info_.capabilities = parse_capabilities(std::string("io=fp32,bf16,fp16;ops=prefill;rules=gated_delta,delta,gated_linear,retention,linear") +
                                            (carried_out.form == Form::recurrent ? ",kda" : "") +
                                            ";state=fp32,bf16,fp16;gate=fp32,bf16,fp16;beta=fp32,bf16,fp16;varlen;h0;ht;noht;empty;beta_max=2");
    info_.properties = parse_properties("deterministic;shape_invariant;symmetric;masks_select");
  }
  const KernelInfo& info() const override { return info_; }

  Execution run(const Run& run, const std::string&) override {
    Execution e;
    e.message = unsupported_reason(info_.capabilities, info_.contract, run);
    if (!e.message.empty()) {
      e.outcome = Outcome::not_supported;
      return e;
    }
    const auto start = std::chrono::steady_clock::now();
    const Problem& p = run.problem;
    const Contract c = for_problem(contract_, p);
    const std::int64_t HV = p.value_heads, V = p.value_dim, KV = p.key_dim * V;
    const auto offsets = p.offsets();
    Tensor o(p.io, {p.tokens() + p.padding, HV, V}), ht(p.state, {p.sequences(), HV, p.key_dim, V});
    for (std::int64_t i = p.tokens() * HV * V; i < o.size(); ++i) o.set_bits(i, poison_bits(p.io));
    parallel_for(p.sequences() * HV, [&](std::int64_t i) {
      const std::int64_t n = i / HV, hv = i % HV;
      const HeadInputs in = head_inputs(run, n, hv);
      HeadResult r;
      if (in.T > 0) r = simulate(c, in, SimulationMode::nearest, 1, p.split);
      else if (in.h0.empty()) r.ht.assign(static_cast<std::size_t>(KV), 0.0);
      else r.ht.assign(in.h0.begin(), in.h0.end());      // nothing happens to the state of an empty sequence
      for (std::int64_t t = 0; t < in.T; ++t)
        for (std::int64_t v = 0; v < V; ++v) o.set(((offsets[static_cast<std::size_t>(n)] + t) * HV + hv) * V + v, r.o[static_cast<std::size_t>(t * V + v)]);
      for (std::int64_t j = 0; j < KV; ++j) ht.set(i * KV + j, r.ht[static_cast<std::size_t>(j)]);
    });
    e.outputs.emplace("o", std::move(o));
    if (p.final_state) e.outputs.emplace("ht", std::move(ht));
    e.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return e;
  }

 private:
  Contract contract_;
  KernelInfo info_;
};

}  // namespace

std::unique_ptr<KernelSession> open_simulated(const Contract& carried_out, const Contract& declared) {
  return std::make_unique<Simulated>(carried_out, declared);
}

}  // namespace gdn
