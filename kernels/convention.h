// Conventions: how a kernel lays out and parameterises its arguments, and the one place that converts the
// canonical tensors into them and results back. The oracle knows only the canonical convention.
// Text form "axis=value;axis=value"; an axis left out is canonical. A new convention is one enumerator here and
// one conversion in convention.cpp. Facts about public kernels: each axis names who uses which value.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "reference/case.h"

namespace gdn {

enum class TensorLayout : std::uint8_t { THD, BTHD, BHTD };      // layout=  packed; batch first; head before token
//   BTHD, BHTD: one batch row per sequence and no cu_seqlens where all are equally long and nothing is padded,
//   else packed with B=1 and cu_seqlens
enum class StateLayout : std::uint8_t { KV, VK };                // state=
enum class GateDomain : std::uint8_t { log, linear, log2 };      // gate=
enum class ScaleHandling : std::uint8_t { argument, fixed, folded }; // scale= argument; K^-1/2 always; caller folds it into q
enum class HeadMap : std::uint8_t { grouped, tiled, repeated };  // heads=  h/(HV/H); h%H; q,k given per value head
enum class L2Norm : std::uint8_t { caller, in_kernel };          // l2norm= in_kernel: only rows of length 1 or 0 can be judged
enum class EmptySequence : std::uint8_t { copies_h0, untouched };// empty=  what ht holds for a zero-length sequence
enum class Projections : std::uint8_t { separate, packed };      // projections=  of the layer: qkv, z, a, b; per key head q k v z and b a
enum class History : std::uint8_t { taps_less_one, full };       // history=  columns of the layer's conv_state: W-1; W, the oldest never read
enum class NormWeight : std::uint8_t { plain, offset };           // norm_in=  of the layer's hidden norm: w; w - 1, where that is exact
enum class OtherTriangle : std::uint8_t { zero, free };          // triangle=  of the stages' L and M, what lies above

struct Convention {
  TensorLayout layout = TensorLayout::THD;
  StateLayout state = StateLayout::KV;
  GateDomain gate = GateDomain::log;
  ScaleHandling scale = ScaleHandling::argument;
  HeadMap heads = HeadMap::grouped;
  L2Norm l2norm = L2Norm::caller;
  EmptySequence empty = EmptySequence::copies_h0;
  OtherTriangle triangle = OtherTriangle::zero;
  Projections projections = Projections::separate;
  History history = History::taps_less_one;
  NormWeight norm_in = NormWeight::plain;
  bool operator==(const Convention&) const = default;
};

Convention parse_convention(std::string_view text);  // throws std::invalid_argument naming axis and value
std::string to_string(const Convention& c);
std::string describe_conventions();                  // every axis and value, for `gdn-cts list conventions`

// Inputs of a run as the kernel wants them. Throws std::invalid_argument, one line, where the convention cannot
// express the run (for example scale=fixed and a scale that q cannot take exactly): the caller reports NOT_SUPPORTED.
// gate=linear, log2: fp32, rounded once from the exact value; the contract's exp error covers that rounding.
TensorSet to_kernel(const Convention& c, const Run& run);
// Whether every row of q and k has length 1 (to fp32 rounding) or 0, so that a kernel that normalises them leaves them as they are.
bool has_unit_rows(const Run& run);
// Whether q of the run can take, exactly in its dtype, what of the scale the kernel does not apply.
bool takes_scale(const Convention& c, const Run& run);
// What the kernel is told: the scale it has to apply (1 when folded), and its number of key heads.
double kernel_scale(const Convention& c, const Run& run);
std::int64_t kernel_heads(const Convention& c, const Problem& p);
// Shapes and dtypes of the outputs that the kernel will write, in its convention.
TensorSet output_shapes(const Convention& c, const Run& run);
TensorSet from_kernel(const Convention& c, const Run& run, TensorSet outputs);

// ---- mistaken conventions ----
// A kernel that declares `declared` and does what `real` means computes mistaken_run in fact, and its (canonical) outputs of that
// come back as mistaken_outputs. For naming what went wrong. Of runs of several calls the tensors of all calls are converted
// together. Both throw std::invalid_argument where the mistake shows at once (shapes that do not fit) or has no canonical form.
Run mistaken_run(const Convention& declared, const Convention& real, const Run& run);
TensorSet mistaken_outputs(const Convention& declared, const Convention& real, const Run& run, TensorSet outputs);
struct ConventionChange { Convention convention; std::string name, meaning; };   // name: "state=VK"
std::vector<ConventionChange> neighbours(const Convention& c);   // those that differ in the value of one axis

}  // namespace gdn
