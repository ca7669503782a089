// Registry of built-in kernels and faults. Self-registering: a kernel or fault is one file with one static object.
#pragma once
#include <string>
#include <vector>

#include "kernels/gdn_kernel.h"

namespace gdn {

struct RegisterKernel { explicit RegisterKernel(const gdn_kernel* kernel); };
const std::vector<const gdn_kernel*>& builtin_kernels();           // sorted by name
const gdn_kernel* find_builtin(const std::string& name);           // nullptr when unknown; also "faulty/..." (kernels/faulty)
std::string no_builtin(const std::string& name);                    // the sentence that says so, with names that are near

}  // namespace gdn
