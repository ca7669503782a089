// Rounding-error bound of a contract, element by element: |result - exact| <= bound for every correct kernel.
// Derivation and sources in reference/README.md.
#pragma once
#include <span>
#include <string>

#include "reference/contract.h"
#include "reference/head.h"

namespace gdn {

// Absolute bounds in double, for o [T,V] and ht [K,V]. +inf where the bound recurrence overflows.
HeadResult bound_head(const Contract& c, const HeadInputs& in, std::span<const std::int64_t> split = {});
// |g computed - g| of a raw gate g = -exp(A_log) softplus(a + dt_bias), finite arguments, before g is stored.
double raw_gate_error(const Contract& c, float a, float A_log, float dt_bias);
// The largest terms of the bound of o[t,v], or of ht[t,v] when of_state, one line, for the failure block.
std::string explain_bound(const Contract& c, const HeadInputs& in, bool of_state, std::int64_t t, std::int64_t v,
                          std::span<const std::int64_t> split = {});

}  // namespace gdn
