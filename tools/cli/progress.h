// Progress on standard error: a bar on a terminal, a plain line every few seconds otherwise.
#pragma once
#include <chrono>
#include <cstddef>
#include <string>

namespace gdn::cli {

class Progress {
 public:
  Progress(std::string what, std::size_t total);
  ~Progress();                                     // removes the bar
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  // part: share of the next step that is already done, 0..1
  void at(std::size_t done, const std::string& detail, double part = 0);

 private:
  std::string what_;
  std::size_t total_;
  std::chrono::steady_clock::time_point start_, last_;
};

void clear_bar();                                  // before anything else is written to the terminal

}  // namespace gdn::cli
