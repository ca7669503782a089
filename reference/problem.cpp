// The canonical text form of problems, and case identities; see problem.h and case.h.
#include "reference/problem.h"

#include <charconv>
#include <cmath>
#include <cstdio>
#include <stdexcept>

#include "reference/case.h"
#include "reference/format.h"
#include "reference/rng.h"

namespace gdn {
namespace {

constexpr const char* kOperations[] = {"prefill", "decode", "verify", "backward", "layer_prefill", "layer_decode", "stages"};
constexpr const char* kStageNames[kStages] = {"gate_sum", "gram", "inverse", "uw", "chunk_states", "output"};
constexpr const char* kL2Forms[] = {"root", "max", "none"};
constexpr const char* kRules[] = {"gated_delta", "delta", "gated_linear", "retention", "linear", "kda", "complex_kda"};

[[noreturn]] void fail(std::string_view whole, const std::string& why) {
  throw std::invalid_argument("problem '" + std::string(whole.substr(0, 200)) + "': " + why);
}

std::int64_t number(std::string_view whole, std::string_view text, const char* what) {
  std::int64_t x = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), x);
  if (text.empty() || error != std::errc{} || end != text.data() + text.size() || x < 0)
    fail(whole, std::string(what) + " is not a number: '" + std::string(text) + "'");
  return x;
}

std::vector<std::string_view> split_text(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (;;) {
    const auto at = text.find(separator);
    parts.push_back(text.substr(0, at));
    if (at == std::string_view::npos) return parts;
    text.remove_prefix(at + 1);
  }
}

template <std::size_t n>
int index_of(const char* const (&names)[n], std::string_view text) {
  for (std::size_t i = 0; i < n; ++i)
    if (text == names[i]) return static_cast<int>(i);
  return -1;
}

std::string hexfloat(double x) {
  char buffer[64];
  std::snprintf(buffer, sizeof buffer, "%a", x);
  return buffer;
}

}  // namespace

const char* name(Operation op) { return kOperations[static_cast<int>(op)]; }
const char* name(Rule r) { return kRules[static_cast<int>(r)]; }
const char* name(Stage s) { return kStageNames[static_cast<int>(s)]; }
const char* name(L2Form f) { return kL2Forms[static_cast<int>(f)]; }

std::int64_t Problem::tokens() const {
  std::int64_t sum = 0;
  for (std::int64_t n : lengths) sum += n;
  return sum;
}

std::vector<std::int64_t> Problem::offsets() const {
  std::vector<std::int64_t> o{0};
  for (std::int64_t n : lengths) o.push_back(o.back() + n);
  return o;
}

std::vector<std::int64_t> Problem::cuts() const {
  if (!pool() && operation != Operation::layer_decode) return split;
  std::vector<std::int64_t> c;
  const std::int64_t step = operation == Operation::verify ? draft : 1;
  for (std::int64_t t = step; t < lengths[0]; t += step) c.push_back(t);
  return c;
}

double Problem::effective_scale() const {
  return scale != 0 ? scale : static_cast<double>(static_cast<float>(1.0 / std::sqrt(static_cast<double>(key_dim))));
}

double Problem::token_heads() const {
  return static_cast<double>(tokens()) * static_cast<double>(value_heads) *
         (static_cast<double>(key_dim) * static_cast<double>(value_dim) / 16384.0);
}

std::string to_string(const Problem& p) {
  const std::int64_t N = p.sequences();
  std::string t = std::string(name(p.operation)) + "/n" + std::to_string(N) + "_t";
  bool equal = true;
  for (std::int64_t n : p.lengths) equal = equal && n == p.lengths[0];
  if (equal) {
    t += std::to_string(p.lengths[0]);
  } else {
    for (std::size_t i = 0; i < p.lengths.size();) {
      std::size_t j = i;
      while (j < p.lengths.size() && p.lengths[j] == p.lengths[i]) ++j;
      if (i) t += '+';
      t += std::to_string(p.lengths[i]);
      if (j - i > 1) t += "x" + std::to_string(j - i);
      i = j;
    }
  }
  t += "_h" + std::to_string(p.heads) + "_hv" + std::to_string(p.value_heads) + "_k" + std::to_string(p.key_dim) + "_v" +
       std::to_string(p.value_dim) + "/" + name(p.io);
  std::string options;
  auto option = [&](const std::string& text) { options += (options.empty() ? "/" : ",") + text; };
  if (p.initial_state) option("h0");
  if (!p.final_state) option("noht");
  if (p.gate != DType::f32) option(std::string("g=") + name(p.gate));
  if (p.beta != DType::f32) option(std::string("beta=") + name(p.beta));
  if (p.state != DType::f32) option(std::string("state=") + name(p.state));
  if (p.padding) option("pad=" + std::to_string(p.padding));
  if (p.strided && !p.far) option("strided");
  if (p.far) option("far");
  if (p.short_offsets) option("cu=i32");
  if (!p.split.empty()) {
    std::string s = "split=";
    for (std::size_t i = 0; i < p.split.size(); ++i) s += (i ? "." : "") + std::to_string(p.split[i]);
    option(s);
  }
  if (p.slots) option("slots=" + std::to_string(p.slots));
  if (p.draft) option("draft=" + std::to_string(p.draft));
  if (p.raw) option("raw");
  if (p.unit) option("unit");
  if (p.rule != Rule::gated_delta) option(std::string("rule=") + name(p.rule));
  if (p.operation == Operation::stages) option(std::string("stage=") + name(p.stage));
  if (p.chunk) option("chunk=" + std::to_string(p.chunk));
  if (p.hidden) option("hidden=" + std::to_string(p.hidden));
  if (p.conv) option("conv=" + std::to_string(p.conv));
  if (p.l2 != L2Form::root) option(std::string("l2=") + name(p.l2));
  if (p.scale != 0) option("scale=" + hexfloat(p.scale));
  return t + options;
}

Problem parse_problem(std::string_view text) {
  const auto parts = split_text(text, '/');
  if (parts.size() != 3 && parts.size() != 4)
    fail(text, "want OPERATION/nN_tT_hH_hvHV_kK_vV/DTYPE[/OPTIONS], for example prefill/n1_t257_h2_hv4_k128_v64/bf16/h0");
  Problem p;
  const int op = index_of(kOperations, parts[0]);
  if (op < 0) fail(text, "unknown operation '" + std::string(parts[0]) + "'");
  p.operation = static_cast<Operation>(op);
  bool stage_given = false;

  const auto fields = split_text(parts[1], '_');
  const char* const prefixes[] = {"n", "t", "h", "hv", "k", "v"};
  if (fields.size() != 6) fail(text, "the shape needs the six fields n t h hv k v, joined by '_'");
  std::string_view value[6];
  for (std::size_t i = 0; i < 6; ++i) {
    const std::string_view prefix = prefixes[i];
    if (fields[i].substr(0, prefix.size()) != prefix) fail(text, "shape field '" + std::string(fields[i]) + "' should start with '" + prefixes[i] + "'");
    value[i] = fields[i].substr(prefix.size());
  }
  const std::int64_t N = number(text, value[0], "n");
  if (N < 1 || N > (1 << 20)) fail(text, "n must be 1 to 1048576");
  p.lengths.clear();
  if (value[1].find_first_of("+x") == std::string_view::npos) {
    p.lengths.assign(static_cast<std::size_t>(N), number(text, value[1], "t"));
  } else {
    for (std::string_view item : split_text(value[1], '+')) {
      const auto at = item.find('x');
      const std::int64_t length = number(text, item.substr(0, at), "t");
      const std::int64_t repeat = at == std::string_view::npos ? 1 : number(text, item.substr(at + 1), "t");
      if (repeat < 1 || repeat > N) fail(text, "repeat count '" + std::string(item) + "' is not between 1 and n");
      p.lengths.insert(p.lengths.end(), static_cast<std::size_t>(repeat), length);
      if (static_cast<std::int64_t>(p.lengths.size()) > N) break;
    }
    if (static_cast<std::int64_t>(p.lengths.size()) != N) fail(text, "t does not list n lengths");
  }
  p.heads = number(text, value[2], "h");
  p.value_heads = number(text, value[3], "hv");
  p.key_dim = number(text, value[4], "k");
  p.value_dim = number(text, value[5], "v");
  auto dtype = [&](std::string_view name_text) {
    try {
      const DType t = parse_dtype(name_text);
      if (is_floating(t) && t != DType::f64) return t;
    } catch (const std::invalid_argument&) {
    }
    fail(text, "unknown dtype '" + std::string(name_text) + "'");
  };
  p.io = dtype(parts[2]);
  if (parts.size() == 4)
    for (std::string_view o : split_text(parts[3], ',')) {
      const auto at = o.find('=');
      const std::string_view key = o.substr(0, at), val = at == std::string_view::npos ? std::string_view{} : o.substr(at + 1);
      if (o == "h0") p.initial_state = true;
      else if (o == "noht") p.final_state = false;
      else if (key == "g") p.gate = dtype(val);
      else if (key == "beta") p.beta = dtype(val);
      else if (key == "state") p.state = dtype(val);
      else if (o == "raw") p.raw = true;
      else if (o == "unit") p.unit = true;
      else if (key == "slots") p.slots = number(text, val, "slots");
      else if (key == "draft") p.draft = number(text, val, "draft");
      else if (o == "strided") p.strided = true;
      else if (o == "far") p.far = p.strided = true;
      else if (o == "cu=i32") p.short_offsets = true;
      else if (key == "chunk") p.chunk = number(text, val, "chunk");
      else if (key == "hidden") p.hidden = number(text, val, "hidden");
      else if (key == "conv") p.conv = number(text, val, "conv");
      else if (key == "l2") {
        const int f = index_of(kL2Forms, val);
        if (f < 0) fail(text, "unknown l2 '" + std::string(val) + "' (forms: root, max, none)");
        p.l2 = static_cast<L2Form>(f);
      }
      else if (key == "stage") {
        const int s = index_of(kStageNames, val);
        if (s < 0) fail(text, "unknown stage '" + std::string(val) + "' (stages: gate_sum, gram, inverse, uw, chunk_states, output)");
        p.stage = static_cast<Stage>(s);
        stage_given = true;
      }
      else if (key == "pad") p.padding = number(text, val, "pad");
      else if (key == "split") {
        for (std::string_view s : split_text(val, '.')) {
          p.split.push_back(number(text, s, "split"));
          if (p.split.size() > 1 && p.split[p.split.size() - 2] > p.split.back()) fail(text, "split must not decrease");
        }
      } else if (key == "rule") {
        const int r = index_of(kRules, val);
        if (r < 0) fail(text, "unknown rule '" + std::string(val) + "'");
        p.rule = static_cast<Rule>(r);
      } else if (key == "scale") {
        const std::string copy(val);
        char* end = nullptr;
        p.scale = std::strtod(copy.c_str(), &end);
        if (copy.empty() || *end || !std::isfinite(p.scale) || p.scale == 0 || static_cast<double>(static_cast<float>(p.scale)) != p.scale)
          fail(text, "scale must be a nonzero fp32 value: '" + copy + "'");
      } else {
        fail(text, "unknown option '" + std::string(o) + "'");
      }
    }
  if (stage_given != (p.operation == Operation::stages)) fail(text, stage_given ? "stage belongs to stages" : "stages needs stage=<name>");
  validate(p);
  return p;
}

void validate(const Problem& p) {
  const std::string text = to_string(p);
  if (p.heads < 1 || p.value_heads < 1 || p.key_dim < 1 || p.value_dim < 1) fail(text, "h, hv, k and v must be at least 1");
  if (p.value_heads % p.heads) fail(text, "hv must be a multiple of h");
  const double limit = 0x1p40;
  const double rows = static_cast<double>(p.tokens()) + static_cast<double>(p.padding);
  if (rows * static_cast<double>(p.value_heads) * static_cast<double>(std::max(p.key_dim, p.value_dim)) > limit ||
      static_cast<double>(std::max(p.sequences(), p.slots)) * static_cast<double>(p.value_heads) * static_cast<double>(p.key_dim) * static_cast<double>(p.value_dim) > limit)
    fail(text, "too large (more than 2^40 elements in one tensor)");
  if (p.raw && p.rule != Rule::gated_delta && p.rule != Rule::gated_linear) fail(text, "raw gates go with the rules gated_delta and gated_linear");
  if (p.rule == Rule::complex_kda && p.key_dim % 2) fail(text, "complex_kda wants k to be a whole number of pairs");
  if (p.operation == Operation::stages) {
    if (p.chunk < 1 || p.chunk > 4096) fail(text, "stages needs chunk=<rows>, 1 to 4096");
    if (!p.split.empty() || p.raw || p.rule != Rule::gated_delta) fail(text, "a stage is one call of the rule gated_delta with gates as they are: no split, raw or rule");
    if (p.initial_state && p.stage != Stage::chunk_states) fail(text, "h0 belongs to stage chunk_states");
    if (p.scale != 0 && p.stage != Stage::output) fail(text, "scale belongs to stage output");
  } else if (p.chunk) {
    fail(text, "chunk belongs to stages");
  }
  if (p.layer()) {
    if (p.hidden < 1) fail(text, "the layer needs hidden=<width of x>");
    if (p.conv < 1 || p.conv > 64) fail(text, "the layer needs conv=<taps of the convolution>, 1 to 64");
    if (p.raw || p.unit || p.rule != Rule::gated_delta || p.beta != DType::f32) fail(text, "the layer makes gates and beta itself, for the rule gated_delta: no raw, unit, rule or beta");
    const double widest = static_cast<double>(p.hidden) * static_cast<double>(2 * p.heads * p.key_dim + p.value_heads * p.value_dim);
    if (widest > limit || rows * static_cast<double>(p.hidden) > limit) fail(text, "too large (more than 2^40 elements in one tensor)");
    if (p.operation == Operation::layer_decode) {
      if (p.padding || !p.split.empty()) fail(text, "pad and split belong to layer_prefill");
      for (const std::int64_t n : p.lengths)
        if (n != p.lengths[0] || n < 1) fail(text, "every sequence of layer_decode has the same number of tokens, at least one");
    }
  } else if (p.hidden || p.conv || p.l2 != L2Form::root) {
    fail(text, "hidden, conv and l2 belong to the layer");
  }
  if (!p.pool()) {
    if (p.slots || p.draft) fail(text, "slots and draft belong to decode and verify");
    return;
  }
  if (p.slots < 1) fail(text, std::string(name(p.operation)) + " needs slots=<states in the pool>");
  if (!p.initial_state || !p.final_state) fail(text, "a pool is read and written: want h0, and not noht");
  if (p.padding || !p.split.empty()) fail(text, "pad and split belong to prefill; rows without a sequence have index -1");
  const std::int64_t t = p.lengths[0];
  for (const std::int64_t n : p.lengths)
    if (n != t || t < 1) fail(text, "every row of a batch has the same number of tokens, at least one");
  if (p.operation == Operation::decode && p.draft && t != 1) fail(text, "the plain step after draft tokens has one token");
  if (p.operation == Operation::verify && (p.draft < 1 || (t != p.draft && (t < p.draft || (t - 1) % p.draft != 0))))
    fail(text, "t must be draft, or a multiple of draft and one token for the plain step after it");
}

std::string case_id(const CaseId& id) { return id.family + ":" + to_string(id.problem) + ":" + std::to_string(id.seed); }
std::string case_id(const Case& c) { return case_id(CaseId{c.family, c.problem, c.seed}); }

CaseId parse_case_id(std::string_view text) {
  const auto first = text.find(':'), last = text.rfind(':');
  if (first == std::string_view::npos || first == last || first == 0)
    throw std::invalid_argument("case id '" + std::string(text.substr(0, 200)) + "': want FAMILY:PROBLEM:SEED");
  CaseId id;
  id.family = text.substr(0, first);
  id.problem = parse_problem(text.substr(first + 1, last - first - 1));
  const std::string_view seed = text.substr(last + 1);
  const auto [end, error] = std::from_chars(seed.data(), seed.data() + seed.size(), id.seed);
  if (seed.empty() || error != std::errc{} || end != seed.data() + seed.size())
    throw std::invalid_argument("case id '" + std::string(text.substr(0, 200)) + "': the seed is not a number");
  return id;
}

std::string file_stem(std::string_view id) {
  std::string s(id);
  for (char& c : s)
    if (c == '/' || c == ':') c = '.';
  // File systems end a name at 255 bytes; many ragged sequences make a longer one.
  if (s.size() > 200) {
    char hash[20];
    std::snprintf(hash, sizeof hash, "%016llx", static_cast<unsigned long long>(hash_name(id)));
    s = s.substr(0, 180) + "." + hash;
  }
  return s;
}

}  // namespace gdn
