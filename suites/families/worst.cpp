// Case family `worst`: inputs that a search found hard (golden/worst, gdn-cts hunt), kept as they were found.
// There to catch what random draws do not reach: kernels that are right on average and wrong where errors add up.
#include <algorithm>
#include <stdexcept>

#include "suites/families/fill.h"
#include "suites/families/relate.h"
#include "suites/family.h"
#include "suites/hunt.h"

namespace gdn {
namespace {

// The tensor of a found input at the sizes of another problem: tokens, heads and value channels repeat, key channels
// beyond those found hold zeros.
Tensor stretched(const Tensor& from, Tensor to, const std::string& name) {
  const std::vector<std::int64_t>&a = from.shape, &b = to.shape;
  const bool keys_last = name == "q" || name == "k";
  for (std::int64_t i = 0; i < to.size(); ++i) {
    std::int64_t rest = i, at = 0, stride = 1;
    bool beyond = false;
    for (std::size_t d = b.size(); d-- > 0;) {
      const std::int64_t x = rest % b[d];
      rest /= b[d];
      beyond = beyond || (x >= a[d] && ((keys_last && d == 2) || (name == "h0" && d == 2)));
      at += x % a[d] * stride;
      stride *= a[d];
    }
    to.set(i, beyond ? 0 : from.at(at));
  }
  return to;
}

struct Worst final : Family {
  std::string name() const override { return "worst"; }
  std::string profile() const override { return "core"; }
  std::string rationale() const override {
    return "Random inputs rarely bring many rounding errors together in one element. These were found by climbing towards the "
           "greatest error in units of the bound, with the kernels and contracts that their lines in golden/worst name, and are "
           "run as they were found, at every level.";
  }
  std::string own_fault() const override { return "key_rows_aligned_down"; }
  std::vector<std::string> kinds() const override { return {"operand-narrowed", "inverse-narrowed", "state-narrowed"}; }
  std::vector<Problem> problems(Level) const override {
    std::vector<Problem> all;
    for (const WorstInput& w : worst_inputs())
      if (std::find(all.begin(), all.end(), w.run.problem) == all.end()) all.push_back(w.run.problem);
    return all;
  }
  // Seed 1 is what was found; others scale v and h0 by a power of two, which makes it neither easier nor harder.
  Case make(const Problem& p, std::uint64_t seed) const override {
    fill::require_prefill(name(), p);
    if (p.rule != Rule::gated_delta || p.raw) throw std::invalid_argument("family worst has inputs of the gated delta rule only, not '" + to_string(p) + "'");
    Case c;
    c.family = name();
    c.problem = p;
    c.seed = seed;
    const auto add = [&](const WorstInput& w) {
      Run run{c.runs.empty() ? "base" : "found" + std::to_string(c.runs.size() + 1), p, fill::allocate(p), true};
      for (auto& [tensor, t] : run.inputs) {
        const auto from = w.run.inputs.find(tensor);
        if (tensor == "cu_seqlens" || t.size() == 0) continue;
        if (from != w.run.inputs.end()) t = stretched(from->second, std::move(t), tensor);
        if (tensor == "v" || tensor == "h0")
          for (std::int64_t i = 0; i < t.size(); ++i) t.set(i, t.at(i) * static_cast<double>(1 << ((seed - 1) % 8)));
      }
      fill::poison_padding(p, run.inputs);
      c.runs.push_back(std::move(run));
    };
    for (const WorstInput& w : worst_inputs())
      if (w.run.problem == p) add(w);
    if (c.runs.empty()) add(worst_inputs().front());
    relate::add_negated_values(c);                 // decides where the bound of a coarser contract is beyond the signal
    return c;
  }
};

const Worst family;
const RegisterFamily registered(&family);

}  // namespace
}  // namespace gdn
