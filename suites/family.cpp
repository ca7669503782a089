// Registry of case families; see family.h.
#include "suites/family.h"

#include <algorithm>
#include <map>
#include <sstream>
#include <stdexcept>

#include "reference/near_name.h"

namespace gdn {
extern const char* const kSmokeText;               // suites/smoke.txt
namespace {
constexpr const char* kLevels[] = {"smoke", "ci", "nightly", "exhaustive"};

std::vector<const Family*>& registry() {
  static std::vector<const Family*> r;
  return r;
}

// The file as problems by family.
const std::map<std::string, std::vector<Problem>>& smoke() {
  static const auto all = [] {
    std::map<std::string, std::vector<Problem>> by_family;
    std::istringstream text{kSmokeText};
    for (std::string line; std::getline(text, line);) {
      if (line.empty() || line[0] == '#') continue;
      const auto space = line.find(' ');
      by_family[line.substr(0, space)].push_back(parse_problem(line.substr(space + 1)));
    }
    return by_family;
  }();
  return all;
}

void add_new(std::vector<Problem>& all, std::vector<Problem> more) {
  for (Problem& p : more)
    if (std::find(all.begin(), all.end(), p) == all.end()) all.push_back(std::move(p));
}

std::vector<Problem> own_problems_of(const Family& f, Level level, std::uint64_t seed) {
  std::vector<Problem> all;
  for (int l = 0; l <= static_cast<int>(level); ++l) add_new(all, f.drawn(static_cast<Level>(l), seed));
  return all;
}

std::vector<Problem> problems_of(const Family& f, Level level, std::uint64_t seed) {
  std::vector<Problem> all = own_problems_of(f, level, seed);
  if (const auto chosen = smoke().find(f.name()); chosen != smoke().end()) add_new(all, chosen->second);
  return all;
}
}  // namespace

Level parse_level(std::string_view text) {
  for (int i = 0; i < 4; ++i)
    if (text == kLevels[i]) return static_cast<Level>(i);
  throw std::invalid_argument("unknown level '" + std::string(text) + "': want smoke, ci, nightly or exhaustive");
}

const char* name(Level l) { return kLevels[static_cast<int>(l)]; }

RegisterFamily::RegisterFamily(const Family* f) {
  auto& r = registry();
  r.insert(std::upper_bound(r.begin(), r.end(), f, [](auto* a, auto* b) { return a->name() < b->name(); }), f);
}

const std::vector<const Family*>& families() { return registry(); }

bool in_profile(std::string_view profile, std::string_view wanted) {
  return profile == wanted || (profile.starts_with(wanted) && profile.substr(wanted.size()).starts_with('/'));
}

const Family* find_family(std::string_view name) {
  for (const Family* f : registry())
    if (f->name() == name) return f;
  return nullptr;
}

const Family& family_named(std::string_view name) {
  if (const Family* f = find_family(name)) return *f;
  std::vector<std::string> names;
  for (const Family* f : registry()) names.push_back(f->name());
  throw std::invalid_argument("unknown case family '" + std::string(name) + "'" + did_you_mean(name, names) + " (`gdn-cts list families` prints them)");
}

std::vector<CaseId> cases_of(Level level, std::uint64_t seed, const std::vector<std::string>& only) {
  for (const std::string& n : only) family_named(n);
  std::vector<CaseId> ids;
  for (const Family* f : registry()) {
    if (!only.empty() && std::find(only.begin(), only.end(), f->name()) == only.end()) continue;
    for (Problem& p : problems_of(*f, level, seed)) ids.push_back({f->name(), std::move(p), seed});
  }
  return ids;
}

std::vector<CaseId> own_cases_of(Level level, std::uint64_t seed) {
  std::vector<CaseId> ids;
  for (const Family* f : registry())
    for (Problem& p : own_problems_of(*f, level, seed)) ids.push_back({f->name(), std::move(p), seed});
  return ids;
}

Case make_case(const CaseId& id) {
  const Family& f = family_named(id.family);
  validate(id.problem);
  return f.make(id.problem, id.seed);
}

std::vector<CaseId> share_of(std::vector<CaseId> ids, std::size_t shard, std::size_t shards) {
  std::vector<CaseId> mine;
  for (std::size_t i = shard; i < ids.size(); i += shards) mine.push_back(std::move(ids[i]));
  return mine;
}

std::string usual_family(const Problem& p) {
  if (p.operation == Operation::verify) return "verify_snapshots";
  if (p.layer()) return "layer_typical";
  if (p.operation == Operation::stages) return std::string("stage_") + name(p.stage);
  if (p.operation == Operation::decode) return p.raw ? "raw_gates_decode" : "decode_pool";
  return p.raw ? "raw_gates" : "typical";
}

}  // namespace gdn
