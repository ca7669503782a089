// gdn-cts explain: what a case, family, kind of fault, ... is, why it exists and how to reproduce it.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "kernels/contract_file.h"
#include "kernels/convention.h"
#include "kernels/faulty/faults.h"
#include "kernels/registry.h"
#include "reference/contract.h"
#include "reference/near_name.h"
#include "reference/stages.h"
#include "suites/family.h"
#include "suites/features.h"
#include "suites/kinds.h"
#include "suites/runner.h"
#include "tools/cli/command.h"

namespace gdn::cli {
namespace {

// Words flowed into lines of at most `width` characters, indented.
std::string wrapped(const std::string& text, std::size_t indent = 0, std::size_t width = 100) {
  std::string out(indent, ' ');
  std::size_t column = indent;
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t end = std::min(text.find(' ', i), text.size());
    const std::string word = text.substr(i, end - i);
    i = end + 1;
    if (word.empty()) continue;
    if (column > indent && column + 1 + word.size() > width) {
      out += "\n" + std::string(indent, ' ');
      column = indent;
    } else if (column > indent) {
      out += ' ';
      ++column;
    }
    out += word;
    column += word.size();
  }
  return out + "\n";
}

std::string kind_sentence(const std::string& slug) {
  for (const Kind& k : kKinds)
    if (slug == k.slug) return k.sentence;
  return "";
}

std::string ranges(const Tensor& t) {
  if (!is_floating(t.dtype)) {
    std::string s;
    for (std::int64_t i = 0; i < std::min<std::int64_t>(t.size(), 12); ++i) s += (i ? " " : "") + std::to_string(t.int_at(i));
    return s + (t.size() > 12 ? " ..." : "");
  }
  double least = INFINITY, most = -INFINITY, sum = 0;
  std::int64_t zeros = 0, infinite = 0, nan = 0, finite = 0;
  for (std::int64_t i = 0; i < t.size(); ++i) {
    const double x = t.at(i);
    if (std::isnan(x)) ++nan;
    else if (std::isinf(x)) ++infinite;
    else {
      ++finite;
      zeros += x == 0;
      least = std::min(least, x);
      most = std::max(most, x);
      sum += x * x;
    }
  }
  std::string s = finite ? fmt::format("{:.4g} to {:.4g}, rms {:.3g}", least, most, std::sqrt(sum / static_cast<double>(finite))) : "empty";
  if (zeros) s += fmt::format(", {} zeros", zeros);
  if (infinite) s += fmt::format(", {} infinite", infinite);
  if (nan) s += fmt::format(", {} NaN", nan);
  return s;
}

constexpr double kTruthLimit = 20000;              // token-heads: about a second

std::string truth_range(const TruthTensor& t) {
  double least = INFINITY, most = -INFINITY, radius = 0;
  std::int64_t zeros = 0, other = 0;
  for (std::size_t i = 0; i < t.hi.size(); ++i) {
    if (std::isinf(t.radius[i])) continue;         // padding
    if (!std::isfinite(t.hi[i])) {
      ++other;
      continue;
    }
    zeros += t.hi[i] == 0;
    least = std::min(least, t.hi[i]);
    most = std::max(most, t.hi[i]);
    if (t.hi[i] != 0) radius = std::max(radius, static_cast<double>(t.radius[i]) / std::fabs(t.hi[i]));
  }
  if (least > most) return "empty";
  return fmt::format("{:.4g} to {:.4g}, {} zeros, {} not finite, radius at most {:.2g} of the value", least, most, zeros, other, radius);
}

std::string explain_family(const Family& f) {
  std::string s = fmt::format("{}: a case family of profile {}\n\n", f.name(), f.profile()) + wrapped(f.rationale()) + "\nKinds of fault that it must catch by itself:\n";
  std::size_t width = 0;
  for (const std::string& k : f.kinds()) width = std::max(width, k.size());
  for (const std::string& k : f.kinds()) s += fmt::format("  {:<{}}  {}\n", k, width, kind_sentence(k));
  s += fmt::format("\nWithout it nobody catches, in a kernel of its operation and profile: {}\n{}", f.own_fault(), wrapped(find_fault(f.own_fault())->mechanism, 2));
  s += "\nCases: ";
  for (Level l : {Level::smoke, Level::ci, Level::nightly}) s += fmt::format("{}{} at {}", l == Level::smoke ? "" : ", ", cases_of(l, 1, {f.name()}).size(), name(l));
  s += fmt::format("\n  {} list cases --family {} --level smoke\n", invocation(), f.name());
  return s + fmt::format("Judge a kernel by it alone:\n  {} verify --kernel NAME --family {}\n", invocation(), f.name());
}

std::string explain_fault(const Fault& f) {
  std::string s = fmt::format("{}: a deliberate fault in the bank, of kind {}\n\n", f.name, f.kind) + wrapped(f.mechanism);
  if (f.parameter != 0) s += fmt::format("Magnitude: {:g}, the smallest seen in the field.\n", f.parameter);
  s += "Origin: " + std::string(f.origin) + "\n\nIt exists as the kernels\n";
  std::string first;
  for (Form form : {Form::recurrent, Form::chunkwise})
    for (FaultScalar scalar : {FaultScalar::fp32, FaultScalar::bf16})
      if (const gdn_kernel* k = faulty_kernel(f, form, scalar)) {
        s += fmt::format("  {}\n", k->name);
        if (first.empty()) first = k->name;
      }
  return s + fmt::format("See it caught:\n  {} verify --kernel {}\n", invocation(), first);
}

std::string explain_check(const Check& c) {
  return fmt::format("{}: a check, clause {} of the accuracy standard (reference/README.md)\n\n", c.name(), c.clause()) + wrapped(c.rationale());
}

std::string explain_kernel(const gdn_kernel& k) {
  std::string s = fmt::format("{}: a built-in kernel\n\n{}\n\n", k.name, k.description);
  const auto fact = [&](const char* label, const char* value) { s += fmt::format("{:<13} {}\n", label, value && *value ? value : "-"); };
  fact("version", k.version);
  fact("contract", k.contract);
  fact("convention", k.convention && *k.convention ? k.convention : "canonical");
  fact("capabilities", k.capabilities);
  fact("promises", k.properties);
  return s + fmt::format("\nJudge it:\n  {} verify --kernel {}\n", invocation(), k.name);
}

// An axis ("gate") with all its values, or one value ("gate=linear").
std::string explain_convention(const std::string& subject) {
  std::string found;
  const std::string text = describe_conventions();
  bool inside = false;
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t end = std::min(text.find('\n', i), text.size());
    const std::string line = text.substr(i, end - i);
    i = end + 1;
    if (line.substr(0, 2) != "  ") inside = line.compare(0, subject.size() + 1, subject + ":") == 0;
    const std::string value = line.substr(0, 2) == "  " ? line.substr(2, line.find(' ', 2) - 2) : "";
    if (inside || value == subject) found += line.substr(inside ? 0 : 2) + "\n";
  }
  return found.empty() ? "" : found + "\nA convention says how a kernel lays out and parameterises its arguments; the suite converts.\n";
}

// A storage point of contracts (`S_carried`), and what every preset keeps it in.
template <class P>
std::string explain_point(P point) {
  std::string stores;
  for (const std::string& preset : contract_presets()) {
    const Contract c = parse_contract(preset);
    bool has = true;
    if constexpr (std::is_same_v<P, Point>) has = uses(c, point);
    stores += fmt::format("  {:<16} {}\n", preset, has ? to_string(c.at(point)) : "not in this form");
  }
  return fmt::format("{0}: a storage point of precision contracts\n\n  {1}\n\nThe presets store it in\n{2}\nDeclare another format, here fp16 rounded toward zero:\n  --contract 'bf16-chunk;{0}=fp16/rz'\n",
                     gdn::name(point), meaning(point), stores);
}

std::string explain_key(const ContractKey& key) {
  std::string s = fmt::format("{0}: a key of precision contracts ({0}=...)\n\n", key.name) + wrapped(key.meaning, 2);
  for (const auto& [value, meaning] : key.values) s += fmt::format("  {:<14} {}\n", value, meaning);
  std::string stored;
  for (const std::string& preset : contract_presets()) {
    const std::string text = explain(parse_contract(preset)), line = "\n  " + key.name + " ";
    const std::size_t at = text.find(line), begin = text.find_first_not_of(' ', at + line.size());
    if (at != std::string::npos) stored += fmt::format("  {:<16} {}\n", preset, text.substr(begin, std::min(text.find('\n', begin), text.find("  ", begin)) - begin));
  }
  return s + "\nThe presets say\n" + stored + fmt::format("Another one is declared so:  --contract 'bf16-chunk;{}=...'\n", key.name);
}

std::string explain_capability(const CapabilityKey& key) {
  const bool flag = key.values.empty();
  return fmt::format("{}: a {} of capabilities, what a kernel declares that it can do\n\n", key.name, flag ? "flag" : "key") + wrapped(key.meaning + ".", 2) +
         (flag ? "" : fmt::format("  Value: {}.\n", key.values)) + fmt::format("  Where it is not declared: {}.\n", key.absent) +
         "\nA case that asks for more than a kernel declares is NOT_SUPPORTED, with the reason. An adapter declares\n" + wrapped(fmt::format("\"capabilities\": \"ops=prefill;{}{}\"", key.name, flag ? "" : "=..."), 2) +
         "(tools/adapters/README.md).\n";
}

std::string explain_property(const PromiseKey& key) {
  return fmt::format("{}: a promise among a kernel's properties\n\n", key.name) + wrapped(key.meaning + ".", 2) + "\nA promise that is declared is always tested; one that is not declared is never asked for.\n";
}

std::string explain_profile(const std::string& profile) {
  std::string members;
  // What a kernel need not declare exempts it from some of them altogether.
  KernelInfo plain;
  for (const Family* f : families()) {
    if (!in_profile(f->profile(), profile)) continue;
    members += "  " + f->name();
    std::string why;
    const std::vector<CaseId> cases = cases_of(Level::smoke, 1, {f->name()});
    if (std::all_of(cases.begin(), cases.end(), [&](const CaseId& id) { return !(why = exemption(make_case(id), plain)).empty(); })) members += ": only where it is declared (" + why + ")";
    members += "\n";
  }
  if (members.empty()) return "";
  return fmt::format("{}: a profile, a set of case families that a kernel claims\n\n", profile) +
         wrapped("A kernel that claims a profile must show each of these families with at least one passed case, and every structural feature of "
                 "their cases that its dtypes and sizes allow. Without --profile, core is claimed.") +
         "\n" + members + fmt::format("\nClaim it:\n  {} verify --kernel NAME --profile {}\n", invocation(), profile);
}

std::string explain_stage(const std::string& subject) {
  constexpr const char* kFormulas[kStages] = {"G_r = sum of g over the rows 0..r of the chunk", "L_ij = beta_i (k_i.k_j) e^(G_i-G_j) for i > j, else 0", "M = (I+L)^-1",
                                              "U = M (beta v), W = M (beta e^G k)", "Vn = U - W S, S <- e^(G_end) S + sum_r e^(G_end-G_r) k_r Vn_r^T, chunk after chunk",
                                              "o_r = scale [ e^(G_r) S^T q_r + sum_(j<=r) (q_r.k_j) e^(G_r-G_j) Vn_j ]"};
  std::string s;
  for (int i = 0; i < kStages; ++i) {
    Problem p;
    p.operation = Operation::stages;
    p.stage = static_cast<Stage>(i);
    p.initial_state = p.stage == Stage::chunk_states;
    p.chunk = 64;
    if (subject != name(p.stage)) continue;
    s = fmt::format("{}: a stage, one step of the chunkwise form alone (accuracy standard, section 10)\n\n  {}\n\n", subject, kFormulas[i]);
    const auto line = [&](const char* what, const std::vector<StageTensor>& tensors) {
      s += what;
      for (const StageTensor& t : tensors) s += fmt::format(" {}{}", t.name, &t == &tensors.back() ? "\n" : ",");
    };
    line("inputs  ", stage_inputs(p));
    line("outputs ", stage_outputs(p));
    s += fmt::format("\nA kernel that offers it declares  ops=stages;stages={};chunks=64  among its capabilities. Require it:\n  {} verify --kernel NAME --profile stages/{}\n",
                     subject, invocation(), subject);
  }
  return s;
}

std::string explain_kind(const Kind& k) {
  std::string s = fmt::format("{}: a kind of fault ({})\n\n", k.slug, k.area) + wrapped(std::string(k.sentence) + ".");
  s += k.certain ? "A slip of mask, boundary or layout: it must be caught whenever it changes anything at all.\n"
                 : "It must be caught whenever it is visible above the rounding that the kernel's precision contract allows.\n";
  s += "\nCase families that must catch it:\n";
  for (const Family* f : families()) {
    const auto kinds = f->kinds();
    if (std::find(kinds.begin(), kinds.end(), k.slug) != kinds.end()) s += "  " + f->name() + "\n";
  }
  return s;
}

std::string explain_case(const std::string& text) {
  const CaseId id = parse_case_id(text);
  const Case c = make_case(id);
  const Problem& p = id.problem;
  std::string s = fmt::format("{}\n\n", case_id(c));
  if (p.operation == Operation::stages) s += fmt::format("stage       {}, in chunks of {} rows\n", name(p.stage), p.chunk);
  else s += fmt::format("operation   {}, rule {}, scale {:.9g}\n", name(p.operation), name(p.rule), p.effective_scale());
  s += fmt::format("sequences   {} of {} tokens in all; lengths", p.sequences(), p.tokens());
  for (std::size_t i = 0; i < std::min<std::size_t>(p.lengths.size(), 16); ++i) s += fmt::format(" {}", p.lengths[i]);
  s += p.lengths.size() > 16 ? " ...\n" : "\n";
  s += fmt::format("heads       {} key, {} value; K={} V={}\n", p.heads, p.value_heads, p.key_dim, p.value_dim);
  s += fmt::format("dtypes      q, k, v, o {}; g {}; beta {}; state {}\n", name(p.io), name(p.gate), name(p.beta), name(p.state));
  if (p.layer()) s += fmt::format("layer       hidden {}, convolution of {} taps, l2norm {}\n", p.hidden, p.conv, name(p.l2));
  s += fmt::format("size        {:.4g} token-heads\n", p.token_heads());
  double size = 0;
  for (const Run& r : c.runs) {
    size += r.problem.token_heads();
    s += fmt::format("\nrun {}{}\n", r.name, r.truth ? "" : " (judged by relations only)");
    for (const auto& [n, t] : r.inputs) s += fmt::format("  {:<11} {:<9} {:<16} {}\n", n, name(t.dtype), shape_text(t.shape), ranges(t));
  }
  if (size <= kTruthLimit) {
    const Golden g = make_golden(c);
    s += "\nTruth, certified:\n";
    for (std::size_t i = 0; i < c.runs.size(); ++i)
      for (const auto& [n, t] : g.truths[i]) s += fmt::format("  {:<9} {:<3} {:<16} {}\n", c.runs[i].name, n, shape_text(t.shape), truth_range(t));
    s += fmt::format("  of {} values {} are not certified for binary64, {} are ties or nearly; heads by exact arithmetic {}, in 256 bits or more {}\n",
                     g.stats.elements, g.stats.uncertified_fp64, g.stats.balls, g.stats.exact_heads, g.stats.multiprecision_heads);
  } else {
    s += "\nTruth: not computed here, the case is large; `gdn-cts generate` does.\n";
  }
  for (const Relation& r : c.relations) s += fmt::format("\nrelation {}: {}\n", r.row, r.statement);
  if (const Family* f = find_family(c.family)) s += fmt::format("\nFamily {} (profile {}):\n", f->name(), f->profile()) + wrapped(f->rationale(), 2);
  s += fmt::format("\nReproduce:\n  {} verify --kernel NAME --case {}\n", invocation(), shell_quote(case_id(c)));
  return s;
}

struct ExplainCommand final : Command {
  std::string subject;

  std::string name() const override { return "explain"; }
  std::string summary() const override { return "what a case, family, profile, fault, kind, check, kernel, capability, contract, storage point or convention is"; }
  int order() const override { return 11; }
  static std::vector<std::string> names() {
    std::vector<std::string> all = contract_presets();
    for (const Family* f : families()) {
      all.push_back(f->name());
      all.push_back(f->profile());
    }
    for (const Kind& k : kKinds) all.push_back(k.slug);
    for (const gdn_kernel* k : builtin_kernels()) all.push_back(k->name);
    for (const Fault& f : fault_bank()) all.push_back(f.name);
    for (const Check* c : checks()) all.push_back(c->name());
    for (const ContractKey& key : contract_keys()) {
      all.push_back(key.name);
      for (const auto& [value, meaning] : key.values)
        if (!meaning.empty()) all.push_back(value);
    }
    for (const CapabilityKey& key : capability_keys()) all.push_back(key.name);
    for (const PromiseKey& key : property_keys()) all.push_back(key.name);
    for (std::size_t i = 0; i < kPoints; ++i) all.push_back(gdn::name(static_cast<Point>(i)));
    for (std::size_t i = 0; i < kLayerPoints; ++i) all.push_back(gdn::name(static_cast<LayerPoint>(i)));
    return all;
  }
  void options(Options& o) override { o.argument("subject", subject, "case id, or the name of anything that `list` prints"); }
  int run() override {
    if (subject.empty()) throw Usage("explain what? Give a case id or a name (`gdn-cts list` prints what there is)");
    if (subject.find(':') != std::string::npos && subject.find('/') != std::string::npos) {
      print(explain_case(subject));
      return 0;
    }
    std::string s;
    const auto say = [&](const std::string& text) { s += (s.empty() || text.empty() ? "" : "\n") + text; };
    if (const Family* f = find_family(subject)) say(explain_family(*f));
    say(explain_profile(subject));
    for (const Kind& k : kKinds)
      if (subject == k.slug) say(explain_kind(k));
    const auto presets = contract_presets();
    if (subject[0] == '@' || std::find(presets.begin(), presets.end(), subject.substr(0, subject.find(';'))) != presets.end()) {
      const Contract c = read_contract(subject);
      say(fmt::format("{}: a precision contract, what a kernel declares of its arithmetic\n\n", to_string(c)) + explain(c));
    }
    if (const gdn_kernel* k = find_builtin(subject)) say(explain_kernel(*k));
    if (const Fault* f = find_fault(subject)) say(explain_fault(*f));
    for (const Check* c : checks())
      if (subject == c->name() || subject == c->clause() || subject == std::string("clause ") + c->clause()) say(explain_check(*c));
    say(explain_stage(subject));
    for (const CapabilityKey& key : capability_keys())
      if (subject == key.name) say(explain_capability(key));
    for (const PromiseKey& key : property_keys())
      if (subject == key.name) say(explain_property(key));
    for (const ContractKey& key : contract_keys()) {
      if (subject == key.name) say(explain_key(key));
      for (const auto& [value, meaning] : key.values)
        if (subject == value && !meaning.empty()) say(fmt::format("{0}: a value of {1} in precision contracts ({1}={0}); {1} is {2}\n\n", value, key.name, key.meaning) + wrapped(meaning, 2));
    }
    for (std::size_t i = 0; i < kPoints; ++i)
      if (const auto p = static_cast<Point>(i); subject == gdn::name(p))
        say(explain_point(p) + fmt::format("What it costs, point by point and format by format:\n  {} precision --study points\n", invocation()));
    for (std::size_t i = 0; i < kLayerPoints; ++i)
      if (const auto p = static_cast<LayerPoint>(i); subject == gdn::name(p)) say(explain_point(p));
    say(explain_convention(subject));
    if (s.empty()) throw Usage(fmt::format("nothing is called '{}'{} (`gdn-cts list` prints what there is)", subject.substr(0, 200), did_you_mean(subject, names())));
    print(s);
    return 0;
  }
};

ExplainCommand command;
const RegisterCommand registered(&command);

}  // namespace
}  // namespace gdn::cli
