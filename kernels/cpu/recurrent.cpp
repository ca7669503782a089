// cpu_recurrent_fp32, cpu_recurrent_bf16: the recurrence token by token, S as rows of V floats. Every sum runs over key
// channels in order, so a number depends on nothing but its own row and column. With one gate per head it is
// recurrent_body.h; with a gate per key channel it is written down plainly below.
#define GDN_ISA portable
#include <Eigen/Core>
#include <algorithm>
#include <cmath>

#include "kernels/cpu/recurrent.h"
#include "kernels/cpu/recurrent_body.h"
#include "kernels/registry.h"

namespace gdn::cpu {
namespace {

using Row = Eigen::Map<Eigen::ArrayXf>;
using ConstRow = Eigen::Map<const Eigen::ArrayXf>;

}  // namespace

namespace portable {
const RecurrentFunctions kRecurrentFunctions{recurrent_rows, strip_floats};
}

namespace {

const RecurrentFunctions& best() {
#ifdef GDN_HAVE_AVX512
  static const bool avx512 = __builtin_cpu_supports("avx512f");
  if (avx512) return avx512::kRecurrentFunctions;
#endif
#ifdef GDN_HAVE_AVX2
  static const bool avx2 = __builtin_cpu_supports("avx2");
  if (avx2) return avx2::kRecurrentFunctions;
#endif
  return portable::kRecurrentFunctions;
}

void channel_gates(const Block& b) {
  const std::int64_t K = b.K, V = b.V;
  Row w(b.work, V), y(b.work + V, V);
  const auto S = [&](std::int64_t d) { return Row(b.S + d * V, V); };
  for (std::int64_t t = 0; t < b.rows; ++t) {
    const float *q = b.q + t * K, *k = b.k + t * K;
    for (std::int64_t d = 0; d < K; ++d) S(d) *= std::exp(b.g[t * K + d]);
    for (std::int64_t j = 0; b.angle && j < K / 2; ++j) {      // pairs of rows turned; w is free here
      const float c = std::cos(b.angle[t * (K / 2) + j]), s = std::sin(b.angle[t * (K / 2) + j]);
      w = c * S(2 * j) - s * S(2 * j + 1);
      S(2 * j + 1) = s * S(2 * j) + c * S(2 * j + 1);
      S(2 * j) = w;
    }

    y = ConstRow(b.v + t * b.ldv, V);
    w.setZero();
    std::int64_t d = 0;
    for (; d + 4 <= K; d += 4) w = (((w + k[d] * S(d)) + k[d + 1] * S(d + 1)) + k[d + 2] * S(d + 2)) + k[d + 3] * S(d + 3);
    for (; d < K; ++d) w += k[d] * S(d);
    y -= w;
    y *= b.beta[t];

    Row o(b.o + t * b.ldo, V);
    o.setZero();
    for (d = 0; d < K; ++d) {
      S(d) += k[d] * y;
      o += q[d] * S(d);
    }
    o *= b.scale;
  }
}

}  // namespace

std::size_t recurrent_workspace(std::int64_t, std::int64_t K, std::int64_t V) { return static_cast<std::size_t>(std::max(2 * V, best().floats(K))); }

void recurrent_block(const Block& b) {
  if (b.channel_gate || b.angle) channel_gates(b);
  else best().rows(b);
}

namespace {

constexpr Method kFp32{64, false, false, true, recurrent_workspace, recurrent_block, true};
constexpr Method kBf16{64, false, true, true, recurrent_workspace, recurrent_block, true};

template <const Method& method>
int create_with(const gdn_problem* problem, void** plan, char* message, std::size_t size) {
  return create(method, problem, plan, message, size);
}

const gdn_kernel kRecurrentFp32{
    GDN_ABI_VERSION, GDN_DEVICE_CPU, sizeof(gdn_kernel), "cpu_recurrent_fp32",
    "the recurrence token by token in fp32, over strips of value channels", "1", "", "fp32-recurrent",
    "ops=prefill,decode,verify;rules=gated_delta,delta,gated_linear,retention,linear,kda,complex_kda;io=fp32,bf16,fp16;state=fp32,bf16,fp16;"
    "gate=fp32,bf16,fp16;beta=fp32,bf16,fp16;varlen;h0;ht;noht;empty;raw_gates;g_min=-inf;beta_max=2;align=8;strides;short_offsets;refuses_growth;any_beta",
    "deterministic;shape_invariant;symmetric;masks_select;steps_as_prefill", create_with<kFp32>, run, destroy};

const gdn_kernel kRecurrentBf16{
    GDN_ABI_VERSION, GDN_DEVICE_CPU, sizeof(gdn_kernel), "cpu_recurrent_bf16",
    "the recurrence token by token, bf16 in and out, fp32 inside", "1", "", "bf16-recurrent",
    "ops=prefill,decode,verify;rules=gated_delta,delta,gated_linear,retention,linear,kda,complex_kda;io=bf16,fp32;state=fp32,bf16,fp16;"
    "gate=fp32,bf16,fp16;beta=fp32,bf16,fp16;varlen;h0;ht;noht;empty;raw_gates;g_min=-inf;beta_max=2;align=8;strides;short_offsets;refuses_growth;any_beta",
    "deterministic;shape_invariant;symmetric;masks_select;steps_as_prefill", create_with<kBf16>, run, destroy};

const RegisterKernel fp32(&kRecurrentFp32), bf16(&kRecurrentBf16);

}  // namespace
}  // namespace gdn::cpu
