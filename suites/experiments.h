// The memory experiments of the texts that GDN is learned from, once more with the recurrence of reference/recurrence.h: what a
// write replaces, what is forgotten, how much fits, what the gates mean. They exist so that every number such a text prints can be
// checked against the definition (accuracy standard, section 11), by `gdn-cts experiments` and by the tests.
// All values are plain doubles; nothing here is certified.
#pragma once
#include <string>
#include <vector>

namespace gdn {

struct ExperimentRow {
  std::string label;
  std::vector<double> values;                      // one for each column; NaN: nothing there
};
struct Experiment {
  std::string name, title;
  std::string shows;                               // what is done and what it shows, in sentences
  std::string label;                               // heading of the labels
  std::vector<std::string> columns;
  std::vector<ExperimentRow> rows;
  int digits = 3;                                  // printed after the point
  // Curves, where there is something to draw, the rows along x.
  std::string x, y;                                // what the axes say; empty: a table alone
  bool log_y = false;
  bool significant = false;                        // digits counts significant ones: values of many sizes in one table

  // The value in the row with that label; throws std::out_of_range.
  double at(const std::string& row, const std::string& column) const;
};

const std::vector<Experiment>& experiments();      // in the order of the page
const Experiment& experiment(const std::string& name);   // throws std::invalid_argument

// The first 2048 standard normal numbers of numpy.random.default_rng(0), from which capacity is measured.
const std::vector<double>& capacity_numbers();

}  // namespace gdn
