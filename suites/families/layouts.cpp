// Case family `layouts`: the same call with tensors that are parts of larger buffers, and with offsets in 32 bits (row 26).
// There to catch strides, byte offsets and index types taken for granted. For kernels that declare strides or short_offsets.
#include "suites/families/fill.h"
#include "suites/families/relate.h"
#include "suites/family.h"

namespace gdn {
namespace {

struct Layouts final : Family {
  std::string name() const override { return "layouts"; }
  std::string profile() const override { return "core"; }
  std::string rationale() const override {
    return "q, k and v are often slices of one projection, gates come as [heads, tokens], and states lie in a pool: rows have gaps, strides are not those "
           "of a dense tensor, and data does not begin where its allocation does. Between the rows lie signalling NaN, which must neither be "
           "read nor written. Every tensor has strides of its own, and begins at an address that is aligned as the kernel declares and no further. Some lie so "
           "far apart that element offsets pass 2^31 and 2^32, in memory of which only the rows exist. Other cases hand over cu_seqlens in int32. The dense call must give the same numbers where the kernel declares "
           "that the shape does not matter.";
  }
  std::string own_fault() const override { return "element_offsets_in_31_bits"; }
  std::vector<std::string> kinds() const override { return {"layout-stride-ignored", "offset-overflow"}; }
  std::vector<Problem> problems(Level level) const override {
    if (level == Level::smoke) return fill::problems({"prefill/n1_t20_h1_hv2_k32_v16/bf16/h0,strided", "prefill/n1_t20_h1_hv2_k32_v16/fp32/h0,strided",
                                                     "prefill/n2_t20_h1_hv2_k16_v16/bf16/h0,cu=i32"});
    return fill::problems({"prefill/n2_t3+2_h1_hv2_k16_v24/bf16/h0,far", "prefill/n2_t3+2_h1_hv2_k24_v16/fp32/h0,far", "prefill/n2_t35_h2_hv4_k64_v32/bf16/h0,strided", "prefill/n2_t35_h2_hv4_k64_v32/fp32/h0,strided", "prefill/n1_t35_h1_hv2_k128_v128/bf16/h0,strided",
                           "prefill/n1_t66_h1_hv2_k64_v64/fp32/h0,strided,split=20", "prefill/n3_t20+7+33_h1_hv2_k64_v64/bf16/h0,cu=i32", "prefill/n3_t20+7+33_h1_hv2_k64_v64/fp32/h0,cu=i32"});
  }
  Case make(const Problem& p, std::uint64_t seed) const override {
    fill::require_prefill(name(), p);
    fill::Style style;
    style.gates = {fill::Gates::mild, fill::Gates::slow};
    style.betas = {fill::Betas::sparse, fill::Betas::unit};
    Case c = fill::single(name(), p, seed, fill::inputs(p, seed, style));
    const std::size_t plain = relate::add_run(c, "dense", [](Run& r) { r.problem.strided = r.problem.far = r.problem.short_offsets = false; });
    relate::add(c, 26, RelationClass::shape_invariant, plain, "where the tensors lie does not change the numbers", relate::base_times(plain, 1, 1));
    return c;
  }
};

const Layouts family;
const RegisterFamily registered(&family);

}  // namespace
}  // namespace gdn
