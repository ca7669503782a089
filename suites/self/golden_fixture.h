// A small case with made-up truth, for the tests of the golden store: every dtype, two runs, ragged sequences.
#pragma once
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>

#include "golden/store.h"
#include "reference/rng.h"

namespace gdn::test {
namespace fs = std::filesystem;

// A directory of its own that goes away with the object.
class Scratch {
 public:
  Scratch() {
    static std::atomic<int> counter{0};
    path = fs::temp_directory_path() / ("gdn-self-" + std::to_string(::getpid()) + "-" + std::to_string(counter++));
    fs::create_directories(path);
  }
  ~Scratch() {
    std::error_code ec;
    fs::remove_all(path, ec);
  }
  fs::path operator/(const std::string& name) const { return path / name; }
  fs::path path;
};

inline Tensor random_tensor(DType t, std::vector<std::int64_t> shape, std::uint64_t seed, const char* name, double lo, double hi) {
  Tensor x(t, std::move(shape));
  const Random r(seed, name);
  for (std::int64_t i = 0; i < x.size(); ++i) x.set(i, r.uniform(static_cast<std::uint64_t>(i), lo, hi));
  return x;
}

inline Run random_run(const std::string& name, const Problem& p, std::uint64_t seed) {
  const std::int64_t rows = p.tokens() + p.padding;
  Run r{name, p, {}, true};
  r.inputs["q"] = random_tensor(p.io, {rows, p.heads, p.key_dim}, seed, "q", -1, 1);
  r.inputs["k"] = random_tensor(p.io, {rows, p.heads, p.key_dim}, seed, "k", -0.5, 0.5);
  r.inputs["v"] = random_tensor(p.io, {rows, p.value_heads, p.value_dim}, seed, "v", -1, 1);
  r.inputs["g"] = random_tensor(p.gate, {rows, p.value_heads}, seed, "g", -0.5, 0);
  r.inputs["beta"] = random_tensor(p.beta, {rows, p.value_heads}, seed, "beta", 0, 1);
  if (p.initial_state) r.inputs["h0"] = random_tensor(p.state, {p.sequences(), p.value_heads, p.key_dim, p.value_dim}, seed, "h0", -1, 1);
  Tensor cu(DType::i64, {p.sequences() + 1});
  for (std::size_t i = 0; i < p.offsets().size(); ++i) cu.set_bits(static_cast<std::int64_t>(i), static_cast<std::uint64_t>(p.offsets()[i]));
  r.inputs["cu_seqlens"] = cu;
  return r;
}

inline TruthTensor random_truth(std::vector<std::int64_t> shape, std::uint64_t seed, const char* name) {
  TruthTensor t;
  std::size_t n = 1;
  for (std::int64_t d : shape) n *= static_cast<std::size_t>(d);
  t.shape = std::move(shape);
  const Random r(seed, name);
  for (std::size_t i = 0; i < n; ++i) {
    t.hi.push_back(r.uniform(3 * i, -1, 1));
    t.lo.push_back(r.uniform(3 * i + 1, -1, 1) * 0x1p-60 * std::fabs(t.hi.back()));
    t.radius.push_back(static_cast<float>(r.uniform(3 * i + 2) * 0x1p-90));
  }
  return t;
}

inline Golden small_golden(const std::string& problem = "prefill/n3_t5+0+2_h1_hv2_k3_v4/bf16/h0,g=bf16,beta=fp16,pad=2", std::uint64_t seed = 7) {
  Golden g;
  const Problem p = parse_problem(problem);
  g.the_case.family = "selftest";
  g.the_case.problem = p;
  g.the_case.seed = seed;
  g.edition = "2026.1";
  for (const char* name : {"base", "negated"}) {
    g.the_case.runs.push_back(random_run(name, p, seed + g.the_case.runs.size()));
    Truth t;
    t["o"] = random_truth({p.tokens() + p.padding, p.value_heads, p.value_dim}, seed, name);
    if (p.final_state) t["ht"] = random_truth({p.sequences(), p.value_heads, p.key_dim, p.value_dim}, seed + 1, name);
    g.truths.push_back(t);
  }
  g.the_case.runs.back().truth = false;
  g.truths.back().clear();
  g.stats = {70, 0, 0, 0, 0};
  return g;
}

inline std::string bytes_of_file(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  std::ostringstream s;
  s << in.rdbuf();
  return s.str();
}
inline void put_file(const fs::path& file, const std::string& bytes) { std::ofstream(file, std::ios::binary) << bytes; }

inline bool same(const Golden& a, const Golden& b) {
  if (case_id(a.the_case) != case_id(b.the_case) || a.edition != b.edition || a.truths.size() != b.truths.size()) return false;
  if (a.the_case.runs.size() != b.the_case.runs.size()) return false;
  for (std::size_t i = 0; i < a.the_case.runs.size(); ++i) {
    const Run &x = a.the_case.runs[i], &y = b.the_case.runs[i];
    if (x.name != y.name || !(x.problem == y.problem) || x.truth != y.truth || x.inputs != y.inputs) return false;
    if (a.truths[i].size() != b.truths[i].size()) return false;
    for (const auto& [name, t] : a.truths[i]) {
      const auto at = b.truths[i].find(name);
      if (at == b.truths[i].end() || at->second.shape != t.shape || at->second.hi != t.hi || at->second.lo != t.lo || at->second.radius != t.radius) return false;
    }
  }
  return true;
}

// The message of the error of type E that f throws, or "" when it throws none.
template <class E = BadInput, class F>
std::string refusal(F f) {
  try {
    f();
  } catch (const E& e) {
    return e.what();
  }
  return "";
}
inline bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace gdn::test
