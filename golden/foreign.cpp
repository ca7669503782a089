// Reading of foreign files in a child process; see foreign.h.
#include "golden/foreign.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <new>

#include "golden/hdf5.h"
#include "golden/store.h"

namespace gdn {
namespace fs = std::filesystem;
namespace {

constexpr rlim_t kCpuSeconds = 20;                 // and one for every 16 MiB

// A pipe as a stream of plain values and blocks. A write that fails ends the child, a read that ends early the message.
struct Out {
  int fd;
  void block(const void* data, std::size_t n) const {
    const char* p = static_cast<const char*>(data);
    while (n > 0) {
      const ssize_t w = ::write(fd, p, n);
      if (w < 0 && errno == EINTR) continue;
      if (w <= 0) ::_exit(3);
      p += w;
      n -= static_cast<std::size_t>(w);
    }
  }
  template <class T> void value(const T& x) const { block(&x, sizeof x); }
  void text(const std::string& s) const {
    value<std::uint64_t>(s.size());
    block(s.data(), s.size());
  }
};

struct Short {};
struct In {
  int fd;
  void block(void* data, std::size_t n) const {
    char* p = static_cast<char*>(data);
    while (n > 0) {
      const ssize_t r = ::read(fd, p, n);
      if (r < 0 && errno == EINTR) continue;
      if (r <= 0) throw Short{};
      p += r;
      n -= static_cast<std::size_t>(r);
    }
  }
  template <class T> T value() const {
    T x;
    block(&x, sizeof x);
    return x;
  }
  std::string text() const {
    std::string s(value<std::uint64_t>(), '\0');
    block(s.data(), s.size());
    return s;
  }
};

// In the child; the parent's thread holds the lock for it.
void send(const fs::path& file, const std::string& group, bool data, const Out& out) {
  const h5::File f = h5::open_readonly(file);
  const rlim_t seconds = kCpuSeconds + static_cast<rlim_t>(f.bytes >> 24);
  const rlimit cpu{seconds, seconds};
  ::setrlimit(RLIMIT_CPU, &cpu);
  const h5::Id g = h5::open_group(f, group);
  const std::string where = "group " + group;
  const auto scale = h5::number_attribute(f, g, where, "scale");
  const auto convention = h5::text_attribute(f, g, where, "convention");
  out.value<char>('S');
  out.value<bool>(scale.has_value());
  out.value<double>(scale.value_or(0));
  out.text(convention.value_or(""));
  if (data)
    for (const std::string& name : h5::members(f, group)) {
      const h5::Dataset d = h5::open_dataset(f, (group.empty() || group.back() != '/' ? group + "/" : group) + name);
      const Tensor t = h5::read_tensor(f, d);
      out.value<char>('T');
      out.text(name);
      out.value(t.dtype);
      out.value<std::uint64_t>(t.shape.size());
      out.block(t.shape.data(), t.shape.size() * sizeof(std::int64_t));
      out.block(t.data.data(), t.data.size());
    }
  out.value<char>('.');
}

Foreign receive(const In& in, std::string& error) {
  Foreign f;
  for (;;) switch (in.value<char>()) {
      case 'S': {
        const bool has = in.value<bool>();
        const double x = in.value<double>();
        if (has) f.scale = x;
        f.convention = in.text();
        break;
      }
      case 'T': {
        const std::string name = in.text();
        const DType t = in.value<DType>();
        std::vector<std::int64_t> shape(in.value<std::uint64_t>());
        in.block(shape.data(), shape.size() * sizeof(std::int64_t));
        Tensor x(t, std::move(shape));
        in.block(x.data.data(), x.data.size());
        f.tensors.emplace(name, std::move(x));
        break;
      }
      case 'E': error = in.text(); return f;
      default: return f;
    }
}

}  // namespace

Foreign read_foreign(const fs::path& file, const std::string& group, bool data) {
  const auto held = h5::lock();                    // so that the child finds HDF5 in a consistent state
  int ends[2];
  if (::pipe(ends) != 0) throw BadInput(file.string() + ": cannot read: " + std::strerror(errno));
  const pid_t child = ::fork();
  if (child < 0) {
    const int e = errno;
    ::close(ends[0]);
    ::close(ends[1]);
    throw BadInput(file.string() + ": cannot read: " + std::strerror(e));
  }
  if (child == 0) {
    ::close(ends[0]);
    for (int s : {SIGSEGV, SIGBUS, SIGFPE, SIGABRT, SIGILL}) ::signal(s, SIG_DFL);
    const rlimit none{0, 0};
    ::setrlimit(RLIMIT_CORE, &none);
    const Out out{ends[1]};
    try {
      send(file, group, data, out);
    } catch (const std::exception& e) {
      out.value<char>('E');
      out.text(dynamic_cast<const std::bad_alloc*>(&e) ? file.string() + ": does not fit into memory" : std::string(e.what()));
    }
    ::_exit(0);
  }
  ::close(ends[1]);
  Foreign result;
  std::string error;
  bool complete = true;
  try {
    result = receive(In{ends[0]}, error);
  } catch (const Short&) {
    complete = false;
  } catch (const std::bad_alloc&) {
    error = file.string() + ": does not fit into memory";
  }
  ::close(ends[0]);                                // a child that still writes ends by SIGPIPE or an error
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (!error.empty()) throw BadInput(error);
  if (!complete) {
    const std::string how = !WIFSIGNALED(status) ? "stopped" : WTERMSIG(status) == SIGXCPU || WTERMSIG(status) == SIGKILL ? "did not come to an end" : "crashed, signal " + std::to_string(WTERMSIG(status));
    throw BadInput(file.string() + ": damaged HDF5 file (the HDF5 library " + how + " while reading it)");
  }
  return result;
}

}  // namespace gdn
