// Files written whole or not at all: under a temporary name beside the target, then renamed.
#pragma once
#include <functional>
#include <string>
#include <string_view>

namespace gdn {

// Suffix of temporary names of this process: ".tmp<pid>". A stopped program removes files that end in it.
std::string temporary_suffix();

// Throws std::runtime_error "cannot write FILE: reason", leaving neither a partial file nor a temporary one.
// A target that exists and is no regular file (/dev/stdout, a pipe) is written directly.
void write_file(const std::string& file, std::string_view content);
// Throws std::runtime_error "cannot read FILE: reason".
std::string read_file(const std::string& file);
// f for every line that is not blank. A std::runtime_error of f leaves as "FILE:LINE: what".
void for_each_line(const std::string& file, const std::function<void(const std::string& line)>& f);

}  // namespace gdn
