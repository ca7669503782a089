// Inputs of the stage families: what the steps before a stage make of keys, values and gates in several regimes, one per key head, so
// that a slip which one of them hides shows in another.
#pragma once
#include <string>
#include <vector>

#include "reference/stages.h"
#include "suites/family.h"

namespace gdn::fill {

// What the heads of a key head hold.
enum class StageRegime {
  typical,   // correlated keys, mild gates
  equal,     // one key for all tokens, beta .835, slow gates: powers of L explode
  opposite,  // a key and its opposite in turn, beta near 2
  integers,  // whole numbers and no decay: every stored value is exact
  strong,    // gates of -100, -1000 and -1e4 among slow ones
  huge,      // a gate of -1e30 in every other chunk, after which a sum stands still
  wide,      // beta in (0,2), non-negative keys, g = 0 for half of the tokens
};
// Run "base" of a stage, h-th key head in regime regimes[h mod count].
Case stage_case(const std::string& family, Stage stage, const Problem& p, std::uint64_t seed, const std::vector<StageRegime>& regimes);
// Stage problems from "n1_t70_h2_hv4_k64_v64/bf16" and "chunk=64,h0".
std::vector<Problem> stage_problems(Stage stage, std::initializer_list<const char*> texts);

}  // namespace gdn::fill
