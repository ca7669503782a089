// Which elements may be judged; see standing.h.
#include "suites/standing.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <stdexcept>

#include "reference/stage_bound.h"
#include "reference/strand.h"

namespace gdn {
namespace {
using I = std::int64_t;

bool legal_gate(double g) { return g <= std::numeric_limits<double>::max(); }  // -inf is a reset; NaN and +inf are not gates
}  // namespace

Standings standings(const Run& run, const KernelInfo& kernel) {
  const Problem& p = run.problem;
  const I HV = p.value_heads, V = p.value_dim, K = p.key_dim, r = HV / p.heads;
  Standings s;
  if (own_tensors(p)) {                            // all but the rows past the last sequence
    for (const StageTensor& o : own_outputs(p)) {
      I row = 1;
      for (std::size_t d = 1; d < o.shape.size(); ++d) row *= o.shape[d];
      std::vector<Standing>& all = s.stage[o.name];
      all.assign(static_cast<std::size_t>(row * o.shape[0]), Standing::judged);
      if (o.shape[0] == p.tokens() + p.padding && o.shape.size() < 4 && std::string_view(o.name) != "conv_state") std::fill(all.begin() + row * p.tokens(), all.end(), Standing::unowned);
      for (std::size_t n = 0; std::string_view(o.name) == "ht" && kernel.convention.empty == EmptySequence::untouched && n < p.lengths.size(); ++n)
        if (p.lengths[n] == 0) std::fill_n(all.begin() + static_cast<I>(n) * row, row, Standing::unowned);
    }
    return s;
  }
  const std::vector<Strand> all = strands(run);
  s.o.assign(static_cast<std::size_t>((p.tokens() + p.padding) * HV * V), Standing::unowned);
  if (p.final_state) s.ht.assign(static_cast<std::size_t>(p.states() * HV * K * V), Standing::unowned);
  if (p.operation == Operation::verify) s.snapshots.assign(static_cast<std::size_t>(p.tokens() * HV * K * V), Standing::unowned);
  auto states = [&](const Strand& strand) -> std::vector<Standing>& { return strand.state[0] == 'h' ? s.ht : s.snapshots; };
  for (const Strand& strand : all) {
    for (std::size_t t = static_cast<std::size_t>(strand.outputs); t < strand.rows.size(); ++t)
      std::fill_n(s.o.begin() + strand.rows[t] * HV * V, HV * V, Standing::judged);
    const bool kept = strand.idle || (strand.rows.empty() && kernel.convention.empty == EmptySequence::untouched && !p.pool());
    if (*strand.state && !kept) std::fill_n(states(strand).begin() + strand.state_row * HV * K * V, HV * K * V, Standing::judged);
  }

  // Taint tokens [from,to) of a strand, head hv, channels [c0,c1), and that part of the final state.
  auto taint = [&](const Strand& strand, I hv, I from, I to, I c0, I c1, bool state) {
    for (I t = std::max(from, strand.outputs); t < to; ++t)
      for (I c = c0; c < c1; ++c) s.o[static_cast<std::size_t>((strand.rows[static_cast<std::size_t>(t)] * HV + hv) * V + c)] = Standing::tainted;
    if (!state || !*strand.state) return;
    for (I d = 0; d < K; ++d)
      for (I c = c0; c < c1; ++c) {
        Standing& e = states(strand)[static_cast<std::size_t>(((strand.state_row * HV + hv) * K + d) * V + c)];
        if (e == Standing::judged) e = Standing::tainted;
      }
  };
  // Where a kernel multiplies by its mask, a non-finite row reaches the rows before it in its chunk.
  auto reach = [&](const Strand& strand, I t) {
    if (kernel.properties.masks_select || kernel.contract.form == Form::recurrent) return t;
    I start = 0;
    for (const I cut : strand.cuts)
      if (cut <= t) start = cut;
    return t - (t - start) % std::max(kernel.contract.chunk, 1);
  };
  auto finite = [](double x) { return std::isfinite(x); };
  auto each = [&](const char* name, I width, auto&& legal, auto&& f) {   // f(strand, token, last token, column)
    const auto it = run.inputs.find(name);
    if (it == run.inputs.end()) return;
    for (const Strand& strand : all)
      for (std::size_t t = 0; t < strand.rows.size(); ++t)
        for (I c = 0; c < width; ++c)
          if (!legal(it->second.at(strand.rows[t] * width + c))) f(strand, static_cast<I>(t), static_cast<I>(strand.rows.size()), c);
  };
  each("v", HV * V, finite, [&](const Strand& n, I t, I end, I c) { taint(n, c / V, reach(n, t), end, c % V, c % V + 1, true); });
  each("k", p.heads * K, finite, [&](const Strand& n, I t, I end, I c) {
    for (I j = 0; j < r; ++j) taint(n, c / K * r + j, reach(n, t), end, 0, V, true);
  });
  each("q", p.heads * K, finite, [&](const Strand& n, I t, I, I c) {
    for (I j = 0; j < r; ++j) taint(n, c / K * r + j, t, t + 1, 0, V, false);
  });
  const I gw = p.gate_width();
  each("g", HV * gw, legal_gate, [&](const Strand& n, I t, I end, I c) { taint(n, c / gw, reach(n, t), end, 0, V, true); });
  each("angle", HV * gw, finite, [&](const Strand& n, I t, I end, I c) { taint(n, c / gw, reach(n, t), end, 0, V, true); });
  each("a", HV, finite, [&](const Strand& n, I t, I end, I c) { taint(n, c, reach(n, t), end, 0, V, true); });
  each("beta", HV, finite, [&](const Strand& n, I t, I end, I c) { taint(n, c, reach(n, t), end, 0, V, true); });
  if (const auto h0 = run.inputs.find("h0"); h0 != run.inputs.end())
    for (const Strand& strand : all)
      for (I i = 0; strand.start >= 0 && i < HV * K * V; ++i)
        if (!finite(h0->second.at(strand.start * HV * K * V + i)))
          taint(strand, i / (K * V), 0, static_cast<I>(strand.rows.size()), i % V, i % V + 1, true);
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
  // A value stored on the way may have left its format's range: infinity, and what comes of two of them.
  if (bound == std::numeric_limits<double>::infinity()) return !std::isfinite(got);
  const double widened = (got < 0 ? -hi : hi) + bound + radius;
  if (std::isnan(got)) return !info(f).has_infinity && std::fabs(hi) + bound + radius > info(f).max_finite;
  return std::isinf(got) && widened > info(f).max_finite;
}

Format overflow_format(const CheckInput& in, std::size_t run, std::string_view tensor) {
  const Contract c = in.bounds.contract(run);
  const Problem& p = in.golden.the_case.runs[run].problem;
  if (p.operation == Operation::stages) return stage_stores(c, p, tensor).back().format;
  if (tensor == "conv_state") return c.at(LayerPoint::conv_state).format;
  return c.at(tensor == "ht" ? Point::ht : Point::out).format;
}

double bound_of(const CheckInput& in, std::size_t run, std::string_view tensor, std::int64_t e) {
  return in.bounds.of_run(run).of(tensor)[static_cast<std::size_t>(e)];
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
