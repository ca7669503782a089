// Isolated sessions: the kernel runs in a child that is this program again (worker.h). What the kernel does to its
// process - crash, hang, exit, run out of memory, write where it must not, print - becomes an outcome of one call, and
// the next call gets a new child.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <thread>

#include "kernels/session_common.h"
#include "kernels/worker_protocol.h"

extern char** environ;

namespace gdn {
namespace {

using Clock = std::chrono::steady_clock;
using protocol::Kind;

class File {                                       // a file descriptor
 public:
  explicit File(int fd = -1) : fd_(fd) {}
  ~File() { reset(); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  int get() const { return fd_; }
  void reset(int fd = -1) {
    if (fd_ >= 0) close(fd_);
    fd_ = fd;
  }

 private:
  int fd_;
};

// A memory file with room for one image, mapped here.
class SharedArena {
 public:
  SharedArena(std::size_t size, bool sparse) : size_(size), file_(memfd_create("gdn-cts call", MFD_CLOEXEC)) {
    if (file_.get() < 0 || ftruncate(file_.get(), static_cast<off_t>(size)) != 0) return;
    if (!sparse && posix_fallocate(file_.get(), 0, static_cast<off_t>(size)) != 0) return;
    void* at = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file_.get(), 0);
    if (at != MAP_FAILED) at_ = static_cast<std::byte*>(at);
  }
  ~SharedArena() {
    if (at_) munmap(at_, size_);
  }
  SharedArena(const SharedArena&) = delete;
  SharedArena& operator=(const SharedArena&) = delete;
  std::byte* bytes() const { return at_; }         // nullptr: no memory
  int file() const { return file_.get(); }

 private:
  std::size_t size_;
  File file_;
  std::byte* at_ = nullptr;
};

std::string signal_name(int s) {
  const char* name = sigabbrev_np(s);
  return name ? std::string("SIG") + name : "signal " + std::to_string(s);
}

class Child {
 public:
  explicit Child(std::vector<std::string> arguments, int threads) {
    int pair[2], pipe_ends[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) throw std::runtime_error("no socket for the worker");
    socket_.reset(pair[0]);
    // Away from the numbers that they become in the child.
    const File theirs(fcntl(pair[1], F_DUPFD_CLOEXEC, 10));
    close(pair[1]);
    if (pipe2(pipe_ends, O_CLOEXEC) != 0) throw std::runtime_error("no pipe for the worker");
    output_.reset(pipe_ends[0]);
    const File print(fcntl(pipe_ends[1], F_DUPFD_CLOEXEC, 10));
    close(pipe_ends[1]);
    fcntl(output_.get(), F_SETFL, O_NONBLOCK);

    arguments.insert(arguments.begin() + 1, {"worker", "--fd", "3"});
    std::vector<char*> argv;
    for (std::string& a : arguments) argv.push_back(a.data());
    argv.push_back(nullptr);
    std::vector<std::string> more;
    if (threads > 0) more.push_back("OMP_NUM_THREADS=" + std::to_string(threads));
    if (!std::getenv("OMP_WAIT_POLICY")) more.push_back("OMP_WAIT_POLICY=passive");  // parent and child take turns
    std::vector<char*> environment;
    for (char** e = environ; *e; ++e)
      if (threads <= 0 || std::strncmp(*e, "OMP_NUM_THREADS=", 16) != 0) environment.push_back(*e);
    for (std::string& m : more) environment.push_back(m.data());
    environment.push_back(nullptr);

    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&files, print.get(), 1);
    posix_spawn_file_actions_adddup2(&files, print.get(), 2);
    posix_spawn_file_actions_adddup2(&files, theirs.get(), 3);
    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &all);
    posix_spawnattr_setpgroup(&attributes, 0);     // so that whatever it starts can be ended with it
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
    const int error = posix_spawn(&pid_, argv[0], &files, &attributes, argv.data(), environment.data());
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&attributes);
    if (error) throw std::runtime_error("the worker " + arguments[0] + " cannot be started: " + std::strerror(error));
  }
  ~Child() { kill_now(); }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  bool send(const std::string& packet, int file) {
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    iovec part{const_cast<char*>(packet.data()), packet.size()};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    cmsghdr* c = CMSG_FIRSTHDR(&message);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(c), &file, sizeof file);
    return sendmsg(socket_.get(), &message, MSG_NOSIGNAL) == static_cast<ssize_t>(packet.size());
  }

  enum class Got { packet, hung_up, late };
  Got receive(std::string& packet, Clock::time_point deadline) {
    while (true) {
      const auto left = std::chrono::duration<double, std::milli>(deadline - Clock::now()).count();
      if (left <= 0) return Got::late;
      pollfd ready[2] = {{socket_.get(), POLLIN, 0}, {output_.get(), POLLIN, 0}};
      poll(ready, output_.get() >= 0 ? 2 : 1, static_cast<int>(std::min(left + 1, 1e6)));
      drain();
      if (!ready[0].revents) continue;
      packet.resize(protocol::kMaxPacket);
      const ssize_t n = recv(socket_.get(), packet.data(), packet.size(), MSG_DONTWAIT);
      if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
      packet.resize(n > 0 ? static_cast<std::size_t>(n) : 0);
      return n > 0 ? Got::packet : Got::hung_up;
    }
  }

  // Ends the child and everything it started; says how it ended.
  std::string end() {
    if (pid_ <= 0) return "";
    siginfo_t info{};
    for (int i = 0; i < 200; ++i) {                // it may be dying already, and how is worth knowing
      info.si_pid = 0;
      if (waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid != 0 || asked_) break;
      std::this_thread::sleep_for(std::chrono::milliseconds(i < 100 ? 1 : 10));
    }
    kill(-pid_, SIGKILL);                          // the group still exists as long as its leader is not reaped
    int status = 0;
    while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
    pid_ = -1;
    drain();
    if (info.si_pid == 0) return "was ended";
    if (WIFSIGNALED(status)) return "killed by " + signal_name(WTERMSIG(status)) + (WTERMSIG(status) == SIGKILL ? " (out of memory, or ended from outside)" : "");
    return "exited with status " + std::to_string(WEXITSTATUS(status));
  }
  std::string kill_now() {
    asked_ = true;
    return end();
  }

  // The last line it printed, for messages; printing is no fault.
  std::string last_line() const {
    std::string s = printed_;
    while (!s.empty() && static_cast<unsigned char>(s.back()) <= ' ') s.pop_back();
    s = s.substr(s.find_last_of('\n') + 1).substr(0, 200);
    for (char& c : s)
      if (static_cast<unsigned char>(c) < ' ') c = ' ';
    return s;
  }
  void forget_output() { printed_.clear(); }

 private:
  void drain() {
    char buffer[4096];
    while (output_.get() >= 0) {
      const ssize_t n = read(output_.get(), buffer, sizeof buffer);
      if (n == 0) output_.reset();                 // it closed its output
      if (n <= 0) return;
      printed_.append(buffer, static_cast<std::size_t>(n));
      if (printed_.size() > 8192) printed_.erase(0, printed_.size() - 4096);
    }
  }

  File socket_, output_;
  pid_t pid_ = -1;
  bool asked_ = false;
  std::string printed_;
};

class IsolatedSession : public KernelSession {
 public:
  IsolatedSession(std::string library, std::string kernel, const SessionOptions& o) : options_(o) {
    const char* program = std::getenv("GDN_CTS_PROGRAM");  // the tests are not the program
    arguments_ = {program ? program : "/proc/self/exe"};
    const std::uint64_t memory = o.memory_bytes ? o.memory_bytes
                                                : static_cast<std::uint64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<std::uint64_t>(sysconf(_SC_PAGE_SIZE));
    arguments_.insert(arguments_.end(), {"--kernel", kernel, "--memory", std::to_string(memory)});
    if (!library.empty()) arguments_.insert(arguments_.end(), {"--plugin", library});
    if (const std::string why = start(&info_); !why.empty()) throw std::invalid_argument(why);
    info_.how = library.empty() ? "--kernel " + info_.name : "--plugin " + library + (kernel.empty() ? "" : " --kernel " + kernel);
    info_.module = library;
  }
  const KernelInfo& info() const override { return info_; }

  Execution run(const Run& run, const std::string&) override {
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGE_SIZE));
    return run_in_convention(info_, run, page, [&](const CallImage& image, const TensorSet& inputs) { return call(image, inputs); });
  }

 private:
  static Clock::time_point in(double seconds) {
    return Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(std::min(seconds, 1e8)));
  }

  // Starts a child; empty when it said hello, else why not.
  std::string start(KernelInfo* info) {
    try {
      child_ = std::make_unique<Child>(arguments_, options_.threads);
    } catch (const std::runtime_error& e) {
      return e.what();
    }
    std::string packet;
    const Child::Got got = child_->receive(packet, in(options_.start_seconds));
    std::string why;
    try {
      if (got == Child::Got::packet) {
        protocol::Reader r(packet);
        const Kind kind = r.get<Kind>();
        if (kind == Kind::hello) {
          const auto device = r.get<std::uint32_t>();
          std::string text[7];
          for (std::string& t : text) t = r.text();
          if (info) *info = read_declarations(text[0], text[1], text[2], device == GDN_DEVICE_CUDA, text[3], text[4], text[5], text[6]);
          return "";
        }
        why = kind == Kind::refused ? r.text() : kind == Kind::fault ? packet.substr(1) : "the worker talks nonsense";
      }
    } catch (const std::exception& e) {
      why = e.what();
    }
    const std::string end = got == Child::Got::late ? child_->kill_now() : child_->end();
    if (got == Child::Got::late) why = "the worker did not load the kernel in time";
    else if (got == Child::Got::hung_up) why = "the worker " + end + " while it loaded the kernel" + printed();
    child_.reset();
    return why;
  }

  std::string seconds_text() const {
    char b[40];
    std::snprintf(b, sizeof b, "%g s", options_.timeout_seconds);
    return b;
  }
  std::string printed() const {
    const std::string line = child_->last_line();
    return line.empty() ? "" : ", after printing '" + line + "'";
  }

  Execution call(const CallImage& image, const TensorSet& inputs) {
    Execution e;
    const auto fail = [&](Outcome outcome, const std::string& why) {
      e.outcome = outcome;
      e.message = why;
      return e;
    };
    if (!child_)
      if (const std::string why = start(nullptr); !why.empty()) return fail(Outcome::error, why);
    const SharedArena arena(image.size, image.sparse());
    if (!arena.bytes()) return fail(Outcome::error, "not enough memory for the tensors of this case");
    fill_image(image, inputs, arena.bytes());
    child_->forget_output();
    std::string packet, fault;
    Child::Got got = Child::Got::hung_up;
    bool answered = false;
    const Clock::time_point deadline = in(options_.timeout_seconds);
    if (child_->send(protocol::write_image(image), arena.file())) {
      while ((got = child_->receive(packet, deadline)) == Child::Got::packet) {
        try {
          protocol::Reader r(packet);
          const Kind kind = r.get<Kind>();
          if (kind == Kind::fault) {
            fault = packet.substr(1);
            continue;                              // what follows is its end
          }
          if (kind == Kind::result) {
            e.outcome = r.get<Outcome>();
            e.message = r.text();
            e.seconds = r.get<double>();
            answered = true;
          }
        } catch (const std::runtime_error&) {
        }
        break;
      }
    }
    if (!answered) {
      const std::string end = got == Child::Got::late ? child_->kill_now() : child_->end();
      if (got == Child::Got::late) {
        fail(Outcome::timeout, "no result within " + seconds_text() + printed());
      } else {
        fail(Outcome::crashed, end + (fault.empty() ? "" : ": " + fault) + printed());
        if (!fault.empty()) e.violations.push_back(fault);
      }
      child_.reset();
    }
    TensorSet outputs = collect_image(image, inputs, arena.bytes(), e.violations);
    if (e.outcome == Outcome::ok) e.outputs = std::move(outputs);
    return e;
  }

  SessionOptions options_;
  std::vector<std::string> arguments_;
  KernelInfo info_;
  std::unique_ptr<Child> child_;
};

}  // namespace

std::unique_ptr<KernelSession> open_builtin(const std::string& name, const SessionOptions& o) {
  return std::make_unique<IsolatedSession>("", name, o);
}

std::unique_ptr<KernelSession> open_plugin(const std::string& library, const std::string& kernel, const SessionOptions& o) {
  if (library.empty()) throw std::invalid_argument("no plugin library named");
  return std::make_unique<IsolatedSession>(library, kernel, o);
}

}  // namespace gdn
