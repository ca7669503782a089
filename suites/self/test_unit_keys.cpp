// Kernels that normalise q and k themselves, or take q with the scale in it, are gated like others. Exists because keys that 16 bits have rounded
// are not of length 1, so that such kernels would be given next to nothing and could not pass.
#include <algorithm>
#include <cmath>

#include "kernels/convention.h"
#include "suites/runner.h"
#include "suites/self/catch.h"

using namespace gdn;

namespace {

// cpu_recurrent_fp32 behind another convention. spoilt: q is left as it comes.
class Converted : public KernelSession {
 public:
  Converted(const std::string& convention, bool spoilt = false) : inner_(open_inline("cpu_recurrent_fp32", {})), info_(inner_->info()), spoilt_(spoilt) {
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
      if (!spoilt_) normalise(asked.inputs.at("q"));
    }
    return inner_->run(asked, id);
  }

 private:
  static void normalise(Tensor& t) {
    const std::int64_t K = t.shape.back();
    for (std::int64_t r = 0; r < t.size() / K; ++r) {
      float sum = 0;
      for (std::int64_t d = 0; d < K; ++d) sum += static_cast<float>(t.at(r * K + d) * t.at(r * K + d));
      for (std::int64_t d = 0; d < K; ++d) t.set(r * K + d, static_cast<double>(static_cast<float>(t.at(r * K + d)) / std::sqrt(sum + 1e-6f)));
    }
  }
  std::unique_ptr<KernelSession> inner_;
  KernelInfo info_;
  bool spoilt_;
};

GateResult gate(Converted& kernel, std::vector<std::string> families = {}) {
  GateOptions o;
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

TEST_CASE("a query that is not normalised is seen") {
  Converted kernel("l2norm=in_kernel", true);
  CHECK(gate(kernel, {"exact_hadamard"}).exit_status == 1);
}
