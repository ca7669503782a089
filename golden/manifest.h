// manifest.json of a golden directory: file -> case id and SHA-256 of the logical content. Any number of writers may
// add to it at once; it is replaced as a whole under the directory's lock.
#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

namespace gdn {

inline constexpr int kManifestSchemaVersion = 1;
inline constexpr const char* kManifestName = "manifest.json";
inline constexpr const char* kSigmaFolder = "sigma";  // beside the goldens: what the statistical check keeps, no golden data

struct ManifestEntry {
  std::string case_id, sha256, edition;
  std::uint64_t bytes = 0;                         // size of the file
  bool operator==(const ManifestEntry&) const = default;
};
using Manifest = std::map<std::string, ManifestEntry>;   // by file name

// Empty when the directory has none. Throws BadInput: not JSON, newer schema, a field missing.
Manifest read_manifest(const std::filesystem::path& dir);
// Adds or replaces one entry, keeping those that others wrote meanwhile.
void add_to_manifest(const std::filesystem::path& dir, const std::string& file, const ManifestEntry& entry);

}  // namespace gdn
