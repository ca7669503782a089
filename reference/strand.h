// Strands: the tokens of a run that act one after the other on one state, and where their results belong. A prefill has
// one for each sequence; on a pool of states the batch row of a state may change from call to call, and of draft tokens
// only the accepted ones go on. Everything that works head by head (oracle, bounds, certificates) walks over strands.
#pragma once
#include <string_view>
#include <vector>

#include "reference/head.h"
#include "reference/stages.h"

namespace gdn {

struct Strand {
  std::vector<std::int64_t> rows;                  // row in the packed tensors of every token, in order
  std::vector<std::int64_t> cuts;                  // tokens before each call but the first (as Problem::split)
  std::int64_t start = -1;                         // row of h0; -1: the zero state
  std::int64_t outputs = 0;                        // o of the tokens before this one belongs to another strand
  const char* state = "";                          // tensor of the last state: "ht", "snapshots", or none
  std::int64_t state_row = -1;                     // its row there
  bool idle = false;                               // a slot of the pool that no token uses: must keep its bits
};
// Throws std::invalid_argument, one line, where state_indices or accepted contradict the problem (accuracy standard 1.8).
std::vector<Strand> strands(const Run& run);
HeadInputs head_inputs(const Run& run, const Strand& s, std::int64_t hv);

// The strand that a row of o, ht or snapshots belongs to and the token of it (of o); -1 where the row is nobody's.
struct StrandPlace { std::int64_t strand = -1, token = -1; };
StrandPlace find_strand(const std::vector<Strand>& all, std::string_view tensor, std::int64_t row);

// Stages and layers name their tensors themselves (stages.h, layer.h): inputs without cu_seqlens, and outputs.
inline bool own_tensors(const Problem& p) { return p.operation == Operation::stages || p.layer(); }
std::vector<StageTensor> own_inputs(const Problem& p);
std::vector<StageTensor> own_outputs(const Problem& p);

// Outputs of an operation, in this order: "o", "ht" when there is a final state, "snapshots" of verify; those of a stage or
// a layer; their shapes and dtypes.
std::vector<const char*> output_names(const Problem& p);
std::vector<std::int64_t> output_shape(const Problem& p, std::string_view tensor);
DType output_dtype(const Problem& p, std::string_view tensor);

}  // namespace gdn
