// The layer as one template over its arithmetic, so that oracle, bound and simulation are the same text. An arithmetic A brings
//   N                                       a number (with its radius, where there is one)
//   N input(double)                         stored data
//   N dot(const N* x, const float* w, n)    sum of products, in any order
//   static constexpr I kTokens; void dots(const N* x, const float* w, n, count, N* out)   the same for `count` of kTokens tokens side by side, x [n,kTokens]
//   N silu(N), sigmoid(N)
//   N gate(N a, float A_log, float dt_bias) -exp(A_log) softplus(a + dt_bias)
//   N inverse_root(const N* x, n, bool mean, double eps)   1 / sqrt(sum or mean of x^2 + eps);  N inverse_length(x, n, eps)   1 / max(|x|, eps)
//   N times(N, N), weighted(N, float)
//   N store(LayerPoint, N)                  as the contract keeps it there; conv_state(N), final_state(N), result(N) likewise
//   void cap(N&, double limit)              the kernel's value and the exact one are both at most `limit` in modulus
//   void head(LayerHead<N>&)                the rule over the tokens of one head
//   static constexpr bool kOrdered          whether it must be called in one order, on one thread
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "reference/certify.h"
#include "reference/layer.h"
#include "reference/parallel.h"

namespace gdn::layer_detail {

using I = std::int64_t;
inline std::size_t at(I i) { return static_cast<std::size_t>(i); }

template <class N>
struct LayerHead {                                 // one head of one sequence
  I T, K, V;
  double scale;
  std::vector<N> q, k, v, g, beta;                 // [T,K] [T,K] [T,V] [T] [T]
  std::vector<N> S;                                // [K,V], in and out
  std::vector<N> o;                                // [T,V], out
  std::vector<I> cuts;                             // tokens before each call but the first
};

struct LayerWeights {
  std::vector<float> norm_in, qkv, z, a, b, conv, out, norm, A_log, dt_bias;
  explicit LayerWeights(const Run& run) {
    const auto get = [&](const char* name) {
      const Tensor& t = run.inputs.at(name);
      std::vector<float> x(at(t.size()));
      for (I i = 0; i < t.size(); ++i) x[at(i)] = static_cast<float>(t.at(i));
      return x;
    };
    norm_in = get("norm_in_w"), qkv = get("w_qkv"), z = get("w_z"), a = get("w_a"), b = get("w_b"), conv = get("w_conv"), out = get("w_out"), norm = get("norm_w");
    A_log = get("A_log"), dt_bias = get("dt_bias");
  }
};

// Side by side, unless the arithmetic draws its roundings one after the other; gates and activations leave caches of MPFR in every thread.
template <bool ordered, class F>
void each(I count, F f) {
  if constexpr (ordered) {
    for (I i = 0; i < count; ++i) f(i);
  } else {
    parallel_for(count, max_threads(), [&](I i, int) { f(i); }, [] { oracle_detail::free_thread_caches(); });
  }
}

template <class A>
class LayerPass {
 public:
  using N = typename A::N;
  static constexpr bool kOrdered = A::kOrdered;
  std::vector<N> y, conv_state, ht;                // [tokens,hidden] [N,channels,W-1] [N,HV,K,V]

  LayerPass(const A& arithmetic, const Run& run) : a_(arithmetic), run_(run), p_(run.problem), w_(run), C_(layer_channels(p_)) {}

  // hidden [tokens,hidden]: in place of the input x, where numbers of the pass go on to another layer.
  void run(const std::vector<N>* hidden = nullptr) {
    const I T = p_.tokens(), HV = p_.value_heads, Z = HV * p_.value_dim, D = p_.hidden, W = p_.conv;
    m_.resize(at(T * C_)), z_.resize(at(T * Z)), g_.resize(at(T * HV)), beta_.resize(at(T * HV)), c_.resize(at(T * C_));
    o_.resize(at(T * Z));
    y.resize(at(T * D));
    const Tensor& x = run_.inputs.at("x");
    constexpr I B = A::kTokens;
    each<kOrdered>((T + B - 1) / B, [&](I block) {
      const I t0 = block * B, count = std::min(B, T - t0);
      std::vector<N> u(at(D * B)), row(at(D));
      for (I j = 0; j < count; ++j) {
        for (I i = 0; i < D; ++i) row[at(i)] = hidden ? (*hidden)[at((t0 + j) * D + i)] : a_.input(x.at((t0 + j) * D + i));
        const N scale = a_.inverse_root(row.data(), D, true, kLayerEps);
        for (I i = 0; i < D; ++i) u[at(i * B + j)] = a_.store(LayerPoint::x_norm, a_.weighted(a_.times(row[at(i)], scale), w_.norm_in[at(i)]));
      }
      const auto project = [&](const std::vector<float>& w, I rows, auto put) {
        N out[B];
        for (I r = 0; r < rows; ++r) {
          a_.dots(u.data(), &w[at(r * D)], D, count, out);
          for (I j = 0; j < count; ++j) put(t0 + j, r, a_.store(LayerPoint::proj, out[j]));
        }
      };
      project(w_.qkv, C_, [&](I t, I r, const N& v) { m_[at(t * C_ + r)] = v; });
      project(w_.z, Z, [&](I t, I r, const N& v) { z_[at(t * Z + r)] = v; });
      project(w_.a, HV, [&](I t, I r, const N& v) { g_[at(t * HV + r)] = a_.gate(v, w_.A_log[at(r)], w_.dt_bias[at(r)]); });
      project(w_.b, HV, [&](I t, I r, const N& v) { beta_[at(t * HV + r)] = a_.sigmoid(v); });
    });
    const auto offsets = p_.offsets(), cuts = p_.cuts();
    conv_state.resize(at(p_.sequences() * C_ * (W - 1)));
    const Tensor& before = run_.inputs.at("conv_state");
    for (I n = 0; n < p_.sequences(); ++n) {
      const I first = offsets[at(n)], length = p_.lengths[at(n)];
      each<kOrdered>(C_, [&](I c) {
        const auto value = [&](I t) {              // of token t of the sequence; before it the state
          return t >= 0 ? m_[at((first + t) * C_ + c)] : a_.input(before.at((n * C_ + c) * (W - 1) + W - 1 + t));
        };
        std::vector<N> window(at(W));
        for (I t = 0; t < length; ++t) {
          I call = 0;                              // what lies before the call comes out of a conv_state
          for (const I cut : cuts)
            if (cut <= t) call = cut;
          for (I i = 0; i < W; ++i) {
            const I from = t - W + 1 + i;
            window[at(i)] = value(from);
            if (from >= 0 && from < call) window[at(i)] = a_.conv_state(window[at(i)]);
          }
          c_[at((first + t) * C_ + c)] = a_.store(LayerPoint::conv, a_.silu(a_.store(LayerPoint::conv_sum, a_.dot(window.data(), &w_.conv[at(c * W)], W))));
        }
        for (I i = 0; i < W - 1; ++i) {
          const N last = value(length - W + 1 + i);
          conv_state[at((n * C_ + c) * (W - 1) + i)] = length - W + 1 + i >= 0 ? a_.conv_state(last) : last;
        }
      });
    }
    heads(offsets);
    each<kOrdered>((T + B - 1) / B, [&](I block) {
      const I t0 = block * B, count = std::min(B, T - t0), V = p_.value_dim;
      std::vector<N> rows(at(Z * B));
      for (I j = 0; j < count; ++j)
        for (I h = 0; h < HV; ++h) {
          const I first = ((t0 + j) * HV + h) * V;
          const N scale = a_.inverse_root(&o_[at(first)], V, true, kLayerEps);
          for (I i = 0; i < V; ++i) {
            N normal = a_.times(o_[at(first + i)], scale);
            a_.cap(normal, std::sqrt(static_cast<double>(V)));
            normal = a_.store(LayerPoint::normal, normal);
            rows[at((h * V + i) * B + j)] = a_.store(LayerPoint::normed, a_.times(a_.weighted(normal, w_.norm[at(i)]), a_.silu(z_[at(first + i)])));
          }
        }
      N out[B];
      for (I i = 0; i < D; ++i) {
        a_.dots(rows.data(), &w_.out[at(i * Z)], Z, count, out);
        for (I j = 0; j < count; ++j) y[at((t0 + j) * D + i)] = a_.result(out[j]);
      }
    });
  }

 private:
  void heads(const std::vector<I>& offsets) {
    const I HV = p_.value_heads, H = p_.heads, K = p_.key_dim, V = p_.value_dim, KV = K * V;
    ht.resize(at(p_.sequences() * HV * KV));
    const auto h0 = run_.inputs.find("h0");
    const auto one = [&](I job) {
      const I n = job / HV, hv = job % HV, h = hv / (HV / H), first = offsets[at(n)];
      LayerHead<N> head{p_.lengths[at(n)], K, V, p_.effective_scale(), {}, {}, {}, {}, {}, {}, {}, p_.cuts()};
      head.S.resize(at(KV));
      for (I i = 0; i < KV; ++i) head.S[at(i)] = a_.input(h0 == run_.inputs.end() ? 0.0 : h0->second.at(job * KV + i));
      const auto unit = [&](std::vector<N>& to, const N* from) {
        N scale = a_.input(1);
        if (p_.l2 == L2Form::root) scale = a_.inverse_root(from, K, false, kLayerEps);
        if (p_.l2 == L2Form::max) scale = a_.inverse_length(from, K, kLayerEps);
        for (I d = 0; d < K; ++d) {
          N e = p_.l2 == L2Form::none ? from[d] : a_.times(from[d], scale);
          if (p_.l2 != L2Form::none) {
            a_.cap(e, 1);
            e = a_.store(LayerPoint::unit, e);
          }
          to.push_back(e);
        }
      };
      for (I t = 0; t < head.T; ++t) {
        const N* c = &c_[at((first + t) * C_)];
        unit(head.q, c + h * K);
        unit(head.k, c + (H + h) * K);
        for (I i = 0; i < V; ++i) head.v.push_back(c[2 * H * K + hv * V + i]);
        head.g.push_back(g_[at((first + t) * HV + hv)]);
        head.beta.push_back(beta_[at((first + t) * HV + hv)]);
      }
      head.o.resize(at(head.T * V));
      if (head.T > 0) a_.head(head);
      for (I t = 0; t < head.T; ++t)
        for (I i = 0; i < V; ++i) o_[at(((first + t) * HV + hv) * V + i)] = a_.store(LayerPoint::core, head.o[at(t * V + i)]);
      for (I i = 0; i < KV; ++i) ht[at(job * KV + i)] = head.T > 0 ? a_.final_state(head.S[at(i)]) : head.S[at(i)];
    };
    each<kOrdered>(p_.sequences() * HV, one);
  }

  const A& a_;
  const Run& run_;
  const Problem& p_;
  const LayerWeights w_;
  const I C_;
  std::vector<N> m_, z_, g_, beta_, c_, o_;
};

}  // namespace gdn::layer_detail
