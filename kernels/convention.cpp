// Conversion between the canonical tensors and those of a kernel's convention; see convention.h.
#include "kernels/convention.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <stdexcept>

#include "reference/rng.h"
#include "reference/stages.h"
#include "reference/strand.h"

namespace gdn {
namespace {

// ---- text form: one row per axis; `field` reads and writes it as an integer. ----
struct Axis {
  const char* name;
  const char* what;
  std::vector<const char*> values;
  std::vector<const char*> meanings;
  int (*get)(const Convention&);
  void (*set)(Convention&, int);
};

#define GDN_AXIS(field, type) \
  [](const Convention& c) { return static_cast<int>(c.field); }, [](Convention& c, int i) { c.field = static_cast<type>(i); }

const std::vector<Axis>& axes() {
  static const std::vector<Axis> all{
      {"layout", "order of the token tensors q k v g beta o",
       {"THD", "BTHD", "BHTD"},
       {"packed [T,H,D] with cu_seqlens (vLLM, SGLang, FlashInfer, TRT-LLM)",
        "[B,T,H,D]: B=N where all sequences are equally long, else packed with B=1 and cu_seqlens (FLA, transformers, "
        "MLX; ggml writes the same memory as [D,H,T,B])",
        "[B,H,T,D], batch as for BTHD (NVlabs, transformers inside)"},
       GDN_AXIS(layout, TensorLayout)},
      {"state", "order of a state matrix, last one contiguous",
       {"KV", "VK"},
       {"[N,HV,K,V] (FLA, transformers, ONNX, NVlabs)", "[N,HV,V,K] (vLLM and SGLang on GPUs, FlashInfer, MLX, ggml, TRT-LLM)"},
       GDN_AXIS(state, StateLayout)},
      {"gate", "what g holds",
       {"log", "linear", "log2"},
       {"natural logarithm of the decay (FLA, transformers, vLLM, ggml, ONNX)", "the decay exp(g) itself, in fp32 (FlashInfer, MLX)",
        "g / ln 2, in fp32"},
       GDN_AXIS(gate, GateDomain)},
      {"scale", "who applies the scale of q",
       {"argument", "fixed", "folded"},
       {"the kernel, as given (FLA, vLLM, FlashInfer)",
        "the kernel, always K^-1/2 (transformers, ggml); another scale reaches it as a power of two in q, where that is exact",
        "the caller, in q (MLX); only powers of two can be folded exactly"},
       GDN_AXIS(scale, ScaleHandling)},
      {"heads", "which key head value head h reads",
       {"grouped", "tiled", "repeated"},
       {"h / (HV/H) (nearly all)", "h % H (ggml)", "its own: q and k are given once per value head (NVlabs)"},
       GDN_AXIS(heads, HeadMap)},
      {"l2norm", "who normalises q and k",
       {"caller", "in_kernel"},
       {"the caller; any length is legal (ggml, ONNX, NVlabs)",
        "the kernel, always (FLA and vLLM with their flag on): judged on rows of length 1 or 0 only, given times 2^12 so "
        "that an epsilon in the norm vanishes"},
       GDN_AXIS(l2norm, L2Norm)},
      {"empty", "what ht holds for a sequence without tokens",
       {"copies_h0", "untouched"},
       {"the initial state, or zero (FLA)", "what was there before (FlashInfer)"},
       GDN_AXIS(empty, EmptySequence)},
      {"triangle", "stages gram and inverse: what a kernel leaves where L and M are 0 by definition",
       {"zero", "free"},
       {"zeros (FLA)", "anything: nobody reads it"},
       GDN_AXIS(triangle, OtherTriangle)},
      {"projections", "how the layer's input projections are handed over",
       {"separate", "packed"},
       {"w_qkv, w_z, w_a, w_b (Qwen3.5)", "per key head q k v z as one matrix, b a as another (Qwen3-Next)"},
       GDN_AXIS(projections, Projections)},
      {"history", "columns of the layer's conv_state, oldest first",
       {"W-1", "full"},
       {"W-1, all of which the next token needs (vLLM, SGLang)", "W: the oldest is never needed again (transformers)"},
       GDN_AXIS(history, History)},
      {"norm_in", "what norm_in_w, the weight of the layer's hidden norm, holds",
       {"plain", "offset"},
       {"the weight w", "w - 1: the kernel multiplies by 1 + it (Qwen3-Next, Qwen3.5); only weights of which that is exact can be handed over"},
       GDN_AXIS(norm_in, NormWeight)},
  };
  return all;
}
#undef GDN_AXIS

std::string joined(const std::vector<const char*>& words) {
  std::string text;
  for (const char* w : words) text += (text.empty() ? "" : ", ") + std::string(w);
  return text;
}

std::string_view trimmed(std::string_view s) {
  while (!s.empty() && (s.front() == ' ' || s.front() == '\t')) s.remove_prefix(1);
  while (!s.empty() && (s.back() == ' ' || s.back() == '\t')) s.remove_suffix(1);
  return s;
}

// ---- tensor surgery, by bytes, whatever the dtype ----
std::int64_t product(const std::vector<std::int64_t>& s, std::size_t from, std::size_t to) {
  return std::accumulate(s.begin() + static_cast<std::ptrdiff_t>(from), s.begin() + static_cast<std::ptrdiff_t>(to), std::int64_t{1},
                         std::multiplies<>());
}

// Exchanges two neighbouring axes.
Tensor swapped(const Tensor& t, std::size_t axis) {
  auto shape = t.shape;
  std::swap(shape[axis], shape[axis + 1]);
  Tensor r(t.dtype, shape);
  const std::int64_t outer = product(t.shape, 0, axis), a = t.shape[axis], b = t.shape[axis + 1];
  const std::size_t bytes = static_cast<std::size_t>(product(t.shape, axis + 2, t.shape.size())) * size_of(t.dtype);
  if (t.data.empty()) return r;
  for (std::int64_t o = 0; o < outer; ++o)
    for (std::int64_t i = 0; i < a; ++i)
      for (std::int64_t j = 0; j < b; ++j)
        std::memcpy(r.data.data() + static_cast<std::size_t>((o * b + j) * a + i) * bytes,
                    t.data.data() + static_cast<std::size_t>((o * a + i) * b + j) * bytes, bytes);
  return r;
}

// Slice i of the result along `axis` is slice index[i] of t.
Tensor gathered(const Tensor& t, std::size_t axis, const std::vector<std::int64_t>& index) {
  auto shape = t.shape;
  shape[axis] = static_cast<std::int64_t>(index.size());
  Tensor r(t.dtype, shape);
  const std::int64_t outer = product(t.shape, 0, axis), n = t.shape[axis];
  const std::size_t bytes = static_cast<std::size_t>(product(t.shape, axis + 1, t.shape.size())) * size_of(t.dtype);
  if (r.data.empty()) return r;
  for (std::int64_t o = 0; o < outer; ++o)
    for (std::size_t i = 0; i < index.size(); ++i)
      std::memcpy(r.data.data() + (static_cast<std::size_t>(o) * index.size() + i) * bytes,
                  t.data.data() + static_cast<std::size_t>(o * n + index[i]) * bytes, bytes);
  return r;
}

Tensor reshaped(Tensor t, std::vector<std::int64_t> shape) {
  t.shape = std::move(shape);
  return t;
}

// ---- the axes ----
// Value head of the canonical order that sits at place j of a tiled kernel: place j reads key head j % H.
std::vector<std::int64_t> tiled_order(const Problem& p) {
  const std::int64_t r = p.value_heads / p.heads;
  std::vector<std::int64_t> order(static_cast<std::size_t>(p.value_heads));
  for (std::int64_t j = 0; j < p.value_heads; ++j) order[static_cast<std::size_t>(j)] = j % p.heads * r + j / p.heads;
  return order;
}

std::vector<std::int64_t> inverse(const std::vector<std::int64_t>& order) {
  std::vector<std::int64_t> r(order.size());
  for (std::size_t i = 0; i < order.size(); ++i) r[static_cast<std::size_t>(order[i])] = static_cast<std::int64_t>(i);
  return r;
}

std::vector<std::int64_t> repeated_order(const Problem& p) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(p.value_heads));
  for (std::int64_t j = 0; j < p.value_heads; ++j) order[static_cast<std::size_t>(j)] = j / (p.value_heads / p.heads);
  return order;
}

bool batched(const Problem& p) {                   // can be written with one batch row per sequence
  return p.padding == 0 && std::all_of(p.lengths.begin(), p.lengths.end(), [&](std::int64_t n) { return n == p.lengths[0]; });
}

Tensor to_layout(const Convention& c, const Problem& p, Tensor t) {
  if (c.layout == TensorLayout::THD) return t;
  auto shape = t.shape;
  const std::int64_t B = batched(p) ? p.sequences() : 1;
  shape[0] /= B;                                   // rows, of `states` chunks, of one batch row
  shape.insert(shape.begin(), B);
  t = reshaped(std::move(t), shape);
  return c.layout == TensorLayout::BHTD ? swapped(t, 1) : t;
}

Tensor from_layout(const Convention& c, Tensor t, const std::vector<std::int64_t>& canonical) {
  if (c.layout == TensorLayout::BHTD) t = swapped(t, 1);
  return reshaped(std::move(t), canonical);
}

[[noreturn]] void cannot(const std::string& why) { throw std::invalid_argument(why); }

std::string number(double x) {
  char b[40];
  std::snprintf(b, sizeof b, "%.9g", x);
  return b;
}

bool power_of_two(double x) {
  int e;
  return x > 0 && std::frexp(x, &e) == 0.5;
}

// Elements first..last-1 of t times 2^m; every one must be exact in its dtype.
void multiply_exactly(Tensor& t, std::int64_t first, std::int64_t last, double factor, const char* name, const char* why) {
  for (std::int64_t i = first; i < last; ++i) {
    const double x = t.at(i), y = x * factor;
    if (std::isnan(x)) continue;
    t.set(i, y);
    if (t.at(i) != y) cannot(std::string(why) + ": " + name + "[" + std::to_string(i) + "]=" + number(x) + " times " + number(factor) +
                             " is not exact in " + gdn::name(t.dtype));
    // Hardware may take a subnormal input for zero, and nobody who folds a scale into q makes one.
    if (y != 0 && std::fabs(y) < 0x1p-126 && std::fabs(x) >= 0x1p-126)
      cannot(std::string(why) + ": " + name + "[" + std::to_string(i) + "]=" + number(x) + " times " + number(factor) + " is subnormal");
  }
}

// The scale that the kernel must be given, after q took what the kernel does not apply.
double scale_to_kernel(const Convention& c, const Run& run, Tensor* q) {
  const Problem& p = run.problem;
  if (c.scale == ScaleHandling::argument) return p.effective_scale();
  const double kernel = c.scale == ScaleHandling::folded ? 1.0 : static_cast<float>(1.0 / std::sqrt(static_cast<double>(p.key_dim)));
  const double factor = p.effective_scale() / kernel;
  const char* why = c.scale == ScaleHandling::folded ? "scale=folded" : "scale=fixed";
  if (factor == 1) return kernel;
  if (!power_of_two(factor))
    cannot(std::string(why) + ": scale " + number(p.effective_scale()) + " cannot be put into q exactly, its ratio to " + number(kernel) +
           " is not a power of two");
  if (c.l2norm == L2Norm::in_kernel) cannot(std::string(why) + ": a kernel that normalises q itself cannot be given a scale in q");
  if (q) multiply_exactly(*q, 0, q->size(), factor, "q", why);
  return kernel;
}

double squared_length(const Tensor& t, std::int64_t row) {
  const std::int64_t width = t.shape.back();
  double sum = 0;
  for (std::int64_t i = row * width; i < (row + 1) * width; ++i) sum += t.at(i) * t.at(i);
  return sum;
}
// Its own normalised image: length 1 (to fp32 rounding) or 0. NaN is nobody's row.
bool unit_row(double squared) { return !(squared != 0 && std::fabs(squared - 1) > 0x1p-24); }

// Rows get lengths that differ by token, head and tensor, so that a kernel that multiplies by one number in place of normalising shows; powers
// of two, and so great that an epsilon of 1e-6 beside the squared length rounds away even in double, where the dtype has the range.
void normalised_rows(Tensor& t, const char* name) {
  const std::int64_t width = t.shape.back();
  for (std::int64_t r = 0; r < t.size() / width; ++r) {
    const double sum = squared_length(t, r);
    if (!unit_row(sum))
      cannot("l2norm=in_kernel: row " + std::to_string(r) + " of " + name + " has squared length " + number(sum) +
             ", and the truth is that of the given " + name);
    double peak = 0;
    for (std::int64_t i = r * width; i < (r + 1) * width; ++i) peak = std::max(peak, std::fabs(t.at(i)));
    if (!(peak > 0)) continue;
    const int drawn = static_cast<int>(philox(0, hash_name(name), static_cast<std::uint64_t>(r)) % 4);
    const int exponent = t.dtype == DType::f16 ? 14 - std::ilogb(peak) - drawn : 18 + drawn;
    multiply_exactly(t, r * width, (r + 1) * width, std::ldexp(1.0, exponent), name, "l2norm=in_kernel");
  }
}

// ---- the layer
// Rows of the packed matrices that hold row i of [w_qkv; w_z] and of [w_a; w_b].
std::vector<std::int64_t> packed_rows(const Problem& p, bool gates) {
  const std::int64_t K = p.key_dim, r = p.value_heads / p.heads, rV = r * p.value_dim, H = p.heads;
  std::vector<std::int64_t> rows;
  const auto add = [&](std::int64_t group, std::int64_t from, std::int64_t count) {
    for (std::int64_t h = 0; h < H; ++h)
      for (std::int64_t i = 0; i < count; ++i) rows.push_back(h * group + from + i);
  };
  if (gates) {
    add(2 * r, r, r);                              // a after b
    add(2 * r, 0, r);
    return rows;
  }
  const std::int64_t group = 2 * K + 2 * rV;
  add(group, 0, K);
  add(group, K, K);
  add(group, 2 * K, rV);
  add(group, 2 * K + rV, rV);
  return rows;
}

Tensor stacked(const Tensor& a, const Tensor& b) {
  Tensor t(a.dtype, {a.shape[0] + b.shape[0], a.shape[1]});
  std::copy(a.data.begin(), a.data.end(), t.data.begin());
  std::copy(b.data.begin(), b.data.end(), t.data.begin() + static_cast<std::ptrdiff_t>(a.data.size()));
  return t;
}

void layer_to_kernel(const Convention& c, const Problem& p, TensorSet& in) {
  if (c.heads != HeadMap::grouped) cannot("the layer is handed over with heads=grouped only");
  if (c.scale == ScaleHandling::folded) cannot("scale=folded: the layer makes q itself");
  if (c.layout == TensorLayout::BHTD) cannot("layout=BHTD: x and y of the layer have no heads");
  if (c.projections == Projections::packed) {
    in["w_qkv"] = gathered(stacked(in.at("w_qkv"), in.at("w_z")), 0, inverse(packed_rows(p, false)));
    in["w_b"] = gathered(stacked(in.at("w_a"), in.at("w_b")), 0, inverse(packed_rows(p, true)));
    in.erase("w_z");
    in.erase("w_a");
  }
  if (c.history == History::full) {
    Tensor& t = in.at("conv_state");
    Tensor full(t.dtype, {t.shape[0], t.shape[1], t.shape[2] + 1});
    for (std::int64_t row = 0; row < t.shape[0] * t.shape[1]; ++row) {
      full.set(row * full.shape[2], std::nan(""));           // the oldest column: nobody may use it
      for (std::int64_t i = 0; i < t.shape[2]; ++i) full.set_bits(row * full.shape[2] + 1 + i, t.bits(row * t.shape[2] + i));
    }
    t = std::move(full);
  }
  if (c.norm_in == NormWeight::offset) {
    Tensor& w = in.at("norm_in_w");
    for (std::int64_t i = 0; i < w.size(); ++i) {
      const double x = w.at(i);
      w.set(i, x - 1);
      if (w.at(i) + 1 != x) cannot("norm_in=offset: norm_in_w[" + std::to_string(i) + "]=" + number(x) + " less 1 is not exact in " + gdn::name(w.dtype));
    }
  }
  in["x"] = to_layout(c, p, std::move(in["x"]));
  if (const auto h0 = in.find("h0"); h0 != in.end() && c.state == StateLayout::VK) h0->second = swapped(h0->second, 2);
}

Tensor state_to_kernel(const Convention& c, const Problem& p, Tensor t) {
  if (c.heads == HeadMap::tiled) t = gathered(t, 1, tiled_order(p));
  return c.state == StateLayout::VK ? swapped(t, 2) : t;
}

}  // namespace

Convention parse_convention(std::string_view text) {
  Convention c;
  while (!trimmed(text).empty()) {
    const auto semicolon = text.find(';');
    const std::string_view item = trimmed(text.substr(0, semicolon));
    text = semicolon == std::string_view::npos ? std::string_view{} : text.substr(semicolon + 1);
    if (item.empty()) continue;
    const auto equals = item.find('=');
    const std::string_view key = trimmed(item.substr(0, equals));
    const std::string_view value = equals == std::string_view::npos ? std::string_view{} : trimmed(item.substr(equals + 1));
    const auto axis = std::find_if(axes().begin(), axes().end(), [&](const Axis& a) { return key == a.name; });
    if (axis == axes().end()) {
      std::vector<const char*> names;
      for (const Axis& a : axes()) names.push_back(a.name);
      cannot("unknown convention axis '" + std::string(key) + "' (axes: " + joined(names) + ")");
    }
    const auto at = std::find_if(axis->values.begin(), axis->values.end(), [&](const char* v) { return value == v; });
    if (at == axis->values.end())
      cannot("convention axis '" + std::string(key) + "' has no value '" + std::string(value) + "' (values: " + joined(axis->values) + ")");
    axis->set(c, static_cast<int>(at - axis->values.begin()));
  }
  return c;
}

std::string to_string(const Convention& c) {
  const Convention canonical;
  std::string text;
  for (const Axis& a : axes())
    if (a.get(c) != a.get(canonical))
      text += (text.empty() ? "" : ";") + std::string(a.name) + "=" + a.values[static_cast<std::size_t>(a.get(c))];
  return text;
}

std::string describe_conventions() {
  std::string text;
  for (const Axis& a : axes()) {
    text += std::string(a.name) + ": " + a.what + "\n";
    for (std::size_t i = 0; i < a.values.size(); ++i)
      text += std::string("  ") + a.name + "=" + a.values[i] + (i == 0 ? " (canonical)" : "") + "  " + a.meanings[i] + "\n";
  }
  return text;
}

bool has_unit_rows(const Run& run) {
  for (const char* name : {"q", "k"})
    if (const auto t = run.inputs.find(name); t != run.inputs.end())
      for (std::int64_t r = 0; r < t->second.size() / t->second.shape.back(); ++r)
        if (!unit_row(squared_length(t->second, r))) return false;
  return true;
}

bool takes_scale(const Convention& c, const Run& run) {
  const auto q = run.inputs.find("q");
  if (c.scale == ScaleHandling::argument || run.problem.operation == Operation::stages || q == run.inputs.end()) return true;
  try {
    Tensor scaled = q->second;
    scale_to_kernel(c, run, &scaled);
    return true;
  } catch (const std::invalid_argument&) {
    return false;
  }
}

double kernel_scale(const Convention& c, const Run& run) {
  if (run.problem.operation == Operation::stages && run.problem.stage != Stage::output) return run.problem.effective_scale();   // nobody asks
  return scale_to_kernel(c, run, nullptr);
}

std::int64_t kernel_heads(const Convention& c, const Problem& p) {
  return c.heads == HeadMap::repeated ? p.value_heads : p.heads;
}

TensorSet to_kernel(const Convention& c, const Run& run) {
  const Problem& p = run.problem;
  TensorSet in = run.inputs;
  if (p.layer()) layer_to_kernel(c, p, in);
  const bool stages = p.operation == Operation::stages;
  if (stages && c.gate != GateDomain::log) cannot("stages exchange gates and their sums as natural logarithms, the convention says another");
  for (const char* name : {"q", "k"})
    if (const auto t = in.find(name); t != in.end() && !stages && c.l2norm == L2Norm::in_kernel) normalised_rows(t->second, name);
  if (const auto q = in.find("q"); q != in.end()) scale_to_kernel(c, run, &q->second);
  if (const auto g = in.find("g"); g != in.end() && c.gate != GateDomain::log) {
    Tensor converted(DType::f32, g->second.shape);
    for (std::int64_t i = 0; i < converted.size(); ++i) {
      const double x = g->second.at(i);
      converted.set(i, c.gate == GateDomain::linear ? std::exp(x) : x * 1.4426950408889634);  // log2(e)
    }
    g->second = std::move(converted);
  }
  for (auto& [name, t] : in) {
    const bool key_side = name == "q" || name == "k";
    if (p.layer()) break;                          // done
    const bool of_stage = stages && name != "cu_seqlens" && name != "h0" && !key_side;
    const bool value_side = name == "v" || name == "g" || name == "angle" || name == "beta" || name == "a" || name == "do" || of_stage;
    if (key_side && c.heads == HeadMap::repeated) t = gathered(t, 1, repeated_order(p));
    if (value_side && c.heads == HeadMap::tiled) t = gathered(t, 1, tiled_order(p));
    if ((name == "A_log" || name == "dt_bias") && c.heads == HeadMap::tiled) t = gathered(t, 0, tiled_order(p));
    if (stages && name == "states" && c.state == StateLayout::VK) t = swapped(t, 2);
    if (key_side || value_side) t = to_layout(c, p, std::move(t));
    if (name == "h0" || name == "dht" || name == "snapshots") t = state_to_kernel(c, p, std::move(t));
  }
  if (const auto cu = in.find("cu_seqlens"); cu != in.end() && p.short_offsets) {
    Tensor narrow(DType::i32, cu->second.shape);
    for (std::int64_t i = 0; i < narrow.size(); ++i) narrow.set_bits(i, cu->second.bits(i));
    cu->second = std::move(narrow);
  }
  if (c.layout != TensorLayout::THD && batched(p)) in.erase("cu_seqlens");
  return in;
}

TensorSet output_shapes(const Convention& c, const Run& run) {
  const Problem& p = run.problem;
  TensorSet out;
  if (p.layer()) {
    for (const StageTensor& s : own_outputs(p)) {
      Tensor t(s.dtype, s.shape);
      const std::string_view name = s.name;
      if (name == "ht" && c.state == StateLayout::VK) std::swap(t.shape[2], t.shape[3]);
      if (name == "conv_state" && c.history == History::full) t = Tensor(s.dtype, {s.shape[0], s.shape[1], s.shape[2] + 1});
      out.emplace(s.name, name == "y" ? to_layout(c, p, std::move(t)) : std::move(t));
    }
    return out;
  }
  if (p.operation == Operation::stages) {
    for (const StageTensor& s : stage_outputs(p)) {
      Tensor t(s.dtype, s.shape);
      if (t.shape.size() == 4 && c.state == StateLayout::VK) t = swapped(t, 2);
      out.emplace(s.name, std::string_view(s.name) == "ht" ? std::move(t) : to_layout(c, p, std::move(t)));
    }
    return out;
  }
  out.emplace("o", to_layout(c, p, Tensor(p.io, {p.tokens() + p.padding, p.value_heads, p.value_dim})));
  const auto state = [&](const char* name, std::int64_t rows) {
    std::vector<std::int64_t> shape{rows, p.value_heads, p.key_dim, p.value_dim};
    if (c.state == StateLayout::VK) std::swap(shape[2], shape[3]);
    out.emplace(name, Tensor(p.state, std::move(shape)));
  };
  if (p.final_state) state("ht", p.states());
  if (p.operation == Operation::verify) state("snapshots", p.tokens());
  return out;
}

TensorSet from_kernel(const Convention& c, const Run& run, TensorSet outputs) {
  const Problem& p = run.problem;
  const auto back = inverse(tiled_order(p));
  if (p.layer()) {
    if (const auto y = outputs.find("y"); y != outputs.end()) y->second = from_layout(c, std::move(y->second), {p.tokens() + p.padding, p.hidden});
    if (const auto t = outputs.find("conv_state"); t != outputs.end() && c.history == History::full) {
      std::vector<std::int64_t> kept(static_cast<std::size_t>(p.conv - 1));
      std::iota(kept.begin(), kept.end(), std::int64_t{1});
      t->second = gathered(t->second, 2, kept);
    }
  }
  if (p.operation == Operation::stages)
    for (const StageTensor& s : stage_outputs(p)) {
      const auto found = outputs.find(std::string_view(s.name));
      if (found == outputs.end() || std::string_view(s.name) == "ht" || std::string_view(s.name) == "o") continue;   // as elsewhere
      Tensor& t = found->second;
      auto shape = s.shape;
      if (shape.size() == 4 && c.state == StateLayout::VK) std::swap(shape[2], shape[3]);
      t = from_layout(c, std::move(t), shape);
      if (shape.size() == 4 && c.state == StateLayout::VK) t = swapped(t, 2);
      if (c.heads == HeadMap::tiled) t = gathered(t, 1, back);
      for (std::int64_t i = 0; c.triangle == OtherTriangle::free && i < t.size(); ++i)
        if (const auto x = by_definition(p, s.name, i)) t.set(i, *x);
    }
  if (const auto o = outputs.find("o"); o != outputs.end()) {
    o->second = from_layout(c, std::move(o->second), {p.tokens() + p.padding, p.value_heads, p.value_dim});
    if (c.heads == HeadMap::tiled) o->second = gathered(o->second, 1, back);
  }
  for (const char* name : {"ht", "snapshots"}) {
    const auto state = outputs.find(name);
    if (state == outputs.end()) continue;
    Tensor& t = state->second;
    if (c.state == StateLayout::VK) t = swapped(t, 2);
    if (c.heads == HeadMap::tiled) t = gathered(t, 1, back);
    if (c.empty == EmptySequence::untouched && !p.pool()) {
      const std::size_t bytes = t.data.size() / static_cast<std::size_t>(p.sequences());
      const auto h0 = run.inputs.find("h0");
      for (std::size_t n = 0; n < p.lengths.size(); ++n) {
        if (p.lengths[n] != 0) continue;
        if (h0 != run.inputs.end())
          std::memcpy(t.data.data() + n * bytes, h0->second.data.data() + n * bytes, bytes);
        else
          std::memset(t.data.data() + n * bytes, 0, bytes);
      }
    }
  }
  return outputs;
}

std::vector<ConventionChange> neighbours(const Convention& c) {
  std::vector<ConventionChange> all;
  for (const Axis& a : axes())
    for (std::size_t i = 0; i < a.values.size(); ++i) {
      if (static_cast<int>(i) == a.get(c)) continue;
      Convention other = c;
      a.set(other, static_cast<int>(i));
      all.push_back({other, std::string(a.name) + "=" + a.values[i], a.meanings[i]});
    }
  return all;
}

Run mistaken_run(const Convention& declared, const Convention& real, const Run& run) {
  const Problem& p = run.problem;
  if (declared.heads != real.heads && (declared.heads == HeadMap::repeated || real.heads == HeadMap::repeated)) cannot("q and k have another number of heads");
  if (declared.projections != real.projections || declared.history != real.history || declared.norm_in != real.norm_in) cannot("projections, history and norm_in are the layer's");
  if (declared.empty != real.empty) cannot("empty= is about one element of ht, and no mistake of the whole run");
  const TensorSet given = to_kernel(declared, run);
  Run fact = run;
  for (auto& [name, t] : fact.inputs) {
    const auto at = given.find(name);
    if (at == given.end() || name == "cu_seqlens") continue;
    const bool key_side = name == "q" || name == "k";
    const bool value_side = name == "v" || name == "g" || name == "angle" || name == "beta" || name == "a";
    const bool state = name == "h0" || name == "snapshots";
    if (!key_side && !value_side && !state) continue;
    Tensor seen = at->second;
    if (key_side && real.heads == HeadMap::repeated) cannot("q and k have another number of heads");
    std::vector<std::int64_t> shape = t.shape;
    if (state) {
      if (real.state == StateLayout::VK) std::swap(shape[2], shape[3]);
      seen = reshaped(std::move(seen), shape);
      if (real.state == StateLayout::VK) seen = swapped(seen, 2);
      if (real.heads == HeadMap::tiled) seen = gathered(seen, 1, inverse(tiled_order(p)));
    } else {
      seen = from_layout(real, reshaped(std::move(seen), to_layout(real, p, t).shape), t.shape);
      if (value_side && real.heads == HeadMap::tiled) seen = gathered(seen, 1, inverse(tiled_order(p)));
    }
    if (name == "g")
      for (std::int64_t i = 0; i < seen.size() && real.gate != GateDomain::log; ++i) {
        const double x = seen.at(i);
        if (real.gate == GateDomain::linear && x < 0) cannot("a decay below 0");
        seen.set(i, real.gate == GateDomain::linear ? std::log(x) : x * 0.69314718055994531);
      }
    if (key_side && real.l2norm == L2Norm::in_kernel) {
      Tensor unit(DType::f32, seen.shape);
      const std::int64_t width = seen.shape.back();
      for (std::int64_t r = 0; r < seen.size() / width; ++r) {
        double sum = 0;
        for (std::int64_t i = 0; i < width; ++i) sum += seen.at(r * width + i) * seen.at(r * width + i);
        for (std::int64_t i = 0; i < width && sum > 0; ++i) unit.set(r * width + i, seen.at(r * width + i) / std::sqrt(sum));
      }
      seen = std::move(unit);
    }
    t = std::move(seen);
  }
  const double told = kernel_scale(declared, run);
  fact.problem.scale = real.scale == ScaleHandling::argument ? told : real.scale == ScaleHandling::folded ? 1.0 : 1.0 / std::sqrt(static_cast<double>(p.key_dim));
  return fact;
}

TensorSet mistaken_outputs(const Convention& declared, const Convention& real, const Run& run, TensorSet outputs) {
  const TensorSet shapes = output_shapes(declared, run);
  for (auto& [name, t] : outputs) {
    const auto shape = shapes.find(name);
    if (shape == shapes.end()) continue;
    if (name == "o") {
      if (real.heads == HeadMap::tiled) t = gathered(t, 1, tiled_order(run.problem));
      t = to_layout(real, run.problem, std::move(t));
    } else {
      t = state_to_kernel(real, run.problem, std::move(t));
    }
    t = reshaped(std::move(t), shape->second.shape);
  }
  return from_kernel(declared, run, std::move(outputs));
}

}  // namespace gdn
