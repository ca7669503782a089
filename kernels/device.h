// How a call reaches kernels whose tensors live elsewhere: a device copies the arena over, canaries included, runs the
// kernel there and copies everything back, so that stray writes are found as they are for host memory.
#pragma once
#include "kernels/call_image.h"

namespace gdn {

// Tensor i of the image begins at arena + image.tensors[i].begin. Returns after all work is done; never throws.
using DeviceCall = Invocation (*)(const gdn_kernel& kernel, const CallImage& image, std::byte* arena);
struct RegisterDevice { RegisterDevice(std::uint32_t device_type, DeviceCall call); };
DeviceCall find_device(std::uint32_t device_type);  // nullptr when this build has none

}  // namespace gdn
