// The fault bank: the algorithm with one deliberate, named, one-place deviation each, standing for a kind of slip
// that real kernels have shipped with. The suite's own power is measured on it, and failing results are compared
// with it. The unmutated twin ("none") is a conformant kernel in every form and scalar.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/gdn_kernel.h"
#include "kernels/session.h"
#include "reference/contract.h"
#include "reference/head.h"
#include "reference/stages.h"

namespace gdn {

// bf16: operands of the chunk form rounded to bf16, o in 16 bits. fp64: of the plain functions, which round nothing but what the fault rounds.
enum class FaultScalar : std::uint8_t { fp32, bf16, fp64 };

struct Fault {
  const char* name;
  const char* kind;                                // slug, suites/kinds.h
  unsigned forms;                                  // bit 1 << Form of the forms it exists in
  double parameter;                                // the smallest magnitude seen in the field; 0 where there is none
  const char* mechanism;                           // one sentence
  const char* origin;
  int stage = -1;                                  // the Stage that it is a fault of (or one of those below); elsewhere such kernels are the twin. -1: of the rule
  bool has(Form f) const { return forms >> static_cast<unsigned>(f) & 1u; }
};

inline constexpr int kLayerFault = kStages;        // of the layer
inline constexpr int kChannelFault = kStages + 1;  // of gates per key channel: the rules kda and complex_kda
// Whether a fault can change anything on a problem.
bool concerns(const Fault& f, const Problem& p);

const std::vector<Fault>& fault_bank();            // in the order of the table; "none" is not in it
const Fault* find_fault(std::string_view name);    // nullptr when unknown; "none" is the twin

// Kernel objects "faulty/<fault>/<form>-<scalar>", form recurrent or chunk, scalar fp32 or bf16. Those of the recurrent
// form decode and verify as well and offer the layer, those of the chunk form offer every stage.
// nullptr where the fault does not exist in that form.
const gdn_kernel* faulty_kernel(const Fault& fault, Form form, FaultScalar scalar);
const gdn_kernel* find_faulty_kernel(std::string_view name);
// Some faults remember earlier calls (stale workspaces, cached arguments), per thread: this makes them forget.
void forget_calls();

// A fault of how tensors are addressed, or of what is touched beside them. It shows as it is in calls on memory alone (faulty_kernel), and not in the plain
// functions below.
bool misreads_memory(const Fault& f);

// The fault in double precision: no rounding but the fault's own, so that (this - exact) is the fault's delta.
// Output tensors "o" [T,HV,V], "ht" [N,HV,K,V], of a pool [slots,HV,K,V], and "snapshots" of verify in fp64; elements the fault leaves unwritten are NaN.
// Carries out Problem::split; of a stage (form chunkwise) and of the layer (form recurrent) its outputs. Throws std::invalid_argument for rules other than
// gated_delta, delta and, in the recurrent form, kda and complex_kda.
TensorSet run_fault(const Fault& fault, Form form, const Run& run);
// The runs of a case one after the other, with what the fault remembers from run to run, as a session carries them out. Violations
// (Execution) name what is done outside the outputs. scalar: of the rule, and other than fp64 states are handed on from call to call in the
// dtype of the problem; stages and layers are carried out in double.
std::vector<Execution> run_fault(const Fault& fault, Form form, std::span<const Run> runs, FaultScalar scalar = FaultScalar::fp64);
// The same for one head; faults between sequences or heads show nothing here.
HeadResult run_fault(const Fault& fault, Form form, const HeadInputs& in);

}  // namespace gdn
