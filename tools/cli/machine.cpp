// Facts about the machine; see machine.h.
#include "tools/cli/machine.h"

#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "reference/parallel.h"

namespace gdn::cli {
namespace {

std::string processor() {
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);)
    if (line.compare(0, 10, "model name") == 0) return line.substr(std::min(line.find(": ") + 2, line.size()));
  return "unknown";
}

}  // namespace

std::vector<std::pair<std::string, std::string>> machine_facts() {
  utsname system{};
  ::uname(&system);
  return {{"processor", processor()}, {"processors", std::to_string(::sysconf(_SC_NPROCESSORS_ONLN))}, {"threads", std::to_string(max_threads())},
          {"system", std::string(system.sysname) + " " + system.release + " " + system.machine}, {"compiler", GDN_COMPILER}, {"build", GDN_BUILD_TYPE}};
}

}  // namespace gdn::cli
