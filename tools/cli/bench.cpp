// gdn-cts bench: what the suite and the kernels cost, as medians with their spread, with the machine and compiler that
// they were measured on. Nothing here decides anything.
#include <fmt/format.h>

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <functional>
#include <memory>

#include "golden/store.h"
#include "kernels/cpu/rates.h"
#include "kernels/registry.h"
#include "reference/oracle_bench.h"
#include "reference/parallel.h"
#include "reference/strand.h"
#include "reports/file.h"
#include "suites/runner.h"
#include "tools/cli/bench_device.h"
#include "tools/cli/command.h"
#include "tools/cli/kernel_options.h"
#include "tools/cli/machine.h"
#include "tools/cli/progress.h"
#include "tools/cli/table.h"

namespace gdn::cli {
namespace {

constexpr const char* kParts[] = {"oracle", "kernels", "checks", "hdf5", "gate", "growth"};

double median_of(std::vector<double> x) {          // not empty
  std::sort(x.begin(), x.end());
  const std::size_t n = x.size();
  return n % 2 ? x[n / 2] : (x[n / 2 - 1] + x[n / 2]) / 2;
}

// Slope of log seconds over log size: 1 where time is linear.
double exponent(const std::vector<double>& size, const std::vector<double>& seconds) {
  double x = 0, y = 0, xx = 0, xy = 0;
  const auto n = static_cast<double>(size.size());
  for (std::size_t i = 0; i < size.size(); ++i) {
    const double a = std::log(size[i]), b = std::log(seconds[i]);
    x += a, y += b, xx += a * a, xy += a * b;
  }
  return (n * xy - x * y) / (n * xx - x * x);
}

struct BenchCommand final : Command {
  std::vector<std::string> what, peers;
  std::string json, level = "smoke", gate_kernel = "cpu_chunk_bf16", device = "cpu", problem;
  std::string figures = "null";                    // of the oracle against multiprecision, JSON
  std::uint64_t repeats = 5, threads = 0;
  Table table{{{"what"}, {"size, token-heads", true}, {"runs", true}, {"median s", true}, {"least s", true}, {"most s", true}, {"processor s", true}, {"us per token-head", true}, {"share of floor", true}}, {}};

  std::string name() const override { return "bench"; }
  std::string summary() const override { return "speed of oracle, kernels, checks and the whole gate"; }
  int order() const override { return 80; }
  void options(Options& o) override {
    o.option("--what", what, "PART", "oracle, kernels, checks, hdf5, gate, growth; default all but growth", true);
    o.option("--peer", peers, "LIB.so|COMMAND", "a kernel to be timed beside the built-in ones: a plugin, or a command as that of verify --exec; may be repeated", false);
    o.option("--device", device, "DEVICE", "cpu, or cuda: only the CUDA kernels, timed on the device beside their floors");
    o.option("--problem", problem, "PROBLEM", "for oracle, kernels and checks; on a device instead of its usual ones");
    o.option("--level", level, "LEVEL", "for the gate");
    o.option("--kernel", gate_kernel, "NAME", "for the gate");
    o.option("--repeats", repeats, "N", "runs of each; the median counts");
    o.option("--threads", threads, "N", "0: all processors");
    o.option("--json", json, "FILE", "write the figures as JSON");
    o.footer("A token-head is one token of one value head with K = V = 128. Kernels are timed inside their own run, all of them once in every repeat, after one that does not "
             "count. Share of floor: the time that their operations take at the measured rate of multiply-adds, or their tensors at that of a copy, over the median.");
  }

  void save(const std::string& text) const {
    try {
      write_file(json, text);
    } catch (const std::runtime_error& e) {
      throw Usage(e.what());
    }
  }
  bool wanted(const std::string& part) const { return (what.empty() && part != "growth") || std::find(what.begin(), what.end(), part) != what.end(); }

  struct Times {
    std::vector<double> wall, processor;           // seconds of each run; the second of all threads, 0 where it is not known
    void add(double w, double p) { wall.push_back(w), processor.push_back(p); }
    bool known() const { return median_of(processor) > 0; }
    double least() const { return *std::min_element(wall.begin(), wall.end()); }
  };
  // With the children that have ended: kernels run in one.
  static double processor_seconds() {
    double sum = 0;
    for (const int who : {RUSAGE_SELF, RUSAGE_CHILDREN}) {
      rusage u;
      getrusage(who, &u);
      for (const timeval& t : {u.ru_utime, u.ru_stime}) sum += static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
    }
    return sum;
  }
  static void time(const std::function<void()>& work, Times& times) {
    const auto start = std::chrono::steady_clock::now();
    const double used = processor_seconds();
    work();
    times.add(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(), processor_seconds() - used);
  }
  void row(const std::string& label, double token_heads, const Times& times, double floor = 0) {
    const std::vector<double>& seconds = times.wall;
    const double median = median_of(seconds);
    table.rows.push_back({label, fmt::format("{:.4g}", token_heads), std::to_string(seconds.size()), fmt::format("{:.3g}", median),
                          fmt::format("{:.3g}", *std::min_element(seconds.begin(), seconds.end())), fmt::format("{:.3g}", *std::max_element(seconds.begin(), seconds.end())),
                          times.known() ? fmt::format("{:.3g}", median_of(times.processor)) : "-", fmt::format("{:.3g}", 1e6 * median / token_heads), floor > 0 ? fmt::format("{:.0f} %", 100 * floor / median) : std::string("-")});
  }
  void measure(Progress& progress, const std::string& label, double token_heads, const std::function<void()>& work) {
    Times times;
    for (std::uint64_t i = 0; i < repeats; ++i) {
      progress.at(i, repeats, label);
      time(work, times);
    }
    row(label, token_heads, times);
  }

  // Operations and bytes of a run, as a kernel that keeps its state at hand needs them.
  static double floor_seconds(const Run& run, const cpu::Rates& rates) {
    const Problem& p = run.problem;
    double bytes = 0;
    for (const auto& [name, t] : run.inputs) bytes += static_cast<double>(t.data.size());
    for (const char* name : output_names(p)) {
      double n = static_cast<double>(size_of(output_dtype(p, name)));
      for (const std::int64_t d : output_shape(p, name)) n *= static_cast<double>(d);
      bytes += n;
    }
    // Per state element and token: written, read for the delta, read for the output. The decay can be put off to the end of a chunk.
    const double pairs = 3.0 * static_cast<double>(p.tokens() * p.value_heads) * static_cast<double>(p.key_dim * p.value_dim);
    return std::max(pairs / rates.multiply_adds_per_second, bytes / rates.bytes_per_second);
  }

  // The built-in kernels that take the run, and the peers; how many times as long as the fastest of the former each of the latter takes.
  std::string kernels(Progress& progress, const Case& c) {
    const Run& run = c.runs[0];
    struct Timed { std::unique_ptr<KernelSession> session; bool peer; Times times; };
    std::vector<Timed> all;
    for (const gdn_kernel* k : builtin_kernels())
      if (k->device == GDN_DEVICE_CPU) all.push_back({open_inline(k->name, {}), false, {}});
    for (const std::string& peer : peers) {
      KernelOptions options;
      options.timeout = 600;
      options.threads = threads;
      const bool plugin = peer.size() > 3 && peer.compare(peer.size() - 3, 3, ".so") == 0;
      (plugin ? options.plugin : options.exec) = peer;
      all.push_back({options.open(), true, {}});
    }
    std::erase_if(all, [&](const Timed& t) {
      const std::string why = unsupported_reason(t.session->info().capabilities, t.session->info().contract, run);
      if (t.peer && !why.empty()) throw Usage("--peer: " + t.session->info().name + " does not take this problem: " + why);
      return !why.empty();
    });
    for (std::uint64_t i = 0; i <= repeats; ++i)
      for (Timed& t : all) {
        progress.at(i, repeats + 1, t.session->info().name);
        const Execution e = t.session->run(run, case_id(c));
        if (e.outcome != Outcome::ok) throw Usage(t.session->info().name + " did not run: " + e.message);
        if (i > 0) t.times.add(e.seconds, 0);
      }
    const cpu::Rates rates = cpu::measure_rates();
    const double floor = floor_seconds(run, rates);
    const Timed* fastest = nullptr;
    for (const Timed& t : all) {
      row((t.peer ? "peer " : "kernel ") + t.session->info().name, c.problem.token_heads(), t.times, floor);
      if (!t.peer && (!fastest || median_of(t.times.wall) < median_of(fastest->times.wall))) fastest = &t;
    }
    std::string text = fmt::format("rates of this machine: {:.4g} billion fp32 multiply-adds a second, copies {:.3g} GB/s read plus written; floor of the problem {:.3g} s\n",
                                   1e-9 * rates.multiply_adds_per_second, 1e-9 * rates.bytes_per_second, floor);
    for (const Timed& t : all)
      if (t.peer && fastest)
        text += fmt::format("{} {} takes {:.3g} times as long as {} ({:.3g} times by the least of each)\n", t.session->info().name, t.session->info().version,
                            median_of(t.times.wall) / median_of(fastest->times.wall), fastest->session->info().name, t.times.least() / fastest->times.least());
    return text;
  }

  // How processor time grows with one size at a time; the other sizes stay as they are. That of a kernel is of a whole call,
  // tensors laid out and collected. Not the time on the clock: a machine with other things to do would be measured.
  std::string growth(Progress& progress) {
    struct Axis { const char* name; std::vector<double> sizes; std::function<std::string(double)> problem; };
    const Axis axes[] = {{"T", {512, 2048, 8192, 32768}, [](double x) { return fmt::format("prefill/n1_t{:.0f}_h1_hv2_k128_v128/fp32/h0", x); }},
                         {"value heads", {2, 4, 8, 16}, [](double x) { return fmt::format("prefill/n1_t512_h1_hv{:.0f}_k128_v128/fp32/h0", x); }},
                         {"K", {64, 128, 256, 512}, [](double x) { return fmt::format("prefill/n1_t512_h1_hv2_k{:.0f}_v128/fp32/h0", x); }}};
    std::string text;
    for (const std::string& subject : {std::string("oracle"), std::string("cpu_recurrent_fp32"), std::string("cpu_chunk_fp32")}) {
      text += subject + ": processor time grows as";
      for (const Axis& axis : axes) {
        std::vector<double> seconds;
        for (const double x : axis.sizes) {
          progress.at(seconds.size(), axis.sizes.size(), subject + " over " + axis.name);
          const Case c = make_case({"typical", parse_problem(axis.problem(x)), 1});
          const auto session = subject == "oracle" ? nullptr : open_inline(subject, {});
          Times times;
          for (std::uint64_t i = 0; i < repeats; ++i)
            time([&] { session ? void(session->run(c.runs[0], case_id(c))) : void(oracle(c.runs[0])); }, times);
          const double least = *std::min_element(times.processor.begin(), times.processor.end());
          seconds.push_back(least);
        }
        text += fmt::format(" {}^{:.2f}", axis.name, exponent(axis.sizes, seconds));
      }
      text += "\n";
    }
    return text;
  }

  int run() override {
    for (const std::string& w : what)
      if (std::find(std::begin(kParts), std::end(kParts), w) == std::end(kParts)) throw Usage("--what: '" + w + "' is none of oracle, kernels, checks, hdf5, gate, growth");
    if (repeats < 1 || repeats > 1000) throw Usage("--repeats must be 1 to 1000");
    use_threads(threads);
    if (device != "cpu") {
      const DeviceFigures figures_of_device = bench_device(device, problem.empty() ? std::vector<std::string>{} : std::vector<std::string>{problem}, repeats < 20 ? 20 : repeats);
      clear_bar();
      print(figures_of_device.facts + "\n" + to_text(figures_of_device.table));
      if (!json.empty()) save(to_json(figures_of_device.table) + "\n");
      return 0;
    }
    const Level gate_level = parse_level(level);
    if (problem.empty()) problem = "prefill/n1_t512_h1_hv2_k128_v128/bf16/h0";
    const Problem p = parse_problem(problem);
    if (p.token_heads() <= 0) throw Usage("--problem: nothing to measure without tokens");
    if (!find_builtin(gate_kernel)) throw Usage(no_builtin(gate_kernel));

    Progress progress("bench");
    const Case c = make_case({usual_family(p), p, 1});
    const double size = p.token_heads();
    Golden golden;
    std::string text;                              // below the table
    if (wanted("oracle")) {
      progress.at(0, 1, "oracle against multiprecision");
      const OracleBench b = bench_oracle();
      text = fmt::format("oracle, one head of T={} K={} V={}, one thread, {}: {:.3g} s, {:.3g} ns per multiply-add; the bare recurrence "
                           "in mpfr_float<50> takes {:.0f} times as long, in cpp_bin_float_quad {:.0f} times (from {} tokens)\n",
                           b.T, b.K, b.V, b.isa, b.double_double, b.ns_per_multiply_add(b.double_double), b.mpfr_50_digits / b.double_double,
                           b.cpp_bin_float_quad / b.double_double, b.sample);
      figures = fmt::format("{{\"T\":{},\"K\":{},\"V\":{},\"isa\":\"{}\",\"double_double_s\":{:.4g},\"mpfr_50_digits_s\":{:.4g},\"cpp_bin_float_quad_s\":{:.4g}}}",
                            b.T, b.K, b.V, b.isa, b.double_double, b.mpfr_50_digits, b.cpp_bin_float_quad);
    }
    if (wanted("oracle")) measure(progress, "oracle", size, [&] { golden = make_golden(c); });
    else if (wanted("checks") || wanted("hdf5")) golden = make_golden(c);
    if (wanted("kernels")) text += kernels(progress, c);
    if (wanted("hdf5")) {
      struct Folder {
        std::filesystem::path path = std::filesystem::temp_directory_path() / fmt::format("gdn_bench_{}", ::getpid());
        ~Folder() { std::filesystem::remove_all(path); }
      } folder;
      std::filesystem::path file;
      measure(progress, "golden written", size, [&] { file = write_golden(folder.path, golden); });
      measure(progress, "golden read, hashes compared", size, [&] { read_golden(file); });
    }
    if (wanted("checks")) {
      const auto session = open_inline(gate_kernel, {});
      std::vector<Execution> executions;
      for (const Run& r : c.runs) executions.push_back(session->run(r, case_id(c)));
      measure(progress, "all checks", size, [&] { judge_results(golden, c, session->info(), executions); });
    }
    if (wanted("gate")) {
      GateOptions o;
      o.level = gate_level;
      double sum = 0;
      for (const CaseId& id : cases_of(gate_level, 1)) sum += id.problem.token_heads();
      measure(progress, fmt::format("gate {} {}", level, gate_kernel), sum, [&] {
        const auto session = open_builtin(gate_kernel, {});
        run_gate(o, *session, {});
      });
    }
    if (wanted("growth")) text += growth(progress);
    clear_bar();

    const auto facts = machine_facts();
    for (const auto& [key, value] : facts) print(fmt::format("{:<11} {}\n", key, value));
    print(fmt::format("problem     {}\n\n", problem) + to_text(table));
    if (!text.empty()) print("\n" + text);
    if (!json.empty()) {
      Table machine{{}, {{}}};
      for (const auto& [key, value] : facts) {
        machine.columns.push_back({key});
        machine.rows[0].push_back(value);
      }
      Table words{{{"text"}}, {}};
      for (std::size_t at = 0, end; (end = text.find('\n', at)) != std::string::npos; at = end + 1) words.rows.push_back({text.substr(at, end - at)});
      save(fmt::format("{{\"machine\":{},\n\"problem\":\"{}\",\n\"oracle\":{},\n\"words\":{},\n\"figures\":{}}}\n", to_json(machine), to_string(p), figures, to_json(words), to_json(table)));
    }
    return 0;
  }
};

BenchCommand command;
const RegisterCommand registered(&command);

}  // namespace
}  // namespace gdn::cli
