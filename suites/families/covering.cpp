// Covering arrays, greedily; see covering.h.
#include "suites/families/covering.h"

#include <algorithm>

#include "reference/rng.h"

namespace gdn::covering {
namespace {

constexpr int kDraws = 20;                         // rows drawn, of which the best is taken
constexpr double kPerRow = 100;                    // what a row costs beside its size, in token-heads

std::vector<int> free_axes(const Block& b) {
  std::vector<int> list;
  for (std::size_t a = 0; a < b.allowed.size(); ++a)
    if (b.allowed[a].size() > 1) list.push_back(static_cast<int>(a));
  return list;
}

std::size_t z(int i) { return static_cast<std::size_t>(i); }

// Tuples of levels of some axes: which of them are asked, and which are shown.
class Tuples {
 public:
  Tuples(const std::vector<Axis>& axes, const Block& block, const Cost& cost, std::vector<int> of) : axes_(axes), of_(std::move(of)) {
    std::size_t size = 1;
    for (int a : of_) size *= axes[z(a)].levels.size();
    shown_.assign(size, -1);
    Row row;
    for (const auto& levels : block.allowed) row.push_back(levels.front());
    ask(block, cost, row, 0);
  }
  const std::vector<int>& of() const { return of_; }
  // Tuples not yet shown that a row shows; all of its axes have to be set.
  int gain(const Row& row) const { return visit(row, 0, 0, [&](std::size_t i) { return shown_[i] == 0; }); }
  // Tuples that it alone shows.
  int lost(const Row& row) const { return visit(row, 0, 0, [&](std::size_t i) { return shown_[i] == 1; }); }
  void show(const Row& row, int times) {
    visit(row, 0, 0, [&](std::size_t i) {
      if (shown_[i] >= 0) shown_[i] += times;
      return false;
    });
  }
  std::size_t count(bool shown) const { return z(static_cast<int>(std::count_if(shown_.begin(), shown_.end(), [&](int s) { return s >= (shown ? 1 : 0); }))); }
  // Levels of the first tuple that is asked and not shown, from `from` on round; false when there is none.
  bool next(std::size_t from, Row& row) const {
    for (std::size_t n = 0; n < shown_.size(); ++n) {
      std::size_t i = (from + n) % shown_.size();
      if (shown_[i] != 0) continue;
      for (std::size_t j = of_.size(); j-- > 0;) {
        const std::size_t levels = axes_[z(of_[j])].levels.size();
        row[z(of_[j])] = static_cast<int>(i % levels);
        i /= levels;
      }
      return true;
    }
    return false;
  }

 private:
  void ask(const Block& block, const Cost& cost, Row& row, std::size_t j) {
    if (j == of_.size()) {
      if (cost(row) > block.most) return;
      std::size_t i = 0;
      for (int a : of_) i = i * axes_[z(a)].levels.size() + z(row[z(a)]);
      shown_[i] = 0;
      return;
    }
    const std::size_t a = z(of_[j]);
    const int before = row[a];
    for (int level : block.allowed[a]) {
      row[a] = level;
      ask(block, cost, row, j + 1);
    }
    row[a] = before;
  }
  template <class F>
  int visit(const Row& row, std::size_t j, std::size_t i, F&& f) const {
    if (j == of_.size()) return f(i) ? 1 : 0;
    const Axis& axis = axes_[z(of_[j])];
    int sum = 0;
    for (int level = axis.reaches ? 0 : row[z(of_[j])]; level <= row[z(of_[j])]; ++level) sum += visit(row, j + 1, i * axis.levels.size() + z(level), f);
    return sum;
  }

  const std::vector<Axis>& axes_;
  std::vector<int> of_;
  std::vector<int> shown_;                         // by how many rows; -1: not asked
};

std::vector<Tuples> tuples(const std::vector<Axis>& axes, const Block& block, const Cost& cost, int strength) {
  const std::vector<int> open = free_axes(block);
  std::vector<Tuples> all;
  for (std::size_t a = 0; a < open.size(); ++a)
    for (std::size_t b = a + 1; b < open.size(); ++b) {
      if (strength == 2) all.emplace_back(axes, block, cost, std::vector<int>{open[a], open[b]});
      for (std::size_t c = b + 1; c < open.size() && strength == 3; ++c) all.emplace_back(axes, block, cost, std::vector<int>{open[a], open[b], open[c]});
    }
  return all;
}

}  // namespace

bool Block::holds(const Row& row) const {
  for (std::size_t a = 0; a < allowed.size(); ++a)
    if (std::find(allowed[a].begin(), allowed[a].end(), row[a]) == allowed[a].end()) return false;
  return true;
}

std::vector<Row> cover(const std::vector<Axis>& axes, const Block& block, const Cost& cost, const std::vector<Row>& rows, std::uint64_t seed) {
  const Random random(seed, block.name);
  std::uint64_t drawn = 0;
  const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random.below(drawn++, n)); };
  std::vector<Tuples> all = tuples(axes, block, cost, 2);
  for (const auto& t : block.triples) all.emplace_back(axes, block, cost, std::vector<int>(t.begin(), t.end()));
  for (const Row& row : rows)
    if (block.holds(row))
      for (Tuples& t : all) t.show(row, 1);
  const std::vector<int> open = free_axes(block);
  std::vector<std::vector<std::size_t>> with(axes.size());   // tuples that an axis is in
  for (std::size_t t = 0; t < all.size(); ++t)
    for (int a : all[t].of()) with[z(a)].push_back(t);
  std::vector<Row> added;
  // Triples first: they cost more, and most pairs come with them.
  for (std::size_t t = all.size(); t-- > 0;) {
    Row wanted(axes.size(), -1);
    while (all[t].next(below(1 << 20), wanted)) {
      Row best;
      double best_score = -1;
      for (int draw = 0; draw < kDraws; ++draw) {
        Row row;                                   // complete and within the cost all the time
        std::vector<bool> set(axes.size());
        for (std::size_t a = 0; a < axes.size(); ++a) {
          set[a] = wanted[a] >= 0 || block.allowed[a].size() == 1;
          row.push_back(wanted[a] >= 0 ? wanted[a] : block.allowed[a].front());
        }
        std::vector<int> order;
        for (int a : open)
          if (!set[z(a)]) order.push_back(a);
        for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[below(i)]);
        for (int a : order) {
          set[z(a)] = true;
          double most = -1;
          int level = row[z(a)];
          for (int l : block.allowed[z(a)]) {
            row[z(a)] = l;
            const double size = cost(row);
            if (size > block.most) continue;
            int gain = 0;
            for (std::size_t w : with[z(a)])
              if (const auto& of = all[w].of(); std::all_of(of.begin(), of.end(), [&](int b) { return set[z(b)]; })) gain += all[w].gain(row);
            const double score = (gain + 1e-3 * static_cast<double>(1 + below(100))) / (size + kPerRow);
            if (score > most) {
              most = score;
              level = l;
            }
          }
          row[z(a)] = level;
        }
        int gain = 0;
        for (const Tuples& x : all) gain += x.gain(row);
        if (const double score = gain / (cost(row) + kPerRow); score > best_score) {
          best_score = score;
          best = row;
        }
      }
      for (Tuples& x : all) x.show(best, 1);
      added.push_back(std::move(best));
      wanted.assign(axes.size(), -1);
    }
  }
  // Rows that the later ones made needless.
  std::erase_if(added, [&](const Row& row) {
    if (std::any_of(all.begin(), all.end(), [&](const Tuples& t) { return t.lost(row) > 0; })) return false;
    for (Tuples& t : all) t.show(row, -1);
    return true;
  });
  return added;
}

Tally tally(const std::vector<Axis>& axes, const Block& block, const Cost& cost, const std::vector<Row>& rows, int strength) {
  Tally sum;
  for (Tuples& t : tuples(axes, block, cost, strength)) {
    for (const Row& row : rows)
      if (block.holds(row)) t.show(row, 1);
    sum.asked += t.count(false);
    sum.shown += t.count(true);
    Row missing(axes.size(), -1);
    if (!sum.missing.empty() || !t.next(0, missing)) continue;
    sum.missing = block.name + ":";
    for (int a : t.of()) sum.missing += " " + axes[z(a)].name + " " + axes[z(a)].levels[z(missing[z(a)])];
  }
  return sum;
}

}  // namespace gdn::covering
