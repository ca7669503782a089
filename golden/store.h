// Golden store: certified cases in HDF5, one file per case, with a manifest of SHA-256 over logical content.
// Schema in golden/README.md; HDF5 stays behind this header.
#pragma once
#include <filesystem>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "reference/case.h"
#include "reference/truth.h"

namespace gdn {

inline constexpr int kGoldenSchemaVersion = 1;

// Bad input: one line that says what and where (file, dataset). Exit status 2.
struct BadInput : std::runtime_error { using std::runtime_error::runtime_error; };

struct Golden {
  Case the_case;                                   // relations are not stored: families make them
  std::vector<Truth> truths;                       // per run; empty for runs without truth
  std::string edition;                             // of the accuracy standard
  OracleStats stats;
  std::string hash;                                // content_hash, where the store knew it; empty: nobody asked yet
  std::string content() const;                     // content_hash, made when it is not known
};

std::string content_hash(const Golden& g);         // SHA-256 over dtype, shape and bits of everything, hex
// Writes DIR/<file_stem>.h5 through a temporary name. Throws BadInput (disk full, no permission), leaving nothing.
// hash: receives content_hash.
std::filesystem::path write_golden(const std::filesystem::path& dir, const Golden& g, std::string* hash = nullptr);
Golden read_golden(const std::filesystem::path& file);             // throws BadInput
void write_tensors(const std::filesystem::path& file, const std::string& case_id, const Problem& p, const TensorSet& t);
// What a kernel made of the runs of a case, in order and as far as it came: at the root where the case has one run, else in a group of each run's name.
// texts become attributes of the root. Throws BadInput.
void write_results(const std::filesystem::path& file, const Case& c, const std::vector<TensorSet>& outputs, const std::map<std::string, std::string>& texts);
TensorSet read_tensors(const std::filesystem::path& file, const std::string& group = "/");  // throws BadInput
// Those of the named attributes of the root that the file has, such as the contract of a candidate. Throws BadInput.
std::map<std::string, std::string> text_attributes(const std::filesystem::path& file, const std::vector<std::string>& names);
// The same numbers in another dtype. Throws std::invalid_argument naming the first element that `want` cannot hold.
Tensor coerce(const Tensor& t, DType want);

}  // namespace gdn
