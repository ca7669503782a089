// What sessions that call a gdn_kernel have in common: reading its declarations, and running the calls of a run in its
// convention. How a call is carried out is theirs.
#pragma once
#include <functional>

#include "kernels/call_image.h"

namespace gdn {

// Empty when the struct can be used: version, sizes, strings and functions are there; else one line.
std::string unusable_reason(const gdn_kernel* kernel);
// Throws std::invalid_argument, one line that names the kernel, when a declaration does not parse.
KernelInfo read_declarations(const std::string& name, const std::string& description, const std::string& version, bool cuda,
                             const std::string& convention, const std::string& contract, const std::string& capabilities,
                             const std::string& properties);
KernelInfo read_declarations(const gdn_kernel& kernel);

// Carries out one call: `image` is to be filled from `inputs` (kernel's convention), the kernel run on it, outputs and
// violations collected.
using CallFunction = std::function<Execution(const CallImage& image, const TensorSet& inputs)>;
Execution run_in_convention(const KernelInfo& info, const Run& run, std::size_t page, const CallFunction& call);

}  // namespace gdn
