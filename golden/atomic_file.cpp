// Atomic files and directory locks; see atomic_file.h.
#include "golden/atomic_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>

#include "golden/store.h"

namespace gdn {
namespace fs = std::filesystem;
namespace {
constexpr const char* kTemporaryPrefix = ".gdn-tmp.";
constexpr const char* kLockName = ".gdn-lock";

fs::path directory_of(const fs::path& file) { return file.has_parent_path() ? file.parent_path() : fs::path("."); }

// A temporary file whose lock nobody holds belongs to a writer that is gone. Call under the directory's lock, so that
// no writer stands between creating its file and locking it.
void remove_leftovers(const fs::path& dir) {
  std::error_code ec;
  for (fs::directory_iterator it(dir, ec), end; !ec && it != end; it.increment(ec)) {
    if (!is_temporary_name(it->path().filename().string())) continue;
    const int fd = ::open(it->path().c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0) continue;
    if (::flock(fd, LOCK_EX | LOCK_NB) == 0) ::unlink(it->path().c_str());
    ::close(fd);
  }
}
}  // namespace

std::string errno_line(const fs::path& file, const std::string& what) {
  const int e = errno;
  return file.string() + ": cannot " + what + ": " + std::strerror(e);
}

bool is_temporary_name(const std::string& name) { return name.rfind(kTemporaryPrefix, 0) == 0; }
bool is_lock_name(const std::string& name) { return name == kLockName; }

DirectoryLock::DirectoryLock(const fs::path& dir) {
  const fs::path file = dir / kLockName;
  fd_ = ::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (fd_ < 0) throw BadInput(errno_line(dir, "write in this directory"));
  int r;
  do r = ::flock(fd_, LOCK_EX);
  while (r != 0 && errno == EINTR);
  if (r != 0) {
    const std::string line = errno_line(file, "lock");
    ::close(fd_);
    throw BadInput(line);
  }
}

DirectoryLock::~DirectoryLock() { ::close(fd_); }

AtomicFile::AtomicFile(fs::path target, bool durable) : target_(std::move(target)), durable_(durable) {
  static std::atomic<unsigned> counter{0};
  const fs::path dir = directory_of(target_);
  std::error_code ec;
  if (fs::is_directory(target_, ec)) throw BadInput(target_.string() + ": cannot write: is a directory");
  const auto create = [&] {
    temporary_ = dir / (kTemporaryPrefix + std::to_string(::getpid()) + "." + std::to_string(counter++));
    ::unlink(temporary_.c_str());                  // left by a dead process that had the same id
    fd_ = ::open(temporary_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd_ < 0) throw BadInput(errno_line(target_, "write"));
  };
  if (!durable_) {
    create();
    return;
  }
  const DirectoryLock lock(dir);
  remove_leftovers(dir);
  create();
  ::flock(fd_, LOCK_EX | LOCK_NB);                 // marks it as alive
}

AtomicFile::~AtomicFile() {
  if (fd_ >= 0) {
    ::unlink(temporary_.c_str());
    ::close(fd_);
  }
}

void AtomicFile::write(const std::string& text) {
  reserve(text.size());
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t n = ::pwrite(fd_, text.data() + done, text.size() - done, static_cast<off_t>(done));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) throw BadInput(errno_line(target_, "write"));
    done += static_cast<std::size_t>(n);
  }
}

void AtomicFile::reserve(std::uint64_t bytes) {
  const std::string what = "write (needs up to " + std::to_string(bytes) + " bytes)";
  rlimit limit{};
  if (::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY && bytes > limit.rlim_cur) {
    errno = EFBIG;                                 // found here, as the system would also send SIGXFSZ
    throw BadInput(errno_line(target_, what));
  }
#ifdef __linux__
  int r;
  do r = ::fallocate(fd_, 0, 0, static_cast<off_t>(bytes));
  while (r != 0 && errno == EINTR);
  if (r != 0 && errno != EOPNOTSUPP && errno != ENOSYS) throw BadInput(errno_line(target_, what));
#endif
}

void AtomicFile::trim(std::uint64_t bytes) {
  if (::ftruncate(fd_, static_cast<off_t>(bytes)) != 0) throw BadInput(errno_line(target_, "write"));
}

void AtomicFile::commit() {
  if (durable_ && ::fsync(fd_) != 0) throw BadInput(errno_line(target_, "write"));
  if (::rename(temporary_.c_str(), target_.c_str()) != 0) throw BadInput(errno_line(target_, "write"));
  ::close(fd_);
  fd_ = -1;
}

}  // namespace gdn
