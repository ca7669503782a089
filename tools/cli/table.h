// Tables of `list` and the like: aligned text for people, JSON for programs.
#pragma once
#include <string>
#include <vector>

namespace gdn::cli {

struct Column { std::string name; bool number = false; };
struct Table {
  std::vector<Column> columns;
  std::vector<std::vector<std::string>> rows;      // one cell per column; numbers as they should be printed
};
std::string to_text(const Table& t);               // header above the rows, columns aligned, the last one not padded
std::string to_json(const Table& t);               // array of objects, one row a line

}  // namespace gdn::cli
