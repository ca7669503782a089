// Precision contracts as people hand them over: a text, or @FILE with one item a line.
//
//     # my_kernel.contract
//     bf16-chunk       # a preset comes first
//     M = fp32         # then points and options that differ from it
//     chunk = 32
//
// '#' starts a comment. The text form of the same contract is "bf16-chunk;M=fp32;chunk=32".
#pragma once
#include <string>

#include "reference/contract.h"

namespace gdn {

// Throws std::invalid_argument in one line, with the file where there is one.
Contract read_contract(const std::string& text_or_file);

}  // namespace gdn
