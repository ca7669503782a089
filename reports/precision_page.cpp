// The page of a precision study: findings, and for every question its plots, the tables that answer it and every point behind them with
// the command that makes it again. Beside it the points, the summary, and for every plot its drawing and its numbers as CSV and JSON.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <set>

#include "reports/file.h"
#include "reports/json.h"
#include "reports/plot.h"
#include "reports/precision.h"
#include "reports/text.h"

namespace gdn {
namespace {

using namespace reports;

std::string esc(const std::string& s) { return xml_escape(printable(s)); }

std::string axis(const PrecisionPoint& p, const std::string& name) {
  const auto at = p.axes.find(name);
  return at == p.axes.end() ? "" : at->second;
}

const char* unit_of(const std::string& name) {
  if (name == "T") return "tokens T";
  if (name == "gate") return "mean decay −g per token (nats)";
  if (name == "beta") return "beta (uniform between)";
  if (name == "keys") return "mean cosine of two keys";
  if (name == "chunk") return "tokens per chunk";
  if (name == "point") return "storage point";
  return name.c_str();
}
std::string short_name(const std::string& name) { return name == "gate" ? "mean decay" : name == "T" ? "tokens" : name; }

// Where a cell sorts: its first number; words by what they mean.
double sort_key(const std::string& cell) {
  const double inf = 1e308;
  if (cell == "exact") return inf;
  if (cell == "overflow" || cell == "none" || cell == "-" || cell.empty()) return -inf;
  if (cell == "all" || cell == "not yet") return inf;
  const std::size_t at = cell.find_first_of("-0123456789");
  return at == std::string::npos ? inf : std::strtod(cell.c_str() + at, nullptr);
}

std::string html_table(const std::vector<std::string>& columns, const std::vector<std::vector<std::string>>& rows, const std::string& caption) {
  std::string s = "<div class=\"scroll\"><table class=\"sortable\">" + (caption.empty() ? "" : "<caption>" + esc(caption) + "</caption>") + "<thead><tr>";
  std::vector<bool> number;
  for (const std::string& c : columns) {
    number.push_back(!c.empty() && c.back() == '#');
    s += fmt::format("<th scope=\"col\"{}>{}</th>", number.back() ? " class=\"n\"" : "", esc(number.back() ? c.substr(0, c.size() - 1) : c));
  }
  s += "</tr></thead><tbody>\n";
  for (const auto& row : rows) {
    s += "<tr>";
    for (std::size_t i = 0; i < row.size(); ++i) {
      // A plain number sorts as it reads.
      const bool plain = !row[i].empty() && row[i].find_first_not_of("0123456789.e+-") == std::string::npos && row[i] != "-";
      s += !number[i] ? (row[i].size() > 60 ? "<td class=w>" : "<td>") + esc(row[i]) + "</td>" : plain ? "<td class=n>" + row[i] + "</td>" : fmt::format("<td class=n data-k=\"{:.6g}\">{}</td>", sort_key(row[i]), esc(row[i]));
    }
    s += "</tr>\n";
  }
  return s + "</tbody></table></div>\n";
}

// The line that makes this very point again.
std::string point_command(const PrecisionPoint& p) {
  return "gdn-cts precision --inputs " + p.inputs + (p.kernel.empty() ? " --contract '" + p.contract + "'" : " " + p.how);
}

// In both o and the final state, over draws: the mean, and the range of single draws.
struct Bits { double mean, low, high; };
Bits range_of(const std::vector<double>& a, const std::vector<double>& b) {
  Bits r{bits_kept(std::max(rms(a), b.empty() ? 0 : rms(b))), std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity()};
  for (std::size_t d = 0; d < a.size(); ++d) {
    const double bits = bits_kept(std::max(a[d], d < b.size() ? b[d] : 0));
    r.low = std::min(r.low, bits);
    r.high = std::max(r.high, bits);
  }
  return r;
}

struct Panel {
  std::string id, caption;
  Plot plot;
  std::vector<const PrecisionPoint*> points;
  std::map<std::string, std::string> labels;       // of kernels over their contracts: contract -> name of its curve
};

class Page {
 public:
  Page(const std::string& dir, const std::vector<PrecisionPoint>& points, const std::vector<PrecisionStudy>& studies, const PrecisionCommands& commands)
      : base_(dir), points_(points), studies_(studies), commands_(commands) {}

  std::string write() {
    const Answers all = answers(points_, studies_);
    std::string s = "<p class=\"dim\">GDN-CTS, error against precision of the Gated DeltaNet recurrence</p>\n<h1>What does a format cost?</h1>\n";
    s += "<p>Precision contracts carried out operation by operation, and kernels where named, against certified truth. <b>Bits kept</b> are −log<sub>2</sub> of the relative root mean square error; "
         "where one number stands for a contract it is that of the output or of the final state, whichever keeps fewer.</p>\n";
    s += command_lines(points_) + "<p class=\"dim\">The same page from its points: <code>gdn-cts precision --from points.jsonl -o DIR</code></p>\n";
    std::set<std::string> inputs, contracts, kernels;
    double truth = 0;
    for (const PrecisionPoint& p : points_) {
      inputs.insert(p.inputs);
      (p.kernel.empty() ? contracts : kernels).insert(p.kernel.empty() ? p.contract : p.kernel);
      truth = std::max(truth, p.truth);
    }
    s += "<div class=\"tiles\">";
    const auto tile = [&](const std::string& value, const char* label) { s += fmt::format("<div class=\"tile\"><b>{}</b><span>{}</span></div>", esc(value), label); };
    tile(std::to_string(points_.size()), "points");
    tile(std::to_string(contracts.size()), "contracts");
    if (!kernels.empty()) tile(std::to_string(kernels.size()), "kernels measured");
    tile(std::to_string(inputs.size()), "sets of inputs");
    tile(short_number(truth), "greatest radius of the truth, relative");
    s += "</div>\n";
    if (!have_gnuplot()) s += "<p class=\"warn\">No plots: gnuplot is not installed. The tables hold all numbers.</p>\n";
    // What most people ask; the other findings with their study. Where none of that is answered, the first finding of every study.
    s += "<h2 id=\"findings\">Findings</h2>\n<ul class=\"findings\">\n";
    std::set<std::string> told;
    const bool asked = std::any_of(all.findings.begin(), all.findings.end(), [](const Answer& f) { return f.headline; });
    for (const Answer& f : all.findings)
      if (asked ? f.headline : !f.study.empty() && told.insert(f.study).second) s += "<li>" + esc(f.text) + fmt::format(" <a href=\"#{0}\">{0}</a>", esc(f.study)) + "</li>\n";
    s += "</ul>\n<h2>Questions</h2>\n<ul>\n";
    for (const PrecisionStudy& v : studies_)
      if (has(v.name)) s += fmt::format("<li><a href=\"#{}\">{}</a></li>\n", esc(v.name), esc(v.question));
    if (!kernels.empty()) s += "<li><a href=\"#kernels\">Do kernels do what they declare?</a></li>\n";
    s += "</ul>\n";
    for (const AnswerTable& t : all.tables)
      if (t.study.empty()) {
        s += fmt::format("<h2 id=\"{}\">", esc(t.name)) + esc(t.title) + "</h2>\n<p class=\"dim\">" + esc(t.note) + "</p>\n" + html_table(t.columns, t.rows, "");
      }
    for (const PrecisionStudy& v : studies_)
      if (has(v.name)) s += section(v, all);
    s += "<h2>Words</h2>\n<dl class=\"words\">"
         "<dt>contract</dt><dd>what is stored in which format at each point of the algorithm; <code>gdn-cts explain bf16-chunk</code> prints one</dd>"
         "<dt>bits kept</dt><dd>−log<sub>2</sub>(rms error / rms of the exact values), over all elements of the tensor and over draws; fp32 holds 24, bf16 8</dd>"
         "<dt>draw</dt><dd>one head with random inputs of the given kind; bars show the range over draws</dd>"
         "<dt>cost</dt><dd>bits that all stores of a contract hold per token and value head (tf32 counts 19)</dd>"
         "<dt>measured</dt><dd>a kernel that ran on the same inputs: open marks and dashes, around the marks of its contract carried out where both agree</dd>"
         "<dt>overflow, exact</dt><dd>some element is not finite; no error at all</dd></dl>\n"
         "<p>The same data: <a href=\"points.jsonl\">points.jsonl</a>, <a href=\"summary.md\">summary.md</a>; for each plot an SVG, a CSV and a JSON file beside this page.</p>\n";
    std::string lines;
    for (const PrecisionPoint& p : points_) lines += to_json_line(p) + "\n";
    write_file((base_ / "points.jsonl").string(), lines);
    write_file((base_ / "summary.md").string(), precision_markdown(points_, studies_, commands_(points_)));
    write_file((base_ / "index.html").string(), html_page("GDN-CTS: what does a format cost?", s));
    return have_gnuplot() ? "" : "gnuplot is not installed: the page has its tables but no plots";
  }

 private:
  bool has(const std::string& study) const {
    return std::any_of(points_.begin(), points_.end(), [&](const PrecisionPoint& p) { return p.study == study; });
  }

  std::string command_lines(const std::vector<PrecisionPoint>& points) const {
    std::string s;
    for (const std::string& line : commands_(points)) s += (s.empty() ? "" : "\n") + line;
    return "<pre>" + esc(s) + "</pre>\n";
  }

  std::string section(const PrecisionStudy& v, const Answers& all) {
    std::string s = fmt::format("<h2 id=\"{}\">{}</h2>\n", esc(v.name), esc(v.question));
    std::vector<PrecisionPoint> mine;
    for (const PrecisionPoint& p : points_)
      if (p.study == v.name) mine.push_back(p);
    s += command_lines(mine);
    std::string said;
    for (const Answer& f : all.findings)
      if (f.study == v.name) said += "<li>" + esc(f.text) + "</li>\n";
    if (!said.empty()) s += "<ul class=\"findings\">\n" + said + "</ul>\n";
    const std::vector<Panel> list = v.x.empty() ? std::vector<Panel>() : panels(v);
    if (!list.empty()) s += "<div class=\"plots\">\n";
    for (const Panel& p : list) {
      const std::string svg = plot_svg(p.plot);
      write_numbers(p);
      s += fmt::format("<figure class=\"plot\" id=\"{}\">", esc(p.id)) + svg + "<figcaption>" + esc(p.caption) + " ";
      if (!svg.empty()) {
        write_file((base_ / (p.id + ".svg")).string(), plot_file(svg));
        s += fmt::format("<a href=\"{}.svg\">SVG</a> ", esc(p.id));
      }
      s += fmt::format("<a href=\"{0}.csv\">CSV</a> <a href=\"{0}.json\">JSON</a></figcaption></figure>\n", esc(p.id));
    }
    if (!list.empty()) s += "</div>\n";
    for (const AnswerTable& t : all.tables)
      if (t.study == v.name) s += "<h3>" + esc(t.title) + "</h3>\n<p class=\"dim\">" + esc(t.note) + "</p>\n" + html_table(t.columns, t.rows, "");
    return s + every_point(v);
  }

  std::string every_point(const PrecisionStudy& v) const {
    std::vector<std::string> columns, names;
    std::vector<std::vector<std::string>> rows;
    for (const PrecisionPoint& p : points_)
      if (p.study == v.name)
        for (const auto& [key, value] : p.axes)
          if (key != "contract" && std::find(names.begin(), names.end(), key) == names.end()) names.push_back(key);
    for (const std::string& key : names) columns.push_back(short_name(key) + (key == "T" || key == "gate" || key == "chunk" ? "#" : ""));
    for (const char* c : {"kernel or contract", "bits o#", "bits ht#", "rms o#", "rms ht#", "worst o#", "worst ht#", "not finite#", "cost#", "inputs"}) columns.push_back(c);
    const auto bits = [](const std::vector<double>& e) {
      const double b = bits_kept(rms(e));
      return std::isinf(b) ? std::string(b > 0 ? "exact" : "overflow") : fmt::format("{:.2f}", b);
    };
    const auto most = [](const std::vector<double>& e) { return short_number(*std::max_element(e.begin(), e.end())); };
    for (const PrecisionPoint& p : points_) {
      if (p.study != v.name) continue;
      std::vector<std::string> row;
      for (const std::string& key : names) row.push_back(axis(p, key));
      row.push_back(p.kernel.empty() ? p.contract : p.kernel + " (measured)");
      for (const auto& cell : {bits(p.o_rms), bits(p.ht_rms), short_number(rms(p.o_rms)), short_number(rms(p.ht_rms)), most(p.o_worst), most(p.ht_worst), std::to_string(p.non_finite), fmt::format("{:.0f}", p.cost)})
        row.push_back(cell);
      row.push_back(p.inputs);
      rows.push_back(std::move(row));
    }
    return fmt::format("<details class=\"all\"><summary>All {} points of this question</summary>\n<p class=\"dim\">Errors relative to the rms of the exact values; worst: greatest error of an element. Any line again: <code>gdn-cts precision --inputs INPUTS --contract 'CONTRACT'</code>, or with a kernel's option.</p>\n", rows.size()) + html_table(columns, rows, "") + "</details>\n";
  }

  // The study's contracts, a plot for each value of the axes that it is split by; then kernels over the contracts that they declare, those whose
  // names begin alike (cuda_..., fla_...) in one plot.
  static std::string group_of(const std::string& kernel) { return kernel.substr(0, kernel.find_first_of("_/")); }
  static std::string without_group(const std::string& kernel) {   // the caption names it
    const std::string rest = kernel.substr(std::min(kernel.size(), group_of(kernel).size() + 1));
    return rest.empty() ? kernel : rest;
  }

  std::vector<Panel> panels(const PrecisionStudy& v) {
    std::vector<Panel> list, kernels;
    const auto panel_of = [&](std::vector<Panel>& among, const PrecisionPoint& p, const std::string& kernel) -> Panel& {
      std::string id = v.name + (kernel.empty() ? "" : "-" + kernel), caption = kernel.empty() ? "" : kernel + " kernels over the contracts they declare";
      for (const std::string& name : v.panels) {
        const std::string value = axis(p, name);
        if (!kernel.empty() && name == "contract") continue;
        id += "-" + name + "-" + value;
        caption += (caption.empty() ? "" : ", ") + (name == "contract" ? value : short_name(name) + " " + value);
      }
      for (char& c : id)
        if (!std::isalnum(static_cast<unsigned char>(c)) && c != '.') c = '-';
      const auto at = std::find_if(among.begin(), among.end(), [&](const Panel& x) { return x.id == id; });
      return at == among.end() ? among.emplace_back(Panel{id, caption, {}, {}, {}}) : *at;
    };
    for (const PrecisionPoint& p : points_) {
      if (p.study != v.name) continue;
      if (p.kernel.empty()) {
        if (v.contracts.empty() || std::find(v.contracts.begin(), v.contracts.end(), axis(p, "contract")) != v.contracts.end()) panel_of(list, p, "").points.push_back(&p);
        continue;
      }
      Panel& panel = panel_of(kernels, p, group_of(p.kernel));
      panel.labels.emplace(p.contract, without_group(p.kernel) + " contract");
      for (const PrecisionPoint& s : points_)
        if (s.study == v.name && s.kernel.empty() && s.contract == p.contract && s.inputs == p.inputs && std::find(panel.points.begin(), panel.points.end(), &s) == panel.points.end()) panel.points.push_back(&s);
      panel.points.push_back(&p);
    }
    std::stable_sort(kernels.begin(), kernels.end(), [](const Panel& a, const Panel& b) { return a.id < b.id; });
    for (Panel& p : kernels) {                     // curves in one order in all of them: by kernel, its contract first
      const auto label = [&](const PrecisionPoint* x) { return p.labels.at(x->contract) + "|" + x->kernel; };
      std::stable_sort(p.points.begin(), p.points.end(), [&](const PrecisionPoint* a, const PrecisionPoint* b) { return label(a) < label(b); });
      list.push_back(std::move(p));
    }
    for (Panel& p : list) {
      p.plot.id = fmt::format("p{}", ++plots_);    // short: every mark of the drawing names it
      draw(v, p);
    }
    return list;
  }

  void draw(const PrecisionStudy& v, Panel& panel) const {
    Plot& plot = panel.plot;
    plot.title = v.question + (panel.caption.empty() ? "" : " (" + panel.caption + ")");
    plot.category_label = unit_of(v.x);
    plot.dots = v.x == "point";
    const bool gained = v.gain, company = v.spread;
    plot.value_label = gained ? "bits gained" : company ? "−log2 of relative rms of o (bits)" : "bits kept";
    for (const PrecisionPoint* p : panel.points) {
      const std::string x = axis(*p, v.x);
      if (plot.dots && x == "none") continue;
      if (!x.empty() && std::find(plot.categories.begin(), plot.categories.end(), x) == plot.categories.end()) plot.categories.push_back(x);
    }
    if (plot.dots) rank(v, panel);
    else if (std::all_of(plot.categories.begin(), plot.categories.end(), [](const std::string& c) { return c.find_first_not_of("0123456789.e-") == std::string::npos && c.find("..") == std::string::npos; }))
      std::stable_sort(plot.categories.begin(), plot.categories.end(), [](const std::string& a, const std::string& b) { return std::strtod(a.c_str(), nullptr) < std::strtod(b.c_str(), nullptr); });
    std::size_t left_out = 0;
    const auto put = [&](const std::string& name, const std::string& like, const std::string& x, const Bits& b) {
      const auto at = std::find(plot.categories.begin(), plot.categories.end(), x);
      if (at == plot.categories.end()) return;
      auto series = std::find_if(plot.series.begin(), plot.series.end(), [&](const PlotSeries& s) { return s.name == name; });
      if (series == plot.series.end()) series = plot.series.insert(plot.series.end(), PlotSeries{name, !like.empty(), like, {}});
      if (!std::isfinite(b.mean) || !std::isfinite(b.low) || !std::isfinite(b.high) || b.mean < 0) {
        ++left_out;
        return;
      }
      series->points.push_back({static_cast<double>(at - plot.categories.begin()), b.mean, std::max(0.0, b.low), b.high});
    };
    for (const PrecisionPoint* p : panel.points) {
      std::string name;
      for (const std::string& s : v.series) name += (name.empty() ? "" : ", ") + axis(*p, s);
      std::string model;
      if (const auto label = panel.labels.find(p->contract); label != panel.labels.end()) {
        name = p->kernel.empty() ? label->second : without_group(p->kernel) + " measured";
        if (!p->kernel.empty()) model = label->second;
      }
      const std::string x = axis(*p, v.x);
      if (gained) {
        const PrecisionPoint* base = nullptr;
        for (const PrecisionPoint* q : panel.points)
          if (axis(*q, "point") == "none" && axis(*q, "contract") == axis(*p, "contract")) base = q;
        if (!base || base == p) continue;
        Bits b{bits_kept(std::max(rms(p->o_rms), rms(p->ht_rms))) - bits_kept(std::max(rms(base->o_rms), rms(base->ht_rms))), 1e300, -1e300};
        for (std::size_t d = 0; d < std::min(p->o_rms.size(), base->o_rms.size()); ++d) {
          const double gain = bits_kept(std::max(p->o_rms[d], p->ht_rms[d])) - bits_kept(std::max(base->o_rms[d], base->ht_rms[d]));
          b.low = std::min(b.low, gain);
          b.high = std::max(b.high, gain);
        }
        b.mean = std::max(0.0, b.mean);
        put(name, "", x, b);
      } else if (company) {
        put("measured error", "", x, range_of(p->o_rms, {}));
        put("sigma", "", x, range_of(p->o_sigma, {}));
        put("bound", "", x, range_of(p->o_bound, {}));
      } else {
        put(name, model, x, range_of(p->o_rms, p->ht_rms));
      }
    }
    for (PlotSeries& s : plot.series) {
      std::stable_sort(s.points.begin(), s.points.end(), [](const PlotPoint& a, const PlotPoint& b) { return a.at < b.at; });
      if (s.points.empty()) continue;
      const PlotPoint &first = s.points.front(), &last = s.points.back();
      plot.description += fmt::format("{}: {:.1f} bits at {}, {:.1f} at {}. ", s.name, first.value, plot.categories[static_cast<std::size_t>(first.at)], last.value, plot.categories[static_cast<std::size_t>(last.at)]);
    }
    panel.caption = (panel.caption.empty() ? "" : panel.caption + ". ") + (plot.dots ? "" : "Over " + plot.category_label + ". ") + "Bars: range over draws.";
    if (left_out) panel.caption += fmt::format(" {} below 0 bits or not finite: see the table.", left_out);
  }

  // Names down the side: what costs most, or gains most, first.
  static void rank(const PrecisionStudy& v, Panel& panel) {
    std::map<std::string, double> key;
    for (const PrecisionPoint* p : panel.points) {
      const std::string format = axis(*p, "format");
      if (!v.gain && format != "bf16" && !format.empty()) continue;
      const double bits = bits_kept(std::max(rms(p->o_rms), rms(p->ht_rms)));
      double& k = key.emplace(axis(*p, "point"), v.gain ? 0 : bits).first->second;
      if (v.gain) {
        for (const PrecisionPoint* q : panel.points)
          if (axis(*q, "point") == "none" && axis(*q, "contract") == axis(*p, "contract")) k = std::min(k, bits_kept(std::max(rms(q->o_rms), rms(q->ht_rms))) - bits);
      } else {
        k = std::min(k, bits);
      }
    }
    std::stable_sort(panel.plot.categories.begin(), panel.plot.categories.end(), [&](const std::string& a, const std::string& b) { return key[a] < key[b]; });
  }

  void write_numbers(const Panel& panel) const {
    std::vector<std::string> names;
    for (const PrecisionPoint* p : panel.points)
      for (const auto& [key, value] : p->axes)
        if (std::find(names.begin(), names.end(), key) == names.end()) names.push_back(key);
    const auto cell = [](const std::string& text) {
      std::string s = "\"";
      for (const char c : printable(text)) s += c == '"' ? std::string("\"\"") : std::string(1, c);
      return s + "\"";
    };
    std::string csv;
    for (const std::string& n : names) csv += n + ",";
    csv += "kernel,bits_o,bits_ht,o_rms,ht_rms,o_sigma,o_bound,cost,inputs,command\n";
    Json list = Json::array();
    for (const PrecisionPoint* p : panel.points) {
      Json j = Json::object();
      for (const std::string& n : names) {
        csv += cell(axis(*p, n)) + ",";
        j[n] = axis(*p, n);
      }
      csv += cell(p->kernel);
      j["kernel"] = p->kernel;
      const std::pair<const char*, double> values[] = {{"bits_o", bits_kept(rms(p->o_rms))}, {"bits_ht", bits_kept(rms(p->ht_rms))}, {"o_rms", rms(p->o_rms)}, {"ht_rms", rms(p->ht_rms)},
                                                       {"o_sigma", rms(p->o_sigma)}, {"o_bound", rms(p->o_bound)}, {"cost", p->cost}};
      for (const auto& [name, x] : values) {
        const bool given = std::string_view(name) != "o_sigma" && std::string_view(name) != "o_bound" ? true : !p->o_sigma.empty();
        csv += "," + (given ? fmt::format("{:.9g}", x) : "");
        if (given) j[name] = number(x);
      }
      csv += "," + cell(p->inputs) + "," + cell(point_command(*p)) + "\n";
      j["inputs"] = p->inputs;
      j["command"] = point_command(*p);
      list.push_back(std::move(j));
    }
    write_file((base_ / (panel.id + ".csv")).string(), csv);
    write_file((base_ / (panel.id + ".json")).string(), list.dump(1, ' ', false, Json::error_handler_t::replace) + "\n");
  }

  std::filesystem::path base_;
  const std::vector<PrecisionPoint>& points_;
  const std::vector<PrecisionStudy>& studies_;
  const PrecisionCommands& commands_;
  int plots_ = 0;
};

}  // namespace

std::string write_precision_pages(const std::string& dir, const std::vector<PrecisionPoint>& points, const std::vector<PrecisionStudy>& studies, const PrecisionCommands& commands) {
  std::error_code code;
  std::filesystem::create_directories(dir, code);
  if (code) throw std::runtime_error("cannot create " + dir + ": " + code.message());
  return Page(dir, points, studies, commands).write();
}

}  // namespace gdn
