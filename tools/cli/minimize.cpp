// gdn-cts minimize: from a failing case to the smallest problem of the same family that still fails in the same way.
#include <fmt/format.h>

#include <algorithm>

#include "reports/text.h"
#include "suites/runner.h"
#include "tools/cli/command.h"
#include "tools/cli/kernel_options.h"
#include "tools/cli/progress.h"

namespace gdn::cli {
namespace {

// Smaller problems, the boldest first. Not all need to be legal or known to the family.
std::vector<Problem> reductions(const Problem& p) {
  std::vector<Problem> list;
  const auto with = [&](auto change) {
    Problem q = p;
    change(q);
    if (!(q == p)) list.push_back(std::move(q));
  };
  const auto shorter = [](std::int64_t x, auto add) {
    for (std::int64_t y : {x / 4, x / 2, x - x / 4, x - 1})
      if (y >= 0 && y < x) add(y);
  };
  const std::size_t N = p.lengths.size();
  if (N > 1) {
    with([&](Problem& q) { q.lengths.resize((N + 1) / 2); });
    with([&](Problem& q) { q.lengths.erase(q.lengths.begin(), q.lengths.begin() + static_cast<std::ptrdiff_t>(N / 2)); });
    for (std::size_t i = 0; i < std::min<std::size_t>(N, 16); ++i)
      with([&](Problem& q) { q.lengths.erase(q.lengths.begin() + static_cast<std::ptrdiff_t>(i)); });
  }
  with([](Problem& q) { q.heads = q.value_heads = 1; });
  with([](Problem& q) { q.value_heads = q.heads; });
  if (p.heads > 1) with([&](Problem& q) { q.heads = 1, q.value_heads = p.value_heads / p.heads; });
  for (std::size_t i = 0; i < std::min<std::size_t>(N, 16); ++i) shorter(p.lengths[i], [&](std::int64_t t) { with([&](Problem& q) { q.lengths[i] = t; }); });
  for (std::int64_t d : {p.key_dim / 2, std::int64_t{16}, std::int64_t{1}})
    if (d >= 1 && d < p.key_dim) with([&](Problem& q) { q.key_dim = d; });
  for (std::int64_t d : {p.value_dim / 2, std::int64_t{16}, std::int64_t{1}})
    if (d >= 1 && d < p.value_dim) with([&](Problem& q) { q.value_dim = d; });
  if (!p.split.empty()) {
    with([](Problem& q) { q.split.clear(); });
    for (std::size_t i = 0; i < p.split.size(); ++i) with([&](Problem& q) { q.split.erase(q.split.begin() + static_cast<std::ptrdiff_t>(i)); });
    shorter(p.split.back(), [&](std::int64_t s) { with([&](Problem& q) { q.split.back() = s; }); });
  }
  if (p.pool()) {                                  // all rows of a batch alike; of verify whole calls
    const std::int64_t step = std::max<std::int64_t>(p.draft, 1);
    shorter(p.lengths[0], [&](std::int64_t t) { with([&](Problem& q) { q.lengths.assign(N, t); }); });
    with([&](Problem& q) { q.lengths.assign(N, p.lengths[0] - step); });
    if (p.draft > 1) with([&](Problem& q) { q.lengths.assign(N, p.lengths[0] - (p.lengths[0] - 1) / p.draft), q.draft = p.draft - 1; });
    shorter(p.slots, [&](std::int64_t s) { with([&](Problem& q) { q.slots = s; }); });
  }
  with([](Problem& q) { q.padding = 0; });
  with([](Problem& q) { q.initial_state = false; });
  with([](Problem& q) { q.final_state = false; });
  return list;
}

// Verdict and deciding check: what "the same way" means.
std::string manner(const Record& r) {
  const RecordCheck* c = reports::failing_check(r);
  return r.verdict + (c ? " " + c->check : "");
}

struct MinimizeCommand final : Command {
  KernelOptions kernel;
  std::string text;
  std::uint64_t most = 400;

  std::string name() const override { return "minimize"; }
  std::string summary() const override { return "the smallest problem on which a kernel still fails"; }
  int order() const override { return 40; }
  void options(Options& o) override {
    o.argument("case", text, "CASE-ID of a case that fails");
    kernel.declare(o);
    o.option("--tries", most, "N", "problems to try at most");
    o.footer("Exit status: 1 when a smallest failing case was found, 0 when the case does not fail.");
  }
  int run() override {
    use_threads(kernel.threads);
    CaseId best = parse_case_id(text);
    make_case(best);
    const auto session = kernel.open();
    const auto judge = [&](const CaseId& id, bool name_fault = false) {
      const Case c = make_case(id);
      return judge_case(make_golden(c), c, *session, {name_fault, {}});
    };
    Record failing = judge(best);
    if (failing.verdict != "FAILED" && failing.verdict != "RUNTIME_ERROR" && failing.verdict != "TIMEOUT") {
      print(fmt::format("{} does not fail, it is {}{}\n", text, failing.verdict, failing.reason.empty() ? "" : ": " + reports::printable(failing.reason)));
      return 0;
    }
    const std::string wanted = manner(failing);
    std::uint64_t tries = 0, steps = 0;
    {
      Progress progress("minimize");
      for (bool smaller = true; smaller && tries < most;) {
        smaller = false;
        for (Problem& q : reductions(best.problem)) {
          if (tries >= most) break;
          if (q.tokens() == 0 && best.problem.tokens() > 0) continue;   // of runs with other lengths what fails would hide in the others
          CaseId id{best.family, std::move(q), best.seed};
          Record r;
          try {
            validate(id.problem);
            ++tries;
            r = judge(id);
          } catch (const std::invalid_argument&) {   // not a problem, or not one of this family
            continue;
          }
          progress.at(tries, most, to_string(best.problem));
          if (manner(r) != wanted) continue;
          best = std::move(id);
          failing = std::move(r);
          smaller = true;
          ++steps;
          break;
        }
      }
    }
    if (const Record named = judge(best, true); manner(named) == wanted) failing = named;
    failing.repro = as_invoked(failing.repro);
    print(failure_block(failing));
    print(fmt::format("\n{} smaller problems fail in the same way ({}), of {} tried{}\nsmallest: {}\n", steps, wanted, tries,
                      tries >= most ? "; stopped there (--tries)" : "", failing.case_id));
    return 1;
  }
};

MinimizeCommand command;
const RegisterCommand registered(&command);

}  // namespace
}  // namespace gdn::cli
