// Contracts from files; see contract_file.h.
#include "kernels/contract_file.h"

#include <fstream>
#include <sstream>
#include <stdexcept>

namespace gdn {
namespace {

constexpr std::size_t kLongest = 1 << 16;          // bytes; a contract has a few dozen lines

std::string trimmed(const std::string& s) {
  const std::size_t first = s.find_first_not_of(" \t\r"), last = s.find_last_not_of(" \t\r");
  return first == std::string::npos ? "" : s.substr(first, last - first + 1);
}

}  // namespace

Contract read_contract(const std::string& text) {
  if (text.empty() || text[0] != '@') return parse_contract(text);
  const std::string file = text.substr(1);
  std::ifstream raw(file);
  if (!raw) throw std::invalid_argument("contract file '" + file + "' cannot be read");
  std::string content(kLongest, 0);                // and no more: some files have no end
  raw.read(content.data(), static_cast<std::streamsize>(kLongest));
  content.resize(static_cast<std::size_t>(raw.gcount()));
  if (raw.bad() || content.size() == kLongest) throw std::invalid_argument("contract file '" + file + "' is no contract");
  std::istringstream in(content);
  std::string joined;
  for (std::string line; std::getline(in, line);) {
    std::string item = trimmed(line.substr(0, line.find('#')));
    if (item.empty()) continue;
    if (const std::size_t equals = item.find('='); equals != std::string::npos) item = trimmed(item.substr(0, equals)) + "=" + trimmed(item.substr(equals + 1));
    joined += (joined.empty() ? "" : ";") + item;
  }
  if (joined.empty()) throw std::invalid_argument("contract file '" + file + "' is empty");
  try {
    return parse_contract(joined);
  } catch (const std::invalid_argument& e) {
    throw std::invalid_argument("contract file '" + file + "': " + e.what());
  }
}

}  // namespace gdn
