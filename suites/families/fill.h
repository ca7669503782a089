// Fill rules shared by the case families: inputs drawn so that slips must show.
// Counter-based random numbers only (reference/rng.h), no libm: the same bits on every machine. Every value
// depends on (seed, tensor, element) alone. Values are made in double and rounded once to the storage dtype.
#pragma once
#include <initializer_list>
#include <string>
#include <vector>

#include "reference/case.h"
#include "reference/rng.h"

namespace gdn::fill {

// Regimes of the decay, one per value head, so that a slip hidden in one shows in another.
enum class Gates {
  zero,     // exactly 0: nothing is forgotten, equalities are drawn
  slow,     // -4e-3..0, some exactly 0 or -1e-3: long memory
  mild,     // half slow, half -1..0: the correction of a decayed memory shows
  mixed,    // per token one of 0, -1e-3, -0.05, -0.5, -5, -20
  spikes,   // slow, with -100 now and then: factored decays overflow, the memory starts again
  resets,   // slow, with -1000 now and then
  faded,    // slow, with -64 now and then: what is left of a state is a normal number of fp32, and powers of two still scale it exactly
  long_lived,  // -x^4 / 8 for x uniform in (0,1): mostly slow, none twice
  short_lived, // -x^2: the memory reaches back a few tokens, none twice
};
// How the keys of one key head relate to each other. All have norm 1 before the one rounding.
enum class Keys {
  correlated,   // common direction of share 0.6, every fifth repeats an earlier key exactly
  independent,  // random directions, every seventh the opposite of an earlier key
  positive,     // non-negative entries: large overlaps
  random,       // common direction of share 0.4, no key twice
};
enum class Betas {
  unit,     // (0,1), one in eight exactly 1
  high,     // 0.75..1, one in four exactly 1: replacing writes
  sparse,   // exactly 0 for 3 of 4 tokens, else (0,1): beside slow gates, so that a bound does not outgrow the signal
  rare,     // exactly 0 for 15 of 16 tokens, else (0,1): what is written stays
  wide,     // (0,2), one in eight exactly 2: negative eigenvalues
  open,     // (0,1), none twice
};

struct Style {
  std::vector<Gates> gates{Gates::slow, Gates::mild, Gates::spikes, Gates::mixed, Gates::zero, Gates::resets};
  std::vector<Keys> keys{Keys::correlated, Keys::independent, Keys::positive};
  std::vector<Betas> betas{Betas::sparse, Betas::unit, Betas::sparse, Betas::high};   // each list is walked round over the heads
  double state = 1;                                     // deviation of the entries of h0
};

// Zeroed tensors of the problem's shapes, with cu_seqlens set, on a pool slot n for row n: what every fill starts from. Tensors that the rule
// does not use (g of delta and linear, beta of retention and linear) are left out.
TensorSet allocate(const Problem& p);
// Everything filled by the style; the padding past cu_seqlens[N] is NaN in every tensor.
TensorSet inputs(const Problem& p, std::uint64_t seed, const Style& style);
// One-hot keys with sign, few of them and often written again, integers of up to 8 digits in v, h0 and q, queries that
// mostly ask for a key already written, g = 0: the state is a dictionary and every value exact in 8 digits. beta is 0
// or 1; of four heads the third replaces halves (1/2, at most three times per key) and the fourth erases, then
// writes with weights of 8 digits.
TensorSet dictionary(const Problem& p, std::uint64_t seed);
// Writes NaN into all rows past cu_seqlens[N].
void poison_padding(const Problem& p, TensorSet& t);
// A case of one run with these inputs.
Case single(const std::string& family, const Problem& p, std::uint64_t seed, TensorSet inputs);
// Whether tokens that change nothing (beta = 0, g = 0) can be put into the run: one sequence without padding, gates as they enter the recurrence, and a beta.
bool takes_identity_tokens(const Run& r);
// Puts such tokens into it, with q, k and v of another seed: row i becomes row to[i] (ascending) of `tokens` rows.
void add_identity_tokens(Run& r, const std::vector<std::int64_t>& to, std::int64_t tokens, std::uint64_t seed, const Style& style);
// Throws std::invalid_argument unless the problem is a prefill.
void require_prefill(const std::string& family, const Problem& p);
// The same for the operations on a pool.
void require_pool(const std::string& family, const Problem& p, Operation operation);
// Writes NaN into the token rows whose state index is -1.
void poison_idle_rows(const Problem& p, TensorSet& t);
std::vector<Problem> problems(std::initializer_list<const char*> texts);

}  // namespace gdn::fill
