// The stages of the chunkwise form in plain loops, with the faults as one-place deviations, and the rows of the bank that name them. A
// new fault is one row of kTable and one `is("name")` where it deviates.
#include "kernels/faulty/stages.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/faulty/narrow.h"

namespace gdn::faulty {
namespace {

using I = std::int64_t;
constexpr unsigned C = 1u << static_cast<unsigned>(Form::chunkwise);
std::size_t at(I i) { return static_cast<std::size_t>(i); }

constexpr Fault kTable[] = {
    {"stage_sum_exclusive", "gate-shifted", C, 0, "stage gate_sum leaves out the row's own gate", "public reports of exclusive instead of inclusive sums", 0},
    {"stage_sum_not_restarted", "state-decay-wrong-at-chunk-border", C, 0, "stage gate_sum runs on over chunk borders", "public reports of global sums used as local ones", 0},
    {"stage_sum_by_buffer_chunk", "sequence-gates-cross", C, 0, "stage gate_sum starts again at multiples of the chunk in the packed buffer, not in the sequence", "public reports of sums over packed buffers", 0},
    {"stage_sum_infinite_as_zero", "gate-infinite", C, 0, "stage gate_sum takes g=-inf as 0", "sanitised inputs", 0},
    {"stage_sum_tail_unwritten", "tail-tokens-dropped", C, 0, "stage gate_sum writes whole chunks only", "launch grids of T/C rounded down", 0},
    {"stage_gram_diagonal", "mask-off-by-one", C, 0, "stage gram lets the diagonal into L", "public reports of inclusive masks in the solve", 1},
    {"stage_gram_unmasked", "mask-off-by-one", C, 0, "stage gram writes the upper triangle as well", "masks left to the next kernel", 1},
    {"stage_gram_beta_of_column", "correction-wrong-weight", C, 0, "stage gram weights L by beta of the column", "public reports of a broadcast along the wrong axis", 1},
    {"stage_gram_decay_backwards", "sign-wrong", C, 0, "stage gram decays L by e^(G_j-G_i)", "public reports of exponents with exchanged operands", 1},
    {"stage_gram_not_decayed", "gate-ignored", C, 0, "stage gram forms L without decays", "ungated delta rule code reused for the gated rule", 1},
    {"stage_gram_heads_tiled", "head-map-wrong", C, 0, "stage gram reads key head h % H", "public reports of tiled instead of grouped heads", 1},
    {"stage_gram_tail_unwritten", "tail-tokens-dropped", C, 0, "stage gram writes whole chunks only", "launch grids of T/C rounded down", 1},
    {"stage_inverse_by_doubling", "inverse-by-products", C, 0, "stage inverse is a product of log-depth powers, which explode on equal keys", "public reports of Neumann products in triangular inverses", 2},
    {"stage_inverse_last_block_missing", "inverse-wrong", C, 16, "stage inverse does not merge the last block of 16 rows", "tile loops that stop one tile early", 2},
    {"stage_inverse_transposed", "layout-transposed", C, 0, "stage inverse stores its transpose", "public reports of transposed operands", 2},
    {"stage_inverse_sign", "sign-wrong", C, 0, "stage inverse is that of I - L", "public reports of sign errors in the UT transform", 2},
    {"stage_inverse_corner_in_tf32", "inverse-narrowed", C, 16, "stage inverse rounds the far end of its last row to TF32", "a last merge on matrix units", 2},
    {"stage_uw_keys_not_decayed", "gate-ignored", C, 0, "stage uw forms W without e^G", "public reports of W and U weighted alike", 3},
    {"stage_uw_beta_of_row", "correction-wrong-weight", C, 0, "stage uw takes beta by the row of M instead of the column", "beta multiplied after the product", 3},
    {"stage_uw_diagonal_left_out", "mask-off-by-one", C, 0, "stage uw leaves out the diagonal of M", "public reports of strict masks in both products", 3},
    {"stage_uw_u_from_keys", "tile-from-wrong-dim", C, 0, "stage uw forms U of k instead of v in the channels that both have", "a slip of one letter between two tiles", 3},
    {"stage_uw_tail_unwritten", "tail-tokens-dropped", C, 0, "stage uw writes whole chunks only", "launch grids of T/C rounded down", 3},
    {"stage_states_after_chunk", "state-stale-at-chunk-border", C, 0, "stage chunk_states stores the state after the chunk", "public reports of states one chunk off", 4},
    {"stage_states_tail_decay", "tail-decay-wrong-row", C, 0, "stage chunk_states decays a ragged tail by the row C-1 of the buffer", "public reports of chunk-end indices of whole chunks", 4},
    {"stage_states_not_corrected", "cross-term-missing", C, 0, "stage chunk_states leaves out W S", "public reports of W S left out", 4},
    {"stage_states_initial_ignored", "initial-state-ignored", C, 0, "stage chunk_states starts from zero", "public reports of the initial-state flag ignored", 4},
    {"stage_states_last_row_left_out", "tail-tokens-dropped", C, 0, "stage chunk_states leaves out the last row of a ragged tail", "public reports of loop limits off by one", 4},
    {"stage_output_mask_strict", "mask-off-by-one", C, 0, "stage output leaves out the token itself", "public reports of strict masks in both products", 5},
    {"stage_output_local_unscaled", "scale-wrong", C, 0, "stage output scales what it reads of the state alone", "public reports of scale applied to one of two products", 5},
    {"stage_output_scale_twice", "scale-wrong", C, 0, "stage output scales q and o", "public reports of scale applied in both wrapper and kernel", 5},
    {"stage_output_next_state", "state-stale-at-chunk-border", C, 0, "stage output reads the state of the chunk after", "public reports of double buffers read from the wrong half", 5},
    {"stage_output_read_not_decayed", "gate-ignored", C, 0, "stage output reads the state without e^G", "public reports of a decay missing in one of the chunk's products", 5},
    {"stage_output_tail_unwritten", "tail-tokens-dropped", C, 0, "stage output writes whole chunks only", "launch grids of T/C rounded down", 5},
};

template <class T, bool Low>
class Stages {
 public:
  Stages(const char* fault, StageView& x) : fault_(fault), x_(x), K_(x.K), V_(x.V), C_(x.chunk) {
    const auto find = [&](const char* name) {
      const auto t = x.in.find(name);
      return t == x.in.end() ? nullptr : t->second.data();
    };
    in_ = {find("q"), find("k"), find("v"), find("g"), find("beta"), find("G"), find("L"), find("M"), find("U"), find("W"), find("Vn"), find("states")};
  }

  void run() {
    I number = 0;
    for (I n = 0; n < x_.N; ++n) {
      const I first = x_.cu[at(n)], length = x_.cu[at(n) + 1] - first, chunks = (length + C_ - 1) / C_;
      for (I hv = 0; hv < x_.HV; ++hv) {
        hv_ = hv;
        S_.assign(at(K_ * V_), T(0));
        if (const auto h0 = x_.in.find("h0"); h0 != x_.in.end() && !is("stage_states_initial_ignored"))
          for (I e = 0; e < K_ * V_; ++e) S_[at(e)] = static_cast<T>(h0->second[at((n * x_.HV + hv) * K_ * V_ + e)]);
        for (I c = 0; c < chunks; ++c) {
          begin_ = first;
          row_ = first + c * C_;
          n_ = std::min(C_, length - c * C_);
          number_ = number + c;
          last_ = c + 1 == chunks;
          if (n_ < C_ && (is("stage_sum_tail_unwritten") || is("stage_gram_tail_unwritten") || is("stage_uw_tail_unwritten") || is("stage_output_tail_unwritten"))) continue;
          chunk();
        }
        if (x_.stage == Stage::chunk_states && x_.out.count("ht"))
          for (I e = 0; e < K_ * V_; ++e) put("ht", (n * x_.HV + hv) * K_ * V_ + e, S_[at(e)]);
      }
      number += chunks;
    }
  }

 private:
  bool is(const char* name) const { return *fault_ && std::strcmp(fault_, name) == 0; }
  T low(T x) const {
    if constexpr (Low) return static_cast<T>(narrow(static_cast<double>(x), Format::bf16));
    return x;
  }
  void put(const char* name, I element, T value) {
    x_.out.at(name)[at(element)] = static_cast<double>(value);
    x_.written.at(name)[at(element)] = 1;
  }
  T value(const double* t, I row, I width = 1, I c = 0) const { return static_cast<T>(t[((row_ + row) * x_.HV + hv_) * width + c]); }
  T key(const double* t, I row, I d) const {
    const I h = is("stage_gram_heads_tiled") ? hv_ % x_.H : hv_ / (x_.HV / x_.H);
    return static_cast<T>(t[((row_ + row) * x_.H + h) * K_ + d]);
  }
  void put_row(const char* name, I row, I width, I c, T v) { put(name, ((row_ + row) * x_.HV + hv_) * width + c, v); }
  T decay(I later, I earlier) const { return later == earlier ? T(1) : std::exp(value(in_.G, later) - value(in_.G, earlier)); }

  void chunk() {
    switch (x_.stage) {
      case Stage::gate_sum: return gate_sum();
      case Stage::gram: return gram();
      case Stage::inverse: return inverse();
      case Stage::uw: return uw();
      case Stage::chunk_states: return states();
      case Stage::output: return output();
    }
  }

  void gate_sum() {
    T sum = 0;
    if (is("stage_sum_not_restarted"))
      for (I r = begin_ - row_; r < 0; ++r) sum += value(in_.g, r);
    for (I r = 0; r < n_; ++r) {
      T g = value(in_.g, r);
      if (is("stage_sum_infinite_as_zero") && std::isinf(g)) g = 0;
      if (is("stage_sum_by_buffer_chunk") && (row_ + r) % C_ == 0) sum = 0;
      if (is("stage_sum_exclusive")) put_row("G", r, 1, 0, sum);
      sum += g;
      if (!is("stage_sum_exclusive")) put_row("G", r, 1, 0, sum);
    }
  }

  T gram(const double* left, I i, I j) const {
    T sum = 0;
    for (I d = 0; d < K_; ++d) sum += key(left, i, d) * key(in_.k, j, d);
    return sum;
  }

  void gram() {
    const bool all = is("stage_gram_unmasked");
    for (I i = 0; i < n_; ++i)
      for (I j = 0; j < C_; ++j) {
        T l = 0;
        if (j < i || (j < n_ && all) || (j == i && is("stage_gram_diagonal"))) {
          T d = is("stage_gram_decay_backwards") ? decay(j, i) : decay(i, j);
          if (is("stage_gram_not_decayed")) d = 1;
          l = value(in_.beta, is("stage_gram_beta_of_column") ? j : i) * gram(in_.k, i, j) * d;
        }
        put_row("L", i, C_, j, l);
      }
  }

  void inverse() {
    const I n = n_;
    std::vector<T> L(at(n * n), T(0)), M(at(n * n), T(0));
    for (I i = 0; i < n; ++i)
      for (I j = 0; j < i; ++j) L[at(i * n + j)] = (is("stage_inverse_sign") ? -1 : 1) * value(in_.L, i, C_, j);
    if (is("stage_inverse_by_doubling")) doubling(n, L, M);
    else
      for (I i = 0; i < n; ++i) {
        M[at(i * n + i)] = 1;
        const I from = is("stage_inverse_last_block_missing") && i / 16 == (n - 1) / 16 ? i / 16 * 16 : 0;
        for (I p = from; p < i; ++p)
          for (I j = from; j <= p; ++j) M[at(i * n + j)] -= L[at(i * n + p)] * M[at(p * n + j)];
      }
    if (is("stage_inverse_corner_in_tf32"))
      for (I j = 0; j < std::min<I>(16, n - 1); ++j) M[at((n - 1) * n + j)] = static_cast<T>(narrow(static_cast<double>(M[at((n - 1) * n + j)]), Format::tf32));
    for (I i = 0; i < n; ++i)
      for (I j = 0; j < C_; ++j) put_row("M", i, C_, j, j < n ? low(is("stage_inverse_transposed") ? M[at(j * n + i)] : M[at(i * n + j)]) : T(0));
  }

  static void doubling(I n, const std::vector<T>& L, std::vector<T>& M) {      // (I+X)(I+X^2)(I+X^4)..., X = -L, in fp32
    std::vector<float> X(at(n * n)), product(at(n * n)), sum(at(n * n));
    for (std::size_t i = 0; i < X.size(); ++i) sum[i] = X[i] = -static_cast<float>(L[i]);
    for (I i = 0; i < n; ++i) sum[at(i * n + i)] = 1;
    const auto multiply = [&](const std::vector<float>& a, const std::vector<float>& b) {
      std::fill(product.begin(), product.end(), 0.0f);
      for (I i = 0; i < n; ++i)
        for (I p = 0; p <= i; ++p)
          for (I j = 0; j <= p; ++j) product[at(i * n + j)] += a[at(i * n + p)] * b[at(p * n + j)];
    };
    for (I power = 2; power < n; power *= 2) {
      multiply(X, X);
      X = product;
      multiply(sum, X);
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += product[i];
    }
    for (std::size_t i = 0; i < M.size(); ++i) M[i] = static_cast<T>(sum[i]);
  }

  void uw() {
    for (const bool keys : {false, true}) {
      const I width = keys ? K_ : V_;
      for (I i = 0; i < n_; ++i)
        for (I c = 0; c < width; ++c) {
          T sum = 0;
          for (I j = 0; j < (is("stage_uw_diagonal_left_out") ? i : i + 1); ++j) {
            const T b = value(in_.beta, is("stage_uw_beta_of_row") ? i : j);
            const bool from_keys = keys || (is("stage_uw_u_from_keys") && c < K_);
            T x = b * (from_keys ? key(in_.k, j, c) : value(in_.v, j, V_, c));
            if (keys && !is("stage_uw_keys_not_decayed")) x *= std::exp(value(in_.G, j));
            sum += value(in_.M, i, C_, j) * low(x);
          }
          put_row(keys ? "W" : "U", i, width, c, low(sum));
        }
    }
  }

  void states() {
    const auto store = [&] {
      for (I e = 0; e < K_ * V_; ++e) put("states", (number_ * x_.HV + hv_) * K_ * V_ + e, low(S_[at(e)]));
    };
    const bool after = is("stage_states_after_chunk");
    if (!after) store();
    std::vector<T> vn(at(n_ * V_));
    for (I i = 0; i < n_; ++i)
      for (I c = 0; c < V_; ++c) {
        T x = value(in_.U, i, V_, c);
        for (I d = 0; d < K_ && !is("stage_states_not_corrected"); ++d) x -= value(in_.W, i, K_, d) * low(S_[at(d * V_ + c)]);
        vn[at(i * V_ + c)] = x;
        put_row("Vn", i, V_, c, low(x));
      }
    I end = n_ - 1, rows = n_;
    if (is("stage_states_tail_decay") && n_ < C_) end = std::min(C_, static_cast<I>(x_.in.at("G").size()) / x_.HV - row_) - 1;
    if (is("stage_states_last_row_left_out") && n_ < C_) rows = n_ - 1;
    const T whole = std::exp(value(in_.G, end));
    for (I d = 0; d < K_; ++d)
      for (I c = 0; c < V_; ++c) {
        T s = whole * S_[at(d * V_ + c)];
        for (I r = 0; r < rows; ++r) s += key(in_.k, r, d) * low((end == r ? T(1) : std::exp(value(in_.G, end) - value(in_.G, r))) * vn[at(r * V_ + c)]);
        S_[at(d * V_ + c)] = s;
      }
    if (after) store();
  }

  void output() {
    const I chunks = static_cast<I>(x_.in.at("states").size()) / (x_.HV * K_ * V_);
    const I of = is("stage_output_next_state") && !last_ ? std::min(number_ + 1, chunks - 1) : number_;
    const T scale = static_cast<T>(x_.scale);
    for (I i = 0; i < n_; ++i) {
      std::vector<T> score(at(n_), T(0));
      for (I j = 0; j < (is("stage_output_mask_strict") ? i : i + 1); ++j) score[at(j)] = low(gram(in_.q, i, j) * decay(i, j));
      const T first = is("stage_output_read_not_decayed") ? T(1) : std::exp(value(in_.G, i));
      for (I c = 0; c < V_; ++c) {
        T read = 0, local = 0;
        for (I d = 0; d < K_; ++d) read += key(in_.q, i, d) * static_cast<T>(in_.states[((of * x_.HV + hv_) * K_ + d) * V_ + c]);
        for (I j = 0; j <= i; ++j) local += score[at(j)] * value(in_.Vn, j, V_, c);
        T o = scale * (first * read + local);
        if (is("stage_output_local_unscaled")) o = scale * first * read + local;
        if (is("stage_output_scale_twice")) o *= scale;
        put_row("o", i, V_, c, o);
      }
    }
  }

  const char* fault_;
  StageView& x_;
  struct { const double *q, *k, *v, *g, *beta, *G, *L, *M, *U, *W, *Vn, *states; } in_{};
  I K_, V_, C_, hv_ = 0, begin_ = 0, row_ = 0, n_ = 0, number_ = 0;
  bool last_ = false;
  std::vector<T> S_;
};

}  // namespace

const std::vector<Fault>& stage_table() {
  static const std::vector<Fault> all(std::begin(kTable), std::end(kTable));
  return all;
}

void execute_stage(const Fault* fault, Scalar scalar, StageView& x) {
  const char* name = fault && fault->stage == static_cast<int>(x.stage) ? fault->name : "";
  switch (scalar) {
    case Scalar::fp64: return Stages<double, false>(name, x).run();
    case Scalar::fp32: return Stages<float, false>(name, x).run();
    case Scalar::bf16: return Stages<float, true>(name, x).run();
  }
}

}  // namespace gdn::faulty
