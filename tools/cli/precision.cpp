// gdn-cts precision: what each storage format at each point of the algorithm costs in accuracy, computed.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "kernels/contract_file.h"
#include "reference/standard.h"
#include "reports/file.h"
#include "reports/precision.h"
#include "reports/text.h"
#include "suites/precision.h"
#include "tools/cli/command.h"
#include "tools/cli/journal.h"
#include "tools/cli/kernel_options.h"
#include "tools/cli/progress.h"
#include "tools/cli/show.h"
#include "tools/cli/table.h"

namespace gdn::cli {
namespace {

// Points of a journal; a line that was cut off when the run was ended is dropped. Throws Usage for what is no journal of this version.
std::vector<PrecisionPoint> earlier_points(const std::string& journal) {
  const std::vector<PrecisionPoint> all = read_journal<PrecisionPoint>(journal, read_precision_points);
  for (const PrecisionPoint& p : all)
    if (p.suite_version != kSuiteVersion || p.edition != kAccuracyEdition)
      throw Usage("--resume: " + journal + " is of another version: suite " + p.suite_version + ", accuracy standard " + p.edition);
  return all;
}

std::string bits(const std::vector<double>& errors) {
  const double b = reports::bits_kept(reports::rms(errors));
  return std::isinf(b) ? (b > 0 ? "exact" : "overflow") : fmt::format("{:.2f}", b);
}

// The points of one question, as they are.
Table table_of(const std::vector<PrecisionPoint>& points) {
  Table t{{{"contract or kernel"}, {"bits o", true}, {"bits ht", true}, {"rms o", true}, {"rms ht", true}, {"worst o", true}, {"worst ht", true}, {"not finite", true}, {"cost", true}}, {}};
  const auto most = [](const std::vector<double>& x) { return *std::max_element(x.begin(), x.end()); };
  for (const PrecisionPoint& p : points) {
    t.rows.push_back({p.kernel.empty() ? p.contract : p.kernel, bits(p.o_rms), bits(p.ht_rms), reports::short_number(reports::rms(p.o_rms)), reports::short_number(reports::rms(p.ht_rms)),
                      reports::short_number(most(p.o_worst)), reports::short_number(most(p.ht_worst)), std::to_string(p.non_finite), fmt::format("{:.0f}", p.cost)});
  }
  return t;
}

struct PrecisionCommand final : Command {
  std::string size = "ci", output, journal, inputs;
  std::vector<std::string> studies, kernels, plugins, programs, contracts, from;
  std::uint64_t seed = 1, threads = 0;
  double timeout = 600;
  bool list = false;

  std::string name() const override { return "precision"; }
  std::string summary() const override { return "error against precision: what each format at each storage point costs, over length, gates, chunk size"; }
  int order() const override { return 60; }
  void options(Options& o) override {
    o.option("-o,--output", output, "DIR", "folder for the page, its plots and tables, points.jsonl and summary.md");
    o.option("--study", studies, "STUDY", "only these studies (--list prints them); may be repeated", true);
    o.option("--size", size, "SIZE", "ci (minutes) or full (hours, up to 131072 tokens)");
    o.option("--kernel", kernels, "NAME", "measure a built-in kernel as well (`list kernels`), or simulated/CONTRACT; may be repeated", false);
    o.option("--plugin", plugins, "LIB.so", "the same for a shared library (kernels/gdn_kernel.h); may be repeated", false);
    o.option("--exec", programs, "COMMAND", "the same for a program that speaks the adapter protocol; may be repeated", false);
    o.option("--timeout", timeout, "SECONDS", "for one run of a kernel");
    o.option("--inputs", inputs, "INPUTS", "no study but one question: errors of --contract and of the kernels on these inputs, for example T=4096,gate=0.001,keys=0.9; "
                                           "keys: T K V io gate beta keys call draws seed");
    o.option("--contract", contracts, "CONTRACT", "with --inputs: a contract to carry out; @FILE reads one; may be repeated", false);
    o.option("--seed", seed, "N", "seed of the inputs");
    o.option("-j,--threads", threads, "N", "0: all processors; contracts are carried out side by side. The results are the same");
    o.option("--resume", journal, "FILE", "write every point there as soon as it is made, and do not make again what is there already");
    o.option("--from", from, "POINTS.jsonl", "measure nothing: pages from these points, together; may be repeated", false);
    o.flag("--list", list, "print the studies, their axes and how long they take, and run none");
    o.footer("Errors are relative to the rms of the exact values; bits kept are -log2 of the relative rms error. Contracts are carried out operation by\n"
             "operation; what a kernel returns is compared with the same certified truth.");
  }

  std::vector<std::unique_ptr<KernelSession>> open() const {
    std::vector<std::unique_ptr<KernelSession>> sessions;
    for (const auto& [list, field] : {std::pair{&kernels, &KernelOptions::kernel}, {&plugins, &KernelOptions::plugin}, {&programs, &KernelOptions::exec}})
      for (const std::string& name : *list) {
        KernelOptions k;
        k.timeout = timeout;
        k.threads = threads;
        k.*field = name;
        sessions.push_back(k.open());
        for (std::size_t i = 0; i + 1 < sessions.size(); ++i)
          if (sessions[i]->info().name == sessions.back()->info().name) throw Usage("two kernels are called " + reports::printable(sessions.back()->info().name));
      }
    return sessions;
  }

  int run() override {
    use_threads(threads);
    if (size != "ci" && size != "full") throw Usage("--size is ci or full, not '" + size + "'");
    if (inputs.empty() && !contracts.empty()) throw Usage("--contract needs --inputs");
    if (!inputs.empty() && (!studies.empty() || !journal.empty() || !from.empty() || !output.empty() || list)) throw Usage("--inputs is a question of its own: it goes with --contract and kernels only");
    if (!from.empty() && (!journal.empty() || !kernels.empty() || !plugins.empty() || !programs.empty() || list)) throw Usage("--from measures nothing");
    if (!output.empty()) make_folder("-o", output);
    if (!from.empty()) {
      std::vector<PrecisionPoint> points;
      std::set<std::string> seen;                  // a point that two files hold is one
      try {
        for (const std::string& f : from)
          for (PrecisionPoint& p : read_precision_points(f))
            if ((studies.empty() || std::find(studies.begin(), studies.end(), p.study) != studies.end()) && seen.insert(precision_key(p)).second) points.push_back(std::move(p));
      } catch (const std::runtime_error& e) {
        throw Usage(e.what());
      }
      if (points.empty()) throw Usage("no points in the files given");
      finish(points);
      return 0;
    }
    const std::vector<std::unique_ptr<KernelSession>> sessions = open();
    PrecisionOptions o;
    o.studies = studies;
    o.full = size == "full";
    o.seed = seed;
    for (const auto& s : sessions) o.kernels.push_back(s.get());
    std::map<std::string, std::string> reasons;    // by kernel, the first
    o.note = [&](const std::string& kernel, const std::string& why) {
      clear_bar();
      note(reports::printable(kernel + " is left out where " + why));
      reasons.emplace(kernel, why);
    };
    const auto left_out = [&](const std::vector<PrecisionPoint>& points) {
      std::string list;
      for (const auto& s : sessions)
        if (std::none_of(points.begin(), points.end(), [&](const PrecisionPoint& p) { return p.kernel == s->info().name; }))
          list += (list.empty() ? "" : "; ") + s->info().name + ": " + reasons[s->info().name];
      if (!list.empty()) throw Usage("not measured at all: " + reports::printable(list));
    };
    if (!inputs.empty()) {
      const PrecisionInputs in = parse_precision_inputs(inputs);
      std::vector<Contract> list_of;
      for (const std::string& c : contracts) list_of.push_back(read_contract(c));
      if (list_of.empty() && sessions.empty()) throw Usage("--inputs: whose errors? Give --contract or a kernel");
      const std::vector<PrecisionPoint> points = precision_at(in, list_of, o.kernels, false, o.note);
      if (!points.empty()) print(to_string(in) + "\n" + to_text(table_of(points)));
      left_out(points);
      return 0;
    }
    if (list) {
      print_studies(o);
      return 0;
    }
    std::ofstream log;
    if (!journal.empty()) {
      o.done = earlier_points(journal);
      if (!o.done.empty()) note(fmt::format("{} points are in {} already", o.done.size(), journal));
      log.open(journal, std::ios::app);
      if (!log) throw Usage("--resume: cannot write " + journal);
      o.point = [&](const PrecisionPoint& p) { log << to_json_line(p) << std::endl; };
    }
    const PrecisionPlan plan = precision_plan(o);
    if (!sessions.empty()) {
      std::string measured;
      bool any = false;
      for (const PrecisionStudySpec& s : precision_studies()) {
        if (!s.measured) continue;
        measured += (measured.empty() ? "" : ", ") + s.view.name;
        any = any || studies.empty() || std::find(studies.begin(), studies.end(), s.view.name) != studies.end();
      }
      if (!any) throw Usage("kernels are measured in the studies " + measured + ", none of which --study names");
    }
    note(fmt::format("{} points on {} sets of inputs: about {:.0f} s on two processors", plan.points, plan.groups, std::ceil(plan.seconds / 2)));
    std::vector<PrecisionPoint> points;
    {
      Progress progress("precision");
      const auto start = std::chrono::steady_clock::now();
      o.progress = [&](double share, const std::string& what) {
        const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
        progress.at(0, 1, (share > 0.02 ? fmt::format("about {:.0f} s left ", std::ceil(seconds * (1 - share) / share)) : "") + what, share);
      };
      points = run_precision(o);
    }
    finish(points);
    left_out(points);
    return 0;
  }

 private:
  void print_studies(const PrecisionOptions& o) const {
    Table t{{{"study"}, {"points", true}, {"minutes", true}, {"axes"}, {"question"}}, {}};
    for (const PrecisionStudySpec& s : precision_studies()) {
      if (!o.studies.empty() && std::find(o.studies.begin(), o.studies.end(), s.view.name) == o.studies.end()) continue;
      PrecisionOptions one = o;
      one.studies = {s.view.name};
      const PrecisionPlan plan = precision_plan(one);
      std::string axes;
      for (const auto& a : s.axes) axes += (axes.empty() ? "" : " ") + a.name;
      t.rows.push_back({s.view.name, std::to_string(plan.points), fmt::format("{:.1f}", plan.seconds / 120), axes, s.view.question});
    }
    const PrecisionPlan all = precision_plan(o);
    print(to_text(t));
    print(fmt::format("size {}: {} points on {} sets of inputs, about {:.1f} minutes on two processors\n", size, all.points, all.groups, all.seconds / 120));
  }

  void finish(const std::vector<PrecisionPoint>& points) const {
    const reports::Answers a = reports::answers(points, precision_views());
    for (const reports::AnswerTable& t : a.tables) {
      Table table;
      for (const std::string& c : t.columns) {
        const bool number = !c.empty() && c.back() == '#';
        table.columns.push_back({number ? c.substr(0, c.size() - 1) : c, number});
      }
      table.rows = t.rows;
      print("\n" + t.title + "\n" + to_text(table));
    }
    if (!a.findings.empty()) print("\n");
    for (const reports::Answer& f : a.findings) print("- " + reports::printable(f.text) + "\n");
    if (output.empty()) return;
    try {
      const std::string missing = write_precision_pages(output, points, precision_views(), precision_commands);
      if (!missing.empty()) note(missing);
    } catch (const std::runtime_error& e) {
      throw Usage(e.what());
    }
    print(fmt::format("\n{} points; page: {}\n", points.size(), (std::filesystem::path(output) / "index.html").string()));
  }
};

PrecisionCommand command;
const RegisterCommand registered(&command);

}  // namespace
}  // namespace gdn::cli
