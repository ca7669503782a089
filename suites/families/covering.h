// Covering arrays: few rows in which every pair of levels of all axes occurs, and every triple where that is asked.
// Exists because a fault that needs two or three options at once is not met by a list of cases made by hand.
#pragma once
#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace gdn::covering {

struct Axis {
  std::string name;
  std::vector<std::string> levels;
  bool reaches = false;                            // a row of one level shows what the levels below it show
};
using Row = std::vector<int>;                      // a level per axis
using Cost = std::function<double(const Row&)>;    // greater for later levels of a block's lists

// Rows of one kind: a kernel that supports the fixed levels supports them all.
struct Block {
  std::string name;
  std::vector<std::vector<int>> allowed;           // per axis, cheapest first; one level: fixed
  double most = 0;                                 // cost of a row at most; what needs more is not asked
  std::vector<std::array<int, 3>> triples;         // axes of which all triples are asked, beside all pairs
  bool holds(const Row& row) const;
};

// Rows that, with the rows there are, cover the block. Greedy: the row that covers most per cost of several drawn ones. The same for a seed.
std::vector<Row> cover(const std::vector<Axis>& axes, const Block& block, const Cost& cost, const std::vector<Row>& rows, std::uint64_t seed);

// How many pairs (strength 2) or triples (3) of the block's axes there are within its cost, and how many the rows show.
struct Tally {
  std::size_t asked = 0, shown = 0;
  std::string missing;                             // the first one that is not shown
};
Tally tally(const std::vector<Axis>& axes, const Block& block, const Cost& cost, const std::vector<Row>& rows, int strength);

}  // namespace gdn::covering
