// Timing of kernels on a device, by the device's own clock: what `gdn-cts bench --device` asks. One per device type,
// registered like the device itself (device.h).
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/call_image.h"

namespace gdn {

// What the device reaches in plain work, measured at the same time: the floors of a kernel are its bytes and flops over these.
struct DeviceRates {
  std::string device;
  double bytes_per_second = 0;                     // a large copy, bytes read plus bytes written
  double bf16_flops_per_second = 0;                // tensor cores, bf16 operands, fp32 accumulation, operands at hand
  double fp32_flops_per_second = 0;                // fused multiply-adds, two operations each
};
struct DeviceTiming {
  std::string message;                             // one line when there is no time
  bool graph = false;                              // one launch of a captured graph per repeat; else the kernel's own launches
  std::vector<double> seconds;                     // of each repeat
};
struct DeviceBench {
  DeviceRates (*rates)();                          // throws std::runtime_error, one line, without a device
  // Repeats run on the same tensors, which lie in device memory; caches are overwritten in between. Never throws.
  DeviceTiming (*time)(const gdn_kernel& kernel, const CallImage& image, const std::byte* arena, int repeats);
};
struct RegisterDeviceBench { RegisterDeviceBench(std::uint32_t device_type, const DeviceBench* bench); };
const DeviceBench* find_device_bench(std::uint32_t device_type);   // nullptr when this build has none

}  // namespace gdn
