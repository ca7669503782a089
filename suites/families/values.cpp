// Case family `values`: very large and very small values, the edges of fp16, and tensors in mixed dtypes (rows 28, 29).
// There to catch intermediate formats that overflow or flush, and dtypes taken for granted.
#include <algorithm>
#include <cmath>

#include "suites/families/fill.h"
#include "suites/families/relate.h"
#include "suites/family.h"

namespace gdn {
namespace {

using I = std::int64_t;

struct Values final : Family {
  std::string name() const override { return "values"; }
  std::string profile() const override { return "core"; }
  std::string rationale() const override {
    return "With values of size 1 a kernel that keeps an intermediate in fp16 passes. Here heads hold values and states around 1e30 and 1e-30, around the "
           "greatest fp16 number 65504 with outputs on both sides of it, and, in fp16 cases, subnormal ones. One head's values grow by a power of two every "
           "few tokens while its gates decay as fast, so that the state stays level. The largest states end with a decay below the normal range of fp32. Further options give gates, beta or states in 16 bits. A second run "
           "is the sum of two sets of values and states. Every run is judged against its own exact result, v and h0 negated by the bits.";
  }
  std::string own_fault() const override { return "subnormal_decay_flushed"; }
  std::vector<std::string> kinds() const override {
    return {"saturation-wrong", "subnormals-flushed", "gate-narrowed", "state-narrowed", "state-rounded-too-often", "accumulator-narrowed", "nan-in-output"};
  }
  std::vector<Problem> problems(Level level) const override {
    if (level == Level::smoke)
      return fill::problems({"prefill/n1_t35_h1_hv4_k32_v32/bf16/h0,g=bf16,beta=bf16", "prefill/n1_t35_h1_hv4_k32_v32/fp32/h0,state=bf16",
                             "prefill/n1_t35_h1_hv4_k32_v32/fp32/h0", "prefill/n1_t35_h1_hv4_k32_v32/fp16/h0"});
    std::vector<Problem> p = fill::problems(
        {"prefill/n1_t70_h2_hv4_k64_v64/bf16/h0", "prefill/n1_t70_h2_hv4_k64_v64/fp32/h0", "prefill/n1_t70_h2_hv4_k64_v64/fp16/h0",
         "prefill/n1_t40_h1_hv4_k128_v128/bf16/h0", "prefill/n1_t70_h1_hv4_k64_v32/bf16/h0,g=bf16,beta=bf16", "prefill/n1_t70_h1_hv4_k64_v32/fp16/h0,g=fp16,beta=fp16",
         "prefill/n1_t70_h1_hv4_k64_v32/fp32/h0,state=bf16", "prefill/n1_t70_h1_hv4_k64_v32/bf16/h0,state=bf16", "prefill/n1_t70_h1_hv4_k64_v32/fp16/h0,state=fp16",
         "prefill/n1_t70_h1_hv4_k64_v32/fp32/h0,g=bf16,beta=bf16,state=bf16", "prefill/n1_t150_h1_hv4_k32_v32/fp32/h0,state=fp16,split=64.70"});
    if (level != Level::ci)
      for (const char* io : {"bf16", "fp16", "fp32"})
        for (const char* gate : {"", ",g=bf16", ",g=fp16"})
          for (const char* beta : {"", ",beta=bf16", ",beta=fp16"})
            for (const char* state : {"", ",state=bf16", ",state=fp16"})
              p.push_back(parse_problem(std::string("prefill/n1_t260_h1_hv4_k64_v64/") + io + "/h0" + gate + beta + state));
    return p;
  }
  Case make(const Problem& p, std::uint64_t seed) const override {
    fill::require_prefill(name(), p);
    fill::Style style;
    style.gates = {fill::Gates::mild, fill::Gates::slow};
    style.betas = {fill::Betas::unit, fill::Betas::sparse};
    Case c = fill::single(name(), p, seed, fill::inputs(p, seed, style));
    TensorSet& in = c.runs[0].inputs;
    const I HV = p.value_heads, V = p.value_dim, plane = p.key_dim * V;
    const bool half = p.io == DType::f16, half_state = p.state == DType::f16;
    const auto g = in.find("g"), h0 = in.find("h0");
    auto scale = [&](Tensor& t, I from, I count, double factor) {
      for (I i = from; i < from + count; ++i) t.set(i, t.at(i) * factor);
    };
    for (std::size_t n = 0; n < p.lengths.size(); ++n)
      for (I h = 0; h < HV; ++h) {
        // Sizes of v and of h0; fp16 holds neither 1e30 nor 1e-30.
        static constexpr double wide[][2] = {{0x1p100, 0x1p100}, {0x1p-100, 0x1p-100}, {0x1p17, 0x1p17}, {1, 1}};
        static constexpr double narrow[][2] = {{0x1p10, 0x1p19}, {0x1p-16, 0x1p-16}, {0x1p13, 0x1p13}, {1, 1}};
        const double* size = (half ? narrow : wide)[h % 4];
        if (h0 != in.end()) scale(h0->second, (static_cast<I>(n) * HV + h) * plane, plane, half_state ? std::clamp(size[1], 0x1p-14, 0x1p12) : size[1]);
        for (I t = 0; t < p.lengths[n]; ++t) {
          const I row = p.offsets()[n] + t;
          double factor = half_state ? std::clamp(size[0], 0x1p-14, 0x1p9) : size[0];
          if (h % 4 == 3) {                        // row 28: alpha 2^-1 and values 2^-1 more every fifth token; the state follows
            factor = std::ldexp(1.0, -static_cast<int>(std::min<I>(t / 5, half ? 10 : 60)));
            if (t % 5 == 0 && t && g != in.end() && p.rule == Rule::gated_delta) g->second.set(row * HV + h, -0x1.62e43p-1);
          }
          scale(in.at("v"), (row * HV + h) * V, V, factor);
        }
        // A last decay below the normal range of fp32 on a state that lifts what is left of it far above: nothing else is written.
        if (h % 4 == 0 && p.lengths[n] > 1 && g != in.end() && p.rule == Rule::gated_delta) {
          const I row = p.offsets()[n] + p.lengths[n] - 1;
          g->second.set(row * HV + h, -90);
          scale(in.at("v"), (row * HV + h) * V, V, 0);
        }
      }
    fill::poison_padding(p, in);
    relate::add_run(c, "sum of two", [&](Run& r) {  // row 29: plus values of another seed, which are as large
      const TensorSet other = fill::inputs(p, seed + 0x9e3779b97f4a7c15u, style);
      for (const char* name : {"v", "h0"})
        if (const auto it = r.inputs.find(name); it != r.inputs.end()) {
          const I width = name[0] == 'v' ? V : plane, rows = name[0] == 'v' ? p.tokens() * HV : p.sequences() * HV;
          for (I i = 0; i < rows * width; ++i)
            if (i / width % HV % 4 == 3) it->second.set(i, it->second.at(i) + other.at(name).at(i));
        }
    }, true);
    relate::add_negated_values(c, true);
    return c;
  }
};

const Values family;
const RegisterFamily registered(&family);

}  // namespace
}  // namespace gdn
