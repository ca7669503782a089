// Case family `sizes`: head dimensions and head counts that fit no tile.
// There to catch tiles, vectors, masks, strides and scales made for K = V = 64 or 128 and an even number of heads.
#include "suites/families/fill.h"
#include "suites/families/relate.h"
#include "suites/family.h"

namespace gdn {
namespace {

struct Sizes final : Family {
  std::string name() const override { return "sizes"; }
  std::string profile() const override { return "sizes"; }
  std::string rationale() const override {
    return "K in {16, 32, 48, 60, 64, 96, 100, 128, 192, 256}, V up to 512, K above and below V, so that tiles of 8, 16, 32, 64 and 128 channels all leave "
           "a remainder somewhere; HV/H in {1, 2, 3, 4, 5, 8, 16}, one key head, three heads; over several chunks as well. A kernel that takes one dimension for another, or rounds one "
           "down to its tile, shows in whole channels.";
  }
  std::string own_fault() const override { return "key_vector_tail_counted_twice"; }
  std::vector<std::string> kinds() const override {
    return {"key-channels-dropped", "value-channels-dropped", "tile-from-wrong-dim", "head-map-wrong", "output-stride-wrong", "state-stride-wrong",
            "scale-wrong", "initial-state-transposed", "final-state-transposed", "final-state-unwritten", "initial-state-ignored", "layout-stride-ignored", "state-zeroed-at-chunk-border"};
  }
  std::vector<Problem> problems(Level level) const override {
    if (level == Level::smoke)
      return fill::problems({"prefill/n1_t19_h1_hv3_k60_v100/bf16/h0", "prefill/n1_t19_h3_hv3_k20_v48/fp32/h0", "prefill/n1_t9_h1_hv1_k192_v72/fp32/h0,scale=0x1p-3", "prefill/n1_t9_h1_hv2_k60_v24/bf16/h0,scale=0x1p-2",
                             "prefill/n1_t19_h1_hv8_k16_v24/bf16/h0"});
    std::vector<Problem> p;
    for (const char* shape :
         {"n1_t35_h1_hv3_k60_v100", "n1_t66_h3_hv3_k20_v48", "n1_t35_h1_hv1_k192_v72", "n1_t35_h1_hv8_k16_v24", "n1_t66_h2_hv6_k48_v16", "n1_t35_h2_hv2_k100_v36",
          "n1_t35_h1_hv2_k96_v192", "n1_t17_h1_hv1_k256_v512", "n1_t35_h1_hv4_k32_v80", "n1_t35_h1_hv2_k256_v64", "n1_t35_h1_hv2_k64_v160", "n1_t35_h1_hv2_k128_v65",
          "n1_t35_h1_hv2_k64_v128", "n1_t35_h1_hv2_k128_v64", "n1_t35_h3_hv12_k24_v8",
          "n1_t130_h1_hv1_k33_v160", "n1_t150_h1_hv1_k20_v56", "n1_t20_h2_hv10_k32_v16", "n1_t20_h2_hv32_k16_v16"})
      for (const char* dtype : {"bf16", "fp32"}) p.push_back(parse_problem(std::string("prefill/") + shape + "/" + dtype + "/h0"));
    if (level != Level::ci)
      for (const int k : {16, 32, 48, 60, 64, 96, 100, 128, 192, 256})
        for (const int v : {16, 36, 64, 100, 128, 256, 512})
          for (const char* dtype : {"bf16", "fp32"})
            p.push_back(parse_problem("prefill/n1_t67_h1_hv2_k" + std::to_string(k) + "_v" + std::to_string(v) + "/" + dtype + "/h0"));
    return p;
  }
  Case make(const Problem& p, std::uint64_t seed) const override {
    fill::require_prefill(name(), p);
    fill::Style style;
    style.gates = {fill::Gates::slow, fill::Gates::mild};
    style.betas = {fill::Betas::sparse, fill::Betas::unit};
    Case c = fill::single(name(), p, seed, fill::inputs(p, seed, style));
    relate::add_negated_values(c);
    return c;
  }
};

const Sizes family;
const RegisterFamily registered(&family);

}  // namespace
}  // namespace gdn
