// The audit of golden files; see check.h.
#include "golden/check.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <vector>

#include "golden/atomic_file.h"
#include "golden/manifest.h"
#include "golden/stream.h"
#include "reference/rng.h"
#include "reference/layer.h"
#include "reference/stages.h"
#include "reference/strand.h"
#include "reference/truth.h"

namespace gdn {
namespace fs = std::filesystem;
namespace {

using Report = std::function<void(const std::string&)>;

// What the certificates of these values say, by the definition of truth.h.
void count(const TruthTensor& t, CheckSummary& s) {
  for (std::size_t i = 0; i < t.hi.size(); ++i) {
    const auto in = [&](Format f) { return certified(t.hi[i], t.lo[i], t.radius[i], f); };
    const bool narrow = in(Format::fp32) && in(Format::fp16) && in(Format::bf16);
    ++s.elements;
    s.balls += !narrow;
    s.uncertified_fp64 += !narrow || !in(Format::fp64);
  }
}

// Rows of one head of a strand, as they stand in the truth of the run; o of the strand's own outputs alone.
HeadTruth head_of(const Truth& truth, const Problem& p, const Strand& s, std::int64_t hv) {
  HeadTruth h;
  const auto take = [&](TruthTensor& to, const TruthTensor& from, std::int64_t row, std::int64_t width) {
    const auto first = static_cast<std::ptrdiff_t>((row * p.value_heads + hv) * width), last = first + static_cast<std::ptrdiff_t>(width);
    to.hi.insert(to.hi.end(), from.hi.begin() + first, from.hi.begin() + last);
    to.lo.insert(to.lo.end(), from.lo.begin() + first, from.lo.begin() + last);
    to.radius.insert(to.radius.end(), from.radius.begin() + first, from.radius.begin() + last);
  };
  for (std::size_t t = static_cast<std::size_t>(s.outputs); t < s.rows.size(); ++t) take(h.o, truth.find("o")->second, s.rows[t], p.value_dim);
  take(h.ht, truth.find(s.state)->second, s.state_row, p.key_dim * p.value_dim);
  return h;
}

// Heads to audit: all of a small case, else those that a hash picks, the same ones every time.
bool picked(const Case& c, const CheckOptions& o, double size, std::size_t run, std::int64_t n, std::int64_t hv) {
  if (size <= o.small_case) return true;
  const Problem& p = c.runs[run].problem;
  const std::int64_t longest = std::max_element(p.lengths.begin(), p.lengths.end()) - p.lengths.begin();
  const std::uint64_t seed = hash_name(case_id(c));
  if (run == 0 && n == longest && hv == static_cast<std::int64_t>(seed % static_cast<std::uint64_t>(p.value_heads))) return true;
  return philox(seed, run, static_cast<std::uint64_t>(n * p.value_heads + hv)) % 100 == 0;
}

template <class Picks>
void pool_run(GoldenReader& reader, std::size_t index, const Run& run, const std::string& name, const Report& problem, Picks picks, bool audit,
              CheckSummary& mine) {
  const Truth truth = reader.truth(index);
  std::vector<Strand> all;
  try {
    all = strands(run);
  } catch (const std::invalid_argument& e) {
    problem(name + ": " + e.what());
    return;
  }
  for (std::size_t n = 0; n < all.size(); ++n)
    for (std::int64_t hv = 0; hv < run.problem.value_heads; ++hv) {
      HeadTruth h = head_of(truth, run.problem, all[n], hv);
      count(h.o, mine);
      count(h.ht, mine);
      ++mine.heads;
      if (!audit || !picks(index, static_cast<std::int64_t>(n), hv)) continue;
      // Outputs that belong to other strands are audited there; here they only fill the place.
      const HeadInputs in = head_inputs(run, all[n], hv);
      if (all[n].outputs > 0) {
        const HeadTruth whole = oracle_head(in);
        const auto before = [&](auto& to, const auto& from) { to.insert(to.begin(), from.begin(), from.begin() + static_cast<std::ptrdiff_t>(all[n].outputs * in.V)); };
        before(h.o.hi, whole.o.hi);
        before(h.o.lo, whole.o.lo);
        before(h.o.radius, whole.o.radius);
      }
      const std::string bad = audit_head(in, h);
      ++mine.audited_heads;
      if (!bad.empty()) problem(name + ": run " + run.name + ", strand " + std::to_string(n) + ", head " + std::to_string(hv) + ": " + bad);
    }
}

// Chunks of a stage are all audited in a small case; of a large one a stage is audited whole or not at all.
void stage_run(GoldenReader& reader, std::size_t index, const Run& run, const std::string& name, const Report& problem, bool audit, bool small, CheckSummary& mine) {
  const Truth truth = reader.truth(index);
  for (const auto& [tensor, t] : truth) {
    TruthTensor known;                             // without nobody's rows
    for (std::size_t i = 0; i < t.hi.size(); ++i) {
      if (std::isinf(t.radius[i]) && t.hi[i] == 0) continue;
      known.hi.push_back(t.hi[i]);
      known.lo.push_back(t.lo[i]);
      known.radius.push_back(t.radius[i]);
    }
    count(known, mine);
  }
  mine.heads += run.problem.value_heads;
  if (!audit || (!small && hash_name(to_string(run.problem)) % 4 != 0)) return;
  mine.audited_heads += run.problem.value_heads;
  if (const std::string bad = run.problem.layer() ? audit_layer(run, truth) : audit_stage(run, truth); !bad.empty()) problem(name + ": run " + run.name + ": " + bad);
}

void check_open_file(GoldenReader& reader, const std::string& name, const Report& problem, const CheckOptions& o, CheckSummary& total) {
  reader.verify_hashes();
  total.datasets += static_cast<std::int64_t>(reader.datasets());
  const Case& c = reader.meta();
  if (reader.edition() != o.edition) problem(name + ": stale: edition " + reader.edition() + " of the accuracy standard, this program has " + o.edition);
  double size = 0;
  bool all_stored = true;
  for (const Run& r : c.runs) size += r.problem.token_heads();
  CheckSummary mine;
  const auto picks = [&](std::size_t run, std::int64_t n, std::int64_t hv) { return picked(c, o, size, run, n, hv); };
  for (std::size_t i = 0; i < c.runs.size(); ++i) {
    const Run run = reader.run(i);
    if (run.truth && own_tensors(run.problem)) {
      stage_run(reader, i, run, name, problem, o.audit, size <= o.small_case, mine);
      continue;
    }
    if (!run.truth || (run.problem.operation != Operation::prefill && !run.problem.pool())) {
      all_stored = all_stored && !run.truth;
      continue;
    }
    if (run.problem.pool()) {
      pool_run(reader, i, run, name, problem, picks, o.audit, mine);
      continue;
    }
    all_stored = all_stored && run.problem.final_state;
    for (std::int64_t n = 0; n < run.problem.sequences(); ++n)
      for (std::int64_t hv = 0; hv < run.problem.value_heads; ++hv) {
        HeadTruth h = reader.head_truth(i, n, hv);
        count(h.o, mine);
        count(h.ht, mine);
        ++mine.heads;
        if (!o.audit || !picks(i, n, hv)) continue;
        const HeadInputs in = head_inputs(run, n, hv);
        if (!run.problem.final_state) h.ht = oracle_head(in).ht;   // not stored; audited all the same
        const std::string bad = audit_head(in, h);
        ++mine.audited_heads;
        if (!bad.empty()) problem(name + ": run " + run.name + ", sequence " + std::to_string(n) + ", head " + std::to_string(hv) + ": " + bad);
      }
  }
  const OracleStats& s = reader.stats();
  if (all_stored && (s.elements != mine.elements || s.balls != mine.balls || s.uncertified_fp64 != mine.uncertified_fp64))
    problem(name + ": certificates: recorded " + std::to_string(s.elements) + " elements, " + std::to_string(s.uncertified_fp64) + " uncertified for fp64, " +
            std::to_string(s.balls) + " balls; found " + std::to_string(mine.elements) + ", " + std::to_string(mine.uncertified_fp64) + ", " + std::to_string(mine.balls));
  ++total.files;
  total.elements += mine.elements;
  total.uncertified_fp64 += mine.uncertified_fp64;
  total.balls += mine.balls;
  total.heads += mine.heads;
  total.audited_heads += mine.audited_heads;
}

}  // namespace

CheckSummary check_file(const fs::path& file, const Report& report, const CheckOptions& options) {
  CheckSummary s;
  const Report problem = [&](const std::string& line) {
    ++s.problems;
    report(line);
  };
  try {
    GoldenReader reader(file);
    check_open_file(reader, file.string(), problem, options, s);
  } catch (const BadInput& e) {
    problem(e.what());
  }
  return s;
}

CheckSummary check_directory(const fs::path& dir, const Report& report, const CheckOptions& options, const std::function<void(double)>& progress) {
  std::error_code ec;
  if (!fs::is_directory(dir, ec)) throw BadInput(dir.string() + ": is not a directory");
  CheckSummary s;
  const Report problem = [&](const std::string& line) {
    ++s.problems;
    report(line);
  };
  Manifest manifest;
  try {
    manifest = read_manifest(dir);
    if (manifest.empty()) problem((dir / kManifestName).string() + ": missing or empty: nothing says what should be here");
  } catch (const BadInput& e) {
    problem(e.what());
  }
  std::set<std::string> found;
  for (fs::directory_iterator it(dir, ec), end; !ec && it != end; it.increment(ec)) found.insert(it->path().filename().string());
  if (ec) throw BadInput(dir.string() + ": cannot be listed: " + ec.message());
  for (const std::string& name : found) {
    if (name == kManifestName || name == kSigmaFolder || is_lock_name(name) || is_temporary_name(name) || manifest.count(name)) continue;
    problem((dir / name).string() + ": foreign: not in the manifest");
  }
  std::size_t done = 0;
  for (const auto& [name, entry] : manifest) {
    const fs::path file = dir / name;
    if (name.find('/') != std::string::npos) {
      problem((dir / kManifestName).string() + ": entry '" + name + "' is not a plain file name");
    } else if (!found.count(name)) {
      problem(file.string() + ": missing, though the manifest lists it");
    } else {
      try {
        GoldenReader reader(file);
        check_open_file(reader, file.string(), problem, options, s);
        if (reader.content_hash() != entry.sha256) problem(file.string() + ": stale: its content is not what the manifest lists");
        if (case_id(reader.meta()) != entry.case_id) problem(file.string() + ": holds case " + case_id(reader.meta()) + ", the manifest lists " + entry.case_id);
        else if (reader.edition() != entry.edition) problem(file.string() + ": edition differs from the manifest's");
        if (file_stem(case_id(reader.meta())) + ".h5" != name) problem(file.string() + ": is not named after its case, " + case_id(reader.meta()));
      } catch (const BadInput& e) {
        problem(e.what());
      }
    }
    if (progress) progress(static_cast<double>(++done) / static_cast<double>(manifest.size()));
  }
  return s;
}

}  // namespace gdn
