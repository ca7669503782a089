// Results that travel as files; see results.h.
#include "tools/cli/results.h"

#include <algorithm>
#include <iterator>
#include <stdexcept>

#include "golden/store.h"
#include "kernels/schedule.h"

namespace gdn::cli {
namespace {

constexpr Outcome kOutcomes[] = {Outcome::ok, Outcome::not_supported, Outcome::error, Outcome::crashed, Outcome::timeout};

// Throws BadInput, one line.
TensorSet outputs_of(const std::string& file, const Run& run, bool alone, const Convention& layout) {
  TensorSet found = read_tensors(file, alone ? "/" : "/" + run.name), outputs;
  for (auto& [tensor, want] : output_shapes(layout, run)) {
    const std::string where = file + ": " + (alone ? "" : "/" + run.name) + "/" + tensor;
    const auto at = found.find(tensor);
    if (at == found.end()) throw BadInput(where + ": dataset is missing");
    if (at->second.shape != want.shape) throw BadInput(where + ": shape " + shape_text(at->second.shape) + ", want " + shape_text(want.shape));
    try {
      outputs[tensor] = coerce(at->second, want.dtype);
    } catch (const std::invalid_argument& e) {
      throw BadInput(where + ": " + e.what());
    }
  }
  return from_kernel(layout, run, std::move(outputs));
}

}  // namespace

const char* outcome_name(Outcome o) {
  constexpr const char* kNames[] = {"ok", "not_supported", "error", "crashed", "timeout"};
  return kNames[static_cast<std::size_t>(o)];
}

void write_answer(const std::filesystem::path& file, const Case& c, const KernelInfo& info, const std::vector<Execution>& executions) {
  std::map<std::string, std::string> texts{{"name", info.name}, {"contract", to_string(info.contract)}, {"properties", to_string(info.properties)}, {"device", info.device}};
  for (const auto& [key, text] : {std::pair{"version", &info.version}, {"module", &info.module}, {"capabilities", &info.capabilities.text}})
    if (!text->empty()) texts[key] = *text;
  std::vector<TensorSet> outputs;
  for (std::size_t i = 0; i < executions.size(); ++i) {
    const Execution& e = executions[i];
    for (const std::string& line : e.violations) texts["violations/" + c.runs[i].name] += line + "\n";
    if (e.outcome == Outcome::ok) {
      outputs.push_back(e.outputs);
      continue;
    }
    texts["outcome/" + c.runs[i].name] = outcome_name(e.outcome);
    texts["message/" + c.runs[i].name] = e.message;
  }
  write_results(file, c, outputs, texts);
}

Execution read_answer(const std::string& file, const Run& run, bool alone, const Convention& layout) {
  Execution e;
  const std::string outcome = "outcome/" + run.name, message = "message/" + run.name, violations = "violations/" + run.name;
  auto texts = text_attributes(file, {outcome, message, violations});
  for (std::string rest = texts[violations]; !rest.empty(); rest.erase(0, rest.find('\n') == std::string::npos ? rest.size() : rest.find('\n') + 1)) e.violations.push_back(rest.substr(0, rest.find('\n')));
  if (const std::string& said = texts[outcome]; !said.empty()) {
    const auto at = std::find_if(std::begin(kOutcomes), std::end(kOutcomes), [&](Outcome o) { return said == outcome_name(o); });
    if (at == std::end(kOutcomes)) throw BadInput(file + ": attribute " + outcome + ": '" + said + "' is no outcome");
    e.outcome = *at;
    e.message = texts[message];
  }
  if (e.outcome == Outcome::ok) e.outputs = outputs_of(file, run, alone, layout);
  return e;
}

std::map<std::string, std::string> declared_in(const std::string& file) {
  if (text_attributes(file, {"schema"})["schema"] == "gdn-golden") throw BadInput(file + ": is a golden and not the results of a kernel; were --golden and --candidate exchanged?");
  return text_attributes(file, {"name", "version", "module", "device", "contract", "convention", "properties", "capabilities"});
}

std::vector<std::filesystem::path> golden_files(const std::string& folder) {
  std::vector<std::filesystem::path> files;
  std::error_code code;
  for (const auto& entry : std::filesystem::directory_iterator(folder, code))
    if (entry.path().extension() == ".h5") files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace gdn::cli
