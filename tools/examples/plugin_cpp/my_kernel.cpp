// A Gated DeltaNet kernel as a plugin of GDN-CTS: the recurrence, token by token, in fp32. Replace `run` by yours.
#include <cmath>
#include <vector>

#include "gdn_kernel.h"

namespace {

float* data(const gdn_tensor* t) { return reinterpret_cast<float*>(static_cast<char*>(t->t.data) + t->t.byte_offset); }

int create(const gdn_problem*, void** plan, char*, size_t) {
  *plan = nullptr;                                 // a plan may hold workspaces
  return GDN_OK;
}

int run(void*, const gdn_call* call, char*, size_t) {
  const gdn_problem& p = *call->problem;
  const gdn_tensor *h0 = gdn_find(call, GDN_H0), *ht = gdn_find(call, GDN_HT), *lengths = gdn_find(call, GDN_CU_SEQLENS);
  const float *q = data(gdn_find(call, GDN_Q)), *k = data(gdn_find(call, GDN_K)), *v = data(gdn_find(call, GDN_V));
  const float *g = data(gdn_find(call, GDN_G)), *beta = data(gdn_find(call, GDN_BETA));
  float* o = data(gdn_find(call, GDN_O));
  const auto* offsets = reinterpret_cast<const int64_t*>(data(lengths));
  std::vector<float> S(p.K * p.V), y(p.V);
  for (int64_t n = 0; n < p.N; ++n)
    for (int64_t hv = 0; hv < p.HV; ++hv) {
      const int64_t state = (n * p.HV + hv) * p.K * p.V;
      for (int64_t i = 0; i < p.K * p.V; ++i) S[i] = h0 ? data(h0)[state + i] : 0.0f;
      for (int64_t t = offsets[n]; t < offsets[n + 1]; ++t) {
        const int64_t gate = t * p.HV + hv, key = (t * p.H + hv / (p.HV / p.H)) * p.K, value = gate * p.V;
        for (float& s : S) s *= std::exp(g[gate]);
        for (int64_t j = 0; j < p.V; ++j) {
          float r = 0, out = 0;
          for (int64_t i = 0; i < p.K; ++i) r += S[i * p.V + j] * k[key + i];
          y[j] = beta[gate] * (v[value + j] - r);
          for (int64_t i = 0; i < p.K; ++i) out += (S[i * p.V + j] += k[key + i] * y[j]) * q[key + i];
          o[value + j] = static_cast<float>(p.scale) * out;
        }
      }
      for (int64_t i = 0; ht && i < p.K * p.V; ++i) data(ht)[state + i] = S[i];
    }
  return GDN_OK;
}

void destroy(void*) {}

const gdn_kernel kernel = {GDN_ABI_VERSION, GDN_DEVICE_CPU, sizeof(gdn_kernel), "my_kernel", "an example", "1.0", "", "fp32-recurrent",
                           "ops=prefill;io=fp32;varlen;h0;ht;empty;g_min=-inf", "", create, run, destroy};

}  // namespace

const gdn_kernel* gdn_get_kernel(int32_t index) { return index == 0 ? &kernel : nullptr; }
