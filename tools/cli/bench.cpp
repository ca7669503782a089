// gdn-cts bench: what the suite and the kernels cost, as medians with their spread, with the machine and compiler that
// they were measured on. Nothing here decides anything.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <functional>

#include "kernels/registry.h"
#include "reference/oracle_bench.h"
#include "reference/parallel.h"
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

struct BenchCommand final : Command {
  std::vector<std::string> what;
  std::string json, level = "smoke", gate_kernel = "cpu_chunk_bf16", device = "cpu", problem;
  std::string figures = "null";                    // of the oracle against multiprecision, JSON
  std::uint64_t repeats = 5, threads = 0;
  Table table{{{"what"}, {"size, token-heads", true}, {"runs", true}, {"median s", true}, {"least s", true}, {"most s", true}, {"us per token-head", true}}, {}};

  std::string name() const override { return "bench"; }
  std::string summary() const override { return "speed of oracle, kernels, checks and the whole gate"; }
  int order() const override { return 80; }
  void options(Options& o) override {
    o.option("--what", what, "PART", "oracle, kernels, checks, gate; default all", true);
    o.option("--device", device, "DEVICE", "cpu, or cuda: only the CUDA kernels, timed on the device beside their floors");
    o.option("--problem", problem, "PROBLEM", "for oracle, kernels and checks; on a device instead of its usual ones");
    o.option("--level", level, "LEVEL", "for the gate");
    o.option("--kernel", gate_kernel, "NAME", "for the gate");
    o.option("--repeats", repeats, "N", "runs of each; the median counts");
    o.option("--threads", threads, "N", "0: all processors");
    o.option("--json", json, "FILE", "write the figures as JSON");
    o.footer("A token-head is one token of one value head with K = V = 128. Built-in kernels run in this process, without isolation.");
  }

  void save(const std::string& text) const {
    try {
      write_file(json, text);
    } catch (const std::runtime_error& e) {
      throw Usage(e.what());
    }
  }
  bool wanted(const char* part) const { return what.empty() || std::find(what.begin(), what.end(), part) != what.end(); }

  void measure(Progress& progress, const std::string& label, double token_heads, const std::function<void()>& work) {
    std::vector<double> seconds;
    for (std::uint64_t i = 0; i < repeats; ++i) {
      progress.at(i, repeats, label);
      const auto start = std::chrono::steady_clock::now();
      work();
      seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    }
    std::sort(seconds.begin(), seconds.end());
    const std::size_t n = seconds.size();
    const double median = n % 2 ? seconds[n / 2] : (seconds[n / 2 - 1] + seconds[n / 2]) / 2;
    table.rows.push_back({label, fmt::format("{:.4g}", token_heads), std::to_string(n), fmt::format("{:.3g}", median), fmt::format("{:.3g}", seconds.front()),
                          fmt::format("{:.3g}", seconds.back()), fmt::format("{:.3g}", 1e6 * median / token_heads)});
  }

  int run() override {
    for (const std::string& w : what)
      if (w != "oracle" && w != "kernels" && w != "checks" && w != "gate") throw Usage("--what: '" + w + "' is none of oracle, kernels, checks, gate");
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
    if (!find_builtin(gate_kernel)) throw Usage("no built-in kernel is called '" + gate_kernel + "'; `gdn-cts list kernels` prints them");

    Progress progress("bench");
    const Case c = make_case({"typical", p, 1});
    const double size = p.token_heads();
    Golden golden;
    std::string oracle;
    if (wanted("oracle")) {
      progress.at(0, 1, "oracle against multiprecision");
      const OracleBench b = bench_oracle();
      oracle = fmt::format("oracle, one head of T={} K={} V={}, one thread, {}: {:.3g} s, {:.3g} ns per multiply-add; the bare recurrence "
                           "in mpfr_float<50> takes {:.0f} times as long, in cpp_bin_float_quad {:.0f} times (from {} tokens)\n",
                           b.T, b.K, b.V, b.isa, b.double_double, b.ns_per_multiply_add(b.double_double), b.mpfr_50_digits / b.double_double,
                           b.cpp_bin_float_quad / b.double_double, b.sample);
      figures = fmt::format("{{\"T\":{},\"K\":{},\"V\":{},\"isa\":\"{}\",\"double_double_s\":{:.4g},\"mpfr_50_digits_s\":{:.4g},\"cpp_bin_float_quad_s\":{:.4g}}}",
                            b.T, b.K, b.V, b.isa, b.double_double, b.mpfr_50_digits, b.cpp_bin_float_quad);
    }
    if (wanted("oracle")) measure(progress, "oracle", size, [&] { golden = make_golden(c); });
    else if (wanted("checks")) golden = make_golden(c);
    if (wanted("kernels"))
      for (const gdn_kernel* k : builtin_kernels()) {
        if (k->device != GDN_DEVICE_CPU) continue;
        const auto session = open_inline(k->name, {});
        if (!unsupported_reason(session->info().capabilities, session->info().contract, c.runs[0]).empty()) continue;
        measure(progress, std::string("kernel ") + k->name, size, [&] { session->run(c.runs[0], case_id(c)); });
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
    clear_bar();

    const auto facts = machine_facts();
    for (const auto& [key, value] : facts) print(fmt::format("{:<11} {}\n", key, value));
    print(fmt::format("problem     {}\n\n", problem) + to_text(table));
    if (!oracle.empty()) print("\n" + oracle);
    if (!json.empty()) {
      Table machine{{}, {{}}};
      for (const auto& [key, value] : facts) {
        machine.columns.push_back({key});
        machine.rows[0].push_back(value);
      }
      save(fmt::format("{{\"machine\":{},\n\"problem\":\"{}\",\n\"oracle\":{},\n\"figures\":{}}}\n", to_json(machine), to_string(p), figures, to_json(table)));
    }
    return 0;
  }
};

BenchCommand command;
const RegisterCommand registered(&command);

}  // namespace
}  // namespace gdn::cli
