// Registry of case families; see family.h.
#include "suites/family.h"

#include <algorithm>
#include <stdexcept>

namespace gdn {
namespace {
constexpr const char* kLevels[] = {"smoke", "ci", "nightly", "exhaustive"};

std::vector<const Family*>& registry() {
  static std::vector<const Family*> r;
  return r;
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

const Family* find_family(std::string_view name) {
  for (const Family* f : registry())
    if (f->name() == name) return f;
  return nullptr;
}

std::vector<CaseId> cases_of(Level level, std::uint64_t seed, const std::vector<std::string>& only) {
  for (const std::string& n : only)
    if (!find_family(n)) throw std::invalid_argument("unknown case family '" + n + "'");
  std::vector<CaseId> ids;
  for (const Family* f : registry()) {
    if (!only.empty() && std::find(only.begin(), only.end(), f->name()) == only.end()) continue;
    for (Problem& p : f->problems(level)) ids.push_back({f->name(), std::move(p), seed});
  }
  return ids;
}

Case make_case(const CaseId& id) {
  const Family* f = find_family(id.family);
  if (!f) throw std::invalid_argument("unknown case family '" + id.family + "'");
  validate(id.problem);
  return f->make(id.problem, id.seed);
}

}  // namespace gdn
