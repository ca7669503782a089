// The studies of `gdn-cts precision`: what varies, over which values. To add one, add an entry.
#include "suites/precision.h"

namespace gdn {
namespace {

using Values = std::vector<std::string>;

const Values kNarrow = {"tf32", "bf16", "fp16", "fp8_e4m3", "fp8_e5m2"};
// One contract for each answer to "what do people run": all fp32, TF32 products, 16-bit operands, 16-bit state.
const Values kContracts = {"fp32-recurrent", "fp32-chunk", "tf32-chunk", "fp16-chunk", "bf16-chunk", "bf16-state"};
const Values kWith16BitState = {"fp32-recurrent", "fp32-chunk", "tf32-chunk", "fp16-chunk", "bf16-chunk", "bf16-chunk;S_carried=bf16", "bf16-state"};

std::vector<PrecisionStudySpec> make() {
  std::vector<PrecisionStudySpec> all;
  const auto add = [&](PrecisionStudySpec s) { all.push_back(std::move(s)); };
  add({{"points", "Which storage point may be narrow? Each alone in a shorter format, everything else in fp32.", "point", {"format"}, {"contract", "gate"}},
       {{"T", "1024"}, {"K", "128"}},
       {{"contract", {"fp32-chunk;solve=block_inverse", "fp32-chunk;vectors=residual;solve=block_inverse", "fp32-recurrent"}, {}},
        {"gate", {"0", "0.01"}, {"0", "0.001", "0.01", "0.1", "1"}},
        {"point", {"none", "*"}, {}},
        {"format", kNarrow, {}}}});
  add({{"widen", "What would one point given back to fp32 gain? Presets with narrow operands, one point at a time in fp32.", "point", {"contract"}, {"gate"}, true},
       {{"T", "1024"}, {"K", "128"}, {"format", "fp32"}},
       {{"contract", {"tf32-chunk", "fp16-chunk", "bf16-chunk", "bf16-state"}, {}},
        {"gate", {"0.01"}, {"0", "0.001", "0.01", "0.1"}},
        {"point", {"none", "*"}, {}}}});
  // Strong writes replace what is stored within K tokens or so, and errors with it; weak ones keep it.
  add({{"length", "How far does it carry? Error over the number of tokens.", "T", {"contract"}, {"gate", "beta"}},
       {},
       {{"contract", kWith16BitState, {}},
        {"gate", {"0", "0.01"}, {"0", "0.001", "0.01", "0.1"}},
        {"beta", {"0..1", "0..0.01"}, {"0..2", "0..1", "0..0.1", "0..0.01"}},
        {"T", {"64", "256", "1024", "4096", "16384"}, {"64", "128", "256", "512", "1024", "2048", "4096", "8192", "16384", "32768", "65536", "131072"}}},
       true});
  add({{"far", "Up to 131072 tokens, on small heads.", "T", {"contract"}, {"gate", "beta"}},
       {{"K", "32"}, {"gate", "0"}},
       {{"contract", {"fp32-chunk", "bf16-chunk", "bf16-chunk;S_carried=bf16", "bf16-state"}, {}},
        {"gate", {"0"}, {}},
        {"beta", {"0..1", "0..0.001"}, {}},
        {"T", {"512", "2048", "8192", "32768", "131072"}, {}}},
       true});
  add({{"gates", "What does the decay do? Error over the mean decay of a token.", "gate", {"contract"}, {}},
       {{"T", "2048"}},
       {{"contract", kWith16BitState, {}}, {"gate", {"0", "0.0001", "0.001", "0.01", "0.1", "1", "10"}, {}}},
       true});
  add({{"betas", "What does the strength of the writes do, up to negative eigenvalues?", "beta", {"contract"}, {"gate"}},
       {{"T", "1024"}},
       {{"contract", kContracts, {}}, {"gate", {"0", "0.01"}, {"0", "0.001", "0.01", "0.1"}}, {"beta", {"0..0.1", "0..1", "1", "0..2", "1..2", "1.9..2", "2"}, {}}},
       true});
  add({{"keys", "What do correlated keys do? Error over the mean cosine of two keys.", "keys", {"contract"}, {}},
       {{"T", "1024"}},
       {{"contract", kContracts, {}}, {"keys", {"0", "0.3", "0.6", "0.9", "0.99", "1"}, {}}},
       true});
  add({{"chunk", "Which chunk size?", "chunk", {"contract"}, {"gate"}},
       {{"T", "2048"}},
       {{"contract", {"fp32-chunk", "tf32-chunk", "fp16-chunk", "bf16-chunk"}, {}}, {"gate", {"0", "0.01", "1"}, {}}, {"chunk", {"16", "32", "64", "128", "256"}, {}}}});
  add({{"inverse", "Substitution, block inverse or log-depth products? W and U or the residual form?", "keys", {"solve", "vectors"}, {"contract", "T"}},
       {{"gate", "0.001"}, {"beta", "0.835"}},
       {{"contract", {"fp32-chunk", "tf32-chunk;gram=fp32", "bf16-chunk"}, {}},
        {"T", {"64", "512"}, {}},                  // one chunk: the inverse alone; eight: what the state makes of it
        {"solve", {"substitution", "block_inverse", "neumann"}, {}},
        {"vectors", {"wu", "residual"}, {}},
        {"keys", {"0", "0.3", "0.6", "0.9", "0.99", "1"}, {}}}});
  add({{"rounding", "Nearest, toward zero or stochastic?", "T", {"rounding"}, {"contract"}},
       {{"gate", "0.001"}},
       {{"contract", {"bf16-state", "bf16-chunk", "fp16-chunk", "tf32-chunk"}, {}}, {"rounding", {"rne", "rz", "sr"}, {}}, {"T", {"64", "256", "1024", "4096"}, {"64", "256", "1024", "4096", "16384"}}}});
  add({{"cadence", "How often may the carried state be rounded? In 16 bits after every token, every chunk of 64, every call of 1024.", "T", {"contract"}, {"gate"}},
       {{"call", "1024"}},
       {{"contract", {"fp32-recurrent", "fp32-chunk", "fp32-recurrent;S_carried=bf16", "fp32-chunk;S_carried=bf16", "fp32-chunk;S_carried=bf16;cadence=call",
                      "fp32-recurrent;S_carried=fp16", "fp32-chunk;S_carried=fp16", "fp32-chunk;S_carried=fp16;cadence=call"}, {}},
        {"gate", {"0", "0.001"}, {"0", "0.0001", "0.001", "0.01"}},
        {"T", {"2048", "4096", "8192", "16384"}, {"2048", "4096", "8192", "16384", "32768", "65536"}}}});
  add({{"accumulator", "Sums to nearest, or cut as tensor cores do?", "T", {"contract", "accumulator"}, {}},
       {},
       {{"contract", {"fp32-chunk", "tf32-chunk", "bf16-chunk"}, {}}, {"accumulator", {"fp32", "tensor_core"}, {}}, {"T", {"64", "256", "1024", "4096"}, {"64", "256", "1024", "4096", "16384"}}}});
  PrecisionStudySpec bounds{{"bounds", "Where do bound, sigma and measured error part company?", "T", {}, {"contract", "gate"}, false, true},
                            {},
                            {{"contract", {"fp32-recurrent", "fp32-chunk", "bf16-chunk", "bf16-state"}, {}},
                             {"gate", {"0", "0.01"}, {"0", "0.001", "0.01", "0.1"}},
                             {"T", {"64", "256", "1024", "4096"}, {"64", "256", "1024", "4096", "16384"}}}};
  add(bounds);
  PrecisionStudySpec cheapest{{"cheapest", "What is the cheapest contract that keeps 8, 11 or 16 bits? Searched from the errors of single points, and carried out.", "", {}, {}},
                              {{"contract", "fp32-chunk;solve=block_inverse"}},
                              {{"gate", {"0.001"}, {"0", "0.001", "0.01"}}, {"T", {"1024", "8192"}, {"1024", "8192", "65536"}}, {"point", {"none", "*"}, {}}, {"format", kNarrow, {}}}};
  cheapest.search = true;
  add(cheapest);
  return all;
}

}  // namespace

const std::vector<PrecisionStudySpec>& precision_studies() {
  static const std::vector<PrecisionStudySpec> all = make();
  return all;
}

std::vector<PrecisionStudy> precision_views() {
  std::vector<PrecisionStudy> views;
  for (const PrecisionStudySpec& s : precision_studies()) {
    views.push_back(s.view);
    for (const PrecisionStudySpec::Axis& a : s.axes)
      if (a.name == "contract") views.back().contracts = a.ci;   // of every size the same
  }
  return views;
}

}  // namespace gdn
