// What the readers and writers of JSON lines share: numbers that JSON has no words for ("nan", "inf", "-inf"), and the members
// of one object, refused by name when they are not what they should be. Only for the files of reports that know JSON.
#pragma once
#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace gdn::reports {

using Json = nlohmann::ordered_json;

[[noreturn]] inline void fail(const std::string& what) { throw std::runtime_error(what); }

inline Json number(double x) {
  if (std::isnan(x)) return "nan";
  if (std::isinf(x)) return x > 0 ? "inf" : "-inf";
  return x;
}

inline Json numbers(const std::map<std::string, double>& m) {
  Json j = Json::object();
  for (const auto& [k, v] : m) j[k] = number(v);
  return j;
}

inline Json numbers(const std::vector<double>& list) {
  Json j = Json::array();
  for (const double x : list) j.push_back(number(x));
  return j;
}

// Reads the members of one object; `where` names it in messages.
struct Reader {
  const Json& j;
  std::string where;
  Reader(const Json& object, std::string w) : j(object), where(std::move(w)) {
    if (!j.is_object()) fail(where + " is not a JSON object");
  }
  std::string path(const char* key) const { return where == "record" || where == "point" ? key : where + "." + key; }
  const Json* find(const char* key, bool required = false) const {
    const auto at = j.find(key);
    if (at == j.end()) {
      if (required) fail("field '" + path(key) + "' is missing");
      return nullptr;
    }
    return &*at;
  }
  // schema_version, at most `known` of the schema called `what`.
  void version(int known, const char* what) const {
    const Json* version = find("schema_version", true);
    if (!version->is_number_unsigned() || *version == 0) fail("field 'schema_version' is not a positive integer");
    if (*version > known)
      fail(std::string(what) + " schema version " + version->dump() + " is newer than this program's version " + std::to_string(known));
  }
  void get(const char* key, std::string& s, bool required = false) const {
    if (const Json* v = find(key, required)) {
      if (!v->is_string()) fail("field '" + path(key) + "' is not a string");
      s = v->get<std::string>();
    }
  }
  static double to_double(const Json& v, const std::string& path) {
    if (v.is_number()) return v.get<double>();
    if (v == "nan") return std::numeric_limits<double>::quiet_NaN();
    if (v == "inf") return std::numeric_limits<double>::infinity();
    if (v == "-inf") return -std::numeric_limits<double>::infinity();
    fail("field '" + path + "' is neither a number nor \"nan\", \"inf\", \"-inf\"");
  }
  void get(const char* key, double& x) const {
    if (const Json* v = find(key)) x = to_double(*v, path(key));
  }
  void get(const char* key, std::vector<double>& list) const {
    if (const Json* v = find(key)) {
      if (!v->is_array()) fail("field '" + path(key) + "' is not an array");
      list.clear();
      for (const Json& x : *v) list.push_back(to_double(x, path(key)));
    }
  }
  template <class Integer>
  void get_integer(const char* key, Integer& x) const {
    if (const Json* v = find(key)) {
      if (!v->is_number_unsigned()) fail("field '" + path(key) + "' is not a non-negative integer");
      x = v->get<Integer>();
    }
  }
  void get(const char* key, std::map<std::string, double>& m) const {
    if (const Json* v = find(key)) {
      if (!v->is_object()) fail("field '" + path(key) + "' is not an object");
      for (const auto& [k, x] : v->items()) m[k] = to_double(x, path(key) + "." + k);
    }
  }
  void get(const char* key, std::map<std::string, std::string>& m) const {
    if (const Json* v = find(key)) {
      if (!v->is_object()) fail("field '" + path(key) + "' is not an object");
      for (const auto& [k, x] : v->items()) {
        if (!x.is_string()) fail("field '" + path(key) + "." + k + "' is not a string");
        m[k] = x.get<std::string>();
      }
    }
  }
};

inline Json parse_line(const std::string& line, const char* what) {
  try {
    return Json::parse(line);
  } catch (const Json::parse_error& e) {
    fail(std::string("not a JSON ") + what + " (syntax error at byte " + std::to_string(e.byte) + ")");
  }
}

inline std::string dump(const Json& j) { return j.dump(-1, ' ', false, Json::error_handler_t::replace); }

}  // namespace gdn::reports
