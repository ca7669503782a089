// Goldens made head by head; see stream.h.
#include <algorithm>
#include <exception>

#include "golden/stream.h"
#include "reference/parallel.h"
#include "reference/standard.h"

namespace gdn {

std::filesystem::path generate_golden(const std::filesystem::path& dir, const Case& c, OracleStats* stats,
                                      const std::function<void(double)>& progress, const std::string& source) {
  GoldenWriter writer(dir, c, kAccuracyEdition);
  if (!source.empty()) writer.set_source(source);
  OracleStats total;
  std::int64_t heads = 0, done = 0;
  for (const Run& r : c.runs) heads += r.truth && r.problem.operation == Operation::prefill ? r.problem.sequences() * r.problem.value_heads : 0;
  const std::int64_t threads = max_threads();
  for (std::size_t i = 0; i < c.runs.size(); ++i) {
    const Run& run = c.runs[i];
    if (!run.truth) continue;
    if (run.problem.operation != Operation::prefill) {
      writer.put_truth(i, oracle(run, &total));
      continue;
    }
    const std::int64_t HV = run.problem.value_heads, count = run.problem.sequences() * HV;
    // A few heads at a time side by side, a last odd one by itself, where the oracle spreads over its channels.
    for (std::int64_t first = 0; first < count; first += threads) {
      const std::int64_t batch = std::min(threads, count - first);
      std::vector<HeadTruth> truth(static_cast<std::size_t>(batch));
      std::vector<OracleStats> head_stats(static_cast<std::size_t>(batch));
      parallel_for(batch, [&](std::int64_t b) {
        const std::int64_t head = first + b;
        truth[static_cast<std::size_t>(b)] = oracle_head(head_inputs(run, head / HV, head % HV), &head_stats[static_cast<std::size_t>(b)]);
      });
      for (std::int64_t b = 0; b < batch; ++b) {
        const std::int64_t head = first + b;
        writer.put_head(i, head / HV, head % HV, truth[static_cast<std::size_t>(b)]);
        total += head_stats[static_cast<std::size_t>(b)];
      }
      done += batch;
      if (progress) progress(static_cast<double>(done) / static_cast<double>(heads));
    }
  }
  const auto file = writer.finish(total);
  if (stats) *stats = total;
  return file;
}

}  // namespace gdn
