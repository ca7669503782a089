// Threads, strided tensors and dtypes of the CPU kernels; see driver.h.
#include "kernels/cpu/driver.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "kernels/cpu/convert.h"
#include "kernels/cpu/view.h"
#include "reference/parallel.h"

namespace gdn::cpu {
namespace {

constexpr std::align_val_t kLine{64};

bool per_channel(std::int32_t rule) { return rule == GDN_RULE_KDA || rule == GDN_RULE_COMPLEX_KDA; }
struct Release {
  void operator()(float* p) const { ::operator delete(p, kLine); }
};

struct Plan {
  gdn_problem problem;
  Method method;
  int threads = 1;
  std::int64_t group = 1;                          // value heads that a thread takes together
  std::size_t per_thread = 0;                      // floats
  std::int64_t snapshot_rows = 0;                  // of the call at hand
  std::unique_ptr<float, Release> memory;
};

struct Tensors {
  View q, k, v, g, beta, h0, o, ht, cu;
  View angle;                                      // of complex_kda
  View a, A_log, dt_bias;                          // raw gates, in place of g
  View slots, accepted, snapshots;                 // of decode and verify
};

// Row `row` of a tensor [rows,HV,K,V]: where a state is read from or goes to.
struct Place {
  View states;
  std::int64_t row = 0;
  std::int64_t at(std::int64_t hv, std::int64_t d) const { return states.at(row, hv) + d * states.stride[2]; }
};

void put_state(const float* S, const Place& to, std::int64_t hv, std::int64_t K, std::int64_t V) {
  for (std::int64_t d = 0; d < K; ++d) write(S + d * V, to.states, to.at(hv, d), to.states.stride[3], V);
}

// Rows first..last of `count` value heads from hv on, from the state at `start` (zero without one) to those at `ends`; with
// `snapshots` the state after every row is stored there. Block after block of all of them: so q and k are read, and multiplied,
// once for the value heads of a key head.
void some_heads(const Plan& plan, const Tensors& t, const Place& start, const std::vector<Place>& ends, bool snapshots, std::int64_t hv, std::int64_t count,
                std::int64_t first, std::int64_t last, float* memory) {
  const gdn_problem& p = plan.problem;
  const std::int64_t K = p.K, V = p.V, C = snapshots ? 1 : plan.method.rows, ratio = p.HV / p.H, gates = plan.method.channel_gate && per_channel(p.rule) ? K : 1;
  const auto part = [&](std::int64_t floats) {
    float* begin = memory;
    memory += aligned(floats);
    return begin;
  };
  // Rows of v are read and rows of o written once: where they are fp32 that is done in place.
  const bool v_in_place = t.v.rows_of_floats() && !plan.method.bf16_inputs, o_in_place = t.o.rows_of_floats() && !plan.method.bf16_output;
  float *states = part(count * K * V), *q = part(C * K), *k = part(C * K), *v = part(C * V), *g = part(C * gates), *beta = part(C), *o = part(C * V), *angle = part(t.angle ? C * (K / 2) : 0);
  for (std::int64_t i = 0; i < count * K; ++i) {
    float* row = states + i * V;
    if (start.states) read(row, start.states, start.at(hv + i / K, i % K), start.states.stride[3], V);
    else std::fill(row, row + V, 0.0f);
  }
  for (std::int64_t row = first; row < last; row += C) {
    const std::int64_t rows = std::min(C, last - row);
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t head = hv + i, h = head / ratio;
      const bool first_of_key = i == 0 || head % ratio == 0;
      for (std::int64_t r = 0; first_of_key && r < rows; ++r) {
        read(q + r * K, t.q, t.q.at(row + r, h), t.q.stride[2], K);
        read(k + r * K, t.k, t.k.at(row + r, h), t.k.stride[2], K);
      }
      if (first_of_key && plan.method.bf16_inputs)
        for (float* x : {q, k})
          for (std::int64_t j = 0; j < rows * K; ++j) x[j] = round_bf16(x[j]);
      float* S = states + i * K * V;
      for (std::int64_t r = 0; r < rows; ++r) {
        if (!v_in_place) read(v + r * V, t.v, t.v.at(row + r, head), t.v.stride[2], V);
        if (t.g && !t.angle) read(g + r * gates, t.g, t.g.at(row + r, head), gates > 1 ? t.g.stride[2] : 1, gates);
        if (t.angle) {                             // one gate for both channels of a pair
          read(g + r * K, t.g, t.g.at(row + r, head), t.g.stride[2], K / 2);
          for (std::int64_t d = K; d-- > 0;) g[r * K + d] = g[r * K + d / 2];
          read(angle + r * (K / 2), t.angle, t.angle.at(row + r, head), t.angle.stride[2], K / 2);
        }
        if (t.beta) read(beta + r, t.beta, t.beta.at(row + r, head), 1, 1);
      }
      if (t.a) {
        float rate, bias;
        read(&rate, t.A_log, head * t.A_log.stride[0], 1, 1);
        read(&bias, t.dt_bias, head * t.dt_bias.stride[0], 1, 1);
        for (std::int64_t r = 0; r < rows; ++r) {
          read(g + r, t.a, t.a.at(row + r, head), 1, 1);
          g[r] = raw_gate(g[r], rate, bias);
        }
      } else if (!t.g) {
        std::fill(g, g + rows * gates, 0.0f);
      }
      if (!t.beta) std::fill(beta, beta + rows, 1.0f);
      if (plan.method.bf16_inputs && !v_in_place)
        for (std::int64_t x = 0; x < rows * V; ++x) v[x] = round_bf16(v[x]);
      const bool delta = p.rule == GDN_RULE_GATED_DELTA || p.rule == GDN_RULE_DELTA || per_channel(p.rule);
      plan.method.block({rows, K, V, static_cast<float>(p.scale), delta, gates > 1, q, k, v_in_place ? t.v.floats(row, head) : v, g, beta, S, o_in_place ? t.o.floats(row, head) : o, memory,
                         t.angle ? angle : nullptr, !first_of_key, v_in_place ? t.v.stride[0] : V, o_in_place ? t.o.stride[0] : V});
      if (plan.method.bf16_output)
        for (std::int64_t x = 0; x < rows * V; ++x) o[x] = round_bf16(o[x]);
      for (std::int64_t r = 0; !o_in_place && r < rows; ++r) write(o + r * V, t.o, t.o.at(row + r, head), t.o.stride[2], V);
      if (snapshots) put_state(S, {t.snapshots, row}, head, K, V);
    }
  }
  for (std::int64_t i = 0; i < count; ++i)
    for (const Place& end : ends) put_state(states + i * K * V, end, hv + i, K, V);
}

// Sequence n of a call on a pool. After draft tokens it goes on from the snapshot of the last accepted one, which thereby
// becomes the state of its slot.
void one_pool_head(const Plan& plan, const Tensors& t, std::int64_t n, std::int64_t hv, float* memory) {
  const gdn_problem& p = plan.problem;
  const std::int64_t slot = integer(t.slots, n), drafts = t.snapshots ? plan.snapshot_rows / p.N : 0;
  if (slot < 0) return;
  const std::int64_t accepted = t.accepted ? integer(t.accepted, n) : 0, tokens = p.T / p.N;
  const Place pool{t.h0, slot}, start = accepted > 0 ? Place{t.snapshots, n * drafts + accepted - 1} : pool;
  const bool verify = p.operation == GDN_VERIFY;
  if (verify && accepted > 0) {
    some_heads(plan, t, start, {pool}, false, hv, 1, 0, 0, memory);     // commits
    some_heads(plan, t, pool, {}, true, hv, 1, n * tokens, (n + 1) * tokens, memory);
  } else {
    some_heads(plan, t, start, verify ? std::vector<Place>{} : std::vector<Place>{pool}, verify, hv, 1, n * tokens, (n + 1) * tokens, memory);
  }
}

std::size_t stage_floats(const Method& method, const gdn_problem& p) {
  const std::int64_t C = p.chunk, K = p.K, V = p.V;
  return static_cast<std::size_t>(aligned(K * V) + 4 * aligned(C * K) + 4 * aligned(C * V) + 2 * aligned(C * C) + 4 * aligned(C)) + method.workspace(C, K, V);
}

// All chunks of one value head of one sequence, the first of which is chunk `number` of the call.
struct StageTensors { View q, k, v, g, beta, G, L, M, W, U, Vn, states, h0, ht, out, more; };
void one_stage(const Plan& plan, const StageTensors& t, std::int64_t n, std::int64_t hv, std::int64_t first, std::int64_t last, std::int64_t number, float* memory) {
  const gdn_problem& p = plan.problem;
  const std::int64_t K = p.K, V = p.V, C = p.chunk, h = hv / (p.HV / p.H);
  const auto part = [&](std::int64_t floats) {
    float* begin = memory;
    memory += aligned(floats);
    return begin;
  };
  float *S = part(K * V), *q = part(C * K), *k = part(C * K), *W = part(C * K), *more = part(C * K), *v = part(C * V), *U = part(C * V), *Vn = part(C * V),
        *wide = part(C * V > C * C ? C * V : C * C), *square = part(C * C), *g = part(C), *beta = part(C), *G = part(C);
  const auto token = [&](float* to, const View& from, std::int64_t row, std::int64_t rows, std::int64_t head, std::int64_t width, std::int64_t stride) -> const float* {
    for (std::int64_t r = 0; from && r < rows; ++r) read(to + r * width, from, from.at(row + r, head), stride, width);
    return from ? to : nullptr;
  };
  const auto wide_token = [&](float* to, const View& from, std::int64_t row, std::int64_t rows, std::int64_t head, std::int64_t width) {
    return token(to, from, row, rows, head, width, from ? from.stride[2] : 1);
  };
  const auto read_state = [&](const View& from, std::int64_t row) {
    for (std::int64_t d = 0; d < K; ++d) read(S + d * V, from, from.at(row, hv) + d * from.stride[2], from.stride[3], V);
  };
  const bool states = p.stage == GDN_STAGE_NAME_CHUNK_STATES;
  if (states) {
    if (t.h0) read_state(t.h0, n);
    else std::fill(S, S + K * V, 0.0f);
  }
  for (std::int64_t row = first; row < last; row += C, ++number) {
    const std::int64_t rows = std::min(C, last - row);
    if (states) put_state(S, {t.out, number}, hv, K, V);
    else if (t.states) read_state(t.states, number);
    const StageBlock b{p.stage, C, rows, K, V, static_cast<float>(p.scale), wide_token(q, t.q, row, rows, h, K), wide_token(k, t.k, row, rows, h, K),
                 wide_token(v, t.v, row, rows, hv, V), token(g, t.g, row, rows, hv, 1, 1), token(beta, t.beta, row, rows, hv, 1, 1), token(G, t.G, row, rows, hv, 1, 1),
                 wide_token(square, t.L, row, rows, hv, rows), wide_token(square, t.M, row, rows, hv, rows), wide_token(W, t.W, row, rows, hv, K),
                 wide_token(U, t.U, row, rows, hv, V), wide_token(Vn, t.Vn, row, rows, hv, V), S, wide, more, memory};
    plan.method.stage(b);
    const bool triangle = p.stage == GDN_STAGE_NAME_GRAM || p.stage == GDN_STAGE_NAME_INVERSE, sums = p.stage == GDN_STAGE_NAME_GATE_SUM;
    const View& out = states ? t.more : t.out;     // Vn, after the states
    const std::int64_t width = triangle ? rows : sums ? 1 : V;
    for (std::int64_t r = 0; r < rows; ++r) {
      write(wide + r * width, out, out.at(row + r, hv), sums ? 1 : out.stride[2], width);
      if (triangle) {
        const float zero = 0;
        for (std::int64_t j = rows; j < C; ++j) write(&zero, out, out.at(row + r, hv) + j * out.stride[2], 1, 1);
      }
      if (p.stage == GDN_STAGE_NAME_UW) write(more + r * K, t.more, t.more.at(row + r, hv), t.more.stride[2], K);
    }
  }
  if (states && t.ht) put_state(S, {t.ht, n}, hv, K, V);
}

std::int64_t rows_of(const gdn_call* call, std::int32_t role) {
  const gdn_tensor* t = gdn_find(call, role);
  return t && t->t.ndim > 0 ? t->t.shape[0] : 0;
}

}  // namespace

int create(const Method& method, const gdn_problem* problem, void** plan, char* message, std::size_t size) {
  if (problem->struct_size < sizeof(gdn_problem)) return say(message, size, GDN_ERROR, "gdn_problem is too small");
  const gdn_problem& p = *problem;
  const bool pool = p.operation == GDN_DECODE || p.operation == GDN_VERIFY;
  const bool stages = p.operation == GDN_STAGES && method.stage;
  if (stages && (p.stage < GDN_STAGE_NAME_GATE_SUM || p.stage > GDN_STAGE_NAME_OUTPUT || p.chunk < 1 || p.chunk > 4096))
    return say(message, size, GDN_NOT_SUPPORTED, "no such stage, or its chunks have no size");
  if (p.operation != GDN_PREFILL && !(pool && method.pool) && !stages) return say(message, size, GDN_NOT_SUPPORTED, "this operation is not implemented");
  if (p.rule < GDN_RULE_GATED_DELTA || p.rule > GDN_RULE_COMPLEX_KDA || (per_channel(p.rule) && !method.channel_gate))
    return say(message, size, GDN_NOT_SUPPORTED, "this rule is not implemented");
  if (p.N < 1 || p.T < 0 || p.H < 1 || p.HV < 1 || p.HV % p.H || p.K < 1 || p.V < 1) return say(message, size, GDN_ERROR, "bad sizes");
  const std::int64_t K = p.K, V = p.V, C = method.rows, gates = per_channel(p.rule) ? K : 1;
  try {
    auto made = std::make_unique<Plan>();
    made->problem = p;
    made->method = method;
    made->threads = static_cast<int>(std::min<std::int64_t>(max_threads(), p.N * p.HV));
    // As many as leave two groups for every thread.
    for (const std::int64_t n : {2, 4})
      if (!pool && p.HV % n == 0 && p.N * p.HV / n >= 2 * made->threads) made->group = n;
    if (stages) made->per_thread = stage_floats(method, p);
    else made->per_thread = static_cast<std::size_t>(aligned(made->group * K * V) + 2 * aligned(C * K) + 2 * aligned(C * V) + aligned(C * gates) + aligned(C) + aligned(p.rule == GDN_RULE_COMPLEX_KDA ? C * (K / 2) : 0) +
                                                aligned(static_cast<std::int64_t>(method.workspace(C, K, V))));
    made->memory.reset(static_cast<float*>(::operator new(made->per_thread * static_cast<std::size_t>(made->threads) * sizeof(float), kLine)));
    *plan = made.release();
  } catch (const std::bad_alloc&) {
    return say(message, size, GDN_ERROR, "out of memory");
  }
  return GDN_OK;
}

namespace {

int run_stage(const Plan& plan, const gdn_call* call, char* message, std::size_t size) {
  const gdn_problem& p = plan.problem;
  const std::int64_t T = p.T, HV = p.HV, K = p.K, V = p.V, C = p.chunk;
  std::string why;
  const View cu = find(call, GDN_CU_SEQLENS, "cu_seqlens", {p.N + 1}, p.N > 1, true, why);
  if (!why.empty()) return say(message, size, GDN_ERROR, why);
  const std::vector<std::int64_t> offsets = offsets_of(cu, p.N, T);
  if (offsets.empty()) return say(message, size, GDN_ERROR, kBadOffsets);
  std::vector<std::int64_t> number{0};             // of the first chunk of each sequence
  for (std::int64_t n = 0; n < p.N; ++n)
    number.push_back(number.back() + (offsets[static_cast<std::size_t>(n) + 1] - offsets[static_cast<std::size_t>(n)] + C - 1) / C);
  StageTensors t;
  const auto need = [&](std::int32_t role, const char* name, const std::vector<std::int64_t>& shape) { return find(call, role, name, shape, true, false, why); };
  const std::vector<std::int64_t> of_key{T, p.H, K}, of_value{T, HV, V}, of_vector{T, HV, K}, of_chunk{T, HV, C}, of_gate{T, HV}, of_state{number.back(), HV, K, V};
  const std::int32_t s = p.stage;
  const bool gates = s == GDN_STAGE_NAME_GATE_SUM, gram = s == GDN_STAGE_NAME_GRAM, inverse = s == GDN_STAGE_NAME_INVERSE, uw = s == GDN_STAGE_NAME_UW,
             states = s == GDN_STAGE_NAME_CHUNK_STATES, output = s == GDN_STAGE_NAME_OUTPUT;
  if (output) t.q = need(GDN_Q, "q", of_key);
  if (!gates && !inverse) t.k = need(GDN_K, "k", of_key);
  if (uw) t.v = need(GDN_V, "v", of_value);
  if (gates) t.g = need(GDN_G, "g", of_gate);
  if (gram || uw) t.beta = need(GDN_BETA, "beta", of_gate);
  if (!gates && !inverse) t.G = need(GDN_STAGE_GSUM, "G", of_gate);
  if (inverse) t.L = need(GDN_STAGE_L, "L", of_chunk);
  if (uw) t.M = need(GDN_STAGE_M, "M", of_chunk);
  if (states) {
    t.W = need(GDN_STAGE_W, "W", of_vector);
    t.U = need(GDN_STAGE_U, "U", of_value);
    t.h0 = find(call, GDN_H0, "h0", {p.N, HV, K, V}, false, false, why);
    t.ht = find(call, GDN_HT, "ht", {p.N, HV, K, V}, false, false, why);
    t.out = need(GDN_STAGE_STATES, "states", of_state);
    t.more = need(GDN_STAGE_VN, "Vn", of_value);
  }
  if (output) {
    t.Vn = need(GDN_STAGE_VN, "Vn", of_value);
    t.states = need(GDN_STAGE_STATES, "states", of_state);
    t.out = need(GDN_O, "o", of_value);
  }
  if (gates) t.out = need(GDN_STAGE_GSUM, "G", of_gate);
  if (gram) t.out = need(GDN_STAGE_L, "L", of_chunk);
  if (inverse) t.out = need(GDN_STAGE_M, "M", of_chunk);
  if (uw) {
    t.out = need(GDN_STAGE_U, "U", of_value);
    t.more = need(GDN_STAGE_W, "W", of_vector);
  }
  if (!why.empty()) return say(message, size, GDN_ERROR, why);
  const auto head = [&](std::int64_t i, int thread) {
    const auto n = static_cast<std::size_t>(i / HV);
    one_stage(plan, t, i / HV, i % HV, offsets[n], offsets[n + 1], number[n], plan.memory.get() + plan.per_thread * static_cast<std::size_t>(thread));
  };
  parallel_for(p.N * HV, plan.threads, head, [] {});
  return GDN_OK;
}

}  // namespace

int run(void* opaque, const gdn_call* call, char* message, std::size_t size) {
  Plan& plan = *static_cast<Plan*>(opaque);
  const gdn_problem& p = plan.problem;
  if (p.operation == GDN_STAGES) return run_stage(plan, call, message, size);
  std::string why;
  Tensors t;
  t.q = find(call, GDN_Q, "q", {p.T, p.H, p.K}, true, false, why);
  t.k = find(call, GDN_K, "k", {p.T, p.H, p.K}, true, false, why);
  t.v = find(call, GDN_V, "v", {p.T, p.HV, p.V}, true, false, why);
  const bool gated = p.rule != GDN_RULE_DELTA && p.rule != GDN_RULE_LINEAR;
  if (gated && !per_channel(p.rule) && gdn_find(call, GDN_A)) {
    t.a = find(call, GDN_A, "a", {p.T, p.HV}, true, false, why);
    t.A_log = find(call, GDN_A_LOG, "A_log", {p.HV}, true, false, why);
    t.dt_bias = find(call, GDN_DT_BIAS, "dt_bias", {p.HV}, true, false, why);
  } else if (gated) {
    const bool complex = p.rule == GDN_RULE_COMPLEX_KDA;
    const std::vector<std::int64_t> many{p.T, p.HV, complex ? p.K / 2 : p.K};
    if (complex) t.angle = find(call, GDN_ANGLE, "angle", many, true, false, why);
    t.g = find(call, GDN_G, "g", per_channel(p.rule) ? many : std::vector<std::int64_t>{p.T, p.HV}, true, false, why);
  }
  const bool weighted = p.rule != GDN_RULE_RETENTION && p.rule != GDN_RULE_LINEAR;
  if (weighted) t.beta = find(call, GDN_BETA, "beta", {p.T, p.HV}, true, false, why);
  const bool pool = p.operation != GDN_PREFILL;
  const std::int64_t states = pool ? rows_of(call, GDN_H0) : p.N;
  t.h0 = find(call, GDN_H0, "h0", {states, p.HV, p.K, p.V}, pool, false, why);
  t.o = find(call, GDN_O, "o", {p.T, p.HV, p.V}, true, false, why);
  t.ht = find(call, GDN_HT, "ht", {p.N, p.HV, p.K, p.V}, false, false, why);
  t.cu = find(call, GDN_CU_SEQLENS, "cu_seqlens", {p.N + 1}, p.N > 1 && !pool, true, why);
  if (pool) {
    plan.snapshot_rows = rows_of(call, GDN_SNAPSHOTS);
    t.slots = find(call, GDN_STATE_INDICES, "state_indices", {p.N}, true, true, why);
    t.accepted = find(call, GDN_ACCEPTED, "accepted", {p.N}, p.operation == GDN_VERIFY, true, why);
    t.snapshots = find(call, GDN_SNAPSHOTS, "snapshots", {plan.snapshot_rows, p.HV, p.K, p.V}, p.operation == GDN_VERIFY || t.accepted, false, why);
    if (why.empty() && p.T % p.N) why = "rows of a batch differ in length";
    for (std::int64_t n = 0; why.empty() && n < p.N; ++n) {
      if (integer(t.slots, n) >= states) why = "a state index lies past the pool";
      if (t.accepted && integer(t.accepted, n) > plan.snapshot_rows / p.N) why = "more tokens are accepted than there were";
    }
  }
  if (!why.empty()) return say(message, size, GDN_ERROR, why);
  if (pool) {
    const auto row = [&](std::int64_t i, int thread) {
      one_pool_head(plan, t, i / p.HV, i % p.HV, plan.memory.get() + plan.per_thread * static_cast<std::size_t>(thread));
    };
    parallel_for(p.N * p.HV, plan.threads, row, [] {});
    return GDN_OK;
  }
  const std::vector<std::int64_t> offsets = offsets_of(t.cu, p.N, p.T);
  if (offsets.empty()) return say(message, size, GDN_ERROR, kBadOffsets);
  if (t.g) {
    std::vector<float> row(static_cast<std::size_t>(p.rule == GDN_RULE_KDA ? p.K : p.rule == GDN_RULE_COMPLEX_KDA ? p.K / 2 : 1));
    for (std::int64_t i = 0; i < offsets.back(); ++i)
      for (std::int64_t h = 0; h < p.HV; ++h) {
        read(row.data(), t.g, t.g.at(i, h), per_channel(p.rule) ? t.g.stride[2] : 1, static_cast<std::int64_t>(row.size()));
        if (std::any_of(row.begin(), row.end(), [](float g) { return g > 0 && g <= std::numeric_limits<float>::max(); })) return say(message, size, GDN_NOT_SUPPORTED, "a gate above 0");
      }
  }
  const std::int64_t groups = p.HV / plan.group;
  const auto heads = [&](std::int64_t i, int thread) {
    const auto n = static_cast<std::size_t>(i / groups);
    const Place start{t.h0, i / groups};
    const std::vector<Place> ends = t.ht ? std::vector<Place>{{t.ht, i / groups}} : std::vector<Place>{};
    some_heads(plan, t, start, ends, false, i % groups * plan.group, plan.group, offsets[n], offsets[n + 1], plan.memory.get() + plan.per_thread * static_cast<std::size_t>(thread));
  };
  parallel_for(p.N * groups, plan.threads, heads, [] {});
  return GDN_OK;
}

void destroy(void* plan) { delete static_cast<Plan*>(plan); }

}  // namespace gdn::cpu
