// Problem: shape and options of one run, with ONE canonical text form that parses and prints itself,
// for example  prefill/n1_t257_h2_hv4_k128_v64/bf16/h0  or  prefill/n3_t64+0+1_h1_hv2_k64_v64/fp32/h0,split=17
// Grammar:  OPERATION / n<N>_t<LENGTHS>_h<H>_hv<HV>_k<K>_v<V> / IO-DTYPE [ / OPTION{,OPTION} ]
// LENGTHS: one number when all sequences have it, or numbers joined by '+', where a run of r equal lengths
// prints as <len>x<r> (r >= 2, N >= 2 and not all equal).
// decode and verify work on a pool of states, for example  decode/n4_t6_h2_hv4_k64_v48/bf16/h0,slots=7 : 6 calls of one token
// for each of 4 batch rows;  verify/n2_t9_h1_hv2_k64_v64/fp32/h0,slots=4,draft=4 : two calls of 4 draft tokens and a plain step.
// layer_prefill and layer_decode are the layer around the rule (layer.h), for example  layer_prefill/n2_t9+4_h2_hv4_k16_v16/bf16/h0,hidden=32,conv=4
// (decode: one token of every sequence a call).
// stages is one step of the chunkwise form alone (stages.h), for example  stages/n2_t70+33_h1_hv2_k64_v64/bf16/stage=uw,chunk=64
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "reference/tensor.h"

namespace gdn {

enum class Operation : std::uint8_t { prefill, decode, verify, backward, layer_prefill, layer_decode, stages };
// How a token changes the state; see reference/README.md. gated_delta is the rule of GDN; the rest are its limits.
enum class Rule : std::uint8_t { gated_delta, delta, gated_linear, retention, linear, kda, complex_kda };
// Steps of the chunkwise form (accuracy standard, section 10), in the order in which they need each other.
enum class Stage : std::uint8_t { gate_sum, gram, inverse, uw, chunk_states, output };
inline constexpr int kStages = 6;
// How the layer normalises q and k: x / sqrt(sum x^2 + eps); x / max(|x|, eps); not at all.
enum class L2Form : std::uint8_t { root, max, none };

const char* name(Operation op);
const char* name(Rule r);
const char* name(Stage s);
const char* name(L2Form f);

struct Problem {
  Operation operation = Operation::prefill;
  std::vector<std::int64_t> lengths{1};            // tokens of each sequence; 0 is legal
  std::int64_t heads = 1, value_heads = 1, key_dim = 64, value_dim = 64;
  DType io = DType::bf16;                          // q, k, v, o
  DType gate = DType::f32, beta = DType::f32, state = DType::f32;  // options g=, beta=, state= when not fp32
  bool initial_state = false;                      // option h0
  bool final_state = true;                         // option noht when false
  std::int64_t padding = 0;                        // option pad=<n>: tokens past cu_seqlens[N], never to be used
  // How tensors are handed to the kernel, which changes nothing in what is asked. Option strided: as parts of larger buffers, with
  // strides of their own and a byte offset (kernels/call_image.h). Option far: that with outermost strides so great that the elements of the last
  // row lie past 2^32. Option cu=i32: cu_seqlens in 32 bits instead of 64.
  bool strided = false, far = false, short_offsets = false;
  // Option split=a.b.c: the run is made of several calls, cut after a, b, c tokens of every sequence (a sequence
  // shorter than a cut contributes zero tokens to later calls), the state of one handed to the next as ht -> h0.
  std::vector<std::int64_t> split;
  Rule rule = Rule::gated_delta;                   // option rule=<name>
  // decode, verify: option slots=<n>, states in the pool (accuracy standard 1.8); verify: option draft=<d>, tokens of a call.
  // A decode call with draft=<d> is the plain step after a verify call of d tokens (schedule.h makes these).
  std::int64_t slots = 0, draft = 0;
  bool raw = false;                                // option raw: gates as a (in the gate's dtype), A_log, dt_bias (1.3)
  bool unit = false;                               // option unit: keys and queries of length exactly 1, which kernels that normalise them leave as they are
  Stage stage = Stage::gate_sum;                   // of stages: options stage=<name> and
  std::int64_t chunk = 0;                          // chunk=<rows>
  // Of the layer: options hidden=<n>, width of x and y; conv=<W>, taps of the convolution; l2=max, l2=none.
  std::int64_t hidden = 0, conv = 0;
  L2Form l2 = L2Form::root;
  double scale = 0;                                // option scale=<hexfloat>; 0: float(K^-1/2), see effective_scale

  bool layer() const { return operation == Operation::layer_prefill || operation == Operation::layer_decode; }
  bool pool() const { return operation == Operation::decode || operation == Operation::verify; }
  std::int64_t states() const { return pool() ? slots : sequences(); }   // rows of h0 and ht
  // Tokens of every sequence before each call but the first: split; decode, layer_decode: one by one; verify: draft by draft.
  std::vector<std::int64_t> cuts() const;
  std::int64_t sequences() const { return static_cast<std::int64_t>(lengths.size()); }
  std::int64_t tokens() const;                     // sum of lengths, without padding
  std::vector<std::int64_t> offsets() const;       // cu_seqlens, N+1 values
  double effective_scale() const;                  // exactly representable in fp32
  // Gates of one token and value head: one, or one per key channel (kda), or per pair of them (complex_kda; as many angles).
  std::int64_t gate_width() const { return rule == Rule::kda ? key_dim : rule == Rule::complex_kda ? key_dim / 2 : 1; }
  double token_heads() const;                      // size for level budgets: tokens x HV x K V / 16384
  bool operator==(const Problem&) const = default;
};

std::string to_string(const Problem& p);
// Throws std::invalid_argument with one line naming the first thing that is wrong.
Problem parse_problem(std::string_view text);
// Throws when sizes are not usable: HV not a multiple of H, K or V < 1, more than 2^40 elements, ...
void validate(const Problem& p);

}  // namespace gdn
