// Precision contract: what a kernel declares of each point of its algorithm where a value is stored.
// Judging (bounds, sigma) and simulation read this and nothing else about a kernel's arithmetic.
// Text form:  PRESET[;key=value]...   for example  bf16-chunk;M=fp32;chunk=32;gate_sum=prefix_seq;g_min=-80
// Keys: the names of the points below (and of the layer) with a Store text, and the options of Contract with their names.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "reference/format.h"
#include "reference/problem.h"

namespace gdn {

// Storage points, named as in the chunkwise form of reference/README.md. A store no narrower than the arithmetic
// (the accumulator's format, fp32 beside a tensor core) costs nothing of its own.
enum class Point : std::uint8_t {
  q_in, k_in, v_in,    // inputs as the arithmetic sees them
  beta,                // beta
  G,                   // gate sums (recurrent: the gate)
  D,                   // decay factors e^(G_i-G_j), e^G
  gram,                // K K^T, Q K^T, L, and the operands of the products that build an explicit inverse
  M,                   // (I+L)^-1
  bv, bk,              // beta v (residual form: beta (v - e^G S^T k)), beta e^G k
  U, W,                // M (beta v), M (beta e^G k)
  Vn_o, Vn_s,          // corrected values as operand of the output, of the state update (recurrent: Vn_s)
  S_op, S_carried,     // state as operand of a product, state as carried on
  P,                   // scores (Q K^T) o D
  q_scaled, k_scaled,  // e^G q, e^(G_C - G) k
  out,                 // o
  ht,                  // state as handed over at the end of a call
  count
};
// Points of the layer around the rule (layer.h).
enum class LayerPoint : std::uint8_t {
  x_norm,              // hidden state after its norm, as operand of the projections
  proj,                // results of the projections: q k v z a b
  conv_sum,            // after the convolution, before SiLU
  conv,                // after SiLU
  unit,                // q and k normalised
  core,                // output of the rule, before its norm
  normal,              // after its norm, before weight and gate
  normed,              // norm, weight and gate applied: operand of the last projection
  conv_state,          // as handed over at the end of a call
  count
};
const char* name(LayerPoint p);
const char* meaning(LayerPoint p);                 // what is stored there, a few words
inline constexpr std::size_t kLayerPoints = static_cast<std::size_t>(LayerPoint::count);
const char* name(Point p);
const char* meaning(Point p);
inline constexpr std::size_t kPoints = static_cast<std::size_t>(Point::count);

enum class Form : std::uint8_t { recurrent, chunkwise };
enum class Solve : std::uint8_t { substitution, block_inverse, neumann };   // of (I+L) X = B; block_inverse and neumann form M
enum class Vectors : std::uint8_t { wu, residual };
enum class Cadence : std::uint8_t { token, chunk, call };                  // when the carried state is rounded to S_carried
enum class GateSum : std::uint8_t { prefix_seq, prefix_tree, reset_safe };
enum class Accumulator : std::uint8_t { fp64, fp32, tensor_core };          // tensor_core: exact products, truncated sum, u = 2^-23

struct Contract {
  std::string preset;
  Form form = Form::recurrent;
  std::array<Store, kPoints> points{};
  std::array<Store, kLayerPoints> layer{};
  Accumulator accumulator = Accumulator::fp32;
  int chunk = 64;                                  // C; 1 for recurrent
  int block = 16;                                  // rows of one block of block_inverse
  Solve solve = Solve::substitution;
  Vectors vectors = Vectors::wu;
  Cadence cadence = Cadence::token;
  GateSum gate_sum = GateSum::reset_safe;
  bool fma = false;                                // products of the recurrence and accumulations fused
  double g_min = 0;                                // least gate for which it is valid; 0 means -inf
  double u_exp = 0;                                // relative error of its exp; 0: 2 ulp of the arithmetic

  const Store& at(Point p) const { return points[static_cast<std::size_t>(p)]; }
  Store& at(Point p) { return points[static_cast<std::size_t>(p)]; }
  const Store& at(LayerPoint p) const { return layer[static_cast<std::size_t>(p)]; }
  Store& at(LayerPoint p) { return layer[static_cast<std::size_t>(p)]; }
  bool operator==(const Contract&) const = default;
};

std::vector<std::string> contract_presets();
// Throws std::invalid_argument in one line naming the unknown preset, key or value.
Contract parse_contract(std::string_view text);
std::string to_string(const Contract& c);          // canonical: preset and the keys that differ from it
std::string explain(const Contract& c);            // every option and point, one a line
// A key beside the points: what it says, and the words that it takes, each with what it means (""; no words: a number).
struct ContractKey {
  std::string name, meaning;
  std::vector<std::pair<std::string, std::string>> values;
};
std::vector<ContractKey> contract_keys();

// The contract as it applies to a problem: `out` narrowed to the io dtype and `ht` to the state dtype, unless they
// are at least as narrow already; of the layer `out` is y, and `conv_state` is narrowed to the io dtype. Of a stage: chunkwise in the problem's chunks, with W and U. Bounds, sigma and simulation of a problem take the narrowed contract.
Contract for_problem(const Contract& c, const Problem& p);

Store arithmetic(const Contract& c);               // fp64 or fp32, to nearest: of every operation that is no store
bool uses(const Contract& c, Point p);             // whether the form has this point at all
// Relative error of storing at p; 0 where the store is no narrower than the arithmetic or the form has no such point.
double unit(const Contract& c, Point p);
double underflow(const Contract& c, Point p);      // the same for the absolute error below the normal range

}  // namespace gdn
