// Tables as text and JSON; see table.h.
#include "tools/cli/table.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace gdn::cli {

std::string to_text(const Table& t) {
  std::vector<std::size_t> widths;
  for (std::size_t c = 0; c < t.columns.size(); ++c) {
    std::size_t w = t.columns[c].name.size();
    for (const auto& row : t.rows) w = std::max(w, row[c].size());
    widths.push_back(w);
  }
  std::string text;
  const auto line = [&](auto cell) {
    std::string l;
    for (std::size_t c = 0; c < t.columns.size(); ++c) {
      const std::string& s = cell(c);
      const std::string space(widths[c] - s.size(), ' ');
      l += (c ? "  " : "") + (t.columns[c].number ? space + s : s + space);
    }
    text += l.substr(0, l.find_last_not_of(' ') + 1) + "\n";
  };
  line([&](std::size_t c) -> const std::string& { return t.columns[c].name; });
  for (const auto& row : t.rows) line([&](std::size_t c) -> const std::string& { return row[c]; });
  return text;
}

std::string to_json(const Table& t) {
  using Json = nlohmann::ordered_json;
  std::string text = "[";
  for (std::size_t r = 0; r < t.rows.size(); ++r) {
    Json row = Json::object();
    for (std::size_t c = 0; c < t.columns.size(); ++c) {
      const std::string& s = t.rows[r][c];
      if (t.columns[c].number && Json::accept(s)) row[t.columns[c].name] = Json::parse(s);
      else row[t.columns[c].name] = s;
    }
    text += (r ? ",\n " : "\n ") + row.dump(-1, ' ', false, Json::error_handler_t::replace);
  }
  return text + "\n]\n";
}

}  // namespace gdn::cli
