// gdn-cts experiments: the memory experiments (suites/experiments.h) as text, and as a page with plots.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>

#include "reports/file.h"
#include "reports/plot.h"
#include "reports/text.h"
#include "suites/experiments.h"
#include "tools/cli/command.h"
#include "tools/cli/table.h"

namespace gdn::cli {
namespace {

std::string number(const Experiment& e, double x) {
  if (e.significant) return fmt::format("{:.{}g}", x, e.digits);
  if (x != 0 && (std::fabs(x) < 1e-4 || std::fabs(x) >= 1e7)) return fmt::format("{:.2e}", x);
  return fmt::format("{:.{}f}", x == 0 ? 0.0 : x, e.digits);
}

Table table_of(const Experiment& e) {
  Table t{{{e.label}}, {}};
  for (const std::string& c : e.columns) t.columns.push_back({c, true});
  for (const ExperimentRow& r : e.rows) {
    std::vector<std::string> cells{r.label};
    for (double x : r.values) cells.push_back(number(e, x));
    t.rows.push_back(cells);
  }
  return t;
}

// The curves of an experiment; values in tenfold steps where they span many.
reports::Plot plot_of(const Experiment& e) {
  reports::Plot p;
  p.id = e.name;
  p.title = e.title;
  p.description = e.y + " over " + e.x;
  p.category_label = e.x;
  p.value_label = (e.log_y ? "log10 of " : "") + e.y;
  for (const ExperimentRow& r : e.rows) p.categories.push_back(r.label);
  for (std::size_t c = 0; c < e.columns.size(); ++c) {
    reports::PlotSeries series;
    series.name = e.columns[c];
    for (std::size_t i = 0; i < e.rows.size(); ++i) {
      const double x = e.rows[i].values[c], value = e.log_y ? std::log10(std::max(x, 1e-16)) : x;
      series.points.push_back({static_cast<double>(i), value, value, value});
    }
    p.series.push_back(std::move(series));
  }
  return p;
}

std::string page(const std::map<std::string, std::string>& plots) {
  using reports::xml_escape;
  std::string s = "<h1>What a gated delta memory does</h1>\n<p>Made by <code>gdn-cts experiments</code> from the recurrence of the accuracy standard, in double precision.</p>\n";
  for (const Experiment& e : experiments()) {
    s += "<h2 id=\"" + e.name + "\">" + xml_escape(e.title) + "</h2>\n<p>" + xml_escape(e.shows) + "</p>\n<div class=\"scroll\"><table><thead><tr><th>" + xml_escape(e.label) + "</th>";
    for (const std::string& c : e.columns) s += "<th class=\"n\">" + xml_escape(c) + "</th>";
    s += "</tr></thead><tbody>\n";
    for (const ExperimentRow& r : e.rows) {
      s += "<tr><td>" + xml_escape(r.label) + "</td>";
      for (double x : r.values) s += "<td class=\"n\">" + number(e, x) + "</td>";
      s += "</tr>\n";
    }
    s += "</tbody></table></div>\n";
    if (const auto svg = plots.find(e.name); svg != plots.end()) s += svg->second + "\n";
  }
  return reports::html_page("What a gated delta memory does", s);
}

struct ExperimentsCommand final : Command {
  std::string directory, only;
  std::string name() const override { return "experiments"; }
  std::string summary() const override { return "what the memory does: overwriting, decay, capacity, retention; numbers and a page with plots"; }
  int order() const override { return 85; }
  void options(Options& o) override {
    o.argument("experiment", only, "one of them alone (default: all)", false);
    o.option("-o,--output", directory, "DIR", "folder for index.html and the plots, which gnuplot draws");
  }
  int run() override {
    if (!only.empty()) (void)experiment(only);
    for (const Experiment& e : experiments())
      if (only.empty() || only == e.name) print(fmt::format("{}: {}\n{}\n{}\n", e.name, e.title, e.shows, to_text(table_of(e))));
    if (directory.empty()) return 0;
    const std::filesystem::path folder = directory;
    std::error_code code;
    std::filesystem::create_directories(folder, code);
    if (code) throw Usage(fmt::format("cannot make the folder {}: {}", directory, code.message()));
    std::map<std::string, std::string> plots;
    try {
      for (const Experiment& e : experiments()) {
        const std::string svg = e.x.empty() ? std::string() : reports::plot_svg(plot_of(e));
        if (svg.empty()) continue;
        write_file((folder / (e.name + ".svg")).string(), reports::plot_file(svg));
        plots.emplace(e.name, svg);
      }
      write_file((folder / "index.html").string(), page(plots));
    } catch (const std::runtime_error& e) {
      throw Usage(e.what());
    }
    if (plots.empty()) note("no plots: gnuplot is missing or failed; the page has the tables");
    print(fmt::format("page: {}\n", (folder / "index.html").string()));
    return 0;
  }
};

ExperimentsCommand command;
const RegisterCommand registered(&command);

}  // namespace
}  // namespace gdn::cli
