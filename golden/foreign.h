// Files that others wrote: outputs of adapters, candidates, recorded inputs. HDF5 1.10 can crash or spin on a damaged
// file in the old format that h5py writes (measured: 7 of 1500 files with one to four changed bytes), so it reads them in
// a child process. Goldens need no child: all their metadata carries checksums.
#pragma once
#include <filesystem>
#include <optional>
#include <string>

#include "reference/tensor.h"

namespace gdn {

struct Foreign {
  TensorSet tensors;                               // every dataset of the group
  std::optional<double> scale;                     // attributes of the group
  std::string convention;
};
// Throws BadInput in one line. data: false leaves the tensors out.
Foreign read_foreign(const std::filesystem::path& file, const std::string& group = "/", bool data = true);

}  // namespace gdn
