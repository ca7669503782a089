// Progress on standard error; see progress.h.
#include "tools/cli/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>

#include "reports/text.h"

namespace gdn::cli {
namespace {

std::atomic<bool> g_drawn{false};

bool terminal() {
  static const bool yes = [] {
    const char* term = std::getenv("TERM");
    return ::isatty(STDERR_FILENO) && term && std::strcmp(term, "dumb") != 0;
  }();
  return yes;
}

void write_error(const std::string& text) { [[maybe_unused]] const auto n = ::write(STDERR_FILENO, text.data(), text.size()); }

std::size_t columns() {
  winsize w{};
  return ::ioctl(STDERR_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col > 0 ? w.ws_col : 80;
}

}  // namespace

void clear_bar() {
  if (g_drawn.exchange(false)) write_error("\r\x1b[K");
}

Progress::Progress(std::string what) : what_(std::move(what)), start_(std::chrono::steady_clock::now()), last_(start_) {}

Progress::~Progress() { clear_bar(); }

void Progress::at(std::size_t done, std::size_t total, const std::string& detail, double part) {
  using namespace std::chrono;
  const auto now = steady_clock::now();
  const auto quiet = terminal() ? milliseconds(100) : milliseconds(5000);
  if (now - last_ < quiet) return;
  last_ = now;
  const double share = total ? std::clamp((static_cast<double>(done) + part) / static_cast<double>(total), 0.0, 1.0) : 1.0;
  const double seconds = duration<double>(now - start_).count();
  const std::string count = total > 1 ? fmt::format("{}/{} ", done, total) : "";
  if (!terminal()) {
    write_error(fmt::format("gdn-cts: {} {}({:.0f}%, {:.0f} s) {}\n", what_, count, 100 * share, seconds, reports::printable(detail)));
    return;
  }
  constexpr int width = 24;
  const int full = static_cast<int>(share * width);
  std::string line = fmt::format("{} [{:#<{}}{:.<{}}] {}{:.0f} s  {}", what_, "", full, "", width - full, count, seconds, reports::printable(detail));
  if (line.size() >= columns()) line.resize(columns() - 1);   // problem texts are ASCII; a cut character only flickers
  write_error("\r\x1b[K" + line);
  g_drawn = true;
}

}  // namespace gdn::cli
