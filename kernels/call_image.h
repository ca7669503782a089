// Call image: the tensors of one kernel call as bytes in one arena, each between canaries, so that a session in this
// process and one in a child fill, inspect and collect them alike.
#pragma once
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "kernels/gdn_kernel.h"
#include "kernels/session.h"

namespace gdn {

struct PlacedTensor {
  std::string name;
  std::int32_t role = 0;
  bool writable = false;
  std::string output;                              // name it is collected under; "": not collected. Not sent to workers
  DType dtype = DType::f32;
  std::vector<std::int64_t> shape;                 // in the kernel's convention
  std::vector<std::int64_t> strides;               // in elements; dense unless Problem::strided
  bool far = false;                                // most of its memory is never touched: only what lies beside elements is canary
  std::size_t byte_offset = 0;                     // the kernel is told a pointer so many bytes before the data
  std::size_t region = 0, region_size = 0;         // bytes of the arena that belong to this tensor, whole pages
  std::size_t begin = 0, bytes = 0;                // where its data sits, gaps between rows included; the rest is canary
};

struct CallImage {
  gdn_problem problem{};
  std::vector<PlacedTensor> tensors;
  std::size_t size = 0;                            // of the arena
  int threads = 0;                                 // for this call; 0: as they are
  bool sparse() const;                             // some tensor is far: the arena must not be filled or backed as a whole
};

// Role of a canonical tensor name; -1 when the ABI has none.
std::int32_t role_of(std::string_view name);
gdn_dtype dl_dtype(DType t);
DType from_dl(gdn_dtype t);                        // throws std::invalid_argument

// The tensors of a strided run have canary behind every row and plane, of another width for every tensor, so that no tensor's strides fit another;
// g [T,HV] has heads outermost, and all have a byte offset: what q, k and v are that were cut out of one projection. Far ones have an outermost
// stride that takes the last element past 2^32. Data ends as close to the end of its region as `alignment` of its start allows, so that a guard page behind the
// region catches what runs past the end; strided and least_aligned runs have it at an odd multiple of the alignment. At least one canary line of 64 bytes sits in front.
CallImage make_image(const Convention& convention, const Run& run, const TensorSet& inputs, const TensorSet& outputs,
                     int alignment, std::size_t page);
// Decode and verify change the pool in place: "h0" is writable, filled from the inputs and collected as "ht". So is
// "snapshots" where a call gets those of the call before.
// Canaries, inputs, poisoned outputs.
void fill_image(const CallImage& image, const TensorSet& inputs, std::byte* arena);
// Outputs as they are now, and what happened to everything else.
TensorSet collect_image(const CallImage& image, const TensorSet& inputs, const std::byte* arena,
                        std::vector<std::string>& violations);

// The gdn_call over an image whose tensor i has its data at data[i].
class BoundCall {
 public:
  BoundCall(const CallImage& image, std::span<std::byte* const> data, std::int32_t device_type);
  const gdn_call* get() const { return &call_; }
  BoundCall(const BoundCall&) = delete;
  BoundCall& operator=(const BoundCall&) = delete;

 private:
  std::vector<std::int64_t> numbers_;              // shapes and strides
  std::vector<gdn_tensor> tensors_;
  gdn_call call_{};
};

// Runs the kernel with the tensors at data[i], by the plan of this thread's call before when that was of the same kernel and
// problem, else by a new one. A C++ exception out of the kernel is an error, not a crash.
struct Invocation {
  Outcome outcome = Outcome::ok;
  std::string message;                             // one line when not ok
  double seconds = 0;                              // inside the kernel's run
};
Invocation invoke(const gdn_kernel& kernel, const CallImage& image, std::span<std::byte* const> data);

// Element number `i` as an index text, "[3,0,17]".
std::string index_text(const std::vector<std::int64_t>& shape, std::int64_t i);

}  // namespace gdn
