// gdn-cts: main program. Every error leaves as one line and an exit status; Ctrl-C and closed pipes leave nothing behind.
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <filesystem>
#include <new>
#include <thread>

#include "golden/atomic_file.h"
#include "golden/store.h"
#include "kernels/worker.h"
#include "reports/file.h"
#include "tools/cli/command.h"
#include "tools/cli/parse.h"
#include "tools/cli/progress.h"

namespace gdn::cli {
namespace {

std::vector<Command*>& registry() {
  static std::vector<Command*> r;
  return r;
}

std::string g_program = "gdn-cts";
std::atomic<bool> g_closed{false};                 // whoever read standard output went away
bool g_no_output = false;                          // the caller closed it before we began
std::atomic<bool> g_lost{false};                   // and something was to be printed

// Stopping: the handlers only write the signal's number into a pipe; a thread does the rest. Handlers (unlike blocked
// or ignored signals) are reset when a kernel's process is started, which must die of its own Ctrl-C.
int g_stop_pipe[2] = {-1, -1};

void on_stop(int signal) {
  const int saved = errno;
  const auto number = static_cast<unsigned char>(signal);
  [[maybe_unused]] const auto n = ::write(g_stop_pipe[1], &number, 1);
  errno = saved;
}

void on_pipe(int) {}                               // writes fail with EPIPE instead

// What this process is writing right now it holds open under a temporary name.
void remove_temporary_files() {
  std::error_code code;
  for (std::filesystem::directory_iterator i("/proc/self/fd", code), end; !code && i != end; i.increment(code)) {
    std::error_code ignored;
    const std::filesystem::path file = std::filesystem::read_symlink(i->path(), ignored);
    const std::string name = file.filename().string(), suffix = temporary_suffix();
    const bool ours = name.size() > suffix.size() && name.compare(name.size() - suffix.size(), suffix.size(), suffix) == 0;
    if (ours || is_temporary_name(name)) std::filesystem::remove(file, ignored);
  }
}

void wait_for_stop() {
  unsigned char number = 0;
  while (::read(g_stop_pipe[0], &number, 1) < 0 && errno == EINTR) {
  }
  if (number == 0) return;
  clear_bar();
  remove_temporary_files();
  note(number == SIGINT ? "interrupted" : "terminated");
  ::_exit(128 + number);
}

void handle_signals() {
  struct sigaction action {};
  action.sa_handler = on_pipe;
  ::sigaction(SIGPIPE, &action, nullptr);
  if (::pipe2(g_stop_pipe, O_CLOEXEC) != 0) return;
  std::thread(wait_for_stop).detach();
  action.sa_handler = on_stop;
  action.sa_flags = SA_RESTART;
  for (int s : {SIGINT, SIGTERM, SIGHUP}) ::sigaction(s, &action, nullptr);
}

[[noreturn]] void on_terminate() {
  clear_bar();
  remove_temporary_files();
  note("internal error: an exception escaped or a thread failed; please report it with the command line");
  ::_exit(3);
}

std::string one_line(std::string text) {
  for (char& c : text)
    if (c == '\n' || c == '\r') c = ' ';
  while (!text.empty() && text.back() == ' ') text.pop_back();
  constexpr std::size_t longest = 400;             // a whole file given as an argument would bury what is wrong with it
  if (text.size() > longest) text = text.substr(0, longest / 2) + " [...] " + text.substr(text.size() - longest / 2);
  return text;
}

int fail(int status, const std::string& text) {
  clear_bar();
  note(one_line(text));
  return status;
}

int run(int argc, char** argv) {
  std::vector<Command*>& commands = registry();
  std::sort(commands.begin(), commands.end(), [](auto* a, auto* b) { return a->order() < b->order(); });
  try {
    const Parsed p = parse_command_line(argc, argv, commands);
    if (!p.command) {
      print(p.text);
      return 0;
    }
    handle_signals();
    std::set_terminate(on_terminate);
    return p.command->run();
  } catch (const std::bad_alloc&) {
    return fail(3, "out of memory");
  } catch (const Usage& e) {
    return fail(2, e.what());
  } catch (const BadInput& e) {
    return fail(2, e.what());
  } catch (const std::invalid_argument& e) {
    return fail(2, e.what());
  } catch (const std::exception& e) {
    return fail(3, std::string("could not run: ") + e.what());
  } catch (...) {
    return fail(3, "internal error: unknown exception");
  }
}

}  // namespace

RegisterCommand::RegisterCommand(Command* c) { registry().push_back(c); }

void print(std::string_view text) {
  if (g_closed || text.empty()) return;
  if (g_no_output) g_lost = true;                  // said at the end, so that the files of a run are written all the same
  if (std::fwrite(text.data(), 1, text.size(), stdout) == text.size()) return;
  const int error = errno;
  g_closed = true;
  if (error != EPIPE) throw std::runtime_error(std::string("cannot write to standard output: ") + std::strerror(error));
}

void note(std::string_view text) {
  const std::string line = "gdn-cts: " + std::string(text) + "\n";
  [[maybe_unused]] const auto n = ::write(STDERR_FILENO, line.data(), line.size());
}

bool colour_output() {
  const char* no = std::getenv("NO_COLOR");
  const char* term = std::getenv("TERM");
  return ::isatty(STDOUT_FILENO) && !(no && *no) && !(term && std::strcmp(term, "dumb") == 0);
}

std::string shell_quote(std::string_view text) {
  constexpr std::string_view safe = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_@%+=:,./-";
  if (!text.empty() && text.find_first_not_of(safe) == std::string_view::npos) return std::string(text);
  std::string q = "'";
  for (char c : text) c == '\'' ? q += "'\\''" : q += c;
  return q + "'";
}

std::string invocation() { return shell_quote(g_program); }

std::string as_invoked(const std::string& line) {
  return line.compare(0, 8, "gdn-cts ") == 0 ? invocation() + line.substr(7) : line;
}

}  // namespace gdn::cli

int main(int argc, char** argv) {
  using namespace gdn::cli;
  // A descriptor that the caller closed would be taken by the next file opened, and printed into.
  for (int fd = 0; fd <= 2; ++fd) {
    if (::fcntl(fd, F_GETFD) >= 0) continue;
    ::open("/dev/null", fd == 0 ? O_RDONLY : O_WRONLY);
    if (fd == 1) g_no_output = true;
  }
  if (const auto status = gdn::run_as_worker(argc, argv)) return *status;
  if (argc > 0 && argv[0][0]) g_program = argv[0];
  int status = run(argc, argv);
  // Everything printed must have arrived, unless the reader went away.
  if (std::fflush(stdout) != 0 && errno != EPIPE && !g_closed)
    status = fail(3, std::string("cannot write to standard output: ") + std::strerror(errno));
  if (g_lost) status = fail(3, "cannot write to standard output: it is closed");
  std::fflush(stderr);
  return status;
}
