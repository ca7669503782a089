// Kinds of fault: one list of slugs, shared by the case families (what a family is there to catch) and the fault
// bank (what kind a fault is of). A kind is a class of slip, not an instance: every place where it could sit counts.
// A new kind is one line here; the tests hold that every slug used by a family or a fault stands in this list.
#pragma once
#include <string_view>

namespace gdn {

struct Kind {
  const char* slug;
  const char* area;      // heading under which reports group it
  bool certain;          // mask, boundary or layout slip: must be caught whenever it changes anything at all
  const char* sentence;  // what goes wrong, in one sentence
};

inline constexpr Kind kKinds[] = {
    // --- the step itself ---
    {"correction-before-decay", "step", false, "the correction v - S^T k is formed with the state before its decay"},
    {"correction-missing", "step", false, "the delta term is left out: values are added instead of replaced"},
    {"correction-wrong-weight", "step", false, "beta multiplies only v or only the read, is used twice, or is squared"},
    {"decay-after-write", "step", false, "the decay is applied after the new value is written"},
    {"read-before-write", "step", false, "the output reads the state before the token's own write"},
    {"beta-clamped", "step", false, "beta is limited (to 1, or away from 0) or passed through a sigmoid once more"},
    {"beta-shifted", "step", true, "beta (or v, or k) of a neighbouring token is used"},
    {"scale-wrong", "step", false, "the scale of q is missing, applied twice, or taken from V instead of K"},
    {"sign-wrong", "step", false, "one sign is flipped"},
    {"unwanted-normalisation", "step", false, "k or q is normalised although the caller asked for none, or the reverse"},
    // --- gates ---
    {"gate-clamped", "gates", false, "g is limited from below, for example at -5, -10 or -20"},
    {"gate-ignored", "gates", false, "the decay is not applied at all somewhere: to the state, the scores or the correction"},
    {"gate-shifted", "gates", true, "the gate of the previous or next token is used (exclusive for inclusive sum)"},
    {"gate-base-mixed", "gates", false, "a decay is formed in base 2 from natural logarithms, or the reverse"},
    {"gate-domain-mixed", "gates", false, "a log gate is taken as linear, or a linear one as log"},
    {"gate-ratio-factored", "gates", false, "e^(G_i-G_j) is formed as e^G_i times e^-G_j, which overflows or loses digits"},
    {"gate-mask-multiplied", "gates", true, "a decay above the diagonal overflows and is masked by multiplication: inf times 0"},
    {"gate-mask-by-value", "gates", true, "causality is decided by the sign of G_i-G_j: gates of exactly 0 lose or gain pairs"},
    {"gate-absorbed", "gates", false, "after one very negative gate the sum loses all later gates of the chunk"},
    {"gate-infinite", "gates", false, "g=-inf gives NaN (inf minus inf) or is not a reset"},
    {"gate-tiny-lost", "gates", false, "a small decay becomes exactly 1, or a large one exactly 0 too early"},
    {"gate-reset-lost", "gates", false, "a reset (g=-1000) does not erase the state, or erases the token's own write too"},
    {"gate-anchored-late", "gates", true, "an exponent is anchored on a later row, so that a future gate changes past outputs"},
    {"channel-gate-wrong", "gates", true, "a key channel decays by the gate of another channel or of another head"},
    {"complex-turn-wrong", "gates", true, "a complex channel is turned the other way, not at all, or with another partner"},
    {"gate-positive", "gates", false, "g > 0 is accepted silently"},
    {"raw-gate-overflow", "raw gates", false, "log(1+e^x) or exp(A_log) overflows"},
    {"raw-gate-underflow", "raw gates", false, "log(1+e^x) becomes 0 for negative x, so that the decay vanishes"},
    {"raw-gate-nan", "raw gates", false, "inf times 0 in exp(A_log) softplus(x) gives NaN"},
    // --- precision below the declaration ---
    {"beta-narrowed", "precision", false, "beta or a sigmoid is rounded to a shorter format than declared"},
    {"gate-narrowed", "precision", false, "g, a gate sum or a decay is rounded to a shorter format than declared"},
    {"state-narrowed", "precision", false, "the carried state is stored in a shorter format than declared"},
    {"state-rounded-too-often", "precision", false, "the state is rounded per token instead of per chunk or call"},
    {"operand-narrowed", "precision", false, "an operand of a product is in a shorter format than declared (TF32 or bf16 for fp32)"},
    {"inverse-narrowed", "precision", false, "the triangular solve or the inverse is in a shorter format than declared"},
    {"inverse-by-products", "precision", false, "the inverse is formed by log-depth products, which explode on equal keys"},
    {"accumulator-narrowed", "precision", false, "a sum is accumulated in a shorter format than declared"},
    {"rounding-truncates", "precision", false, "a value is truncated instead of rounded to nearest even"},
    {"subnormals-flushed", "precision", false, "subnormal values are flushed although declared kept"},
    {"saturation-wrong", "precision", false, "values beyond the format's range are clamped, wrapped or become NaN"},
    // --- chunk algebra, masks, tails ---
    {"state-zeroed-at-chunk-border", "chunks", true, "the state is dropped at a chunk border"},
    {"state-stale-at-chunk-border", "chunks", true, "a chunk reads the state of an earlier chunk, or of the wrong buffer half"},
    {"state-decay-wrong-at-chunk-border", "chunks", true, "the state is not decayed, or decayed twice, over a chunk"},
    {"tail-decay-wrong-row", "chunks", true, "the chunk-end decay is taken from a wrong row of a ragged tail"},
    {"tail-gates-zeroed", "chunks", true, "the gate sum past the last real row is 0, so that the state is not decayed"},
    {"tail-padding-read", "chunks", true, "rows past the end are not masked and reach a result"},
    {"tail-tokens-dropped", "chunks", true, "the last tokens of a ragged tail are not processed or not written"},
    {"double-decay", "chunks", false, "a decay enters two operands of one product, or none of them"},
    {"mask-off-by-one", "chunks", true, "the diagonal is included in L, left out of P, or a mask is shifted by one"},
    {"local-term-wrong", "chunks", true, "the in-chunk term is added twice or not at all in some chunks"},
    {"inverse-wrong", "chunks", true, "a row, block or power of the triangular inverse is missing or wrong"},
    {"uncorrected-values", "chunks", false, "U (values without the state's part) stands where Vn should"},
    {"cross-term-missing", "chunks", true, "the part of the state (W S, or the read of S) is left out"},
    {"tile-from-wrong-dim", "sizes", true, "a tile or loop limit of one dimension is taken from another"},
    // --- sequences ---
    {"state-leaks-into-next-sequence", "sequences", true, "a sequence starts from what the one before it left"},
    {"sequence-border-off-by-one", "sequences", true, "the first or last token of a sequence is treated as the neighbour's"},
    {"chunks-cross-sequences", "sequences", true, "chunks are cut from the packed buffer instead of from each sequence"},
    {"sequence-gates-cross", "sequences", true, "a gate sum runs on over a sequence border, or starts at the chunk instead of the border"},
    {"empty-sequence-mishandled", "sequences", true, "a sequence of length zero loses its state, hangs, or shifts the ones after it"},
    {"one-token-sequence-mishandled", "sequences", true, "a sequence of one token takes a wrong path"},
    {"sequence-state-mixed", "sequences", true, "the states of two sequences are exchanged or indexed by the wrong number"},
    {"padding-used", "sequences", true, "tokens past cu_seqlens[N] reach a result"},
    // --- initial and final state ---
    {"initial-state-ignored", "states", true, "h0 is not read: a continuation starts from zero or from a stale slot"},
    {"initial-state-decay-wrong", "states", true, "h0 misses the first token's decay, or is decayed once too often"},
    {"initial-state-transposed", "states", true, "h0 is read with key and value channels exchanged"},
    {"final-state-transposed", "states", true, "ht is written with key and value channels exchanged"},
    {"final-state-wrong", "states", true, "ht is not the state after the last token (one token early, unscaled, previous chunk)"},
    {"final-state-unwritten", "states", true, "ht is not written for some sequence, head, row or column"},
    {"state-handoff-broken", "states", true, "ht of one call, given to the next as h0, does not continue the sequence"},
    {"state-stride-wrong", "states", true, "the state is addressed with the stride of another dtype or dimension"},
    {"state-shared-between-heads", "states", true, "heads read or write each other's state"},
    // --- pools, slots, snapshots ---
    {"slot-padding-mishandled", "pools", true, "slot index -1 is clamped to a live slot, or padding writes to slot 0"},
    {"slot-wrong", "pools", true, "a state is read from or written to the wrong slot of the pool"},
    {"slot-reuse-leaks", "pools", true, "a reused slot or plan keeps something of its earlier life"},
    {"snapshot-wrong", "pools", true, "a snapshot is stored under the wrong token, in the wrong order or number"},
    {"acceptance-wrong", "pools", true, "after draft tokens the wrong snapshot is continued"},
    // --- heads, layout, sizes ---
    {"head-map-wrong", "heads", true, "value heads read the wrong key head (tiled for grouped), or gates of another head"},
    {"output-stride-wrong", "heads", true, "an output is addressed by the number of key heads instead of value heads"},
    {"key-channels-dropped", "sizes", true, "key channels beyond a multiple of the tile width are ignored"},
    {"value-channels-dropped", "sizes", true, "value channels beyond a multiple of the tile width are ignored or repeated"},
    {"layout-transposed", "layout", true, "two dimensions of an input or output are exchanged"},
    {"layout-stride-ignored", "layout", true, "strides, offsets or alignment of a tensor are ignored"},
    {"offset-overflow", "layout", true, "an element offset wraps at 2^31 or 2^32"},
    // --- memory and order ---
    {"output-unwritten", "memory", true, "some output elements are never written"},
    {"element-wrong", "memory", true, "a single output element is wrong"},
    {"nan-in-output", "memory", true, "a NaN or Inf appears where the truth is finite"},
    {"nan-spreads", "memory", true, "a NaN or Inf in an input reaches results that do not depend on it"},
    {"out-of-bounds-write", "memory", true, "memory outside the outputs is written, or an input is changed"},
    {"future-leaks", "memory", true, "a later token changes an earlier output"},
    {"nondeterministic", "memory", true, "two runs give different numbers although declared deterministic"},
    {"paths-differ", "memory", true, "two paths of one kernel (prefill and decode, whole and ragged chunks) give different numbers although declared the same"},
    {"batch-dependent", "memory", true, "results depend on what else is in the batch although declared not to"},
    {"workspace-stale", "memory", true, "a result depends on what the plan or workspace held before"},
    // --- norms, layer, backward ---
    {"l2norm-eps-wrong", "layer", false, "the epsilon of the l2norm is on the wrong quantity"},
    {"conv-state-wrong", "layer", true, "the convolution's history is shifted, or read from the wrong end"},
    {"activation-order-wrong", "layer", false, "SiLU is missing, or comes before the convolution or into its history"},
    {"norm-order-wrong", "layer", false, "a norm stands at another place of the layer"},
    {"projection-packing-wrong", "layer", true, "projections that are handed over together are cut at the wrong places"},
    {"gated-norm-wrong", "layer", false, "gate and norm are exchanged, the activation is another one, or the weight is 1+w"},
    {"gradient-wrong", "backward", false, "a gradient has a missing, doubled or misplaced term"},
    {"gradient-unwritten", "backward", true, "gradient rows past a boundary are not written"},
    // --- the harness itself ---
    {"harness", "harness", true, "the suite's own machinery lets a wrong result through"},
};

constexpr bool is_kind(std::string_view slug) {
  for (const Kind& k : kKinds)
    if (slug == k.slug) return true;
  return false;
}

}  // namespace gdn
