/* A plugin in plain C with one kernel per way of going wrong, so that the tests see each become a verdict.
 * Kernel `good` and all others, as far as they get, set o to 2 scale v and ht to h0 (or zero); fp32 only. */
#define _POSIX_C_SOURCE 200809L
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/gdn_kernel.h"

enum fault {
  GOOD, CALL_NULL, ABORT, EXIT, HANG, HANG_WITH_CHILD, EAT_MEMORY, ONE_PAST, FAR_PAST, BEFORE, READ_PAST, WRITE_INPUT, PRINT, UNWRITTEN, REFUSE,
  FAIL_CREATE, FAIL_RUN, DIVIDE, RECURSE, HALF_WRITTEN, CLOSE_ALL, SILENT_ERROR, OLD_POINTER, BY_THREADS, LEAK_FILES, OPEN_ONE_FILE, FAULTS
};

static const char* const names[FAULTS] = {
  "good", "null", "abort", "exit", "hang", "hang_with_child", "eat_memory", "one_past", "far_past", "before", "read_past", "write_input", "print",
  "unwritten", "refuse", "fail_create", "fail_run", "divide", "recurse", "half_written", "close_all", "silent_error", "old_pointer", "by_threads", "leak_files", "open_one_file"
};

typedef struct { enum fault fault; gdn_problem problem; } plan_t;

static volatile int zero = 0;
static volatile float sink;
extern int omp_get_max_threads(void) __attribute__((weak)); /* of the worker, where it has OpenMP */
static float* first_output; /* of kernel old_pointer */
static int kept_file;

static int recurse(int n) {
  volatile char room[4096];
  room[n % 4096] = (char)n;
  return n == -1 ? 0 : recurse(n + 1) + room[(n + 1) % 4096];
}

static int create(enum fault fault, const gdn_problem* problem, void** plan, char* message, size_t size) {
  plan_t* p;
  if (fault == FAIL_CREATE) {
    snprintf(message, size, "no plan for\nthis");
    return GDN_ERROR;
  }
  if (fault == REFUSE) {
    snprintf(message, size, "V=%d is odd", (int)problem->V);
    return GDN_NOT_SUPPORTED;
  }
  p = (plan_t*)malloc(sizeof *p);
  if (!p) return GDN_ERROR;
  p->fault = fault;
  p->problem = *problem;
  *plan = p;
  return GDN_OK;
}

static void destroy(void* plan) { free(plan); }

static float* data(const gdn_call* call, int32_t role, int64_t* count) {
  const gdn_tensor* t = gdn_find(call, role);
  int32_t d;
  *count = 0;
  if (!t) return NULL;
  *count = 1;
  for (d = 0; d < t->t.ndim; ++d) *count *= t->t.shape[d];
  return (float*)(void*)((char*)t->t.data + t->t.byte_offset);
}

static int run(void* plan, const gdn_call* call, char* message, size_t size) {
  const plan_t* p = (const plan_t*)plan;
  int64_t no, nv, nh, ns, nk, i;
  float *o = data(call, GDN_O, &no), *ht = data(call, GDN_HT, &nh);
  float *v = data(call, GDN_V, &nv), *h0 = data(call, GDN_H0, &ns), *k = data(call, GDN_K, &nk);
  char* bytes;
  if (p->fault == UNWRITTEN) return GDN_OK;
  for (i = 0; i < (p->fault == HALF_WRITTEN ? no / 2 : no); ++i) o[i] = 2.0f * (float)p->problem.scale * v[i];
  for (i = 0; i < nh; ++i) ht[i] = h0 ? h0[i] : 0.0f;
  switch (p->fault) {
    case CALL_NULL: *(volatile int*)(intptr_t)zero = 1; break;
    case ABORT: fprintf(stderr, "assertion failed: tile == 64\n"); abort();
    case EXIT: exit(3);
    case HANG: for (;;) sleep(1);
    case HANG_WITH_CHILD: {
      const pid_t child = fork();
      if (child == 0) for (;;) sleep(1);
      printf("%ld\n", (long)child);
      fflush(stdout);
      for (;;) sleep(1);
    }
    case EAT_MEMORY:
      for (;;) {
        bytes = (char*)malloc((size_t)1 << 26);
        if (!bytes) {
          snprintf(message, size, "out of memory");
          return GDN_ERROR;
        }
        memset(bytes, 1, 4096);
      }
    case ONE_PAST: ((volatile char*)(o + no))[0] = 1; break;
    case FAR_PAST: ((volatile float*)o)[no + 5000] = 1; break;
    case BEFORE: ((volatile float*)o)[-1] = 1; break;
    case READ_PAST: sink = ((volatile float*)v)[nv + 3000]; break;
    case WRITE_INPUT: ((volatile float*)k)[nk - 1] = 1; break;
    case PRINT:
      for (i = 0; i < 20000; ++i) printf("{\"result\": \"garbage %d\"}\n", (int)i);
      fflush(stdout);
      if (write(2, "\0\1\2\xff", 4) < 0) return GDN_ERROR;
      break;
    case FAIL_RUN: snprintf(message, size, "launch failed: 700"); return GDN_ERROR;
    case SILENT_ERROR: return 17;
    case DIVIDE: raise(SIGFPE); break;
    case RECURSE: sink = (float)recurse(0); break;
    case BY_THREADS: o[0] = omp_get_max_threads ? (float)omp_get_max_threads() : 0.0f; break;
    case OLD_POINTER:
      if (first_output) first_output[0] = 0;
      else first_output = o;
      break;
    case CLOSE_ALL: for (i = 0; i < 64; ++i) close((int)i); break;
    case LEAK_FILES: sink = (float)dup(0); break;
    case OPEN_ONE_FILE: if (!kept_file) kept_file = dup(0); break;   /* once, which is no leak */
    default: break;
  }
  return GDN_OK;
}

#define KERNEL(FAULT) \
  static int create_##FAULT(const gdn_problem* q, void** plan, char* m, size_t n) { return create(FAULT, q, plan, m, n); }
KERNEL(GOOD) KERNEL(CALL_NULL) KERNEL(ABORT) KERNEL(EXIT) KERNEL(HANG) KERNEL(HANG_WITH_CHILD) KERNEL(EAT_MEMORY) KERNEL(ONE_PAST)
KERNEL(FAR_PAST) KERNEL(BEFORE) KERNEL(READ_PAST) KERNEL(WRITE_INPUT) KERNEL(PRINT) KERNEL(UNWRITTEN) KERNEL(REFUSE) KERNEL(FAIL_CREATE)
KERNEL(FAIL_RUN) KERNEL(DIVIDE) KERNEL(RECURSE) KERNEL(HALF_WRITTEN) KERNEL(CLOSE_ALL) KERNEL(SILENT_ERROR) KERNEL(OLD_POINTER) KERNEL(BY_THREADS) KERNEL(LEAK_FILES) KERNEL(OPEN_ONE_FILE)

static int (*const creators[FAULTS])(const gdn_problem*, void**, char*, size_t) = {
  create_GOOD, create_CALL_NULL, create_ABORT, create_EXIT, create_HANG, create_HANG_WITH_CHILD, create_EAT_MEMORY, create_ONE_PAST,
  create_FAR_PAST, create_BEFORE, create_READ_PAST, create_WRITE_INPUT, create_PRINT, create_UNWRITTEN, create_REFUSE, create_FAIL_CREATE,
  create_FAIL_RUN, create_DIVIDE, create_RECURSE, create_HALF_WRITTEN, create_CLOSE_ALL, create_SILENT_ERROR, create_OLD_POINTER, create_BY_THREADS, create_LEAK_FILES, create_OPEN_ONE_FILE
};

const gdn_kernel* gdn_get_kernel(int32_t index) {
  static gdn_kernel kernels[FAULTS];
  gdn_kernel* k;
  if (index < 0 || index >= FAULTS) return NULL;
  k = &kernels[index];
  k->abi_version = GDN_ABI_VERSION;
  k->device = GDN_DEVICE_CPU;
  k->struct_size = sizeof *k;
  k->name = names[index];
  k->description = "misbehaves as its name says";
  k->version = "1";
  k->convention = "";
  k->contract = "fp32-recurrent";
  k->capabilities = "io=fp32;varlen;h0;ht;empty";
  k->properties = "";
  k->create = creators[index];
  k->run = run;
  k->destroy = destroy;
  return k;
}
