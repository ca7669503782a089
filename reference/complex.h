// The rule complex_kda: key channels 2j and 2j+1 are the parts of one complex channel, and the state decays by a complex factor e^(g_j + i angle_j) of its own
// in each (Mamba3 has such decays; in real numbers they turn pairs of rows of S by the angle). Angle 0 is kda. Its oracle, beside the one of the real rules.
#pragma once
#include "reference/head.h"
#include "reference/truth.h"

namespace gdn {

// Double-double with the state's radius by norms, as in section 8 of the accuracy standard; what that leaves uncertified is a ball. Inputs must be finite (g may be
// -inf), else std::invalid_argument.
HeadTruth complex_head(const HeadInputs& in);

}  // namespace gdn
