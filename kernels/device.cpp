// Devices that this build can run kernels on, besides the host; see device.h and device_bench.h.
#include "kernels/device.h"

#include <map>

#include "kernels/device_bench.h"

namespace gdn {
namespace {
std::map<std::uint32_t, DeviceCall>& devices() {
  static std::map<std::uint32_t, DeviceCall> all;
  return all;
}
std::map<std::uint32_t, const DeviceBench*>& benches() {
  static std::map<std::uint32_t, const DeviceBench*> all;
  return all;
}
}  // namespace

RegisterDevice::RegisterDevice(std::uint32_t device_type, DeviceCall call) { devices()[device_type] = call; }

DeviceCall find_device(std::uint32_t device_type) {
  const auto at = devices().find(device_type);
  return at == devices().end() ? nullptr : at->second;
}

RegisterDeviceBench::RegisterDeviceBench(std::uint32_t device_type, const DeviceBench* bench) { benches()[device_type] = bench; }

const DeviceBench* find_device_bench(std::uint32_t device_type) {
  const auto at = benches().find(device_type);
  return at == benches().end() ? nullptr : at->second;
}

}  // namespace gdn
