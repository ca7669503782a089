// Error against precision: the points of a study, what they answer, and the pages that show them.
// A point is one contract carried out, or one kernel measured, on one set of inputs, compared with certified truth; one JSON
// line each (schema: README.md here). Plain strings and numbers only, as in record.h: pages can be made again from the lines.
#pragma once
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace gdn {

inline constexpr int kPrecisionSchemaVersion = 1;

struct PrecisionPoint {
  std::string study;
  std::map<std::string, std::string> axes;         // where on the study's axes: "T" -> "1024", "point" -> "M", "format" -> "bf16"
  std::string kernel;                              // measured; empty: the contract carried out
  std::string how;                                 // option that reaches the kernel
  std::string kernel_version, device;              // of a measured kernel: "cpu", "cuda"
  std::map<std::string, std::string> packages;     // and their versions, of adapters
  std::string contract, inputs;                    // canonical texts
  long long tokens = 0, key_dim = 0, value_dim = 0, chunk = 0;
  double cost = 0;                                 // bits that the contract's stores hold per token and head (contract_cost)
  // One value per draw of the inputs. Errors are relative to the rms of the exact values of that tensor and draw: rms over all
  // elements, and the greatest. inf where an element is not finite.
  std::vector<double> o_rms, ht_rms, o_worst, ht_worst;
  std::vector<double> o_sigma, ht_sigma, o_bound, ht_bound;   // rms of sigma and of the bound, where the study asks for them
  long long non_finite = 0;                        // elements
  double truth = 0;                                // greatest radius of the truth, relative to the rms
  std::string suite_version, edition;
};

std::string to_json_line(const PrecisionPoint& p);
PrecisionPoint parse_precision_point(const std::string& line);        // throws std::runtime_error; refuses a newer schema in one line
std::vector<PrecisionPoint> read_precision_points(const std::string& file);   // names file and line
// What it is the result of: study, axes, kernel and inputs. Two points of one key are the same point.
std::string precision_key(const PrecisionPoint& p);

// A study as the page shows it.
struct PrecisionStudy {
  std::string name, question;                      // "length", "How far does it carry?"
  std::string x;                                   // of the plots: the axis along which they go (`point`: down the side); empty: no plots
  std::vector<std::string> series;                 // a curve for each combination of these axes,
  std::vector<std::string> panels;                 // a plot for each of these
  bool gain = false;                               // shown is what a point gains against point=none
  bool spread = false;                             // shown are error, sigma and bound of o
  std::vector<std::string> contracts{};            // of its axis; others are those of measured kernels. Empty: all
};

namespace reports {

double rms(const std::vector<double>& draws);      // over draws: square root of the mean square
// -log2 of a relative error. 0 error: +inf; not finite: -inf.
double bits_kept(double relative_error);

// error = a n^exponent, fitted to log2 by least squares, draw by draw: y[i][d] is the error of draw d at n[i]. half_width: of the 95 %
// interval of the exponent, from the scatter over draws (Student's t); infinite with one draw. Points that are 0 or
// not finite are left out; fewer than 3: exponent and half_width are nan.
struct PowerLaw { double exponent = 0, half_width = 0, factor = 0; int points = 0, draws = 0; };
PowerLaw fit_power_law(const std::vector<double>& n, const std::vector<std::vector<double>>& y);

struct Answer {
  std::string study;                               // its figures come from this study
  std::string text;                                // one sentence with its numbers
  bool headline = false;                           // what most people ask: a page says these first
};
struct AnswerTable {
  std::string study, name, title, note;
  std::vector<std::string> columns;                // a name that ends in '#' is a column of numbers
  std::vector<std::vector<std::string>> rows;
};
struct Answers {
  std::vector<Answer> findings;
  std::vector<AnswerTable> tables;
};
// Everything that the points at hand answer; questions whose study is not there are left out. All numbers are computed here.
Answers answers(const std::vector<PrecisionPoint>& points, const std::vector<PrecisionStudy>& studies);

}  // namespace reports

// index.html, points.jsonl, summary.md, and for every plot an SVG, a CSV and a JSON file. commands: the command lines that make the points
// given to it. Returns "" or one line saying what is missing (plots, where gnuplot is not installed).
using PrecisionCommands = std::function<std::vector<std::string>(const std::vector<PrecisionPoint>&)>;
std::string write_precision_pages(const std::string& dir, const std::vector<PrecisionPoint>& points, const std::vector<PrecisionStudy>& studies, const PrecisionCommands& commands);
// For people and pull requests: findings and answer tables, as Markdown.
std::string precision_markdown(const std::vector<PrecisionPoint>& points, const std::vector<PrecisionStudy>& studies, const std::vector<std::string>& commands);

}  // namespace gdn
