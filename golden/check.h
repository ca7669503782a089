// The audit of a golden directory (`gdn-cts check DIR`): manifest, hashes, certificates, and the truth itself, once more,
// by arithmetic that shares no code with its producer.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "golden/store.h"
#include "reference/standard.h"

namespace gdn {

struct CheckOptions {
  // Cases of at most this size (Problem::token_heads, summed over runs) are audited in every head, larger ones in
  // one head of a hundred, at least one.
  double small_case = 256;
  bool audit = true;                               // off: files only
  std::string edition = kAccuracyEdition;          // goldens of another edition are stale
};

struct CheckSummary {
  std::int64_t files = 0, datasets = 0, elements = 0, uncertified_fp64 = 0, balls = 0, heads = 0, audited_heads = 0, problems = 0;
};

// Reports each problem as one line "FILE: what"; progress in 0..1. Reads only. Throws BadInput when dir is no directory.
CheckSummary check_directory(const std::filesystem::path& dir, const std::function<void(const std::string& line)>& report,
                             const CheckOptions& options = {}, const std::function<void(double)>& progress = {});
// The same for one file, without the manifest.
CheckSummary check_file(const std::filesystem::path& file, const std::function<void(const std::string& line)>& report,
                        const CheckOptions& options = {});

}  // namespace gdn
