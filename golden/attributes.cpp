// Text attributes of a file's root; see store.h.
#include "golden/hdf5.h"
#include "golden/store.h"

namespace gdn {

std::map<std::string, std::string> text_attributes(const std::filesystem::path& file, const std::vector<std::string>& names) {
  const auto lock = h5::lock();
  const h5::File f = h5::open_readonly(file);
  const h5::Id root = h5::open_group(f, "/");
  std::map<std::string, std::string> found;
  for (const std::string& name : names)
    if (auto text = h5::text_attribute(f, root, "/", name)) found.emplace(name, std::move(*text));
  return found;
}

}  // namespace gdn
