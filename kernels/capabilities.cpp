// What a kernel declares it can do and promises, as text; and whether a run lies in that domain. See session.h.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <stdexcept>

#include "kernels/schedule.h"
#include "kernels/session.h"
#include "reference/gates.h"

namespace gdn {
namespace {

[[noreturn]] void fail(const std::string& why) { throw std::invalid_argument("capabilities: " + why); }

std::string_view trimmed(std::string_view s) {
  while (!s.empty() && (s.front() == ' ' || s.front() == '\t')) s.remove_prefix(1);
  while (!s.empty() && (s.back() == ' ' || s.back() == '\t')) s.remove_suffix(1);
  return s;
}

std::vector<std::string_view> parts(std::string_view text, char separator) {
  std::vector<std::string_view> out;
  while (true) {
    const auto at = text.find(separator);
    if (const auto item = trimmed(text.substr(0, at)); !item.empty()) out.push_back(item);
    if (at == std::string_view::npos) return out;
    text.remove_prefix(at + 1);
  }
}

std::int64_t integer(std::string_view key, std::string_view text) {
  std::int64_t x = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), x);
  if (text.empty() || error != std::errc{} || end != text.data() + text.size() || x < 1)
    fail(std::string(key) + " needs a positive number, not '" + std::string(text) + "'");
  return x;
}

double real(std::string_view key, std::string_view text) {
  if (text == "-inf") return -std::numeric_limits<double>::infinity();
  double x = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), x);
  if (text.empty() || error != std::errc{} || end != text.data() + text.size() || std::isnan(x))
    fail(std::string(key) + " needs a number, not '" + std::string(text) + "'");
  return x;
}

template <class E>
std::vector<E> names(std::string_view key, std::string_view text, int count) {
  std::vector<E> out;
  for (std::string_view item : parts(text, ',')) {
    int i = 0;
    while (i < count && item != name(static_cast<E>(i))) ++i;
    if (i == count) {
      std::string known;
      for (int k = 0; k < count; ++k) known += (k ? ", " : "") + std::string(name(static_cast<E>(k)));
      fail(std::string(key) + " has no value '" + std::string(item) + "' (values: " + known + "; several with commas between them)");
    }
    out.push_back(static_cast<E>(i));
  }
  if (out.empty()) fail(std::string(key) + " is empty");
  return out;
}

std::vector<DType> dtypes(std::string_view key, std::string_view text) {
  std::vector<DType> out = names<DType>(key, text, 8);
  for (DType t : out)
    if (!is_floating(t)) fail(std::string(key) + " has no value '" + name(t) + "'");
  return out;
}

// "a..b", or one number or a list "64,128": then `only` holds them.
void range(std::string_view key, std::string_view text, std::int64_t& low, std::int64_t& high, std::vector<std::int64_t>* only) {
  if (const auto dots = text.find(".."); dots != std::string_view::npos) {
    low = integer(key, trimmed(text.substr(0, dots)));
    high = integer(key, trimmed(text.substr(dots + 2)));
  } else {
    std::vector<std::int64_t> list;
    for (std::string_view item : parts(text, ',')) list.push_back(integer(key, item));
    if (list.empty()) fail(std::string(key) + " is empty");
    low = *std::min_element(list.begin(), list.end());
    high = *std::max_element(list.begin(), list.end());
    if (only) *only = std::move(list);
    else if (low != high && list.size() != static_cast<std::size_t>(high - low + 1)) fail(std::string(key) + " needs a range a..b");
  }
  if (low > high) fail(std::string(key) + " is an empty range '" + std::string(text) + "'");
}

template <class E>
bool contains(const std::vector<E>& list, const E& x) {
  return std::find(list.begin(), list.end(), x) != list.end();
}

template <class E>
std::string listed(const std::vector<E>& list) {
  std::string text;
  for (const E& e : list) text += (text.empty() ? "" : ",") + std::string(name(e));
  return text;
}

template <class E>
std::string not_in(const char* key, const E& x, const std::vector<E>& list) {
  return contains(list, x) ? "" : std::string(key) + "=" + name(x) + " not in declared " + key + "=" + listed(list);
}

std::string outside(const char* key, std::int64_t x, std::int64_t low, std::int64_t high, const std::vector<std::int64_t>& only) {
  if (x >= low && x <= high && (only.empty() || contains(only, x))) return "";
  std::string declared;
  for (std::int64_t d : only) declared += (declared.empty() ? "" : ",") + std::to_string(d);
  if (only.empty()) declared = std::to_string(low) + ".." + std::to_string(high);
  return std::string(key) + "=" + std::to_string(x) + " not in declared " + key + "=" + declared;
}

std::string number(double x) {
  char b[40];
  std::snprintf(b, sizeof b, "%.9g", x);
  return b;
}

// Least or greatest value that tokens of a sequence have (rows past the last sequence are nobody's). NaN and +inf are
// planted on purpose and are no matter of a domain.
double extreme(const Run& run, const char* tensor, bool least) {
  const auto t = run.inputs.find(tensor);
  double best = least ? 0 : -std::numeric_limits<double>::infinity();
  if (t == run.inputs.end() || t->second.shape.empty() || t->second.shape[0] == 0) return best;
  const std::int64_t count = t->second.size() / t->second.shape[0] * std::min(run.problem.tokens(), t->second.shape[0]);
  for (std::int64_t i = 0; i < count; ++i) {
    const double x = t->second.at(i);
    if (least ? x < best : x > best && !std::isinf(x)) best = x;
  }
  return best;
}

// The least gate that raw gates amount to, by rows that have a sequence; NaN is no matter of a domain here either.
double least_raw_gate(const Run& run) {
  const auto a = run.inputs.find("a"), A_log = run.inputs.find("A_log"), dt_bias = run.inputs.find("dt_bias");
  double least = 0;
  if (a == run.inputs.end() || A_log == run.inputs.end() || dt_bias == run.inputs.end()) return least;
  const std::int64_t HV = run.problem.value_heads;
  for (std::int64_t i = 0; i < run.problem.tokens() * HV; ++i) {
    const double g = raw_gate(static_cast<float>(a->second.at(i)), static_cast<float>(A_log->second.at(i % HV)), static_cast<float>(dt_bias->second.at(i % HV))).hi;
    if (g < least) least = g;
  }
  return least;
}

// Every key and flag of the text, once: what reads it, what is said of it, and what holds where it is not declared.
struct Key {
  const char *name, *values, *meaning, *absent;
  bool Capabilities::* flag;                       // nullptr: a key with a value
  void (*read)(Capabilities&, std::string_view key, std::string_view value);
};
const Key kKeys[] = {
    {"ops", "list of prefill, decode, verify, layer_prefill, layer_decode, stages", "the operations that it has", "prefill", nullptr,
     [](Capabilities& c, std::string_view k, std::string_view v) { c.operations = names<Operation>(k, v, 7); }},
    {"stages", "list of gate_sum, gram, inverse, uw, chunk_states, output", "with ops=stages: the steps of the chunkwise form that it can run alone", "none", nullptr,
     [](Capabilities& c, std::string_view k, std::string_view v) { c.stages = names<Stage>(k, v, kStages); }},
    {"chunks", "list of numbers", "with ops=stages: the rows per chunk that its stages take", "the chunk of its contract", nullptr,
     [](Capabilities& c, std::string_view k, std::string_view v) {
       for (std::string_view chunk : parts(v, ',')) c.chunks.push_back(integer(k, chunk));
       if (c.chunks.empty()) fail("chunks is empty");
     }},
    {"rules", "list of gated_delta, delta, gated_linear, retention, linear, kda, complex_kda", "the recurrences that it computes", "gated_delta", nullptr,
     [](Capabilities& c, std::string_view k, std::string_view v) { c.rules = names<Rule>(k, v, 7); }},
    {"io", "list of fp32, bf16, fp16", "dtypes of q, k, v and o", "fp32, bf16, fp16", nullptr, [](Capabilities& c, std::string_view k, std::string_view v) { c.io = dtypes(k, v); }},
    {"state", "list of dtypes", "dtypes of h0, ht and the state pool", "fp32", nullptr, [](Capabilities& c, std::string_view k, std::string_view v) { c.state = dtypes(k, v); }},
    {"gate", "list of dtypes", "dtypes of g, or of a", "fp32", nullptr, [](Capabilities& c, std::string_view k, std::string_view v) { c.gate = dtypes(k, v); }},
    {"beta", "list of dtypes", "dtypes of beta", "fp32", nullptr, [](Capabilities& c, std::string_view k, std::string_view v) { c.beta = dtypes(k, v); }},
    {"K", "range a..b, or list", "key channels of a head", "any", nullptr, [](Capabilities& c, std::string_view k, std::string_view v) { range(k, v, c.key_min, c.key_max, &c.key_dims); }},
    {"V", "range a..b, or list", "value channels of a head", "any", nullptr, [](Capabilities& c, std::string_view k, std::string_view v) { range(k, v, c.value_min, c.value_max, &c.value_dims); }},
    {"ratio", "range a..b", "value heads per key head, HV/H", "any", nullptr, [](Capabilities& c, std::string_view k, std::string_view v) { range(k, v, c.ratio_min, c.ratio_max, nullptr); }},
    {"l2", "list of root, max, none", "how its layer normalises q and k", "all of them", nullptr, [](Capabilities& c, std::string_view k, std::string_view v) { c.l2 = names<L2Form>(k, v, 3); }},
    {"g_min", "number or -inf", "the least gate g (log decay, natural logarithm) that it takes", "-inf", nullptr,
     [](Capabilities& c, std::string_view k, std::string_view v) {
       c.g_min = real(k, v);
       if (c.g_min > 0) fail("g_min is positive");
       if (std::isinf(c.g_min)) c.g_min = 0;
     }},
    {"beta_max", "number", "the greatest beta that it takes", "2", nullptr, [](Capabilities& c, std::string_view k, std::string_view v) { c.beta_max = real(k, v); }},
    {"A_log_max", "number", "the greatest A_log of raw gates that it takes, for kernels that form exp(A_log) by itself", "any", nullptr,
     [](Capabilities& c, std::string_view k, std::string_view v) { c.A_log_max = real(k, v); }},
    {"align", "power of two up to 4096", "bytes that the start of every tensor must be a multiple of", "64", nullptr,
     [](Capabilities& c, std::string_view k, std::string_view v) {
       const std::int64_t a = integer(k, v);
       if (a > 4096 || (a & (a - 1))) fail("align must be a power of two up to 4096");
       c.alignment = static_cast<int>(a);
     }},
    {"varlen", "", "prefill of sequences of different lengths, and of buffers longer than cu_seqlens[N]", "all sequences are as long as each other, and fill the buffers (empty capabilities claim it)", &Capabilities::varlen, nullptr},
    {"h0", "", "prefill starts from an initial state h0", "every sequence starts from zeros (empty capabilities claim it)", &Capabilities::h0, nullptr},
    {"ht", "", "prefill returns the final state ht", "no final state is asked for (empty capabilities claim it)", &Capabilities::ht, nullptr},
    {"noht", "", "may be called without an ht tensor", "it gets one that nobody reads", &Capabilities::noht, nullptr},
    {"empty", "", "prefill takes sequences without tokens", "every sequence has a token (empty capabilities claim it)", &Capabilities::empty, nullptr},
    {"equal_kv", "", "K = V only", "K and V may differ", &Capabilities::equal_kv, nullptr},
    {"raw_gates", "", "takes gates as a, A_log and dt_bias", "gates come as g alone", &Capabilities::raw_gates, nullptr},
    {"strides", "", "takes tensors that are parts of larger buffers: any strides (the last of three and more dimensions is contiguous), and a byte_offset", "tensors are contiguous", &Capabilities::strides, nullptr},
    {"short_offsets", "", "takes cu_seqlens in int32 as well", "they come in int64", &Capabilities::short_offsets, nullptr},
    {"refuses_growth", "", "answers a call with g > 0 by NOT_SUPPORTED or ERROR, and is tested for it", "it is never given one", &Capabilities::refuses_growth, nullptr},
    {"any_beta", "", "beta may be any finite number, also below 0 and above beta_max", "beta is between 0 and beta_max", &Capabilities::any_beta, nullptr},
};
std::string key_names(bool flags) {
  std::string all;
  for (const Key& k : kKeys)
    if ((k.flag != nullptr) == flags) all += (all.empty() ? "" : ", ") + std::string(k.name);
  return all;
}

}  // namespace

std::vector<CapabilityKey> capability_keys() {
  std::vector<CapabilityKey> all;
  for (const Key& k : kKeys) all.push_back({k.name, k.values, k.meaning, k.absent});
  return all;
}

Capabilities parse_capabilities(std::string_view text) {
  Capabilities c;
  c.text = std::string(text);
  const auto items = parts(text, ';');
  if (!items.empty()) c.varlen = c.h0 = c.ht = c.empty = false;  // what is not listed is not claimed
  for (std::string_view item : items) {
    const auto equals = item.find('=');
    const std::string_view name = trimmed(item.substr(0, equals));
    const bool flag = equals == std::string_view::npos;
    const Key* const key = std::find_if(std::begin(kKeys), std::end(kKeys), [&](const Key& k) { return name == k.name && flag == (k.flag != nullptr); });
    if (key == std::end(kKeys))
      fail((flag ? "unknown flag '" : "unknown key '") + std::string(name) + "' (" + (flag ? "" : "keys: " + key_names(false) + "; ") + "flags: " + key_names(true) + ")");
    if (flag) c.*key->flag = true;
    else key->read(c, name, trimmed(item.substr(equals + 1)));
  }
  if (c.stages.empty() == contains(c.operations, Operation::stages))
    fail(c.stages.empty() ? "ops=stages needs stages=<names>" : "stages=... needs stages among ops");
  return c;
}

std::vector<std::int64_t> stage_chunks(const Capabilities& c, const Contract& contract) {
  return c.chunks.empty() ? std::vector<std::int64_t>{contract.chunk} : c.chunks;
}

std::string unsupported_reason(const Capabilities& c, const Contract& contract, const Run& run) {
  const Problem& p = run.problem;
  for (const std::string& why : {
           not_in("ops", p.operation, c.operations), not_in("rules", p.rule, c.rules), not_in("io", p.io, c.io),
           not_in("state", p.state, c.state),
           run.inputs.count("g") || run.inputs.count("a") || p.layer() ? not_in("gate", p.gate, c.gate) : std::string(),
           p.layer() ? not_in("l2", p.l2, c.l2) : std::string(),
           run.inputs.count("beta") ? not_in("beta", p.beta, c.beta) : std::string(),
           outside("K", p.key_dim, c.key_min, c.key_max, c.key_dims),
           outside("V", p.value_dim, c.value_min, c.value_max, c.value_dims),
           outside("ratio", p.value_heads / p.heads, c.ratio_min, c.ratio_max, {})})
    if (!why.empty()) return why;
  if (c.equal_kv && p.key_dim != p.value_dim)
    return "K=" + std::to_string(p.key_dim) + " differs from V=" + std::to_string(p.value_dim) + ", declared equal_kv";
  if (p.raw && !c.raw_gates) return "raw gates, raw_gates not declared";
  if (p.strided && !c.strides) return "tensors that are parts of larger buffers, strides not declared";
  if (p.short_offsets && !c.short_offsets) return "cu_seqlens in int32, short_offsets not declared";
  if (p.operation == Operation::stages) {
    if (!contains(c.stages, p.stage)) return not_in("stages", p.stage, c.stages);
    const std::vector<std::int64_t> chunks = stage_chunks(c, contract);
    if (const std::string why = outside("chunk", p.chunk, *std::min_element(chunks.begin(), chunks.end()), *std::max_element(chunks.begin(), chunks.end()), chunks);
        !why.empty())
      return why;
  }
  const bool states = p.operation != Operation::stages || p.stage == Stage::chunk_states;
  for (const Problem& call : call_problems(p)) {
    if (const std::string why = not_in("ops", call.operation, c.operations); !why.empty()) return why;
    if (p.pool()) continue;
    const auto [least, most] = std::minmax_element(call.lengths.begin(), call.lengths.end());
    if (!c.varlen && (*least != *most || call.padding)) return "sequences of different lengths, varlen not declared";
    if (!c.empty && *least == 0) return "a sequence without tokens, empty not declared";
    if (!c.h0 && call.initial_state) return "an initial state, h0 not declared";
    if (!c.ht && call.final_state && states) return "a final state, ht not declared";
  }
  const bool limited = p.operation != Operation::stages && (c.g_min < 0 || contract.g_min < 0);   // a sum alone says what it says
  const double g = !limited ? 0 : p.raw ? least_raw_gate(run) : extreme(run, "g", true);
  for (const double least : {c.g_min, contract.g_min})
    if (least < 0 && g < least) return "g=" + number(g) + " below declared g_min=" + number(least);
  if (const double most = extreme(run, "g", false); most > 0 && !c.refuses_growth)
    return "g=" + number(most) + " is above 0 and so outside the operation, refuses_growth not declared";
  if (const auto A_log = run.inputs.find("A_log"); A_log != run.inputs.end())
    for (std::int64_t h = 0; h < A_log->second.size(); ++h)
      if (A_log->second.at(h) > c.A_log_max) return "A_log=" + number(A_log->second.at(h)) + " above declared A_log_max=" + number(c.A_log_max);
  if (const double beta = extreme(run, "beta", true); beta < 0 && !std::isinf(beta) && !c.any_beta) return "beta=" + number(beta) + " is below 0, any_beta not declared";
  const double beta = extreme(run, "beta", false);
  if (beta > c.beta_max && !c.any_beta) return "beta=" + number(beta) + " above declared beta_max=" + number(c.beta_max);
  return "";
}

namespace {
constexpr struct {
  const char* name;
  bool Properties::* flag;
  const char* meaning;
} kProperties[] = {{"deterministic", &Properties::deterministic, "the same call gives the same bits, whatever ran before and with any number of threads"},
                   {"shape_invariant", &Properties::shape_invariant, "a row gives the same numbers whatever else is in the call"},
                   {"symmetric", &Properties::symmetric, "rounding does not depend on the sign"},
                   {"masks_select", &Properties::masks_select, "masks select and do not multiply, so that a NaN behind one cannot spread"},
                   {"steps_as_prefill", &Properties::steps_as_prefill, "token by token it gives the bits that it gives at once"}};
}  // namespace

std::vector<PromiseKey> property_keys() {
  std::vector<PromiseKey> all;
  for (const auto& p : kProperties) all.push_back({p.name, p.meaning});
  return all;
}

Properties parse_properties(std::string_view text) {
  Properties p;
  const auto items = parts(text, ';');
  if (!items.empty()) p.deterministic = p.symmetric = false;  // what is not listed is not promised
  for (std::string_view item : items) {
    const auto at = std::find_if(std::begin(kProperties), std::end(kProperties), [&](const auto& known) { return item == known.name; });
    if (at == std::end(kProperties)) {
      std::string known;
      for (const auto& k : kProperties) known += (known.empty() ? "" : ", ") + std::string(k.name);
      throw std::invalid_argument("unknown property '" + std::string(item) + "' (properties: " + known + ")");
    }
    p.*at->flag = true;
  }
  return p;
}

std::string to_string(const Properties& p) {
  std::string s;
  for (const auto& k : kProperties)
    if (p.*k.flag) s += (s.empty() ? "" : ";") + std::string(k.name);
  return s;
}

}  // namespace gdn
