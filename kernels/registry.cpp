// Registry of built-in kernels; see registry.h.
#include "kernels/registry.h"

#include <algorithm>
#include <cstring>

#include "kernels/faulty/faults.h"
#include "reference/near_name.h"

namespace gdn {
namespace {
std::vector<const gdn_kernel*>& kernels() {
  static std::vector<const gdn_kernel*> all;  // made on first use: registration runs before main, in any order
  return all;
}
}  // namespace

RegisterKernel::RegisterKernel(const gdn_kernel* kernel) {
  auto& all = kernels();
  const auto by_name = [](const gdn_kernel* a, const gdn_kernel* b) { return std::strcmp(a->name, b->name) < 0; };
  all.insert(std::upper_bound(all.begin(), all.end(), kernel, by_name), kernel);
}

const std::vector<const gdn_kernel*>& builtin_kernels() { return kernels(); }

const gdn_kernel* find_builtin(const std::string& name) {
  for (const gdn_kernel* k : kernels())
    if (name == k->name) return k;
  return find_faulty_kernel(name);
}

std::string no_builtin(const std::string& name) {
  std::vector<std::string> names;
  for (const gdn_kernel* k : kernels()) names.emplace_back(k->name);
  return "no built-in kernel '" + name + "'" + did_you_mean(name, names) + " (`gdn-cts list kernels` prints them)";
}

}  // namespace gdn
