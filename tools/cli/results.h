// Results that travel as files: what `answer` writes and `judge` reads. One file a case: tensors as in golden/README.md (exchange files), and as
// attributes of the root what the kernel declares, which runs ended otherwise than well, and what was seen while they ran.
#pragma once
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "kernels/session.h"
#include "reference/case.h"

namespace gdn::cli {

const char* outcome_name(Outcome o);               // "ok", "not_supported", "error", "crashed", "timeout"
// executions: of the runs in order, up to the first that is not ok. Throws BadInput.
void write_answer(const std::filesystem::path& file, const Case& c, const KernelInfo& info, const std::vector<Execution>& executions);
// The execution of a run; alone: the case has no other. layout: of the tensors in the file. Throws BadInput, one line.
Execution read_answer(const std::string& file, const Run& run, bool alone, const Convention& layout);
// Declarations in a file: name, version, module, device, contract, convention, properties, capabilities; those that it has. Throws BadInput, for a golden as well.
std::map<std::string, std::string> declared_in(const std::string& file);
// The files of a folder of goldens, sorted.
std::vector<std::filesystem::path> golden_files(const std::string& folder);

}  // namespace gdn::cli
