// Precision contracts: presets with every point listed, and the text form; see contract.h.
#include "reference/contract.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <limits>
#include <stdexcept>

#include "reference/near_name.h"

namespace gdn {
namespace {

struct PointText { const char* name; const char* meaning; };
constexpr PointText kPointTexts[kPoints] = {
    {"q_in", "q as the arithmetic sees it"},
    {"k_in", "k as the arithmetic sees it"},
    {"v_in", "v as the arithmetic sees it"},
    {"beta", "beta"},
    {"G", "gate sums (recurrent: the gate)"},
    {"D", "decay factors e^(G_i-G_j), e^G"},
    {"gram", "K K^T, Q K^T, L, operands of the products that build an inverse"},
    {"M", "(I+L)^-1"},
    {"bv", "beta v (residual form: beta (v - e^G S^T k))"},
    {"bk", "beta e^G k"},
    {"U", "M (beta v)"},
    {"W", "M (beta e^G k)"},
    {"Vn_o", "corrected values as operand of the output"},
    {"Vn_s", "corrected values as operand of the state update"},
    {"S_op", "state as operand of a product"},
    {"S_carried", "state as carried on"},
    {"P", "scores (Q K^T) o D"},
    {"q_scaled", "e^G q"},
    {"k_scaled", "e^(G_C-G) k"},
    {"out", "o"},
    {"ht", "state as handed over at the end of a call"},
};

constexpr PointText kLayerTexts[kLayerPoints] = {
    {"x_norm", "layer: hidden state after its norm"},
    {"proj", "layer: projections q k v z a b"},
    {"conv_sum", "layer: after the convolution, before SiLU"},
    {"conv", "layer: after convolution and SiLU"},
    {"unit", "layer: q and k normalised"},
    {"core", "layer: output of the rule, before its norm"},
    {"normal", "layer: output of the rule after its norm, before weight and gate"},
    {"normed", "layer: norm, weight and gate applied"},
    {"conv_state", "layer: history as handed over at the end of a call"},
};

constexpr const char* kForms[] = {"recurrent", "chunkwise"};
constexpr const char* kSolves[] = {"substitution", "block_inverse", "neumann"};
constexpr const char* kVectors[] = {"wu", "residual"};
constexpr const char* kCadences[] = {"token", "chunk", "call"};
constexpr const char* kGateSums[] = {"prefix_seq", "prefix_tree", "reset_safe"};
constexpr const char* kAccumulators[] = {"fp64", "fp32", "tensor_core"};
constexpr const char* kFlags[] = {"no", "yes"};

constexpr Store in(Format f) { return Store{f, 1, Rounding::nearest_even, Subnormals::keep}; }

void set(Contract& c, std::initializer_list<Point> points, Format f) {
  for (Point p : points) c.at(p) = in(f);
}

Contract recurrent(const char* name, Format arithmetic) {
  Contract c;
  c.preset = name;
  c.points.fill(in(arithmetic));
  c.layer.fill(in(arithmetic));
  c.accumulator = arithmetic == Format::fp64 ? Accumulator::fp64 : Accumulator::fp32;
  c.form = Form::recurrent;
  c.chunk = 1;
  c.cadence = Cadence::token;
  return c;
}

Contract chunkwise(const char* name) {
  Contract c = recurrent(name, Format::fp32);
  c.form = Form::chunkwise;
  c.chunk = 64;
  c.cadence = Cadence::chunk;
  return c;
}

// Operands of the products narrow, sums and the carried state fp32, as matrix units want it.
Contract narrow_chunk(const char* name, Format f) {
  Contract c = chunkwise(name);
  c.solve = Solve::block_inverse;
  set(c, {Point::q_in, Point::k_in, Point::v_in, Point::M, Point::bv, Point::bk, Point::U, Point::W, Point::Vn_o, Point::Vn_s,
          Point::S_op, Point::P, Point::out}, f);
  return c;
}

std::vector<Contract> make_presets() {
  std::vector<Contract> all;
  all.push_back(recurrent("fp64-recurrent", Format::fp64));
  all.push_back(recurrent("fp32-recurrent", Format::fp32));
  Contract c = recurrent("bf16-recurrent", Format::fp32);
  c.at(Point::out) = in(Format::bf16);
  all.push_back(c);
  c = recurrent("fp16-recurrent", Format::fp32);
  c.at(Point::out) = in(Format::fp16);
  all.push_back(c);
  c = recurrent("bf16-state", Format::fp32);       // state stored in 16 bits after every token, as a decode step does
  set(c, {Point::S_carried, Point::ht, Point::out}, Format::bf16);
  all.push_back(c);
  all.push_back(chunkwise("fp32-chunk"));
  c = chunkwise("bf16-io-chunk");
  c.at(Point::out) = in(Format::bf16);
  all.push_back(c);
  c = chunkwise("tf32-chunk");                     // every operand of a product tf32; results of products fp32
  c.solve = Solve::block_inverse;
  set(c, {Point::q_in, Point::k_in, Point::gram, Point::M, Point::bv, Point::bk, Point::W, Point::Vn_o, Point::Vn_s, Point::S_op,
          Point::P, Point::q_scaled, Point::k_scaled}, Format::tf32);
  all.push_back(c);
  all.push_back(narrow_chunk("fp16-chunk", Format::fp16));
  all.push_back(narrow_chunk("bf16-chunk", Format::bf16));
  return all;
}

const std::vector<Contract>& presets() {
  static const std::vector<Contract> all = make_presets();
  return all;
}

std::string number_text(double x) {
  char buffer[32];
  const auto r = std::to_chars(buffer, buffer + sizeof buffer, x);
  return std::string(buffer, r.ptr);
}

[[noreturn]] void fail(std::string_view text, const std::string& why) {
  throw std::invalid_argument("contract '" + std::string(text) + "': " + why);
}

template <class E, std::size_t N>
E choose(std::string_view text, std::string_view key, std::string_view value, const char* const (&names)[N]) {
  std::string legal;
  for (std::size_t i = 0; i < N; ++i) {
    if (value == names[i]) return static_cast<E>(i);
    legal += (i ? ", " : "") + std::string(names[i]);
  }
  fail(text, std::string(key) + " is one of " + legal + ", not '" + std::string(value) + "'");
}

double real(std::string_view text, std::string_view key, std::string_view value) {
  double x = 0;
  const auto r = std::from_chars(value.data(), value.data() + value.size(), x);
  if (r.ec != std::errc{} || r.ptr != value.data() + value.size() || std::isnan(x)) fail(text, std::string(key) + " needs a number, not '" + std::string(value) + "'");
  return x;
}

int integer(std::string_view text, std::string_view key, std::string_view value, int lo, int hi) {
  int x = 0;
  const auto r = std::from_chars(value.data(), value.data() + value.size(), x);
  if (r.ec != std::errc{} || r.ptr != value.data() + value.size() || x < lo || x > hi)
    fail(text, std::string(key) + " needs a whole number from " + std::to_string(lo) + " to " + std::to_string(hi) + ", not '" + std::string(value) + "'");
  return x;
}

void apply(Contract& c, std::string_view text, std::string_view key, std::string_view value) {
  Store* store = nullptr;
  for (std::size_t i = 0; i < kPoints; ++i)
    if (key == kPointTexts[i].name) store = &c.points[i];
  for (std::size_t i = 0; i < kLayerPoints; ++i)
    if (key == kLayerTexts[i].name) store = &c.layer[i];
  if (store) {
    try {
      *store = parse_store(value);
    } catch (const std::invalid_argument& e) {
      fail(text, std::string(key) + ": " + e.what());
    }
    return;
  }
  if (key == "form") c.form = choose<Form>(text, key, value, kForms);
  else if (key == "accumulator") c.accumulator = choose<Accumulator>(text, key, value, kAccumulators);
  else if (key == "chunk") c.chunk = integer(text, key, value, 1, 1024);
  else if (key == "block") c.block = integer(text, key, value, 1, 1024);
  else if (key == "solve") c.solve = choose<Solve>(text, key, value, kSolves);
  else if (key == "vectors") c.vectors = choose<Vectors>(text, key, value, kVectors);
  else if (key == "cadence") c.cadence = choose<Cadence>(text, key, value, kCadences);
  else if (key == "gate_sum") c.gate_sum = choose<GateSum>(text, key, value, kGateSums);
  else if (key == "fma") c.fma = choose<int>(text, key, value, kFlags) == 1;
  else if (key == "g_min") {
    c.g_min = real(text, key, value);
    if (c.g_min > 0) fail(text, "g_min must not be positive");
    if (std::isinf(c.g_min) || c.g_min == 0) c.g_min = 0;
  } else if (key == "u_exp") {
    c.u_exp = real(text, key, value);
    if (!(c.u_exp >= 0 && c.u_exp <= 0.5)) fail(text, "u_exp lies between 0 and 0.5");
    if (c.u_exp == 0) c.u_exp = 0;                 // no negative zero
  } else fail(text, "unknown key '" + std::string(key) + "'");
}

// Options as key and value, in canonical order.
std::vector<std::pair<const char*, std::string>> options(const Contract& c) {
  return {{"form", kForms[static_cast<int>(c.form)]},
          {"accumulator", kAccumulators[static_cast<int>(c.accumulator)]},
          {"chunk", std::to_string(c.chunk)},
          {"block", std::to_string(c.block)},
          {"solve", kSolves[static_cast<int>(c.solve)]},
          {"vectors", kVectors[static_cast<int>(c.vectors)]},
          {"cadence", kCadences[static_cast<int>(c.cadence)]},
          {"gate_sum", kGateSums[static_cast<int>(c.gate_sum)]},
          {"fma", kFlags[c.fma]},
          {"g_min", number_text(c.g_min)},
          {"u_exp", number_text(c.u_exp)}};
}

const Contract* find_preset(std::string_view name) {
  for (const Contract& c : presets())
    if (name == c.preset) return &c;
  return nullptr;
}

Format format_of(DType t) {
  switch (t) {
    case DType::f64: return Format::fp64;
    case DType::f16: return Format::fp16;
    case DType::bf16: return Format::bf16;
    case DType::e4m3: return Format::fp8_e4m3;
    case DType::e5m2: return Format::fp8_e5m2;
    default: return Format::fp32;
  }
}

Store narrowed(Store s, Format f) {
  const FormatInfo &a = info(s.format), &b = info(f);
  const bool subset = a.precision * s.terms <= b.precision && a.emin - a.precision >= b.emin - b.precision && a.max_finite <= b.max_finite;
  if (subset) return s;
  s.format = f;
  s.terms = 1;
  return s;
}

}  // namespace

const char* name(LayerPoint p) { return kLayerTexts[static_cast<std::size_t>(p)].name; }
const char* name(Point p) { return kPointTexts[static_cast<std::size_t>(p)].name; }
const char* meaning(LayerPoint p) { return kLayerTexts[static_cast<std::size_t>(p)].meaning; }
const char* meaning(Point p) { return kPointTexts[static_cast<std::size_t>(p)].meaning; }

std::vector<std::string> contract_presets() {
  std::vector<std::string> names;
  for (const Contract& c : presets()) names.push_back(c.preset);
  return names;
}

Contract parse_contract(std::string_view text) {
  const std::string_view preset = text.substr(0, text.find(';'));
  const Contract* base = find_preset(preset);
  if (!base) fail(text, "unknown preset '" + std::string(preset) + "'" + did_you_mean(preset, contract_presets()) + " (`gdn-cts list contracts` prints them)");
  Contract c = *base;
  std::vector<std::string_view> seen;
  for (std::size_t at = preset.size(); at < text.size();) {
    const std::string_view item = text.substr(at + 1, text.find(';', at + 1) - at - 1);
    at += 1 + item.size();
    const std::size_t equals = item.find('=');
    if (equals == std::string_view::npos) fail(text, "'" + std::string(item) + "' is not key=value");
    const std::string_view key = item.substr(0, equals);
    if (std::find(seen.begin(), seen.end(), key) != seen.end()) fail(text, "'" + std::string(key) + "' is given twice");
    seen.push_back(key);
    apply(c, text, key, item.substr(equals + 1));
  }
  if (c.form == Form::recurrent && c.chunk != 1) fail(text, "the recurrent form has chunk=1");
  if (c.form == Form::recurrent && c.cadence == Cadence::chunk) fail(text, "the recurrent form rounds its state per token or per call, not per chunk");
  if (c.form == Form::chunkwise && c.block > c.chunk && std::find(seen.begin(), seen.end(), "block") != seen.end())
    fail(text, "block=" + std::to_string(c.block) + " is more than a chunk of " + std::to_string(c.chunk) + " rows has");
  if (c.form == Form::chunkwise && c.cadence == Cadence::token) fail(text, "the chunkwise form has no state per token; cadence is chunk or call");
  return c;
}

std::string to_string(const Contract& c) {
  const Contract* base = find_preset(c.preset);
  if (!base) throw std::invalid_argument("contract: unknown preset '" + c.preset + "'");
  std::string text = c.preset;
  for (std::size_t i = 0; i < kPoints; ++i)
    if (!(c.points[i] == base->points[i])) text += std::string(";") + kPointTexts[i].name + "=" + to_string(c.points[i]);
  for (std::size_t i = 0; i < kLayerPoints; ++i)
    if (!(c.layer[i] == base->layer[i])) text += std::string(";") + kLayerTexts[i].name + "=" + to_string(c.layer[i]);
  const auto mine = options(c), theirs = options(*base);
  for (std::size_t i = 0; i < mine.size(); ++i)
    if (mine[i].second != theirs[i].second) text += std::string(";") + mine[i].first + "=" + mine[i].second;
  return text;
}

std::vector<ContractKey> contract_keys() {
  return {{"form", "the algorithm that the kernel carries out", {{kForms[0], "token by token"}, {kForms[1], "a chunk of tokens at once, by products of matrices"}}},
          {"accumulator", "what products are summed in",
           {{kAccumulators[0], ""}, {kAccumulators[1], ""}, {kAccumulators[2], "exact products, their sum truncated, u = 2^-23: the matrix units of GPUs"}}},
          {"chunk", "rows of a chunk, 1 to 1024; 1 in the recurrent form", {}},
          {"block", "rows of the blocks that solve=block_inverse inverts first and then puts together; at most a chunk", {}},
          {"solve", "how a chunk's triangular system (I + L) X = B is solved",
           {{kSolves[0], "row after row, without forming the inverse"},
            {kSolves[1], "M = (I + L)^-1 is formed, by substitution in blocks of `block` rows that are then put together by products"},
            {kSolves[2], "M is formed as a product of powers, (I - L)(I + L^2)(I + L^4)...: few steps, but errors grow as the powers do"}}},
          {"vectors", "what a chunk reads the state with",
           {{kVectors[0], "U = M (beta v) and W = M (beta e^G k) are formed, then Vn = U - W S"}, {kVectors[1], "the state is read first: Vn = M (beta (v - e^G S^T k))"}}},
          {"cadence", "when the carried state is rounded to S_carried", {{kCadences[0], "after every token"}, {kCadences[1], "after every chunk"}, {kCadences[2], "at the end of a call alone"}}},
          {"gate_sum", "how gates are summed inside a chunk",
           {{kGateSums[0], "one after the other from the start of the chunk; a very negative gate absorbs those after it"},
            {kGateSums[1], "by a parallel scan (a tree); absorbs as well, and may round up"},
            {kGateSums[2], "sums restart at a very negative gate, so that every gate is legal, -inf too"}}},
          {"fma", "are products and sums of the recurrence fused?", {{kFlags[0], ""}, {kFlags[1], ""}}},
          {"g_min", "the least gate for which the contract holds; a case below it is NOT_SUPPORTED. 0 or -inf: any gate. Sums from the start of a chunk (prefix_seq, prefix_tree) need one", {}},
          {"u_exp", "relative error of the kernel's exp, 0 to 0.5, such as 1e-6 of a fast one; 0: 2 ulp of the arithmetic", {}}};
}

std::string explain(const Contract& c) {
  std::string text = to_string(c) + "\n";
  char line[200];
  for (const auto& [key, value] : options(c)) {
    std::string shown = value;
    if (std::string_view(key) == "g_min" && c.g_min == 0) shown = "any gate, -inf included";
    if (std::string_view(key) == "u_exp" && c.u_exp == 0) shown = "2 ulp of " + to_string(arithmetic(c));
    for (const ContractKey& known : contract_keys())
      if (known.name == key && !known.values.empty()) {
        shown.resize(std::max<std::size_t>(shown.size(), 14), ' ');
        for (const auto& v : known.values) shown += (&v == &known.values.front() ? " of " : ", ") + v.first;
      }
    std::snprintf(line, sizeof line, "  %-12s %s\n", key, shown.c_str());
    text += line;
  }
  for (std::size_t i = 0; i < kPoints; ++i) {
    const auto p = static_cast<Point>(i);
    if (uses(c, p)) std::snprintf(line, sizeof line, "  %-12s %-14s %s\n", name(p), to_string(c.points[i]).c_str(), meaning(p));
    else std::snprintf(line, sizeof line, "  %-12s %-14s not in this form\n", name(p), "-");
    text += line;
  }
  for (std::size_t i = 0; i < kLayerPoints; ++i) {
    std::snprintf(line, sizeof line, "  %-12s %-14s %s\n", kLayerTexts[i].name, to_string(c.layer[i]).c_str(), kLayerTexts[i].meaning);
    text += line;
  }
  return text;
}

Contract for_problem(const Contract& c, const Problem& p) {
  Contract n = c;
  if (p.operation == Operation::stages) {          // whatever the kernel's form is elsewhere, this is a step of the chunkwise one
    n.form = Form::chunkwise;
    n.chunk = static_cast<int>(p.chunk);
    n.vectors = Vectors::wu;
    if (n.cadence == Cadence::token) n.cadence = Cadence::chunk;
    if (n.solve == Solve::substitution) {          // of I, in one block
      n.solve = Solve::block_inverse;
      n.block = n.chunk;
    }
  }
  n.at(Point::out) = narrowed(n.at(Point::out), format_of(p.io));
  n.at(Point::ht) = narrowed(n.at(Point::ht), format_of(p.state));
  if (p.layer()) n.at(LayerPoint::conv_state) = narrowed(n.at(LayerPoint::conv_state), format_of(p.io));
  return n;
}

Store arithmetic(const Contract& c) {
  return Store{c.accumulator == Accumulator::fp64 ? Format::fp64 : Format::fp32, 1, Rounding::nearest_even, Subnormals::keep};
}

bool uses(const Contract& c, Point p) {
  const bool chunk = c.form == Form::chunkwise, wu = chunk && c.vectors == Vectors::wu;
  switch (p) {
    case Point::gram: case Point::bv: case Point::Vn_o: case Point::P: case Point::q_scaled: case Point::k_scaled: return chunk;
    case Point::M: return chunk && c.solve != Solve::substitution;
    case Point::bk: case Point::U: case Point::W: return wu;
    default: return p != Point::count;
  }
}

double unit(const Contract& c, Point p) {
  const Store& s = c.at(p);
  if (!uses(c, p) || info(s.format).precision * s.terms >= info(arithmetic(c).format).precision) return 0;
  return unit_roundoff(s);
}

double underflow(const Contract& c, Point p) {
  const Store& s = c.at(p);
  const FormatInfo &f = info(s.format), &g = info(arithmetic(c).format);
  if (!uses(c, p) || (s.subnormals == Subnormals::keep && f.emin - f.precision <= g.emin - g.precision)) return 0;
  return underflow_unit(s);
}

}  // namespace gdn
