// Kernel sessions: how the suite reaches a kernel, whatever it is: built in, plugin, process, or a file of results.
// Suites see this interface only. One session serves all cases of a gate; a kernel that dies is started again.
#pragma once
#include <chrono>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "kernels/convention.h"
#include "reference/case.h"
#include "reference/contract.h"

namespace gdn {

// What a kernel can do, parsed from "ops=prefill;io=bf16,fp32;...": the keys and flags of capability_keys(). A flag that is
// not listed is not claimed; a key that is not listed has the default below. The empty text claims all defaults. h0, ht, varlen and empty are
// about prefill: decode and verify have a pool and equal rows.
struct Capabilities {
  std::vector<Operation> operations{Operation::prefill};
  std::vector<Rule> rules{Rule::gated_delta};
  std::vector<DType> io{DType::f32, DType::bf16, DType::f16}, state{DType::f32}, gate{DType::f32}, beta{DType::f32};
  std::int64_t key_min = 1, key_max = 1 << 20, value_min = 1, value_max = 1 << 20, ratio_min = 1, ratio_max = 1 << 20;
  std::vector<std::int64_t> key_dims, value_dims;  // when not empty: only these
  std::vector<Stage> stages;
  std::vector<L2Form> l2{L2Form::root, L2Form::max, L2Form::none};
  std::vector<std::int64_t> chunks;                // empty: the contract's
  bool strides = false, short_offsets = false, refuses_growth = false, any_beta = false;
  bool equal_kv = false, varlen = true, h0 = true, ht = true, noht = false, empty = true, raw_gates = false;
  double g_min = 0;                                // least gate (0: -inf is fine)
  double beta_max = 2;
  double A_log_max = std::numeric_limits<double>::infinity();
  int alignment = 64;                              // bytes; what allocators of array libraries give
  std::string text;                                // as declared
};
std::vector<std::int64_t> stage_chunks(const Capabilities& c, const Contract& contract);
struct CapabilityKey { std::string name, values, meaning, absent; };   // no values: a flag; absent: what holds where it is not declared
std::vector<CapabilityKey> capability_keys();
Capabilities parse_capabilities(std::string_view text);  // throws std::invalid_argument in one line
// Empty when the run is in the kernel's declared domain, else the reason, one line ("g=-inf below declared g_min=-80").
std::string unsupported_reason(const Capabilities& c, const Contract& contract, const Run& run);

// steps_as_prefill: a decode step gives the numbers that prefill of the same token from the same state gives.
struct Properties { bool deterministic = true, shape_invariant = false, symmetric = true, masks_select = false, steps_as_prefill = false; };
// "deterministic;masks_select": what is not listed is not promised; the empty text promises the defaults.
Properties parse_properties(std::string_view text);   // throws std::invalid_argument
std::string to_string(const Properties& p);
struct PromiseKey { std::string name, meaning; };
std::vector<PromiseKey> property_keys();

struct KernelInfo {
  std::string name, description, version;
  std::string how;                                 // the option that reaches it: "--kernel cpu_chunk_fp32"
  std::string module;                              // for adapters: module and function that really ran
  std::map<std::string, std::string> packages;     // versions, for adapters
  std::string device = "cpu";
  Convention convention;
  Contract contract;
  Capabilities capabilities;
  Properties properties;
};

enum class Outcome : std::uint8_t { ok, not_supported, error, crashed, timeout };
struct Execution {
  Outcome outcome = Outcome::ok;
  std::string message;                             // one line when not ok
  TensorSet outputs;                               // canonical; elements never written still hold the poison pattern
  // Violations seen while running, one line each: "wrote 4 bytes past the end of o", "input k changed", "o not written at ..."
  std::vector<std::string> violations;
  double seconds = 0;                              // inside the kernel's run
};

// Poison: outputs are filled with a signalling-NaN pattern before the call (all bytes 0xA5 would be a finite
// number in some formats, so each dtype has its own pattern).
std::uint64_t poison_bits(DType t);

struct SessionOptions {
  double timeout_seconds = 60;                     // of one call
  int threads = 0;                                 // 0: as the environment says
  double start_seconds = 120;                      // of a worker or adapter up to its declaration (importing a framework takes seconds)
  std::string python_path;                         // put before PYTHONPATH of a process adapter; empty: left as it is
  std::uint64_t memory_bytes = 0;                  // address space of a kernel's process; 0: the memory of the machine
  int alignment = 0;                               // of the tensors of an inline session, in bytes; 0: what the kernel declares
};

class KernelSession {
 public:
  virtual ~KernelSession() = default;
  virtual const KernelInfo& info() const = 0;
  // Runs all calls of the run (Problem::cuts), handing states over. Never throws for what the kernel does.
  virtual Execution run(const Run& run, const std::string& case_id) = 0;
};
// In a child process (worker.h), tensors in shared memory between guard pages. Throw std::invalid_argument, one line,
// when the kernel cannot be loaded or its declarations do not parse. GDN_CTS_PROGRAM names the program that serves as
// worker where the caller's own does not call run_as_worker.
std::unique_ptr<KernelSession> open_builtin(const std::string& name, const SessionOptions& o);
std::unique_ptr<KernelSession> open_plugin(const std::string& library, const std::string& kernel, const SessionOptions& o);
// COMMAND started once; JSON request per line, HDF5 for tensors (tools/adapters/README.md).
std::unique_ptr<KernelSession> open_process(const std::string& command, const SessionOptions& o);
// In this process, without isolation: for the power study and the tests, where the kernel is our own.
std::unique_ptr<KernelSession> open_inline(const std::string& name, const SessionOptions& o);

}  // namespace gdn
