// What the CPU kernels share: they hand sequences and heads to threads, bring strided tensors of any dtype into dense
// fp32 blocks of rows, and carry the state from block to block. A kernel is a block function.
#pragma once
#include <cstddef>
#include <cstdint>

#include "kernels/gdn_kernel.h"

namespace gdn::cpu {

// Consecutive rows of one value head of one sequence, fp32, dense but for v and o; everything may be read past no row.
struct Block {
  std::int64_t rows, K, V;
  float scale;
  bool delta;                                      // with the read-back term
  bool channel_gate;                               // g is [rows,K], one gate per key channel
  const float *q, *k, *v;                          // [rows,K] [rows,K] [rows,V]
  const float *g, *beta;                           // [rows]
  float* S;                                        // [K,V], in and out
  float* o;                                        // [rows,V], out
  float* work;                                     // workspace(K, V) floats, contents free
  const float* angle = nullptr;                    // [rows,K/2] of complex_kda
  bool same_keys = false;                          // q, k and work are as the block before left them: another value head of the key head
  std::int64_t ldv = V, ldo = V;                   // floats from row to row of v and o, which may lie in the caller's memory
};

// One stage (gdn_kernel.h) of one chunk and value head, dense fp32; tensors that the stage has not are null.
struct StageBlock {
  std::int32_t stage;                              // gdn_stage
  std::int64_t chunk, rows, K, V;                  // rows of a whole chunk, of this one
  float scale;
  const float *q, *k, *v, *g, *beta;
  const float *G, *L, *M, *W, *U, *Vn;             // L, M [rows,rows]
  float* S;                                        // [K,V]; chunk_states: in and out
  float *out, *more;                               // G, L, M, U (and W as more), Vn or o
  float* work;                                     // workspace(chunk, K, V) floats
};

struct Method {
  std::int64_t rows;                               // of a full block: the chunk
  bool bf16_inputs, bf16_output;                   // q k v rounded to bf16 on entry, o before it is stored
  bool channel_gate;                               // can do rules kda and complex_kda
  std::size_t (*workspace)(std::int64_t rows, std::int64_t K, std::int64_t V);
  void (*block)(const Block&);
  bool pool = false;                               // can do decode and verify
  void (*stage)(const StageBlock&) = nullptr;      // null: offers no stages
};

// The three functions of the ABI for a method. A kernel's own create calls this one with its method.
int create(const Method& method, const gdn_problem* problem, void** plan, char* message, std::size_t message_size);
int run(void* plan, const gdn_call* call, char* message, std::size_t message_size);
void destroy(void* plan);

}  // namespace gdn::cpu
