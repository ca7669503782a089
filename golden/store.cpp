// The golden schema on top of hdf5.h: writer, reader, content hash, and the exchange files. Schema: golden/README.md.
#include "golden/store.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <set>
#include <sstream>

#include "golden/atomic_file.h"
#include "golden/foreign.h"
#include "golden/hdf5.h"
#include "golden/manifest.h"
#include "golden/sha256.h"
#include "golden/stream.h"
#include "reference/stages.h"
#include "reference/standard.h"
#include "reference/strand.h"

namespace gdn {
namespace fs = std::filesystem;
namespace {

constexpr const char* kSchema = "gdn-golden";
constexpr const char* kTensorSchema = "gdn-tensors";
constexpr std::size_t kBlockBytes = 16 << 20;      // of one read while hashing

struct Described { const char *name, *what, *axes, *units; };
constexpr Described kDescribed[] = {
    {"q", "queries", "token, key head, key channel", "1"},
    {"k", "keys", "token, key head, key channel", "1"},
    {"v", "values", "token, value head, value channel", "1"},
    {"g", "log decay of the state before the token is read", "token, value head (kda: , key channel; complex_kda: , pair of them)", "natural logarithm of a factor, -inf..0"},
    {"angle", "complex_kda: by what a pair of key channels is turned", "token, value head, pair of key channels", "radians"},
    {"beta", "write strength", "token, value head", "1, in 0..2"},
    {"a", "raw gate: g = -exp(A_log) softplus(a + dt_bias)", "token, value head", "1"},
    {"A_log", "logarithm of the gate's rate", "value head", "natural logarithm of a rate"},
    {"dt_bias", "bias of the raw gate", "value head", "1"},
    {"h0", "initial state (decode, verify: the pool before)", "sequence or slot, value head, key channel, value channel", "1"},
    {"state_indices", "slot of each row of the batch, -1: none", "call, row", "slot"},
    {"accepted", "draft tokens of the call before that are kept", "call, row", "tokens"},
    {"cu_seqlens", "offsets of the sequences along the token axis", "sequence + 1", "tokens"},
    {"G", "stages: sums of g inside the chunk", "token, value head", "natural logarithm of a factor"},
    {"L", "stages: beta (K K^T) o D below the diagonal", "token, value head, row of the chunk", "1"},
    {"M", "stages: (I+L)^-1", "token, value head, row of the chunk", "1"},
    {"U", "stages: M (beta v)", "token, value head, value channel", "1"},
    {"W", "stages: M (beta e^G k)", "token, value head, key channel", "1"},
    {"Vn", "stages: corrected values", "token, value head, value channel", "1"},
    {"states", "stages: states before every chunk", "chunk, value head, key channel, value channel", "1"},
    {"x", "layer: hidden states", "token, hidden channel", "1"},
    {"norm_in_w", "layer: weights of the hidden norm", "hidden channel", "1"},
    {"w_qkv", "layer: projection to q, k, v", "channel (q heads, k heads, v heads), hidden channel", "1"},
    {"w_z", "layer: projection to the output gate", "value head and value channel, hidden channel", "1"},
    {"w_a", "layer: projection to the raw gate", "value head, hidden channel", "1"},
    {"w_b", "layer: projection to the raw write strength", "value head, hidden channel", "1"},
    {"w_conv", "layer: taps of the convolution, oldest first", "channel, tap", "1"},
    {"w_out", "layer: output projection", "hidden channel, value head and value channel", "1"},
    {"norm_w", "layer: weights of the gated norm", "value channel", "1"},
    {"conv_state", "layer: history of the convolution, oldest first", "sequence, channel, token before", "1"},
    {"y", "layer: outputs", "token, hidden channel", "1"},
    {"o", "outputs", "token, value head, value channel", "1"},
    {"ht", "final states (decode, verify: the pool after)", "sequence or slot, value head, key channel, value channel", "1"},
    {"snapshots", "states after every draft token", "token, value head, key channel, value channel", "1"}};

const Described* described(std::string_view name) {
  for (const Described& d : kDescribed)
    if (name == d.name) return &d;
  return nullptr;
}

bool is_name(const std::string& s) {
  if (s.empty() || s.size() > 100 || s[0] == '.') return false;
  return std::all_of(s.begin(), s.end(), [](unsigned char c) { return std::isalnum(c) || std::strchr("_-.+=", c); });
}

// ---- what a problem asks of its tensors

struct Wanted { DType dtype; std::vector<std::int64_t> shape; };

// The operations whose tensors the canonical form names; others bring their own and are held to their hashes only.
bool plain_operation(const Problem& p) { return p.operation == Operation::prefill || own_tensors(p) || p.pool(); }

std::map<std::string, Wanted> wanted_inputs(const Problem& p) {
  const std::int64_t rows = p.tokens() + p.padding;
  if (own_tensors(p)) {
    std::map<std::string, Wanted> own{{"cu_seqlens", {DType::i64, {p.sequences() + 1}}}};
    for (const StageTensor& t : own_inputs(p)) own[t.name] = {t.dtype, t.shape};
    return own;
  }
  std::map<std::string, Wanted> w{{"q", {p.io, {rows, p.heads, p.key_dim}}},
                                  {"k", {p.io, {rows, p.heads, p.key_dim}}},
                                  {"v", {p.io, {rows, p.value_heads, p.value_dim}}},
                                  {"g", {p.gate, {rows, p.value_heads}}},
                                  {"beta", {p.beta, {rows, p.value_heads}}},
                                  {"cu_seqlens", {DType::i64, {p.sequences() + 1}}}};
  if (p.rule == Rule::kda || p.rule == Rule::complex_kda) w.at("g").shape.push_back(p.gate_width());
  if (p.rule == Rule::complex_kda) w["angle"] = w.at("g");
  if (p.initial_state) w["h0"] = {p.state, {p.states(), p.value_heads, p.key_dim, p.value_dim}};
  if (p.raw) {
    w.erase("g");
    w["a"] = {p.gate, {rows, p.value_heads}};
    w["A_log"] = w["dt_bias"] = {DType::f32, {p.value_heads}};
  }
  if (p.pool()) {
    const std::vector<std::int64_t> by_call{static_cast<std::int64_t>(p.cuts().size()) + 1, p.sequences()};
    w["state_indices"] = {DType::i32, by_call};
    if (p.operation == Operation::verify) w["accepted"] = {DType::i32, by_call};
  }
  return w;
}

bool optional_input(const Problem& p, const std::string& name) { return (name == "g" || name == "beta") && !own_tensors(p); }   // a rule may fix them

std::map<std::string, std::vector<std::int64_t>> wanted_truth(const Problem& p) {
  std::map<std::string, std::vector<std::int64_t>> w;
  for (const char* name : output_names(p)) w[name] = output_shape(p, name);
  return w;
}

// Empty, or what is wrong with this tensor of this problem.
std::string mismatch(const Wanted& w, DType dtype, const std::vector<std::int64_t>& shape) {
  if (shape != w.shape) return "shape " + shape_text(shape) + ", but the problem needs " + shape_text(w.shape);
  if (dtype != w.dtype) return std::string("stored as ") + name(dtype) + ", but the problem needs " + name(w.dtype);
  return {};
}

std::string offsets_mismatch(const Problem& p, const Tensor& cu) {
  const auto want = p.offsets();
  for (std::size_t i = 0; i < want.size(); ++i)
    if (cu.int_at(static_cast<std::int64_t>(i)) != want[i])
      return "element [" + std::to_string(i) + "] is " + std::to_string(cu.int_at(static_cast<std::int64_t>(i))) + ", but the problem needs " + std::to_string(want[i]);
  return {};
}

// Truth that the standard allows: hi+lo normalised, radius a number; an infinite radius means that nothing is known.
std::string value_fault(const double* hi, const double* lo, const float* radius, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) {
    const char* what = nullptr;
    if (!(radius[i] >= 0)) what = "radius is negative or NaN";
    else if (std::isfinite(hi[i]) && (!std::isfinite(lo[i]) || hi[i] + lo[i] != hi[i])) what = "hi + lo is not normalised";
    if (what) return std::string(what) + " at element " + std::to_string(i);
  }
  return {};
}

// ---- content hash

struct Entry { DType dtype; std::vector<std::int64_t> shape; std::string sha256; };
using Listing = std::map<std::string, Entry>;      // by path

std::string identity_text(const Case& c, const std::string& edition, const OracleStats& s) {
  std::ostringstream t;
  t << kSchema << ' ' << kGoldenSchemaVersion << "\nedition " << edition << "\ncase " << case_id(c) << '\n';
  for (std::size_t i = 0; i < c.runs.size(); ++i)
    t << "run " << i << ' ' << c.runs[i].name << ' ' << to_string(c.runs[i].problem) << " truth=" << c.runs[i].truth << '\n';
  t << "stats elements=" << s.elements << " uncertified_fp64=" << s.uncertified_fp64 << " balls=" << s.balls
    << " multiprecision_heads=" << s.multiprecision_heads << " exact_heads=" << s.exact_heads << '\n';
  return t.str();
}

std::string hash_of(const std::string& identity, const Listing& listing) {
  std::string text = identity;
  for (const auto& [path, e] : listing) text += "dataset " + path + " " + name(e.dtype) + " " + shape_text(e.shape) + " " + e.sha256 + "\n";
  return sha256_hex(text);
}

std::string input_path(const std::string& run, const std::string& tensor) { return "/inputs/" + run + "/" + tensor; }
std::string truth_path(const std::string& run, const std::string& tensor, const char* part) { return "/truth/" + run + "/" + tensor + "_" + part; }

struct Part { const char* name; DType dtype; const char* what; };
constexpr Part kParts[] = {{"hi", DType::f64, "high part of the exact value"},
                           {"lo", DType::f64, "low part of the exact value: value = hi + lo"},
                           {"radius", DType::f32, "certified |value - (hi + lo)| is at most this; 0 means exact"}};

std::string joined(const std::vector<std::string>& names) {
  std::string t;
  for (const std::string& n : names) t += (t.empty() ? "" : " ") + n;
  return t;
}
std::vector<std::string> words(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> out;
  for (std::string w; in >> w;) out.push_back(w);
  return out;
}

Case without_tensors(const Case& c) {
  Case m{c.family, c.problem, c.seed, {}, {}};
  for (const Run& r : c.runs) m.runs.push_back({r.name, r.problem, {}, r.truth});
  return m;
}

void describe(const h5::File& f, hid_t dataset, const std::string& tensor, const std::string& prefix) {
  const Described* d = described(tensor);
  const std::string what = d ? d->what : tensor;
  h5::put_attribute(f, dataset, "description", prefix.empty() ? what : what + ": " + prefix);
  if (!d) return;
  h5::put_attribute(f, dataset, "axes", std::string(d->axes));
  h5::put_attribute(f, dataset, "units", std::string(d->units));
}

// Calls use(data, bytes) on the whole dataset in row-major order, in blocks of rows.
template <class Use>
void for_blocks(const h5::File& f, const h5::Dataset& d, Use use) {
  std::size_t row = size_of(d.dtype);
  for (std::size_t i = 1; i < d.shape.size(); ++i) row *= static_cast<std::size_t>(d.shape[i]);
  const std::int64_t rows = d.shape.empty() ? 1 : d.shape[0];
  if (row == 0 || rows == 0) return;
  const std::int64_t step = d.shape.empty() ? 1 : std::max<std::int64_t>(1, static_cast<std::int64_t>(kBlockBytes / row));
  std::vector<std::byte> block(row * static_cast<std::size_t>(std::min(step, rows)));
  for (std::int64_t r = 0; r < rows; r += step) {
    const std::int64_t n = std::min(step, rows - r);
    if (d.shape.empty()) {
      h5::read(f, d, block.data());
    } else {
      std::vector<hsize_t> first(d.shape.size(), 0), count(d.shape.begin(), d.shape.end());
      first[0] = static_cast<hsize_t>(r);
      count[0] = static_cast<hsize_t>(n);
      h5::read(f, d, block.data(), first, count);
    }
    use(block.data(), row * static_cast<std::size_t>(n));
  }
}

std::uint64_t truth_size(const std::vector<std::int64_t>& shape) {
  std::uint64_t bytes = 0;
  for (const Part& part : kParts) bytes += h5::largest_size(shape, part.dtype);
  return bytes;
}

// Creating truncates and so gives the space back; but where there is none, HDF5 is not to have the file open.
h5::File create_reserved(AtomicFile& atomic, const fs::path& target, std::uint64_t bytes) {
  atomic.reserve(bytes);
  h5::File f = h5::create(atomic.temporary(), target.string());
  atomic.reserve(bytes);
  return f;
}

std::string hash_dataset(const h5::File& f, const h5::Dataset& d) {
  Sha256 h;
  for_blocks(f, d, [&](const void* p, std::size_t n) { h.add(p, n); });
  return h.hex();
}

fs::path make_directory(const fs::path& dir) {
  const fs::path d = dir.empty() ? fs::path(".") : dir;
  std::error_code ec;
  fs::create_directories(d, ec);
  if (ec && !fs::is_directory(d)) throw BadInput(d.string() + ": cannot make this directory: " + ec.message());
  return d;
}

}  // namespace

// ---- GoldenWriter

struct GoldenWriter::State {
  fs::path dir, target;
  Case meta;
  std::string edition, source;
  Listing listing;                                 // inputs hashed while written; truth when finished
  struct Output { h5::Id id; std::string path; DType dtype; std::vector<std::int64_t> shape; std::string sha256; };   // hash: of what was put whole
  struct RunState {
    std::map<std::string, std::vector<Output>> outputs;   // by tensor: hi, lo, radius
    std::vector<bool> put;                         // heads; empty when put as a whole
    bool whole = false;
  };
  std::vector<RunState> runs;
  std::unique_ptr<AtomicFile> atomic;
  h5::File file;                                   // closed before `atomic` removes it

  std::uint64_t reserved = 0;                      // disk space, in bytes

  void create_truth(std::size_t run, const std::string& tensor, const std::vector<std::int64_t>& shape, std::vector<hsize_t> chunk) {
    for (const Part& part : kParts) {
      const std::string path = truth_path(meta.runs[run].name, tensor, part.name);
      // Enough cache for one chunk of every head, so that heads may come in any order.
      std::size_t cache = 0;
      if (!chunk.empty()) {
        cache = size_of(part.dtype);
        for (std::size_t i = 0; i < shape.size(); ++i) cache *= i == 1 ? static_cast<std::size_t>(shape[1]) : static_cast<std::size_t>(chunk[i]);
        cache = std::clamp<std::size_t>(cache + (1 << 20), 1 << 20, 64 << 20);
      }
      Output o{h5::create_dataset(file, path, part.dtype, shape, h5::Storage::checked, chunk, cache), path, part.dtype, shape, {}};
      describe(file, o.id, tensor, part.what);
      runs[run].outputs[tensor].push_back(std::move(o));
    }
  }
};

GoldenWriter::GoldenWriter(const fs::path& dir, const Case& c, const std::string& edition) : s_(std::make_unique<State>()) {
  const auto held = h5::lock();
  const auto contradiction = [&](const std::string& what) { throw std::invalid_argument("golden of " + case_id(c) + ": " + what); };
  if (c.runs.empty()) contradiction("no runs");
  std::set<std::string> names;
  for (const Run& r : c.runs) {
    if (!is_name(r.name) || !names.insert(r.name).second) contradiction("run name '" + r.name + "' is empty, used twice or has odd characters");
    if (plain_operation(r.problem)) {
      for (const auto& [tensor, want] : wanted_inputs(r.problem)) {
        const auto at = r.inputs.find(tensor);
        if (at == r.inputs.end()) {
          if (!optional_input(r.problem, tensor)) contradiction("run " + r.name + " has no input " + tensor);
          continue;
        }
        std::string bad = mismatch(want, at->second.dtype, at->second.shape);
        if (bad.empty() && tensor == "cu_seqlens") bad = offsets_mismatch(r.problem, at->second);
        if (!bad.empty()) contradiction("run " + r.name + ", input " + tensor + ": " + bad);
      }
    }
    for (const auto& [tensor, t] : r.inputs)
      if (!is_name(tensor)) contradiction("input name '" + tensor + "' has odd characters");
  }

  s_->dir = make_directory(dir);
  require_manifest(s_->dir);                       // a wrong one is refused before the work, not after
  s_->target = s_->dir / (file_stem(case_id(c)) + ".h5");
  s_->meta = without_tensors(c);
  s_->edition = edition;
  s_->runs.resize(c.runs.size());
  s_->atomic = std::make_unique<AtomicFile>(s_->target);
  std::uint64_t bytes = h5::kFileOverhead + 4 * case_id(c).size();
  for (const Run& r : c.runs) {
    bytes += 8192 + 4 * to_string(r.problem).size();
    for (const auto& [tensor, t] : r.inputs) bytes += h5::largest_size(t.shape, t.dtype);
    if (r.truth && plain_operation(r.problem))
      for (const auto& [tensor, shape] : wanted_truth(r.problem)) bytes += truth_size(shape);
  }
  s_->file = create_reserved(*s_->atomic, s_->target, bytes);
  s_->reserved = bytes;
  const h5::File& f = s_->file;
  for (const Run& r : c.runs) {
    const h5::Id group = h5::create_group(f, "/inputs/" + r.name);
    std::vector<std::string> tensors;
    for (const auto& [tensor, t] : r.inputs) tensors.push_back(tensor);
    h5::put_attribute(f, group, "description", std::string("inputs of one run, canonical layout of the accuracy standard"));
    h5::put_attribute(f, group, "problem", to_string(r.problem));
    h5::put_attribute(f, group, "tensors", joined(tensors));
    h5::put_attribute(f, group, "truth", std::string(r.truth ? "yes" : "no"));
    for (const auto& [tensor, t] : r.inputs) {
      const std::string path = input_path(r.name, tensor);
      const h5::Id d = h5::create_dataset(f, path, t.dtype, t.shape, h5::Storage::packed);
      describe(f, d, tensor, "");
      if (!t.data.empty()) h5::write(f, path, d, t.dtype, t.data.data());
      const std::string sha = sha256_hex(t.data.data(), t.data.size());
      h5::put_attribute(f, d, "sha256", sha);
      s_->listing[path] = {t.dtype, t.shape, sha};
    }
  }
}

GoldenWriter::~GoldenWriter() {
  const auto held = h5::lock();
  s_.reset();
}

void GoldenWriter::set_source(const std::string& text) { s_->source = text; }

void GoldenWriter::put_head(std::size_t run, std::int64_t n, std::int64_t hv, const HeadTruth& h) {
  const auto held = h5::lock();
  const Problem& p = s_->meta.runs.at(run).problem;
  State::RunState& r = s_->runs[run];
  if (p.operation != Operation::prefill) throw std::logic_error("put_head: the truth of a pool or a stage is put as a whole");
  if (r.whole || n < 0 || n >= p.sequences() || hv < 0 || hv >= p.value_heads) throw std::logic_error("put_head: no such head");
  if (r.put.empty()) {
    r.put.assign(static_cast<std::size_t>(p.sequences() * p.value_heads), false);
    // One head a chunk, at most 1 MiB, and at most 32 MiB over all heads, which the chunk cache holds.
    for (const auto& [tensor, shape] : wanted_truth(p)) {
      std::vector<hsize_t> chunk(shape.begin(), shape.end());
      chunk[1] = 1;
      const hsize_t row = 8 * chunk.back(), heads = static_cast<hsize_t>(p.value_heads);
      if (tensor == "o") {
        chunk[0] = std::clamp<hsize_t>(std::min<hsize_t>((1 << 20) / row, (32 << 20) / (row * heads)), 1, std::max<hsize_t>(1, chunk[0]));
      } else {
        chunk[0] = 1;
        chunk[2] = std::clamp<hsize_t>((1 << 20) / row, 1, chunk[2]);
      }
      s_->create_truth(run, tensor, shape, std::move(chunk));
    }
    if (p.padding > 0) {                           // nobody's rows: nothing is known of them
      const State::Output& radius = r.outputs.at("o")[2];
      const std::vector<float> unknown(static_cast<std::size_t>(p.padding * p.value_heads * p.value_dim), std::numeric_limits<float>::infinity());
      h5::write(s_->file, radius.path, radius.id, radius.dtype, unknown.data(), {static_cast<hsize_t>(p.tokens()), 0, 0},
                {static_cast<hsize_t>(p.padding), static_cast<hsize_t>(p.value_heads), static_cast<hsize_t>(p.value_dim)});
    }
  }
  const auto put = [&](const std::string& tensor, const TruthTensor& t, const std::vector<hsize_t>& first, const std::vector<hsize_t>& count) {
    std::size_t size = 1;
    for (hsize_t d : count) size *= static_cast<std::size_t>(d);
    if (t.hi.size() != size || t.lo.size() != size || t.radius.size() != size) throw std::logic_error("put_head: " + tensor + " has the wrong size");
    if (size == 0) return;
    const std::string bad = value_fault(t.hi.data(), t.lo.data(), t.radius.data(), size);
    if (!bad.empty()) throw std::logic_error("put_head: " + tensor + ": " + bad);
    const void* data[] = {t.hi.data(), t.lo.data(), t.radius.data()};
    auto& outputs = r.outputs.at(tensor);
    for (std::size_t i = 0; i < 3; ++i) h5::write(s_->file, outputs[i].path, outputs[i].id, outputs[i].dtype, data[i], first, count);
  };
  const auto U = [](std::int64_t x) { return static_cast<hsize_t>(x); };
  const std::int64_t first = p.offsets()[static_cast<std::size_t>(n)], T = p.lengths[static_cast<std::size_t>(n)];
  put("o", h.o, {U(first), U(hv), 0}, {U(T), 1, U(p.value_dim)});
  if (p.final_state) put("ht", h.ht, {U(n), U(hv), 0, 0}, {1, 1, U(p.key_dim), U(p.value_dim)});
  r.put[static_cast<std::size_t>(n * p.value_heads + hv)] = true;
}

void GoldenWriter::put_truth(std::size_t run, const Truth& truth) {
  const auto held = h5::lock();
  const Problem& p = s_->meta.runs.at(run).problem;
  State::RunState& r = s_->runs[run];
  if (!r.put.empty() || r.whole) throw std::logic_error("put_truth: the run has its truth already");
  r.whole = true;
  const auto contradiction = [&](const std::string& what) {
    throw std::invalid_argument("golden of " + case_id(s_->meta) + ": truth of run " + s_->meta.runs[run].name + ": " + what);
  };
  if (plain_operation(p))
    for (const auto& [tensor, shape] : wanted_truth(p)) {
      const auto at = truth.find(tensor);
      if (at == truth.end()) contradiction("no " + tensor);
      if (at->second.shape != shape) contradiction(tensor + " has shape " + shape_text(at->second.shape) + ", but the problem needs " + shape_text(shape));
    }
  for (const auto& [tensor, t] : truth) {
    if (!is_name(tensor)) contradiction("tensor name '" + tensor + "' has odd characters");
    std::size_t size = 1;
    for (std::int64_t d : t.shape) size *= static_cast<std::size_t>(d);
    if (t.hi.size() != size || t.lo.size() != size || t.radius.size() != size) contradiction(tensor + ": hi, lo and radius must have " + std::to_string(size) + " elements");
    const std::string bad = value_fault(t.hi.data(), t.lo.data(), t.radius.data(), size);
    if (!bad.empty()) contradiction(tensor + ": " + bad);
    if (!plain_operation(p)) s_->atomic->reserve(s_->reserved += truth_size(t.shape));
    s_->create_truth(run, tensor, t.shape, {});
    const void* data[] = {t.hi.data(), t.lo.data(), t.radius.data()};
    auto& outputs = r.outputs.at(tensor);
    for (std::size_t i = 0; i < 3; ++i) {
      if (size > 0) h5::write(s_->file, outputs[i].path, outputs[i].id, outputs[i].dtype, data[i]);
      outputs[i].sha256 = sha256_hex(data[i], size * size_of(outputs[i].dtype));
    }
  }
}

fs::path GoldenWriter::finish(const OracleStats& stats, std::string* content) {
  auto held = h5::lock();
  h5::File& f = s_->file;
  for (std::size_t i = 0; i < s_->runs.size(); ++i) {
    State::RunState& r = s_->runs[i];
    const Run& run = s_->meta.runs[i];
    const bool complete = r.whole || (!r.put.empty() && std::find(r.put.begin(), r.put.end(), false) == r.put.end());
    if (run.truth != (r.whole || !r.put.empty()) || (run.truth && !complete)) throw std::logic_error("golden of " + case_id(s_->meta) + ": run " + run.name + " has not the truth it should have");
    if (!run.truth) continue;
    const h5::Id group = h5::open_group(f, "/truth/" + run.name);
    std::vector<std::string> tensors;
    for (auto& [tensor, outputs] : r.outputs) {
      tensors.push_back(tensor);
      for (State::Output& o : outputs) {
        h5::Dataset d{std::move(o.id), h5::Id(), o.path, o.dtype, o.shape};
        d.type = h5::Id(H5Dget_type(d.id));
        const std::string sha = o.sha256.empty() ? hash_dataset(f, d) : o.sha256;
        h5::put_attribute(f, d.id, "sha256", sha);
        s_->listing[o.path] = {o.dtype, o.shape, sha};
      }
    }
    h5::put_attribute(f, group, "description", std::string("expected outputs of the run of the same name, as hi + lo with a certified radius"));
    h5::put_attribute(f, group, "tensors", joined(tensors));
  }
  const std::string hash = hash_of(identity_text(s_->meta, s_->edition, stats), s_->listing);
  {
    const h5::Id root = h5::open_group(f, "/");
    const Case& c = s_->meta;
    std::vector<std::string> runs;
    for (const Run& r : c.runs) runs.push_back(r.name);
    h5::put_attribute(f, root, "schema", std::string(kSchema));
    h5::put_attribute(f, root, "schema_version", std::int64_t{kGoldenSchemaVersion});
    h5::put_attribute(f, root, "description", std::string("certified golden data of one case for Gated DeltaNet kernels"));
    h5::put_attribute(f, root, "edition", s_->edition);
    h5::put_attribute(f, root, "suite_version", std::string(kSuiteVersion));
    h5::put_attribute(f, root, "case_id", case_id(c));
    h5::put_attribute(f, root, "family", c.family);
    h5::put_attribute(f, root, "problem", to_string(c.problem));
    h5::put_attribute(f, root, "seed", c.seed);
    h5::put_attribute(f, root, "runs", joined(runs));
    if (!s_->source.empty()) h5::put_attribute(f, root, "source", s_->source);
    h5::put_attribute(f, root, "elements", stats.elements);
    h5::put_attribute(f, root, "uncertified_fp64", stats.uncertified_fp64);
    h5::put_attribute(f, root, "balls", stats.balls);
    h5::put_attribute(f, root, "multiprecision_heads", stats.multiprecision_heads);
    h5::put_attribute(f, root, "exact_heads", stats.exact_heads);
    h5::put_attribute(f, root, "content_sha256", hash);
  }
  s_->runs.clear();                                // closes what is still open
  const std::uint64_t bytes = h5::flush_and_close(f);
  if (content) *content = hash;
  held.unlock();                                   // a sync takes milliseconds, in which others may use HDF5
  s_->atomic->trim(bytes);
  s_->atomic->commit();
  add_to_manifest(s_->dir, s_->target.filename().string(), {case_id(s_->meta), hash, s_->edition, bytes});
  return s_->target;
}

// ---- GoldenReader

struct GoldenReader::State {
  h5::File file;
  Case meta;
  std::string edition, hash;
  OracleStats stats;
  Listing listing;                                 // hashes as the datasets say
  std::vector<std::vector<std::string>> inputs, truths;   // tensor names per run

  std::string text(hid_t object, const std::string& where, const std::string& name) const {
    const auto t = h5::text_attribute(file, object, where, name);
    if (!t) file.fail(where, "attribute " + name + " is missing");
    return *t;
  }
  std::int64_t integer(hid_t object, const std::string& where, const std::string& name) const {
    const auto t = h5::int_attribute(file, object, where, name);
    if (!t) file.fail(where, "attribute " + name + " is missing");
    return *t;
  }
  void check_dataset(const std::string& path, const Wanted* want) {
    const h5::Dataset d = h5::open_dataset(file, path);
    if (want) {
      const std::string bad = mismatch(*want, d.dtype, d.shape);
      if (!bad.empty()) file.fail("dataset " + path, bad);
    }
    listing[path] = {d.dtype, d.shape, text(d.id, "dataset " + path, "sha256")};
  }
  // The names that a group says it holds; only these are ever looked at.
  std::vector<std::string> tensors(hid_t group, const std::string& where) const {
    auto names = words(text(group, where, "tensors"));
    std::sort(names.begin(), names.end());
    if (names.size() > 1000 || std::adjacent_find(names.begin(), names.end()) != names.end() || !std::all_of(names.begin(), names.end(), is_name))
      file.fail(where, "attribute tensors is not a list of names");
    return names;
  }
  Tensor verified(const std::string& path) const {
    Tensor t = h5::read_tensor(file, h5::open_dataset(file, path));
    check_hash(path, sha256_hex(t.data.data(), t.data.size()));
    return t;
  }
  void check_hash(const std::string& path, const std::string& sha) const {
    if (sha != listing.at(path).sha256) file.fail("dataset " + path, "content does not match its SHA-256");
  }
  void check_offsets(std::size_t run, const Tensor& cu) const {
    const std::string bad = plain_operation(meta.runs[run].problem) ? offsets_mismatch(meta.runs[run].problem, cu) : std::string{};
    if (!bad.empty()) file.fail("dataset " + input_path(meta.runs[run].name, "cu_seqlens"), bad);
  }
  TruthTensor truth(std::size_t run, const std::string& tensor) const {
    const auto part = [&](const Part& p) { return verified(truth_path(meta.runs[run].name, tensor, p.name)); };
    TruthTensor t;
    const Tensor hi = part(kParts[0]);
    t.shape = hi.shape;
    const auto copy = [](const Tensor& from, auto& to) {
      to.resize(static_cast<std::size_t>(from.size()));
      if (!to.empty()) std::memcpy(to.data(), from.data.data(), from.data.size());
    };
    copy(hi, t.hi);
    copy(part(kParts[1]), t.lo);
    copy(part(kParts[2]), t.radius);
    check_values(run, tensor, t);
    return t;
  }
  void check_values(std::size_t run, const std::string& tensor, const TruthTensor& t) const {
    const std::string bad = value_fault(t.hi.data(), t.lo.data(), t.radius.data(), t.hi.size());
    if (!bad.empty()) file.fail("dataset " + truth_path(meta.runs[run].name, tensor, "radius"), bad);
  }
};

GoldenReader::GoldenReader(const fs::path& path) : s_(std::make_unique<State>()) {
  const auto held = h5::lock();
  State& s = *s_;
  s.file = h5::open_readonly(path);
  const h5::File& f = s.file;
  const h5::Id root = h5::open_group(f, "/");
  const auto schema = h5::text_attribute(f, root, "group /", "schema");
  if (!schema || *schema != kSchema) f.fail("is not a golden file (no attribute schema = " + std::string(kSchema) + ")");
  const std::int64_t version = s.integer(root, "group /", "schema_version");
  if (version < 1 || version > kGoldenSchemaVersion)
    f.fail("golden schema version " + std::to_string(version) + " is newer than " + std::to_string(kGoldenSchemaVersion) + ", the newest this program reads");
  s.edition = s.text(root, "group /", "edition");
  s.hash = s.text(root, "group /", "content_sha256");
  s.stats = {s.integer(root, "group /", "elements"), s.integer(root, "group /", "uncertified_fp64"), s.integer(root, "group /", "balls"),
             s.integer(root, "group /", "multiprecision_heads"), s.integer(root, "group /", "exact_heads")};
  const std::string id = s.text(root, "group /", "case_id");
  const auto problem_of = [&](const std::string& where, const std::string& text) {
    try {
      return parse_problem(text);
    } catch (const std::invalid_argument& e) {
      f.fail(where, e.what());
    }
  };
  s.meta.family = s.text(root, "group /", "family");
  s.meta.problem = problem_of("group /", s.text(root, "group /", "problem"));
  s.meta.seed = static_cast<std::uint64_t>(s.integer(root, "group /", "seed"));
  if (case_id(s.meta) != id) f.fail("group /", "case_id, family, problem and seed contradict each other");
  const auto runs = words(s.text(root, "group /", "runs"));
  if (runs.empty() || runs.size() > 100000 || !std::all_of(runs.begin(), runs.end(), is_name) || std::set<std::string>(runs.begin(), runs.end()).size() != runs.size())
    f.fail("group /", "attribute runs is not a list of names");
  for (const std::string& run : runs) {
    const std::string where = "group /inputs/" + run;
    const h5::Id group = h5::open_group(f, "/inputs/" + run);
    const Problem p = problem_of(where, s.text(group, where, "problem"));
    const std::string truth = s.text(group, where, "truth");
    if (truth != "yes" && truth != "no") f.fail(where, "attribute truth is neither yes nor no");
    s.meta.runs.push_back({run, p, {}, truth == "yes"});

    const auto names = s.tensors(group, where);
    const auto wanted = plain_operation(p) ? wanted_inputs(p) : std::map<std::string, Wanted>{};
    for (const auto& [tensor, want] : wanted)
      if (!optional_input(p, tensor) && !std::binary_search(names.begin(), names.end(), tensor)) f.fail("dataset " + input_path(run, tensor), "missing");
    for (const std::string& tensor : names) {
      const auto want = wanted.find(tensor);
      s.check_dataset(input_path(run, tensor), want == wanted.end() ? nullptr : &want->second);
    }
    s.inputs.push_back(names);
    s.truths.emplace_back();
    if (truth == "no") continue;
    const std::string truth_where = "group /truth/" + run;
    const h5::Id truth_group = h5::open_group(f, "/truth/" + run);
    s.truths.back() = s.tensors(truth_group, truth_where);
    const auto shapes = plain_operation(p) ? wanted_truth(p) : std::map<std::string, std::vector<std::int64_t>>{};
    for (const auto& [tensor, shape] : shapes)
      if (!std::binary_search(s.truths.back().begin(), s.truths.back().end(), tensor)) f.fail("dataset " + truth_path(run, tensor, "hi"), "missing");
    for (const std::string& tensor : s.truths.back()) {
      Wanted want;
      const auto shape = shapes.find(tensor);
      want.shape = shape != shapes.end() ? shape->second : h5::open_dataset(f, truth_path(run, tensor, "hi")).shape;
      for (const Part& part : kParts) {
        want.dtype = part.dtype;
        s.check_dataset(truth_path(run, tensor, part.name), &want);
      }
    }
  }
  // The datasets' own words add up to the content hash, or some name, type, shape or hash was exchanged.
  if (hash_of(identity_text(s.meta, s.edition, s.stats), s.listing) != s.hash) f.fail("group /", "identity and dataset hashes do not match content_sha256");
}

GoldenReader::~GoldenReader() {
  const auto held = h5::lock();
  s_.reset();
}

const Case& GoldenReader::meta() const { return s_->meta; }
const std::string& GoldenReader::edition() const { return s_->edition; }
const std::string& GoldenReader::content_hash() const { return s_->hash; }
const OracleStats& GoldenReader::stats() const { return s_->stats; }
std::size_t GoldenReader::datasets() const { return s_->listing.size(); }

bool GoldenReader::asks(const Case& c) const {
  const Case& mine = s_->meta;
  if (case_id(mine) != case_id(c) || mine.runs.size() != c.runs.size()) return false;
  for (std::size_t i = 0; i < c.runs.size(); ++i) {
    const Run &a = mine.runs[i], &b = c.runs[i];
    if (a.name != b.name || !(a.problem == b.problem) || a.truth != b.truth || s_->inputs[i].size() != b.inputs.size()) return false;
    for (const auto& [tensor, t] : b.inputs) {
      const auto at = s_->listing.find(input_path(a.name, tensor));
      if (at == s_->listing.end() || at->second.dtype != t.dtype || at->second.shape != t.shape || at->second.sha256 != sha256_hex(t.data.data(), t.data.size())) return false;
    }
  }
  return true;
}

void GoldenReader::verify_hashes() {
  const auto held = h5::lock();
  for (const auto& [path, entry] : s_->listing) s_->check_hash(path, hash_dataset(s_->file, h5::open_dataset(s_->file, path)));
}

Run GoldenReader::run(std::size_t index) {
  const auto held = h5::lock();
  Run r = s_->meta.runs.at(index);
  for (const std::string& tensor : s_->inputs[index]) r.inputs[tensor] = s_->verified(input_path(r.name, tensor));
  if (const auto cu = r.inputs.find("cu_seqlens"); cu != r.inputs.end()) s_->check_offsets(index, cu->second);
  return r;
}

HeadTruth GoldenReader::head_truth(std::size_t run, std::int64_t n, std::int64_t hv) {
  const auto held = h5::lock();
  const Run& r = s_->meta.runs.at(run);
  const Problem& p = r.problem;
  const auto U = [](std::int64_t x) { return static_cast<hsize_t>(x); };
  const auto get = [&](const std::string& tensor, std::vector<std::int64_t> shape, const std::vector<hsize_t>& first, const std::vector<hsize_t>& count) {
    TruthTensor t;
    t.shape = std::move(shape);
    std::size_t size = 1;
    for (hsize_t d : count) size *= static_cast<std::size_t>(d);
    t.hi.resize(size);
    t.lo.resize(size);
    t.radius.resize(size);
    void* data[] = {t.hi.data(), t.lo.data(), t.radius.data()};
    for (std::size_t i = 0; size && i < 3; ++i) h5::read(s_->file, h5::open_dataset(s_->file, truth_path(r.name, tensor, kParts[i].name)), data[i], first, count);
    s_->check_values(run, tensor, t);
    return t;
  };
  const std::int64_t first = p.offsets()[static_cast<std::size_t>(n)], T = p.lengths[static_cast<std::size_t>(n)];
  HeadTruth h;
  h.o = get("o", {T, p.value_dim}, {U(first), U(hv), 0}, {U(T), 1, U(p.value_dim)});
  if (p.final_state) h.ht = get("ht", {p.key_dim, p.value_dim}, {U(n), U(hv), 0, 0}, {1, 1, U(p.key_dim), U(p.value_dim)});
  return h;
}

Truth GoldenReader::truth(std::size_t run) {
  const auto held = h5::lock();
  Truth all;
  for (const std::string& tensor : s_->truths.at(run)) all[tensor] = s_->truth(run, tensor);
  return all;
}

Golden GoldenReader::all() {
  const auto held = h5::lock();
  Golden g;
  g.the_case = s_->meta;
  g.edition = s_->edition;
  g.stats = s_->stats;
  g.truths.resize(s_->meta.runs.size());
  for (std::size_t i = 0; i < s_->meta.runs.size(); ++i) {
    g.the_case.runs[i] = run(i);
    g.truths[i] = truth(i);
  }
  return g;
}

// ---- store.h

std::string content_hash(const Golden& g) {
  Listing listing;
  for (const Run& r : g.the_case.runs)
    for (const auto& [tensor, t] : r.inputs) listing[input_path(r.name, tensor)] = {t.dtype, t.shape, sha256_hex(t.data.data(), t.data.size())};
  for (std::size_t i = 0; i < g.truths.size(); ++i)
    for (const auto& [tensor, t] : g.truths[i]) {
      const std::string& run = g.the_case.runs.at(i).name;
      listing[truth_path(run, tensor, "hi")] = {DType::f64, t.shape, sha256_hex(t.hi.data(), t.hi.size() * 8)};
      listing[truth_path(run, tensor, "lo")] = {DType::f64, t.shape, sha256_hex(t.lo.data(), t.lo.size() * 8)};
      listing[truth_path(run, tensor, "radius")] = {DType::f32, t.shape, sha256_hex(t.radius.data(), t.radius.size() * 4)};
    }
  return hash_of(identity_text(g.the_case, g.edition, g.stats), listing);
}

std::string Golden::content() const { return hash.empty() ? content_hash(*this) : hash; }

fs::path write_golden(const fs::path& dir, const Golden& g, std::string* hash) {
  GoldenWriter w(dir, g.the_case, g.edition);
  for (std::size_t i = 0; i < g.the_case.runs.size(); ++i)
    if (g.the_case.runs[i].truth) {
      if (i >= g.truths.size()) throw std::invalid_argument("golden of " + case_id(g.the_case) + ": run " + g.the_case.runs[i].name + " has no truth");
      w.put_truth(i, g.truths[i]);
    }
  return w.finish(g.stats, hash);
}

Golden read_golden(const fs::path& file) {
  try {
    return GoldenReader(file).all();
  } catch (const std::bad_alloc&) {
    throw BadInput(file.string() + ": does not fit into memory");
  }
}

namespace {
// An exchange file: tensors by path of their group ("" is the root), texts as attributes of the root.
void write_exchange(const fs::path& file, const std::string& id, const Problem& p, const std::vector<std::pair<std::string, const TensorSet*>>& groups,
                    const std::map<std::string, std::string>& texts) {
  const auto held = h5::lock();
  AtomicFile atomic(file, false);
  std::uint64_t bytes = h5::kFileOverhead + 4 * id.size();
  for (const auto& [name, text] : texts) bytes += name.size() + text.size() + 1024;
  for (const auto& [path, tensors] : groups)
    for (const auto& [tensor, t] : *tensors) bytes += h5::largest_size(t.shape, t.dtype);
  h5::File f = create_reserved(atomic, file, bytes);
  {
    const h5::Id root = h5::open_group(f, "/");
    h5::put_attribute(f, root, "schema", std::string(kTensorSchema));
    h5::put_attribute(f, root, "schema_version", std::int64_t{kGoldenSchemaVersion});
    h5::put_attribute(f, root, "case_id", id);
    h5::put_attribute(f, root, "problem", to_string(p));
    for (const auto& [name, text] : texts) h5::put_attribute(f, root, name, text);
  }
  for (const auto& [path, tensors] : groups)
    for (const auto& [tensor, t] : *tensors) {
      const std::string dataset = path + "/" + tensor;
      const h5::Id d = h5::create_dataset(f, dataset, t.dtype, t.shape, h5::Storage::plain);
      describe(f, d, tensor, "");
      if (!t.data.empty()) h5::write(f, dataset, d, t.dtype, t.data.data());
    }
  atomic.trim(h5::flush_and_close(f));
  atomic.commit();
}
}  // namespace

void write_tensors(const fs::path& file, const std::string& id, const Problem& p, const TensorSet& tensors) { write_exchange(file, id, p, {{"", &tensors}}, {}); }

void write_results(const fs::path& file, const Case& c, const std::vector<TensorSet>& outputs, const std::map<std::string, std::string>& texts) {
  std::vector<std::pair<std::string, const TensorSet*>> groups;
  for (std::size_t i = 0; i < outputs.size(); ++i) groups.emplace_back(c.runs.size() == 1 ? "" : "/" + c.runs[i].name, &outputs[i]);
  write_exchange(file, case_id(c), c.problem, groups, texts);
}

TensorSet read_tensors(const fs::path& file, const std::string& group) { return read_foreign(file, group).tensors; }

namespace {
std::string index_text(const std::vector<std::int64_t>& shape, std::int64_t i) {
  std::vector<std::int64_t> at(shape.size());
  for (std::size_t d = shape.size(); d-- > 0;) {
    at[d] = i % shape[d];
    i /= shape[d];
  }
  return shape_text(at);
}
std::string number_text(double x) {
  char text[64];
  std::snprintf(text, sizeof text, "%.17g (%a)", x, x);
  return text;
}
}  // namespace

Tensor coerce(const Tensor& t, DType want) {
  if (t.dtype == want) return t;
  if (is_floating(t.dtype) != is_floating(want)) throw std::invalid_argument(std::string("is ") + name(t.dtype) + ", not " + name(want));
  Tensor out(want, t.shape);
  for (std::int64_t i = 0, n = t.size(); i < n; ++i) {
    if (!is_floating(want)) {
      const std::int64_t x = t.int_at(i);
      if (want == DType::i32 && (x < std::numeric_limits<std::int32_t>::min() || x > std::numeric_limits<std::int32_t>::max()))
        throw std::invalid_argument("element " + index_text(t.shape, i) + " is " + std::to_string(x) + ", which int32 cannot hold");
      out.set_bits(i, static_cast<std::uint64_t>(x));
      continue;
    }
    const double x = t.at(i);
    out.set(i, x);
    const double y = out.at(i);
    if (!(x == y || (std::isnan(x) && std::isnan(y))))
      throw std::invalid_argument("element " + index_text(t.shape, i) + " is " + number_text(x) + ", which " + name(want) + " cannot hold");
  }
  return out;
}

}  // namespace gdn
