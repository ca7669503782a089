// manifest.jsonl of a golden directory: a line that says what it is, then a line per golden with its case id and the SHA-256
// of its logical content. Any number of writers may add to it at once: a line is added under the directory's lock, so that
// adding one costs the same however many there are. The last line of a file counts; one that breaks off (a killed writer)
// is none.
#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

namespace gdn {

inline constexpr int kManifestSchemaVersion = 2;
inline constexpr const char* kManifestName = "manifest.jsonl";
inline constexpr const char* kSigmaFolder = "sigma";  // beside the goldens: what the statistical check keeps, no golden data

struct ManifestEntry {
  std::string case_id, sha256, edition;
  std::uint64_t bytes = 0;                         // size of the file
  bool operator==(const ManifestEntry&) const = default;
};
using Manifest = std::map<std::string, ManifestEntry>;   // by file name

// Empty when the directory has none. Throws BadInput: not JSON lines, newer schema, a field missing.
Manifest read_manifest(const std::filesystem::path& dir);
// Throws BadInput when there is a manifest that add_to_manifest would not add to: another file, a newer schema.
void require_manifest(const std::filesystem::path& dir);
// Adds or replaces one entry, keeping those that others wrote meanwhile. Throws BadInput.
void add_to_manifest(const std::filesystem::path& dir, const std::string& file, const ManifestEntry& entry);
// Sorts by file name and drops what was replaced: the same goldens, the same bytes, whatever made them. Throws BadInput.
void sort_manifest(const std::filesystem::path& dir);

}  // namespace gdn
