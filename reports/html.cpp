// The page: one self-contained index.html (styles, plot and script inside; nothing is loaded), readable without
// script, on a phone, and in a dark or a light room. Beside it the records and the Markdown summary.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <map>
#include <set>

#include "reports/file.h"
#include "reports/text.h"

namespace gdn {
namespace {

using namespace reports;

// --s1 ... --s8: colours of series, told apart by people who do not see red or green (after Okabe and Ito, darker or lighter for the ground).
constexpr const char* kColours = R"css(
:root{color-scheme:light dark;--bg:#fbfbf9;--fg:#1b1c1e;--dim:#5d6168;--line:#dcdcd6;--card:#fff;--pass:#1a7f4b;--fail:#b3261e;--warn:#8a5a00;--passbg:#e3f3ea;--failbg:#fbe4e2;--warnbg:#fbf0d9;--code:#f3f3ef;--dot:#2a6fb0;--band:#f1f1ec;--s1:#0072b2;--s2:#d55e00;--s3:#00855f;--s4:#a6447f;--s5:#9a6a00;--s6:#2b8cc4;--s7:#7d8085;--s8:#1b1c1e}
@media(prefers-color-scheme:dark){:root{--bg:#16181b;--fg:#e6e6e3;--dim:#a0a4ab;--line:#33373d;--card:#1d2024;--pass:#66cf98;--fail:#ff8f86;--warn:#e8b95a;--passbg:#173526;--failbg:#43201e;--warnbg:#3b2f15;--code:#24282d;--dot:#7bb6ee;--band:#1b1e22;--s1:#62b0ea;--s2:#ff8f4d;--s3:#3fd0a0;--s4:#e79cc6;--s5:#e6b43c;--s6:#a5dbff;--s7:#9aa0a6;--s8:#f2f2f0}}
@media print{:root{color-scheme:light;--bg:#fff;--fg:#000;--dim:#444;--line:#ccc;--card:#fff;--band:#f4f4f4;--code:#f6f6f6;--s1:#0072b2;--s2:#d55e00;--s3:#00855f;--s4:#a6447f;--s5:#9a6a00;--s6:#2b8cc4;--s7:#7d8085;--s8:#1b1c1e}}
)css";

constexpr const char* kStyle = R"css(
*{box-sizing:border-box}
body{margin:0;background:var(--bg);color:var(--fg);font:16px/1.5 system-ui,-apple-system,"Segoe UI",sans-serif}
main{max-width:72rem;margin:0 auto;padding:1.25rem 1rem 4rem}
h1{font-size:1.5rem;line-height:1.25;margin:.2rem 0 1rem}h2{font-size:1.15rem;margin:2.4rem 0 .6rem}h3{font-size:1rem;margin:1.2rem 0 .4rem}
p{margin:.5rem 0;max-width:46rem}.dim{color:var(--dim)}
.banner{border-left:.4rem solid var(--pass);background:var(--passbg);padding:.7rem 1rem;border-radius:.3rem;font-size:1.1rem;font-weight:600}
.banner.fail{border-color:var(--fail);background:var(--failbg)}.banner.warn{border-color:var(--warn);background:var(--warnbg)}
.tiles{display:flex;flex-wrap:wrap;gap:.6rem;margin:1rem 0}.tile{background:var(--card);border:1px solid var(--line);border-radius:.3rem;padding:.45rem .8rem;min-width:7rem}
.tile b{display:block;font-size:1.25rem;font-variant-numeric:tabular-nums}.tile span{color:var(--dim);font-size:.85rem}
.scroll{overflow-x:auto;border:1px solid var(--line);border-radius:.3rem;background:var(--card)}
table{border-collapse:collapse;font-size:.88rem;width:100%}th,td{padding:.3rem .6rem;text-align:left;border-bottom:1px solid var(--line);vertical-align:top}
thead th{white-space:nowrap;background:var(--band)}tbody tr:last-child>*{border-bottom:0}
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}td.id{font-family:ui-monospace,SFMono-Regular,Menlo,monospace;font-size:.8rem;overflow-wrap:anywhere;min-width:15rem}
.pass{color:var(--pass)}.fail{color:var(--fail);font-weight:600}.warn{color:var(--warn)}td.cfail{background:var(--failbg)}td.cpass{background:var(--passbg)}
th button{all:unset;cursor:pointer}th button:focus-visible{outline:2px solid var(--dot)}th[aria-sort=ascending] button::after{content:" \25b2"}th[aria-sort=descending] button::after{content:" \25bc"}
pre{background:var(--code);border:1px solid var(--line);border-radius:.3rem;padding:.7rem .8rem;white-space:pre-wrap;overflow-wrap:anywhere;font:.8rem/1.45 ui-monospace,SFMono-Regular,Menlo,monospace;margin:.4rem 0}
code{font-family:ui-monospace,SFMono-Regular,Menlo,monospace;font-size:.88em;overflow-wrap:anywhere}
details{border:1px solid var(--line);border-radius:.3rem;background:var(--card);margin:.5rem 0;padding:.4rem .8rem}summary{cursor:pointer;overflow-wrap:anywhere}
a{color:var(--dot)}dl{display:grid;grid-template-columns:max-content 1fr;gap:.15rem 1rem;font-size:.92rem;margin:.6rem 0}dt{color:var(--dim)}dd{margin:0;overflow-wrap:anywhere}
dl.block dd{font:.82rem/1.5 ui-monospace,SFMono-Regular,Menlo,monospace;white-space:pre-wrap}
@media(max-width:40rem){dl{grid-template-columns:minmax(5rem,max-content) 1fr;gap:.15rem .6rem}dl.words{grid-template-columns:1fr;gap:0}dl.words dd{margin-bottom:.5rem}}
thead th:first-child,tbody th{position:sticky;left:0;background:var(--card)}thead th:first-child{background:var(--band)}
svg{display:block;min-width:42rem;width:100%;height:auto}svg text{fill:var(--fg);font:12px system-ui,sans-serif}svg .dim{fill:var(--dim)}svg .grid{stroke:var(--line)}svg .limit{stroke:var(--fail);stroke-width:1.5;stroke-dasharray:5 3}
figure{margin:0;background:var(--card);border:1px solid var(--line);border-radius:.3rem;padding:.4rem;break-inside:avoid}figcaption{color:var(--dim);font-size:.85rem;padding:.2rem .3rem}
.plots{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,29rem),1fr));gap:.8rem;margin:.8rem 0}figure svg{min-width:0;max-width:44rem}figure.plot svg text{font:inherit}figure.map{align-self:start}
caption{text-align:left;padding:.3rem .6rem;color:var(--dim)}ul.findings li{margin:.25rem 0;max-width:60rem;overflow-wrap:anywhere}.plots+h3{margin-top:1.6rem}td.w{overflow-wrap:anywhere;min-width:17rem}details.all .scroll{max-height:40rem;overflow:auto;margin:.4rem 0}
@media print{main{max-width:none;padding:0}.scroll{overflow:visible;max-height:none}details:not([open]){display:none}table{font-size:.7rem}a{color:inherit;text-decoration:none}}
svg .cell{fill:var(--s1)}svg .over{fill:var(--s2)}svg .cross{stroke:var(--bg);stroke-width:1.3;fill:none}svg .frame{fill:none;stroke:var(--line)}
svg .band{fill:var(--band)}svg .ok{fill:var(--dot);fill-opacity:.75}svg .bad{stroke:var(--fail);stroke-width:2.2;fill:none}
)css";

// Sorting by a click on a column head. Without script the tables are simply in the order of the run.
constexpr const char* kScript = R"js(
document.querySelectorAll('table.sortable').forEach(function(table){
  table.querySelectorAll('thead th').forEach(function(th,column){
    var button=document.createElement('button');button.type='button';button.textContent=th.textContent;th.textContent='';th.appendChild(button);
    button.addEventListener('click',function(){
      var up=th.getAttribute('aria-sort')!=='ascending',body=table.tBodies[0],rows=Array.prototype.slice.call(body.rows);
      var key=function(row){var c=row.cells[column],k=c.getAttribute('data-k'),x=parseFloat(k===null?c.textContent:k);return k!==null||c.classList.contains('n')?(isNaN(x)?-1e308:x):c.textContent};
      rows.sort(function(a,b){var x=key(a),y=key(b),d=typeof x==='number'?x-y:x.localeCompare(y,undefined,{numeric:true});return up?d:-d});
      table.querySelectorAll('th').forEach(function(h){h.removeAttribute('aria-sort')});
      th.setAttribute('aria-sort',up?'ascending':'descending');rows.forEach(function(r){body.appendChild(r)});
    });
  });
});
)js";

std::string esc(const std::string& s) { return xml_escape(printable(s)); }

const char* verdict_class(const Record& r) { return r.verdict == "PASSED" ? "pass" : is_failure(r) ? "fail" : "warn"; }

// Sort key of a ratio: nan above everything, none below.
std::string sort_key(double x) {
  if (std::isnan(x)) return "1e308";
  return fmt::format("{:.6g}", std::clamp(x, -1e307, 1e307));
}

bool has_ratio(const Record& r) { return r.metrics.count("max_ratio") || !std::isnan(max_ratio(r)); }

std::string share(long long part, long long whole) {
  if (whole == 0) return "-";
  if (part == 0) return "0%";
  return fmt::format("{:.2g}%", 100.0 * static_cast<double>(part) / static_cast<double>(whole));
}

// Largest error/bound of every case, a row per family, logarithmic.
std::string plot(const std::vector<const Record*>& records) {
  std::vector<std::string> rows;
  std::map<std::string, std::vector<const Record*>> by_family;
  double least = 1e-2, most = 10;
  for (const Record* r : records) {
    if (!has_ratio(*r)) continue;
    auto& list = by_family[r->family];
    if (list.empty()) rows.push_back(r->family);
    list.push_back(r);
    const double x = max_ratio(*r);
    if (std::isfinite(x) && x > 0) {
      least = std::min(least, x);
      most = std::max(most, x);
    }
  }
  if (rows.empty()) return "<p class=\"dim\">No case has a measured error.</p>\n";
  const int lo = std::max(-12, static_cast<int>(std::floor(std::log10(least)))), hi = std::min(12, static_cast<int>(std::ceil(std::log10(most))));
  const double left = 190, zero = left + 22, start = left + 54, end = 775, beyond = 822, row_height = 22, top = 26;
  const double bottom = top + row_height * static_cast<double>(rows.size());
  const auto x_of = [&](double ratio) {
    if (std::isnan(ratio) || ratio > std::pow(10.0, hi)) return beyond;
    if (ratio <= 0) return zero;
    return start + (end - start) * std::clamp((std::log10(ratio) - lo) / (hi - lo), 0.0, 1.0);
  };
  std::string s = fmt::format("<svg viewBox=\"0 0 850 {:.0f}\" role=\"img\" aria-label=\"largest error divided by bound, for every case\">\n", bottom + 44);
  for (std::size_t i = 0; i < rows.size(); i += 2)
    s += fmt::format("<rect class=\"band\" x=\"0\" y=\"{:.0f}\" width=\"850\" height=\"{:.0f}\"/>\n", top + row_height * static_cast<double>(i), row_height);
  const int step = hi - lo > 10 ? 2 : 1;
  for (int d = lo; d <= hi; ++d) {
    const double x = x_of(std::pow(10.0, d));
    if (d != 0) s += fmt::format("<line class=\"grid\" x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1:.0f}\" y2=\"{2:.0f}\"/>", x, top, bottom);
    if ((d - lo) % step == 0 || d == 0)
      s += fmt::format("<text class=\"dim\" x=\"{:.1f}\" y=\"{:.0f}\" text-anchor=\"middle\">{}</text>\n", x, bottom + 16, d == 0 ? "1" : d == 1 ? "10" : fmt::format("1e{}", d));
  }
  s += fmt::format("<text class=\"dim\" x=\"{:.0f}\" y=\"{:.0f}\" text-anchor=\"middle\">0</text>\n", zero, bottom + 16);
  s += fmt::format("<text class=\"dim\" x=\"{:.0f}\" y=\"{:.0f}\" text-anchor=\"middle\">beyond</text>\n", beyond, bottom + 16);
  const double one = x_of(1);
  s += fmt::format("<line class=\"limit\" x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1:.0f}\" y2=\"{2:.0f}\"/><text x=\"{0:.1f}\" y=\"16\" text-anchor=\"middle\">limit = 1</text>\n", one, top - 4, bottom);
  s += fmt::format("<text x=\"{:.0f}\" y=\"{:.0f}\" text-anchor=\"middle\">largest |error| / bound of each case (no unit, logarithmic)</text>\n", (start + end) / 2, bottom + 36);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const double y = top + row_height * (static_cast<double>(i) + 0.5);
    std::string label = clean(rows[i]);
    if (label.size() > 28) {                       // cut between characters
      std::size_t cut = 27;
      while (cut > 0 && (label[cut] & 0xc0) == 0x80) --cut;
      label = label.substr(0, cut) + "…";
    }
    s += fmt::format("<text x=\"{:.0f}\" y=\"{:.1f}\" text-anchor=\"end\">{}</text>\n", left, y + 4, esc(label));
    for (const Record* r : by_family[rows[i]]) {
      const double ratio = max_ratio(*r), x = x_of(ratio);
      const std::string title = fmt::format("<title>{}: {} ({})</title>", esc(r->case_id), short_number(ratio), esc(r->verdict));
      if (is_failure(*r))
        s += fmt::format("<path class=\"bad\" d=\"M{:.1f} {:.1f}l8 8m0 -8l-8 8\">{}</path>\n", x - 4, y - 4, title);
      else
        s += fmt::format("<circle class=\"ok\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3.5\">{}</circle>\n", x, y, title);
    }
  }
  return "<div class=\"scroll\">" + s + "</svg></div>\n";
}

// Which check decided what in which family.
std::string matrix(const std::vector<const Record*>& records) {
  struct Cell { long long passed = 0, failed = 0, mistrusted = 0, not_applicable = 0; };
  std::vector<std::string> families, check_names;
  std::map<std::pair<std::string, std::string>, Cell> cells;
  for (const Record* r : records) {
    if (std::find(families.begin(), families.end(), r->family) == families.end()) families.push_back(r->family);
    for (const RecordCheck& c : r->checks) {
      if (std::find(check_names.begin(), check_names.end(), c.check) == check_names.end()) check_names.push_back(c.check);
      Cell& cell = cells[{r->family, c.check}];
      ++(c.status == "PASSED" ? cell.passed : c.status == "FAILED" ? cell.failed : c.status == "MISTRUSTED" ? cell.mistrusted : cell.not_applicable);
    }
  }
  if (check_names.empty()) return "<p class=\"dim\">No check ran.</p>\n";
  std::string s = "<div class=\"scroll\"><table><thead><tr><th>family</th>";
  for (const std::string& c : check_names) s += "<th class=\"n\">" + esc(c) + "</th>";
  s += "</tr></thead><tbody>\n";
  for (const std::string& f : families) {
    s += "<tr><th>" + esc(f) + "</th>";
    for (const std::string& c : check_names) {
      const Cell& x = cells[{f, c}];
      if (x.failed || x.mistrusted)
        s += fmt::format("<td class=\"n cfail\"><span class=\"fail\">✗ {}</span> of {}</td>", x.failed + x.mistrusted, x.failed + x.mistrusted + x.passed);
      else if (x.passed)
        s += fmt::format("<td class=\"n cpass\"><span class=\"pass\">✓</span> {}</td>", x.passed);
      else
        s += "<td class=\"n dim\">–</td>";
    }
    s += "</tr>\n";
  }
  return s + "</tbody></table></div>\n";
}

// A map of error/bound: one square a cell, darker the nearer to the limit, and beyond it another colour and a cross.
std::string heat_map(const Record& r, const RecordMap& m) {
  const double cell = std::clamp(std::min(440.0 / static_cast<double>(m.columns), 240.0 / static_cast<double>(m.rows)), 4.0, 22.0), left = 40, top = 8;
  const double width = left + cell * static_cast<double>(m.columns) + 6, bottom = top + cell * static_cast<double>(m.rows);
  int worst = -1;
  std::string cells;
  for (long long i = 0; i < m.rows; ++i)
    for (long long j = 0; j < m.columns; ++j) {
      const int level = error_level_of(m.levels[static_cast<std::size_t>(i * m.columns + j)]);
      worst = std::max(worst, level);
      const double x = left + cell * static_cast<double>(j), y = top + cell * static_cast<double>(i);
      if (level < 0) continue;
      if (level > kErrorLevelOfLimit) {
        cells += fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" class=\"over\"/><path class=\"cross\" d=\"M{:.1f} {:.1f}l{:.1f} {:.1f}m0 -{:.1f}l-{:.1f} {:.1f}\"/>\n", x, y, cell, cell, x + cell / 4, y + cell / 4, cell / 2, cell / 2,
                             cell / 2, cell / 2, cell / 2);
      } else {
        // 2^-10 of the limit and less: nothing to see.
        const double shade = level == 0 ? 0 : std::clamp((level - (kErrorLevelOfLimit - 20)) / 20.0, 0.03, 1.0);
        cells += fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" class=\"cell\" fill-opacity=\"{:.2f}\"/>\n", x, y, cell, cell, shade);
      }
    }
  const std::string what = fmt::format("{} over {} and {} in {}: {}", m.tensor, m.row_label, m.column_label, r.case_id,
                                       worst < 0 ? "nothing judged" : worst > kErrorLevelOfLimit ? "beyond the limit in some cells" : worst == 0 ? "no error" : fmt::format("at most {:.2g} of the limit", std::exp2((worst - kErrorLevelOfLimit) / 2.0)));
  return fmt::format("<svg viewBox=\"0 0 {:.0f} {:.0f}\" role=\"img\" aria-label=\"{}\" style=\"max-width:{:.0f}px\">\n", std::max(width, 170.0), bottom + 40, esc(what), std::max(width, 170.0) * 1.3) +
         fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" class=\"frame\"/>", left, top, cell * static_cast<double>(m.columns), bottom - top) + cells +
         fmt::format("<text class=\"dim\" x=\"{:.1f}\" y=\"{:.1f}\">0</text><text class=\"dim\" x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"end\">{}</text><text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{} of {}</text>", left, bottom + 15,
                     left + cell * static_cast<double>(m.columns), bottom + 15, m.column_count - 1, left + cell * static_cast<double>(m.columns) / 2, bottom + 32, esc(m.column_label), esc(m.tensor)) +
         fmt::format("<text class=\"dim\" x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"end\">0</text>", left - 4, top + 11) +
         (bottom - top > 26 ? fmt::format("<text class=\"dim\" x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"end\">{}</text>", left - 4, bottom - 1, m.row_count - 1) : "") +
         fmt::format("<text x=\"12\" y=\"{:.1f}\" text-anchor=\"middle\" transform=\"rotate(-90 12 {:.1f})\">{}</text></svg>\n", (top + bottom) / 2, (top + bottom) / 2, esc(m.row_label));
}

// The cases that come nearest to the limit, failing ones first: where in their tensors.
std::string heat_maps(const std::vector<const Record*>& records) {
  constexpr std::size_t kShown = 4;
  std::vector<const Record*> list;
  for (const Record* r : records)
    for (const RecordCheck& c : r->checks)
      if (!c.maps.empty()) {
        list.push_back(r);
        break;
      }
  std::stable_sort(list.begin(), list.end(), [](const Record* a, const Record* b) { return is_failure(*a) != is_failure(*b) ? is_failure(*a) : worse(max_ratio(*a), max_ratio(*b)); });
  if (list.empty()) return {};
  std::string s = "<h3>Where the error lies</h3>\n<p class=\"dim\">Greatest error/bound in each cell, in the cases that come nearest to the limit: the darker the nearer (a step is a factor of 1.4, the lightest a thousandth and less); crosses are beyond it.</p>\n<div class=\"plots\">\n";
  for (std::size_t i = 0; i < std::min(list.size(), kShown); ++i)
    for (const RecordCheck& c : list[i]->checks)
      for (const RecordMap& m : c.maps)
        s += "<figure class=\"map\">" + heat_map(*list[i], m) + "<figcaption>" + esc(m.tensor) + " of <code>" + esc(list[i]->case_id) + "</code>, largest error/bound " + short_number(max_ratio(*list[i])) + "</figcaption></figure>\n";
  return s + "</div>\n";
}

// Family by family, the element that comes nearest to its limit.
std::string nearest_elements(const std::vector<const Record*>& records) {
  std::vector<std::pair<std::string, std::pair<const Record*, const RecordElement*>>> rows;
  for (const Record* r : records)
    for (const RecordCheck& c : r->checks) {
      if (c.check != "bound" || !c.worst) continue;
      auto at = std::find_if(rows.begin(), rows.end(), [&](const auto& x) { return x.first == r->family; });
      if (at == rows.end()) rows.emplace_back(r->family, std::pair{r, &*c.worst});
      else if (worse(c.worst->ratio, at->second.second->ratio)) at->second = {r, &*c.worst};
    }
  if (rows.empty()) return {};
  std::string s = "<h3>The element nearest to its limit, family by family</h3>\n<div class=\"scroll\"><table class=\"sortable\"><thead><tr><th>family</th><th class=\"n\">error/bound</th><th class=\"n\">error</th><th class=\"n\">ulp</th>"
                  "<th class=\"n\">bound</th><th>got</th><th>exact</th><th>where</th><th>case</th></tr></thead><tbody>\n";
  for (const auto& [family, found] : rows) {
    const RecordElement& e = *found.second;
    s += fmt::format("<tr><th>{}</th><td class=\"n{}\" data-k=\"{}\">{}</td>", esc(family), e.ratio > 1 ? " fail" : "", sort_key(e.ratio), short_number(e.ratio));
    for (const double x : {e.error, e.error_ulp, e.bound}) s += fmt::format("<td class=\"n\" data-k=\"{}\">{}</td>", sort_key(std::fabs(x)), short_number(x));
    s += "<td>" + esc(e.got) + "</td><td>" + esc(e.exact) + "</td><td>" + esc(e.tensor + (e.run.empty() || e.run == "base" ? "" : " of run " + e.run) + ", " + e.place) + "</td><td class=\"id\">" + esc(found.first->case_id) + "</td></tr>\n";
  }
  return s + "</tbody></table></div>\n";
}

std::string case_rows(const std::vector<const Record*>& records, const std::map<const Record*, std::size_t>& failure_number) {
  std::string s = "<div class=\"scroll\"><table class=\"sortable\"><thead><tr><th>case</th><th>verdict</th><th class=\"n\">max error/bound</th>"
                  "<th class=\"n\">elements judged</th><th class=\"n\">vacuous</th><th class=\"n\">kernel s</th><th class=\"n\">checks s</th><th>remark</th></tr></thead><tbody>\n";
  for (const Record* r : records) {
    Tally t;
    t.add(*r);
    const auto failure = failure_number.find(r);
    const std::string verdict = failure == failure_number.end() ? esc(r->verdict) : fmt::format("<a class=\"fail\" href=\"#failure{}\">{}</a>", failure->second, esc(r->verdict));
    const RecordCheck* c = failing_check(*r);
    const std::string remark = !r->reason.empty() ? r->reason : c ? c->check + ": " + c->message : "";
    s += fmt::format("<tr><td class=\"id\">{}</td><td class=\"{}\">{}</td><td class=\"n\" data-k=\"{}\">{}</td><td class=\"n\" data-k=\"{}\">{}</td>"
                     "<td class=\"n\" data-k=\"{:.6g}\">{}</td><td class=\"n\" data-k=\"{}\">{}</td><td class=\"n\" data-k=\"{}\">{}</td><td>{}</td></tr>\n",
                     esc(r->case_id), verdict_class(*r), verdict, has_ratio(*r) ? sort_key(max_ratio(*r)) : "-1", has_ratio(*r) ? short_number(max_ratio(*r)) : "-",
                     t.judged, t.judged, t.judged ? static_cast<double>(t.vacuous) / static_cast<double>(t.judged) : 0.0, share(t.vacuous, t.judged),
                     sort_key(r->kernel_seconds), short_number(r->kernel_seconds), sort_key(r->check_seconds), short_number(r->check_seconds), esc(remark));
  }
  return s + "</tbody></table></div>\n";
}

std::string kernel_facts(const Record& r) {
  std::string s = "<dl>";
  const auto fact = [&](const char* key, const std::string& value) {
    if (!value.empty()) s += fmt::format("<dt>{}</dt><dd>{}</dd>", key, esc(value));
  };
  fact("kernel", r.kernel);
  fact("version", r.kernel_version);
  fact("precision contract", r.contract);
  fact("convention", r.convention.empty() ? "canonical" : r.convention);
  fact("device", r.device);
  fact("module", r.module);
  std::string packages;
  for (const auto& [k, v] : r.packages) packages += (packages.empty() ? "" : ", ") + k + " " + v;
  fact("packages", packages);
  fact("level", r.level);
  fact("accuracy standard", r.edition);
  fact("suite", r.suite_version);
  return s + "</dl>\n";
}

// The gate that these records came from, as a line for a shell.
std::string gate_line(const Record& r) {
  std::string s = "gdn-cts verify " + (r.how.empty() ? "--kernel " + r.kernel : r.how);
  if (!r.level.empty()) s += " --level " + r.level;
  return s + fmt::format(" --seed {}", r.seed);
}

}  // namespace

std::string reports::html_page(std::string_view title, std::string_view body) {
  return "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n"
         "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:\">\n<title>" +
         esc(std::string(title)) + "</title>\n<style>" + kColours + kStyle + "</style></head><body><main>\n" + std::string(body) + "</main><script>" + kScript + "</script></body></html>\n";
}

std::string reports::plot_colours() { return kColours; }

void write_pages(const std::string& dir, const std::vector<Record>& records, const GateVerdict* gate) {
  std::error_code code;
  std::filesystem::create_directories(dir, code);
  if (code) throw std::runtime_error("cannot create " + dir + ": " + code.message());

  std::vector<std::string> kernels;
  std::map<std::string, std::vector<const Record*>> by_kernel;
  std::map<const Record*, std::size_t> failure_number;
  for (const Record& r : records) {
    auto& list = by_kernel[r.kernel];
    if (list.empty()) kernels.push_back(r.kernel);
    list.push_back(&r);
    if (is_failure(r)) failure_number.emplace(&r, failure_number.size() + 1);
  }
  const Tally sum = total(records);
  const std::string head = headline(records, gate);

  std::string s, names;
  for (std::size_t i = 0; i < kernels.size() && i < 4; ++i) names += (i ? ", " : "") + kernels[i];
  if (kernels.size() > 4) names += fmt::format(" and {} more", kernels.size() - 4);
  s += "<p class=\"dim\">GDN-CTS, conformance of Gated DeltaNet kernels</p>\n<h1>" + esc(names.empty() ? "no kernel" : names) + "</h1>\n";
  s += fmt::format("<div class=\"banner{}\">{}</div>\n", (gate ? !gate->passed : sum.bad() > 0) ? " fail" : sum.passed ? "" : " warn", esc(head));
  if (gate) {
    const auto others = other_objections(records, *gate);
    if (!others.empty()) s += "<ul>";
    for (const std::string& line : others) s += "<li>" + esc(line) + "</li>\n";
    if (!others.empty()) s += "</ul>\n";
  }
  if (sum.waived) {
    s += "<p>Waived:</p><ul>";
    for (const Record& r : records)
      if (!r.waived.empty()) s += "<li><code>" + esc(r.case_id) + "</code> is " + esc(r.verdict) + ": " + esc(r.waived) + "</li>\n";
    s += "</ul>\n";
  }

  for (const std::string& line : loose_contracts(records)) s += "<p class=\"warn\">" + esc(line) + "</p>\n";
  s += "<div class=\"tiles\">";
  const auto tile = [&](const std::string& value, const char* label) { s += fmt::format("<div class=\"tile\"><b>{}</b><span>{}</span></div>", esc(value), label); };
  tile(std::to_string(sum.cases), "cases");
  tile(std::to_string(sum.passed), "passed");
  tile(std::to_string(sum.bad()), "not passed");
  tile(std::to_string(sum.not_supported + sum.skipped), "not supported");
  if (sum.waived) tile(std::to_string(sum.waived), "waived");
  tile(fmt::format("{:.3g}", static_cast<double>(sum.judged)), "element judgements");
  tile(share(sum.vacuous, sum.judged), "of them vacuous");
  tile(sum.has_ratio ? short_number(sum.max_ratio) : "-", "max error/bound");
  tile(fmt::format("{:.3g} s", sum.seconds), "run time");
  s += "</div>\n";

  if (kernels.size() > 1) {
    s += "<h2>Kernels</h2>\n<div class=\"scroll\"><table class=\"sortable\"><thead><tr><th>kernel</th><th>contract</th><th class=\"n\">passed</th>"
         "<th class=\"n\">not passed</th><th class=\"n\">not supported</th><th class=\"n\">max error/bound</th></tr></thead><tbody>\n";
    for (std::size_t k = 0; k < kernels.size(); ++k) {
      Tally t;
      for (const Record* r : by_kernel[kernels[k]]) t.add(*r);
      s += fmt::format("<tr><td><a href=\"#kernel{}\">{}</a></td><td>{}</td><td class=\"n\">{}</td><td class=\"n {}\">{}</td><td class=\"n\">{}</td>"
                       "<td class=\"n\" data-k=\"{}\">{}</td></tr>\n", k, esc(kernels[k]), esc(by_kernel[kernels[k]][0]->contract), t.passed, t.bad() ? "fail" : "pass",
                       t.bad(), t.not_supported + t.skipped, t.has_ratio ? sort_key(t.max_ratio) : "-1", t.has_ratio ? short_number(t.max_ratio) : "-");
    }
    s += "</tbody></table></div>\n";
  }
  for (std::size_t k = 0; k < kernels.size(); ++k) {
    const auto& list = by_kernel[kernels[k]];
    if (kernels.size() > 1) s += fmt::format("<h2 id=\"kernel{}\">{}</h2>\n", k, esc(kernels[k]));
    else s += "<h2>What was tested</h2>\n";
    s += kernel_facts(*list[0]);
    s += "<h3>Verdicts by family and check</h3>\n" + matrix(list);
    s += "<p class=\"dim\">✓ cases passed by the check; ✗ cases failed or mistrusted; – the check does not apply.</p>\n";
    s += "<h3>How close to the limit</h3>\n<p class=\"dim\">Each mark is a case: its largest error, divided by the largest error that a correct kernel with this precision contract can make. "
         "Crosses did not pass. Marks right of 1 fail.</p>\n" + plot(list);
    s += heat_maps(list) + nearest_elements(list);
  }

  s += "<h2 id=\"failures\">Failures</h2>\n";
  constexpr std::size_t shown_blocks = 200;
  if (failure_number.empty()) s += "<p>None.</p>\n";
  for (const Record& r : records) {
    const auto at = failure_number.find(&r);
    if (at == failure_number.end() || at->second > shown_blocks) continue;
    s += fmt::format("<details id=\"failure{}\"{}><summary><span class=\"fail\">{}</span> {}<code>{}</code></summary>\n", at->second,
                     at->second <= 3 ? " open" : "", esc(r.verdict), kernels.size() > 1 ? esc(r.kernel) + " " : "", esc(r.case_id));
    const Block block = explain_failure(r);
    for (const std::string& sentence : block.sentences) s += "<p>" + esc(sentence) + "</p>";
    s += "<dl class=\"block\">";
    for (const auto& [label, value] : block.rows) s += "<dt>" + esc(label) + "</dt><dd>" + esc(value) + "</dd>";
    s += "</dl></details>\n";
  }
  if (failure_number.size() > shown_blocks)
    s += fmt::format("<p>{} more failures are in <a href=\"records.jsonl\">records.jsonl</a>.</p>\n", failure_number.size() - shown_blocks);

  s += "<h2>Cases</h2>\n";
  for (const std::string& k : kernels) {
    if (kernels.size() > 1) s += "<h3>" + esc(k) + "</h3>\n";
    std::map<const Record*, std::size_t> linked;
    for (const auto& [r, n] : failure_number)
      if (n <= shown_blocks) linked.emplace(r, n);
    s += case_rows(by_kernel[k], linked);
  }

  s += "<h2>How to reproduce</h2>\n";
  std::set<std::string> lines;
  for (const std::string& k : kernels) lines.insert(gate_line(*by_kernel[k][0]));
  for (const std::string& l : lines) s += "<pre>" + xml_escape(printable(l)) + "</pre>\n";
  s += "<p>One case alone: add <code>--case 'CASE-ID'</code>. What a case, family or check is: <code>gdn-cts explain NAME</code>. "
       "The same data: <a href=\"records.jsonl\">records.jsonl</a>, <a href=\"summary.md\">summary.md</a>.</p>\n";
  s += "<h2>Words</h2>\n<dl class=\"words\">"
       "<dt>precision contract</dt><dd>what the kernel declares of its arithmetic: format and rounding at each point where a value is stored</dd>"
       "<dt>bound</dt><dd>the largest error that a correct kernel with that contract can make on that element</dd>"
       "<dt>vacuous</dt><dd>the bound is larger than the value itself, so it decides nothing there; other checks must</dd>"
       "<dt>MISTRUSTED</dt><dd>the case could not have seen a fault</dd>"
       "<dt>NOT_SUPPORTED</dt><dd>outside the domain that the kernel declares</dd>"
       "<dt>UNTESTED</dt><dd>claimed by the kernel, but no check decided it</dd></dl>\n";
  const std::filesystem::path base = dir;
  write_jsonl((base / "records.jsonl").string(), records);
  write_file((base / "summary.md").string(), markdown_summary(records, 1000000, gate));
  write_file((base / "index.html").string(), html_page("GDN-CTS: " + (kernels.size() == 1 ? kernels[0] + " " : "") + head, s));
}

}  // namespace gdn
