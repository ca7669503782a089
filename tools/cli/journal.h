// Journals of --resume: JSON lines that a run appends to as it goes, so that a later run goes on where it was ended.
#pragma once
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "tools/cli/command.h"

namespace gdn::cli {

// What is there, read by `read`; a line that was cut off when the run was ended is dropped from the file. Empty where there is no
// file. Throws Usage for what is no journal.
template <class Item, class Read>
std::vector<Item> read_journal(const std::string& journal, const Read& read) {
  std::error_code code;
  if (!std::filesystem::exists(journal, code)) return {};
  if (!std::filesystem::is_regular_file(journal, code)) throw Usage("--resume: " + journal + " is no file");
  std::ifstream in(journal, std::ios::binary);
  const std::string content((std::istreambuf_iterator<char>(in)), {});
  in.close();
  try {
    if (const std::size_t whole = content.rfind('\n') + 1; whole < content.size()) std::filesystem::resize_file(journal, whole);
    return read(journal);
  } catch (const std::runtime_error& e) {
    throw Usage(std::string("--resume: ") + e.what());
  }
}

}  // namespace gdn::cli
