// Helpers of the metamorphic families; see relate.h.
#include "suites/families/relate.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace gdn::relate {

Tensor scaled(const Tensor& t, double factor) {
  Tensor r = t;
  for (std::int64_t i = 0; i < t.size(); ++i) r.set(i, t.at(i) * factor);
  return r;
}

bool scales_exactly(const Tensor& t, double factor) {
  const Tensor s = scaled(t, factor);
  for (std::int64_t i = 0; i < t.size(); ++i)
    if (const double want = t.at(i) * factor; !(s.at(i) == want) && !std::isnan(want)) return false;
  return true;
}

Tensor gathered(const Tensor& t, std::int64_t width, const std::vector<std::int64_t>& from) {
  Tensor r = t;
  const std::size_t bytes = static_cast<std::size_t>(width) * size_of(t.dtype);
  for (std::size_t i = 0; i < from.size(); ++i)
    std::memcpy(r.data.data() + i * bytes, t.data.data() + static_cast<std::size_t>(from[i]) * bytes, bytes);
  return r;
}

std::size_t add_run(Case& c, const std::string& name, const std::function<void(Run&)>& change, bool truth) {
  Run run = c.runs[0];
  run.name = name;
  std::replace_if(run.name.begin(), run.name.end(), [](char ch) { return ch == ' ' || ch == '/' || ch == ','; }, '_');   // a name in files
  run.truth = truth;
  change(run);
  c.runs.push_back(std::move(run));
  return c.runs.size() - 1;
}

Relation& add(Case& c, int row, RelationClass cls, std::size_t rhs, const std::string& statement,
              std::function<TensorSet(const std::vector<TensorSet>&)> expected) {
  Relation r;
  r.row = row;
  r.statement = statement;
  r.cls = cls;
  r.rhs = rhs;
  r.expected = std::move(expected);
  c.relations.push_back(std::move(r));
  return c.relations.back();
}

std::function<TensorSet(const std::vector<TensorSet>&)> base_times(std::size_t rhs, double fo, double fh, bool rescaled) {
  return [=](const std::vector<TensorSet>& results) {
    TensorSet e;
    for (const auto& [name, t] : results[0]) {
      const double f = name == "o" ? fo : fh;
      Tensor want = scaled(t, f);
      const double least = t.dtype == DType::f16 ? 0x1p-14 : 0x1p-126;
      if (const auto got = results[rhs].find(name); got != results[rhs].end() && got->second.shape == want.shape && (rescaled || std::fabs(f) != 1) && f != 0)
        for (std::int64_t i = 0; i < t.size(); ++i)
          if (std::fabs(t.at(i)) < least || std::fabs(got->second.at(i)) < least) want.set_bits(i, got->second.bits(i));
      e.emplace(name, std::move(want));
    }
    return e;
  };
}

void add_negated_values(Case& c, bool truth) {
  const std::size_t values = add_run(c, "values negated", [](Run& r) {
    r.inputs["v"] = scaled(r.inputs.at("v"), -1);
    if (r.problem.initial_state) r.inputs["h0"] = scaled(r.inputs.at("h0"), -1);
  }, truth);
  add(c, 12, RelationClass::symmetric_rounding, values, "v and h0 negated give o and ht negated", base_times(values, -1, -1));
}

}  // namespace gdn::relate
