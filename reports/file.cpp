// Files written whole or not at all; see file.h.
#include "reports/file.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <stdexcept>

namespace gdn {
namespace fs = std::filesystem;

std::string temporary_suffix() { return ".tmp" + std::to_string(::getpid()); }

void write_file(const std::string& file, std::string_view content) {
  std::error_code code;
  fs::path target = file;
  const fs::path linked = fs::canonical(target, code);  // write through a symbolic link instead of replacing it
  if (!code) target = linked;
  const bool direct = fs::exists(target, code) && !fs::is_regular_file(target, code);
  const std::string name = direct ? target.string() : target.string() + temporary_suffix();
  auto fail = [&](int error) {
    if (!direct) std::remove(name.c_str());
    throw std::runtime_error("cannot write " + file + ": " + std::strerror(error));
  };
  std::FILE* out = std::fopen(name.c_str(), "wb");
  if (!out) fail(errno);
  const bool written = std::fwrite(content.data(), 1, content.size(), out) == content.size();
  int error = written ? 0 : errno;
  if (std::fclose(out) != 0 && !error) error = errno;
  if (error) fail(error);
  if (!direct && std::rename(name.c_str(), target.c_str()) != 0) fail(errno);
}

std::string read_file(const std::string& file) {
  std::FILE* in = std::fopen(file.c_str(), "rb");
  if (!in) throw std::runtime_error("cannot read " + file + ": " + std::strerror(errno));
  constexpr std::size_t kLargest = std::size_t{1} << 30;  // a million records; /dev/zero never ends
  std::string content;
  char buffer[1 << 16];
  std::size_t n;
  while (content.size() <= kLargest && (n = std::fread(buffer, 1, sizeof buffer, in)) > 0) content.append(buffer, n);
  const int error = std::ferror(in) ? errno : 0;
  std::fclose(in);
  if (error) throw std::runtime_error("cannot read " + file + ": " + std::strerror(error));
  if (content.size() > kLargest) throw std::runtime_error("cannot read " + file + ": more than 1 GiB");
  return content;
}

void for_each_line(const std::string& file, const std::function<void(const std::string&)>& f) {
  const std::string content = read_file(file);
  std::size_t number = 0;
  for (std::size_t begin = 0; begin < content.size();) {
    ++number;
    const std::size_t end = std::min(content.find('\n', begin), content.size());
    const std::string line = content.substr(begin, end - begin);
    begin = end + 1;
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    try {
      f(line);
    } catch (const std::runtime_error& e) {
      throw std::runtime_error(file + ":" + std::to_string(number) + ": " + e.what());
    }
  }
}

}  // namespace gdn
