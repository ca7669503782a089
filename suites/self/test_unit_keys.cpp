// Kernels that normalise q and k themselves, or take q with the scale in it, are gated like others. Exists because keys that 16 bits have rounded
// are not of length 1, so that such kernels would be given next to nothing and could not pass.
#include <algorithm>
#include <cmath>

#include "kernels/convention.h"
#include "suites/features.h"
#include "suites/runner.h"
#include "suites/self/catch.h"
#include "suites/simulated.h"

using namespace gdn;

namespace {

// How q and k are normalised: as they should be; k alone; by one factor for all rows; in double, with what follows.
enum class Norms { right, of_keys_only, one_factor, in_double };

// cpu_recurrent_fp32 behind another convention.
class Converted : public KernelSession {
 public:
  Converted(const std::string& convention, Norms norms = Norms::right) : inner_(open_inline("cpu_recurrent_fp32", {})), info_(inner_->info()), norms_(norms) {
    info_.convention = parse_convention(convention);
  }
  const KernelInfo& info() const override { return info_; }
  Execution run(const Run& run, const std::string& id) override {
    Run asked = run;
    try {
      asked.inputs = to_kernel(info_.convention, run);
    } catch (const std::invalid_argument& e) {
      Execution refused;
      refused.outcome = Outcome::not_supported;
      refused.message = e.what();
      return refused;
    }
    asked.inputs["cu_seqlens"] = run.inputs.at("cu_seqlens");
    if (info_.convention.scale == ScaleHandling::folded) asked.problem.scale = 1;
    if (info_.convention.l2norm == L2Norm::in_kernel) {
      normalise(asked.inputs.at("k"));
      if (norms_ != Norms::of_keys_only) normalise(asked.inputs.at("q"));
    }
    if (norms_ != Norms::in_double) return inner_->run(asked, id);
    Execution e = carry_out(parse_contract("fp64-recurrent"), asked);
    return e;
  }

 private:
  void normalise(Tensor& t) const {
    const std::int64_t K = t.shape.back();
    if (norms_ == Norms::one_factor) {             // as long as the first row
      double sum = 0;
      for (std::int64_t d = 0; d < K; ++d) sum += t.at(d) * t.at(d);
      for (std::int64_t i = 0; i < t.size(); ++i) t.set(i, t.at(i) / std::sqrt(sum));
      return;
    }
    if (norms_ == Norms::in_double) {
      Tensor wide(DType::f64, t.shape);
      for (std::int64_t r = 0; r < t.size() / K; ++r) {
        double sum = 0;
        for (std::int64_t d = 0; d < K; ++d) sum += t.at(r * K + d) * t.at(r * K + d);
        for (std::int64_t d = 0; d < K; ++d) wide.set(r * K + d, t.at(r * K + d) / std::sqrt(sum + 1e-6));
      }
      t = std::move(wide);
      return;
    }
    for (std::int64_t r = 0; r < t.size() / K; ++r) {
      float sum = 0;
      for (std::int64_t d = 0; d < K; ++d) sum += static_cast<float>(t.at(r * K + d) * t.at(r * K + d));
      for (std::int64_t d = 0; d < K; ++d) t.set(r * K + d, static_cast<double>(static_cast<float>(t.at(r * K + d)) / std::sqrt(sum + 1e-6f)));
    }
  }
  std::unique_ptr<KernelSession> inner_;
  KernelInfo info_;
  Norms norms_;
};

GateResult gate(Converted& kernel, std::vector<std::string> families = {}, std::vector<std::string> cases = {}) {
  GateOptions o;
  o.case_ids = std::move(cases);
  o.families = std::move(families);
  o.profiles = {"core", "varlen", "decode"};
  return run_gate(o, kernel, {});
}

}  // namespace

TEST_CASE("a kernel that normalises keys, and one with the scale in q, pass their profiles") {
  const std::vector<std::string> some{"typical", "chunk_boundary", "packed_sequences", "relation_repeat", "decode_pool"};
  for (const char* convention : {"l2norm=in_kernel", "scale=folded"}) {
    Converted kernel(convention);
    const GateResult r = gate(kernel, convention[0] == 's' ? some : std::vector<std::string>{});
    std::string why;
    for (const std::string& line : r.objections) why += line + "\n";
    INFO(convention << ": " << r.summary << "\n" << why);
    CHECK(r.exit_status == 0);
    CHECK(std::count_if(r.records.begin(), r.records.end(), [](const Record& x) { return x.verdict == "PASSED"; }) > (convention[0] == 's' ? 10 : 60));
  }
}

TEST_CASE("stages and layers have no scale that a convention could put elsewhere") {
  KernelInfo k = Converted("scale=folded").info();
  k.capabilities.stages = {Stage::inverse, Stage::output};
  for (const char* text : {"stages/n2_t37+18_h3_hv3_k8_v16/bf16/h0,stage=chunk_states,chunk=1", "stages/n1_t70_h1_hv1_k32_v32/fp32/stage=inverse,chunk=16",
                           "layer_prefill/n1_t9_h1_hv2_k32_v16/fp32/hidden=64,conv=4", "stages/n1_t70_h1_hv1_k32_v32/fp32/stage=output,chunk=16"}) {
    INFO(text);
    const Problem p = parse_problem(text), q = fitted(p, k, false);
    CHECK(parse_problem(to_string(q)) == q);                              // a legal problem
    CHECK((q.scale == 0.25 || q.scale == 0.125) == (p.stage == Stage::output && p.operation == Operation::stages));
  }
}

TEST_CASE("a query that is not normalised is seen") {
  Converted kernel("l2norm=in_kernel", Norms::of_keys_only);
  CHECK(gate(kernel, {"exact_dictionary"}).exit_status == 1);
}

TEST_CASE("one factor in place of a norm is seen") {
  for (const char* family : {"exact_dictionary", "typical", "decode_pool"}) {
    Converted kernel("l2norm=in_kernel", Norms::one_factor);
    INFO(family);
    CHECK(gate(kernel, {family}).exit_status == 1);
  }
}

TEST_CASE("an epsilon in a norm that is computed in double is no fault") {
  Converted kernel("l2norm=in_kernel", Norms::in_double);
  // The lengths that fp16 holds leave something of it in double.
  const GateResult r = gate(kernel, {}, {"exact_dictionary:prefill/n1_t66_h2_hv4_k64_v16/bf16/h0,unit:1", "exact_dictionary:prefill/n1_t66_h2_hv4_k64_v16/fp32/h0,unit:1",
                                         "exact_dictionary:prefill/n1_t66_h2_hv4_k64_v16/fp16/h0,unit:1", "exact_dictionary:prefill/n1_t70_h2_hv4_k64_v16/fp16/h0,unit:1"});
  std::string why;
  for (const std::string& line : r.objections) why += line + "\n";
  INFO(r.summary << "\n" << why);
  CHECK(r.exit_status == 0);
  CHECK(std::count_if(r.records.begin(), r.records.end(), [](const Record& x) { return x.verdict == "PASSED"; }) == 4);
}

TEST_CASE("queries of fp16 that cannot take the scale exempt their case") {
  Converted kernel("scale=folded");
  const GateResult r = gate(kernel, {}, {"typical:prefill/n1_t150_h1_hv4_k64_v64/fp16/h0:1", "typical:prefill/n1_t70_h1_hv2_k64_v64/fp32/h0:1"});
  std::string why;
  for (const std::string& line : r.objections) why += line + "\n";
  INFO(r.summary << "\n" << why);
  CHECK(r.exit_status == 0);
  CHECK(std::any_of(r.records.begin(), r.records.end(), [](const Record& x) { return x.problem.find("/fp16") != std::string::npos && x.verdict == "NOT_SUPPORTED"; }));
}
