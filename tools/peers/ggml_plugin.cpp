// ggml's operator gated_delta_net (the one behind llama.cpp) as a plugin, for gate and bench. Against ggml's public
// interface; ggml is not part of this project. Where it is built and installed:
//   g++ -O2 -std=c++17 -shared -fPIC -Ikernels -IGGML/include tools/peers/ggml_plugin.cpp -LGGML/lib -lggml-cpu -lggml-base -o libggml_plugin.so
//   gdn-cts verify --plugin ./libggml_plugin.so --profile core,varlen,decode --level ci
//
// The operator takes sequences of one length, so that every sequence of a call is a node of its graph. Tensors lie where the
// caller has them; only what comes out is copied, because ggml packs outputs and states into one tensor.
#include <algorithm>
#include <cstring>
#include <new>
#include <thread>
#include <vector>

#include "gdn_kernel.h"
#include "ggml-cpu.h"
#include "ggml.h"

namespace {

char* data(const gdn_tensor* t) { return static_cast<char*>(t->t.data) + t->t.byte_offset; }
int64_t integer(const gdn_tensor* t, int64_t i) {
  return t->t.dtype.bits == 32 ? reinterpret_cast<const int32_t*>(data(t))[i] : reinterpret_cast<const int64_t*>(data(t))[i];
}

// OMP_NUM_THREADS is how the suite says how many threads a kernel has.
int threads() {
  const char* said = std::getenv("OMP_NUM_THREADS");
  const int n = said ? std::atoi(said) : 0;
  return n > 0 ? n : static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
}

struct Sequence {
  int64_t first, tokens;
  const char* before;                              // state, or null
  char* after;                                     // or null
  ggml_tensor* out = nullptr;
};

struct Plan {
  std::vector<char> memory, workspace;
  std::vector<float> zeros;                        // a state
};

int create(const gdn_problem* p, void** plan, char*, size_t) {
  Plan* made = new (std::nothrow) Plan;
  if (!made) return GDN_ERROR;
  made->zeros.assign(static_cast<size_t>(p->HV * p->V * p->K), 0.0f);
  *plan = made;
  return GDN_OK;
}
void destroy(void* plan) { delete static_cast<Plan*>(plan); }

int run(void* opaque, const gdn_call* call, char*, size_t) {
  Plan& plan = *static_cast<Plan*>(opaque);
  const gdn_problem& p = *call->problem;
  const int64_t S = p.V, state_bytes = p.HV * S * S * 4;
  const gdn_tensor *h0 = gdn_find(call, GDN_H0), *ht = gdn_find(call, GDN_HT), *offsets = gdn_find(call, GDN_CU_SEQLENS), *slots = gdn_find(call, GDN_STATE_INDICES);
  std::vector<Sequence> all;
  for (int64_t n = 0; n < p.N; ++n) {
    if (p.operation == GDN_DECODE) {
      const int64_t slot = integer(slots, n);
      if (slot >= 0) all.push_back({n, 1, data(h0) + slot * state_bytes, data(h0) + slot * state_bytes});
      continue;
    }
    const int64_t first = integer(offsets, n), tokens = integer(offsets, n + 1) - first;
    const char* before = h0 ? data(h0) + n * state_bytes : reinterpret_cast<const char*>(plan.zeros.data());
    char* after = ht ? data(ht) + n * state_bytes : nullptr;
    if (tokens > 0) all.push_back({first, tokens, before, after});
    else if (after) std::memcpy(after, before, static_cast<size_t>(state_bytes));
  }
  if (all.empty()) return GDN_OK;

  size_t results = 0;
  for (const Sequence& s : all) results += static_cast<size_t>(s.tokens * p.HV * S * 4 + state_bytes) + 512;
  const size_t nodes = all.size(), needed = results + nodes * 8 * ggml_tensor_overhead() + ggml_graph_overhead_custom(8 * nodes + 64, false) + 4096;
  if (plan.memory.size() < needed) plan.memory.resize(needed);
  ggml_context* context = ggml_init({plan.memory.size(), plan.memory.data(), true});
  ggml_cgraph* graph = ggml_new_graph_custom(context, 8 * nodes + 64, false);
  char* result = plan.memory.data() + plan.memory.size() - results;
  const auto view = [&](std::int32_t role, int64_t width, int64_t heads, const Sequence& s) {
    ggml_tensor* t = ggml_new_tensor_4d(context, GGML_TYPE_F32, width, heads, s.tokens, 1);
    t->data = data(gdn_find(call, role)) + s.first * width * heads * 4;
    return t;
  };
  for (Sequence& s : all) {
    ggml_tensor* state = ggml_new_tensor_4d(context, GGML_TYPE_F32, S, S, p.HV, 1);
    state->data = const_cast<char*>(s.before);
    s.out = ggml_gated_delta_net(context, view(GDN_Q, p.K, p.H, s), view(GDN_K, p.K, p.H, s), view(GDN_V, S, p.HV, s), view(GDN_G, 1, p.HV, s),
                                 view(GDN_BETA, 1, p.HV, s), state, 1);
    result = reinterpret_cast<char*>((reinterpret_cast<uintptr_t>(result) + 63) / 64 * 64);
    s.out->data = result;
    result += ggml_nbytes(s.out);
    ggml_build_forward_expand(graph, s.out);
  }
  ggml_cplan work = ggml_graph_plan(graph, threads(), nullptr);
  if (plan.workspace.size() < work.work_size) plan.workspace.resize(work.work_size);
  work.work_data = reinterpret_cast<uint8_t*>(plan.workspace.data());
  const bool good = ggml_graph_compute(graph, &work) == GGML_STATUS_SUCCESS;
  const int64_t row = p.HV * S * 4;
  for (const Sequence& s : all) {
    std::memcpy(data(gdn_find(call, GDN_O)) + s.first * row, s.out->data, static_cast<size_t>(s.tokens * row));
    if (s.after) std::memcpy(s.after, static_cast<char*>(s.out->data) + s.tokens * row, static_cast<size_t>(state_bytes));
  }
  ggml_free(context);
  return good ? GDN_OK : GDN_ERROR;
}

const gdn_kernel kernel = {GDN_ABI_VERSION, GDN_DEVICE_CPU, sizeof(gdn_kernel), "ggml_gated_delta_net", "ggml's operator, its CPU backend", ggml_version(),
                           "state=VK;heads=tiled;scale=fixed", "fp32-recurrent", "ops=prefill,decode;io=fp32;varlen;h0;ht;noht;empty;equal_kv;g_min=-inf", "",
                           create, run, destroy};

}  // namespace

const gdn_kernel* gdn_get_kernel(int32_t index) { return index == 0 ? &kernel : nullptr; }
