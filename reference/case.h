// Case: family + problem + seed, with its inputs; the identity of everything downstream.
// A case has one run, or several when relations between runs are judged.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "reference/problem.h"
#include "reference/tensor.h"

namespace gdn {

// Inputs of one execution. Tensors by canonical name (K=key_dim, V=value_dim, T=tokens()+padding):
//   q,k [T,H,K]  v [T,HV,V]  in io dtype;  g [T,HV] (kda: [T,HV,K]), beta [T,HV];  h0 [N,HV,K,V] when
//   initial_state;  cu_seqlens [N+1] int64.  Outputs: o [T,HV,V] in io dtype (rows past cu_seqlens[N] are
//   not judged),  ht [N,HV,K,V] in state dtype when final_state.
// On a pool (Problem::pool) h0 and ht are [slots,HV,K,V], the pool before and after the run, and there are inputs
//   state_indices [calls,N] int32, slot of each row in each call, -1: the row has no sequence;  of verify also
//   accepted [calls,N] int32, how many draft tokens of the call before are kept (0 in the first call). Output of verify:
//   snapshots [T,HV,K,V] in state dtype, the state after every draft token.
// raw: a [T,HV], A_log and dt_bias [HV] float32 take the place of g.
struct Run {
  std::string name = "base";
  Problem problem;
  TensorSet inputs;
  bool truth = true;                               // judged against the oracle (else only by relations)
  // How a call is made, which changes nothing in what is asked: tensors begin at addresses that are multiples of the declared alignment and of no
  // more; so many threads (0: as the session has), where the kernel's process can be told.
  bool least_aligned = false;
  int threads = 0;
  bool refuse = false;                             // outside the operation (g > 0): the kernel has to say so; the case has no other run
};

// bit: equal as numbers (+0 = -0, any NaN = any NaN). shape_invariant: bit for kernels that declare the
// property, else not judged here. recurrent: bit for recurrent kernels that declare shape_invariant. See
// reference/README.md for the table of relations.
enum class RelationClass : std::uint8_t { bit, shape_invariant, masks_select, symmetric_rounding, deterministic, steps_as_prefill, recurrent };

// "Run rhs must return what `expected` makes of the results of the other runs."
struct Relation {
  int row = 0;                                     // row of the relation table in the accuracy standard
  std::string statement;                           // one sentence, printed when it fails
  RelationClass cls = RelationClass::bit;
  std::size_t rhs = 1;                             // index of the run that is judged
  // results[i]: outputs of run i. Returns the expected outputs of run rhs; a tensor left out is not compared,
  // and an element whose index is in `skip` of that name is not compared.
  std::function<TensorSet(const std::vector<TensorSet>& results)> expected;
  std::map<std::string, std::vector<std::int64_t>> skip;
};

struct Case {
  std::string family;
  Problem problem;
  std::uint64_t seed = 1;
  std::vector<Run> runs;
  std::vector<Relation> relations;
};

struct CaseId { std::string family; Problem problem; std::uint64_t seed = 1; };
std::string case_id(const CaseId& id);             // family:problem:seed
std::string case_id(const Case& c);
CaseId parse_case_id(std::string_view text);       // throws std::invalid_argument
std::string file_stem(std::string_view case_id);   // as a file name: '/' and ':' become '.', a long one ends in its hash

}  // namespace gdn
