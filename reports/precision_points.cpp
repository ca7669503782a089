// Points of a precision study to and from JSON lines; see precision.h. Nothing in a line depends on when or how fast it was made.
#include "reports/file.h"
#include "reports/json.h"
#include "reports/precision.h"

namespace gdn {

using namespace reports;

std::string to_json_line(const PrecisionPoint& p) {
  Json axes = Json::object();
  for (const auto& [k, v] : p.axes) axes[k] = v;
  Json j{{"schema_version", kPrecisionSchemaVersion}, {"study", p.study}, {"axes", axes}};
  if (!p.kernel.empty()) {
    j["kernel"] = p.kernel;
    j["how"] = p.how;
    if (!p.kernel_version.empty()) j["kernel_version"] = p.kernel_version;
    if (!p.device.empty()) j["device"] = p.device;
    for (const auto& [name, version] : p.packages) j["packages"][name] = version;
  }
  j["contract"] = p.contract;
  j["inputs"] = p.inputs;
  j["tokens"] = p.tokens;
  j["key_dim"] = p.key_dim;
  j["value_dim"] = p.value_dim;
  j["chunk"] = p.chunk;
  j["cost"] = number(p.cost);
  for (const auto& [name, list] : {std::pair{"o_rms", &p.o_rms}, {"ht_rms", &p.ht_rms}, {"o_worst", &p.o_worst}, {"ht_worst", &p.ht_worst},
                                   {"o_sigma", &p.o_sigma}, {"ht_sigma", &p.ht_sigma}, {"o_bound", &p.o_bound}, {"ht_bound", &p.ht_bound}})
    if (!list->empty()) j[name] = numbers(*list);
  j["non_finite"] = p.non_finite;
  j["truth"] = number(p.truth);
  j["suite_version"] = p.suite_version;
  j["edition"] = p.edition;
  return dump(j);
}

PrecisionPoint parse_precision_point(const std::string& line) {
  const Json j = parse_line(line, "point");
  const Reader in(j, "point");
  in.version(kPrecisionSchemaVersion, "precision");
  PrecisionPoint p;
  in.get("study", p.study, true);
  in.get("axes", p.axes);
  in.get("kernel", p.kernel);
  in.get("how", p.how);
  in.get("kernel_version", p.kernel_version);
  in.get("device", p.device);
  in.get("packages", p.packages);
  in.get("contract", p.contract, true);
  in.get("inputs", p.inputs, true);
  in.get_integer("tokens", p.tokens);
  in.get_integer("key_dim", p.key_dim);
  in.get_integer("value_dim", p.value_dim);
  in.get_integer("chunk", p.chunk);
  in.get("cost", p.cost);
  in.get("o_rms", p.o_rms);
  in.get("ht_rms", p.ht_rms);
  in.get("o_worst", p.o_worst);
  in.get("ht_worst", p.ht_worst);
  in.get("o_sigma", p.o_sigma);
  in.get("ht_sigma", p.ht_sigma);
  in.get("o_bound", p.o_bound);
  in.get("ht_bound", p.ht_bound);
  in.get_integer("non_finite", p.non_finite);
  in.get("truth", p.truth);
  in.get("suite_version", p.suite_version);
  in.get("edition", p.edition);
  if (p.o_rms.empty()) fail("field 'o_rms' is missing or empty");
  return p;
}

std::vector<PrecisionPoint> read_precision_points(const std::string& file) {
  std::vector<PrecisionPoint> points;
  for_each_line(file, [&](const std::string& line) { points.push_back(parse_precision_point(line)); });
  return points;
}

std::string precision_key(const PrecisionPoint& p) {
  std::string key = p.study;
  for (const auto& [k, v] : p.axes) key += "|" + k + "=" + v;
  return key + "|kernel=" + p.kernel + "|" + p.inputs;
}

}  // namespace gdn
