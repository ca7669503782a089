// Recorded inputs to canonical cases; see import.h.
#include "golden/import.h"

#include <cmath>

#include "golden/foreign.h"
#include "golden/sha256.h"

namespace gdn {
namespace fs = std::filesystem;
namespace {

using Shape = std::vector<std::int64_t>;

struct Importer {
  const fs::path& file;
  const ImportOptions& o;
  TensorSet recorded{};
  std::optional<double> recorded_scale{};
  Imported out{};

  std::string where(const std::string& name) const { return file.string() + ": dataset " + (o.group == "/" ? "" : o.group) + "/" + name; }
  [[noreturn]] void bad(const std::string& name, const std::string& what) const { throw BadInput(where(name) + ": " + what); }

  const Tensor& get(const std::string& name) const {
    const auto at = recorded.find(name);
    if (at == recorded.end()) bad(name, "missing");
    return at->second;
  }

  static std::string at_text(const Shape& shape, std::int64_t i) {
    Shape at(shape.size());
    for (std::size_t d = shape.size(); d-- > 0; i /= shape[d]) at[d] = i % shape[d];
    return shape_text(at);
  }

  // To `want`, in place, or refused with the element.
  void to(const std::string& name, DType want) {
    Tensor& t = recorded.find(name)->second;
    try {
      t = coerce(t, want);
    } catch (const std::invalid_argument& e) {
      bad(name, e.what());
    }
  }

  template <class Good>
  void require(const std::string& name, Good good, const char* rule) const {
    const Tensor& t = get(name);
    for (std::int64_t i = 0, n = t.size(); i < n; ++i)
      if (!good(t.at(i))) {
        char number[40];
        std::snprintf(number, sizeof number, "%.9g", t.at(i));
        bad(name, "element " + at_text(t.shape, i) + " is " + number + ", but " + rule);
      }
  }

  // Token axis and head axis of a tensor [..token and head axes.., tail], as the layout has them.
  struct Axes { std::int64_t batch, rows, heads; };
  Axes axes(const std::string& name, std::size_t tail) const {
    const Shape& s = get(name).shape;
    const bool packed = o.layout == RecordedLayout::THD;
    const std::size_t rank = (packed ? 2 : 3) + tail;
    const char* want[] = {"[T,H,D]", "[B,T,H,D]", "[B,H,T,D]"};
    if (s.size() != rank)
      bad(name, "shape " + shape_text(s) + " has " + std::to_string(s.size()) + " axes, but layout " + want[static_cast<int>(o.layout)] + " needs " + std::to_string(rank));
    if (packed) return {1, s[0], s[1]};
    if (o.layout == RecordedLayout::BTHD) return {s[0], s[1], s[2]};
    return {s[0], s[2], s[1]};
  }

  // Canonical [B*T, heads, width]: head `to` comes from recorded head from(to).
  template <class From>
  Tensor packed(const std::string& name, const Axes& a, std::int64_t heads, std::int64_t width, bool tail, From from) const {
    const Tensor& t = get(name);
    Shape shape{a.batch * a.rows, heads};
    if (tail) shape.push_back(width);
    Tensor x(t.dtype, shape);
    const std::size_t bytes = size_of(t.dtype) * static_cast<std::size_t>(width);
    for (std::int64_t b = 0; b < a.batch; ++b)
      for (std::int64_t r = 0; r < a.rows; ++r)
        for (std::int64_t h = 0; h < heads; ++h) {
          const std::int64_t s = from(h);
          const std::int64_t source = o.layout == RecordedLayout::BHTD ? (b * a.heads + s) * a.rows + r : (b * a.rows + r) * a.heads + s;
          std::copy_n(t.data.data() + static_cast<std::size_t>(source) * bytes, bytes, x.data.data() + static_cast<std::size_t>((b * a.rows + r) * heads + h) * bytes);
        }
    return x;
  }

  void same_axes(const std::string& name, const Axes& a, const Axes& want, bool heads_too) const {
    if (a.batch != want.batch || a.rows != want.rows || (heads_too && a.heads != want.heads))
      bad(name, "shape " + shape_text(get(name).shape) + " does not go with " + (heads_too ? "v " + shape_text(get("v").shape) : "q " + shape_text(get("q").shape)));
  }

  // Largest number of consecutive heads that are equal in q and in k.
  std::int64_t repeats(const Axes& a, std::int64_t K) const {
    const auto equal = [&](const std::string& name, std::int64_t r) {
      const Tensor& t = get(name);
      const std::size_t bytes = size_of(t.dtype) * static_cast<std::size_t>(K);
      const auto row = [&](std::int64_t b, std::int64_t token, std::int64_t h) {
        const std::int64_t i = o.layout == RecordedLayout::BHTD ? (b * a.heads + h) * a.rows + token : (b * a.rows + token) * a.heads + h;
        return t.data.data() + static_cast<std::size_t>(i) * bytes;
      };
      for (std::int64_t b = 0; b < a.batch; ++b)
        for (std::int64_t token = 0; token < a.rows; ++token)
          for (std::int64_t h = 0; h < a.heads; ++h)
            if (!std::equal(row(b, token, h), row(b, token, h) + bytes, row(b, token, h - h % r))) return false;
      return true;
    };
    for (std::int64_t r = a.heads; r > 1; --r)
      if (a.heads % r == 0 && equal("q", r) && equal("k", r)) return r;
    return 1;
  }

  void gates() {
    const DType stored = get("g").dtype;
    to("g", o.gate == RecordedGate::log && is_floating(stored) && stored != DType::f64 ? stored : DType::f32);
    if (o.gate == RecordedGate::log) return require("g", [](double x) { return x <= 0; }, "a natural-log gate is in -inf..0");
    const bool linear = o.gate == RecordedGate::linear;
    if (linear) require("g", [](double x) { return x >= 0 && x <= 1; }, "a linear gate is in 0..1");
    else require("g", [](double x) { return x <= 0; }, "a base-2 gate is in -inf..0");
    Tensor& g = recorded.find("g")->second;
    for (std::int64_t i = 0, n = g.size(); i < n; ++i) {
      const double x = g.at(i);
      const double natural = linear ? std::log(x) : x * 0.693147180559945309417;   // exact at 1 and 0, 0 and -inf
      const bool exact = linear ? x == 0 || x == 1 : x == 0 || std::isinf(x);
      if (!exact && !o.nearest_gates) {
        char number[40];
        std::snprintf(number, sizeof number, "%.9g", x);
        bad("g", "element " + at_text(g.shape, i) + " is " + number + ", whose natural logarithm is no fp32 number; allow the nearest one (nearest gates), or record natural-log gates");
      }
      g.set(i, exact && natural == 0 ? 0.0 : natural);
    }
    if (o.nearest_gates) out.notes.push_back("g: nearest fp32 natural logarithm of the recorded gates; the golden is the truth of the gates it stores");
  }

  void run() {
    Foreign f = read_foreign(file, o.group);
    recorded = std::move(f.tensors);
    recorded_scale = f.scale;
    for (const char* name : {"q", "k", "v", "g", "beta"}) get(name);

    // Values, in recorded coordinates.
    for (const char* name : {"q", "k", "v"}) {
      if (o.io) to(name, *o.io);
      else if (!is_floating(get(name).dtype) || get(name).dtype == DType::f64) to(name, DType::f32);
    }
    if (get("q").dtype != get("v").dtype || get("k").dtype != get("v").dtype)
      for (const char* name : {"q", "k", "v"}) to(name, DType::f32);
    if (!is_floating(get("beta").dtype) || get("beta").dtype == DType::f64) to("beta", DType::f32);
    const bool h0 = recorded.count("h0") > 0;
    if (h0 && (!is_floating(get("h0").dtype) || get("h0").dtype == DType::f64)) to("h0", DType::f32);
    for (const char* name : {"q", "k", "v"}) require(name, [](double x) { return std::isfinite(x); }, "recorded inputs must be finite");
    if (h0) require("h0", [](double x) { return std::isfinite(x); }, "recorded inputs must be finite");
    require("beta", [](double x) { return x >= 0 && x <= 2; }, "beta is in 0..2");
    gates();

    // Shapes.
    const Axes q = axes("q", 1), v = axes("v", 1);
    const std::int64_t K = get("q").shape.back(), V = get("v").shape.back(), HV = v.heads;
    if (get("k").shape != get("q").shape) bad("k", "shape " + shape_text(get("k").shape) + " differs from q " + shape_text(get("q").shape));
    same_axes("v", v, q, false);
    if (q.heads < 1 || HV < 1 || K < 1 || V < 1 || q.batch < 1) bad("q", "shape " + shape_text(get("q").shape) + " has an axis of length 0");
    if (o.heads == RecordedHeads::repeated && q.heads != HV)
      bad("q", "has " + std::to_string(q.heads) + " heads, but with heads=repeated it needs those of v, " + std::to_string(HV));
    const std::int64_t group = o.heads == RecordedHeads::repeated ? repeats(q, K) : 1;
    const std::int64_t H = q.heads / group, ratio = HV / H;
    if (HV % H) bad("v", "has " + std::to_string(HV) + " heads, not a multiple of the " + std::to_string(H) + " of q");
    const bool kda = get("g").shape.size() == (o.layout == RecordedLayout::THD ? 3u : 4u);
    const Axes g = axes("g", kda ? 1 : 0), beta = axes("beta", 0);
    same_axes("g", g, v, true);
    same_axes("beta", beta, v, true);
    if (kda && get("g").shape.back() != K) bad("g", "shape " + shape_text(get("g").shape) + " has a last axis other than K = " + std::to_string(K));

    Problem p;
    p.io = get("q").dtype;
    p.gate = get("g").dtype;
    p.beta = get("beta").dtype;
    p.heads = H;
    p.value_heads = HV;
    p.key_dim = K;
    p.value_dim = V;
    if (kda) p.rule = Rule::kda;
    sequences(p, q);
    scale(p);
    if (h0) {
      p.initial_state = true;
      p.state = get("h0").dtype;
      const bool vk = o.state == RecordedState::VK;
      const Shape want{p.sequences(), HV, vk ? V : K, vk ? K : V};
      if (get("h0").shape != want) bad("h0", "shape " + shape_text(get("h0").shape) + ", but state " + (vk ? "[N,HV,V,K]" : "[N,HV,K,V]") + " is " + shape_text(want));
    }
    try {
      validate(p);
    } catch (const std::invalid_argument& e) {
      throw BadInput(file.string() + ": " + e.what());
    }

    // Canonical layout. Tiled: value head h reads key head h % H, so those of one key head are brought together.
    const auto value_head = [&](std::int64_t h) { return o.heads == RecordedHeads::tiled ? (h % ratio) * H + h / ratio : h; };
    const auto key_head = [&](std::int64_t h) { return h * group; };
    Run r{"base", p, {}, true};
    r.inputs["q"] = packed("q", q, H, K, true, key_head);
    r.inputs["k"] = packed("k", q, H, K, true, key_head);
    r.inputs["v"] = packed("v", v, HV, V, true, value_head);
    r.inputs["g"] = packed("g", g, HV, kda ? K : 1, kda, value_head);
    r.inputs["beta"] = packed("beta", beta, HV, 1, false, value_head);
    if (h0) r.inputs["h0"] = state(p, value_head);
    Tensor cu(DType::i64, {p.sequences() + 1});
    const auto offsets = p.offsets();
    for (std::size_t i = 0; i < offsets.size(); ++i) cu.set_bits(static_cast<std::int64_t>(i), static_cast<std::uint64_t>(offsets[i]));
    r.inputs["cu_seqlens"] = std::move(cu);
    finish(std::move(r));
  }

  void sequences(Problem& p, const Axes& q) const {
    if (!recorded.count("cu_seqlens")) {
      p.lengths.assign(static_cast<std::size_t>(q.batch), q.rows);
      return;
    }
    const Tensor& cu = get("cu_seqlens");
    if (is_floating(cu.dtype)) bad("cu_seqlens", std::string("is ") + name(cu.dtype) + ", not int32 or int64");
    if (cu.shape.size() != 1 || cu.size() < 2) bad("cu_seqlens", "shape " + shape_text(cu.shape) + ", but it needs N + 1 offsets");
    if (q.batch != 1) bad("cu_seqlens", "packed sequences need a batch of 1, but q has " + std::to_string(q.batch));
    p.lengths.clear();
    for (std::int64_t i = 0; i < cu.size(); ++i) {
      const std::int64_t x = cu.int_at(i), before = i ? cu.int_at(i - 1) : 0;
      if ((i == 0 && x != 0) || x < before || x > q.rows)
        bad("cu_seqlens", "element [" + std::to_string(i) + "] is " + std::to_string(x) + ": offsets start at 0, do not decrease and end within the " + std::to_string(q.rows) + " tokens");
      if (i) p.lengths.push_back(x - before);
    }
    p.padding = q.rows - cu.int_at(cu.size() - 1);
  }

  // The default scale may have been recorded as a double: K^-1/2 rounds to it. Anything else must be fp32.
  void scale(Problem& p) const {
    if (!o.scale && !recorded_scale) return;
    const double s = o.scale ? *o.scale : *recorded_scale;
    // 1/sqrt(K) and K**-0.5 differ in the last bit of a double.
    if (s == p.effective_scale() || std::fabs(s * std::sqrt(static_cast<double>(p.key_dim)) - 1) <= 1e-15) return;
    if (!std::isfinite(s) || s == 0 || decode(encode(s, Format::fp32), Format::fp32) != s) {
      char number[64];
      std::snprintf(number, sizeof number, "%.17g", s);
      throw BadInput(file.string() + ": scale " + number + " is not a nonzero fp32 number");
    }
    p.scale = s;
  }

  template <class Head>
  Tensor state(const Problem& p, Head value_head) const {
    const Tensor& t = get("h0");
    const std::int64_t N = p.sequences(), HV = p.value_heads, K = p.key_dim, V = p.value_dim;
    Tensor x(t.dtype, {N, HV, K, V});
    std::int64_t i = 0;
    for (std::int64_t n = 0; n < N; ++n)
      for (std::int64_t h = 0; h < HV; ++h) {
        const std::int64_t from = (n * HV + value_head(h)) * K * V;
        for (std::int64_t a = 0; a < K; ++a)
          for (std::int64_t b = 0; b < V; ++b) x.set_bits(i++, t.bits(from + (o.state == RecordedState::VK ? b * K + a : a * V + b)));
      }
    return x;
  }

  void finish(Run r) {
    Sha256 h;
    const std::string text = to_string(r.problem);
    h.add(text.data(), text.size());
    for (const auto& [tensor, t] : r.inputs) {
      h.add(tensor.data(), tensor.size());
      h.add(t.data.data(), t.data.size());
    }
    out.the_case.family = "recorded";
    out.the_case.problem = r.problem;
    out.the_case.seed = std::stoull(h.hex().substr(0, 16), nullptr, 16) >> 1;
    if (!o.io && r.problem.io == DType::f32)
      for (DType t : {DType::bf16, DType::f16}) {
        try {
          for (const char* tensor : {"q", "k", "v"}) coerce(r.inputs.at(tensor), t);
        } catch (const std::invalid_argument&) {
          continue;
        }
        out.notes.push_back(std::string("q, k and v are fp32 but hold only ") + name(t) + " values; for a kernel with " + name(t) + " inputs choose that io dtype");
        break;
      }
    out.the_case.runs.push_back(std::move(r));
    const char* const layouts[] = {"THD", "BTHD", "BHTD"};
    const char* const gate_names[] = {"log", "linear", "log2"};
    const char* const head_names[] = {"grouped", "tiled", "repeated"};
    out.source = std::string("recorded inputs, convention layout=") + layouts[static_cast<int>(o.layout)] + ";state=" + (o.state == RecordedState::KV ? "KV" : "VK") +
                 ";gate=" + gate_names[static_cast<int>(o.gate)] + ";heads=" + head_names[static_cast<int>(o.heads)] + (o.nearest_gates ? ", nearest gates" : "");
  }
};

}  // namespace

Imported import_inputs(const fs::path& file, const ImportOptions& options) {
  try {
    Importer i{file, options};
    i.run();
    return std::move(i.out);
  } catch (const std::bad_alloc&) {
    throw BadInput(file.string() + ": does not fit into memory");
  }
}

std::string recorded_convention(const fs::path& file, const std::string& group) {
  return read_foreign(file, group, false).convention;
}

}  // namespace gdn
