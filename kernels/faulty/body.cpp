// The algorithm in plain loops, recurrent and chunkwise, with the faults as one-place deviations of it, and the table
// that names them. A new fault is one row of kTable and one `is("name"_f)` where it deviates.
#include "kernels/faulty/body.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <stdexcept>

#include "kernels/faulty/narrow.h"
#include "kernels/faulty/layer.h"
#include "kernels/faulty/stages.h"

namespace gdn::faulty {
namespace {

constexpr unsigned R = 1u << static_cast<unsigned>(Form::recurrent), C = 1u << static_cast<unsigned>(Form::chunkwise), RC = R | C;

constexpr Fault kTable[] = {
    // --- the step ---
    {"correction_before_decay", "correction-before-decay", RC, 0, "the read-back S^T k is taken from the state before this token's decay", "public reports of kernels and pseudocode that read before decaying"},
    {"delta_term_missing", "correction-missing", RC, 0, "values are added without subtracting what the key already holds", "public reports of gated linear attention code reused for the delta rule"},
    {"readback_with_query", "correction-missing", R, 0, "the correction is read with q instead of k", "a slip of one letter between two tensors of one shape"},
    {"correction_added", "sign-wrong", RC, 0, "the read-back is added instead of subtracted", "public reports of sign errors in the UT transform"},
    {"beta_not_on_value", "correction-wrong-weight", RC, 0, "beta multiplies the read-back only, v is written whole", "public reports of beta folded into one operand only"},
    {"beta_not_on_readback", "correction-wrong-weight", RC, 0, "beta multiplies v only, the read-back is subtracted whole", "public reports of beta folded into one operand only"},
    {"beta_applied_twice", "correction-wrong-weight", RC, 0, "beta is applied by caller and kernel, so that it enters squared", "public reports of fused and unfused paths that both multiply by beta"},
    {"beta_missing", "correction-wrong-weight", RC, 0, "beta is taken as 1", "an optional argument that is not handed on"},
    {"beta_doubled", "correction-wrong-weight", RC, 0, "the factor 2 of the negative-eigenvalue option is applied although it is off", "public models that multiply the sigmoid by two"},
    {"beta_clamped_to_one", "beta-clamped", RC, 1, "beta is limited to 1, so that beta in (1,2) is lost", "kernels written before negative eigenvalues were allowed"},
    {"beta_clamped_to_two", "beta-clamped", RC, 2, "beta is limited to 2, although any is declared", "guards against steps that grow"},
    {"negative_beta_clamped", "beta-clamped", RC, 0, "beta below 0 is taken as 0, although any is declared", "guards against steps that grow"},
    {"beta_sigmoid_again", "beta-clamped", RC, 0, "beta passes through a second sigmoid", "public reports of activation applied by both layer and kernel"},
    {"small_beta_skipped", "beta-clamped", RC, 0x1p-7, "tokens with a beta below a threshold are skipped as if nothing were written", "an optimisation that takes a small weight as none"},
    {"beta_of_previous_token", "beta-shifted", RC, 0, "beta of token t-1 is used for token t", "public reports of off-by-one loads in software pipelines"},
    {"ungated_token_taken_as_padding", "gate-mask-by-value", RC, 0, "a token whose gate is exactly 0 is taken as padding and not written", "padding that is marked by values instead of by lengths"},
    {"decay_after_write", "decay-after-write", R, 0, "the state decays after the token is written, so that the token itself is faded when read", "public pseudocode with the two lines exchanged"},
    {"output_read_before_write", "read-before-write", R, 0, "the output is read before the token's own write", "public reports of exclusive instead of inclusive reads"},
    {"last_token_not_written", "final-state-wrong", R, 0, "the write of the last token is left out of the state", "public reports of loops that stop one step early"},
    {"outer_product_transposed", "layout-transposed", R, 0, "the update adds v k^T instead of k v^T", "public reports of state orientation mixed inside one kernel"},
    {"scale_missing", "scale-wrong", RC, 0, "q is not scaled", "public reports of scale lost between wrapper and kernel"},
    {"scale_fixed_for_odd_dims", "scale-wrong", RC, 0, "where K is no power of two the scale is K^-1/2, whatever was asked for", "code paths of padded dims with a scale of their own"},
    {"scale_twice", "scale-wrong", RC, 0, "q is scaled by caller and kernel", "public reports of scale applied in both wrapper and kernel"},
    {"scale_of_value_dim", "scale-wrong", RC, 0, "the scale is V^-1/2 instead of K^-1/2", "a head dimension taken from the wrong tensor"},
    {"scale_of_padded_key_dim", "scale-wrong", RC, 0, "the scale is formed from the key dimension padded to a power of two", "kernels that read the scale from a tile size"},
    {"scale_argument_ignored", "scale-wrong", RC, 0, "the scale argument is ignored and K^-1/2 used", "public kernels with a fixed scale"},
    {"key_normalised_again", "unwanted-normalisation", RC, 1e-6, "keys are l2-normalised although the caller hands them as they are to be used", "public reports of the normalisation flag ignored"},
    {"query_normalised_again", "unwanted-normalisation", RC, 1e-6, "queries are l2-normalised although the caller hands them as they are to be used", "public reports of the normalisation flag ignored"},
    {"key_norm_clamped", "unwanted-normalisation", RC, 1, "keys longer than 1 are shortened to 1", "a guard against growth of the state"},
    // --- gates ---
    {"gate_clamped", "gate-clamped", RC, -10, "g is limited to -10 from below", "public kernels that clamp gates to avoid overflow"},
    {"gate_sum_clamped", "gate-clamped", C, -64, "gate sums of a chunk are limited from below, so that late decays become 1", "public kernels that clamp cumulated gates to avoid overflow"},
    {"first_gate_ignored", "initial-state-decay-wrong", RC, 0, "the decay of a sequence's first token is not applied to the initial state", "public reports of a first iteration peeled off without its decay"},
    {"update_not_decayed", "gate-ignored", C, 0, "keys enter the carried state without their decay to the chunk's end", "public reports of a decay missing in one of the chunk's products"},
    {"score_not_decayed", "gate-ignored", C, 0, "scores inside the chunk are not decayed", "public reports of a decay missing in one of the chunk's products"},
    {"correction_not_decayed", "gate-ignored", C, 0, "L is formed without decays", "ungated delta rule code reused for the gated rule"},
    {"carried_read_not_decayed", "gate-ignored", C, 0, "the carried state is read by all rows without decay", "public reports of a decay missing in one of the chunk's products"},
    {"carried_state_not_decayed", "state-decay-wrong-at-chunk-border", C, 0, "the carried state does not decay over a chunk", "public reports of a decay missing in one of the chunk's products"},
    {"carried_state_decayed_twice", "state-decay-wrong-at-chunk-border", C, 0, "the carried state is decayed by two of the split kernels", "public reports of split kernels that both apply a factor"},
    {"gate_shifted_by_one", "gate-shifted", RC, 0, "the gate of token t-1 decays token t", "public reports of exclusive instead of inclusive sums"},
    {"gate_of_next_token", "gate-shifted", RC, 0, "the gate of token t+1 decays token t", "public reports of prefetched gates used one step early"},
    {"gate_sum_exclusive", "gate-shifted", C, 0, "gate sums of a chunk leave out the row's own gate", "public reports of exclusive instead of inclusive sums"},
    {"carried_read_decayed_one_row_less", "gate-shifted", C, 0, "row r reads the carried state with the decay of row r-1", "public reports of exclusive instead of inclusive sums"},
    {"decay_base_2_inside_chunk", "gate-base-mixed", C, 0, "decays inside the chunk are powers of 2 of natural-log gates, those at its ends of e", "public reports of exp2 with unscaled gates"},
    {"gate_taken_as_log2", "gate-base-mixed", RC, 0, "natural-log gates are taken as base 2 logarithms", "public kernels that take base 2 gates"},
    {"log_gate_taken_as_linear", "gate-domain-mixed", RC, 0, "the log gate is used as the decay itself", "public kernels that take linear gates"},
    {"linear_gate_taken_as_log", "gate-domain-mixed", RC, 0, "the decay is taken as a logarithm and exponentiated again", "public kernels that take linear gates"},
    {"gate_sign_dropped", "gate-domain-mixed", RC, 0, "the gate's sign is lost, so that memory grows", "gates given as positive rates"},
    {"decay_ratio_factored", "gate-ratio-factored", C, 0, "e^(G_i-G_j) is formed as e^G_i times e^-G_j in fp32", "public reports of overflow for gates of a few units"},
    {"exponent_anchored_on_last_row", "gate-anchored-late", C, 0, "decay ratios are factored around the chunk's last row, so that its gate changes rows before it", "public reports of results that depend on later gates"},
    {"score_mask_by_multiplication", "gate-mask-multiplied", C, 0, "decays above the diagonal are formed and multiplied by 0: infinity times 0", "public reports of NaN after strong gates"},
    {"score_mask_by_gate_order", "gate-mask-by-value", C, 0, "scores are masked by the order of gate sums, so that gates of 0 let the future in", "public reports of masks derived from decays"},
    {"correction_mask_by_gate_order", "gate-mask-by-value", C, 0, "L keeps pairs only where the gate sum really falls, so that gates of 0 lose pairs", "public reports of masks derived from decays"},
    {"gate_sum_absorbs", "gate-absorbed", C, 0, "gate sums run from the chunk's start in fp32, so that one very negative gate swallows later ones", "public reports of resets that freeze later decays"},
    {"infinite_gates_subtracted", "gate-infinite", C, 0, "after g=-inf differences of two infinite sums are taken", "public reports of NaN after full resets"},
    {"infinite_gate_taken_as_zero", "gate-infinite", RC, 0, "g=-inf is replaced by 0 as a non-finite value", "sanitised inputs"},
    {"slow_gate_ignored", "gate-tiny-lost", RC, -1e-4, "gates above a threshold are taken as 0", "an optimisation that takes slow decay as none"},
    {"decay_linearised", "gate-tiny-lost", RC, -0.01, "e^g is 1+g for small g", "a short series instead of the exponential"},
    {"carried_read_underflow_skipped", "gate-tiny-lost", C, 1e-3, "rows whose decay is below a threshold do not read the carried state", "history dropped because it looks faded"},
    {"history_dropped_when_faded", "gate-reset-lost", C, 1e-3, "the carried state is dropped where a chunk's whole decay is below a threshold", "history dropped because it looks faded"},
    // --- gates per key channel (kda), or per pair of them, which is turned as well (complex_kda) ---
    {"channel_gate_of_first_channel", "channel-gate-wrong", R, 0, "all key channels decay by the gate of the first", "one gate a head, as the gated delta rule has it", kChannelFault},
    {"channel_gates_reversed", "channel-gate-wrong", R, 0, "key channel d decays by the gate of the d-th from the end", "a vector walked from the other end", kChannelFault},
    {"channel_gate_of_key_head", "channel-gate-wrong", R, 0, "gates of key channels are taken by key head", "public reports of per-head tensors indexed by the wrong head", kChannelFault},
    {"complex_angle_sign", "complex-turn-wrong", R, 0, "pairs of key channels are turned the other way", "the conjugate taken for the number", kChannelFault},
    {"complex_angle_ignored", "complex-turn-wrong", R, 0, "pairs of key channels decay and are not turned", "real code reused for the complex rule", kChannelFault},
    {"complex_pairs_by_halves", "complex-turn-wrong", R, 0, "key channel j is paired with j + K/2", "public reports of the two layouts of rotary embeddings mixed up", kChannelFault},
    {"complex_angle_in_bf16", "gate-narrowed", R, 0, "angles are rounded to bf16", "angles cast with the activations", kChannelFault},
    // --- raw gates: g = -exp(A_log) softplus(a + dt_bias) ---
    {"raw_softplus_overflows", "raw-gate-overflow", RC, 0, "softplus is log(1+e^x) in fp32, infinite above 88", "public reports of softplus without its linear part"},
    {"raw_rate_overflows", "raw-gate-overflow", RC, 0, "exp(A_log) is formed in fp32 by itself and is infinite above 88", "factors that overflow although their product does not"},
    {"raw_softplus_vanishes", "raw-gate-underflow", RC, 0, "softplus is log(1+e^x) in fp32, 0 below -16.6, so that the decay vanishes", "public kernels with log(1+exp(x)) and a linear part above 20"},
    {"raw_softplus_cut_off", "raw-gate-underflow", RC, -20, "softplus is 0 below a threshold", "a cut on the wrong side of zero"},
    {"raw_rate_times_zero", "raw-gate-nan", RC, 0, "an infinite exp(A_log) meets a softplus that fp32 rounds to 0", "public reports of NaN at extreme rates"},
    {"raw_no_rate_nan", "raw-gate-nan", RC, 0, "A_log = -inf is taken through its exponent and gives NaN instead of no decay", "logarithms added where one of them is infinite"},
    {"raw_softplus_linear_too_early", "raw-gate-overflow", RC, 4, "the guard against the overflow of softplus sets in at 4: x is taken for it above", "a threshold taken from another activation"},
    {"raw_bias_left_out", "gate-ignored", RC, 0, "dt_bias is not added", "an optional argument that is not handed on"},
    {"raw_bias_of_key_head", "head-map-wrong", RC, 0, "dt_bias is taken by key head", "public reports of per-head tensors indexed by the wrong head"},
    {"raw_rate_of_first_head", "head-map-wrong", RC, 0, "all heads use A_log of head 0", "a missing stride"},
    {"raw_rate_not_exponentiated", "gate-domain-mixed", RC, 0, "A_log is used as the rate itself", "public reports of A handed in place of its logarithm"},
    {"raw_gate_sum_in_bf16", "gate-narrowed", RC, 0, "a + dt_bias is rounded to bf16", "gates added in the activation dtype"},
    // --- precision ---
    {"beta_in_bf16", "beta-narrowed", RC, 0, "beta is rounded to bf16", "public reports of sigmoids taken in the activation dtype"},
    {"gate_in_bf16", "gate-narrowed", RC, 0, "the log gate is rounded to bf16", "public reports of gates cast with the activations"},
    {"gate_in_fp16", "gate-narrowed", RC, 0, "the log gate is rounded to fp16", "public reports of gates cast with the activations"},
    {"decay_in_bf16", "gate-narrowed", RC, 0, "e^g is rounded to bf16: decays above 0.998 become 1", "public reports of long memory lost in 16 bits"},
    {"decay_in_fp16", "gate-narrowed", RC, 0, "e^g is rounded to fp16", "public reports of long memory lost in 16 bits"},
    {"decay_accumulates_in_fp16", "gate-narrowed", RC, 0, "decay factors over several tokens are stored in fp16 and underflow", "decay matrices kept in the operand dtype"},
    {"decay_factor_in_bf16", "gate-narrowed", C, 0, "decay factors of the chunk are stored in bf16", "decay matrices kept in the operand dtype"},
    {"gate_sum_in_bf16", "gate-narrowed", C, 0, "gate sums are stored in bf16", "public reports of cumulative sums in the input dtype"},
    {"chunk_end_decay_in_fp16", "gate-narrowed", C, 0, "the decay over a whole chunk is stored in fp16 and underflows", "state factors kept in the operand dtype"},
    {"exp_approximated", "gate-narrowed", RC, 1e-4, "the exponential is approximated to 13 bits", "fast exponential instructions and tables"},
    {"subnormal_decay_flushed", "subnormals-flushed", RC, 0, "decays below the least normal fp32 number become 0", "compilers that flush subnormals by default"},
    {"state_in_bf16", "state-narrowed", RC, 0, "the state is carried in bf16", "public caches that keep the state in the model dtype"},
    {"state_in_fp16", "state-narrowed", RC, 0, "the state is carried in fp16 and overflows past 65504", "public caches that keep the state in the model dtype"},
    {"state_in_tf32", "state-narrowed", RC, 0, "the state is carried in TF32", "accumulators spilled through tensor-core operands"},
    {"readback_of_rounded_state", "operand-narrowed", R, 0, "the correction reads a bf16 copy of the state", "a 16-bit shadow of the state kept for products"},
    {"final_state_in_bf16", "state-narrowed", RC, 0, "the final state is rounded to bf16 although declared fp32", "public wrappers that cast all results"},
    {"initial_state_in_bf16", "state-narrowed", RC, 0, "the initial state is rounded to bf16 although declared fp32", "public wrappers that cast all inputs"},
    {"correction_in_bf16", "operand-narrowed", R, 0, "beta (v - r) is rounded to bf16 before it is written", "operands cast for a tensor-core product"},
    {"keys_in_tf32", "operand-narrowed", RC, 0, "keys are rounded to TF32", "public compilers that allow TF32 by default"},
    {"keys_in_bf16", "operand-narrowed", RC, 0, "keys are rounded to bf16", "operands cast for a tensor-core product"},
    {"queries_in_bf16", "operand-narrowed", RC, 0, "queries are rounded to bf16", "operands cast for a tensor-core product"},
    {"values_in_bf16", "operand-narrowed", RC, 0, "values are rounded to bf16", "operands cast for a tensor-core product"},
    {"values_in_fp16", "saturation-wrong", RC, 0, "values pass through fp16 and overflow past 65504", "public reports of fp16 overflow in value paths"},
    {"values_quantised_by_row", "operand-narrowed", RC, 0, "values are quantised to fp8 with one scale per row", "quantised operands"},
    {"inputs_truncated", "rounding-truncates", RC, 0, "operands are cut to bf16 instead of rounded", "casts by dropping the low half of a word"},
    {"scaled_query_in_bf16", "operand-narrowed", RC, 0, "scale times q is rounded to bf16", "a query scaled in the activation dtype"},
    {"scale_in_bf16", "operand-narrowed", RC, 0, "the scale is rounded to bf16", "a scale held in the activation dtype"},
    {"gram_in_bf16", "operand-narrowed", C, 0, "K K^T is stored in bf16", "scores kept in the operand dtype"},
    {"correction_rows_in_tf32", "inverse-narrowed", C, 0, "the triangular solve works on TF32 coefficients", "public compilers that allow TF32 by default"},
    {"correction_rows_in_bf16", "inverse-narrowed", C, 0, "the triangular solve works on bf16 coefficients", "a solve in the operand dtype"},
    {"inverse_in_tf32", "inverse-narrowed", C, 0, "the inverse is stored in TF32", "public compilers that allow TF32 by default"},
    {"inverse_in_bf16", "inverse-narrowed", C, 0, "the inverse is stored in bf16", "an inverse kept in the operand dtype"},
    {"inverse_in_fp8", "inverse-narrowed", C, 0, "the inverse is stored in fp8 e4m3", "quantised operands"},
    {"inverse_by_doubling", "inverse-by-products", C, 0, "the inverse is a product of log-depth powers, which explode on equal keys", "public reports of Neumann products in triangular inverses"},
    {"right_sides_truncated", "rounding-truncates", C, 0, "beta v and beta e^G k are cut to bf16 instead of rounded", "casts by dropping the low half of a word"},
    {"correction_vectors_in_bf16", "operand-narrowed", C, 0, "W is stored in bf16", "intermediates kept in the operand dtype"},
    {"state_operand_in_bf16", "operand-narrowed", C, 0, "products read the state in bf16", "operands cast for a tensor-core product"},
    {"state_operand_truncated", "rounding-truncates", C, 0, "products read the state cut to bf16", "casts by dropping the low half of a word"},
    {"corrected_values_in_bf16", "operand-narrowed", C, 0, "Vn is stored in bf16", "intermediates kept in the operand dtype"},
    {"corrected_values_in_fp16", "saturation-wrong", C, 0, "Vn is stored in fp16 and overflows past 65504", "public reports of fp16 overflow in value paths"},
    {"scores_in_bf16", "operand-narrowed", C, 0, "scores are stored in bf16", "scores kept in the operand dtype"},
    {"scores_truncated", "rounding-truncates", C, 0, "scores are cut to bf16 instead of rounded", "casts by dropping the low half of a word"},
    {"output_truncated", "rounding-truncates", RC, 0, "outputs are cut instead of rounded to nearest", "stores by dropping the low half of a word"},
    {"output_through_fp16", "saturation-wrong", RC, 0, "outputs pass through fp16 and overflow past 65504", "public reports of fp16 staging buffers"},
    {"output_through_bf16", "operand-narrowed", RC, 0, "outputs pass through bf16 on the way to fp32", "public reports of staging buffers in the model dtype"},
    // --- chunks, masks, tails ---
    {"state_zeroed_at_chunk_border", "state-zeroed-at-chunk-border", C, 0, "every chunk starts from a zero state", "public reports of chunks that are not chained"},
    {"state_zeroed_at_segment_border", "state-zeroed-at-chunk-border", C, 4, "every fourth chunk starts from a zero state", "work split over time whose parts are not joined"},
    {"segment_transition_as_decay", "cross-term-missing", R, 64, "segments computed side by side are joined by their decay alone, without the delta rule's part of the transition", "work split over time"},
    {"correction_from_older_state", "state-stale-at-chunk-border", C, 0, "the correction reads the state of one chunk earlier", "public reports of double buffers read from the wrong half"},
    {"output_reads_new_state", "state-stale-at-chunk-border", C, 0, "outputs read the state after the chunk instead of before it", "public reports of double buffers read from the wrong half"},
    {"gate_sum_not_restarted", "state-decay-wrong-at-chunk-border", C, 0, "the carried state is decayed by sums from the sequence's start instead of the chunk's", "public reports of global sums used as local ones"},
    {"chunk_end_row_before_last", "tail-decay-wrong-row", C, 0, "the chunk-end decay is taken one row early", "public reports of chunk-end indices off by one"},
    {"chunk_end_row_by_lane", "tail-decay-wrong-row", C, 0, "the decay of the carried state is taken from rows that differ by lane", "public reports of a broadcast that reads each lane's own row"},
    {"chunk_end_gate_from_padding", "tail-padding-read", C, 0, "in a ragged tail the chunk-end decay includes gates behind the sequence", "public reports of final states off in ragged tails only"},
    {"chunk_end_gate_zero_in_tail", "tail-gates-zeroed", C, 0, "in a ragged tail the chunk-end gate sum is the 0 of the padding", "public reports of final states not decayed in ragged tails"},
    {"tail_rows_not_masked", "tail-padding-read", C, 0, "a ragged tail processes all 64 rows with what memory holds behind the sequence", "public reports of loads without a length mask"},
    {"tail_keys_not_zeroed", "tail-padding-read", C, 0, "keys and values behind the sequence enter the final state", "public reports of loads without a length mask"},
    {"tail_chunk_dropped", "tail-tokens-dropped", C, 0, "the number of chunks is T/C rounded down", "public reports of floor instead of ceiling division"},
    {"final_state_before_tail", "tail-tokens-dropped", C, 0, "a ragged tail gives outputs but does not enter the final state", "public reports of final states taken before the last chunk"},
    {"single_row_tail_skips_local", "local-term-wrong", C, 0, "a tail of one row reads the carried state only", "a shortcut for short tails"},
    {"both_right_sides_decayed", "double-decay", C, 0, "both right sides of the solve carry the decay", "public reports of W and U weighted alike"},
    {"no_right_side_decayed", "double-decay", C, 0, "neither right side of the solve carries the decay", "public reports of W and U weighted alike"},
    {"local_term_twice_in_full_chunk", "local-term-wrong", C, 0, "full chunks add the in-chunk term twice", "public reports of accumulators that are not reset on the fast path"},
    {"score_diagonal_left_out", "mask-off-by-one", C, 0, "scores leave out the token itself", "public reports of strict masks in both products"},
    {"score_mask_one_late", "mask-off-by-one", C, 0, "scores let in the next token", "public reports of masks shifted by one"},
    {"score_mask_by_block", "mask-off-by-one", C, 16, "diagonal blocks of the scores are not masked", "masks applied per tile only"},
    {"score_far_block_skipped", "local-term-wrong", C, 0, "the block of the last 16 rows on the first 16 is not added", "tile loops that stop one tile early"},
    {"score_window", "local-term-wrong", C, 48, "scores reach back only so many rows", "tile loops with a wrong start"},
    {"correction_window", "inverse-wrong", C, 48, "L reaches back only so many rows", "tile loops with a wrong start"},
    {"scores_exchanged", "mask-off-by-one", C, 0, "scores are k.q transposed: row and column exchanged", "public reports of transposed operands"},
    {"diagonal_in_inverse", "mask-off-by-one", C, 0, "L includes the diagonal", "public reports of inclusive masks in the solve"},
    {"beta_of_column", "correction-wrong-weight", C, 0, "L is weighted by beta of the column instead of the row", "public reports of a broadcast along the wrong axis"},
    {"inverse_series_cut", "inverse-wrong", C, 4, "the inverse is a series that stops after a few powers", "approximate triangular inverses"},
    {"inverse_of_diagonal_blocks_only", "inverse-wrong", C, 16, "only diagonal blocks of the inverse are formed", "public reports of block inverses without their merge"},
    {"inverse_far_blocks_dropped", "inverse-wrong", C, 16, "L keeps only neighbouring blocks of 16 rows", "public reports of block inverses with a missing merge"},
    {"inverse_corner_path_dropped", "inverse-wrong", C, 16, "far blocks of the inverse leave out the paths through the blocks between", "public reports of block inverses with a missing product"},
    {"inverse_last_row_unsolved", "inverse-wrong", C, 0, "the last row of the inverse is only -L", "public reports of substitution loops that stop one row early"},
    {"inverse_ragged_block_unsolved", "inverse-wrong", C, 16, "in a ragged tail the last, partial block of the inverse is only -L", "loops over whole blocks"},
    {"inverse_off_diagonal_sign", "inverse-wrong", C, 16, "blocks of the inverse below the diagonal have the wrong sign", "public reports of sign errors in the UT transform"},
    {"inverse_transposed", "inverse-wrong", C, 0, "the transpose of the inverse is applied", "public reports of transposed operands"},
    {"correction_first_block_skipped", "inverse-wrong", C, 16, "the first 16 rows of each chunk are not corrected among themselves", "block loops that start at one"},
    {"carried_state_not_corrected", "cross-term-missing", C, 0, "corrections see the chunk but not the carried state", "public reports of W S left out"},
    {"first_chunk_ignores_initial", "cross-term-missing", C, 0, "in the first chunk corrections do not see the initial state", "first iterations peeled off under the belief of a zero state"},
    {"carried_read_left_out", "cross-term-missing", C, 0, "outputs do not read the carried state", "public reports of the inter-chunk term left out"},
    {"output_from_uncorrected", "uncorrected-values", C, 0, "outputs use U instead of Vn", "public reports of U in place of the corrected values"},
    {"update_from_uncorrected", "uncorrected-values", C, 0, "the state update uses U instead of Vn", "public reports of U in place of the corrected values"},
    {"update_last_row_left_out", "final-state-wrong", C, 0, "the last row of each chunk does not enter the state", "public reports of loop limits off by one"},
    {"update_first_row_left_out", "final-state-wrong", C, 0, "the first row of each chunk does not enter the state", "public reports of loop limits off by one"},
    // --- sequences ---
    {"state_leaks_into_next_sequence", "state-leaks-into-next-sequence", RC, 0, "a sequence starts from the final state of the one before", "public reports of boundaries that do not reach the delta rule"},
    {"state_leaks_after_full_chunk", "state-leaks-into-next-sequence", RC, 64, "a sequence starts from the state before it when that one ended on a chunk border", "resets that hang on a ragged tail"},
    {"sequence_start_aligned_down", "sequence-border-off-by-one", RC, 8, "a sequence's first row is rounded down to the alignment of a vector load", "public reports of unaligned sequence starts"},
    {"length_of_first_sequence", "tail-tokens-dropped", RC, 0, "all sequences are cut at the length of the first", "a loop limit taken from one sequence"},
    {"only_first_sequences_launched", "output-unwritten", RC, 8, "sequences past the eighth are not processed", "launch grids of a fixed size"},
    {"gate_sum_from_buffer_chunk", "sequence-gates-cross", C, 0, "the first gate sum of a sequence starts at the packed buffer's chunk border", "public reports of boundary decays cumulated from the chunk"},
    {"offsets_read_as_32_bit", "layout-stride-ignored", RC, 0, "64-bit sequence offsets are read as 32-bit ones", "public reports of offset dtypes taken for granted"},
    {"padding_processed", "padding-used", RC, 0, "the last sequence runs to the end of the buffer instead of cu_seqlens[N]", "public reports of lengths taken from the tensor"},
    {"empty_sequence_aborts", "empty-sequence-mishandled", RC, 0, "a zero-length sequence makes the call fail", "public reports of zero-length sequences"},
    {"empty_sequence_state_unwritten", "empty-sequence-mishandled", RC, 0, "a zero-length sequence leaves its final state unwritten", "public reports of zero-length sequences"},
    {"empty_sequence_state_zero", "empty-sequence-mishandled", RC, 0, "a zero-length sequence returns a zero state instead of its initial state", "public reports of zero-length sequences"},
    {"empty_sequences_not_counted", "empty-sequence-mishandled", RC, 0, "initial states are numbered by sequences that have tokens", "public reports of zero-length sequences"},
    {"final_state_slots_by_nonempty", "empty-sequence-mishandled", RC, 0, "final states are numbered by sequences that have tokens", "public reports of zero-length sequences"},
    {"initial_state_only_for_one_token", "one-token-sequence-mishandled", RC, 0, "a continuation of several tokens starts from a zero state", "public reports of continued prefill starting from zero"},
    {"initial_state_skipped_for_short", "initial-state-ignored", RC, 64, "sequences shorter than a chunk do not read their initial state", "shortcuts for short sequences"},
    {"final_state_one_slot_late", "sequence-state-mixed", RC, 0, "the final state of sequence n is stored as that of n+1", "public reports of sequence indices off by one"},
    {"initial_state_of_first_sequence", "sequence-state-mixed", RC, 0, "all sequences start from the state of the first", "a missing stride"},
    {"only_last_state_stored", "final-state-unwritten", RC, 0, "only the last sequence's final state is stored", "public reports of a state stored once per launch"},
    // --- states ---
    {"initial_state_ignored", "initial-state-ignored", RC, 0, "the initial state is not read", "public reports of the initial-state flag ignored"},
    {"initial_state_only_for_first_sequence", "initial-state-ignored", RC, 0, "only the first sequence reads its initial state", "public reports of the initial-state flag ignored"},
    {"initial_state_transposed", "initial-state-transposed", RC, 0, "the initial state is read as [V,K]", "public reports of mixed state layouts"},
    {"final_state_transposed", "final-state-transposed", RC, 0, "the final state is written as [V,K]", "public reports of mixed state layouts"},
    {"state_transposed_in_and_out", "initial-state-transposed", RC, 0, "initial and final state are both [V,K]", "public kernels with the other state layout"},
    {"initial_state_stride_16_bit", "state-stride-wrong", RC, 0, "an fp32 state is addressed with the stride of a 16-bit one", "public reports of pool strides in the wrong dtype"},
    {"initial_state_head_stride_square", "state-stride-wrong", RC, 0, "initial states are addressed as if V were K", "public reports of V taken for K"},
    {"final_state_head_stride_square", "state-stride-wrong", RC, 0, "final states are addressed as if V were K", "public reports of V taken for K"},
    {"initial_state_of_head_zero", "state-shared-between-heads", RC, 0, "all heads start from the state of head 0", "a missing stride"},
    {"final_state_heads_exchanged", "state-shared-between-heads", RC, 0, "neighbouring heads store each other's final state", "pairs of heads in one block"},
    {"initial_state_scaled", "initial-state-decay-wrong", RC, 0, "the initial state is multiplied by the scale", "a scale folded into the state"},
    {"initial_state_not_in_final", "final-state-wrong", RC, 0, "the decayed initial state is left out of the final state", "public reports of the initial state added to outputs only"},
    {"final_state_scaled", "final-state-wrong", RC, 0, "the final state is multiplied by the scale", "a scale folded into the state"},
    {"final_state_decayed_once_more", "final-state-wrong", RC, 0, "the final state is decayed once more by the last gate", "a decay applied at the end of each step"},
    {"final_state_tile_stale", "final-state-unwritten", RC, 64, "value channels past the first tile of the final state are not written", "public reports of tiles not covered by the launch grid"},
    // --- heads, sizes, layout ---
    {"heads_tiled", "head-map-wrong", RC, 0, "value head h reads key head h mod H instead of h/(HV/H)", "public kernels with tiled heads"},
    {"head_ratio_as_shift", "head-map-wrong", RC, 0, "the head ratio is used as a power of two", "shifts for divisions"},
    {"head_modulo_ratio", "head-map-wrong", RC, 0, "value head h reads key head h mod (HV/H)", "public reports of head maps"},
    {"first_key_head_for_all", "head-map-wrong", RC, 0, "all value heads read key head 0", "a missing stride"},
    {"gate_of_key_head", "head-map-wrong", RC, 0, "gates are taken by key head", "public reports of gates indexed by the wrong head"},
    {"beta_of_key_head", "head-map-wrong", RC, 0, "beta is taken by key head", "public reports of gates indexed by the wrong head"},
    {"odd_last_head_skipped", "head-map-wrong", RC, 0, "heads are processed in pairs and an odd last one is skipped", "two heads per block"},
    {"output_stride_of_key_heads", "output-stride-wrong", RC, 0, "outputs are addressed by H heads per token instead of HV", "public reports of output strides"},
    {"value_stride_of_key_heads", "output-stride-wrong", RC, 0, "values are addressed by H heads per token instead of HV", "public reports of input strides"},
    {"gate_stride_of_key_heads", "output-stride-wrong", RC, 0, "gates are addressed by H heads per token instead of HV", "public reports of gate strides"},
    {"key_stride_of_value_heads", "output-stride-wrong", RC, 0, "keys and queries are addressed by HV heads per token instead of H", "public reports of input strides"},
    {"key_tail_dropped", "key-channels-dropped", RC, 32, "key channels past the last multiple of 32 are ignored", "public reports of head dimensions that are no multiple of the tile"},
    {"key_tail_unmasked", "key-channels-dropped", RC, 32, "key channels are read up to the next multiple of 32, into the neighbouring head", "public reports of head dimensions that are no multiple of the tile"},
    {"value_tail_not_stored", "value-channels-dropped", RC, 16, "value channels past the last multiple of 16 are not stored", "public reports of head dimensions that are no multiple of the tile"},
    {"value_tile_of_key_dim", "tile-from-wrong-dim", RC, 0, "the tile of value channels is as wide as K, and the rest of V is not stored", "public reports of V tiles sized by K"},
    {"query_and_key_exchanged", "layout-transposed", RC, 0, "q and k are exchanged", "public interfaces with another argument order"},
    {"gates_head_before_token", "layout-transposed", RC, 0, "gates are read as [HV,T]", "public kernels with the head before the token"},
    {"output_head_before_token", "layout-transposed", RC, 0, "outputs are written as [HV,T,V]", "public kernels with the head before the token"},
    {"output_one_row_late", "element-wrong", RC, 64, "the first row of every later chunk is stored over the row before it", "public reports of store offsets off by one"},
    // --- more places where these slips could sit ---
    {"reset_erases_own_write", "gate-reset-lost", RC, 0, "a token that resets the memory loses its own write as well", "resets applied to the state after the update"},
    {"very_negative_gate_ignored", "gate-reset-lost", RC, -80, "gates below a threshold are taken as fill values and not applied", "sanitised inputs"},
    {"unwritten_token_not_decayed", "gate-ignored", RC, 0, "a token with beta = 0 is skipped whole, with its decay", "padding that is marked by values instead of by lengths"},
    {"gate_scan_without_carry", "gate-ignored", C, 32, "gate sums of the second half of a chunk leave out the first half", "scans over lanes whose carry is not added"},
    {"second_key_tile_not_decayed", "gate-ignored", RC, 64, "state rows past the first 64 key channels do not decay", "a factor applied to the first tile only"},
    {"output_decayed_again", "double-decay", R, 0, "outputs are decayed once more by their token's gate", "public reports of a factor applied in two places"},
    {"gate_and_beta_exchanged", "gate-domain-mixed", RC, 0, "gate and beta are exchanged", "public interfaces with another argument order"},
    {"beta_of_first_half", "beta-shifted", C, 32, "rows of a chunk's second half use beta of the first half", "indices by lane instead of by row"},
    {"scale_on_key", "scale-wrong", RC, 0, "the scale multiplies k instead of q", "a scale applied to the wrong operand"},
    {"scale_one_taken_as_default", "scale-wrong", RC, 0, "a scale of 1 is taken as not given", "public interfaces with a default scale"},
    {"zero_key_gives_nan", "nan-in-output", RC, 0, "a key of length 0 is divided by its length", "public reports of normalisation without an epsilon"},
    {"state_clamped", "saturation-wrong", RC, 65504, "state elements are limited to the range of fp16", "guards against overflow"},
    {"state_rounded_every_step", "state-rounded-too-often", RC, 0, "a 16-bit state is rounded per token or chunk instead of at the end of the call", "public reports of the rounding cadence of 16-bit states"},
    {"read_accumulated_in_fp16", "accumulator-narrowed", RC, 0, "sums of products for the output are accumulated in fp16", "matrix units with 16-bit accumulators"},
    {"values_scaled_by_row_peak", "nan-spreads", RC, 0, "values are scaled by the row's peak and back, so that one NaN reaches every channel", "quantised operands"},
    {"tail_masked_by_multiplication", "nan-spreads", C, 0, "rows behind a ragged tail are multiplied by 0 instead of left out, so that a NaN there passes", "public reports of masks by multiplication"},
    {"values_scaled_by_chunk_peak", "future-leaks", C, 0, "values of a chunk are quantised to 16 bits of their common peak, so that later tokens change earlier outputs", "quantised operands"},
    {"chunk_starts_before_sequence", "chunks-cross-sequences", C, 64, "a sequence's first chunk starts at the packed buffer's chunk border, in the sequence before", "public reports of chunks cut from the packed buffer"},
    {"summation_order_by_batch", "batch-dependent", RC, 0, "sums over key channels run in another order when there are several sequences", "kernels chosen by batch size"},
    {"initial_state_only_at_first_call", "state-handoff-broken", RC, 0, "later calls of a plan do not read their initial state", "states taken from a cache after the first call"},
    {"final_state_kept_from_first_call", "state-handoff-broken", RC, 0, "later calls of a plan return the first call's final state", "public reports of caches not written back"},
    {"initial_state_first_tile_only", "initial-state-ignored", RC, 64, "value channels past the first 64 start from zero", "public reports of tiles not covered by a load"},
    {"initial_state_needs_final_state", "initial-state-ignored", RC, 0, "the initial state is read only when a final state is wanted", "two options coupled by one flag"},
    {"final_state_needs_initial_state", "final-state-unwritten", RC, 0, "the final state is written only when there is an initial state", "two options coupled by one flag"},
    {"initial_state_added_every_chunk", "initial-state-decay-wrong", C, 0, "the initial state is added again at every chunk", "public reports of a base pointer not advanced"},
    {"state_leaks_into_next_head", "state-shared-between-heads", RC, 0, "a head starts from what the head before it left", "state in registers that is not cleared between heads"},
    {"initial_state_head_before_sequence", "layout-transposed", RC, 0, "initial states are read as [HV,N,K,V]", "public pools with the head before the sequence"},
    {"final_state_head_before_sequence", "layout-transposed", RC, 0, "final states are written as [HV,N,K,V]", "public pools with the head before the sequence"},
    {"values_channel_before_head", "layout-transposed", RC, 0, "values are read as [T,V,HV]", "public projections that interleave heads"},
    {"keys_head_before_token", "layout-transposed", RC, 0, "keys are read as [H,T,K]", "public kernels with the head before the token"},
    {"key_rows_aligned_down", "layout-stride-ignored", RC, 8, "rows of keys are read from the next lower multiple of 8 elements", "vector loads that need aligned rows"},
    {"query_head_clamped", "head-map-wrong", RC, 0, "queries are taken by value head, keys by key head", "public reports of one of two head maps missing"},
    {"gate_of_neighbour_head", "head-map-wrong", RC, 0, "gates of a neighbouring head are used", "pairs of heads in one block"},
    {"only_first_heads_launched", "output-unwritten", RC, 16, "value heads past the sixteenth are not processed", "launch grids of a fixed size"},
    {"position_wraps", "offset-overflow", RC, 1024, "token positions wrap, so that later tokens read the first ones again", "index types that are too short"},
    {"odd_last_token_skipped", "tail-tokens-dropped", R, 2, "tokens are processed in pairs and an odd last one is skipped", "unrolled loops without a remainder"},
    {"one_token_sequence_unscaled", "one-token-sequence-mishandled", RC, 0, "sequences of one token take a path without the scale", "separate paths for single tokens"},
    {"one_token_sequence_not_decayed", "one-token-sequence-mishandled", RC, 0, "sequences of one token do not decay their initial state", "separate paths for single tokens"},
    {"correction_across_blocks_dropped", "inverse-wrong", C, 16, "L leaves out pairs of neighbours in different blocks of 16 rows", "block loops whose borders do not meet"},
    {"update_with_previous_keys", "state-stale-at-chunk-border", C, 0, "from the second chunk on the update uses the keys of the chunk before", "public reports of double buffers read from the wrong half"},
    {"output_from_first_key_tile", "key-channels-dropped", RC, 64, "outputs read only the first 64 key channels of the state", "public reports of partial sums stored too early"},
    {"correction_from_first_key_tile", "key-channels-dropped", RC, 64, "corrections read only the first 64 key channels of the state", "public reports of partial sums stored too early"},
    // --- pools, slots, snapshots: decode and verify only ---
    {"padding_index_clamped", "slot-padding-mishandled", R, 0, "index -1 is clamped to 0, so that idle rows step the state of slot 0", "public reports of padded batches that spoil a live slot"},
    {"padding_index_wraps", "slot-padding-mishandled", R, 0, "index -1 addresses the last slot of the pool", "public reports of negative indices into a buffer"},
    {"padding_index_of_row_before", "slot-padding-mishandled", R, 0, "an idle row keeps the slot of the row before it", "registers that keep what they held"},
    {"padding_ends_batch", "slot-padding-mishandled", R, 0, "rows after the first idle one are not processed", "public reports of padding taken to be at the end"},
    {"padding_slots_compacted", "slot-padding-mishandled", R, 0, "slots are compacted over idle rows, tokens are not", "lists filtered on one side only"},
    {"padding_zeroes_first_slot", "slot-padding-mishandled", R, 0, "an idle row stores a zero state into slot 0", "stores that are not masked"},
    {"slot_list_ignored", "slot-wrong", R, 0, "row n uses slot n", "pools that are taken for a batch"},
    {"slot_list_ignored_on_read", "slot-wrong", R, 0, "row n reads slot n and writes the slot it should", "public reports of one of two paths without the list"},
    {"slot_list_ignored_on_write", "slot-wrong", R, 0, "row n reads the slot it should and writes slot n", "public reports of one of two paths without the list"},
    {"slot_written_one_late", "slot-wrong", R, 0, "states are written one slot further on", "public reports of slot numbers off by one"},
    {"slot_limited_to_batch", "slot-wrong", R, 0, "slot numbers are limited to the size of the batch", "bounds taken from the wrong dimension"},
    {"slot_list_sorted", "slot-wrong", R, 0, "slots are sorted, rows are not", "lists reordered for locality"},
    {"slot_of_first_row_read", "slot-wrong", R, 0, "all rows read the slot of the first one", "a missing stride"},
    {"pool_stride_of_key_heads", "state-stride-wrong", R, 0, "slots are H states apart instead of HV", "public reports of pool strides by the wrong number of heads"},
    {"slot_state_cached", "slot-reuse-leaks", R, 0, "a slot that was written before is read from a cache, whatever the pool holds now", "public reports of states that survive the reuse of a slot"},
    {"slot_written_once", "slot-reuse-leaks", R, 0, "a slot that was written before is not written again", "caches marked clean too early"},
    {"slot_accumulates", "slot-reuse-leaks", R, 0, "the new state is added to what the slot holds", "public reports of accumulation into uncleared buffers"},
    {"slot_list_cached_in_plan", "workspace-stale", R, 0, "the slots of the plan's first call are kept", "graphs captured with old indices"},
    {"snapshot_before_write", "snapshot-wrong", R, 0, "the snapshot of a token is the state before its write", "public reports of snapshots under the wrong token"},
    {"snapshots_newest_first", "snapshot-wrong", R, 0, "snapshots are stored newest first", "public kernels whose slot 0 is the newest"},
    {"snapshot_of_last_token_missing", "snapshot-wrong", R, 0, "the last draft token has no snapshot", "public reports of snapshot counts off by one"},
    {"snapshots_all_of_last_token", "snapshot-wrong", R, 0, "all snapshots hold the state after the last draft token", "stores after the loop instead of inside"},
    {"snapshots_token_before_row", "snapshot-wrong", R, 0, "snapshots are addressed as [token,row] instead of [row,token]", "public buffers with the other order"},
    {"snapshot_in_bf16", "state-narrowed", R, 0, "snapshots are rounded to bf16 although declared fp32", "public caches that keep the state in the model dtype"},
    {"accepted_reads_first_snapshot", "acceptance-wrong", R, 0, "the first snapshot is continued, however many tokens were accepted", "public reports of states written by token and read from slot 0"},
    {"accepted_counts_from_zero", "acceptance-wrong", R, 0, "the snapshot after the last accepted token is continued", "public reports of acceptance off by one"},
    {"accepted_none_takes_last", "acceptance-wrong", R, 0, "where nothing was accepted index -1 takes the last snapshot there is", "public reports of negative indices into a buffer"},
    {"accepted_count_ignored", "acceptance-wrong", R, 0, "all draft tokens are taken as accepted", "an optional argument that is not handed on"},
    {"accepted_of_first_row", "acceptance-wrong", R, 0, "all rows use the count of the first one", "a missing stride"},
    {"accepted_state_not_kept", "acceptance-wrong", R, 0, "the accepted state is continued but not stored into its slot", "public reports of commits that are lost when nothing is accepted next"},
    {"drafts_written_to_pool", "acceptance-wrong", R, 0, "the state after all draft tokens is written to the pool before any is accepted", "decode kernels used for drafts"},
    {"slot_number_in_8_bits", "slot-wrong", R, 256, "slots are found by their number modulo 256", "packed work descriptors with short fields"},
    {"slot_zero_is_none", "slot-padding-mishandled", R, 0, "slot 0 is taken for no sequence", "pools whose first block is reserved"},
    {"rows_past_32_skipped", "output-unwritten", R, 32, "batch rows past the 32nd of decode and verify are not processed", "launch grids and tables of a fixed size"},
    {"snapshots_of_four_drafts", "snapshot-wrong", R, 4, "draft tokens past the fourth have no snapshot of their own: the fourth's is overwritten", "buffers made for a fixed number of drafts"},
    {"accepted_limited_to_four", "acceptance-wrong", R, 4, "of more than four accepted tokens only four are continued", "loops unrolled for a fixed number of drafts"},
    {"masked_fill_gate_skips_token", "gate-reset-lost", RC, -9999, "a token whose gate is at or below a fill value is taken as masked: neither decayed nor written", "padding that is marked by values instead of by lengths"},
    {"gate_sum_wraps_in_fixed_point", "saturation-wrong", C, 32768, "gate sums of a chunk are kept in 32-bit fixed point and wrap past -32768", "integer scans of quantised gates"},
    {"exponent_wraps_as_integer", "gate-reset-lost", RC, -2147483648.0, "a gate below -2^31 wraps as the integer exponent of its decay, which becomes 1", "exponentials by bit manipulation"},
    {"reset_not_restarted_in_sums", "gate-infinite", C, 0, "after g=-inf the decays of later rows inside the chunk are taken as 0 as well", "guards that replace NaN by 0"},
    {"positive_gate_accepted", "gate-positive", RC, 0, "a gate above 0 is carried out, although the kernel says that it refuses it", "checks left out of the fast path"},
    {"short_key_taken_as_zero", "unwanted-normalisation", RC, 1e-3, "keys shorter than a threshold are taken as padding and set to 0", "guards against division by a small norm"},
    {"eigenvalue_limited_to_zero", "beta-clamped", RC, 0, "beta is limited to 1/|k|^2, so that a step never turns the state's component along the key round", "kernels written before negative eigenvalues were allowed"},
    {"key_vector_tail_counted_twice", "key-channels-dropped", RC, 8, "the last vector of 8 key channels overlaps the one before it, and reads of the output count the overlap twice", "tails handled by an overlapping vector load"},
    {"sequence_number_in_8_bits", "sequence-state-mixed", RC, 256, "initial states are found by the sequence number modulo 256", "packed work descriptors with short fields"},
    {"only_first_chunks_launched", "tail-tokens-dropped", C, 64, "chunks past the 64th of a sequence are not processed", "launch grids and tables of a fixed size"},
    {"unscaled_output_overflows", "saturation-wrong", RC, 65504, "sums for the output overflow past 65504 before the scale is applied", "public reports of fp16 overflow before scaling"},
    {"half_subnormals_flushed", "subnormals-flushed", RC, 0x1p-14, "subnormal fp16 inputs are read as 0", "conversions that flush by default"},
    {"short_gate_keeps_its_dtype", "gate-narrowed", RC, 0, "decays of gates that come in 16 bits are rounded to the gates' dtype", "public reports of exponentials taken in the activation dtype"},
    {"output_dtype_of_first_call", "workspace-stale", RC, 0, "later calls of a plan round outputs to the first call's dtype", "metadata cached by shape"},
    {"scale_of_first_key_dim", "workspace-stale", RC, 0, "later calls of a plan scale by the first call's K^-1/2", "constants cached by name"},
    {"ungated_scores_not_masked", "mask-off-by-one", C, 0, "without gates the scores are not masked: the mask came with the decays", "public reports of masks that are part of the decay matrix"},
    {"ungated_path_starts_from_zero", "initial-state-ignored", RC, 0, "without gates the initial state is not read", "a path of its own for the ungated rule"},
    {"summation_order_by_head", "batch-dependent", R, 0, "sums over key channels run backwards for every second key head", "pairs of heads in one block"},
    {"score_rows_masked_by_multiplication", "nan-spreads", C, 0, "values behind the diagonal are multiplied by 0 instead of left out, so that a NaN there passes", "public reports of masks by multiplication"},
    {"input_strides_taken_as_dense", "layout-stride-ignored", RC, 0, "inputs are read as if they were dense", "public reports of slices and fused projections read without their strides"},
    {"output_strides_taken_as_dense", "layout-stride-ignored", RC, 0, "outputs are written as if they were dense", "public reports of outputs into slices of a buffer"},
    {"byte_offset_ignored", "layout-stride-ignored", RC, 0, "tensors are taken to begin where their allocation begins", "public exchange formats whose offset is mostly 0"},
    {"short_offsets_read_as_64_bit", "layout-stride-ignored", RC, 0, "32-bit sequence offsets are read as 64-bit ones", "public reports of offset dtypes taken for granted"},
    {"key_strides_of_query", "layout-stride-ignored", RC, 0, "keys are addressed by the strides of the queries", "one set of strides for tensors of one shape"},
    {"beta_strides_of_gate", "layout-stride-ignored", RC, 0, "beta is addressed by the strides of the gates", "one set of strides for tensors of one shape"},
    {"output_strides_of_value", "layout-stride-ignored", RC, 0, "outputs are addressed by the strides of the values", "one set of strides for tensors of one shape"},
    {"final_state_strides_of_initial", "layout-stride-ignored", RC, 0, "final states are addressed by the strides of the initial ones", "one set of strides for tensors of one shape"},
    {"vector_loads_aligned_down", "layout-stride-ignored", RC, 16, "inputs are read from the next lower multiple of 16 bytes, although less alignment is declared", "vector loads that drop the low bits of an address"},
    {"element_offsets_in_31_bits", "offset-overflow", RC, 0, "element offsets are kept in 31 bits", "public reports of 32-bit offset wraps"},
    {"element_offsets_in_32_bits", "offset-overflow", RC, 0, "element offsets are kept in 32 bits", "public reports of 32-bit offset wraps"},
    {"summation_order_by_position", "batch-dependent", R, 0, "sums over key channels run backwards at every second token of a call", "unrolled loops with another order in the second half"},
    // --- what a bound forgives: other numbers than those of the same call elsewhere, although declared the same ---
    {"mild_chunk_factored", "future-leaks", C, -8, "a chunk without strong gates takes a path on which decays are products of two exponentials, so that later gates choose how earlier outputs are rounded", "public reports of fast paths chosen by the range of the gates"},
    {"ragged_tail_summed_backwards", "paths-differ", C, 0, "a ragged tail has an instance of its own, which sums key channels in another order", "kernels with a second instance for the last chunk"},
    {"query_scaled_first_in_decode", "paths-differ", R, 0, "decode scales q before the product, prefill the output after it", "decode kernels written apart from prefill"},
    {"sums_split_by_threads", "nondeterministic", RC, 0, "sums over key channels are split into as many parts as there are threads", "public reports of reductions whose order follows the launch"},
    {"scores_rounded_down", "rounding-truncates", C, 0, "scores lose a bit by an arithmetic shift, which rounds towards minus infinity", "fixed-point detours in emulated formats"},
    {"state_workspace_of_18_bits", "state-shared-between-heads", RC, 262144, "the workspace of a sequence holds 262144 state elements: heads past it start from the state of the one whose place they share", "buffers made for the sizes of a smaller model"},
    {"corrected_values_cast_by_cutting", "rounding-truncates", C, 0, "where the scores' product takes bf16 operands, Vn is cut to them instead of rounded", "casts by dropping the low half of a word"},
    {"zero_decay_replaced", "gate-reset-lost", RC, 0, "a decay that rounds to 0 is replaced by the least number above it, so that its logarithm stays finite", "public reports of decays that are kept away from 0"},
    {"decode_checkpoint_in_bf16", "state-narrowed", R, 128, "at every 128th call of decode the states pass through bf16", "checkpoints of states kept in the model dtype"},
    // --- shortcuts taken by value or by what a call holds ---
    {"small_correction_skipped", "correction-wrong-weight", RC, 0x1p-10, "a token whose correction is below a thousandth of its value is not written, as if the key had been learned", "lazy updates that skip small residuals"},
    {"zero_gates_path_takes_beta_by_key_head", "head-map-wrong", RC, 0, "a call whose gates are all 0 is dispatched to a path that takes beta by key head", "paths chosen by the values of optional arguments"},
    {"empty_call_returns_early", "empty-sequence-mishandled", RC, 0, "a call without any token returns at once and leaves the final states unwritten", "public reports of early returns on empty batches"},
    {"chunk_table_of_256", "output-unwritten", C, 256, "chunks past the 256th of all sequences together are not processed", "work lists of a fixed size"},
    // --- combinations: slips that need two or three things at once ---
    {"later_sequence_zeroed_at_third_chunk", "state-zeroed-at-chunk-border", C, 2, "sequences after the first start their third chunk from a zero state", "double buffers whose index is not reset between sequences"},
    {"wide_key_positions_wrap", "offset-overflow", RC, 512, "with more than 64 key channels token positions wrap at 512", "16-bit products of position and key dimension"},
    {"wide_key_states_of_four_sequences", "initial-state-ignored", RC, 4, "with more than 64 key channels only the first four sequences read their initial state", "tables of a fixed size on the path for wide keys"},
    {"wide_values_not_carried", "state-zeroed-at-chunk-border", C, 128, "value channels past the first 128 start every chunk from zero", "a second tile of values that is not chained"},
    {"odd_key_channel_not_carried", "key-channels-dropped", C, 0, "of an odd number of key channels the last one starts every chunk from zero", "states stored in pairs"},
    {"ungated_state_leaks_into_next_sequence", "state-leaks-into-next-sequence", RC, 0, "without gates a sequence starts from the final state of the one before", "a path of its own for the ungated rule"},
    {"ungated_heads_in_pairs", "head-map-wrong", RC, 2, "without gates value head h reads key head h/2, whatever HV/H is", "a path of its own for the ungated rule"},
    {"short_offsets_taken_as_equal", "layout-stride-ignored", RC, 0, "with 32-bit offsets all sequences are as long as the first", "public interfaces whose batch form came first"},
    {"head_ratio_dispatched_down", "head-map-wrong", RC, 0, "a head ratio other than 1, 2, 3, 4, 8 takes the next smaller of these", "instances for the usual ratios only"},
    {"short_state_sequence_stride", "state-stride-wrong", RC, 0, "initial states in 16 bits lie as far apart by sequence as those in fp32 would", "public reports of pool strides in the wrong dtype"},
    {"half_precision_state_leaks", "state-leaks-into-next-sequence", RC, 0, "with fp16 inputs a sequence starts from the final state of the one before", "resets left out of one instance of a template"},
    {"short_gate_sequence_offset", "sequence-gates-cross", RC, 0, "gates in 16 bits are looked up at half the offset of their sequence", "offsets counted in bytes of another dtype"},
    {"sequence_number_in_6_bits", "sequence-state-mixed", RC, 64, "with several value heads and 64 key channels or more, initial states are found by the sequence number modulo 64", "packed work descriptors with short fields"},
    {"half_precision_value_tile_repeated", "value-channels-dropped", RC, 64, "with fp16 inputs and one sequence, value channels past the first 64 repeat the ones before", "one instance of a template that lacks the second tile"},
    {"many_wide_sequences_share_gates", "sequence-gates-cross", RC, 8, "with 96 key channels and more, sequences past the eighth take the gates of the first tokens of all", "tables of a fixed size on the path for wide keys"},
    {"raw_bias_of_key_head_when_packed", "head-map-wrong", RC, 64, "with several sequences and 64 key channels and more, dt_bias is taken by key head", "public reports of per-head tensors indexed by the wrong head"},
    {"short_pool_stride_of_wide_keys", "state-stride-wrong", R, 128, "with 128 key channels and more, slots of a 16-bit pool lie as far apart as those of one in fp32 would", "public reports of pool strides in the wrong dtype"},
    {"half_precision_snapshots", "state-narrowed", R, 64, "with fp16 inputs and 64 key channels and more, snapshots are rounded to fp16 although declared fp32", "public caches that keep the state in the model dtype"},
    {"raw_gates_of_eight_rows", "sequence-gates-cross", R, 8, "rows of a batch past the eighth take the raw gates of the rows eight before", "tables of a fixed size"},
    {"state_in_bf16_every_fourth_chunk", "state-narrowed", C, 4, "the carried state passes through bf16 at every fourth chunk", "checkpoints of the state kept in the model dtype"},
    {"state_in_bf16_when_long", "state-narrowed", RC, 1024, "the carried state is in bf16 from token 1024 on", "a path of its own for long sequences"},
    {"subnormal_outputs_flushed", "subnormals-flushed", RC, 0x1p-126, "outputs below the least normal fp32 number become 0", "compilers that flush subnormals by default"},
    {"subnormal_states_flushed", "subnormals-flushed", RC, 0x1p-126, "initial states below the least normal fp32 number are read as 0", "compilers that flush subnormals by default"},
    {"half_precision_positions_wrap", "offset-overflow", RC, 64, "with fp16 inputs token positions wrap at 64", "one instance of a template that walks a single tile"},
    {"stateless_heads_tiled", "head-map-wrong", RC, 0, "with fp32 inputs and neither initial nor final states value head h reads key head h mod H", "a path of its own for calls without states"},
    {"stateless_chunks_not_chained", "state-zeroed-at-chunk-border", C, 0, "with fp32 inputs and neither initial nor final states every chunk starts from a zero state", "a path of its own for calls without states"},
    {"idle_stretch_not_decayed", "gate-ignored", RC, 32, "from the 32nd token after a write on the state is not decayed until the next write", "padding that is marked by values instead of by lengths"},
    {"sequence_number_in_12_bits", "sequence-state-mixed", RC, 4096, "initial states are found by the sequence number modulo 4096", "packed work descriptors with short fields"},
    {"one_token_sequence_after_long_one_leaks", "one-token-sequence-mishandled", RC, 64, "a sequence of one token directly after one of 64 and more starts from the final state of that one", "separate paths for single tokens"},
    {"gates_of_48_heads", "head-map-wrong", RC, 48, "value heads past the 48th take the gates of the heads 48 before", "tables of a fixed size"},
    {"accepted_unused_for_one_row", "acceptance-wrong", R, 0, "with a single row no accepted draft token is continued", "public reports of a path of its own for batch size one"},
    {"accepted_unused_for_one_draft", "acceptance-wrong", R, 0, "where there is one draft token it is never continued", "loops over drafts that begin with the second"},
    {"accepted_all_is_one_less", "acceptance-wrong", R, 0, "where all draft tokens were accepted one too few is continued", "counts that leave the bonus token out"},
    {"gates_of_24_heads", "head-map-wrong", RC, 24, "value heads past the 24th take the gates of the heads 24 before", "tables of a fixed size"},
    {"key_channels_past_192_dropped", "key-channels-dropped", RC, 192, "key channels past the 192nd are ignored", "tiles for the widths of smaller models"},
    {"wide_value_tile_repeated", "value-channels-dropped", RC, 256, "with 256 value channels and more the upper half repeats the lower one", "a second tile of values that starts where the first did"},
    {"negative_scale_sign_lost", "scale-wrong", RC, 0, "the sign of a negative scale is lost", "scales that are kept as logarithms or square roots"},
    {"tail_of_long_sequence_dropped", "tail-tokens-dropped", RC, 256, "sequences of more than 256 tokens lose what is past their last multiple of 8", "unrolled loops without a remainder on the path for long contexts"},
    // --- memory and order ---
    {"one_element_wrong", "element-wrong", RC, 0x1p-4, "one output element is off by a sixteenth", "races and bad lanes"},
    {"one_lane_duplicated", "element-wrong", RC, 0, "one output element holds its neighbour's value", "races and bad lanes"},
    {"one_element_nan", "nan-in-output", RC, 0, "one output element is NaN", "public reports of single NaNs"},
    {"one_element_unwritten", "output-unwritten", RC, 0, "one output element is not written", "public reports of stores masked too much"},
    {"outputs_unwritten_at_first_launch", "output-unwritten", RC, 0, "the first launch of a plan writes no outputs", "public reports of a first launch that only tunes"},
    {"output_added_to_buffer", "workspace-stale", RC, 0, "outputs are added to what the buffer holds", "public reports of accumulation into uncleared buffers"},
    {"writes_past_the_end", "out-of-bounds-write", RC, 0, "one element past the end of the outputs is written", "public reports of stores without a bounds check"},
    {"query_scaled_in_place", "out-of-bounds-write", RC, 0, "q is scaled in the caller's buffer", "in-place operators in wrappers"},
    {"repeat_differs", "nondeterministic", RC, 0, "every second run differs in the last bit of one element", "public reports of atomics in reductions"},
    {"stale_state_as_initial", "workspace-stale", RC, 0, "without an initial state the plan's last state is used", "public reports of stale slots"},
    {"offsets_cached_in_plan", "workspace-stale", RC, 0, "sequence offsets of the plan's first run are kept", "metadata cached by shape"},
    {"beta_cached_in_plan", "workspace-stale", RC, 0, "beta of the plan's first run is kept", "graphs captured with old pointers"},
    {"scale_cached_in_plan", "workspace-stale", RC, 0, "the scale of the plan's first run is kept", "constants cached by shape"},
};

// Index of a fault in the table; a name that is not there does not compile.
consteval int operator""_f(const char* text, std::size_t size) {
  int i = 0;
  for (const Fault& f : kTable) {
    if (std::string_view(f.name) == std::string_view(text, size)) return i;
    ++i;
  }
  throw "no such fault in the table";
}

template <class T>
void axpy(std::int64_t n, T a, const T* x, T* y) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) y[i] += a * x[i];
}

// T is the arithmetic; Low rounds the operands of the chunk form's products to bf16.
template <class T, bool Low>
class Body {
 public:
  Body(int fault, Form form, View& x, Memory& memory)
      : f_(fault), p_(fault >= 0 ? kTable[fault].parameter : 0), form_(form), x_(x), memory_(memory) {}

  void run() {
    ratio_ = x_.HV / x_.H;
    K_ = x_.K;
    V_ = x_.V;
    if (is("key_tail_dropped"_f) && K_ > 32) K_ = K_ / 32 * 32;
    if (is("key_tail_unmasked"_f)) K_ = (K_ + 31) / 32 * 32;
    if (is("key_channels_past_192_dropped"_f)) K_ = std::min(K_, static_cast<std::int64_t>(p_));
    if (is("short_offsets_read_as_64_bit"_f) && x_.short_offsets) {   // two at once, of which a 32-bit register keeps the first
      for (std::size_t i = 0; i < x_.cu.size(); ++i) cu_.push_back(2 * i < x_.cu.size() ? x_.cu[2 * i] : 0);
    } else if (is("offsets_read_as_32_bit"_f) && !x_.short_offsets) {
      std::vector<std::int64_t> narrow_cu;
      for (std::int64_t c : x_.cu) narrow_cu.insert(narrow_cu.end(), {c, 0});
      cu_.assign(narrow_cu.begin(), narrow_cu.begin() + x_.N + 1);
    } else if (is("offsets_cached_in_plan"_f) && memory_.calls > 0 && memory_.cu.size() == x_.cu.size()) {
      cu_ = memory_.cu;
    } else {
      cu_ = x_.cu;
    }
    if (memory_.calls == 0) {
      memory_.cu = x_.cu;
      memory_.scale = x_.scale;
      memory_.key_dim = x_.K;
      memory_.io = x_.io;
      memory_.beta = x_.beta;
      memory_.indices = x_.indices;
    }
    if (is("empty_sequence_aborts"_f))
      for (std::int64_t n = 0; n < x_.N; ++n)
        if (cu_[n + 1] == cu_[n]) throw std::runtime_error("zero-length sequence");
    order_.clear();
    const std::int64_t parts = is("sums_split_by_threads"_f) ? x_.threads : 1;
    for (std::int64_t part = 0; part < parts; ++part)
      for (std::int64_t c = part; c < K_; c += parts) order_.push_back(c);
    if (is("empty_call_returns_early"_f) && cu_.back() == 0) return;
    zero_gates_ = !x_.pool && !x_.g.empty() && std::all_of(x_.g.begin(), x_.g.begin() + std::min<std::int64_t>(cu_.back() * x_.HV, std::ssize(x_.g)), [](float g) { return g == 0; });
    const std::vector<double> stale = memory_.state;
    memory_.state.assign(static_cast<std::size_t>(x_.N * x_.HV * x_.K * x_.V), 0.0);

    for (std::int64_t hv = 0; hv < x_.HV; ++hv) {
      if (is("only_first_heads_launched"_f) && hv >= static_cast<std::int64_t>(p_)) continue;
      if (is("odd_last_head_skipped"_f) && x_.HV > 1 && x_.HV % 2 == 1 && hv == x_.HV - 1) continue;
      chunks_ = 0;
      if (!is("state_leaks_into_next_head"_f) || hv == 0) S_.assign(static_cast<std::size_t>(K_ * V_), T(0));
      for (std::int64_t n = 0; n < x_.N; ++n) {
        if (is("only_first_sequences_launched"_f) && n >= static_cast<std::int64_t>(p_)) continue;
        if (x_.pool && !place(n, hv)) continue;
        load(n, hv);
        start(n, hv, stale);
        if (form_ == Form::recurrent) recurrent(); else chunkwise();
        finish(n, hv);
      }
    }
    whole_call_faults();
    if (memory_.calls == 0) memory_.first = x_.ht;
    ++memory_.calls;
  }

 private:
  bool is(int id) const { return f_ == id; }
  bool stateless() const { return x_.io == DType::f32 && x_.h0.empty() && !x_.want_ht; }
  static T peak(const T* x, std::int64_t n) {
    T most = 0;
    for (std::int64_t i = 0; i < n; ++i) most = std::max(most, std::fabs(x[i]));
    return most;
  }
  static T rounded_down(T x) {                     // to 23 digits
    int exponent;
    const double m = std::frexp(static_cast<double>(x), &exponent);
    return static_cast<T>(std::ldexp(std::floor(std::ldexp(m, 23)), exponent - 23));
  }
  T narrow_to(T x, Format format) const { return static_cast<T>(narrow(static_cast<double>(x), format)); }
  T f32(double x) const { return static_cast<T>(static_cast<float>(x)); }
  static T low(T x) {
    if constexpr (Low) return to_bf16(x);
    else return x;
  }
  void narrow_all(std::vector<T>& a, Format format) const {
    for (T& e : a) e = narrow_to(e, format);
  }
  template <class E>
  static T element(const std::vector<E>& a, std::int64_t i) {
    return i >= 0 && i < static_cast<std::int64_t>(a.size()) ? static_cast<T>(a[static_cast<std::size_t>(i)]) : T(0);
  }

  // ---- slots of a pool --------------------------------------------------------------------------------------------
  // Sets read_, write_ and continued_ for row n; false where the row has no sequence.
  bool place(std::int64_t n, std::int64_t hv) {
    const std::int64_t plane = x_.K * x_.V, last = x_.slots - 1;
    const std::vector<std::int64_t>& list = is("slot_list_cached_in_plan"_f) && memory_.indices.size() == x_.indices.size() ? memory_.indices : x_.indices;
    std::int64_t slot = list[n];
    if (is("padding_ends_batch"_f) && std::find(list.begin(), list.begin() + n + 1, -1) != list.begin() + n + 1) return false;
    if (is("padding_slots_compacted"_f) || is("slot_list_sorted"_f)) {
      std::vector<std::int64_t> live;
      for (const std::int64_t s : list)
        if (s >= 0) live.push_back(s);
      if (is("slot_list_sorted"_f)) {
        std::sort(live.begin(), live.end());
        if (slot >= 0) slot = live[static_cast<std::size_t>(std::count_if(list.begin(), list.begin() + n, [](auto s) { return s >= 0; }))];
      } else {
        slot = n < static_cast<std::int64_t>(live.size()) ? live[n] : -1;
      }
    }
    if (slot < 0) {
      if (is("padding_zeroes_first_slot"_f))
        for (std::int64_t i = 0; i < plane; ++i) put_ht(hv * plane + i, T(0));
      if (is("padding_index_clamped"_f)) slot = 0;
      if (is("padding_index_wraps"_f)) slot = last;
      if (is("padding_index_of_row_before"_f) && n > 0) slot = list[n - 1];
      if (slot < 0) return false;
    }
    if (is("slot_limited_to_batch"_f)) slot = std::min(slot, x_.N - 1);
    if (is("slot_number_in_8_bits"_f)) slot %= static_cast<std::int64_t>(p_);
    if (is("slot_zero_is_none"_f) && slot == 0) return false;
    if (is("rows_past_32_skipped"_f) && n >= static_cast<std::int64_t>(p_)) return false;
    read_ = write_ = slot;
    if (is("slot_list_ignored"_f) || is("slot_list_ignored_on_read"_f)) read_ = std::min(n, last);
    if (is("slot_list_ignored"_f) || is("slot_list_ignored_on_write"_f)) write_ = std::min(n, last);
    if (is("slot_of_first_row_read"_f)) read_ = *std::find_if(list.begin(), list.end(), [](auto s) { return s >= 0; });
    if (is("slot_written_one_late"_f)) write_ = (slot + 1) % x_.slots;
    continued_ = -1;
    if (x_.accepted.empty() || x_.before.empty()) return true;
    std::int64_t accepted = x_.accepted[is("accepted_of_first_row"_f) ? 0 : n];
    if (is("accepted_count_ignored"_f)) accepted = x_.drafts;
    if (is("accepted_unused_for_one_row"_f) && x_.N == 1) accepted = 0;
    if (is("accepted_unused_for_one_draft"_f) && x_.drafts == 1) accepted = 0;
    if (is("accepted_all_is_one_less"_f) && accepted == x_.drafts) --accepted;
    if (is("accepted_limited_to_four"_f)) accepted = std::min(accepted, static_cast<std::int64_t>(p_));
    if (accepted > 0) continued_ = n * x_.drafts + accepted - 1;
    if (is("accepted_reads_first_snapshot"_f) && accepted > 0) continued_ = n * x_.drafts;
    if (is("accepted_counts_from_zero"_f) && accepted > 0) continued_ = n * x_.drafts + std::min(accepted, x_.drafts - 1);
    if (is("accepted_none_takes_last"_f) && accepted == 0) continued_ = x_.N * x_.drafts - 1;
    return true;
  }
  std::int64_t slot_base(std::int64_t slot) const {
    return (slot * (is("pool_stride_of_key_heads"_f) ? x_.H : x_.HV) + head_) * x_.K * x_.V;
  }
  void put_snapshot(std::int64_t n, std::int64_t t) {
    const std::int64_t count = x_.rows / x_.N;
    if (is("snapshot_of_last_token_missing"_f) && t == count - 1) return;
    std::int64_t row = n * count + t;
    if (is("snapshots_of_four_drafts"_f)) row = n * count + std::min(t, static_cast<std::int64_t>(p_) - 1);
    if (is("snapshots_newest_first"_f)) row = n * count + count - 1 - t;
    if (is("snapshots_token_before_row"_f)) row = t * x_.N + n;
    for (std::int64_t i = 0; i < K_ * V_; ++i) {
      const auto at = static_cast<std::size_t>((row * x_.HV + head_) * x_.K * x_.V + i);
      if (at >= x_.snapshots.size()) return;
      const bool half = is("half_precision_snapshots"_f) && x_.io == DType::f16 && x_.K >= static_cast<std::int64_t>(p_);
      if (half) x_.snapshots[at] = static_cast<double>(narrow_to(S_[i], Format::fp16));
      else x_.snapshots[at] = static_cast<double>(is("snapshot_in_bf16"_f) ? narrow_to(S_[i], Format::bf16) : S_[i]);
      x_.snapshots_written[at] = 1;
    }
  }

  // ---- inputs of sequence n, value head hv, with the faults of addressing, heads, gates and norms --------------------
  void load(std::int64_t n, std::int64_t hv) {
    first_ = cu_[n];
    head_ = hv;
    row_ = n;
    std::int64_t last = cu_[n + 1];
    if (is("padding_processed"_f) && n == x_.N - 1) last = x_.rows;
    if (is("length_of_first_sequence"_f)) last = std::min(last, first_ + (cu_[1] - cu_[0]));
    if (is("short_offsets_taken_as_equal"_f) && x_.short_offsets) {
      first_ = n * cu_[1];
      last = std::min(first_ + cu_[1], x_.rows);
    }
    len_ = std::max<std::int64_t>(0, last - first_);
    if (is("tail_chunk_dropped"_f) && len_ > kChunk) len_ = len_ / kChunk * kChunk;
    if (is("only_first_chunks_launched"_f)) len_ = std::min(len_, static_cast<std::int64_t>(p_) * kChunk);
    if (is("odd_last_token_skipped"_f)) len_ = len_ / 2 * 2;
    if (is("tail_of_long_sequence_dropped"_f) && len_ > static_cast<std::int64_t>(p_)) len_ = len_ / 8 * 8;
    std::int64_t from = first_;
    lead_ = 0;
    if (is("chunk_starts_before_sequence"_f)) {
      from = first_ / kChunk * kChunk;
      lead_ = first_ - from;
      if (len_ > 0) len_ += lead_;
    }
    if (is("sequence_start_aligned_down"_f)) from = first_ / 8 * 8;
    extra_ = kChunk;                               // rows behind the sequence as memory holds them: for faulty tails

    std::int64_t hk = hv / ratio_;
    if (is("heads_tiled"_f) || (is("stateless_heads_tiled"_f) && stateless())) hk = hv % x_.H;
    if (is("head_ratio_as_shift"_f)) {
      int shift = 0;
      while ((std::int64_t{2} << shift) <= ratio_) ++shift;
      hk = std::min(hv >> shift, x_.H - 1);
    }
    if (is("head_ratio_dispatched_down"_f)) {
      const std::int64_t r = ratio_ >= 8 ? 8 : ratio_ >= 4 ? 4 : ratio_;
      hk = std::min(hv / r, x_.H - 1);
    }
    if (is("ungated_heads_in_pairs"_f) && x_.g.empty()) hk = std::min(hv / static_cast<std::int64_t>(p_), x_.H - 1);
    if (is("head_modulo_ratio"_f)) hk = std::min(hv % ratio_, x_.H - 1);
    if (is("first_key_head_for_all"_f)) hk = 0;
    const std::int64_t hq = is("query_head_clamped"_f) ? std::min(hv, x_.H - 1) : hk;
    const std::int64_t hg = is("gate_of_key_head"_f) ? hk : is("gate_of_neighbour_head"_f) ? (hv ^ 1) % x_.HV : is("gates_of_24_heads"_f) || is("gates_of_48_heads"_f) ? hv % static_cast<std::int64_t>(p_) : hv, hb = is("beta_of_key_head"_f) || (is("zero_gates_path_takes_beta_by_key_head"_f) && zero_gates_) ? hk : hv;
    const std::int64_t rows = len_ + extra_;
    q_.assign(static_cast<std::size_t>(rows * K_), T(0));
    k_ = q_;
    v_.assign(static_cast<std::size_t>(rows * V_), T(0));
    g_.assign(static_cast<std::size_t>(rows), T(0));
    b_.assign(static_cast<std::size_t>(rows), T(0));
    const std::vector<float>& q_source = is("query_and_key_exchanged"_f) ? x_.k : x_.q;
    const std::vector<float>& k_source = is("query_and_key_exchanged"_f) ? x_.q : x_.k;
    const std::vector<float>& beta = is("beta_cached_in_plan"_f) && memory_.beta.size() == x_.beta.size() ? memory_.beta : x_.beta;
    const std::int64_t q_heads = is("key_stride_of_value_heads"_f) ? x_.HV : x_.H;
    const std::int64_t v_heads = is("value_stride_of_key_heads"_f) ? x_.H : x_.HV;
    const std::int64_t g_heads = is("gate_stride_of_key_heads"_f) ? x_.H : x_.HV;
    for (std::int64_t t = 0; t < rows; ++t) {
      const bool wraps = is("position_wraps"_f) || (is("wide_key_positions_wrap"_f) && x_.K > 64) || (is("half_precision_positions_wrap"_f) && x_.io == DType::f16);
      const std::int64_t row = from + (wraps ? t % static_cast<std::int64_t>(p_) : t);
      if (row >= x_.rows) break;
      std::int64_t key = (row * q_heads + hk) * x_.K;
      if (is("keys_head_before_token"_f)) key = (hk * x_.rows + row) * x_.K;
      if (is("key_rows_aligned_down"_f)) key = key / 8 * 8;
      for (std::int64_t c = 0; c < K_; ++c) {
        q_[t * K_ + c] = element(q_source, (row * q_heads + hq) * x_.K + c);
        k_[t * K_ + c] = element(k_source, key + c);
      }
      const bool turned = is("values_channel_before_head"_f);
      const bool repeated = is("half_precision_value_tile_repeated"_f) && x_.io == DType::f16 && x_.N == 1 && x_.a.empty() && !x_.pool;
      for (std::int64_t e = 0; e < V_; ++e) {
        const std::int64_t c = repeated ? e % static_cast<std::int64_t>(p_) : is("wide_value_tile_repeated"_f) && x_.V >= static_cast<std::int64_t>(p_) ? e % ((x_.V + 1) / 2) : e;
        v_[t * V_ + e] = element(x_.v, turned ? (row * x_.V + c) * x_.HV + hv : (row * v_heads + hv) * x_.V + c);
      }
      const bool eighth = n >= static_cast<std::int64_t>(p_);
      if (!x_.a.empty()) g_[t] = raw_gate(is("raw_gates_of_eight_rows"_f) && x_.pool && eighth ? row - static_cast<std::int64_t>(p_) * (x_.rows / x_.N) : row, hg, hk);
      else if (is("many_wide_sequences_share_gates"_f) && !x_.pool && x_.K >= 96 && eighth) g_[t] = element(x_.g, (row - first_) * g_heads + hg);
      else if (is("gates_head_before_token"_f)) g_[t] = element(x_.g, hg * x_.rows + row);
      else if (!x_.g.empty() && x_.gate_width == 0) g_[t] = element(x_.g, (is("short_gate_sequence_offset"_f) && x_.gate != DType::f32 ? row - first_ / 2 : row) * g_heads + hg);
      b_[t] = x_.beta.empty() ? T(1) : element(beta, row * x_.HV + hb);
    }
    c_.clear(), turn_.clear();
    for (std::int64_t t = 0; t < len_; ++t)
      for (std::int64_t j = 0; j < x_.gate_width; ++j) {
        const std::int64_t i = ((first_ + t) * x_.HV + (is("channel_gate_of_key_head"_f) ? hk : hv)) * x_.gate_width + j;
        c_.push_back(element(x_.g, i));
        if (!x_.angle.empty()) turn_.push_back(element(x_.angle, i));
      }
    if (is("gate_and_beta_exchanged"_f)) std::swap(g_, b_);
    if (is("reset_erases_own_write"_f) || is("unwritten_token_not_decayed"_f))
      for (std::int64_t t = 0; t < rows; ++t) {
        if (is("reset_erases_own_write"_f) && g_[t] < -104) b_[t] = 0;
        if (is("unwritten_token_not_decayed"_f) && b_[t] == 0) g_[t] = 0;
      }
    if (is("idle_stretch_not_decayed"_f))
      for (std::int64_t t = 0, idle = 0, wrote = 0; t < rows; ++t) {
        wrote += b_[t] != 0;
        idle = b_[t] == 0 ? idle + 1 : 0;
        if (wrote > 0 && idle >= static_cast<std::int64_t>(p_)) g_[t] = 0;
      }
    if (is("one_token_sequence_not_decayed"_f) && len_ == 1) g_[0] = 0;
    if (is("masked_fill_gate_skips_token"_f))
      for (std::int64_t t = 0; t < rows; ++t)
        if (g_[t] <= static_cast<T>(p_)) g_[t] = b_[t] = 0;
    for (std::int64_t t = 0; t < rows; ++t) gate_input(g_[t]);
    if (is("gate_shifted_by_one"_f)) {
      for (std::int64_t t = rows - 1; t > 0; --t) g_[t] = g_[t - 1];
      g_[0] = 0;
    }
    if (is("gate_of_next_token"_f))
      for (std::int64_t t = 0; t + 1 < len_; ++t) g_[t] = g_[t + 1];
    if (is("first_gate_ignored"_f)) g_[0] = 0;
    beta_input();
    key_input();
    scale_ = static_cast<T>(x_.scale);
    const double K = static_cast<double>(x_.K);
    if (is("scale_missing"_f)) scale_ = 1;
    if (is("negative_scale_sign_lost"_f)) scale_ = std::fabs(scale_);
    if (is("scale_twice"_f)) scale_ *= scale_;
    if (is("scale_fixed_for_odd_dims"_f) && (K_ & (K_ - 1)) != 0) scale_ = T(1) / std::sqrt(static_cast<T>(K_));
    if (is("scale_of_value_dim"_f)) scale_ = static_cast<T>(1 / std::sqrt(static_cast<double>(x_.V)));
    if (is("scale_of_padded_key_dim"_f)) {
      std::int64_t padded = 16;
      while (padded < x_.K) padded *= 2;
      scale_ *= static_cast<T>(std::sqrt(K / static_cast<double>(padded)));
    }
    if (is("scale_argument_ignored"_f)) scale_ = static_cast<T>(static_cast<float>(1 / std::sqrt(K)));
    if (is("scale_one_taken_as_default"_f) && x_.scale == 1) scale_ = static_cast<T>(1 / std::sqrt(K));
    if (is("one_token_sequence_unscaled"_f) && len_ == 1) scale_ = 1;
    if (is("scale_on_key"_f)) {
      for (T& e : k_) e *= scale_;
      scale_ = 1;
    }
    if (is("scale_in_bf16"_f)) scale_ = narrow_to(scale_, Format::bf16);
    if (is("scale_cached_in_plan"_f) && memory_.calls > 0) scale_ = static_cast<T>(memory_.scale);
    if (is("scale_of_first_key_dim"_f) && memory_.calls > 0) scale_ *= static_cast<T>(std::sqrt(K / static_cast<double>(memory_.key_dim)));
  }

  // In double, right in both tails but for the faults.
  T raw_gate(std::int64_t row, std::int64_t hv, std::int64_t hk) const {
    const double a = static_cast<double>(element(x_.a, row * x_.HV + hv));
    double A = static_cast<double>(element(x_.A_log, is("raw_rate_of_first_head"_f) ? 0 : hv)), x = a;
    if (!is("raw_bias_left_out"_f)) x += static_cast<double>(element(x_.dt_bias, is("raw_bias_of_key_head"_f) || (is("raw_bias_of_key_head_when_packed"_f) && !x_.pool && x_.N > 1 && x_.K >= static_cast<std::int64_t>(p_)) ? hk : hv));
    if (is("raw_gate_sum_in_bf16"_f)) x = narrow(x, Format::bf16);
    if (is("raw_rate_not_exponentiated"_f)) return static_cast<T>(-std::fabs(A) * (std::max(x, 0.0) + std::log1p(std::exp(-std::fabs(x)))));
    double softplus = x < -40 ? std::exp(x) : std::max(x, 0.0) + std::log1p(std::exp(-std::fabs(x)));
    const float naive = std::log(1.0f + std::exp(static_cast<float>(x)));
    if (is("raw_softplus_overflows"_f) && x > 80) softplus = static_cast<double>(naive);
    if (is("raw_softplus_vanishes"_f) && x < 20) softplus = static_cast<double>(naive);
    if (is("raw_softplus_cut_off"_f) && x < p_) softplus = 0;
    if (is("raw_softplus_linear_too_early"_f) && x > p_) softplus = x;
    if (is("raw_rate_times_zero"_f)) return static_cast<T>(-std::exp(static_cast<float>(A)) * static_cast<float>(softplus));
    if (is("raw_rate_overflows"_f)) return static_cast<T>(softplus == 0 ? 0 : -static_cast<double>(std::exp(static_cast<float>(A))) * softplus);
    if (is("raw_no_rate_nan"_f)) A = A - (std::isinf(A) ? A : 0);
    if (x < -40 && softplus > 0) return static_cast<T>(-std::exp(A + x));
    return static_cast<T>(-std::exp(A) * softplus);
  }

  void gate_input(T& g) const {
    const double e = static_cast<double>(g);
    if (is("gate_clamped"_f)) g = std::max(g, static_cast<T>(p_));
    if (is("gate_in_bf16"_f)) g = narrow_to(g, Format::bf16);
    if (is("gate_in_fp16"_f)) g = narrow_to(g, Format::fp16);
    if (is("decay_in_bf16"_f)) g = static_cast<T>(std::log(narrow(std::exp(e), Format::bf16)));
    if (is("decay_in_fp16"_f)) g = static_cast<T>(std::log(narrow(std::exp(e), Format::fp16)));
    if (is("decay_linearised"_f) && e > p_) g = static_cast<T>(std::log(1 + e));
    if (is("exp_approximated"_f)) g = static_cast<T>(e + p_ * std::sin(e * 4096));
    if (is("slow_gate_ignored"_f) && e > p_) g = 0;
    if (is("subnormal_decay_flushed"_f) && e < -87.3365447505531) g = -std::numeric_limits<T>::infinity();
    if (is("gate_taken_as_log2"_f)) g = static_cast<T>(e * 0.693147180559945309);
    if (is("linear_gate_taken_as_log"_f)) g = static_cast<T>(std::exp(e));
    if (is("gate_sign_dropped"_f)) g = static_cast<T>(std::fabs(e));
    if (is("infinite_gate_taken_as_zero"_f) && std::isinf(e)) g = 0;
    if (is("very_negative_gate_ignored"_f) && e < p_) g = 0;
    if (is("zero_decay_replaced"_f) && std::exp(static_cast<float>(e)) == 0) g = static_cast<T>(-103.25);   // e^-103.25 rounds to 2^-149
    if (is("exponent_wraps_as_integer"_f) && e * 1.4426950408889634 < p_) g = 0;
    if (is("short_gate_keeps_its_dtype"_f) && x_.gate != DType::f32)
      g = static_cast<T>(std::log(narrow(std::exp(e), x_.gate == DType::f16 ? Format::fp16 : Format::bf16)));
  }

  void beta_input() {
    for (std::size_t t = 0; t < b_.size(); ++t) {
      T& b = b_[t];
      if (is("beta_in_bf16"_f)) b = narrow_to(b, Format::bf16);
      if (is("beta_clamped_to_one"_f)) b = std::min(b, T(1));
      if (is("beta_clamped_to_two"_f)) b = std::min(b, static_cast<T>(p_));
      if (is("negative_beta_clamped"_f)) b = std::max(b, T(0));
      if (is("beta_sigmoid_again"_f)) b = static_cast<T>(1 / (1 + std::exp(-static_cast<double>(b))));
      if (is("beta_applied_twice"_f)) b *= b;
      if (is("beta_doubled"_f)) b *= 2;
      if (is("beta_missing"_f)) b = 1;
      if (is("small_beta_skipped"_f) && b < static_cast<T>(p_)) b = 0;
      if (is("ungated_token_taken_as_padding"_f) && g_[t] == 0) b = 0;
    }
    if (is("beta_of_previous_token"_f))
      for (std::size_t t = b_.size() - 1; t > 0; --t) b_[t] = b_[t - 1];
  }

  void key_input() {
    const std::int64_t rows = len_ + extra_;
    auto normalise = [&](std::vector<T>& a, double eps_on_sum) {
      for (std::int64_t t = 0; t < rows; ++t) {
        double sum = 0;
        for (std::int64_t c = 0; c < K_; ++c) sum += static_cast<double>(a[t * K_ + c]) * static_cast<double>(a[t * K_ + c]);
        const double factor = 1 / std::sqrt(sum + eps_on_sum);
        for (std::int64_t c = 0; c < K_; ++c) a[t * K_ + c] = static_cast<T>(static_cast<double>(a[t * K_ + c]) * factor);
      }
    };
    if (is("key_normalised_again"_f)) normalise(k_, 1e-6);
    if (is("query_normalised_again"_f)) normalise(q_, 1e-6);
    if (is("key_norm_clamped"_f))
      for (std::int64_t t = 0; t < rows; ++t) {
        double sum = 0;
        for (std::int64_t c = 0; c < K_; ++c) sum += static_cast<double>(k_[t * K_ + c]) * static_cast<double>(k_[t * K_ + c]);
        if (sum > 1)
          for (std::int64_t c = 0; c < K_; ++c) k_[t * K_ + c] = static_cast<T>(static_cast<double>(k_[t * K_ + c]) / std::sqrt(sum));
      }
    if (is("zero_key_gives_nan"_f))
      for (std::int64_t t = 0; t < len_; ++t)
        if (std::all_of(&k_[t * K_], &k_[t * K_] + K_, [](T e) { return e == 0; })) k_[t * K_] = std::numeric_limits<T>::quiet_NaN();
    if (is("short_key_taken_as_zero"_f) || is("eigenvalue_limited_to_zero"_f))
      for (std::int64_t t = 0; t < len_; ++t) {
        double sum = 0;
        for (std::int64_t c = 0; c < K_; ++c) sum += static_cast<double>(k_[t * K_ + c]) * static_cast<double>(k_[t * K_ + c]);
        if (is("short_key_taken_as_zero"_f) && std::sqrt(sum) < p_) std::fill_n(&k_[t * K_], K_, T(0));
        // Keys of norm 1 as they come, rounded, are not what this is about.
        if (is("eigenvalue_limited_to_zero"_f) && static_cast<double>(b_[t]) * sum > 1.01) b_[t] = static_cast<T>(1 / sum);
      }
    if (is("key_vector_tail_counted_twice"_f) && K_ > 8 && K_ % 8)
      for (std::int64_t t = 0; t < rows; ++t)
        for (std::int64_t c = K_ - 8; c < K_ / 8 * 8; ++c) q_[t * K_ + c] *= 2;
    if (is("half_subnormals_flushed"_f) && x_.io == DType::f16)
      for (auto* a : {&q_, &k_, &v_})
        for (T& e : *a)
          if (std::fabs(e) < static_cast<T>(p_)) e = 0;
    if (is("keys_in_tf32"_f)) narrow_all(k_, Format::tf32);
    if (is("keys_in_bf16"_f)) narrow_all(k_, Format::bf16);
    if (is("queries_in_bf16"_f)) narrow_all(q_, Format::bf16);
    if (is("values_in_fp16"_f)) narrow_all(v_, Format::fp16);
    if (is("values_in_bf16"_f)) narrow_all(v_, Format::bf16);
    if (is("inputs_truncated"_f))
      for (auto* a : {&q_, &k_, &v_})
        for (T& e : *a) e = static_cast<T>(truncate(static_cast<double>(e), Format::bf16));
    if (is("scaled_query_in_bf16"_f))
      for (T& e : q_) e = static_cast<T>(narrow(static_cast<double>(e) * x_.scale, Format::bf16) / x_.scale);
    const bool by_chunk = is("values_scaled_by_chunk_peak"_f);
    if (is("values_quantised_by_row"_f) || is("values_scaled_by_row_peak"_f) || by_chunk)
      for (std::int64_t t = 0; t < rows;) {
        const std::int64_t end = by_chunk ? std::min(t + kChunk, std::max(len_, t + 1)) : t + 1;
        double peak = 0;
        for (std::int64_t e = t * V_; e < end * V_; ++e) {
          const double a = std::fabs(static_cast<double>(v_[e]));
          if (peak == peak && !(a <= peak)) peak = a;
        }
        // Scaling alone goes through a power of two and costs nothing; quantising goes through the peak itself.
        if (is("values_scaled_by_row_peak"_f)) peak = std::isfinite(peak) && peak > 0 ? std::exp2(std::floor(std::log2(peak))) : peak;
        const double most = by_chunk ? 32767 : 448;
        for (std::int64_t e = t * V_; e < end * V_ && peak != 0; ++e) {
          const double x = static_cast<double>(v_[e]) / peak;
          v_[e] = static_cast<T>(is("values_scaled_by_row_peak"_f) ? x * peak : (by_chunk ? std::nearbyint(x * most) : narrow(x * most, Format::fp8_e4m3)) / most * peak);
        }
        t = end;
      }
  }

  // ---- initial state ---------------------------------------------------------------------------------------------
  void start(std::int64_t n, std::int64_t hv, const std::vector<double>& stale) {
    const bool leak = is("state_leaks_into_next_sequence"_f) || (is("ungated_state_leaks_into_next_sequence"_f) && x_.g.empty() && x_.rows > 0) ||
                      (is("half_precision_state_leaks"_f) && x_.io == DType::f16) ||
                      (is("state_leaks_after_full_chunk"_f) && n > 0 && (cu_[n] - cu_[n - 1]) % kChunk == 0) ||
                      (is("one_token_sequence_after_long_one_leaks"_f) && !x_.pool && n > 0 && len_ == 1 && cu_[n] - cu_[n - 1] >= static_cast<std::int64_t>(p_));
    const bool kept = (leak && n > 0) || (is("state_leaks_into_next_head"_f) && n == 0);
    if (!kept) std::fill(S_.begin(), S_.end(), T(0));
    Z_.assign(is("segment_transition_as_decay"_f) ? S_.size() : 0, T(0));
    late_.clear();
    const std::int64_t plane = x_.K * x_.V;
    if (is("stale_state_as_initial"_f) && x_.h0.empty())
      for (std::int64_t r = 0; r < std::min(K_, x_.K); ++r)
        for (std::int64_t c = 0; c < V_; ++c) {
          const auto i = static_cast<std::size_t>((n * x_.HV + hv) * plane + r * V_ + c);
          if (i < stale.size()) S_[r * V_ + c] = static_cast<T>(stale[i]);
        }
    if (x_.h0.empty()) return;
    if (is("initial_state_ignored"_f)) return;
    if (is("initial_state_only_at_first_call"_f) && memory_.calls > 0) return;
    if (is("initial_state_needs_final_state"_f) && !x_.want_ht) return;
    if (is("ungated_path_starts_from_zero"_f) && x_.g.empty()) return;
    if (is("initial_state_only_for_one_token"_f) && len_ > 1) return;
    if (is("initial_state_only_for_first_sequence"_f) && n > 0) return;
    if (is("initial_state_skipped_for_short"_f) && len_ < kChunk) return;
    if (is("wide_key_states_of_four_sequences"_f) && x_.K > 64 && n >= static_cast<std::int64_t>(p_)) return;
    std::int64_t source = n;
    if (is("initial_state_of_first_sequence"_f)) source = 0;
    if (is("sequence_number_in_8_bits"_f) || is("sequence_number_in_12_bits"_f)) source = n % static_cast<std::int64_t>(p_);
    if (is("sequence_number_in_6_bits"_f) && x_.HV > 1 && x_.K >= 64) source = n % static_cast<std::int64_t>(p_);
    if (is("empty_sequences_not_counted"_f)) {
      source = 0;
      for (std::int64_t m = 0; m < n; ++m) source += cu_[m + 1] > cu_[m];
    }
    std::int64_t base = (source * x_.HV + hv) * plane;
    if (is("initial_state_stride_16_bit"_f)) base /= 2;
    if (is("short_state_sequence_stride"_f) && x_.state != DType::f32) base += source * x_.HV * plane;
    if (is("initial_state_head_stride_square"_f)) base = (source * x_.HV + hv) * x_.K * x_.K;
    if (is("initial_state_of_head_zero"_f)) base = source * x_.HV * plane;
    if (is("state_workspace_of_18_bits"_f)) base = (source * x_.HV + hv % std::max<std::int64_t>(static_cast<std::int64_t>(p_) / plane, 1)) * plane;
    if (is("initial_state_head_before_sequence"_f)) base = (hv * x_.N + source) * plane;
    const std::vector<double>* from = &x_.h0;
    if (x_.pool) {
      const std::int64_t canonical = (n * x_.HV + hv) * plane;
      base += slot_base(read_) - canonical;        // what the faults above shift stays shifted
      if (is("short_pool_stride_of_wide_keys"_f) && x_.state != DType::f32 && x_.K >= static_cast<std::int64_t>(p_) && !x_.verify) base += read_ * x_.HV * plane;
      if (continued_ >= 0) {
        from = &x_.before;
        base = (continued_ * x_.HV + hv) * plane;
      }
      const auto cached = memory_.by_slot.find(read_ * x_.HV + hv);
      if (is("slot_state_cached"_f) && continued_ < 0 && cached != memory_.by_slot.end()) {
        from = &cached->second;
        base = 0;
      }
    }
    for (std::int64_t r = 0; r < std::min(K_, x_.K); ++r)
      for (std::int64_t c = 0; c < V_; ++c) {
        const bool turned = is("initial_state_transposed"_f) || is("state_transposed_in_and_out"_f);
        T s = element(*from, base + (turned ? c * x_.K + r : r * x_.V + c));
        if (is("initial_state_in_bf16"_f)) s = narrow_to(s, Format::bf16);
        if (is("subnormal_states_flushed"_f) && std::fabs(s) < static_cast<T>(p_)) s = 0;
        if (is("initial_state_scaled"_f)) s *= scale_;
        if (is("initial_state_first_tile_only"_f) && c >= static_cast<std::int64_t>(p_)) s = 0;
        S_[r * V_ + c] += s;
      }
    if (is("decode_checkpoint_in_bf16"_f) && x_.pool && !x_.verify && (memory_.calls + 1) % static_cast<std::int64_t>(p_) == 0) narrow_all(S_, Format::bf16);
    if (is("initial_state_not_in_final"_f) || is("initial_state_added_every_chunk"_f)) late_ = S_;
    if (x_.verify && continued_ >= 0 && !is("accepted_state_not_kept"_f)) store_slot();
  }
  // The state into its slot.
  void store_slot() {
    const std::int64_t base = slot_base(write_);
    for (std::int64_t r = 0; r < std::min(K_, x_.K); ++r)
      for (std::int64_t c = 0; c < V_; ++c) put_ht(base + r * x_.V + c, S_[r * V_ + c]);
  }

  // ---- recurrent form ----------------------------------------------------------------------------------------------
  void recurrent() {
    const std::int64_t K = K_, V = V_;
    o_.assign(static_cast<std::size_t>(len_ * V), T(0));
    std::vector<T> r(static_cast<std::size_t>(V)), y(r);
    for (std::int64_t t = 0; t < len_; ++t) {
      const T *q = &q_[t * K], *k = &k_[t * K], *v = &v_[t * V];
      T a = is("log_gate_taken_as_linear"_f) ? g_[t] : std::exp(g_[t]);
      if (is("decay_accumulates_in_fp16"_f)) a = narrow_to(a, Format::fp16);
      T* o = &o_[t * V];
      auto decay = [&] {
        if (!c_.empty()) return decay_channels(t);
        const std::size_t rows = is("second_key_tile_not_decayed"_f) ? static_cast<std::size_t>(std::min(K, std::int64_t{64}) * V) : S_.size();
        for (std::size_t i = 0; i < rows; ++i) S_[i] *= a;
        for (T& z : Z_) z *= a;
      };
      if (x_.verify && is("snapshot_before_write"_f)) put_snapshot(row_, t);
      auto read = [&](const T* key, T* into) {
        const bool cut = is(into == o ? "output_from_first_key_tile"_f : "correction_from_first_key_tile"_f);
        const bool backward = (is("summation_order_by_batch"_f) && x_.N > 1) || (is("summation_order_by_position"_f) && t % 2 == 1) ||
                              (is("summation_order_by_head"_f) && head_ / ratio_ % 2 == 1);
        const std::int64_t rows = cut ? std::min(K, std::int64_t{64}) : K;
        for (std::int64_t c = 0; c < rows; ++c) {
          const std::int64_t r = backward ? rows - 1 - c : cut ? c : order_[c];
          axpy(V, key[r], &S_[r * V], into);
          if (is("read_accumulated_in_fp16"_f) && into == o)
            for (std::int64_t j = 0; j < V; ++j) into[j] = narrow_to(into[j], Format::fp16);
        }
      };
      std::fill(r.begin(), r.end(), T(0));
      if (is("correction_before_decay"_f)) {
        read(k, r.data());
        decay();
      } else if (is("decay_after_write"_f)) {
        read(k, r.data());
      } else {
        decay();
        if (is("readback_of_rounded_state"_f)) {
          for (std::int64_t c = 0; c < K; ++c)
            for (std::int64_t j = 0; j < V; ++j) r[j] += k[c] * narrow_to(S_[c * V + j], Format::bf16);
        } else {
          read(k, r.data());
        }
      }
      if (is("delta_term_missing"_f)) std::fill(r.begin(), r.end(), T(0));
      if (is("readback_with_query"_f)) {
        std::fill(r.begin(), r.end(), T(0));
        read(q, r.data());
      }
      for (std::int64_t j = 0; j < V; ++j) {
        y[j] = b_[t] * (v[j] - r[j]);
        if (is("beta_not_on_value"_f)) y[j] = v[j] - b_[t] * r[j];
        if (is("beta_not_on_readback"_f)) y[j] = b_[t] * v[j] - r[j];
        if (is("correction_added"_f)) y[j] = b_[t] * (v[j] + r[j]);
        if (is("correction_in_bf16"_f)) y[j] = narrow_to(y[j], Format::bf16);
      }
      if (is("small_correction_skipped"_f) && peak(&y[0], V) < static_cast<T>(p_) * b_[t] * peak(v, V)) std::fill(y.begin(), y.end(), T(0));
      if (is("output_read_before_write"_f)) read(q, o);
      if (is("last_token_not_written"_f) && t == len_ - 1) std::fill(y.begin(), y.end(), T(0));
      if (is("outer_product_transposed"_f)) {
        for (std::int64_t c = 0; c < K; ++c)
          for (std::int64_t j = 0; j < V; ++j) S_[c * V + j] += y[c % V] * k[j % K];
      } else {
        for (std::int64_t c = 0; c < K; ++c) axpy(V, k[c], y.data(), &S_[c * V]);
      }
      if (is("decay_after_write"_f)) decay();
      stored_state();
      if (is("state_in_bf16_when_long"_f) && t + 1 >= static_cast<std::int64_t>(p_)) narrow_all(S_, Format::bf16);
      if (x_.verify && !is("snapshot_before_write"_f) && !is("snapshots_all_of_last_token"_f)) put_snapshot(row_, t);
      const bool first = is("query_scaled_first_in_decode"_f) && x_.pool && !x_.verify;
      if (first)
        for (std::int64_t c = 0; c < K; ++c) q_[t * K + c] *= scale_;
      if (!is("output_read_before_write"_f)) read(q, o);
      if (!Z_.empty()) {
        for (std::int64_t c = 0; c < K; ++c) axpy(V, q[c], &Z_[c * V], o);
        if ((t + 1) % static_cast<std::int64_t>(p_) == 0 || t + 1 == len_)
          for (std::size_t i = 0; i < S_.size(); ++i) {
            Z_[i] += S_[i];
            S_[i] = t + 1 == len_ ? Z_[i] : T(0);
          }
      }
      for (std::int64_t j = 0; j < V; ++j) {
        if (!first) o[j] *= scale_;
        if (is("output_decayed_again"_f)) o[j] *= a;
      }
    }
  }

  // Gates of token t per key channel, or per pair of them, which is turned as well.
  void decay_channels(std::int64_t t) {
    const std::int64_t width = x_.gate_width, K = K_, V = V_;
    for (std::int64_t r = 0; r < K; ++r) {
      std::int64_t j = r * width / K;
      if (is("channel_gate_of_first_channel"_f)) j = 0;
      if (is("channel_gates_reversed"_f)) j = width - 1 - j;
      const T a = std::exp(c_[t * width + j]);
      for (std::int64_t e = 0; e < V; ++e) S_[r * V + e] *= a;
    }
    const bool halves = is("complex_pairs_by_halves"_f);
    for (std::int64_t j = 0; j < width && !turn_.empty() && !is("complex_angle_ignored"_f); ++j) {
      T angle = turn_[t * width + j];
      if (is("complex_angle_sign"_f)) angle = -angle;
      if (is("complex_angle_in_bf16"_f)) angle = narrow_to(angle, Format::bf16);
      const T c = std::cos(angle), s = std::sin(angle);
      T *real = &S_[(halves ? j : 2 * j) * V], *imaginary = &S_[(halves ? j + K / 2 : 2 * j + 1) * V];
      for (std::int64_t e = 0; e < V; ++e) {
        const T x = real[e], y = imaginary[e];
        real[e] = c * x - s * y;
        imaginary[e] = s * x + c * y;
      }
    }
  }

  // The state as it is carried from one step to the next.
  void stored_state() {
    if (is("state_in_bf16"_f)) narrow_all(S_, Format::bf16);
    if (is("state_in_fp16"_f)) narrow_all(S_, Format::fp16);
    if (is("state_in_tf32"_f)) narrow_all(S_, Format::tf32);
    if (is("state_rounded_every_step"_f) && x_.state == DType::bf16) narrow_all(S_, Format::bf16);
    if (is("state_rounded_every_step"_f) && x_.state == DType::f16) narrow_all(S_, Format::fp16);
    if (is("state_clamped"_f))
      for (T& s : S_) s = std::clamp(s, static_cast<T>(-p_), static_cast<T>(p_));
  }

  // ---- chunkwise form: matrices of one chunk, row stride kChunk ----------------------------------------------------
  static constexpr std::int64_t N = kChunk;

  // What happens to the state on its way into a chunk.
  void carried_over(std::int64_t c0, std::int64_t chunk) {
    const auto p = static_cast<std::int64_t>(p_);
    if (is("later_sequence_zeroed_at_third_chunk"_f) && row_ > 0 && chunk == p) std::fill(S_.begin(), S_.end(), T(0));
    if (is("stateless_chunks_not_chained"_f) && chunk > 0 && stateless()) std::fill(S_.begin(), S_.end(), T(0));
    if (is("state_in_bf16_every_fourth_chunk"_f) && chunk > 0 && chunk % p == 0) narrow_all(S_, Format::bf16);
    if (is("state_in_bf16_when_long"_f) && c0 >= p) narrow_all(S_, Format::bf16);
    if (is("wide_values_not_carried"_f) && chunk > 0 && V_ > p)
      for (std::int64_t r = 0; r < K_; ++r) std::fill(&S_[r * V_ + p], &S_[r * V_] + V_, T(0));
    if (is("odd_key_channel_not_carried"_f) && chunk > 0 && K_ % 2 == 1) std::fill_n(&S_[(K_ - 1) * V_], V_, T(0));
  }

  // Decay factors of rows c0..c0+m: D[i][j] = e^(G_i-G_j) for i >= j, ein = e^G, eout = e^(G_last-G_j), etot = e^G_last.
  // Sums are formed pair by pair, so that a very negative gate absorbs nothing outside its own pairs.
  void chunk_gates(std::int64_t c0, std::int64_t m) {
    const T* g = &g_[c0];
    E_.assign(N * N, T(0));
    for (std::int64_t j = 0; j < m; ++j) {
      T sum = 0;
      for (std::int64_t i = j + 1; i < m; ++i) E_[i * N + j] = sum += g[i];
    }
    G_.assign(N, T(0));
    T sum = 0;
    if (is("gate_sum_from_buffer_chunk"_f) && c0 == 0)
      for (std::int64_t row = first_ / N * N; row < first_; ++row) sum += element(x_.g, row * x_.HV + head_);
    if (is("gate_sum_not_restarted"_f))
      for (std::int64_t t = 0; t < c0; ++t) sum += g_[t];
    for (std::int64_t i = 0; i < m; ++i) G_[i] = sum += g[i];

    std::vector<T> prefix(G_.begin(), G_.begin() + m);      // what faulty differences are taken of
    auto differences = [&] {
      for (std::int64_t i = 0; i < m; ++i)
        for (std::int64_t j = 0; j < i; ++j) E_[i * N + j] = prefix[i] - prefix[j];
    };
    if (is("gate_sum_absorbs"_f)) {
      float s = 0;
      for (std::int64_t i = 0; i < m; ++i) prefix[i] = s += static_cast<float>(g[i]);
      differences();
    }
    if (is("gate_sum_wraps_in_fixed_point"_f)) {      // exact but for the wrap, in every precision
      std::vector<double> fixed;
      double s = 0;
      for (std::int64_t i = 0; i < m; ++i) {
        s += static_cast<double>(g[i]);
        fixed.push_back(s - 2 * p_ * std::floor((s + p_) / (2 * p_)));
        G_[i] = static_cast<T>(fixed.back());
        for (std::int64_t j = 0; j < i; ++j) E_[i * N + j] = static_cast<T>(fixed.back() - fixed[static_cast<std::size_t>(j)]);
      }
    }
    if (is("reset_not_restarted_in_sums"_f))
      for (std::int64_t i = 0; i < m; ++i)
        for (std::int64_t j = 0; j < i; ++j)
          if (std::isinf(prefix[j])) E_[i * N + j] = -std::numeric_limits<T>::infinity();
    if (is("infinite_gates_subtracted"_f))
      for (std::int64_t i = 0; i < m; ++i)
        for (std::int64_t j = 0; j < i; ++j)
          if (std::isinf(prefix[j])) E_[i * N + j] = prefix[i] - prefix[j];
    if (is("gate_sum_clamped"_f)) {
      for (T& s : prefix) s = std::max(s, static_cast<T>(p_));
      differences();
      std::copy(prefix.begin(), prefix.end(), G_.begin());
    }
    if (is("gate_sum_in_bf16"_f)) {
      for (T& s : prefix) s = narrow_to(s, Format::bf16);
      differences();
      std::copy(prefix.begin(), prefix.end(), G_.begin());
    }
    if (is("gate_scan_without_carry"_f)) {
      T second = 0;
      for (std::int64_t i = 32; i < m; ++i) prefix[i] = second += g[i];
      differences();
      std::copy(prefix.begin(), prefix.end(), G_.begin());
    }
    if (is("gate_sum_exclusive"_f)) {
      for (std::int64_t i = m - 1; i > 0; --i) {
        G_[i] = G_[i - 1];
        for (std::int64_t j = 0; j < i; ++j) E_[i * N + j] = (j ? E_[(i - 1) * N + j - 1] : prefix[i - 1]);
      }
      G_[0] = 0;
    }
    D_.assign(N * N, T(0));
    for (std::int64_t i = 0; i < m; ++i) {
      D_[i * N + i] = 1;
      for (std::int64_t j = 0; j < i; ++j) D_[i * N + j] = std::exp(E_[i * N + j]);
    }
    if (is("decay_ratio_factored"_f) || is("exponent_anchored_on_last_row"_f)) {
      const double anchor = is("decay_ratio_factored"_f) ? 0.0 : static_cast<double>(prefix[m - 1]);
      for (std::int64_t i = 0; i < m; ++i)
        for (std::int64_t j = 0; j <= i; ++j)
          D_[i * N + j] = f32(std::exp(static_cast<double>(prefix[i]) - anchor)) * f32(std::exp(anchor - static_cast<double>(prefix[j])));
    }
    ein_.assign(N, T(1));
    eout_.assign(N, T(0));
    for (std::int64_t i = 0; i < m; ++i) {
      ein_[i] = std::exp(G_[i]);
      eout_[i] = D_[(m - 1) * N + i];
    }
    etot_ = ein_[m - 1];
    if (is("mild_chunk_factored"_f) && std::all_of(G_.begin(), G_.begin() + m, [&](T sum) { return sum > static_cast<T>(p_); }))
      for (std::int64_t i = 0; i < m; ++i)
        for (std::int64_t j = 0; j < i; ++j) D_[i * N + j] = std::exp(G_[i]) * std::exp(-G_[j]);
    if (is("log_gate_taken_as_linear"_f)) {
      for (std::int64_t i = 0; i < m; ++i) {
        ein_[i] = (i ? ein_[i - 1] : T(1)) * g[i];
        for (std::int64_t j = 0; j < i; ++j) D_[i * N + j] = D_[(i - 1) * N + j] * g[i];
      }
      for (std::int64_t i = 0; i < m; ++i) eout_[i] = D_[(m - 1) * N + i];
      etot_ = ein_[m - 1];
    }
    if (is("decay_accumulates_in_fp16"_f))
      for (auto* a : {&D_, &ein_, &eout_})
        for (T& e : *a) e = narrow_to(e, Format::fp16);
    if (is("decay_factor_in_bf16"_f))
      for (auto* a : {&D_, &ein_, &eout_})
        for (T& e : *a) e = narrow_to(e, Format::bf16);
  }

  // Faults of the decay between the chunk's rows and its end. n rows are real.
  void chunk_end_faults(std::int64_t c0, std::int64_t n) {
    if (is("chunk_end_gate_from_padding"_f) && n < N) {
      T sum = 0;
      for (std::int64_t t = n; t < N; ++t) sum += g_[c0 + t];
      for (std::int64_t j = 0; j < n; ++j) eout_[j] *= std::exp(sum);
      etot_ *= std::exp(sum);
    }
    if (is("chunk_end_gate_zero_in_tail"_f) && n < N) {
      for (std::int64_t j = 0; j < n; ++j) eout_[j] = std::exp(-G_[j]);
      etot_ = 1;
    }
    if (is("chunk_end_row_before_last"_f) && n > 1) {
      for (std::int64_t j = 0; j < n; ++j) eout_[j] = j < n - 1 ? D_[(n - 2) * N + j] : std::exp(-g_[c0 + n - 1]);
      etot_ = ein_[n - 2];
    }
    if (is("update_not_decayed"_f)) std::fill(eout_.begin(), eout_.end(), T(1));
    if (is("carried_state_not_decayed"_f)) etot_ = 1;
    if (is("carried_state_decayed_twice"_f)) etot_ *= etot_;
    if (is("chunk_end_decay_in_fp16"_f)) etot_ = narrow_to(etot_, Format::fp16);
  }

  // M = (I+L)^-1 of n rows by forward substitution, and the ways it goes wrong.
  void invert(std::int64_t n) {
    auto substitute = [&](std::vector<T>& M, const std::vector<T>& L, std::int64_t from, std::int64_t to) {
      for (std::int64_t i = from; i < to; ++i) {
        for (std::int64_t j = from; j < i; ++j) axpy(j + 1 - from, -L[i * N + j], &M[j * N + from], &M[i * N + from]);
        if (is("diagonal_in_inverse"_f))
          for (std::int64_t j = from; j <= i; ++j) M[i * N + j] /= 1 + L[i * N + i];
      }
    };
    M_.assign(N * N, T(0));
    for (std::int64_t i = 0; i < n; ++i) M_[i * N + i] = 1;
    if (is("inverse_by_doubling"_f)) {               // (I+X)(I+X^2)(I+X^4)..., X = -L, in fp32
      std::vector<float> X(N * N), Y(N * N), M(N * N), next(N * N);
      for (std::int64_t i = 0; i < n; ++i)
        for (std::int64_t j = 0; j < i; ++j) X[i * N + j] = static_cast<float>(-L_[i * N + j]);
      M = X;
      for (std::int64_t i = 0; i < n; ++i) M[i * N + i] = 1;
      auto multiply = [&](const std::vector<float>& a, const std::vector<float>& b, std::vector<float>& to) {
        std::fill(to.begin(), to.end(), 0.0f);
        for (std::int64_t i = 0; i < n; ++i)
          for (std::int64_t l = 0; l <= i; ++l) axpy(l + 1, a[i * N + l], &b[l * N], &to[i * N]);
      };
      for (std::int64_t power = 2; power < n; power *= 2) {
        multiply(X, X, Y);
        X = Y;
        multiply(M, X, next);
        for (std::int64_t i = 0; i < N * N; ++i) M[i] += next[i];
      }
      for (std::int64_t i = 0; i < N * N; ++i) M_[i] = static_cast<T>(M[i]);
      return;
    }
    if (is("inverse_series_cut"_f)) {                // I - L + L^2 - ... up to the power p
      std::vector<T> power = M_, next(N * N);
      for (int term = 1; term <= static_cast<int>(p_); ++term) {
        std::fill(next.begin(), next.end(), T(0));
        for (std::int64_t i = 0; i < n; ++i)
          for (std::int64_t l = 0; l < i; ++l) axpy(l + 1, -L_[i * N + l], &power[l * N], &next[i * N]);
        power = next;
        for (std::int64_t i = 0; i < N * N; ++i) M_[i] += power[i];
      }
      return;
    }
    constexpr std::int64_t block = 16;
    if (is("inverse_of_diagonal_blocks_only"_f)) {
      for (std::int64_t b = 0; b < n; b += block) substitute(M_, L_, b, std::min(b + block, n));
      return;
    }
    if (is("inverse_far_blocks_dropped"_f)) {
      std::vector<T> L = L_;
      for (std::int64_t i = 0; i < n; ++i)
        for (std::int64_t j = 0; j < i; ++j)
          if (i / block - j / block >= 2) L[i * N + j] = 0;
      substitute(M_, L, 0, n);
      return;
    }
    substitute(M_, L_, 0, n);
    if (is("inverse_corner_path_dropped"_f))         // M_20 = -M_22 (L_20 M_00 + L_21 M_10) without its second term
      for (std::int64_t bi = 2; bi * block < n; ++bi)
        for (std::int64_t i = bi * block; i < std::min((bi + 1) * block, n); ++i)
          for (std::int64_t j = 0; j < (bi - 1) * block; ++j) {
            const std::int64_t bj = j / block;
            T sum = 0;
            for (std::int64_t a = bi * block; a <= i; ++a)
              for (std::int64_t b = bj * block; b < (bj + 1) * block; ++b) sum -= M_[i * N + a] * L_[a * N + b] * M_[b * N + j];
            M_[i * N + j] = sum;
          }
    if (is("inverse_last_row_unsolved"_f) && n > 1)
      for (std::int64_t j = 0; j < n - 1; ++j) M_[(n - 1) * N + j] = -L_[(n - 1) * N + j];
    if (is("inverse_ragged_block_unsolved"_f) && n % block)
      for (std::int64_t i = n / block * block; i < n; ++i)
        for (std::int64_t j = 0; j < i; ++j) M_[i * N + j] = -L_[i * N + j];
    if (is("inverse_off_diagonal_sign"_f))
      for (std::int64_t i = 0; i < n; ++i)
        for (std::int64_t j = 0; j < i / block * block; ++j) M_[i * N + j] = -M_[i * N + j];
    if (is("inverse_transposed"_f))
      for (std::int64_t i = 0; i < n; ++i)
        for (std::int64_t j = 0; j < i; ++j) std::swap(M_[i * N + j], M_[j * N + i]);
    if (is("inverse_in_bf16"_f)) narrow_all(M_, Format::bf16);
    if (is("inverse_in_tf32"_f)) narrow_all(M_, Format::tf32);
    if (is("inverse_in_fp8"_f)) narrow_all(M_, Format::fp8_e4m3);
  }

  // rows x columns products of A (row stride N, entries j < columns(i)) with rows of B.
  template <class Columns>
  void multiply(std::int64_t n, std::int64_t width, const std::vector<T>& A, Columns columns, const T* B, T* to) {
    for (std::int64_t i = 0; i < n; ++i)
      for (std::int64_t j = 0; j < columns(i); ++j) axpy(width, A[i * N + j], B + j * width, to + i * width);
  }

  void chunkwise() {
    const std::int64_t K = K_, V = V_;
    o_.assign(static_cast<std::size_t>((len_ + N) * V), T(0));
    std::vector<T> kT(static_cast<std::size_t>(K * N)), bv, bk, U, W, Vn, Vo, Vs, inter, Sop, before = S_, A(N * N), P(N * N);
    for (std::int64_t c0 = 0, chunk = 0; c0 < len_; c0 += N, ++chunk) {
      if (is("chunk_table_of_256"_f) && chunks_++ >= static_cast<std::int64_t>(p_)) {
        len_ = c0;
        break;
      }
      const std::int64_t n = std::min(N, len_ - c0);
      const std::int64_t m = is("tail_rows_not_masked"_f) ? N : n;     // rows computed
      if (is("beta_of_first_half"_f))
        for (std::int64_t i = 32; i < n; ++i) b_[c0 + i] = b_[c0 + i - 32];
      const T *q = &q_[c0 * K], *k = &k_[c0 * K], *v = &v_[c0 * V], *b = &b_[c0];
      if (is("state_zeroed_at_chunk_border"_f) && chunk > 0) std::fill(S_.begin(), S_.end(), T(0));
      if (is("state_zeroed_at_segment_border"_f) && chunk > 0 && chunk % static_cast<std::int64_t>(p_) == 0) std::fill(S_.begin(), S_.end(), T(0));
      if (is("initial_state_added_every_chunk"_f) && chunk > 0)
        for (std::size_t i = 0; i < late_.size(); ++i) S_[i] += late_[i];
      carried_over(c0, chunk);
      stored_state();
      chunk_gates(c0, m);

      // Gram products, lower triangle (all of it where a faulty mask may reach above).
      const bool full = is("score_mask_by_multiplication"_f) || is("score_mask_by_gate_order"_f) || is("score_mask_one_late"_f) ||
                        is("score_mask_by_block"_f) || is("inverse_transposed"_f) || (is("ungated_scores_not_masked"_f) && x_.g.empty());
      std::fill(kT.begin(), kT.end(), T(0));
      for (std::int64_t j = 0; j < m; ++j)
        for (std::int64_t c = 0; c < K; ++c) kT[c * N + j] = k[j * K + c];
      std::fill(A.begin(), A.end(), T(0));
      std::fill(P.begin(), P.end(), T(0));
      for (std::int64_t i = 0; i < m; ++i)
        for (std::int64_t c = 0; c < K; ++c) {
          const bool backward = (is("summation_order_by_batch"_f) && x_.N > 1) || (is("ragged_tail_summed_backwards"_f) && n < N);
          const std::int64_t r = backward ? K - 1 - c : order_[c];
          axpy(full ? m : i + 1, k[i * K + r], &kT[r * N], &A[i * N]);
          axpy(full ? m : i + 1, q[i * K + r], &kT[r * N], &P[i * N]);
        }
      if (is("gram_in_bf16"_f)) narrow_all(A, Format::bf16);
      if (is("scores_exchanged"_f)) {
        std::fill(P.begin(), P.end(), T(0));
        for (std::int64_t i = 0; i < m; ++i)
          for (std::int64_t j = 0; j <= i; ++j)
            for (std::int64_t c = 0; c < K; ++c) P[i * N + j] += k[i * K + c] * q[j * K + c];
      }

      // L = tril(beta (K K^T) o D, -1)
      L_.assign(N * N, T(0));
      for (std::int64_t i = 0; i < m; ++i)
        for (std::int64_t j = 0; j < i; ++j) {
          T d = D_[i * N + j];
          if (is("correction_before_decay"_f)) d = j < i - 1 ? D_[(i - 1) * N + j] : T(1);
          if (is("correction_mask_by_gate_order"_f) && !(G_[i] < G_[j])) d = 0;
          if (is("decay_base_2_inside_chunk"_f)) d = std::exp2(E_[i * N + j]);
          if (is("correction_not_decayed"_f)) d = 1;
          if (is("correction_window"_f) && i - j > static_cast<std::int64_t>(p_)) d = 0;
          if (is("correction_across_blocks_dropped"_f) && j == i - 1 && i % 16 == 0) d = 0;
          L_[i * N + j] = b[is("beta_of_column"_f) ? j : i] * A[i * N + j] * d;
          if (is("beta_not_on_readback"_f)) L_[i * N + j] = A[i * N + j] * d;
          if (is("correction_added"_f)) L_[i * N + j] = -L_[i * N + j];
        }
      if (is("diagonal_in_inverse"_f))
        for (std::int64_t i = 0; i < m; ++i) L_[i * N + i] = b[i] * A[i * N + i];
      if (is("correction_rows_in_tf32"_f)) narrow_all(L_, Format::tf32);
      if (is("correction_rows_in_bf16"_f)) narrow_all(L_, Format::bf16);
      if (is("delta_term_missing"_f)) std::fill(L_.begin(), L_.end(), T(0));
      if (is("correction_first_block_skipped"_f))
        for (std::int64_t i = 0; i < std::min<std::int64_t>(m, 16); ++i) std::fill_n(&L_[i * N], N, T(0));
      invert(m);
      for (T& e : M_) e = low(e);

      // U = M (beta v), W = M (beta e^G k)
      bv.assign(static_cast<std::size_t>(N * V), T(0));
      bk.assign(static_cast<std::size_t>(N * K), T(0));
      for (std::int64_t i = 0; i < m; ++i) {
        T beta_v = b[i], beta_k = b[i] * ein_[i];
        if (is("both_right_sides_decayed"_f)) beta_v *= ein_[i];
        if (is("no_right_side_decayed"_f)) beta_k = b[i];
        if (is("beta_not_on_value"_f)) beta_v = 1;
        if (is("beta_not_on_readback"_f)) beta_k = ein_[i];
        if (is("correction_before_decay"_f)) beta_k = b[i] * (i ? ein_[i - 1] : T(1));
        if (is("correction_added"_f)) beta_k = -beta_k;
        if (is("delta_term_missing"_f)) beta_k = 0;
        for (std::int64_t c = 0; c < V; ++c) bv[i * V + c] = low(beta_v * v[i * V + c]);
        for (std::int64_t c = 0; c < K; ++c) bk[i * K + c] = low(beta_k * k[i * K + c]);
      }
      if (is("right_sides_truncated"_f))
        for (auto* a : {&bv, &bk})
          for (T& e : *a) e = static_cast<T>(truncate(static_cast<double>(e), Format::bf16));
      auto lower = [&](std::int64_t i) { return is("inverse_transposed"_f) ? m : i + 1; };
      U.assign(static_cast<std::size_t>(N * V), T(0));
      W.assign(static_cast<std::size_t>(N * K), T(0));
      multiply(m, V, M_, lower, bv.data(), U.data());
      multiply(m, K, M_, lower, bk.data(), W.data());
      for (T& e : U) e = low(e);
      for (T& e : W) e = low(e);
      if (is("correction_vectors_in_bf16"_f)) narrow_all(W, Format::bf16);

      // Vn = U - W S
      Sop = is("correction_from_older_state"_f) ? before : S_;
      before = S_;
      for (T& e : Sop) e = low(e);
      if (is("state_operand_in_bf16"_f)) narrow_all(Sop, Format::bf16);
      if (is("state_operand_truncated"_f))
        for (T& e : Sop) e = static_cast<T>(truncate(static_cast<double>(e), Format::bf16));
      Vn = U;
      if (!is("carried_state_not_corrected"_f) && !(is("first_chunk_ignores_initial"_f) && chunk == 0))
        for (std::int64_t i = 0; i < m; ++i)
          for (std::int64_t c = 0; c < (is("correction_from_first_key_tile"_f) ? std::min(K, std::int64_t{64}) : K); ++c)
            axpy(V, -W[i * K + c], &Sop[c * V], &Vn[i * V]);
      for (std::int64_t i = 0; i < m && is("small_correction_skipped"_f); ++i)
        if (peak(&Vn[i * V], V) < static_cast<T>(p_) * b[i] * peak(&v[i * V], V)) std::fill_n(&Vn[i * V], V, T(0));
      if (is("corrected_values_in_bf16"_f)) narrow_all(Vn, Format::bf16);
      if (is("corrected_values_in_fp16"_f)) narrow_all(Vn, Format::fp16);
      Vo = is("output_from_uncorrected"_f) ? U : Vn;
      for (T& e : Vo) e = Low && is("corrected_values_cast_by_cutting"_f) ? static_cast<T>(truncate(static_cast<double>(e), Format::bf16)) : low(e);

      chunk_end_faults(c0, n);
      const std::vector<T> Sread = Sop;
      update(c0, n, m, k, v, b, U, Vn, Vs);

      // o = scale [ e^G q S + tril((Q K^T) o D) Vn ]
      for (std::int64_t i = 0; i < m; ++i)
        for (std::int64_t j = 0; j < (full ? m : i + 1); ++j) {
          T d = j <= i ? D_[i * N + j] : T(0);
          if (is("decay_base_2_inside_chunk"_f) && j < i) d = std::exp2(E_[i * N + j]);
          if (is("score_not_decayed"_f)) d = 1;
          if (is("score_diagonal_left_out"_f) && i == j) d = 0;
          if (is("score_mask_by_multiplication"_f) && j > i) d = f32(std::exp(static_cast<double>(G_[i]) - static_cast<double>(G_[j]))) * T(0);
          if (is("score_mask_by_gate_order"_f) && j > i && G_[i] <= G_[j]) d = std::exp(G_[i] - G_[j]);
          if (is("score_mask_one_late"_f) && j == i + 1) d = 1;
          if (is("ungated_scores_not_masked"_f) && j > i && x_.g.empty()) d = 1;
          if (is("score_mask_by_block"_f) && j > i && j / 16 == i / 16) d = 1;
          if (is("score_far_block_skipped"_f) && i / 16 == 3 && j / 16 == 0) d = 0;
          if (is("score_window"_f) && i - j > static_cast<std::int64_t>(p_)) d = 0;
          T s = P[i * N + j] * d;
          if (is("scores_in_bf16"_f)) s = narrow_to(s, Format::bf16);
          if (is("scores_rounded_down"_f)) s = rounded_down(s);
          if (is("scores_truncated"_f)) s = static_cast<T>(truncate(static_cast<double>(s), Format::bf16));
          P[i * N + j] = low(s);
        }
      inter.assign(static_cast<std::size_t>(V), T(0));
      const std::vector<T>& Sold = is("output_reads_new_state"_f) ? S_ : Sread;
      for (std::int64_t i = 0; i < m; ++i) {
        std::fill(inter.begin(), inter.end(), T(0));
        for (std::int64_t c = 0; c < (is("output_from_first_key_tile"_f) ? std::min(K, std::int64_t{64}) : K); ++c)
          axpy(V, q[i * K + c], &Sold[c * V], inter.data());
        T decay = ein_[i];
        if (is("carried_read_not_decayed"_f)) decay = 1;
        if (is("carried_read_decayed_one_row_less"_f)) decay = i ? ein_[i - 1] : T(1);
        if (is("carried_read_left_out"_f)) decay = 0;
        if (is("carried_read_underflow_skipped"_f) && decay < static_cast<T>(p_)) decay = 0;
        T* o = &o_[(c0 + i) * V];
        for (std::int64_t j = 0; j < V; ++j) o[j] = decay * inter[j];
        const std::int64_t columns = full ? m : i + 1;
        if (is("score_rows_masked_by_multiplication"_f))
          for (std::int64_t j = columns; j < m; ++j) axpy(V, T(0), &Vo[j * V], o);
        for (std::int64_t j = 0; j < columns; ++j) {
          axpy(V, P[i * N + j], &Vo[j * V], o);
          if (is("read_accumulated_in_fp16"_f))
            for (std::int64_t e = 0; e < V; ++e) o[e] = narrow_to(o[e], Format::fp16);
        }
        if (is("local_term_twice_in_full_chunk"_f) && n == N)
          for (std::int64_t j = 0; j < columns; ++j) axpy(V, P[i * N + j], &Vo[j * V], o);
        if (is("single_row_tail_skips_local"_f) && n == 1)
          for (std::int64_t j = 0; j < V; ++j) o[j] = decay * inter[j];
        for (std::int64_t j = 0; j < V; ++j) o[j] *= scale_;
      }
    }
  }

  // S' = e^G_C S + sum_r k_r (e^(G_C-G_r) Vn_r)^T
  void update(std::int64_t c0, std::int64_t n, std::int64_t m, const T* k, const T* v, const T* b, const std::vector<T>& U,
              const std::vector<T>& Vn, std::vector<T>& Vs) {
    const std::int64_t K = K_, V = V_;
    const bool last = c0 + n >= len_;
    if (is("final_state_before_tail"_f) && last && n < N) return;
    Vs = is("update_from_uncorrected"_f) ? U : Vn;
    for (std::int64_t j = 0; j < m; ++j)
      for (std::int64_t c = 0; c < V; ++c) Vs[j * V + c] = low(eout_[j] * Vs[j * V + c]);
    if (is("history_dropped_when_faded"_f) && etot_ < static_cast<T>(p_)) std::fill(S_.begin(), S_.end(), T(0));
    if (is("chunk_end_row_by_lane"_f) && n > 8) {
      // The factor of the carried state taken from row n-1-2*(lane%4) instead of the last row.
      for (std::int64_t r = 0; r < K; ++r)
        for (std::int64_t c = 0; c < V; ++c) S_[r * V + c] *= ein_[n - 1 - 2 * (c % 4)];
    } else if (etot_ != T(1)) {
      const std::size_t rows = is("second_key_tile_not_decayed"_f) ? static_cast<std::size_t>(std::min(K, std::int64_t{64}) * V) : S_.size();
      for (std::size_t i = 0; i < rows; ++i) S_[i] *= etot_;
    }
    if (is("update_with_previous_keys"_f) && c0 > 0) k -= N * K;
    std::int64_t from = 0, to = m;
    if (is("update_last_row_left_out"_f)) to = m - 1;
    if (is("update_first_row_left_out"_f)) from = 1;
    for (std::int64_t j = from; j < to; ++j)
      for (std::int64_t c = 0; c < K; ++c) axpy(V, k[j * K + c], &Vs[j * V], &S_[c * V]);
    if (is("tail_masked_by_multiplication"_f))
      for (std::int64_t j = n; j < N; ++j)
        for (std::int64_t c = 0; c < K; ++c) axpy(V, T(0) * k[j * K + c] * b[j], &v[j * V], &S_[c * V]);
    if (is("tail_keys_not_zeroed"_f))
      for (std::int64_t j = n; j < N; ++j)
        for (std::int64_t c = 0; c < K; ++c) axpy(V, k[j * K + c] * b[j], &v[j * V], &S_[c * V]);
  }

  // ---- results -----------------------------------------------------------------------------------------------------
  void put_o(std::int64_t i, T value) {
    if (i < 0 || i >= static_cast<std::int64_t>(x_.o.size())) return;
    x_.o[static_cast<std::size_t>(i)] = static_cast<double>(value);
    x_.o_written[static_cast<std::size_t>(i)] = 1;
  }
  void put_ht(std::int64_t i, T value) {
    if (i < 0 || i >= static_cast<std::int64_t>(x_.ht.size())) return;
    x_.ht[static_cast<std::size_t>(i)] = static_cast<double>(value);
    x_.ht_written[static_cast<std::size_t>(i)] = 1;
  }

  void finish(std::int64_t n, std::int64_t hv) {
    const Format io = x_.io == DType::bf16 ? Format::bf16 : x_.io == DType::f16 ? Format::fp16 : Format::fp32;
    for (std::int64_t t = lead_; t < len_; ++t) {
      const std::int64_t row = first_ + t - lead_;
      for (std::int64_t c = 0; c < V_; ++c) {
        T o = o_[t * V_ + c];
        if (is("output_dtype_of_first_call"_f) && memory_.calls > 0) {
          if (memory_.io == DType::bf16) o = narrow_to(o, Format::bf16);
          if (memory_.io == DType::f16) o = narrow_to(o, Format::fp16);
        }
        if (is("unscaled_output_overflows"_f) && std::fabs(o) > static_cast<T>(p_ * x_.scale)) o = std::copysign(std::numeric_limits<T>::infinity(), o);
        if (is("output_truncated"_f)) o = static_cast<T>(truncate(static_cast<double>(o), io));
        if (is("output_through_fp16"_f)) o = narrow_to(o, Format::fp16);
        if (is("output_through_bf16"_f)) o = narrow_to(o, Format::bf16);
        if (is("subnormal_outputs_flushed"_f) && std::fabs(o) < static_cast<T>(p_)) o = 0;
        if (is("value_tile_of_key_dim"_f) && c >= std::max<std::int64_t>(1, x_.V / x_.K) * x_.K) continue;
        if (is("value_tail_not_stored"_f) && x_.V > 16 && c >= x_.V / 16 * 16) continue;
        std::int64_t i = (row * x_.HV + hv) * x_.V + c;
        if (is("output_stride_of_key_heads"_f)) i = (row * x_.H + hv) * x_.V + c;
        if (is("output_head_before_token"_f)) i = (hv * x_.rows + row) * x_.V + c;
        if (is("output_one_row_late"_f) && t > 0 && t % kChunk == 0) i -= x_.HV * x_.V;
        put_o(i, o);
      }
    }
    std::vector<T>& S = S_;
    const std::int64_t plane = x_.K * x_.V;
    for (std::int64_t r = 0; r < std::min(K_, x_.K); ++r)
      for (std::int64_t c = 0; c < V_; ++c) memory_.state[(n * x_.HV + hv) * plane + r * V_ + c] = static_cast<double>(S[r * V_ + c]);
    if (!x_.want_ht) return;
    if (x_.verify) {
      if (is("snapshots_all_of_last_token"_f))
        for (std::int64_t t = 0; t < len_; ++t) put_snapshot(n, t);
      if (is("drafts_written_to_pool"_f)) store_slot();
      return;
    }
    if (x_.pool) {
      std::vector<double>& kept = memory_.by_slot[write_ * x_.HV + hv];
      if (is("slot_written_once"_f) && !kept.empty()) return;
      kept.assign(S.begin(), S.end());
    }
    if (is("empty_sequence_state_unwritten"_f) && len_ == 0) return;
    if (is("final_state_needs_initial_state"_f) && x_.h0.empty()) return;
    if (is("only_last_state_stored"_f) && n + 1 < x_.N) return;
    std::int64_t target = n;
    if (is("final_state_one_slot_late"_f) && x_.N > 1) target = (n + 1) % x_.N;
    if (is("final_state_slots_by_nonempty"_f)) {
      if (len_ == 0) return;
      target = 0;
      for (std::int64_t s = 0; s < n; ++s) target += cu_[s + 1] > cu_[s];
    }
    for (std::int64_t r = 0; r < x_.K; ++r)
      for (std::int64_t c = 0; c < x_.V; ++c) {
        T s = r < K_ ? S[r * V_ + c] : T(0);
        if (is("empty_sequence_state_zero"_f) && len_ == 0) s = 0;
        if (is("initial_state_not_in_final"_f) && !late_.empty()) {
          T decay = 1;
          for (std::int64_t t = 0; t < len_; ++t) decay *= std::exp(g_[t]);
          s -= decay * late_[r * V_ + c];
        }
        if (is("final_state_in_bf16"_f)) s = narrow_to(s, Format::bf16);
        if (is("final_state_scaled"_f)) s *= scale_;
        if (is("final_state_decayed_once_more"_f) && len_ > 0) s *= std::exp(g_[len_ - 1]);
        if (is("final_state_tile_stale"_f) && x_.V > 64 && c >= 64) continue;
        const bool turned = is("final_state_transposed"_f) || is("state_transposed_in_and_out"_f);
        std::int64_t base = (target * x_.HV + hv) * plane;
        if (is("final_state_head_stride_square"_f)) base = (target * x_.HV + hv) * x_.K * x_.K;
        if (is("final_state_head_before_sequence"_f)) base = (hv * x_.N + target) * plane;
        if (is("final_state_heads_exchanged"_f)) base = (target * x_.HV + (hv ^ 1) % x_.HV) * plane;
        if (x_.pool) {
          base += slot_base(write_) - (n * x_.HV + hv) * plane;    // what the faults above shift stays shifted
          if (is("slot_accumulates"_f)) s += element(x_.h0, base + r * x_.V + c);
        }
        if (is("final_state_kept_from_first_call"_f) && memory_.calls > 0 && memory_.first.size() == x_.ht.size())
          s = static_cast<T>(memory_.first[static_cast<std::size_t>(base + r * x_.V + c)]);
        put_ht(base + (turned ? c * x_.K + r : r * x_.V + c), s);
      }
  }

  void whole_call_faults() {
    const std::int64_t written = cu_.back() * x_.HV * x_.V;      // elements of o up to the last real token
    if (written > 0) {
      const auto last = static_cast<std::size_t>(written - 1);
      if (is("one_element_wrong"_f)) x_.o[last] *= 1 + p_;
      if (is("one_element_nan"_f)) x_.o[last] = std::numeric_limits<double>::quiet_NaN();
      if (is("one_element_unwritten"_f)) x_.o_written[last] = 0;
      if (is("one_lane_duplicated"_f) && x_.V > 1) x_.o[last] = x_.o[last - 1];
      if (is("repeat_differs"_f) && memory_.calls % 2 == 1) {
        const DType t = x_.io;
        const double unit = t == DType::f32 ? 0x1p-23 : t == DType::f16 ? 0x1p-10 : 0x1p-7;
        x_.o[last] = x_.o[last] == 0 ? unit : x_.o[last] * (1 + unit);
      }
      if (is("writes_past_the_end"_f)) x_.overrun = 1;
    }
    if (is("outputs_unwritten_at_first_launch"_f) && memory_.calls == 0) std::fill(x_.o_written.begin(), x_.o_written.end(), 0);
    if (is("output_added_to_buffer"_f)) std::fill(x_.o.begin(), x_.o.end(), std::numeric_limits<double>::quiet_NaN());
    if (is("query_scaled_in_place"_f)) {
      for (float& e : x_.q) e *= static_cast<float>(x_.scale);
      x_.input_changed = true;
    }
  }

  const int f_;
  const double p_;
  const Form form_;
  View& x_;
  Memory& memory_;
  std::vector<std::int64_t> cu_, order_;           // order_: in which key channels are summed
  std::int64_t ratio_ = 1, K_ = 1, V_ = 1, first_ = 0, head_ = 0, row_ = 0, len_ = 0, lead_ = 0, extra_ = 0;
  std::int64_t read_ = 0, write_ = 0, continued_ = -1;     // of a pool: slots, and the snapshot that goes on
  std::int64_t chunks_ = 0;                        // of this head so far
  bool zero_gates_ = false;
  T scale_ = 1, etot_ = 1;
  std::vector<T> q_, k_, v_, g_, b_, S_, Z_, late_, o_;
  std::vector<T> c_, turn_;                        // gates and angles per key channel or pair of them
  std::vector<T> E_, G_, D_, ein_, eout_, L_, M_;
};

}  // namespace

const std::vector<Fault>& table() {
  static const std::vector<Fault> all = [] {
    std::vector<Fault> faults(std::begin(kTable), std::end(kTable));
    faults.insert(faults.end(), stage_table().begin(), stage_table().end());
    faults.insert(faults.end(), layer_table().begin(), layer_table().end());
    return faults;
  }();
  return all;
}

void execute(int fault, Form form, Scalar scalar, View& x, Memory& memory) {
  switch (scalar) {
    case Scalar::fp64: Body<double, false>(fault, form, x, memory).run(); break;
    case Scalar::fp32: Body<float, false>(fault, form, x, memory).run(); break;
    case Scalar::bf16: Body<float, true>(fault, form, x, memory).run(); break;
  }
}

}  // namespace gdn::faulty
