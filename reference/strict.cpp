// The textbook's input rules; see strict.h.
#include "reference/strict.h"

#include <cmath>
#include <cstdio>
#include <stdexcept>

#include "reference/format.h"
#include "reference/strand.h"

namespace gdn {
namespace {

using I = std::int64_t;

std::string number(double x) {
  char text[40];
  std::snprintf(text, sizeof text, "%.9g", x);
  return text;
}

double roundoff(DType t) {
  return t == DType::bf16 ? 0x1p-8 : t == DType::f16 ? 0x1p-11 : t == DType::f64 ? 0x1p-53 : 0x1p-24;
}

}  // namespace

std::string strict_complaint(const Run& run) {
  const Problem& p = run.problem;
  if (own_tensors(p)) throw std::invalid_argument(to_string(p) + ": the textbook's step has no stages and no layer");
  const I rows = p.tokens() + p.padding;
  const auto shape_of = [&](const char* name, std::vector<I> want) -> std::string {
    const auto t = run.inputs.find(std::string_view(name));
    if (t == run.inputs.end() || t->second.shape == want) return {};
    return std::string("strict: ") + name + " has shape " + shape_text(t->second.shape) + ", the problem needs " + shape_text(want);
  };
  std::vector<I> gate{rows, p.value_heads};
  if (p.rule == Rule::kda || p.rule == Rule::complex_kda) gate.push_back(p.gate_width());
  for (const std::string& bad : {shape_of("q", {rows, p.heads, p.key_dim}), shape_of("k", {rows, p.heads, p.key_dim}), shape_of("v", {rows, p.value_heads, p.value_dim}), shape_of("g", gate),
                                 shape_of("beta", {rows, p.value_heads}), shape_of("h0", {p.states(), p.value_heads, p.key_dim, p.value_dim})})
    if (!bad.empty()) return bad;

  const auto complaint = [&](const char* name, I token, I index, double x, const char* rule) {
    return std::string("strict: ") + name + " of token " + std::to_string(token) + ", element " + std::to_string(index) + " is " + number(x) + ": " + rule;
  };
  for (const Strand& s : strands(run)) {
    for (const I row : s.rows) {
      for (const auto& [name, t] : run.inputs) {
        if (name == "h0" || name == "cu_seqlens" || !is_floating(t.dtype) || t.shape[0] != rows || name == "A_log" || name == "dt_bias") continue;
        const I width = t.size() / rows;
        for (I i = 0; i < width; ++i) {
          const double x = t.at(row * width + i);
          if (name == "g") {
            if (!(x <= 0)) return complaint("g", row, i, x, "a decay lies in 0..1, so g is at most 0");
          } else if (!std::isfinite(x)) {
            return complaint(name.c_str(), row, i, x, "inputs are finite");
          } else if (name == "beta" && !(x >= 0 && x <= 1)) {
            return complaint("beta", row, i, x, "a write strength lies in 0..1");
          }
        }
      }
      const Tensor& k = run.inputs.at("k");
      const double u = roundoff(k.dtype), room = std::max(2 * u + u * u, 1e-9);
      for (I h = 0; h < p.heads; ++h) {
        double square = 0;
        for (I d = 0; d < p.key_dim; ++d) {
          const double x = k.at((row * p.heads + h) * p.key_dim + d);
          square += x * x;
        }
        if (!(std::fabs(square - 1) <= room)) return complaint("|k|^2", row, h, square, "keys are unit vectors");
      }
    }
    if (s.start < 0) continue;
    const Tensor& h0 = run.inputs.at("h0");
    const I width = h0.size() / h0.shape[0];
    for (I i = 0; i < width; ++i)
      if (const double x = h0.at(s.start * width + i); !std::isfinite(x)) return "strict: h0 of state " + std::to_string(s.start) + ", element " + std::to_string(i) + " is " + number(x) + ": inputs are finite";
  }
  return {};
}

}  // namespace gdn
