/* gdn_kernel.h: the C ABI between GDN-CTS and a kernel. C99; compiles alone in C and C++.
 *
 * A plugin is a shared library that exports  const gdn_kernel* gdn_get_kernel(int32_t index)  and returns its
 * index-th kernel, NULL past the last. Nothing else of GDN-CTS is needed.
 *
 * Versioning: GDN_ABI_VERSION grows by one with every incompatible change. Every struct starts with its own
 * size, so that fields may be added at the end; a reader never looks past struct_size.
 */
#ifndef GDN_KERNEL_H
#define GDN_KERNEL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define GDN_ABI_VERSION 1

#if defined(_WIN32)
#define GDN_EXPORT __declspec(dllexport)
#elif defined(__GNUC__)
#define GDN_EXPORT __attribute__((visibility("default")))
#else
#define GDN_EXPORT
#endif

/* Tensors in the field order of DLPack 1.x (device type 1 = CPU, 2 = CUDA; dtype codes as DLPack 1.1 numbers
 * them, lanes always 1). strides always given, in elements. */
typedef struct { int32_t device_type; int32_t device_id; } gdn_device;
typedef struct { uint8_t code; uint8_t bits; uint16_t lanes; } gdn_dtype;
enum { GDN_DEVICE_CPU = 1, GDN_DEVICE_CUDA = 2 };
enum { GDN_CODE_INT = 0, GDN_CODE_FLOAT = 2, GDN_CODE_BFLOAT = 4, GDN_CODE_FLOAT8_E4M3FN = 10, GDN_CODE_FLOAT8_E5M2 = 12 };
typedef struct {
  void* data;
  gdn_device device;
  int32_t ndim;
  gdn_dtype dtype;
  int64_t* shape;
  int64_t* strides;
  uint64_t byte_offset;
} gdn_dltensor;

/* What a tensor is. Canonical shapes; a kernel that declares another convention gets them converted.
 * T tokens of all N sequences packed (buffers may be longer than cu_seqlens[N]), H key heads, HV value heads. */
typedef enum {
  GDN_Q = 0,            /* [T,H,K]    */
  GDN_K = 1,            /* [T,H,K]    */
  GDN_V = 2,            /* [T,HV,V]   */
  GDN_G = 3,            /* [T,HV] natural-log decay, -inf..0 (rule kda: [T,HV,K]; complex_kda: [T,HV,K/2], one per pair of key channels) */
  GDN_BETA = 4,         /* [T,HV]     */
  GDN_H0 = 5,           /* [N,HV,K,V] initial state; absent: zero. decode, verify: the pool [slots,HV,K,V], changed in place */
  GDN_CU_SEQLENS = 6,   /* [N+1] int32 or int64 */
  GDN_A = 7,            /* [T,HV] raw gate, in place of GDN_G: g = -exp(A_log) softplus(a + dt_bias); in the gate's dtype */
  GDN_A_LOG = 8,        /* [HV] fp32  */
  GDN_DT_BIAS = 9,      /* [HV] fp32  */
  GDN_ANGLE = 14,       /* complex_kda: [T,HV,K/2] radians, in the gate's dtype: key channels 2j and 2j+1 of the state, as real and imaginary part, are
                           multiplied by e^(g + i angle) */
  /* decode, verify (accuracy standard 1.8): rows n of T/N tokens each; no GDN_HT */
  GDN_STATE_INDICES = 10, /* [N] int32, slot of each row; -1: the row has no sequence, skip it */
  GDN_ACCEPTED = 11,    /* [N] int32, draft tokens of the call before that are kept: a > 0: go on from snapshot a - 1 of the row
                           and make it the state of its slot. Always in verify; in decode only after a verify call */
  GDN_DO = 12,          /* backward: gradient of o    */
  GDN_DHT = 13,         /* backward: gradient of ht   */
  /* layer operations */
  GDN_X = 20,           /* [T,hidden] */
  GDN_NORM_IN_W = 21, GDN_W_QKV = 22, GDN_W_Z = 23, GDN_W_A = 24, GDN_W_B = 25, GDN_W_CONV = 26, GDN_W_OUT = 27,
  GDN_NORM_W = 28, GDN_CONV_STATE = 29, /* [N,channels,W-1] (history=full: [N,channels,W]), oldest first, read and written */
  /* outputs */
  GDN_O = 64,           /* [T,HV,V]   */
  GDN_HT = 65,          /* [N,HV,K,V] final state; absent: not wanted */
  GDN_SNAPSHOTS = 66,   /* verify: [T,HV,K,V] state after every draft token; holds those of the call before on entry (when there
                           was one). decode with GDN_ACCEPTED: those of the call before, read only */
  GDN_DQ = 67, GDN_DK = 68, GDN_DV = 69, GDN_DG = 70, GDN_DBETA = 71, GDN_DH0 = 72,
  GDN_Y = 73,           /* layer: [T,hidden] */
  /* stages of the chunkwise form, per chunk of C rows (accuracy standard): */
  GDN_STAGE_GSUM = 80, GDN_STAGE_L = 81, GDN_STAGE_M = 82, GDN_STAGE_U = 83, GDN_STAGE_W = 84, GDN_STAGE_VN = 85,
  GDN_STAGE_STATES = 86
} gdn_role;

/* The layer around the rule, GDN_LAYER_PREFILL and GDN_LAYER_DECODE (accuracy standard, section 12): x normed, projected, convolved with SiLU over
 * conv_state and the tokens, split, q and k normalised, the rule, gated norm, projected. channels = 2 H K + HV V. Weights are [out,in] in the io dtype:
 *  X [T,hidden], NORM_IN_W [hidden] fp32, W_QKV [channels,hidden], W_Z [HV V,hidden], W_A, W_B [HV,hidden], W_CONV [channels,W], NORM_W [V] fp32,
 *  A_LOG, DT_BIAS [HV] in the gate's dtype, W_OUT [hidden,HV V], CONV_STATE, H0 -> Y [T,hidden], CONV_STATE (in place), HT
 * projections=packed: W_QKV is [2 H K + 2 HV V,hidden], per key head q k v z; W_B is [2 HV,hidden], per key head b a; no W_Z and W_A.
 * Decode: one token of each sequence. */
typedef enum { GDN_L2NORM_ROOT = 0 /* x / sqrt(sum x^2 + eps) */, GDN_L2NORM_MAX = 1 /* x / max(|x|, eps) */, GDN_L2NORM_NONE = 2 } gdn_l2norm;

/* Stages of the chunkwise form, one a call (accuracy standard, section 10). Chunks of gdn_problem.chunk rows are cut from the start of each
 * sequence; C is that number, rows of one token [T,...], heads as HV. Roles of inputs -> outputs:
 *  gate_sum      G -> STAGE_GSUM [T,HV] fp32
 *  gram          K BETA STAGE_GSUM -> STAGE_L [T,HV,C] fp32, strictly lower; the rest 0
 *  inverse       STAGE_L -> STAGE_M [T,HV,C] io, lower with unit diagonal; the rest 0
 *  uw            K V BETA STAGE_GSUM STAGE_M -> STAGE_U [T,HV,V], STAGE_W [T,HV,K] io
 *  chunk_states  K STAGE_GSUM STAGE_W STAGE_U (H0) -> STAGE_STATES [chunks,HV,K,V] io, before each chunk, sequence by sequence;
 *                STAGE_VN [T,HV,V] io; HT
 *  output        Q K STAGE_GSUM STAGE_VN STAGE_STATES -> O
 * and CU_SEQLENS of all. */
typedef enum {
  GDN_STAGE_NAME_GATE_SUM = 0, GDN_STAGE_NAME_GRAM = 1, GDN_STAGE_NAME_INVERSE = 2, GDN_STAGE_NAME_UW = 3,
  GDN_STAGE_NAME_CHUNK_STATES = 4, GDN_STAGE_NAME_OUTPUT = 5
} gdn_stage;

typedef struct {
  size_t struct_size;
  int32_t role;         /* gdn_role */
  int32_t writable;     /* 0: input, must not be changed; 1: output or in-place */
  gdn_dltensor t;
} gdn_tensor;

typedef enum {
  GDN_PREFILL = 0, GDN_DECODE = 1, GDN_VERIFY = 2, GDN_BACKWARD = 3,
  GDN_LAYER_PREFILL = 4, GDN_LAYER_DECODE = 5, GDN_STAGES = 6
} gdn_operation;

typedef enum {
  GDN_RULE_GATED_DELTA = 0, GDN_RULE_DELTA = 1, GDN_RULE_GATED_LINEAR = 2, GDN_RULE_RETENTION = 3,
  GDN_RULE_LINEAR = 4, GDN_RULE_KDA = 5, GDN_RULE_COMPLEX_KDA = 6
} gdn_rule;

/* Sizes known before the tensors; what a plan may depend on. */
typedef struct {
  size_t struct_size;
  int32_t operation;    /* gdn_operation */
  int32_t rule;         /* gdn_rule */
  int64_t N, T, H, HV, K, V; /* T: rows of the packed buffers */
  int64_t max_length;   /* longest sequence */
  double scale;
  int32_t chunk;        /* stages only: rows per chunk */
  int32_t initial_state; /* 1: calls have GDN_H0 */
  int32_t final_state;  /* 1: calls have GDN_HT (decode, verify: 1, and the pool GDN_H0 takes it) */
  gdn_dtype io, gate, beta, state; /* dtypes of q k v o; g; beta; h0 ht */
  int32_t stage;        /* stages only: gdn_stage */
  int32_t l2norm;       /* layer only: gdn_l2norm, of q and k */
  int64_t hidden, conv; /* layer only: width of x and y; taps of the convolution */
} gdn_problem;

typedef struct {
  size_t struct_size;
  const gdn_problem* problem;
  const gdn_tensor* tensors; /* num_tensors of them, tensors->struct_size bytes apart; see gdn_find */
  int32_t num_tensors;
  int32_t reserved;
  void* stream;         /* cudaStream_t for CUDA tensors, else NULL */
} gdn_call;

/* Results of create and run. Anything but GDN_OK comes with one line in `message`. */
enum { GDN_OK = 0, GDN_NOT_SUPPORTED = 1, GDN_ERROR = 2 };

/* A kernel. All strings are UTF-8 and live as long as the library. Text forms are "key=value;key=value":
 *  convention    how its arguments differ from the canonical ones; "" means canonical. See `gdn-cts list conventions`.
 *  contract      precision contract, "PRESET;point=format[/rounding][/flush];...", or "@FILE".  See `gdn-cts list contracts`.
 *  capabilities  what it can do, e.g.
 *    "ops=prefill;rules=gated_delta;io=bf16,fp32;state=fp32;K=1..256;V=1..512;ratio=1..8;varlen;h0;ht;empty;beta_max=2"
 *                What is not listed is not claimed; tools/adapters/README.md explains every key. One or more stages:
 *                "ops=stages;stages=inverse;chunks=16,32,64"
 *  properties    what it promises and is held to: "deterministic;shape_invariant;symmetric;masks_select;steps_as_prefill" */
typedef struct {
  uint32_t abi_version; /* GDN_ABI_VERSION */
  uint32_t device;      /* GDN_DEVICE_CPU or GDN_DEVICE_CUDA: where its tensors live (cu_seqlens and indices as well) */
  size_t struct_size;
  const char* name;
  const char* description;
  const char* version;
  const char* convention;
  const char* contract;
  const char* capabilities;
  const char* properties;
  /* A plan may hold workspaces and be run many times with other tensors of the same problem. Thread-compatible:
   * one plan is used by one thread at a time. */
  int (*create)(const gdn_problem* problem, void** plan, char* message, size_t message_size);
  int (*run)(void* plan, const gdn_call* call, char* message, size_t message_size);
  void (*destroy)(void* plan);
} gdn_kernel;

typedef const gdn_kernel* (*gdn_get_kernel_fn)(int32_t index);
/* exported by a plugin: */
GDN_EXPORT const gdn_kernel* gdn_get_kernel(int32_t index);

/* The tensor with that role, or NULL when the call has none. Steps by the caller's struct_size, which may be larger
 * than the one this was compiled with. */
static inline const gdn_tensor* gdn_find(const gdn_call* call, int32_t role) {
  const char* at = (const char*)call->tensors;
  int32_t i;
  for (i = 0; i < call->num_tensors; ++i) {
    const gdn_tensor* tensor = (const gdn_tensor*)(const void*)at;
    if (tensor->role == role) return tensor;
    at += tensor->struct_size;
  }
  return NULL;
}

#ifdef __cplusplus
}
#endif
#endif
