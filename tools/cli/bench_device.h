// The device half of `gdn-cts bench`: kernels timed by the device's clock beside the floors that memory and arithmetic set.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "tools/cli/table.h"

namespace gdn::cli {

struct DeviceFigures {
  std::string facts;                               // the device and its measured rates, lines for people
  Table table;
};
// Every built-in kernel of the device on every problem it declares. Throws Usage where this build or machine has no such device.
DeviceFigures bench_device(const std::string& device, const std::vector<std::string>& problems, std::uint64_t repeats);

}  // namespace gdn::cli
