// Files that appear whole or not at all: written under a temporary name in the same directory, synced, renamed.
// A writer that is killed leaves only its temporary file, which the next writer in that directory removes.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>

namespace gdn {

// Exclusive lock of a directory between processes and threads (flock on DIR/.gdn-lock), held while the object lives.
class DirectoryLock {
 public:
  explicit DirectoryLock(const std::filesystem::path& dir);        // throws BadInput
  ~DirectoryLock();
  DirectoryLock(const DirectoryLock&) = delete;
  DirectoryLock& operator=(const DirectoryLock&) = delete;
 private:
  int fd_ = -1;
};

// Names that belong to this machinery and are no content of a directory.
bool is_temporary_name(const std::string& name);
bool is_lock_name(const std::string& name);

class AtomicFile {
 public:
  // Creates the temporary file beside `target`, and removes leftovers of dead writers there. durable: fsync
  // before the rename; off for files that live shorter than the program.
  explicit AtomicFile(std::filesystem::path target, bool durable = true);   // throws BadInput
  ~AtomicFile();                                   // removes the temporary file unless committed
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  const std::filesystem::path& temporary() const { return temporary_; }
  void write(const std::string& text);             // the whole content, for text files; throws BadInput
  // Takes disk space for `bytes` now, so that a full disk is found before the work and never inside HDF5, which
  // does not survive a failed write when it closes a file. Throws BadInput. File systems that cannot: no effect.
  void reserve(std::uint64_t bytes);
  void trim(std::uint64_t bytes);                  // gives back what lies past `bytes`; throws BadInput
  void commit();                                   // throws BadInput
 private:
  std::filesystem::path target_, temporary_;
  int fd_ = -1;
  bool durable_;
};

// "FILE: cannot DO: reason" from errno.
std::string errno_line(const std::filesystem::path& file, const std::string& what);

}  // namespace gdn
