// What figures and verdicts were measured on: key and value, for the records of bench and for submissions.
#pragma once
#include <string>
#include <utility>
#include <vector>

namespace gdn::cli {

// processor, processors, threads, system, compiler, build. No name of host or user.
std::vector<std::pair<std::string, std::string>> machine_facts();

}  // namespace gdn::cli
