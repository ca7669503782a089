// Extraction of one value head from the packed tensors of a run; see head.h.
#include "reference/head.h"

namespace gdn {
namespace {
// Rows first..first+count of tensor [T,heads,width], one head.
std::vector<float> rows(const Tensor& t, std::int64_t first, std::int64_t count, std::int64_t heads, std::int64_t head, std::int64_t width) {
  std::vector<float> out(static_cast<std::size_t>(count * width));
  for (std::int64_t r = 0; r < count; ++r)
    for (std::int64_t c = 0; c < width; ++c)
      out[static_cast<std::size_t>(r * width + c)] = static_cast<float>(t.at(((first + r) * heads + head) * width + c));
  return out;
}
}  // namespace

HeadInputs head_inputs(const Run& run, std::int64_t n, std::int64_t hv) {
  const Problem& p = run.problem;
  HeadInputs in;
  in.T = p.lengths[static_cast<std::size_t>(n)];
  in.K = p.key_dim;
  in.V = p.value_dim;
  in.rule = p.rule;
  in.scale = p.effective_scale();
  const std::int64_t first = p.offsets()[static_cast<std::size_t>(n)];
  const std::int64_t h = hv / (p.value_heads / p.heads);
  in.q = rows(run.inputs.at("q"), first, in.T, p.heads, h, in.K);
  in.k = rows(run.inputs.at("k"), first, in.T, p.heads, h, in.K);
  in.v = rows(run.inputs.at("v"), first, in.T, p.value_heads, hv, in.V);
  if (const auto g = run.inputs.find("g"); g != run.inputs.end())
    in.g = rows(g->second, first, in.T, p.value_heads, hv, p.rule == Rule::kda ? in.K : 1);
  if (const auto b = run.inputs.find("beta"); b != run.inputs.end()) in.beta = rows(b->second, first, in.T, p.value_heads, hv, 1);
  if (p.initial_state) in.h0 = rows(run.inputs.at("h0"), n, 1, p.value_heads, hv, in.K * in.V);
  return in;
}

}  // namespace gdn
