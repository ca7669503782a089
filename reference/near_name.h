// What somebody may have meant by a name that nothing has: messages about wrong names end in it.
#pragma once
#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

namespace gdn {

// Letters to insert, drop, replace or swap with their neighbour to make one word of the other.
inline std::size_t edits_between(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before, last(b.size() + 1), row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) row[j] = std::min(row[j], before[j - 2] + 1);
    }
    before = std::move(last);
    last = row;
  }
  return last[b.size()];
}

// "; did you mean 'typical'?" with up to three names: those that a third of the letters turns into it, nearest first, and those
// that begin with it. Empty where nothing is near.
inline std::string did_you_mean(std::string_view word, const std::vector<std::string>& names) {
  if (word.empty() || word.size() > 64) return {};
  std::vector<std::pair<std::size_t, std::string>> near;
  for (const std::string& name : names) {
    const std::size_t edits = edits_between(word, name);
    if (edits <= std::max<std::size_t>(1, std::min(word.size(), name.size()) / 3)) near.emplace_back(edits, name);
    else if (word.size() >= 3 && name.compare(0, word.size(), word) == 0) near.emplace_back(word.size(), name);
  }
  std::sort(near.begin(), near.end());
  near.erase(std::unique(near.begin(), near.end()), near.end());
  if (near.size() > 3) near.resize(3);
  std::string s;
  for (std::size_t i = 0; i < near.size(); ++i) s += (i == 0 ? "; did you mean '" : i + 1 < near.size() ? ", '" : " or '") + near[i].second + "'";
  return s.empty() ? s : s + "?";
}

}  // namespace gdn
