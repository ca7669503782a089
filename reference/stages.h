// Stages: one step of the chunkwise form alone, its inputs given as stored data, so that an author who changes one
// sub-kernel is told about that sub-kernel (accuracy standard, section 10). Chunks of Problem::chunk rows are cut from the start of
// every sequence; a sequence that is no multiple ends in a shorter one. Truth, audit, and the inputs that the steps before a stage would
// hand it; bounds are in stage_bound.h.
//
//   stage         inputs            outputs
//   gate_sum      g                 G [T,HV] fp32           G_r = sum of g over rows 0..r of the chunk
//   gram          k beta G          L [T,HV,C] fp32         L_ij = beta_i (k_i.k_j) e^(G_i-G_j), i > j; else 0
//   inverse       L                 M [T,HV,C] io           (I+L)^-1; 0 above the diagonal
//   uw            k v beta G M      U [T,HV,V], W [T,HV,K]  M (beta v), M (beta e^G k), io
//   chunk_states  k G W U (h0)      states [chunks,HV,K,V], Vn [T,HV,V] io, ht [N,HV,K,V]
//   output        q k G Vn states   o [T,HV,V] io
//
// L and M: row r of a chunk is token row, columns are the rows of the same chunk. g may be -inf; a G that is given is finite, because
// a sum of -inf has lost what followed it.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "reference/case.h"
#include "reference/truth.h"

namespace gdn {

struct StageTensor {
  const char* name;
  DType dtype;
  std::vector<std::int64_t> shape;
};
// Of the problem's stage, without cu_seqlens. h0 and ht as the problem asks for them.
std::vector<StageTensor> stage_inputs(const Problem& p);
std::vector<StageTensor> stage_outputs(const Problem& p);

struct ChunkPlace {
  std::int64_t sequence, number, token, rows;      // number in its sequence; first token row of the packed tensors; rows
};
std::vector<ChunkPlace> chunk_places(const Problem& p);      // all chunks, in the order of `states`
std::int64_t chunk_count(const Problem& p);

// 0 or 1 where an element of L or M is that by definition: on and above the diagonal.
std::optional<double> by_definition(const Problem& p, std::string_view tensor, std::int64_t element);

// Certified, exact function of the stored inputs: double-double with a running radius, then 256, 512 and 1024 bits for
// what that leaves open. The same bits at any thread count.
Truth stage_oracle(const Run& run, OracleStats* stats = nullptr, const std::function<void(double)>& progress = {});
// The stage once more in 237 bits and another order, sharing no code with stage_oracle: the empty string, or one line naming
// the first element that disagrees.
std::string audit_stage(const Run& run, const Truth& truth);

// Inputs of the stage of p as the steps before it make them of q k v g beta (h0) in the problem's dtypes: each step in double, its
// outputs rounded to nearest into their dtypes. Rows past the end hold NaN.
TensorSet stage_inputs_from(const Problem& p, const TensorSet& layer);

}  // namespace gdn
