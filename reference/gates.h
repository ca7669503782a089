// Gates as functions of what kernels are given: e^g, raw gates g = -exp(A_log) softplus(a + dt_bias) and sigmoid, each
// rounded once to double-double (hi nearest to the exact value, lo nearest to the rest), from multiprecision, so the bits
// are the same everywhere and both tails are right: log(1+e^x) in fp32 is 0 below -16.6 and infinite above 88.
// Arguments are exact floats. Infinite arguments give the limit where there is one, NaN where not; NaN gives NaN.
#pragma once
#include "reference/dd.h"
#include "reference/format.h"

namespace gdn {

DD<double> decay(float g);                                       // e^g
DD<double> raw_gate(float a, float A_log, float dt_bias);        // g = -exp(A_log) softplus(a + dt_bias)
DD<double> raw_decay(float a, float A_log, float dt_bias);       // e^g of that g, not of a rounded one
DD<double> sigmoid(float x);                                     // 1 / (1 + e^-x)

// The same of double-double arguments, and silu(x) = x sigmoid(x): within 2^-106 of the value (2^-1000 near 0).
DD<double> exponential(DD<double> x);                            // e^x, x <= 0
DD<double> raw_gate(DD<double> a, float A_log, float dt_bias);
DD<double> sigmoid(DD<double> x);
DD<double> silu(DD<double> x);
// cos and sin of an exact float, in radians.
DD<double> cosine(float x);
DD<double> sine(float x);

// x rounded to nearest even in format f, once (hi alone would be rounded twice).
double round_to(DD<double> x, Format f);

}  // namespace gdn
