// Devices that this build can run kernels on, besides the host; see device.h.
#include "kernels/device.h"

#include <map>

namespace gdn {
namespace {
std::map<std::uint32_t, DeviceCall>& devices() {
  static std::map<std::uint32_t, DeviceCall> all;
  return all;
}
}  // namespace

RegisterDevice::RegisterDevice(std::uint32_t device_type, DeviceCall call) { devices()[device_type] = call; }

DeviceCall find_device(std::uint32_t device_type) {
  const auto at = devices().find(device_type);
  return at == devices().end() ? nullptr : at->second;
}

}  // namespace gdn
