// cpu_layer_fp32, cpu_layer_bf16: the layer around the rule (gdn_kernel.h, GDN_LAYER_PREFILL), Eigen. The one in fp32 takes the separate
// projections and a history of W-1 columns; the one in bf16 is a fused kernel, fp32 inside, that rounds the rule's output and the last operand to bf16, and takes
// projections packed per key head and a history of W columns. A token's numbers depend on nothing but the token and the states, so decode, prefill and resume give the same bits: every
// projection is a matrix times one vector, of the same shape and alignment whatever the call.
#include <Eigen/Core>
#include <cmath>
#include <vector>

#include "kernels/cpu/convert.h"
#include "kernels/cpu/recurrent.h"
#include "kernels/cpu/view.h"
#include "kernels/registry.h"
#include "reference/parallel.h"

namespace gdn::cpu {
namespace {

using I = std::int64_t;
using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using Vector = Eigen::VectorXf;

struct LayerMethod {
  bool bf16, packed, full;                         // rounds o and the last operand to bf16; projections per key head; history of W columns
};

struct LayerPlan {
  gdn_problem problem;
  LayerMethod method;
};

constexpr float kEps = 1e-6f;

float silu(float x) { return x / (1 + std::exp(-x)); }

Vector vector_of(const View& t, I size) {
  Vector x(size);
  read(x.data(), t, 0, t.stride[0], size);
  return x;
}
Matrix matrix_of(const View& t, I rows, I columns) {
  Matrix m(rows, columns);
  for (I r = 0; r < rows; ++r) read(m.data() + r * columns, t, r * t.stride[0], t.stride[1], columns);
  return m;
}

// Rows of projections packed per key head, [q k v z] and [b a], in the order q, k, v of all heads; z; a; b.
void unpack(const gdn_problem& p, const Matrix& qkvz, const Matrix& ba, Matrix& qkv, Matrix& z, Matrix& a, Matrix& b) {
  const I K = p.K, r = p.HV / p.H, rV = r * p.V, D = qkvz.cols();
  qkv.resize(2 * p.H * K + p.HV * p.V, D), z.resize(p.HV * p.V, D), a.resize(p.HV, D), b.resize(p.HV, D);
  for (I h = 0; h < p.H; ++h) {
    const I at = h * (2 * K + 2 * rV);
    qkv.middleRows(h * K, K) = qkvz.middleRows(at, K);
    qkv.middleRows((p.H + h) * K, K) = qkvz.middleRows(at + K, K);
    qkv.middleRows(2 * p.H * K + h * rV, rV) = qkvz.middleRows(at + 2 * K, rV);
    z.middleRows(h * rV, rV) = qkvz.middleRows(at + 2 * K + rV, rV);
    b.middleRows(h * r, r) = ba.middleRows(2 * h * r, r);
    a.middleRows(h * r, r) = ba.middleRows(2 * h * r + r, r);
  }
}

int create_layer(const LayerMethod& method, const gdn_problem* problem, void** plan, char* message, std::size_t size) {
  if (problem->operation != GDN_LAYER_PREFILL && problem->operation != GDN_LAYER_DECODE) return say(message, size, GDN_NOT_SUPPORTED, "only the layer");
  if (problem->rule != GDN_RULE_GATED_DELTA) return say(message, size, GDN_NOT_SUPPORTED, "only the rule gated_delta");
  if (problem->hidden < 1 || problem->conv < 1) return say(message, size, GDN_ERROR, "hidden and conv must be at least 1");
  *plan = new LayerPlan{*problem, method};
  return GDN_OK;
}

int run_layer(void* opaque, const gdn_call* call, char* message, std::size_t size) {
  const LayerPlan& plan = *static_cast<const LayerPlan*>(opaque);
  const gdn_problem& p = plan.problem;
  const LayerMethod m = plan.method;
  const I T = p.T, N = p.N, H = p.H, HV = p.HV, K = p.K, V = p.V, D = p.hidden, W = p.conv, C = 2 * H * K + HV * V, Z = HV * V, columns = m.full ? W : W - 1;
  std::string why;
  const auto need = [&](std::int32_t role, const char* name, const std::vector<I>& shape) { return find(call, role, name, shape, true, false, why); };
  const View x = need(GDN_X, "x", {T, D}), norm_in = need(GDN_NORM_IN_W, "norm_in_w", {D}), w_qkv = need(GDN_W_QKV, "w_qkv", {m.packed ? C + Z : C, D}),
             w_b = need(GDN_W_B, "w_b", {m.packed ? 2 * HV : HV, D}), w_conv = need(GDN_W_CONV, "w_conv", {C, W}), w_out = need(GDN_W_OUT, "w_out", {D, Z}),
             norm_w = need(GDN_NORM_W, "norm_w", {V}), A_log = need(GDN_A_LOG, "A_log", {HV}), dt_bias = need(GDN_DT_BIAS, "dt_bias", {HV}),
             history = need(GDN_CONV_STATE, "conv_state", {N, C, columns}), y = need(GDN_Y, "y", {T, D});
  View w_z, w_a;
  if (!m.packed) w_z = need(GDN_W_Z, "w_z", {Z, D}), w_a = need(GDN_W_A, "w_a", {HV, D});
  const View h0 = find(call, GDN_H0, "h0", {N, HV, K, V}, false, false, why), ht = find(call, GDN_HT, "ht", {N, HV, K, V}, false, false, why);
  const View cu = find(call, GDN_CU_SEQLENS, "cu_seqlens", {N + 1}, N > 1, true, why);
  if (!why.empty()) return say(message, size, GDN_ERROR, why);
  const std::vector<I> offsets = offsets_of(cu, N, T);
  if (offsets.empty()) return say(message, size, GDN_ERROR, kBadOffsets);
  const I last = offsets.back();

  Matrix qkv = matrix_of(w_qkv, m.packed ? C + Z : C, D), b = matrix_of(w_b, m.packed ? 2 * HV : HV, D), z, a;
  if (m.packed) {
    const Matrix qkvz = std::move(qkv), ba = std::move(b);
    unpack(p, qkvz, ba, qkv, z, a, b);
  } else {
    z = matrix_of(w_z, Z, D), a = matrix_of(w_a, HV, D);
  }
  const Matrix taps = matrix_of(w_conv, C, W), out = matrix_of(w_out, D, Z);
  const Vector norm_input = vector_of(norm_in, D), norm = vector_of(norm_w, V), rate = vector_of(A_log, HV), bias = vector_of(dt_bias, HV);
  const auto store = [&](float v) { return m.bf16 ? round_bf16(v) : v; };
  const auto store_all = [&](auto&& v) {
    if (m.bf16) v = v.unaryExpr([](float e) { return round_bf16(e); });
  };

  // Columns are tokens.
  Eigen::MatrixXf mixed(C, last), gate_z(Z, last), gate_a(HV, last), gate_b(HV, last), conv(C, last), core(Z, last);
  parallel_for(last, [&](I t) {
    Vector u(D), projected;
    read(u.data(), x, t * x.stride[0], x.stride[1], D);
    u *= 1 / std::sqrt(u.squaredNorm() / static_cast<float>(D) + kEps);
    u.array() *= norm_input.array();
    const auto project = [&](const Matrix& w, Eigen::MatrixXf& to) {
      projected.noalias() = w * u;
      to.col(t) = projected;
    };
    project(qkv, mixed), project(z, gate_z), project(a, gate_a), project(b, gate_b);
  });
  parallel_for(C, [&](I c) {
    std::vector<float> past(static_cast<std::size_t>(W) - 1 + static_cast<std::size_t>(last)), before(static_cast<std::size_t>(columns));
    for (I n = 0; n < N; ++n) {
      const I first = offsets[static_cast<std::size_t>(n)], length = offsets[static_cast<std::size_t>(n) + 1] - first;
      const I place = n * history.stride[0] + c * history.stride[1];
      if (columns > 0) read(before.data(), history, place, history.stride[2], columns);
      for (I i = 0; i < W - 1; ++i) past[static_cast<std::size_t>(i)] = before[static_cast<std::size_t>(i + columns - (W - 1))];
      for (I t = 0; t < length; ++t) {
        past[static_cast<std::size_t>(W - 1 + t)] = mixed(c, first + t);
        float sum = 0;
        for (I i = 0; i < W; ++i) sum += taps(c, i) * past[static_cast<std::size_t>(t + i)];
        conv(c, first + t) = silu(sum);
      }
      // The last columns of what was there and what came; a full history keeps one more.
      for (I i = 0; i < columns; ++i) {
        const I from = length + i - (columns - (W - 1));
        if (from >= 0) before[static_cast<std::size_t>(i)] = past[static_cast<std::size_t>(from)];
      }
      if (columns > 0) write(before.data(), history, place, history.stride[2], columns);
    }
  });
  parallel_for(N * HV, [&](I job) {
    const I n = job / HV, hv = job % HV, h = hv / (HV / H), first = offsets[static_cast<std::size_t>(n)], end = offsets[static_cast<std::size_t>(n) + 1];
    std::vector<float> S(static_cast<std::size_t>(K * V), 0.0f), work(recurrent_workspace(1, K, V));
    for (I d = 0; h0 && d < K; ++d) read(S.data() + d * V, h0, n * h0.stride[0] + hv * h0.stride[1] + d * h0.stride[2], h0.stride[3], V);
    const auto unit = [&](Vector v) {
      if (p.l2norm == GDN_L2NORM_NONE) return v;
      const float sum = v.squaredNorm();
      v *= p.l2norm == GDN_L2NORM_MAX ? 1 / std::max(std::sqrt(sum), kEps) : 1 / std::sqrt(sum + kEps);
      return v;
    };
    Vector o(V);
    for (I t = first; t < end; ++t) {
      const Vector q = unit(conv.col(t).segment(h * K, K)), k = unit(conv.col(t).segment((H + h) * K, K)), v = conv.col(t).segment(2 * H * K + hv * V, V);
      const float g = raw_gate(gate_a(hv, t), rate[hv], bias[hv]), beta = 1 / (1 + std::exp(-gate_b(hv, t)));
      recurrent_block({1, K, V, static_cast<float>(p.scale), true, false, q.data(), k.data(), v.data(), &g, &beta, S.data(), o.data(), work.data()});
      store_all(o);
      const float scale = 1 / std::sqrt(o.squaredNorm() / static_cast<float>(V) + kEps);
      for (I j = 0; j < V; ++j) core(hv * V + j, t) = store(o[j] * scale * norm[j] * silu(gate_z(hv * V + j, t)));
    }
    for (I d = 0; ht && d < K; ++d) write(S.data() + d * V, ht, n * ht.stride[0] + hv * ht.stride[1] + d * ht.stride[2], ht.stride[3], V);
  });
  parallel_for(last, [&](I t) {
    const Vector row = core.col(t);
    const Vector result = out * row;
    write(result.data(), y, t * y.stride[0], y.stride[1], D);
  });
  return GDN_OK;
}

void destroy_layer(void* plan) { delete static_cast<LayerPlan*>(plan); }

constexpr LayerMethod kFp32{false, false, false}, kBf16{true, true, true};

template <const LayerMethod& method>
int create_with(const gdn_problem* problem, void** plan, char* message, std::size_t size) {
  return create_layer(method, problem, plan, message, size);
}

const gdn_kernel kLayerFp32{
    GDN_ABI_VERSION, GDN_DEVICE_CPU, sizeof(gdn_kernel), "cpu_layer_fp32", "the layer token by token in fp32 (Eigen)", "1", "", "fp32-recurrent",
    "ops=layer_prefill,layer_decode;io=fp32,bf16,fp16;state=fp32,bf16,fp16;gate=fp32,bf16,fp16;varlen;h0;ht;noht;empty;g_min=-inf;align=8;short_offsets;strides",
    "deterministic;shape_invariant;masks_select;steps_as_prefill", create_with<kFp32>, run_layer, destroy_layer};

const gdn_kernel kLayerBf16{
    GDN_ABI_VERSION, GDN_DEVICE_CPU, sizeof(gdn_kernel), "cpu_layer_bf16", "the layer token by token, bf16 in and out, fp32 inside but for the operand of the last projection, packed projections (Eigen)", "1",
    "projections=packed;history=full", "bf16-recurrent;core=bf16;normed=bf16",
    "ops=layer_prefill,layer_decode;io=bf16;state=fp32,bf16,fp16;gate=fp32,bf16,fp16;varlen;h0;ht;noht;empty;g_min=-inf;align=8;short_offsets;strides",
    "deterministic;shape_invariant;masks_select;steps_as_prefill", create_with<kBf16>, run_layer, destroy_layer};

const RegisterKernel fp32(&kLayerFp32), bf16(&kLayerBf16);

}  // namespace
}  // namespace gdn::cpu
