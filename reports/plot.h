// Plots as SVG, drawn by gnuplot, which is an external program: pages say so where it is missing and keep their tables.
#pragma once
#include <string>
#include <vector>

namespace gdn::reports {

struct PlotPoint { double at = 0, value = 0, low = 0, high = 0; };   // at: index of the category; low and high: range over draws
struct PlotSeries {
  std::string name;
  bool measured = false;                           // drawn with open marks and a dashed line,
  std::string like;                                // in the colour of the series of this name, where there is one
  std::vector<PlotPoint> points;                   // ascending in `at`
};
struct Plot {
  std::string id;                                  // letters, digits, '-', '.': part of file names and of ids in the page
  std::string title, description;                  // alternative text: what is shown, and in a sentence what is seen
  std::string category_label, value_label;
  std::vector<std::string> categories;
  bool dots = false;                               // categories down the side and no lines: for names and rankings
  std::vector<PlotSeries> series;
};

bool have_gnuplot();
// One <svg> element, with classes and variables of the page's colours, role and alternative text. Empty where gnuplot is missing or fails.
std::string plot_svg(const Plot& p);
// The same as a file of its own, which brings its colours along.
std::string plot_file(const std::string& svg);

}  // namespace gdn::reports
