// Case families: a named rationale, the kinds of fault it is there to catch, problems per level and a fill rule.
// One file per family in suites/families/, self-registering.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "reference/case.h"

namespace gdn {

enum class Level : std::uint8_t { smoke, ci, nightly, exhaustive };
Level parse_level(std::string_view text);
const char* name(Level l);

class Family {
 public:
  virtual ~Family() = default;
  virtual std::string name() const = 0;
  virtual std::string profile() const = 0;         // core, varlen, sizes, gate_edges, ...; stages/inverse: of profile stages too
  virtual std::string rationale() const = 0;       // why it exists, in sentences; printed by explain
  virtual std::vector<std::string> kinds() const = 0;  // kinds of fault it must kill by itself
  virtual std::string own_fault() const = 0;       // of the bank: no other family that is asked of the same kernel catches it (suites/power.h), which is why this one may not go
  virtual bool random() const { return false; }    // eligible for the statistical check
  virtual bool exact_scale() const { return false; }   // needs a scale that is a power of two to show what it is for
  virtual std::vector<Problem> problems(Level level) const = 0;
  // Of families that draw their problems anew for every seed; problems() are those of seed 1.
  virtual std::vector<Problem> drawn(Level level, std::uint64_t) const { return problems(level); }
  // Deterministic in (problem, seed). Any problem that parses may be given, not only those of problems().
  virtual Case make(const Problem& p, std::uint64_t seed) const = 0;
};

const std::vector<const Family*>& families();      // sorted by name
// Whether a family of `profile` is required by who wants `wanted`: itself, or what stands before a '/' in it.
bool in_profile(std::string_view profile, std::string_view wanted);
const Family* find_family(std::string_view name);
// As find_family, but throws std::invalid_argument, one line that names near ones, where there is none.
const Family& family_named(std::string_view name);
std::string usual_family(const Problem& p);        // which fills a problem when none is named
// Every shards-th case, beginning with number `shard` of 0..shards-1.
std::vector<CaseId> share_of(std::vector<CaseId> ids, std::size_t shard, std::size_t shards);
struct RegisterFamily { explicit RegisterFamily(const Family* f); };

// All cases of a level, in the canonical order, with one seed each; a level holds the problems of those below. Level smoke has beside the
// families' own problems those of suites/smoke.txt, with which it catches what level ci catches.
std::vector<CaseId> cases_of(Level level, std::uint64_t seed, const std::vector<std::string>& families = {});
std::vector<CaseId> own_cases_of(Level level, std::uint64_t seed = 1);   // of the families' own problems alone
// Whether the case is made and judged beside others. Larger ones, of more than about a second of work or a quarter of a GB, come one at
// a time and have all processors: what is in memory at once stays small.
inline bool beside_others(const CaseId& id) { return id.problem.token_heads() < 16384; }
Case make_case(const CaseId& id);                  // throws std::invalid_argument for an unknown family

}  // namespace gdn
