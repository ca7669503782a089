// The layer in plain loops, with the faults as one-place deviations, and the rows of the bank that name them. A new fault is one row of
// kTable and one `is("name")` where it deviates.
#include "kernels/faulty/layer.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/faulty/narrow.h"
#include "reference/layer.h"

namespace gdn::faulty {
namespace {

using I = std::int64_t;
constexpr unsigned R = 1u << static_cast<unsigned>(Form::recurrent);
std::size_t at(I i) { return static_cast<std::size_t>(i); }

constexpr Fault kTable[] = {
    {"layer_conv_shifted", "conv-state-wrong", R, 0, "the convolution's window ends one token early", "public reports of a padding off by one", kLayerFault},
    {"layer_conv_tap_dropped", "conv-state-wrong", R, 0, "the convolution has one tap less: the oldest is never read", "a state of W-1 columns taken for one of W", kLayerFault},
    {"layer_conv_taps_reversed", "conv-state-wrong", R, 0, "the taps are applied newest first", "convolution and correlation mixed up", kLayerFault},
    {"layer_conv_history_ignored", "conv-state-wrong", R, 0, "every call starts from an empty history", "public reports of resumed prefill without the convolution's state", kLayerFault},
    {"layer_conv_history_reversed", "conv-state-wrong", R, 0, "the history is read newest first", "ring buffers read from the wrong end", kLayerFault},
    {"layer_conv_history_activated", "activation-order-wrong", R, 0, "the history holds values after convolution and SiLU", "the wrong one of two buffers handed over", kLayerFault},
    {"layer_conv_history_of_short_call_cleared", "conv-state-wrong", R, 0, "after a call of fewer than W-1 tokens the older history is zero", "the last W-1 columns of the call taken as they are, padded on the left", kLayerFault},
    {"layer_conv_history_one_late", "conv-state-wrong", R, 0, "the history that is handed over lacks the last token", "an update before instead of after the step", kLayerFault},
    {"layer_conv_crosses_sequences", "state-leaks-into-next-sequence", R, 0, "the convolution runs over the packed buffer", "packed sequences without their borders", kLayerFault},
    {"layer_activation_before_conv", "activation-order-wrong", R, 0, "SiLU comes before the convolution", "a slip of order", kLayerFault},
    {"layer_activation_missing", "activation-order-wrong", R, 0, "the convolution is not activated", "an activation argument left out", kLayerFault},
    {"layer_activation_missing_on_values", "activation-order-wrong", R, 0, "q and k are activated, v is not", "an activation inside the q and k branch", kLayerFault},
    {"layer_gate_before_norm", "gated-norm-wrong", R, 0, "o is gated by silu(z) before its norm", "the other order of gated RMSNorm, as Mamba2 has it", kLayerFault},
    {"layer_gate_sigmoid", "gated-norm-wrong", R, 0, "the norm is gated by sigmoid(z)", "public reports of the wrong activation of the output gate", kLayerFault},
    {"layer_gate_missing", "gated-norm-wrong", R, 0, "the output gate is left out", "a branch without z", kLayerFault},
    {"layer_norm_weight_plus_one", "gated-norm-wrong", R, 0, "the gated norm is weighted by 1+w", "zero-centred weights of the other norms of the model", kLayerFault},
    {"layer_norm_over_heads", "gated-norm-wrong", R, 0, "the gated norm takes the mean over all heads", "a norm over the flattened output", kLayerFault},
    {"layer_hidden_norm_missing", "unwanted-normalisation", R, 0, "the hidden state is not normalised", "a norm expected of the caller", kLayerFault},
    {"layer_hidden_norm_weight_plus_one", "gated-norm-wrong", R, 0, "the hidden norm is weighted by 1+w", "zero-centred weights applied twice", kLayerFault},
    {"layer_norms_exchanged", "norm-order-wrong", R, 0, "q and k are normalised before the convolution", "a slip of order", kLayerFault},
    {"layer_l2norm_missing", "unwanted-normalisation", R, 0, "q and k are not normalised", "the flag of a kernel that normalises them left out", kLayerFault},
    {"layer_l2norm_by_mean", "unwanted-normalisation", R, 0, "q and k are divided by the root of their mean square", "RMSNorm taken for l2norm", kLayerFault},
    {"layer_l2norm_eps_outside", "l2norm-eps-wrong", R, 0, "the epsilon is added to the length instead of its square", "public reports of two l2norms with other epsilons", kLayerFault},
    {"layer_l2norm_eps_missing", "l2norm-eps-wrong", R, 0, "q and k are normalised without epsilon", "an epsilon left out", kLayerFault},
    {"layer_softplus_overflows", "raw-gate-overflow", R, 0, "softplus is log(1+e^x) in fp32: infinite above 88", "textbook formulas", kLayerFault},
    {"layer_softplus_underflows", "raw-gate-underflow", R, 0, "softplus is log(1+e^x) in fp32: 0 below -17, and the decay vanishes", "textbook formulas", kLayerFault},
    {"layer_softplus_threshold", "raw-gate-overflow", R, 0, "softplus is linear from 2 on", "a threshold of 20 mistyped or of another unit", kLayerFault},
    {"layer_A_log_sign", "sign-wrong", R, 0, "the rate is exp(-A_log)", "a sign moved into the exponent", kLayerFault},
    {"layer_A_log_taken_as_A", "gate-domain-mixed", R, 0, "A_log is taken as the rate itself", "checkpoints that hold A", kLayerFault},
    {"layer_dt_bias_missing", "gate-ignored", R, 0, "dt_bias is left out", "a bias not passed on", kLayerFault},
    {"layer_dt_bias_outside", "gate-ignored", R, 0, "dt_bias is added after softplus", "a slip of order", kLayerFault},
    {"layer_gate_input_in_bf16", "gate-narrowed", R, 0, "a + dt_bias is rounded to bf16", "gates computed in the model's dtype", kLayerFault},
    {"layer_sigmoid_in_bf16", "beta-narrowed", R, 0, "beta is rounded to bf16", "sigmoid in the model's dtype", kLayerFault},
    {"layer_beta_without_sigmoid", "beta-clamped", R, 0, "b is clamped to 0..1 instead of passed through a sigmoid", "hard sigmoids", kLayerFault},
    {"layer_packing_flat", "projection-packing-wrong", R, 0, "projections packed per key head are split as if q, k, v, z followed each other whole", "public reports of Qwen3-Next checkpoints in Qwen3.5 code", kLayerFault},
    {"layer_a_and_b_exchanged", "projection-packing-wrong", R, 0, "a and b are exchanged", "ba packed, ab read", kLayerFault},
    {"layer_q_and_k_exchanged", "projection-packing-wrong", R, 0, "q and k are exchanged", "a slip of order in the split", kLayerFault},
    {"layer_heads_tiled", "head-map-wrong", R, 0, "value head h reads key head h % H", "repeat instead of repeat_interleave", kLayerFault},
    {"layer_initial_state_ignored", "initial-state-ignored", R, 0, "every call starts from a zero state", "caches not passed on", kLayerFault},
    {"layer_state_leaks", "state-leaks-into-next-sequence", R, 0, "a sequence starts from the state of the one before", "no reset at borders", kLayerFault},
    {"layer_history_needs_final_state", "final-state-unwritten", R, 0, "the history is handed over only where a final state is asked for", "two outputs coupled by one flag", kLayerFault},
    {"layer_history_of_first_row", "conv-state-wrong", R, 0, "where all sequences are of one token, all read the history of the first", "a missing stride in the decode kernel", kLayerFault},
    {"layer_empty_sequence_history_cleared", "empty-sequence-mishandled", R, 0, "a sequence without tokens hands over a history of zeros", "public reports of zero-length sequences", kLayerFault},
    {"layer_hidden_square_sum_limited", "saturation-wrong", R, 65504, "the sum of squares of the hidden norm is limited to the range of fp16", "public reports of norms in fp16 that overflow on massive activations", kLayerFault},
    {"layer_state_reset_by_call", "final-state-wrong", R, 0, "the state handed over is that before the last token", "an update left out at the end", kLayerFault},
};

template <class T, bool Low>
class Layer {
 public:
  Layer(const char* fault, LayerView& x) : fault_(fault), x_(x), C_(2 * x.H * x.K + x.HV * x.V), W_(x.conv) {
    for (I n = 0; n < x.N; ++n) decode_ = decode_ && x.cu[at(n) + 1] == x.cu[at(n)] + 1;
  }

  void run() {
    const I last = x_.cu.back(), D = x_.hidden, Z = x_.HV * x_.V;
    m_.assign(at(last * C_), T(0)), z_.assign(at(last * Z), T(0)), a_.assign(at(last * x_.HV), T(0)), b_ = a_;
    for (I t = 0; t < last; ++t) project(t, D, Z);
    std::vector<T> S(at(x_.HV * x_.K * x_.V), T(0));
    for (I n = 0; n < x_.N; ++n) {
      const I first = x_.cu[at(n)], end = x_.cu[at(n) + 1];
      const auto h0 = x_.in.find("h0");
      if (!(is("layer_state_leaks") && n > 0))
        for (std::size_t i = 0; i < S.size(); ++i)
          S[i] = h0 == x_.in.end() || is("layer_initial_state_ignored") ? T(0) : static_cast<T>(h0->second[at(n) * S.size() + i]);
      std::vector<T> before = S;
      for (I t = first; t < end; ++t) {
        before = S;
        token(n, first, t, S);
      }
      if (x_.out.count("ht"))
        for (std::size_t i = 0; i < S.size(); ++i) put("ht", static_cast<I>(at(n) * S.size() + i), is("layer_state_reset_by_call") ? before[i] : S[i]);
      history(n, first, end);
    }
  }

 private:
  bool is(const char* name) const { return *fault_ && std::strcmp(fault_, name) == 0; }
  void put(const char* name, I element, T value) {
    x_.out.at(name)[at(element)] = static_cast<double>(value);
    x_.written.at(name)[at(element)] = 1;
  }
  T in(const char* name, I i) const { return static_cast<T>(x_.in.find(name)->second[at(i)]); }
  static T sigmoid(T x) { return T(1) / (T(1) + std::exp(-x)); }
  static T silu(T x) { return x * sigmoid(x); }
  static T bf16(T x) { return static_cast<T>(narrow(static_cast<double>(x), Format::bf16)); }

  void project(I t, I D, I Z) {
    std::vector<T> u(at(D));
    T sum = 0;
    for (I i = 0; i < D; ++i) sum += in("x", t * D + i) * in("x", t * D + i);
    if (is("layer_hidden_square_sum_limited")) sum = std::min(sum, T(65504));
    const T scale = is("layer_hidden_norm_missing") ? T(1) : T(1) / std::sqrt(sum / static_cast<T>(D) + static_cast<T>(kLayerEps));
    for (I i = 0; i < D; ++i) u[at(i)] = in("x", t * D + i) * scale * (in("norm_in_w", i) + (is("layer_hidden_norm_weight_plus_one") ? T(1) : T(0)));
    const auto row = [&](const std::vector<double>& w, I r) {
      T s = 0;
      for (I i = 0; i < D; ++i) s += static_cast<T>(w[at(r * D + i)]) * u[at(i)];
      return s;
    };
    const auto all = [&](const char* name, std::vector<T>& to, I count) {
      const std::vector<double>& w = x_.in.at(name);
      for (I r = 0; r < count; ++r) to[at(t * count + r)] = row(w, r);
    };
    all("w_qkv", m_, C_), all("w_z", z_, Z), all("w_a", a_, x_.HV), all("w_b", b_, x_.HV);
    if (is("layer_a_and_b_exchanged"))
      for (I h = 0; h < x_.HV; ++h) std::swap(a_[at(t * x_.HV + h)], b_[at(t * x_.HV + h)]);
    if (is("layer_packing_flat")) flat(t, Z);
    if (is("layer_norms_exchanged"))
      for (I h = 0; h < 2 * x_.H; ++h) unit(&m_[at(t * C_ + h * x_.K)]);
  }
  void flat(I t, I Z) {                            // packed [q k v z] per key head, cut as q, k, v, z of all heads
    const I K = x_.K, rV = x_.HV / x_.H * x_.V;
    std::vector<T> packed;
    const auto take = [&](const T* from, I count) { packed.insert(packed.end(), from, from + count); };
    for (I h = 0; h < x_.H; ++h) {
      take(&m_[at(t * C_ + h * K)], K);
      take(&m_[at(t * C_ + (x_.H + h) * K)], K);
      take(&m_[at(t * C_ + 2 * x_.H * K + h * rV)], rV);
      take(&z_[at(t * Z + h * rV)], rV);
    }
    std::copy_n(packed.begin(), C_, m_.begin() + t * C_);
    std::copy_n(packed.begin() + C_, Z, z_.begin() + t * Z);
  }

  // Token t of sequence n as the convolution sees it; before the sequence its history.
  T value(I n, I first, I t, I c) const {
    if (t >= first) return m_[at(t * C_ + c)];
    if (is("layer_conv_crosses_sequences") && t >= 0) return m_[at(t * C_ + c)];
    I column = W_ - 1 + t - first;
    if (is("layer_conv_history_ignored") || column < 0) return T(0);
    if (is("layer_conv_history_reversed")) column = W_ - 2 - column;
    if (is("layer_history_of_first_row") && decode_) n = 0;
    return in("conv_state", (n * C_ + c) * (W_ - 1) + column);
  }
  T mixed(I n, I first, I t, I c) const {
    T sum = 0;
    for (I i = is("layer_conv_tap_dropped") && W_ > 1; i < W_; ++i) {
      const I tap = is("layer_conv_taps_reversed") ? W_ - 1 - i : i;
      T x = value(n, first, t - W_ + 1 + i - (is("layer_conv_shifted") ? 1 : 0), c);
      if (is("layer_activation_before_conv")) x = silu(x);
      sum += in("w_conv", c * W_ + tap) * x;
    }
    const bool plain = is("layer_activation_before_conv") || is("layer_activation_missing") || (is("layer_activation_missing_on_values") && c >= 2 * x_.H * x_.K);
    return plain ? sum : silu(sum);
  }
  void history(I n, I first, I end) {
    for (I c = 0; c < C_; ++c)
      for (I i = 0; i < W_ - 1; ++i) {
        const I t = end - W_ + 1 + i - (is("layer_conv_history_one_late") ? 1 : 0);
        T x = value(n, first, t, c);
        if (is("layer_conv_history_activated") && t >= first) x = mixed(n, first, t, c);
        if (is("layer_conv_history_of_short_call_cleared") && t < first && end > first) x = 0;
        if (is("layer_empty_sequence_history_cleared") && end == first) x = 0;
        keep_.push_back(x);
      }
    if (n + 1 < x_.N || (is("layer_history_needs_final_state") && !x_.out.count("ht"))) return;
    for (std::size_t i = 0; i < keep_.size(); ++i) put("conv_state", static_cast<I>(i), keep_[i]);
  }

  void unit(T* x) const {
    const I K = x_.K;
    T sum = 0;
    for (I d = 0; d < K; ++d) sum += x[d] * x[d];
    T by = std::sqrt(sum + static_cast<T>(kLayerEps));
    if (x_.l2 == L2Form::max) by = std::max(std::sqrt(sum), static_cast<T>(kLayerEps));
    if (x_.l2 == L2Form::none) by = 1;
    if (is("layer_l2norm_missing")) by = 1;
    if (is("layer_l2norm_by_mean")) by = std::sqrt(sum / static_cast<T>(K) + static_cast<T>(kLayerEps));
    if (is("layer_l2norm_eps_outside")) by = std::sqrt(sum) + static_cast<T>(kLayerEps);
    if (is("layer_l2norm_eps_missing")) by = std::sqrt(sum);
    for (I d = 0; d < K; ++d) x[d] /= by;
  }
  // alpha, by the form that is right in both tails.
  T decay(I t, I h) const {
    T x = a_[at(t * x_.HV + h)];
    const T bias = in("dt_bias", h), A = in("A_log", h);
    if (!is("layer_dt_bias_missing") && !is("layer_dt_bias_outside")) x += bias;
    if (is("layer_gate_input_in_bf16")) x = bf16(x);
    T rate = std::exp(is("layer_A_log_sign") ? -A : A);
    if (is("layer_A_log_taken_as_A")) rate = std::fabs(A);
    T softplus = x > 0 ? x + std::log1p(std::exp(-x)) : std::log1p(std::exp(x));
    if (is("layer_softplus_overflows") && x > 0) softplus = static_cast<T>(std::log(1.0f + std::exp(static_cast<float>(x))));
    if (is("layer_softplus_underflows") && x < 0) softplus = static_cast<T>(std::log(1.0f + std::exp(static_cast<float>(x))));
    if (is("layer_softplus_threshold") && x > 2) softplus = x;
    if (is("layer_dt_bias_outside")) softplus = std::max(softplus + bias, T(0));
    const bool other = is("layer_softplus_underflows") || is("layer_A_log_taken_as_A") || is("layer_dt_bias_outside");
    if (x < -40 && !other) return std::exp(-std::exp((is("layer_A_log_sign") ? -A : A) + x));            // neither factor may vanish where the product does not
    return std::exp(-rate * softplus);
  }

  void token(I n, I first, I t, std::vector<T>& S) {
    const I K = x_.K, V = x_.V, HV = x_.HV, H = x_.H, D = x_.hidden, Z = HV * V;
    std::vector<T> c(at(C_)), row(at(Z)), o(at(Z));
    for (I i = 0; i < C_; ++i) c[at(i)] = mixed(n, first, t, i);
    if (is("layer_q_and_k_exchanged"))
      for (I i = 0; i < H * K; ++i) std::swap(c[at(i)], c[at(H * K + i)]);
    for (I h = 0; h < 2 * H && !is("layer_norms_exchanged"); ++h) unit(&c[at(h * K)]);
    for (I hv = 0; hv < HV; ++hv) {
      const I h = is("layer_heads_tiled") ? hv % H : hv / (HV / H);
      const T *q = &c[at(h * K)], *k = &c[at((H + h) * K)], *v = &c[at(2 * H * K + hv * V)], alpha = decay(t, hv), b = b_[at(t * HV + hv)];
      T beta = sigmoid(b);
      if (is("layer_sigmoid_in_bf16")) beta = bf16(beta);
      if (is("layer_beta_without_sigmoid")) beta = std::clamp(b, T(0), T(1));
      T* s = &S[at(hv * K * V)];
      for (I j = 0; j < V; ++j) {
        T held = 0, out = 0;
        for (I d = 0; d < K; ++d) held += k[d] * (s[d * V + j] *= alpha);
        const T y = beta * (v[j] - held);
        for (I d = 0; d < K; ++d) out += q[d] * (s[d * V + j] += k[d] * y);
        o[at(hv * V + j)] = static_cast<T>(x_.scale) * out;
      }
    }
    T whole = 0;
    for (const T e : o) whole += e * e;
    for (I hv = 0; hv < HV; ++hv) {
      T sum = 0;
      const T* z = &z_[at((t * HV + hv) * V)];
      if (is("layer_gate_before_norm"))
        for (I j = 0; j < V; ++j) o[at(hv * V + j)] *= silu(z[j]);
      for (I j = 0; j < V; ++j) sum += o[at(hv * V + j)] * o[at(hv * V + j)];
      T mean = sum / static_cast<T>(V);
      if (is("layer_norm_over_heads")) mean = whole / static_cast<T>(Z);
      const T scale = T(1) / std::sqrt(mean + static_cast<T>(kLayerEps));
      for (I j = 0; j < V; ++j) {
        T gate = silu(z[j]);
        if (is("layer_gate_before_norm") || is("layer_gate_missing")) gate = 1;
        if (is("layer_gate_sigmoid")) gate = sigmoid(z[j]);
        row[at(hv * V + j)] = o[at(hv * V + j)] * scale * (in("norm_w", j) + (is("layer_norm_weight_plus_one") ? T(1) : T(0))) * gate;
      }
    }
    const std::vector<double>& w = x_.in.at("w_out");
    for (I i = 0; i < D; ++i) {
      T y = 0;
      for (I j = 0; j < Z; ++j) y += static_cast<T>(w[at(i * Z + j)]) * row[at(j)];
      put("y", t * D + i, Low ? bf16(y) : y);
    }
  }

  const char* fault_;
  LayerView& x_;
  I C_, W_;
  bool decode_ = true;                             // one token a sequence
  std::vector<T> m_, z_, a_, b_, keep_;
};

}  // namespace

const std::vector<Fault>& layer_table() {
  static const std::vector<Fault> all(std::begin(kTable), std::end(kTable));
  return all;
}

void execute_layer(const Fault* fault, Scalar scalar, LayerView& x) {
  const char* name = fault && fault->stage == kLayerFault ? fault->name : "";
  switch (scalar) {
    case Scalar::fp64: return Layer<double, false>(name, x).run();
    case Scalar::fp32: return Layer<float, false>(name, x).run();
    case Scalar::bf16: return Layer<float, true>(name, x).run();
  }
}

}  // namespace gdn::faulty
