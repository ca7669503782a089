// Error against precision: a known growth law is recovered, a format that is not the declared one shows, an interrupted run goes
// on with the same bytes, the contracts it calls cheapest do keep their bits, and the points survive the way through JSON.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>

#include "reference/parallel.h"
#include "reference/rng.h"
#include "reports/file.h"
#include "reports/plot.h"
#include "suites/precision.h"
#include "suites/self/catch.h"
#include "suites/simulated.h"

using namespace gdn;
namespace fs = std::filesystem;

namespace {

// Two points in two formats over two lengths, and a search: a second of work.
const std::vector<PrecisionStudySpec>& tiny() {
  static const std::vector<PrecisionStudySpec> all = [] {
    std::vector<PrecisionStudySpec> t(2);
    t[0].view = {"tiny", "Tiny?", "T", {"contract", "point", "format"}, {}};
    t[0].fixed = {{"K", "16"}, {"draws", "2"}};
    t[0].axes = {{"contract", {"fp32-chunk;solve=block_inverse", "bf16-chunk"}, {}}, {"T", {"64", "100"}, {}}, {"point", {"none", "M", "S_carried"}, {}}, {"format", {"tf32", "bf16"}, {}}};
    t[0].measured = true;
    t[1].view = {"cheapest", "Cheapest?", "", {}, {}};
    t[1].fixed = {{"K", "16"}, {"draws", "2"}, {"contract", "fp32-chunk;solve=block_inverse;chunk=16"}};
    t[1].axes = {{"T", {"64"}, {}}, {"point", {"none", "*"}, {}}, {"format", {"tf32", "bf16", "fp16", "fp8_e4m3"}, {}}};
    t[1].search = true;
    return t;
  }();
  return all;
}

std::vector<PrecisionPoint> run_tiny(std::vector<PrecisionPoint> done, std::string& lines, const std::vector<KernelSession*>& kernels = {}) {
  PrecisionOptions o;
  o.table = &tiny();
  o.done = std::move(done);
  o.kernels = kernels;
  o.point = [&](const PrecisionPoint& p) { lines += to_json_line(p) + "\n"; };
  return run_precision(o);
}

const PrecisionPoint& find(const std::vector<PrecisionPoint>& points, const std::map<std::string, std::string>& axes, const std::string& kernel = "") {
  for (const PrecisionPoint& p : points) {
    bool same = p.kernel == kernel;
    for (const auto& [k, v] : axes) same = same && p.axes.count(k) && p.axes.at(k) == v;
    if (same) return p;
  }
  throw std::runtime_error("no such point");
}

double bits(const PrecisionPoint& p) { return reports::bits_kept(reports::rms(p.o_rms)); }

std::string error_of(const std::string& inputs) {
  try {
    parse_precision_inputs(inputs);
  } catch (const std::invalid_argument& e) {
    return e.what();
  }
  return "";
}

}  // namespace

TEST_CASE("the exponent of a known law is recovered with its uncertainty") {
  const std::vector<double> n = {64, 256, 1024, 4096, 16384};
  for (const double exponent : {0.0, 0.5, 1.0, -0.25}) {
    std::vector<std::vector<double>> y;
    const Random noise(7, "law");
    for (std::size_t i = 0; i < n.size(); ++i) {
      y.emplace_back();
      for (std::size_t d = 0; d < 6; ++d) y[i].push_back(3e-4 * std::pow(n[i], exponent) * std::exp2(0.1 * noise.normal(i * 6 + d)));
    }
    const reports::PowerLaw law = reports::fit_power_law(n, y);
    CAPTURE(exponent, law.exponent, law.half_width);
    CHECK(law.points == 5);
    CHECK(law.draws == 6);
    // 0.1 of deviation in log2 on 5 points over 8 octaves: 0.016 a draw, of the mean of six 0.0065.
    CHECK(law.half_width > 0.001);
    CHECK(law.half_width < 0.05);
    CHECK(std::fabs(law.exponent - exponent) < 3 * law.half_width);
    CHECK(std::fabs(std::log2(law.factor / 3e-4)) < 0.3);
  }
  const reports::PowerLaw exact = reports::fit_power_law(n, {{1, 2}, {2, 4}, {4, 8}, {8, 16}, {16, 32}});   // doubles where n is four times as large
  CHECK(std::fabs(exact.exponent - 0.5) < 1e-12);
  CHECK(exact.half_width < 1e-12);
  CHECK(std::isnan(reports::fit_power_law({64, 256}, {{1}, {2}}).exponent));
  const double inf = std::numeric_limits<double>::infinity();
  CHECK(reports::fit_power_law(n, {{1}, {2}, {inf}, {8}, {0}}).points == 3);
  CHECK(std::isinf(reports::fit_power_law(n, {{1}, {2}, {4}, {8}, {16}}).half_width));
}

TEST_CASE("an interrupted run goes on with the same bytes, at any number of threads") {
  std::string whole, again;
  const std::vector<PrecisionPoint> points = run_tiny({}, whole);
  REQUIRE(points.size() > 20);
  {
    const Threads one(1);
    run_tiny({}, again);
  }
  CHECK(whole == again);
  for (const std::size_t kept : {std::size_t{0}, std::size_t{1}, points.size() / 3, points.size() - 2, points.size()}) {
    // What a journal holds when the run is ended: its first lines, read back from text.
    std::vector<PrecisionPoint> done;
    std::string lines;
    for (std::size_t i = 0; i < kept; ++i) {
      lines += to_json_line(points[i]) + "\n";
      done.push_back(parse_precision_point(to_json_line(points[i])));
    }
    run_tiny(std::move(done), lines);
    CAPTURE(kept);
    CHECK(lines == whole);
  }
}

TEST_CASE("a format that is not the declared one shows, by what its digits are worth") {
  std::string lines;
  const auto session = open_simulated(parse_contract("bf16-chunk"), parse_contract("fp32-chunk;solve=block_inverse"));
  const std::vector<PrecisionPoint> points = run_tiny({}, lines, {session.get()});
  const std::string fp32 = "fp32-chunk;solve=block_inverse";
  for (const char* point : {"M", "S_carried"}) {
    const double all = bits(find(points, {{"contract", fp32}, {"T", "100"}, {"point", "none"}})), tf32 = bits(find(points, {{"contract", fp32}, {"T", "100"}, {"point", point}, {"format", "tf32"}})),
                 bf16 = bits(find(points, {{"contract", fp32}, {"T", "100"}, {"point", point}, {"format", "bf16"}}));
    CAPTURE(point, all, tf32, bf16);
    CHECK(all > 20);                               // 24 digits, sums of 16 terms
    CHECK(std::fabs(tf32 - bf16 - 3) < 0.5);       // 11 digits against 8
    CHECK(all - tf32 > 6);
  }
  // The kernel says fp32 and does bf16: beside its contract carried out it is off by more than ten digits' worth.
  const PrecisionPoint &kernel = find(points, {{"T", "100"}}, session->info().name), &declared = find(points, {{"contract", fp32}, {"T", "100"}, {"point", "none"}});
  CHECK(bits(declared) - bits(kernel) > 10);
  const reports::Answers a = reports::answers(points, {});
  bool told = false;
  for (const reports::AnswerTable& t : a.tables)
    if (t.name == "kernels") {
      REQUIRE(t.rows.size() == 1);
      told = std::stod(t.rows[0][5]) > 1000;
    }
  CHECK(told);
  // What is carried out and measured is the same arithmetic.
  const auto honest = open_simulated(parse_contract("bf16-chunk"), parse_contract("bf16-chunk"));
  for (const PrecisionPoint& p : precision_at(parse_precision_inputs("T=70,K=16,io=bf16,draws=2"), {parse_contract("bf16-chunk")}, {honest.get()}, false))
    CHECK(p.o_rms == precision_at(parse_precision_inputs("T=70,K=16,io=bf16,draws=2"), {parse_contract("bf16-chunk")}, {}, false)[0].o_rms);
}

TEST_CASE("the contract called cheapest keeps its bits and costs less") {
  std::string lines;
  const std::vector<PrecisionPoint> points = run_tiny({}, lines);
  const PrecisionPoint& base = find(points, {{"point", "none"}, {"T", "64"}});
  for (const char* asked : {"8", "11", "16"}) {
    const PrecisionPoint* best = nullptr;
    for (const PrecisionPoint& p : points)
      if (p.axes.count("bits") && p.axes.at("bits") == asked) best = &p;   // the last attempt
    REQUIRE(best);
    const auto now = precision_at(parse_precision_inputs(best->inputs), {parse_contract(best->contract)}, {}, false);
    CAPTURE(asked, best->contract);
    CHECK(now[0].o_rms == best->o_rms);
    CHECK(reports::bits_kept(std::max(reports::rms(now[0].o_rms), reports::rms(now[0].ht_rms))) >= std::stod(asked));
    CHECK(best->cost < base.cost);
  }
}

TEST_CASE("inputs: text, one token stream for every length, refusals") {
  for (const char* text : {"", "T=77,K=32,V=16,io=bf16,gate=0.001,beta=0..2,keys=0.9,call=16,draws=3,seed=5", "beta=0.5", "gate=0"}) {
    const PrecisionInputs in = parse_precision_inputs(text);
    CHECK(to_string(parse_precision_inputs(to_string(in))) == to_string(in));
  }
  CHECK(parse_precision_inputs("K=32").V == 32);
  CHECK(parse_precision_inputs("V=8,K=32").V == 8);
  CHECK(error_of("T=0").find("T needs a whole number from 1") != std::string::npos);
  CHECK(error_of("beta=2..1").find("beta") != std::string::npos);
  CHECK(error_of("beta=0..3").find("beta") != std::string::npos);
  CHECK(error_of("keys=1.5").find("keys") != std::string::npos);
  CHECK(error_of("io=fp64").find("io") != std::string::npos);
  CHECK(error_of("nonsense").find("'nonsense' is not key=value") != std::string::npos);
  CHECK(error_of("x=1").find("unknown key 'x'") != std::string::npos);
  CHECK(error_of("T=1,T=2").find("twice") != std::string::npos);
  const HeadInputs longer = precision_head(parse_precision_inputs("T=90,K=16,keys=1"), 1), shorter = precision_head(parse_precision_inputs("T=40,K=16,keys=1"), 1);
  CHECK(std::equal(shorter.q.begin(), shorter.q.end(), longer.q.begin()));
  CHECK(std::equal(shorter.v.begin(), shorter.v.end(), longer.v.begin()));
  CHECK(std::equal(shorter.k.begin(), shorter.k.begin() + 16, shorter.k.begin() + 16));   // keys=1: one key
  CHECK(precision_head(parse_precision_inputs("T=4"), 0).v != precision_head(parse_precision_inputs("T=4"), 1).v);
}

TEST_CASE("every study of both sizes makes sense") {
  PrecisionOptions o;
  for (const bool full : {false, true}) {
    o.full = full;
    for (const PrecisionStudySpec& s : precision_studies()) {
      o.studies = {s.view.name};
      CAPTURE(s.view.name, full);
      CHECK(precision_plan(o).points > 0);
    }
  }
  o.studies = {"nonsense"};
  CHECK_THROWS_AS(precision_plan(o), std::invalid_argument);
}

TEST_CASE("the commands behind points are made of the points") {
  PrecisionPoint a, b;
  a.study = "keys";
  a.axes = {{"contract", "bf16-chunk"}, {"keys", "0.9"}};
  a.inputs = "T=1024,seed=1";
  b.study = "length";
  b.axes = {{"contract", "bf16-chunk"}, {"gate", "0"}, {"beta", "0..1"}, {"T", "64"}};
  b.inputs = "T=64,seed=7";
  b.kernel = "k";
  b.how = "--exec 'python3 k.py'";
  CHECK(precision_commands({a, b}) == std::vector<std::string>{"gdn-cts precision --size ci --seed 1 --study keys -o DIR", "gdn-cts precision --size ci --seed 7 --study length --exec 'python3 k.py' -o DIR"});
  b.axes["T"] = "131072";                          // size ci ends before
  CHECK(precision_commands({b}) == std::vector<std::string>{"gdn-cts precision --size full --seed 7 --study length --exec 'python3 k.py' -o DIR"});
}

TEST_CASE("cost counts what is stored") {
  const Contract fp32 = parse_contract("fp32-chunk;solve=block_inverse"), bf16 = parse_contract("fp32-chunk;solve=block_inverse;U=bf16");
  CHECK(contract_cost(fp32, 128, 64) - contract_cost(bf16, 128, 64) == 64 * 16);
  // q k v beta G decay, carried state, Vn_s, out of one token; its operand is the carried state itself.
  CHECK(contract_cost(parse_contract("fp32-recurrent"), 4, 2) == 32 * (4 + 4 + 2 + 1 + 1 + 1 + 8 + 2 + 2));
  CHECK(contract_cost(parse_contract("tf32-chunk"), 128, 128) < contract_cost(fp32, 128, 128));
}

TEST_CASE("points survive JSON, and what is none is refused by file and line") {
  PrecisionPoint p;
  p.study = "s";
  p.axes = {{"T", "64"}, {"point", "\"<&>"}};
  p.kernel = "k";
  p.how = "--kernel k";
  p.kernel_version = "1.0";
  p.device = "cuda";
  p.packages = {{"torch", "2.11.0"}};
  p.contract = "bf16-chunk";
  p.inputs = "T=64";
  p.tokens = 64;
  p.o_rms = {0.1, std::numeric_limits<double>::infinity(), 5e-324};
  p.ht_rms = {std::nan(""), -0.0};
  p.o_bound = {1};
  p.non_finite = 3;
  const std::string line = to_json_line(p);
  CHECK(to_json_line(parse_precision_point(line)) == line);
  CHECK(line.find('\n') == std::string::npos);
  const fs::path file = fs::temp_directory_path() / ("gdn_precision" + temporary_suffix());
  for (const auto& [text, what] : {std::pair{"{}", "schema_version"}, {"{\"schema_version\":2}", "newer"}, {"[", "syntax error"}, {"{\"schema_version\":1,\"study\":\"s\",\"contract\":\"c\",\"inputs\":\"i\"}", "o_rms"}}) {
    write_file(file.string(), line + "\n" + text + "\n");
    try {
      read_precision_points(file.string());
      CHECK(false);
    } catch (const std::runtime_error& e) {
      CAPTURE(e.what());
      CHECK(std::string(e.what()).find(file.string() + ":2: ") == 0);
      CHECK(std::string(e.what()).find(what) != std::string::npos);
    }
  }
  fs::remove(file);
}

TEST_CASE("the page holds findings, tables and, with gnuplot, plots; and needs nothing from anywhere") {
  std::string lines;
  const auto session = open_simulated(parse_contract("bf16-chunk"), parse_contract("bf16-chunk"));
  std::vector<PrecisionPoint> points = run_tiny({}, lines, {session.get()});
  points[0].axes["point"] = "<script>alert(1)</script>";
  const fs::path dir = fs::temp_directory_path() / ("gdn_precision_page" + temporary_suffix());
  const std::string missing = write_precision_pages(dir.string(), points, {tiny()[0].view, tiny()[1].view}, [](const std::vector<PrecisionPoint>& some) { return std::vector<std::string>{"gdn-cts precision --size ci --study " + some[0].study + " -o DIR"}; });
  CHECK(missing.empty() == reports::have_gnuplot());
  const std::string html = read_file((dir / "index.html").string());
  for (const char* part : {"Findings", "Tiny?", "Cheapest?", "Kernels measured", "gdn-cts precision --size ci --study tiny -o DIR", "gdn-cts precision --from points.jsonl -o DIR", "T=64,K=16,V=16", "simulated kernels over the contracts they declare", "class=\"sortable\"", "prefers-color-scheme:dark", "@media print"}) {
    CAPTURE(part);
    CHECK(html.find(part) != std::string::npos);
  }
  CHECK(html.find("<script>alert") == std::string::npos);
  for (const char* network : {"http:", "https:", "src=", "@import", "url("}) CHECK(html.find(network) == std::string::npos);
  CHECK(html.size() < 3000000);
  CHECK(lines.size() > 0);
  CHECK(read_precision_points((dir / "points.jsonl").string()).size() == points.size());
  for (const char* f : {"tiny.csv", "tiny.json", "summary.md"}) CHECK(fs::exists(dir / f));
  if (reports::have_gnuplot()) {
    CHECK(fs::exists(dir / "tiny.svg"));
    CHECK(html.find("role=\"img\" aria-labelledby=\"p1.title p1.desc\"") != std::string::npos);
    CHECK(html.find("var(--s1)") != std::string::npos);
    CHECK(html.find("rgb(") == std::string::npos);  // every colour is one of the page
  } else {
    CHECK(html.find("gnuplot is not installed") != std::string::npos);
  }
  fs::remove_all(dir);
}

TEST_CASE("what the published study says is what its points say") {
  const fs::path folder = fs::path(GDN_SOURCE_DIR) / "reports/published/precision-ci";
  const std::vector<PrecisionPoint> points = read_precision_points((folder / "points.jsonl").string());
  CHECK(points.size() > 1000);
  const reports::Answers a = reports::answers(points, precision_views());
  std::size_t told = 0;
  for_each_line((folder / "README.md").string(), [&](const std::string& line) {
    if (line.compare(0, 2, "- ") != 0) return;
    ++told;
    CAPTURE(line);
    CHECK(std::any_of(a.findings.begin(), a.findings.end(), [&](const reports::Answer& f) { return f.text == line.substr(2); }));
  });
  CHECK(told >= 10);
  // Some of them once more, from the beginning.
  for (std::size_t i = 0; i < points.size(); i += 400) {
    const PrecisionPoint& p = points[i];
    if (!p.kernel.empty() || p.tokens > 1024) continue;
    const PrecisionPoint again = precision_at(parse_precision_inputs(p.inputs), {parse_contract(p.contract)}, {}, false)[0];
    CAPTURE(p.study, p.contract, p.inputs);
    CHECK(again.o_rms == p.o_rms);
    CHECK(again.ht_rms == p.ht_rms);
  }
}
