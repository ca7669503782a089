// Schedule: a run as the calls it is made of (Problem::cuts), so that every kind of session hands states over alike.
#pragma once
#include <functional>
#include <vector>

#include "kernels/session.h"

namespace gdn {

// The problems of the calls of a run, in order: one when nothing is split. Call i covers the tokens [cut i-1, cut i)
// of every sequence, so a sequence that ended earlier has length 0 there; every call but the first takes a state,
// every call but the last returns one, and each has the run's padding rows. On a pool every call has the pool; the last
// of several calls of a verify run is a decode call (with draft=) of one token.
std::vector<Problem> call_problems(const Problem& p);

// Runs `execute` once per call: o of the calls is put together in the run's rows (rows past cu_seqlens[N] are those
// of the last call), ht of one call is h0 of the next, seconds add up. A call on a pool gets its row of state_indices and
// accepted as [N], and `snapshots` of the call before. Ends at the first call that is not ok.
// Messages and violations of a run of several calls start with "call i of n: ".
Execution run_schedule(const Run& run, const std::function<Execution(const Run& call)>& execute);

}  // namespace gdn
