// The fault bank as kernels of the C ABI, and as plain functions in double; see faults.h. Faults live in body.cpp.
#include "kernels/faulty/faults.h"

#include <omp.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <list>
#include <map>
#include <memory>
#include <stdexcept>
#include <utility>

#include "kernels/faulty/body.h"
#include "kernels/faulty/layer.h"
#include "kernels/faulty/stages.h"
#include "kernels/schedule.h"
#include "reference/format.h"
#include "reference/layer.h"
#include "reference/recurrence.h"
#include "reference/stages.h"

namespace gdn {
namespace {

using faulty::LayerView;
using faulty::Memory;
using faulty::Scalar;
using faulty::StageView;
using faulty::View;

constexpr Fault kNone{"none", "", 3, 0, "the algorithm without a fault", "the twin that must pass where a fault is caught"};
constexpr int kVariants = 4;                       // recurrent fp32, bf16; chunk fp32, bf16
constexpr const char* kVariantNames[kVariants] = {"recurrent-fp32", "recurrent-bf16", "chunk-fp32", "chunk-bf16"};
constexpr const char* kContracts[kVariants] = {"fp32-recurrent", "bf16-recurrent", "fp32-chunk;solve=block_inverse;block=64", "bf16-chunk;block=64"};
constexpr int kSlots = 2000;                       // room for 500 faults

int index_of(const Fault& f) {
  const auto& bank = faulty::table();
  for (std::size_t i = 0; i < bank.size(); ++i)
    if (std::strcmp(bank[i].name, f.name) == 0) return static_cast<int>(i);
  return -1;
}

void check_rule(Rule r, bool channels) {
  if (r != Rule::gated_delta && r != Rule::delta && !(channels && gate_per_key_channel(r)))
    throw std::invalid_argument(std::string("the fault bank knows no rule '") + name(r) + "'");
}

// ---- C ABI -----------------------------------------------------------------------------------------------------------

DType dtype_of(const gdn_dltensor& t) {
  switch (t.dtype.code) {
    case GDN_CODE_BFLOAT: return DType::bf16;
    case GDN_CODE_FLOAT: return t.dtype.bits == 64 ? DType::f64 : t.dtype.bits == 16 ? DType::f16 : DType::f32;
    case GDN_CODE_FLOAT8_E4M3FN: return DType::e4m3;
    case GDN_CODE_FLOAT8_E5M2: return DType::e5m2;
    default: return t.dtype.bits == 64 ? DType::i64 : DType::i32;
  }
}
Format format_of(DType t) {
  constexpr Format formats[] = {Format::fp64, Format::fp32, Format::fp16, Format::bf16, Format::fp8_e4m3, Format::fp8_e5m2};
  return formats[static_cast<int>(t)];
}

// Where element offsets of a call wrap, for the faults of short offsets.
thread_local std::int64_t offset_mask = -1;

std::int64_t elements(const gdn_dltensor& t) {
  std::int64_t n = 1;
  for (int d = 0; d < t.ndim; ++d) n *= t.shape[d];
  return n;
}

// f(i, bytes of element i) for every element, in row-major order of the shape.
template <class F>
void for_elements(const gdn_dltensor& t, std::size_t width, F f) {
  const std::int64_t count = elements(t), row = t.ndim ? t.shape[t.ndim - 1] : 1, step = t.ndim ? t.strides[t.ndim - 1] : 0;
  std::byte* const data = static_cast<std::byte*>(t.data) + t.byte_offset;
  for (std::int64_t i = 0; i < count; i += row) {
    std::int64_t first = 0, rest = i / row;
    for (int d = t.ndim - 2; d >= 0; --d) {
      first += rest % t.shape[d] * t.strides[d];
      rest /= t.shape[d];
    }
    for (std::int64_t j = 0; j < row; ++j) f(static_cast<std::size_t>(i + j), data + static_cast<std::size_t>((first + j * step) & offset_mask) * width);
  }
}

template <class E>
std::vector<E> read(const gdn_tensor* t) {
  if (!t) return {};
  const DType type = dtype_of(t->t);
  const std::size_t width = size_of(type);
  std::vector<E> out(static_cast<std::size_t>(elements(t->t)));
  for_elements(t->t, width, [&](std::size_t i, const std::byte* at) {
    if (type == DType::f32) {
      float x;
      std::memcpy(&x, at, 4);
      out[i] = static_cast<E>(x);
    } else {
      std::uint64_t bits = 0;
      std::memcpy(&bits, at, width);
      if (type == DType::i64) out[i] = static_cast<E>(static_cast<std::int64_t>(bits));
      else if (type == DType::i32) out[i] = static_cast<E>(static_cast<std::int32_t>(bits));
      else if (type == DType::bf16) out[i] = static_cast<E>(std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16));
      else out[i] = static_cast<E>(decode(bits, format_of(type)));
    }
  });
  return out;
}

// Stores the elements that were written.
template <class X, class Written>
void store(const gdn_dltensor& t, const X& x, const Written& written) {
  const DType type = dtype_of(t);
  const std::size_t width = size_of(type);
  for_elements(t, width, [&](std::size_t i, std::byte* at) {
    if (!written[i]) return;
    const double value = static_cast<double>(x[i]);
    const std::uint64_t bits = type == DType::f32 ? std::bit_cast<std::uint32_t>(static_cast<float>(value)) : encode(value, format_of(type));
    std::memcpy(at, &bits, width);
  });
}

// The tensors of a call in a view of a stage or of the layer, by name: inputs read, outputs there to be written.
template <class View, class Roles>
void open_view(View& x, const Roles& roles, const gdn_call* call) {
  for (const auto& [name, role] : roles)
    if (const gdn_tensor* t = gdn_find(call, role)) {
      if (!t->writable || role == GDN_CONV_STATE) x.in[name] = read<double>(t);
      if (!t->writable) continue;
      x.out[name].assign(static_cast<std::size_t>(elements(t->t)), 0.0);
      x.written[name].assign(x.out[name].size(), 0);
    }
}
template <class View, class Roles>
void store_view(const View& x, const Roles& roles, const gdn_call* call) {
  for (const auto& [name, role] : roles)
    if (const auto out = x.out.find(name); out != x.out.end()) store(gdn_find(call, role)->t, out->second, x.written.at(name));
}

struct Plan {
  int slot, fault;
  Form form;
  Scalar scalar;
};

// What faulty kernels keep from call to call, outside their plans, as wrappers with caches do.
std::map<int, Memory>& memories() {
  thread_local std::map<int, Memory> all;
  return all;
}

int say(char* message, std::size_t size, const char* text, int code) {
  if (message && size) std::snprintf(message, size, "%s", text);
  return code;
}

int create_variant(int slot, const gdn_problem* problem, void** plan, char* message, std::size_t size) {
  const bool pool = problem->operation == GDN_DECODE || problem->operation == GDN_VERIFY;
  const bool stages = problem->operation == GDN_STAGES && slot % kVariants >= 2;
  const bool layer = (problem->operation == GDN_LAYER_PREFILL || problem->operation == GDN_LAYER_DECODE) && slot % kVariants < 2;
  if (problem->operation != GDN_PREFILL && !(pool && slot % kVariants < 2) && !stages && !layer) return say(message, size, "only prefill, in the recurrent form decode and verify", GDN_NOT_SUPPORTED);
  const int variant = slot % kVariants;
  const bool channels = problem->rule == GDN_RULE_KDA || problem->rule == GDN_RULE_COMPLEX_KDA;
  if (problem->rule != GDN_RULE_GATED_DELTA && problem->rule != GDN_RULE_DELTA && !(channels && variant < 2))
    return say(message, size, "only the gated delta rule, in the recurrent form with gates per key channel as well", GDN_NOT_SUPPORTED);
  *plan = new Plan{slot, slot / kVariants - 1, variant < 2 ? Form::recurrent : Form::chunkwise,
                   variant % 2 ? Scalar::bf16 : Scalar::fp32};
  return GDN_OK;
}

constexpr std::string_view kInMemory[] = {"writes_past_the_end", "input_strides_taken_as_dense", "output_strides_taken_as_dense", "key_strides_of_query", "beta_strides_of_gate", "output_strides_of_value",
                                            "final_state_strides_of_initial", "vector_loads_aligned_down", "byte_offset_ignored", "element_offsets_in_31_bits", "element_offsets_in_32_bits"};

// Tensors of a call as a kernel sees them that takes strides or offsets for granted: the faults of kInMemory.
class SeenTensors {
 public:
  SeenTensors(const gdn_call* call, int fault) : call_(call), name_(fault < 0 ? "" : faulty::table()[static_cast<std::size_t>(fault)].name) {}
  std::string_view fault() const { return name_; }
  bool misread() const { return !seen_.empty() || offset_mask != -1; }
  const gdn_tensor* find(int role) {
    const gdn_tensor* t = gdn_find(call_, role);
    const bool dense = name_ == (t && t->writable ? "output_strides_taken_as_dense" : "input_strides_taken_as_dense");
    // Tensors of one shape, of which the second is addressed by the strides of the first.
    constexpr struct { std::string_view fault; int role, as; } pairs[] = {
        {"key_strides_of_query", GDN_K, GDN_Q}, {"beta_strides_of_gate", GDN_BETA, GDN_G}, {"output_strides_of_value", GDN_O, GDN_V}, {"final_state_strides_of_initial", GDN_HT, GDN_H0}};
    for (const auto& pair : pairs)
      if (const gdn_tensor* as = gdn_find(call_, pair.as); t && as && pair.fault == name_ && pair.role == role && t->t.ndim == as->t.ndim) {
        Seen& s = seen_.emplace_back(Seen{*t, {}});
        s.tensor.t.strides = as->t.strides;
        return &s.tensor;
      }
    if (t && name_ == "vector_loads_aligned_down" && !t->writable && t->t.dtype.code != GDN_CODE_INT)
      if (const std::uintptr_t past = (reinterpret_cast<std::uintptr_t>(t->t.data) + t->t.byte_offset) % 16) {
        Seen& s = seen_.emplace_back(Seen{*t, {}});
        s.tensor.t.data = static_cast<std::byte*>(t->t.data) - past;
        return &s.tensor;
      }
    if (!t || !(dense || (name_ == "byte_offset_ignored" && t->t.byte_offset))) return t;
    std::vector<std::int64_t> strides(static_cast<std::size_t>(t->t.ndim), 1);
    for (std::size_t d = strides.size(); d-- > 1;) strides[d - 1] = strides[d] * t->t.shape[d];
    if (dense && std::equal(strides.begin(), strides.end(), t->t.strides)) return t;
    Seen& s = seen_.emplace_back(Seen{*t, std::move(strides)});
    if (dense) s.tensor.t.strides = s.strides.data();
    else s.tensor.t.byte_offset = 0;
    return &s.tensor;
  }

 private:
  struct Seen {
    gdn_tensor tensor;
    std::vector<std::int64_t> strides;
  };
  const gdn_call* call_;
  const std::string_view name_;
  std::list<Seen> seen_;
};

const Fault* fault_at(int index) { return index < 0 ? nullptr : &faulty::table()[static_cast<std::size_t>(index)]; }

int run_stage(const Plan& p, const gdn_call* call, char* message, std::size_t size) {
  constexpr std::pair<const char*, int> kRoles[] = {{"q", GDN_Q}, {"k", GDN_K}, {"v", GDN_V}, {"g", GDN_G}, {"beta", GDN_BETA}, {"h0", GDN_H0}, {"G", GDN_STAGE_GSUM},
                                                    {"L", GDN_STAGE_L}, {"M", GDN_STAGE_M}, {"U", GDN_STAGE_U}, {"W", GDN_STAGE_W}, {"Vn", GDN_STAGE_VN},
                                                    {"states", GDN_STAGE_STATES}, {"ht", GDN_HT}, {"o", GDN_O}};
  const gdn_problem& problem = *call->problem;
  StageView x;
  x.stage = static_cast<Stage>(problem.stage);
  x.N = problem.N;
  x.H = problem.H;
  x.HV = problem.HV;
  x.K = problem.K;
  x.V = problem.V;
  x.chunk = problem.chunk;
  x.scale = problem.scale;
  x.cu = read<std::int64_t>(gdn_find(call, GDN_CU_SEQLENS));
  if (x.cu.empty()) return say(message, size, "cu_seqlens is needed", GDN_ERROR);
  open_view(x, kRoles, call);
  faulty::execute_stage(fault_at(p.fault), p.scalar, x);
  store_view(x, kRoles, call);
  return GDN_OK;
}

int run_layer(const Plan& p, const gdn_call* call, char* message, std::size_t size) {
  constexpr std::pair<const char*, int> kRoles[] = {{"x", GDN_X}, {"norm_in_w", GDN_NORM_IN_W}, {"w_qkv", GDN_W_QKV}, {"w_z", GDN_W_Z}, {"w_a", GDN_W_A}, {"w_b", GDN_W_B},
                                                    {"w_conv", GDN_W_CONV}, {"w_out", GDN_W_OUT}, {"norm_w", GDN_NORM_W}, {"A_log", GDN_A_LOG}, {"dt_bias", GDN_DT_BIAS},
                                                    {"conv_state", GDN_CONV_STATE}, {"h0", GDN_H0}, {"ht", GDN_HT}, {"y", GDN_Y}};
  const gdn_problem& problem = *call->problem;
  LayerView x;
  x.N = problem.N;
  x.H = problem.H;
  x.HV = problem.HV;
  x.K = problem.K;
  x.V = problem.V;
  x.hidden = problem.hidden;
  x.conv = problem.conv;
  x.l2 = static_cast<L2Form>(problem.l2norm);
  x.scale = problem.scale;
  x.cu = read<std::int64_t>(gdn_find(call, GDN_CU_SEQLENS));
  if (x.cu.empty()) return say(message, size, "cu_seqlens is needed", GDN_ERROR);
  open_view(x, kRoles, call);
  faulty::execute_layer(fault_at(p.fault), p.scalar, x);
  store_view(x, kRoles, call);
  return GDN_OK;
}

int run_plan(void* plan, const gdn_call* call, char* message, std::size_t size) {
  Plan& p = *static_cast<Plan*>(plan);
  if (call->problem->operation == GDN_STAGES) return run_stage(p, call, message, size);
  if (call->problem->operation == GDN_LAYER_PREFILL || call->problem->operation == GDN_LAYER_DECODE) return run_layer(p, call, message, size);
  SeenTensors tensors(call, p.fault);
  struct Wrap {
    explicit Wrap(std::string_view fault) { offset_mask = fault == "element_offsets_in_31_bits" ? std::int64_t{0x7fffffff} : fault == "element_offsets_in_32_bits" ? std::int64_t{0xffffffff} : -1; }
    ~Wrap() { offset_mask = -1; }
  } const wrap(tensors.fault());
  const gdn_problem& problem = *call->problem;
  const bool pool = problem.operation != GDN_PREFILL;
  const gdn_tensor *q = tensors.find(GDN_Q), *o = tensors.find(GDN_O), *ht = tensors.find(pool ? GDN_H0 : GDN_HT), *cu = tensors.find(GDN_CU_SEQLENS);
  const gdn_tensor *indices = tensors.find(GDN_STATE_INDICES), *snapshots = tensors.find(GDN_SNAPSHOTS);
  if (!q || !o || !cu) return say(message, size, "q, o and cu_seqlens are needed", GDN_ERROR);
  View x;
  x.N = problem.N;
  x.rows = q->t.shape[0];
  x.H = problem.H;
  x.HV = problem.HV;
  x.K = problem.K;
  x.V = problem.V;
  x.scale = problem.scale;
  x.io = dtype_of(o->t);
  x.want_ht = ht != nullptr;
  if (ht) x.state = dtype_of(ht->t);
  x.cu = read<std::int64_t>(cu);
  // What a misread tensor of offsets holds may be anything; nothing is allocated by it.
  if (x.cu[0] < 0 || x.cu.back() > x.rows || !std::is_sorted(x.cu.begin(), x.cu.end())) return say(message, size, "offsets outside the tensors", GDN_ERROR);
  x.short_offsets = dtype_of(cu->t) == DType::i32;
  x.threads = std::max(1, omp_get_max_threads());   // what this call was given, in a loop of the suite too
  x.q = read<float>(q);
  if (const gdn_tensor* g = tensors.find(GDN_G)) x.gate = dtype_of(g->t);
  x.k = read<float>(tensors.find(GDN_K));
  x.v = read<float>(tensors.find(GDN_V));
  x.g = read<float>(tensors.find(GDN_G));
  x.angle = read<float>(tensors.find(GDN_ANGLE));
  x.gate_width = problem.rule == GDN_RULE_KDA ? problem.K : problem.rule == GDN_RULE_COMPLEX_KDA ? problem.K / 2 : 0;
  x.beta = read<float>(tensors.find(GDN_BETA));
  x.a = read<float>(tensors.find(GDN_A));
  x.A_log = read<float>(tensors.find(GDN_A_LOG));
  x.dt_bias = read<float>(tensors.find(GDN_DT_BIAS));
  const bool accepts = tensors.misread() || tensors.fault() == "positive_gate_accepted";
  for (std::int64_t i = 0; i < x.cu.back() * x.HV && !accepts && !x.g.empty(); ++i)
    if (x.g[static_cast<std::size_t>(i)] > 0 && std::isfinite(x.g[static_cast<std::size_t>(i)])) return say(message, size, "a gate above 0", GDN_NOT_SUPPORTED);
  x.h0 = read<double>(tensors.find(GDN_H0));
  if (pool) {
    if (!indices || !ht) return say(message, size, "state_indices and the pool are needed", GDN_ERROR);
    x.pool = true;
    x.verify = problem.operation == GDN_VERIFY;
    x.slots = ht->t.shape[0];
    x.indices = read<std::int64_t>(indices);
    x.accepted = read<std::int64_t>(tensors.find(GDN_ACCEPTED));
    if (snapshots) {
      x.drafts = snapshots->t.shape[0] / x.N;
      x.before = read<double>(snapshots);
    }
    if (x.verify) {
      x.snapshots.assign(static_cast<std::size_t>(elements(snapshots->t)), 0.0);
      x.snapshots_written.assign(x.snapshots.size(), 0);
    }
  }
  x.o.assign(static_cast<std::size_t>(elements(o->t)), 0.0);
  x.o_written.assign(x.o.size(), 0);
  if (ht) {
    if (pool) x.ht = x.h0;                         // in place
    else x.ht.assign(static_cast<std::size_t>(elements(ht->t)), 0.0);
    x.ht_written.assign(x.ht.size(), 0);
  }
  try {
    faulty::execute(p.fault, p.form, p.scalar, x, memories()[p.slot]);
  } catch (const std::exception& e) {
    return say(message, size, e.what(), GDN_ERROR);
  }
  store(o->t, x.o, x.o_written);
  if (ht) store(ht->t, x.ht, x.ht_written);
  if (!x.snapshots.empty()) store(snapshots->t, x.snapshots, x.snapshots_written);
  if (x.input_changed) store(q->t, x.q, std::vector<char>(x.q.size(), 1));
  if (x.overrun) {
    const std::size_t width = size_of(x.io);
    std::memset(static_cast<std::byte*>(o->t.data) + o->t.byte_offset + x.o.size() * width, 0, static_cast<std::size_t>(x.overrun) * width);
  }
  return GDN_OK;
}

void destroy_plan(void* plan) { delete static_cast<Plan*>(plan); }

// create() knows only its own address, so every variant of every fault has one.
template <int slot>
int create_slot(const gdn_problem* problem, void** plan, char* message, std::size_t size) {
  return create_variant(slot, problem, plan, message, size);
}
using Create = int (*)(const gdn_problem*, void**, char*, std::size_t);
template <int... slots>
constexpr std::array<Create, sizeof...(slots)> creators(std::integer_sequence<int, slots...>) {
  return {&create_slot<slots>...};
}

struct Objects {
  std::map<std::string, gdn_kernel, std::less<>> kernels;
  std::map<std::string, std::array<std::string, 2>, std::less<>> texts;

  Objects() {
    static constexpr auto create = creators(std::make_integer_sequence<int, kSlots>{});
    add(kNone, 0, create.data());
    const auto& bank = faulty::table();
    if ((bank.size() + 1) * kVariants > kSlots) throw std::logic_error("kSlots is too small for the fault bank");
    for (std::size_t i = 0; i < bank.size(); ++i) add(bank[i], (static_cast<int>(i) + 1) * kVariants, create.data());
  }
  void add(const Fault& f, int slot, const Create* create) {
    for (int variant = 0; variant < kVariants; ++variant) {
      if (!f.has(variant < 2 ? Form::recurrent : Form::chunkwise)) continue;
      const std::string name = std::string("faulty/") + f.name + "/" + kVariantNames[variant];
      auto& text = texts[name];
      text = {name, std::string(variant % 2 ? "io=bf16" : "io=fp32,bf16,fp16") + (variant < 2 ? ";ops=prefill,decode,verify,layer_prefill,layer_decode" : ";ops=prefill,stages;stages=gate_sum,gram,inverse,uw,chunk_states,output;chunks=16,32,64,128") + ";rules=gated_delta,delta" + (variant < 2 ? ",kda,complex_kda" : "") + ";state=fp32,bf16,fp16;gate=fp32,bf16,fp16;beta=fp32,bf16,fp16;varlen;h0;ht;noht;empty;raw_gates;beta_max=2;strides;short_offsets;refuses_growth;any_beta;align=4"};
      gdn_kernel k{};
      k.abi_version = GDN_ABI_VERSION;
      k.device = GDN_DEVICE_CPU;
      k.struct_size = sizeof k;
      k.name = text[0].c_str();
      k.description = f.mechanism;
      k.version = "1";
      k.convention = "";
      k.contract = kContracts[variant];
      k.capabilities = text[1].c_str();
      k.properties = variant < 2 ? "deterministic;shape_invariant;symmetric;masks_select;steps_as_prefill" : "deterministic;shape_invariant;symmetric;masks_select";
      k.create = create[slot + variant];
      k.run = run_plan;
      k.destroy = destroy_plan;
      kernels.emplace(name, k);
    }
  }
};
const Objects& objects() {
  static const Objects all;
  return all;
}

// ---- plain functions in double ---------------------------------------------------------------------------------------

Execution execute_plain(const Fault& f, Form form, Scalar scalar, const Run& run, Memory& memory) {
  const Problem& p = run.problem;
  View x;
  x.N = p.sequences();
  x.H = p.heads;
  x.HV = p.value_heads;
  x.K = p.key_dim;
  x.V = p.value_dim;
  x.rows = p.tokens() + p.padding;
  x.scale = p.effective_scale();
  x.io = p.io;
  x.state = p.state;
  x.gate = p.gate;
  x.short_offsets = p.short_offsets;
  x.threads = std::max(1, run.threads);
  x.want_ht = p.final_state;
  x.cu = p.offsets();
  auto get = [&]<class E>(const char* name, std::vector<E>& to) {
    const auto t = run.inputs.find(name);
    if (t == run.inputs.end()) return;
    to.resize(static_cast<std::size_t>(t->second.size()));
    for (std::size_t i = 0; i < to.size(); ++i) to[i] = static_cast<E>(t->second.at(static_cast<std::int64_t>(i)));
  };
  get("q", x.q);
  get("k", x.k);
  get("v", x.v);
  get("g", x.g);
  get("beta", x.beta);
  get("angle", x.angle);
  x.gate_width = gate_per_key_channel(p.rule) ? p.gate_width() : 0;
  get("a", x.a);
  get("A_log", x.A_log);
  get("dt_bias", x.dt_bias);
  if (p.initial_state) get("h0", x.h0);
  if (p.pool()) {
    x.pool = true;
    x.verify = p.operation == Operation::verify;
    x.slots = p.slots;
    x.drafts = p.draft;
    get("state_indices", x.indices);
    get("accepted", x.accepted);
    get("snapshots", x.before);
  }
  if (x.verify) {
    x.snapshots.assign(static_cast<std::size_t>(x.rows * x.HV * x.K * x.V), 0.0);
    x.snapshots_written.assign(x.snapshots.size(), 0);
    if (x.before.empty()) x.before.assign(x.snapshots.size(), std::numeric_limits<double>::quiet_NaN());   // what a first call finds there
  }
  x.o.assign(static_cast<std::size_t>(x.rows * x.HV * x.V), 0.0);
  x.o_written.assign(x.o.size(), 0);
  if (x.want_ht) {
    x.ht.assign(static_cast<std::size_t>(p.states() * x.HV * x.K * x.V), 0.0);
    x.ht_written.assign(x.ht.size(), 0);
    if (p.pool()) {                                // in place
      x.ht = x.h0;
      x.ht_written.assign(x.ht.size(), 1);
    }
  }
  Execution e;
  try {
    faulty::execute(index_of(f), form, scalar, x, memory);
  } catch (const std::runtime_error& error) {
    std::fill(x.o_written.begin(), x.o_written.end(), 0);
    std::fill(x.ht_written.begin(), x.ht_written.end(), 0);
    e.message = error.what();
  }
  auto give = [&](const char* name, std::vector<std::int64_t> shape, const std::vector<double>& values, const std::vector<std::uint8_t>& written) {
    Tensor t(DType::f64, std::move(shape));
    // States of 16 bits are handed on as they are stored; in double nothing is rounded.
    const bool narrow = scalar != Scalar::fp64 && std::string_view(name) != "o" && p.state != DType::f32;
    for (std::size_t i = 0; i < values.size(); ++i)
      t.set(static_cast<std::int64_t>(i), !written[i] ? std::numeric_limits<double>::quiet_NaN() : narrow ? round_to(values[i], Store{format_of(p.state)}) : values[i]);
    e.outputs.emplace(name, std::move(t));
  };
  if (x.overrun > 0) e.violations.push_back("wrote past the end of o");
  if (x.input_changed) e.violations.push_back("input q changed");
  give("o", {x.rows, x.HV, x.V}, x.o, x.o_written);
  if (x.want_ht) give("ht", {p.states(), x.HV, x.K, x.V}, x.ht, x.ht_written);
  if (x.verify) give("snapshots", {x.rows, x.HV, x.K, x.V}, x.snapshots, x.snapshots_written);
  return e;
}

TensorSet stage_exact(const Fault& f, const Run& run) {
  const Problem& p = run.problem;
  StageView x;
  x.stage = p.stage;
  x.N = p.sequences();
  x.H = p.heads;
  x.HV = p.value_heads;
  x.K = p.key_dim;
  x.V = p.value_dim;
  x.chunk = p.chunk;
  x.scale = p.effective_scale();
  x.cu = p.offsets();
  for (const auto& [name, t] : run.inputs)
    for (std::int64_t i = 0; i < t.size(); ++i) x.in[name].push_back(t.at(i));
  TensorSet outputs;
  for (const StageTensor& o : stage_outputs(p)) {
    Tensor& t = outputs[o.name] = Tensor(DType::f64, o.shape);
    x.out[o.name].assign(static_cast<std::size_t>(t.size()), 0.0);
    x.written[o.name].assign(x.out[o.name].size(), 0);
  }
  faulty::execute_stage(&f, Scalar::fp64, x);
  for (auto& [name, t] : outputs)
    for (std::int64_t i = 0; i < t.size(); ++i)
      t.set(i, x.written.at(name)[static_cast<std::size_t>(i)] ? x.out.at(name)[static_cast<std::size_t>(i)] : std::numeric_limits<double>::quiet_NaN());
  return outputs;
}

Execution layer_exact(const Fault& f, const Run& run) {
  const Problem& p = run.problem;
  LayerView x;
  x.N = p.sequences();
  x.H = p.heads;
  x.HV = p.value_heads;
  x.K = p.key_dim;
  x.V = p.value_dim;
  x.hidden = p.hidden;
  x.conv = p.conv;
  x.l2 = p.l2;
  x.scale = p.effective_scale();
  x.cu = p.offsets();
  for (const auto& [name, t] : run.inputs)
    for (std::int64_t i = 0; i < t.size() && is_floating(t.dtype); ++i) x.in[name].push_back(t.at(i));
  if (p.conv == 1) x.in["conv_state"];             // no columns
  Execution e;
  for (const StageTensor& o : layer_outputs(p)) {
    Tensor& t = e.outputs[o.name] = Tensor(DType::f64, o.shape);
    x.out[o.name].assign(static_cast<std::size_t>(t.size()), 0.0);
    x.written[o.name].assign(x.out[o.name].size(), 0);
    if (const auto in = x.in.find(o.name); in != x.in.end()) {     // in place
      x.out[o.name] = in->second;
      x.written[o.name].assign(in->second.size(), 1);
    }
  }
  faulty::execute_layer(&f, Scalar::fp64, x);
  for (auto& [name, t] : e.outputs)
    for (std::int64_t i = 0; i < t.size(); ++i)
      t.set(i, x.written.at(name)[static_cast<std::size_t>(i)] ? x.out.at(name)[static_cast<std::size_t>(i)] : std::numeric_limits<double>::quiet_NaN());
  return e;
}

}  // namespace

bool concerns(const Fault& f, const Problem& p) {
  return f.stage == (p.operation == Operation::stages ? static_cast<int>(p.stage) : p.layer() ? kLayerFault : gate_per_key_channel(p.rule) ? kChannelFault : -1);
}

bool misreads_memory(const Fault& f) { return std::find(std::begin(kInMemory), std::end(kInMemory), std::string_view(f.name)) != std::end(kInMemory); }

const std::vector<Fault>& fault_bank() { return faulty::table(); }

const Fault* find_fault(std::string_view name) {
  if (name == kNone.name) return &kNone;
  for (const Fault& f : faulty::table())
    if (name == f.name) return &f;
  return nullptr;
}

const gdn_kernel* faulty_kernel(const Fault& fault, Form form, FaultScalar scalar) {
  const int variant = (form == Form::recurrent ? 0 : 2) + (scalar == FaultScalar::bf16 ? 1 : 0);
  return find_faulty_kernel(std::string("faulty/") + fault.name + "/" + kVariantNames[variant]);
}

const gdn_kernel* find_faulty_kernel(std::string_view name) {
  const auto found = objects().kernels.find(name);
  return found == objects().kernels.end() ? nullptr : &found->second;
}

void forget_calls() { memories().clear(); }

TensorSet run_fault(const Fault& fault, Form form, const Run& run) { return run_fault(fault, form, std::span(&run, 1))[0].outputs; }

std::vector<Execution> run_fault(const Fault& fault, Form form, std::span<const Run> runs, FaultScalar scalar) {
  Memory memory;
  std::vector<Execution> all;
  for (const Run& run : runs) {
    check_rule(run.problem.rule, form == Form::recurrent);
    if (run.problem.operation == Operation::stages) all.emplace_back().outputs = stage_exact(fault, run);
    else if (run.problem.layer()) all.push_back(run_schedule(run, [&](const Run& call) { return layer_exact(fault, call); }));
    else all.push_back(run_schedule(run, [&](const Run& call) { return execute_plain(fault, form, scalar, call, memory); }));
  }
  return all;
}

HeadResult run_fault(const Fault& fault, Form form, const HeadInputs& in) {
  check_rule(in.rule, false);
  View x;
  x.rows = in.T;
  x.K = in.K;
  x.V = in.V;
  x.scale = in.scale;
  x.cu = {0, in.T};
  x.q = in.q;
  x.k = in.k;
  x.v = in.v;
  x.g = in.g;
  x.beta = in.beta;
  x.a = in.a;
  if (!in.a.empty()) {
    x.A_log = {in.A_log};
    x.dt_bias = {in.dt_bias};
  }
  x.h0.assign(in.h0.begin(), in.h0.end());
  x.o.assign(static_cast<std::size_t>(in.T * in.V), 0.0);
  x.ht.assign(static_cast<std::size_t>(in.K * in.V), 0.0);
  x.o_written.assign(x.o.size(), 0);
  x.ht_written.assign(x.ht.size(), 0);
  Memory memory;
  faulty::execute(index_of(fault), form, Scalar::fp64, x, memory);
  for (std::size_t i = 0; i < x.o.size(); ++i)
    if (!x.o_written[i]) x.o[i] = std::numeric_limits<double>::quiet_NaN();
  for (std::size_t i = 0; i < x.ht.size(); ++i)
    if (!x.ht_written[i]) x.ht[i] = std::numeric_limits<double>::quiet_NaN();
  return {std::move(x.o), std::move(x.ht)};
}

}  // namespace gdn
