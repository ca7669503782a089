// Simulated kernels; see simulated.h.
#include "suites/simulated.h"

#include <chrono>
#include <cmath>

#include "reference/layer.h"
#include "reference/parallel.h"
#include "reference/simulate.h"
#include "reference/stage_bound.h"
#include "reference/strand.h"

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
    info_.capabilities = parse_capabilities(std::string("io=fp32,bf16,fp16;ops=prefill") + (carried_out.accumulator == Accumulator::fp64 ? "" : ",layer_prefill,layer_decode") +
                                            (carried_out.form == Form::chunkwise ? ",stages;stages=gate_sum,gram,inverse,uw,chunk_states,output;chunks=16,32,64,128" : "") + ";rules=gated_delta,delta,gated_linear,retention,linear" +
                                            (carried_out.form == Form::recurrent ? ",kda,complex_kda" : "") +
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
    e = carry_out(contract_, run);
    e.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return e;
  }

 private:
  Contract contract_;
  KernelInfo info_;
};

}  // namespace

Execution carry_out(const Contract& contract, const Run& run) {
  const Problem& p = run.problem;
  const Contract narrowed = for_problem(contract, p);
  const std::int64_t HV = p.value_heads, V = p.value_dim, KV = p.key_dim * V;
  Execution e;
  if (p.operation == Operation::stages) {
    for (const auto& [name, exact] : simulate_stage(narrowed, run)) {
      const Store last = stage_stores(narrowed, p, name).back();
      Tensor& t = e.outputs[name] = Tensor(output_dtype(p, name), exact.shape);
      for (std::int64_t i = 0; i < t.size(); ++i) {
        if (std::isnan(exact.at(i))) t.set_bits(i, poison_bits(t.dtype));
        else t.set(i, round_to(exact.at(i), last));
      }
    }
    return e;
  }
  if (p.layer()) {
    const TensorSet exact = simulate_layer(narrowed, run);
    for (const StageTensor& o : layer_outputs(p)) {
      Tensor& t = e.outputs[o.name] = Tensor(o.dtype, o.shape);
      const Tensor& from = exact.at(o.name);
      for (std::int64_t i = 0; i < t.size(); ++i) {
        if (std::isnan(from.at(i))) t.set_bits(i, poison_bits(t.dtype));
        else t.set(i, from.at(i));
      }
    }
    return e;
  }
  for (const char* name : output_names(p)) {
    Tensor& t = e.outputs[name] = Tensor(output_dtype(p, name), output_shape(p, name));
    for (std::int64_t i = 0; i < t.size(); ++i) t.set_bits(i, poison_bits(t.dtype));
  }
  if (p.pool()) e.outputs["ht"] = run.inputs.at("h0");   // in place
  Tensor& o = e.outputs["o"];
  const std::vector<Strand> list = strands(run);
  parallel_for(static_cast<std::int64_t>(list.size()) * HV, [&](std::int64_t job) {
    const Strand& s = list[static_cast<std::size_t>(job / HV)];
    const std::int64_t hv = job % HV;
    if (s.idle) return;
    const HeadInputs in = head_inputs(run, s, hv);
    HeadResult r;
    if (in.T > 0) r = simulate(narrowed, in, SimulationMode::nearest, 1, s.cuts);
    else if (in.h0.empty()) r.ht.assign(static_cast<std::size_t>(KV), 0.0);
    else r.ht.assign(in.h0.begin(), in.h0.end());  // nothing happens to the state of an empty sequence
    for (std::int64_t i = s.outputs * V; i < static_cast<std::int64_t>(r.o.size()); ++i)
      o.set((s.rows[static_cast<std::size_t>(i / V)] * HV + hv) * V + i % V, r.o[static_cast<std::size_t>(i)]);
    if (!*s.state) return;
    Tensor& state = e.outputs.find(s.state)->second;
    for (std::int64_t i = 0; i < KV; ++i) state.set((s.state_row * HV + hv) * KV + i, r.ht[static_cast<std::size_t>(i)]);
  });
  return e;
}

std::unique_ptr<KernelSession> open_simulated(const Contract& carried_out, const Contract& declared) {
  return std::make_unique<Simulated>(carried_out, declared);
}

}  // namespace gdn
