// The manifest of a golden directory; see manifest.h.
#include "golden/manifest.h"

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "golden/atomic_file.h"
#include "golden/store.h"

namespace gdn {
namespace fs = std::filesystem;
using nlohmann::json;

Manifest read_manifest(const fs::path& dir) {
  const fs::path file = dir / kManifestName;
  const auto bad = [&](const std::string& what) -> BadInput { return BadInput(file.string() + ": " + what); };
  std::error_code ec;
  const fs::file_status status = fs::status(file, ec);
  if (!fs::exists(status)) return {};
  if (!fs::is_regular_file(status)) throw bad("is not a regular file");
  std::ifstream in(file, std::ios::binary);
  std::ostringstream text;
  if (!in || !(text << in.rdbuf())) throw bad("cannot be read");
  const json j = json::parse(text.str(), nullptr, false);
  if (j.is_discarded() || !j.is_object()) throw bad("is not a JSON object; remove it and the golden files, and generate again");
  const auto version = j.find("schema_version");
  if (j.value("schema", json()) != "gdn-manifest" || version == j.end() || !version->is_number_integer()) throw bad("is not a gdn-manifest");
  if (*version > kManifestSchemaVersion)
    throw bad("schema version " + version->dump() + " is newer than " + std::to_string(kManifestSchemaVersion) + ", the newest this program reads");
  const auto files = j.find("files");
  if (files == j.end() || !files->is_object()) throw bad("has no object 'files'");
  Manifest m;
  for (const auto& [name, entry] : files->items()) {
    try {
      m[name] = {entry.at("case_id").get<std::string>(), entry.at("sha256").get<std::string>(), entry.at("edition").get<std::string>(),
                 entry.at("bytes").get<std::uint64_t>()};
    } catch (const json::exception&) {
      throw bad("entry '" + name.substr(0, 200) + "' needs case_id, sha256, edition and bytes");
    }
  }
  return m;
}

void add_to_manifest(const fs::path& dir, const std::string& file, const ManifestEntry& entry) {
  // The temporary file comes first: creating it takes the directory's lock for a moment, too.
  AtomicFile out(dir / kManifestName);
  const DirectoryLock lock(dir);
  Manifest m = read_manifest(dir);
  if (const auto old = m.find(file); old != m.end() && old->second == entry) return;
  m[file] = entry;
  json files = json::object();
  for (const auto& [name, e] : m) files[name] = {{"case_id", e.case_id}, {"sha256", e.sha256}, {"edition", e.edition}, {"bytes", e.bytes}};
  const json j = {{"schema", "gdn-manifest"}, {"schema_version", kManifestSchemaVersion}, {"files", std::move(files)}};
  out.write(j.dump(1) + "\n");
  out.commit();
}

}  // namespace gdn
