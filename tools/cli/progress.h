// Progress on standard error: a bar on a terminal, a plain line every few seconds otherwise.
#pragma once
#include <chrono>
#include <cstddef>
#include <string>

namespace gdn::cli {

class Progress {
 public:
  explicit Progress(std::string what);
  ~Progress();                                     // removes the bar
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  // part: share of the next step that is already done, 0..1
  void at(std::size_t done, std::size_t total, const std::string& detail, double part = 0);

 private:
  std::string what_;
  std::chrono::steady_clock::time_point start_, last_;
};

void clear_bar();                                  // before anything else is written to the terminal

}  // namespace gdn::cli
