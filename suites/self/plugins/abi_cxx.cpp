// The ABI header alone, in the oldest C++ a plugin may be written in.
#include "gdn_kernel.h"

int gdn_abi_in_cxx(const gdn_call* call) { return gdn_find(call, GDN_Q) != nullptr; }
