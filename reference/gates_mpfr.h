// Internal: a raw gate's decay in multiprecision, for the slow path of the oracle. Needs MPFR's header.
#pragma once
#include <mpfr.h>

namespace gdn {

// y = e^g, g = -exp(A_log) softplus(a + dt_bias) > -2000, arguments finite: correct to about one unit in the last place of y.
void raw_decay_of(mpfr_t y, float a, float A_log, float dt_bias);

}  // namespace gdn
