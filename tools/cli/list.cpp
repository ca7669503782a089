// gdn-cts list: what there is, one line each.
#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "kernels/convention.h"
#include "kernels/faulty/faults.h"
#include "kernels/registry.h"
#include "reference/contract.h"
#include "suites/check.h"
#include "suites/family.h"
#include "suites/kinds.h"
#include "tools/cli/command.h"
#include "tools/cli/table.h"

namespace gdn::cli {
namespace {

std::string first_sentence(const std::string& text) {
  const auto end = text.find(". ");
  return end == std::string::npos ? text : text.substr(0, end + 1);
}

struct ListCommand final : Command {
  std::string topic, level_text;
  std::vector<std::string> only;
  bool json = false;
  std::uint64_t seed = 1;

  struct Topic { const char* name; std::function<Table()> make; };
  std::vector<Topic> topics() const {
    return {{"families", [this] { return list_families(); }},
            {"cases", [this] { return list_cases(); }},
            {"contracts", [] { return list_contracts(); }},
            {"kernels", [] { return list_kernels(); }},
            {"faults", [] { return list_faults(); }},
            {"checks", [] { return list_checks(); }},
            {"conventions", [] { return list_conventions(); }},
            {"capabilities", [] { return list_capabilities(); }},
            {"kinds", [] { return list_kinds(); }},
            {"profiles", [] { return list_profiles(); }}};
  }

  std::string name() const override { return "list"; }
  std::string summary() const override { return "what there is: " + topic_names(", "); }
  int order() const override { return 10; }
  void options(Options& o) override {
    o.argument("topic", topic, topic_names("|"), false);
    o.option("--level", level_text, "LEVEL", "smoke, ci, nightly or exhaustive: which cases (families: all levels; cases: smoke)");
    o.option("--family", only, "FAMILY", "cases of these families only", true);
    o.option("--seed", seed, "N", "seed of the cases");
    o.flag("--json", json, "as JSON");
  }
  std::string topic_names(const char* between) const {
    std::string s;
    for (const Topic& t : topics()) s += (s.empty() ? "" : between) + std::string(t.name);
    return s;
  }
  int run() override {
    for (const Topic& t : topics())
      if (topic == t.name) {
        const Table table = t.make();
        print(json ? to_json(table) : to_text(table));
        return 0;
      }
    if (topic.empty()) throw Usage("list what? There are " + topic_names(", "));
    throw Usage(fmt::format("cannot list '{}': want {}", topic, topic_names(", ")));
  }

  Table list_families() const {
    Table t{{{"family"}, {"profile"}, {"smoke", true}, {"ci", true}, {"nightly", true}, {"why it exists"}}, {}};
    for (const Family* f : families()) {
      if (!only.empty() && std::find(only.begin(), only.end(), f->name()) == only.end()) continue;
      const auto count = [&](Level l) { return std::to_string(cases_of(l, seed, {f->name()}).size()); };
      t.rows.push_back({f->name(), f->profile(), count(Level::smoke), count(Level::ci), count(Level::nightly), first_sentence(f->rationale())});
    }
    return t;
  }
  Table list_cases() const {
    Table t{{{"case"}, {"profile"}, {"token-heads", true}}, {}};
    const Level level = parse_level(level_text.empty() ? "smoke" : level_text);
    for (const CaseId& id : cases_of(level, seed, only))
      t.rows.push_back({fmt::format("{}:{}:{}", id.family, to_string(id.problem), id.seed), find_family(id.family)->profile(),
                        fmt::format("{:.4g}", id.problem.token_heads())});
    return t;
  }
  static Table list_contracts() {
    Table t{{{"contract"}, {"form"}, {"chunk", true}, {"accumulator"}, {"state"}, {"output"}}, {}};
    for (const std::string& p : contract_presets()) {
      const Contract c = parse_contract(p);
      const char* accumulators[] = {"fp64", "fp32", "tensor core"};
      t.rows.push_back({p, c.form == Form::recurrent ? "recurrent" : "chunkwise", c.form == Form::recurrent ? "-" : std::to_string(c.chunk),
                        accumulators[static_cast<int>(c.accumulator)], to_string(c.at(Point::S_carried)), to_string(c.at(Point::out))});
    }
    return t;
  }
  static Table list_kernels() {
    Table t{{{"kernel"}, {"device"}, {"contract"}, {"what it is"}}, {}};
    for (const gdn_kernel* k : builtin_kernels())
      t.rows.push_back({k->name, k->device == GDN_DEVICE_CUDA ? "cuda" : "cpu", k->contract, k->description});
    return t;
  }
  static Table list_faults() {
    Table t{{{"fault"}, {"kind"}, {"forms"}, {"what goes wrong"}}, {}};
    for (const Fault& f : fault_bank())
      t.rows.push_back({f.name, f.kind, !f.has(Form::chunkwise) ? "recurrent" : f.has(Form::recurrent) ? "both" : "chunkwise", f.mechanism});
    return t;
  }
  static Table list_checks() {
    Table t{{{"check"}, {"clause"}, {"why it exists"}}, {}};
    for (const Check* c : checks()) t.rows.push_back({c->name(), c->clause(), first_sentence(c->rationale())});
    return t;
  }
  static Table list_conventions() {
    // describe_conventions() gives "axis: question", and below it "  axis=value  meaning".
    Table t{{{"convention"}, {"axis"}, {"what it means"}}, {}};
    const std::string text = describe_conventions();
    std::string question;
    for (std::size_t i = 0; i < text.size();) {
      const std::size_t end = std::min(text.find('\n', i), text.size());
      const std::string line = text.substr(i, end - i);
      i = end + 1;
      const std::size_t gap = line.find("  ", 2);
      if (line.substr(0, 2) != "  ") question = line.substr(std::min(line.find(": ") + 2, line.size()));
      else if (gap != std::string::npos) t.rows.push_back({line.substr(2, gap - 2), question, line.substr(gap + 2)});
    }
    return t;
  }
  static Table list_profiles() {
    Table t{{{"profile"}, {"families"}}, {}};
    for (const Family* f : families()) {
      const auto known = std::find_if(t.rows.begin(), t.rows.end(), [&](const auto& row) { return row[0] == f->profile(); });
      if (known == t.rows.end()) t.rows.push_back({f->profile(), f->name()});
      else (*known)[1] += " " + f->name();
    }
    std::sort(t.rows.begin(), t.rows.end());
    return t;
  }
  static Table list_capabilities() {
    Table t{{{"capability"}, {"value"}, {"meaning"}, {"where it is not declared"}}, {}};
    for (const CapabilityKey& k : capability_keys()) t.rows.push_back({k.name, k.values.empty() ? "-" : k.values, k.meaning, k.absent});
    return t;
  }
  static Table list_kinds() {
    Table t{{{"kind"}, {"area"}, {"must be caught"}, {"what goes wrong"}}, {}};
    for (const Kind& k : kKinds) t.rows.push_back({k.slug, k.area, k.certain ? "always" : "when visible", k.sentence});
    return t;
  }
};

ListCommand command;
const RegisterCommand registered(&command);

}  // namespace
}  // namespace gdn::cli
