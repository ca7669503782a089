// Recorded inputs (`gdn-cts generate --inputs FILE.h5`): a user's own q, k, v, g, beta, h0, in the layout of the kernel
// they were recorded at, as a case in the canonical form. Conversion is exact or refused.
#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "golden/store.h"

namespace gdn {

// The axes of a convention (kernels/convention.h) that recorded inputs need, with the same values.
enum class RecordedLayout : std::uint8_t { THD, BTHD, BHTD };        // packed; batch first; head before token
enum class RecordedState : std::uint8_t { KV, VK };
enum class RecordedGate : std::uint8_t { log, linear, log2 };
enum class RecordedHeads : std::uint8_t { grouped, tiled, repeated };

struct ImportOptions {
  RecordedLayout layout = RecordedLayout::THD;
  RecordedState state = RecordedState::KV;
  RecordedGate gate = RecordedGate::log;
  RecordedHeads heads = RecordedHeads::grouped;
  std::optional<double> scale;                     // else attribute `scale` of the file, else fp32(K^-1/2)
  std::optional<DType> io;                         // dtype of q, k, v in the golden; else as recorded
  // The natural logarithm of a linear or base-2 gate is seldom an fp32 number. Off: such a gate is refused unless it
  // is exact (0 and 1, or -inf and 0). On: the nearest fp32 logarithm; the golden is the truth of the gates it stores.
  bool nearest_gates = false;
  std::string group = "/";                         // where in the file the datasets are
};

struct Imported {
  Case the_case;                                   // family "recorded", seed = 63 bits of the hash of the inputs, run "base"
  std::string source;                              // for GoldenWriter::set_source: the convention they were recorded in
  std::vector<std::string> notes;                  // for people, one line each
};

// Datasets: q k v g beta, and if present h0 and cu_seqlens (int32 or int64; rows past the last offset are padding).
// g with one axis more is a gate per key channel (rule kda). Float64 is taken where fp32 can hold every value.
// Throws BadInput, "FILE: dataset /g: element [3,0] is ...".
Imported import_inputs(const std::filesystem::path& file, const ImportOptions& options = {});

// The text of attribute `convention` of the file, or "".
std::string recorded_convention(const std::filesystem::path& file, const std::string& group = "/");

}  // namespace gdn
