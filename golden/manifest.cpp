// The manifest of a golden directory; see manifest.h.
#include "golden/manifest.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "golden/atomic_file.h"
#include "golden/store.h"

namespace gdn {
namespace fs = std::filesystem;
using nlohmann::json;
namespace {

std::string head() { return json{{"schema", "gdn-manifest"}, {"schema_version", kManifestSchemaVersion}}.dump() + "\n"; }

std::string line(const std::string& file, const ManifestEntry& e) {
  return json{{"file", file}, {"case_id", e.case_id}, {"sha256", e.sha256}, {"edition", e.edition}, {"bytes", e.bytes}}.dump() + "\n";
}

BadInput bad(const fs::path& file, const std::string& what) { return BadInput(file.string() + ": " + what); }

// What a manifest begins with. text: at least the first line; nothing, or a head that breaks off, is a manifest without lines.
void require_head(const fs::path& file, const std::string& text) {
  const std::size_t end = text.find('\n');
  if (end == std::string::npos && head().compare(0, text.size(), text) == 0) return;
  const json j = json::parse(text.substr(0, end), nullptr, false);
  if (j.is_discarded() || !j.is_object()) throw bad(file, "does not begin with a JSON object; remove it and the golden files, and generate again");
  const auto version = j.find("schema_version");
  if (j.value("schema", json()) != "gdn-manifest" || version == j.end() || !version->is_number_integer()) throw bad(file, "is not a gdn-manifest");
  if (*version > kManifestSchemaVersion)
    throw bad(file, "schema version " + version->dump() + " is newer than " + std::to_string(kManifestSchemaVersion) + ", the newest this program reads");
  if (*version < kManifestSchemaVersion) throw bad(file, "is of an older schema; remove it and the golden files, and generate again");
}

std::string contents(const fs::path& file, std::size_t most) {
  std::error_code ec;
  const fs::file_status status = fs::status(file, ec);
  if (!fs::exists(status)) return {};
  if (!fs::is_regular_file(status)) throw bad(file, "is not a regular file");
  std::ifstream in(file, std::ios::binary);
  if (!in) throw bad(file, "cannot be read");
  std::string text(std::min<std::uintmax_t>(most, fs::file_size(file, ec)), '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(in.gcount()));
  return text;
}

}  // namespace

Manifest read_manifest(const fs::path& dir) {
  const fs::path file = dir / kManifestName;
  const std::string text = contents(file, SIZE_MAX);
  require_head(file, text);
  Manifest m;
  std::size_t number = 1;
  for (std::size_t begin = text.find('\n'), end; begin != std::string::npos && (end = text.find('\n', begin + 1)) != std::string::npos; begin = end) {
    const json j = json::parse(text.substr(begin + 1, end - begin - 1), nullptr, false);
    ++number;
    try {
      m[j.at("file").get<std::string>()] = {j.at("case_id").get<std::string>(), j.at("sha256").get<std::string>(), j.at("edition").get<std::string>(),
                                            j.at("bytes").get<std::uint64_t>()};
    } catch (const json::exception&) {
      throw bad(file, "line " + std::to_string(number) + " needs file, case_id, sha256, edition and bytes");
    }
  }
  return m;
}

void require_manifest(const fs::path& dir) { require_head(dir / kManifestName, contents(dir / kManifestName, 4096)); }

void add_to_manifest(const fs::path& dir, const std::string& file, const ManifestEntry& entry) {
  const fs::path path = dir / kManifestName;
  const DirectoryLock lock(dir);
  require_manifest(dir);
  const struct Descriptor {
    int fd;
    ~Descriptor() { if (fd >= 0) ::close(fd); }
  } out{::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666)};
  struct stat status {};
  if (out.fd < 0 || ::fstat(out.fd, &status) != 0) throw BadInput(errno_line(path, "write"));
  off_t end = status.st_size;
  // A line that breaks off is taken back. It is short, and rare: byte by byte.
  for (char c; end > 0 && ::pread(out.fd, &c, 1, end - 1) == 1 && c != '\n';) --end;
  if (end < status.st_size && ::ftruncate(out.fd, end) != 0) throw BadInput(errno_line(path, "write"));
  const std::string text = (end == 0 ? head() : "") + line(file, entry);
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t n = ::pwrite(out.fd, text.data() + done, text.size() - done, end + static_cast<off_t>(done));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) throw BadInput(errno_line(path, "write"));    // what there is of the line breaks off, and does not count
    done += static_cast<std::size_t>(n);
  }
}

void sort_manifest(const fs::path& dir) {
  // The temporary file comes first: creating it takes the directory's lock for a moment, too.
  AtomicFile out(dir / kManifestName);
  const DirectoryLock lock(dir);
  std::string text = head();
  for (const auto& [name, e] : read_manifest(dir)) text += line(name, e);
  if (text == contents(dir / kManifestName, SIZE_MAX)) return;
  out.write(text);
  out.commit();
}

}  // namespace gdn
