// Kernels on a device; see bench_device.h.
#include "tools/cli/bench_device.h"

#include <fmt/format.h>

#include <algorithm>

#include "kernels/device_bench.h"
#include "kernels/registry.h"
#include "kernels/session_common.h"
#include "suites/families/fill.h"
#include "tools/cli/command.h"
#include "tools/cli/progress.h"

namespace gdn::cli {
namespace {

// The sizes of Qwen3-Next and Qwen3.5 layers: 16 key heads, 32 value heads, K = V = 128.
constexpr const char* kProblems[] = {
    "prefill/n1_t2048_h16_hv32_k128_v128/bf16/h0", "prefill/n1_t8192_h16_hv32_k128_v128/bf16/h0", "prefill/n1_t32768_h16_hv32_k128_v128/bf16/h0",
    "prefill/n1_t8192_h16_hv32_k128_v128/fp32/h0", "decode/n1_t1_h16_hv32_k128_v128/bf16/h0,slots=1",
    "decode/n32_t1_h16_hv32_k128_v128/bf16/h0,slots=32", "decode/n256_t1_h16_hv32_k128_v128/bf16/h0,slots=256"};

Run make_run(const Problem& p) {
  Run run;
  run.problem = p;
  run.inputs = fill::inputs(p, 1, {});
  if (p.pool()) {                                  // every row has a sequence, in slots that are no neighbours
    Tensor& slots = run.inputs.at("state_indices");
    for (std::int64_t i = 0; i < slots.size(); ++i) slots.set_bits(i, static_cast<std::uint64_t>(i % 2 ? slots.size() - 1 - i / 2 : i / 2));
  }
  return run;
}

// Operations per token and value head as the form has them. Chunkwise, residual form, C rows: K K^T and Q K^T (shared by the
// value heads of a key head), S^T k, S^T q and the update with V columns each, M and P times V columns over the half below
// the diagonal counted whole, as tensor cores do them. Recurrent: read, update, output and decay of the state.
double flops(const Problem& p, const Contract& c) {
  const double K = static_cast<double>(p.key_dim), V = static_cast<double>(p.value_dim), ratio = static_cast<double>(p.value_heads / p.heads), C = c.chunk;
  const double each = c.form == Form::chunkwise && !p.pool() ? 4 * C * K / ratio + 6 * K * V + 4 * C * V : 7 * K * V;
  return each * static_cast<double>(p.tokens() * p.value_heads);
}

double bytes(const CallImage& image, const Problem& p) {
  double sum = 0;
  for (const PlacedTensor& t : image.tensors) {
    if (p.pool() && t.name == "h0")
      sum += 2.0 * static_cast<double>(p.sequences() * p.value_heads * p.key_dim * p.value_dim) * static_cast<double>(size_of(p.state));
    else sum += static_cast<double>(t.bytes);
  }
  return sum;
}

}  // namespace

DeviceFigures bench_device(const std::string& device, const std::vector<std::string>& chosen, std::uint64_t repeats) {
  if (device != "cuda") throw Usage("--device: '" + device + "' is none of cpu, cuda");
  const DeviceBench* bench = find_device_bench(GDN_DEVICE_CUDA);
  if (!bench) throw Usage("--device cuda: this program was built without a CUDA compiler");
  std::vector<Problem> problems;
  for (const std::string& text : chosen) problems.push_back(parse_problem(text));
  if (problems.empty())
    for (const char* text : kProblems) problems.push_back(parse_problem(text));
  DeviceRates rates;
  try {
    rates = bench->rates();
  } catch (const std::runtime_error& e) {
    throw Usage(std::string("--device cuda: ") + e.what());
  }
  DeviceFigures figures;
  figures.facts = fmt::format("device      {}\ncopy        {:.3g} TB/s, read plus written\nbf16        {:.4g} Tflop/s on tensor cores\nfp32        {:.3g} Tflop/s of fused multiply-adds\n",
                              rates.device, rates.bytes_per_second * 1e-12, rates.bf16_flops_per_second * 1e-12, rates.fp32_flops_per_second * 1e-12);
  figures.table.columns = {{"kernel"}, {"problem"}, {"MB", true}, {"Gflop", true}, {"floor bytes us", true}, {"floor flops us", true},
                           {"median us", true}, {"least us", true}, {"most us", true}, {"share of floor", true}, {"how"}};
  Progress progress("bench");
  std::uint64_t done = 0;
  for (const Problem& p : problems) {
    const Run run = make_run(p);
    for (const gdn_kernel* k : builtin_kernels()) {
      if (k->device != GDN_DEVICE_CUDA) continue;
      progress.at(done, problems.size(), std::string(k->name) + " " + to_string(p));
      const KernelInfo info = read_declarations(*k);
      run_in_convention(info, run, 4096, [&](const CallImage& image, const TensorSet& inputs) {
        std::vector<std::byte> arena(image.size);
        fill_image(image, inputs, arena.data());
        DeviceTiming t = bench->time(*k, image, arena.data(), static_cast<int>(repeats));
        std::sort(t.seconds.begin(), t.seconds.end());
        // TF32 products run at half the rate of bf16 ones.
        const bool tensor = info.contract.accumulator == Accumulator::tensor_core, half = info.contract.at(Point::S_op).format == Format::tf32;
        const double rate = tensor ? rates.bf16_flops_per_second * (half ? 0.5 : 1) : rates.fp32_flops_per_second;
        const double b = bytes(image, p), f = flops(p, info.contract), floor_b = b / rates.bytes_per_second, floor_f = f / rate;
        std::vector<std::string> row{info.name, to_string(p), fmt::format("{:.4g}", b * 1e-6), fmt::format("{:.4g}", f * 1e-9), fmt::format("{:.4g}", floor_b * 1e6),
                                     fmt::format("{:.4g}", floor_f * 1e6)};
        if (t.seconds.empty()) {
          for (int i = 0; i < 4; ++i) row.push_back("-");
          row.push_back(t.message);
        } else {
          const double median = t.seconds[t.seconds.size() / 2];
          for (const double s : {median, t.seconds.front(), t.seconds.back()}) row.push_back(fmt::format("{:.4g}", s * 1e6));
          row.push_back(fmt::format("{:.0f} %", 100 * std::max(floor_b, floor_f) / median));
          row.push_back(t.graph ? "graph" : "launches");
        }
        figures.table.rows.push_back(std::move(row));
        Execution stop;
        stop.outcome = Outcome::not_supported;     // the first call is all that is timed
        return stop;
      });
    }
    progress.at(++done, problems.size(), "");
  }
  return figures;
}

}  // namespace gdn::cli
