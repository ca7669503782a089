/* The ABI header alone, in C99 without extensions. */
#include "gdn_kernel.h"

int gdn_abi_in_c(const gdn_call* call);
int gdn_abi_in_c(const gdn_call* call) { return gdn_find(call, GDN_Q) != NULL; }
