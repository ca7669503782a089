// Starting, asking and ending an adapter's process; see adapter_process.h.
#include "kernels/adapter_process.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <system_error>
#include <vector>

extern char** environ;

namespace gdn {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::size_t kLongestLine = 1 << 20, kStderrTail = 4096;
constexpr int kTick = 50;                          // milliseconds between looks whether the process still lives

void close_fd(int& fd) {
  if (fd >= 0) ::close(fd);
  fd = -1;
}

std::string signal_text(int number) {
  const char* name = sigabbrev_np(number);
  return "signal " + std::to_string(number) + (name ? " (SIG" + std::string(name) + ")" : "");
}

// Writing to a pipe whose reader died raises SIGPIPE, whose disposition is not a library's to change.
ssize_t write_quietly(int fd, const char* data, std::size_t n) {
  sigset_t pipe_signal, before, pending;
  sigemptyset(&pipe_signal);
  sigaddset(&pipe_signal, SIGPIPE);
  sigpending(&pending);
  const bool was_pending = sigismember(&pending, SIGPIPE) == 1;
  pthread_sigmask(SIG_BLOCK, &pipe_signal, &before);
  const ssize_t written = ::write(fd, data, n);
  const int error = errno;
  if (written < 0 && error == EPIPE && !was_pending) {
    const timespec now{};
    while (sigtimedwait(&pipe_signal, nullptr, &now) < 0 && errno == EINTR) {
    }
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  errno = error;
  return written;
}

// Processes below `root`, also those that left its process group (for as long as their parents live).
std::vector<pid_t> descendants(pid_t root) {
  std::multimap<pid_t, pid_t> children;
  if (DIR* proc = ::opendir("/proc")) {
    while (const dirent* entry = ::readdir(proc)) {
      const pid_t pid = static_cast<pid_t>(std::strtol(entry->d_name, nullptr, 10));
      if (pid <= 0) continue;
      char text[512] = {};
      if (std::FILE* f = std::fopen(("/proc/" + std::string(entry->d_name) + "/stat").c_str(), "r")) {
        if (std::fread(text, 1, sizeof text - 1, f) > 0)
          if (const char* after_name = std::strrchr(text, ')')) {   // a name may hold spaces and brackets
            int parent = 0;
            if (std::sscanf(after_name + 1, " %*c %d", &parent) == 1) children.emplace(parent, pid);
          }
        std::fclose(f);
      }
    }
    ::closedir(proc);
  }
  std::vector<pid_t> found{root};
  for (std::size_t i = 0; i < found.size(); ++i) {
    const auto [first, last] = children.equal_range(found[i]);
    for (auto c = first; c != last; ++c) found.push_back(c->second);
  }
  found.erase(found.begin());
  return found;
}

}  // namespace

std::string escaped(const std::string& text, std::size_t limit) {
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    char piece[8];
    if (byte >= 0x20 && byte < 0x7f) std::snprintf(piece, sizeof piece, "%c", c);
    else std::snprintf(piece, sizeof piece, "\\x%02x", byte);
    if (out.size() + std::strlen(piece) > limit) return out + "...";
    out += piece;
  }
  return out;
}

AdapterProcess::AdapterProcess(const std::string& command, int threads, const std::string& python_path) {
  int in[2] = {-1, -1}, out[2] = {-1, -1}, err[2] = {-1, -1};
  if (::pipe2(in, O_CLOEXEC) || ::pipe2(out, O_CLOEXEC) || ::pipe2(err, O_CLOEXEC)) {
    const int error = errno;
    for (int* fd : {in, in + 1, out, out + 1, err, err + 1}) close_fd(*fd);
    throw std::system_error(error, std::generic_category(), "no pipe for the adapter");
  }
  std::vector<std::string> environment;
  static constexpr const char* kThreads[] = {"OMP_NUM_THREADS=", "OPENBLAS_NUM_THREADS=", "MKL_NUM_THREADS="};
  std::string search = python_path;
  for (char** e = environ; *e; ++e) {
    bool replaced = false;
    for (const char* t : kThreads) replaced = replaced || (threads > 0 && std::strncmp(*e, t, std::strlen(t)) == 0);
    if (!python_path.empty() && std::strncmp(*e, "PYTHONPATH=", 11) == 0) {
      search = python_path + (e[0][11] ? ":" : "") + (*e + 11);
      replaced = true;
    }
    if (!replaced) environment.emplace_back(*e);
  }
  if (!search.empty()) environment.push_back("PYTHONPATH=" + search);
  if (threads > 0)
    for (const char* t : kThreads) environment.push_back(t + std::to_string(threads));
  std::vector<char*> env, args;
  for (std::string& e : environment) env.push_back(e.data());
  env.push_back(nullptr);
  std::string words[] = {"sh", "-c", command};
  for (std::string& w : words) args.push_back(w.data());
  args.push_back(nullptr);

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in[0], 0);
  posix_spawn_file_actions_adddup2(&actions, out[1], 1);
  posix_spawn_file_actions_adddup2(&actions, err[1], 2);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  const int error = posix_spawn(&pid_, "/bin/sh", &actions, &attributes, args.data(), env.data());
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  close_fd(in[0]);
  close_fd(out[1]);
  close_fd(err[1]);
  in_ = in[1];
  out_ = out[0];
  err_ = err[0];
  if (error) {
    pid_ = -1;
    end(false);
    throw std::system_error(error, std::generic_category(), "the adapter's shell could not be started");
  }
  for (int fd : {in_, out_, err_}) ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK);
}

AdapterProcess::~AdapterProcess() { end(true); }
void AdapterProcess::kill() { end(false); }

bool AdapterProcess::exited() const {
  siginfo_t info{};
  return ::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == pid_;
}

void AdapterProcess::end(bool ask) {
  close_fd(in_);
  if (pid_ > 0) {
    if (ask)
      for (const auto until = Clock::now() + std::chrono::seconds(2); !exited() && Clock::now() < until;) {
        read_into(out_, output_, kLongestLine);    // it must not hang on a full pipe
        output_.clear();
        read_into(err_, errors_, kStderrTail);
        ::usleep(2000);
      }
    const std::vector<pid_t> strays = descendants(pid_);
    ::kill(-pid_, SIGKILL);
    for (pid_t p : strays) ::kill(p, SIGKILL);
    while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
  pid_ = -1;
  close_fd(out_);
  close_fd(err_);
}

void AdapterProcess::read_into(int& fd, std::string& buffer, std::size_t keep) {
  char block[65536];
  for (int blocks = 0; blocks < 32 && fd >= 0 && buffer.size() <= keep; ++blocks) {   // a flood must not hold us here
    const ssize_t n = ::read(fd, block, sizeof block);
    if (n > 0) {
      buffer.append(block, static_cast<std::size_t>(n));
      if (&buffer == &errors_ && buffer.size() > keep) buffer.erase(0, buffer.size() - keep);
    } else if (n == 0) {
      close_fd(fd);
    } else if (errno != EINTR) {
      return;
    }
  }
}

std::string AdapterProcess::with_stderr(const std::string& what) const {
  std::string text = errors_;
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r' || text.back() == ' ')) text.pop_back();
  const auto at = text.rfind('\n');
  const std::string line = escaped(at == std::string::npos ? text : text.substr(at + 1), 300);
  return line.empty() ? what + "; nothing on stderr" : what + "; last line on stderr: " + line;
}

std::string AdapterProcess::how_it_died() {
  siginfo_t info{};
  ::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT);
  read_into(err_, errors_, kStderrTail);
  if (info.si_code != CLD_EXITED) return with_stderr("killed by " + signal_text(info.si_status));
  std::string what = "ended with exit status " + std::to_string(info.si_status);
  // A shell reports a command that was killed as 128 + signal.
  if (info.si_status > 128 && sigabbrev_np(info.si_status - 128)) what += ", a shell's word for " + signal_text(info.si_status - 128);
  return with_stderr(what);
}

std::string AdapterProcess::unsolicited() {
  read_into(out_, output_, kLongestLine);
  return output_;
}

AdapterProcess::Reply AdapterProcess::exchange(const std::string& request, double timeout_seconds) {
  const auto deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(timeout_seconds));
  std::string to_write = request + "\n";
  for (;;) {
    const bool dead = exited();                    // asked before the last read: nothing it wrote is missed
    read_into(out_, output_, kLongestLine);
    read_into(err_, errors_, kStderrTail);
    if (const auto at = output_.find('\n'); at != std::string::npos) {
      Reply reply{Event::line, output_.substr(0, at)};
      output_.erase(0, at + 1);
      return reply;
    }
    if (output_.size() > kLongestLine)
      return {Event::flood, with_stderr("more than 1 MiB on stdout without a line end: '" + escaped(output_, 80) + "'")};
    if (dead) {
      std::string partial;
      if (!output_.empty()) partial = " in the middle of a line on stdout ('" + escaped(output_, 80) + "')";
      std::string how = how_it_died();
      return {Event::died, partial.empty() ? how : how.insert(how.find(';'), partial)};
    }
    const auto now = Clock::now();
    if (out_ < 0) {                                // alive or dying: death has the better message
      if (exited()) continue;
      ::usleep(20000);
      if (exited()) continue;
      return {Event::closed, with_stderr("closed its stdout without an answer")};
    }
    if (now >= deadline) {
      char limit[32];
      std::snprintf(limit, sizeof limit, "%g", timeout_seconds);
      return {Event::silent, with_stderr(std::string("no answer within ") + limit + " s")};
    }
    if (!to_write.empty() && in_ >= 0) {
      const ssize_t n = write_quietly(in_, to_write.data(), to_write.size());
      if (n > 0) to_write.erase(0, static_cast<std::size_t>(n));
      else if (n < 0 && errno == EPIPE) close_fd(in_);   // it no longer reads: dead, or silent
    }
    std::vector<pollfd> fds{{out_, POLLIN, 0}};
    if (err_ >= 0) fds.push_back({err_, POLLIN, 0});
    if (!to_write.empty() && in_ >= 0) fds.push_back({in_, POLLOUT, 0});
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - now).count() + 1;
    ::poll(fds.data(), fds.size(), static_cast<int>(left < kTick ? left : kTick));
  }
}

}  // namespace gdn
