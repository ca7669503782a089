// Which elements may be judged; see standing.h.
#include "suites/standing.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <stdexcept>

namespace gdn {
namespace {
using I = std::int64_t;

bool legal_gate(double g) { return g <= std::numeric_limits<double>::max(); }  // -inf is a reset; NaN and +inf are not gates
}  // namespace

Standings standings(const Run& run, const KernelInfo& kernel) {
  const Problem& p = run.problem;
  const I HV = p.value_heads, V = p.value_dim, K = p.key_dim, r = HV / p.heads;
  const auto offsets = p.offsets();
  Standings s;
  s.o.assign(static_cast<std::size_t>((p.tokens() + p.padding) * HV * V), Standing::judged);
  std::fill(s.o.begin() + static_cast<std::ptrdiff_t>(p.tokens() * HV * V), s.o.end(), Standing::unowned);
  if (p.final_state) s.ht.assign(static_cast<std::size_t>(p.sequences() * HV * K * V), Standing::judged);
  if (p.final_state && kernel.convention.empty == EmptySequence::untouched)
    for (std::size_t n = 0; n < p.lengths.size(); ++n)
      if (p.lengths[n] == 0) std::fill_n(s.ht.begin() + static_cast<I>(n) * HV * K * V, HV * K * V, Standing::unowned);

  // Taint token..end of sequence n, head hv, channels [c0,c1), and that part of the final state.
  auto taint = [&](I n, I hv, I from, I to, I c0, I c1, bool state) {
    const I first = offsets[static_cast<std::size_t>(n)];
    for (I t = from; t < to; ++t)
      for (I c = c0; c < c1; ++c) s.o[static_cast<std::size_t>(((first + t) * HV + hv) * V + c)] = Standing::tainted;
    if (!state || s.ht.empty()) return;
    for (I d = 0; d < K; ++d)
      for (I c = c0; c < c1; ++c) {
        Standing& e = s.ht[static_cast<std::size_t>(((n * HV + hv) * K + d) * V + c)];
        if (e == Standing::judged) e = Standing::tainted;
      }
  };
  // Where a kernel multiplies by its mask, a non-finite row reaches the rows before it in its chunk.
  auto reach = [&](I t) {
    if (kernel.properties.masks_select || kernel.contract.form == Form::recurrent) return t;
    I start = 0;
    for (const I cut : p.split)
      if (cut <= t) start = cut;
    return t - (t - start) % std::max(kernel.contract.chunk, 1);
  };
  auto finite = [](double x) { return std::isfinite(x); };
  auto each = [&](const char* name, I width, auto&& legal, auto&& f) {   // f(token, column)
    const auto it = run.inputs.find(name);
    if (it == run.inputs.end()) return;
    for (std::size_t n = 0; n < p.lengths.size(); ++n)
      for (I t = 0; t < p.lengths[n]; ++t)
        for (I c = 0; c < width; ++c)
          if (!legal(it->second.at((offsets[n] + t) * width + c))) f(static_cast<I>(n), t, c);
  };
  each("v", HV * V, finite, [&](I n, I t, I c) { taint(n, c / V, reach(t), p.lengths[static_cast<std::size_t>(n)], c % V, c % V + 1, true); });
  each("k", p.heads * K, finite, [&](I n, I t, I c) {
    for (I j = 0; j < r; ++j) taint(n, c / K * r + j, reach(t), p.lengths[static_cast<std::size_t>(n)], 0, V, true);
  });
  each("q", p.heads * K, finite, [&](I n, I t, I c) {
    for (I j = 0; j < r; ++j) taint(n, c / K * r + j, t, t + 1, 0, V, false);
  });
  const I gw = p.rule == Rule::kda ? K : 1;
  each("g", HV * gw, legal_gate, [&](I n, I t, I c) { taint(n, c / gw, reach(t), p.lengths[static_cast<std::size_t>(n)], 0, V, true); });
  each("beta", HV, finite, [&](I n, I t, I c) { taint(n, c, reach(t), p.lengths[static_cast<std::size_t>(n)], 0, V, true); });
  if (const auto h0 = run.inputs.find("h0"); h0 != run.inputs.end())
    for (I i = 0; i < h0->second.size(); ++i)
      if (!finite(h0->second.at(i))) {
        const I n = i / (HV * K * V);
        taint(n, i / (K * V) % HV, 0, p.lengths[static_cast<std::size_t>(n)], i % V, i % V + 1, true);
      }
  return s;
}

Format format_of(DType t) {
  switch (t) {
    case DType::f64: return Format::fp64;
    case DType::f32: return Format::fp32;
    case DType::f16: return Format::fp16;
    case DType::bf16: return Format::bf16;
    case DType::e4m3: return Format::fp8_e4m3;
    case DType::e5m2: return Format::fp8_e5m2;
    default: throw std::invalid_argument("an integer dtype has no floating format");
  }
}

double rounded(double hi, double lo, Format f) {
  Store s;
  s.format = f;
  if (f == Format::fp64 || lo == 0 || hi == 0 || !std::isfinite(hi)) return round_to(hi, s);
  // Round hi + lo to odd in double first, then once more to the format: no double rounding.
  std::uint64_t b = std::bit_cast<std::uint64_t>(hi);
  if ((lo < 0) != (hi < 0)) --b;                   // toward zero
  return round_to(std::bit_cast<double>(b | 1), s);
}

double ulp_at(double x, Format f) {
  const FormatInfo& i = info(f);
  const int e = x == 0 || !std::isfinite(x) ? i.emin : std::clamp(std::ilogb(x), i.emin, i.emax);
  return std::ldexp(1.0, e - i.precision + 1);
}

bool overflow_allowed(double got, double hi, double bound, double radius, Format f) {
  const double widened = (got < 0 ? -hi : hi) + bound + radius;
  if (std::isnan(got)) return !info(f).has_infinity && std::fabs(hi) + bound + radius > info(f).max_finite;
  return std::isinf(got) && widened > info(f).max_finite;
}

double bound_of(const CheckInput& in, std::size_t run, std::string_view tensor, std::int64_t e) {
  const HeadResult& bounds = in.bounds.of_run(run);
  return (tensor == "ht" ? bounds.ht : bounds.o)[static_cast<std::size_t>(e)];
}

Finding finding(const CheckInput& in, std::size_t run, std::string_view tensor, std::int64_t element, double bound) {
  Finding f;
  const Run& r = in.golden.the_case.runs[run];
  const Tensor& got = in.executions[run].outputs.find(tensor)->second;
  f.where = locate(r, run, tensor, element, std::max(in.kernel.contract.chunk, 1));
  f.dtype = got.dtype;
  f.got = got.at(element);
  f.got_bits = got.bits(element);
  f.bound = bound;
  if (run < in.golden.truths.size())
    if (const auto t = in.golden.truths[run].find(tensor); t != in.golden.truths[run].end()) {
      const auto i = static_cast<std::size_t>(element);
      f.expected_hi = t->second.hi[i];
      f.expected_lo = t->second.lo[i];
      f.radius = t->second.radius[i];
      const Format format = format_of(got.dtype);
      const double expected = rounded(f.expected_hi, f.expected_lo, format);
      f.expected_bits = encode(expected, format);
      const double error = std::fabs((f.got - f.expected_hi) - f.expected_lo);
      f.error_ulp = error / ulp_at(f.expected_hi, format);
      f.ratio = error == 0 ? 0 : error / bound;
    }
  return f;
}

}  // namespace gdn
