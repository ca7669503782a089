// Plots by gnuplot; see plot.h. gnuplot writes the geometry; colours become variables of the page, so that one drawing serves light,
// dark and paper, and marks and dashes tell series apart without any colour.
#include "reports/plot.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "reports/file.h"
#include "reports/text.h"

namespace gdn::reports {
namespace {

constexpr int kSeries = 8;                         // colours of the page (html.cpp: --s1 ...)
// Filled marks that differ in form, and dashes.
constexpr int kMarks[kSeries] = {7, 5, 9, 11, 13, 15, 2, 3};
constexpr int kOpenMarks[kSeries] = {6, 4, 8, 10, 12, 14, 1, 2};
constexpr const char* kDashes[kSeries] = {"1", "(12,4)", "(3,4)", "(12,4,3,4)", "(20,4)", "(8,3,2,3,2,3)", "(6,2)", "(16,3,3,3)"};

std::string output_of(const std::string& command) {
  std::FILE* pipe = ::popen(command.c_str(), "r");
  if (!pipe) return {};
  std::string out;
  char buffer[1 << 14];
  std::size_t n;
  while ((n = std::fread(buffer, 1, sizeof buffer, pipe)) > 0) out.append(buffer, n);
  return ::pclose(pipe) == 0 ? out : std::string();
}

// A string of gnuplot, without markup.
std::string quoted(const std::string& text) {
  std::string s = "'";
  for (const char c : printable(text)) s += c == '\'' ? std::string("''") : std::string(1, c);
  return s + "'";
}

void replace_all(std::string& s, const std::string& from, const std::string& to) {
  for (std::size_t at = 0; (at = s.find(from, at)) != std::string::npos; at += to.size()) s.replace(at, from.size(), to);
}

// Groups that gnuplot opens for a change of colour and closes empty.
void drop_empty_groups(std::string& s) {
  for (std::size_t at = 0; (at = s.find("<g ", at)) != std::string::npos;) {
    const std::size_t end = s.find('>', at);
    if (end == std::string::npos) return;
    std::size_t next = end + 1;
    while (next < s.size() && (s[next] == '\n' || s[next] == '\t' || s[next] == ' ')) ++next;
    if (s.compare(next, 4, "</g>") == 0) {
      s.erase(at, next + 4 - at);
      at = at > 200 ? at - 200 : 0;                // the group around it may be empty now
    } else {
      at = end;
    }
  }
}

std::string script(const Plot& p) {
  const std::size_t n = p.categories.size();
  std::size_t longest = 0;
  for (const PlotSeries& s : p.series) longest = std::max(longest, s.name.size());
  constexpr double kWidth = 480;
  const int columns = std::clamp(static_cast<int>(kWidth / (6.9 * static_cast<double>(longest) + 48)), 1, 4);
  const int key_rows = (static_cast<int>(p.series.size()) + columns - 1) / columns;
  const bool rotated = !p.dots && (n > 8 || std::any_of(p.categories.begin(), p.categories.end(), [](const std::string& c) { return c.size() > 8; }));
  const double below = 3.8 + (rotated ? 1.5 : 0) + 0.97 * key_rows;   // lines of text under the plot: tics, label, key
  const double height = (p.dots ? 25 + 17 * static_cast<double>(n) : 235) + 15 * below;
  double low = 1e300, high = -1e300;
  for (const PlotSeries& s : p.series)
    for (const PlotPoint& x : s.points) {
      low = std::min(low, x.low);
      high = std::max(high, x.high);
    }
  if (!(low <= high)) low = high = 0;
  const double pad = std::max(0.5, 0.05 * (high - low));
  std::string s = fmt::format("set terminal svg noenhanced size {:.0f},{:.0f} dynamic font 'sans-serif,13' rounded\nset encoding utf8\n", kWidth, height);
  s += "set border 3 linecolor rgb '#010203'\nset tics nomirror out textcolor rgb '#010203'\nset grid linecolor rgb '#040506' linetype 1 linewidth 0.6\n";
  s += fmt::format("set key at screen 0.01,screen 0.012 left bottom vertical Left reverse maxrows {} samplen 2.5 spacing 1.05 font ',11' textcolor rgb '#010203'\nset bmargin {:.2f}\n", key_rows, below);
  std::string tics;
  for (std::size_t i = 0; i < n; ++i) tics += (i ? ", " : "") + quoted(p.categories[i]) + fmt::format(" {}", i);
  const char *category = p.dots ? "y" : "x", *value = p.dots ? "x" : "y";
  s += fmt::format("set {}tics ({}){}\n", category, tics, rotated ? " rotate by 40 right" : "");
  s += fmt::format("set {}range [{}] noextend\n", category, p.dots ? fmt::format("{}:-0.7", static_cast<double>(n) - 0.3) : fmt::format("-0.3:{}", static_cast<double>(n) - 0.7));
  s += fmt::format("set {}range [{:.6g}:{:.6g}] noextend\n", value, low - pad, high + pad);
  s += fmt::format("set {}label {} textcolor rgb '#010203'\nset {}label {} textcolor rgb '#010203'\n", category, quoted(p.category_label), value, quoted(p.value_label));
  std::string plots;
  for (std::size_t i = 0; i < p.series.size(); ++i) {
    const PlotSeries& x = p.series[i];
    const auto model = std::find_if(p.series.begin(), p.series.end(), [&](const PlotSeries& other) { return !x.like.empty() && other.name == x.like; });
    // A measured curve takes place, colour and form of its model: open marks around filled ones where they agree.
    const std::size_t place = model == p.series.end() ? i : static_cast<std::size_t>(model - p.series.begin()), colour = place % kSeries, mark = (place + place / kSeries) % kSeries;
    // Side by side where values are equal.
    const double aside = (static_cast<double>(place) - 0.5 * static_cast<double>(p.series.size() - 1)) * std::min(p.dots ? 0.14 : 0.05, 0.4 / static_cast<double>(p.series.size()));
    s += fmt::format("$d{} << END\n", i);
    double before = -1;
    for (const PlotPoint& q : x.points) {
      if (before >= 0 && q.at > before + 1 && !p.dots) s += "\n";   // what lies between is missing: no line across
      before = q.at;
      s += p.dots ? fmt::format("{:.6g} {:.4g} {:.6g} {:.6g}\n", q.value, q.at + aside, q.low, q.high) : fmt::format("{:.4g} {:.6g} {:.6g} {:.6g}\n", q.at + aside, q.value, q.low, q.high);
    }
    s += "END\n";
    plots += fmt::format("{}$d{} using 1:2:3:4 with {} linecolor rgb '#a0000{}' linewidth {} dashtype {} pointtype {} pointsize {} title {}", i ? ", \\\n  " : "plot ", i,
                         p.dots ? "xerrorbars" : "yerrorlines", colour + 1, x.measured ? 1.2 : 1.6, x.measured ? "(5,5)" : kDashes[mark], x.measured ? kOpenMarks[mark] : kMarks[mark], x.measured ? 1.15 : 0.75, quoted(x.name));
  }
  return s + (plots.empty() ? "plot 0 notitle" : plots) + "\n";
}

}  // namespace

bool have_gnuplot() {
  static const bool yes = !output_of("gnuplot --version 2>/dev/null").empty();
  return yes;
}

std::string plot_svg(const Plot& p) {
  if (!have_gnuplot()) return {};
  const std::string file = (std::filesystem::temp_directory_path() / ("gdn-cts-plot" + temporary_suffix())).string();
  write_file(file, script(p));
  std::string svg = output_of("gnuplot '" + file + "' 2>/dev/null");
  std::error_code ignored;
  std::filesystem::remove(file, ignored);
  const std::size_t open = svg.find("<svg"), body = svg.find('>', open), canvas = svg.find("<g id=\"gnuplot_canvas\""), end = svg.rfind("</svg>");
  if (open == std::string::npos || canvas == std::string::npos || end == std::string::npos) return {};
  const std::size_t box = svg.find("viewBox=\"", open), box_end = svg.find('"', box + 9);
  const std::string view = box < body ? svg.substr(box, box_end + 1 - box) : "";
  svg = svg.substr(canvas, end - canvas);
  drop_empty_groups(svg);
  // What every group says is said once, and nothing here has boxes behind its text: half of the page's weight.
  if (const std::size_t boxes = svg.find("<filter"), last = svg.rfind("</filter>"); boxes < last && last != std::string::npos) svg.erase(boxes, last + 9 - boxes);
  const std::string common = " fill=\"none\" color=\"black\" stroke=\"currentColor\"", ends = " stroke-linecap=\"round\" stroke-linejoin=\"round\"", font = " font-family=\"sans-serif\"";
  for (const std::string& text : {common, ends, font}) replace_all(svg, text, "");
  svg.insert(svg.find('>'), common + ends + font);
  if (const std::size_t paper = svg.find("<rect"), end_of = svg.find("/>", paper); paper < svg.find("<defs>") && end_of != std::string::npos) svg.erase(paper, end_of + 2 - paper);   // the page is the paper
  for (const char* space : {"\t", " \n", "\n\n"})
    while (svg.find(space) != std::string::npos) replace_all(svg, space, std::string_view(space) == "\t" ? "" : "\n");
  for (const char* text : {"rgb(  1,   2,   3)", "rgb(1,2,3)"}) replace_all(svg, text, "var(--fg)");
  for (const char* text : {"rgb(  4,   5,   6)", "rgb(4,5,6)"}) replace_all(svg, text, "var(--line)");
  for (int i = 1; i <= kSeries; ++i)
    for (const std::string& text : {fmt::format("rgb(160,   0,   {})", i), fmt::format("rgb(160,0,{})", i)}) replace_all(svg, text, fmt::format("var(--s{})", i));
  replace_all(svg, "color='var", "style='color:var");   // attributes know no variables
  replace_all(svg, "stroke='var(", "style='stroke:var(");
  replace_all(svg, "fill=\"var(", "style=\"fill:var(");
  replace_all(svg, "stroke=\"var(", "style=\"stroke:var(");
  for (const char* id : {"gp", "gnuplot", "textbox", "greybox"}) {
    replace_all(svg, std::string("id='") + id, "id='" + p.id + "." + id);
    replace_all(svg, std::string("id=\"") + id, "id=\"" + p.id + "." + id);
  }
  replace_all(svg, "xlink:href='#gp", "href='#" + p.id + ".gp");
  return fmt::format("<svg {} role=\"img\" aria-labelledby=\"{}.title {}.desc\"><title id=\"{}.title\">{}</title><desc id=\"{}.desc\">{}</desc>\n", view, p.id, p.id, p.id,
                     xml_escape(printable(p.title)), p.id, xml_escape(printable(p.description))) + svg + "</svg>\n";
}

std::string plot_file(const std::string& svg) {
  const std::size_t head = svg.find('>') + 1;
  return "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n<svg xmlns=\"http://www.w3.org/2000/svg\"" + svg.substr(4, head - 4) + "<style>" + plot_colours() + "svg{background:var(--bg)}</style>" + svg.substr(head);
}

}  // namespace gdn::reports
