// One call of a kernel as the fault bank's body sees it: packed tensors in fp32, outputs in double beside a mask of
// what was written. Between body.cpp (the algorithm and its faults) and faults.cpp (C ABI and plain functions).
#pragma once
#include <cstdint>
#include <map>
#include <vector>

#include "kernels/faulty/faults.h"
#include "reference/tensor.h"

namespace gdn::faulty {

struct View {
  std::int64_t N = 1, rows = 0, H = 1, HV = 1, K = 1, V = 1;
  double scale = 1;
  DType io = DType::f32, state = DType::f32, gate = DType::f32;   // of o, of ht, of g
  bool want_ht = true;
  std::vector<std::int64_t> cu;                    // [N+1]
  bool short_offsets = false;                      // they came in 32 bits
  int threads = 1;                                 // that the call may use
  std::vector<float> q, k, v, g, beta;             // g, beta may be empty: 0, 1
  std::int64_t gate_width = 0;                     // of rules with gates per key channel or pair of them: then g, and angle of pairs, are [rows,HV,gate_width]
  std::vector<float> angle;
  std::vector<float> a, A_log, dt_bias;            // raw gates [rows,HV], [HV], [HV]: then g is made of them
  std::vector<double> h0;                          // empty: zero state
  std::vector<double> o, ht;                       // [rows,HV,V], [N,HV,K,V]
  std::vector<std::uint8_t> o_written, ht_written;
  // decode, verify: h0 and ht are the pool [slots,HV,K,V] before and after, rows/N tokens for each of N rows
  bool pool = false, verify = false;
  std::int64_t slots = 0, drafts = 0;              // drafts: of the verify call before, or of this one
  std::vector<std::int64_t> indices, accepted;     // [N]; accepted empty: none
  std::vector<double> before;                      // snapshots of the call before [N*drafts,HV,K,V]
  std::vector<double> snapshots;                   // of this one, in that shape
  std::vector<std::uint8_t> snapshots_written;
  bool input_changed = false;                      // q holds changed values that the kernel left in the caller's buffer
  std::int64_t overrun = 0;                        // elements written past the end of o
};

// What a plan keeps from call to call.
struct Memory {
  std::int64_t calls = 0;
  std::vector<double> state;                       // last state of every head and sequence
  std::vector<std::int64_t> cu;
  std::vector<float> beta;
  std::vector<double> first;                       // final states of the first call
  std::vector<std::int64_t> indices;               // slots of the first call
  std::map<std::int64_t, std::vector<double>> by_slot;   // last state of slot * HV + head
  double scale = 0;
  std::int64_t key_dim = 0;
  DType io = DType::f32;
};

inline constexpr std::int64_t kChunk = 64;

using Scalar = FaultScalar;

// fault: index into the table, -1 for the twin. Throws std::runtime_error where the fault makes the kernel fail.
void execute(int fault, Form form, Scalar scalar, View& x, Memory& memory);

const std::vector<Fault>& table();

}  // namespace gdn::faulty
