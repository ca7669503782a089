// Timing on CUDA devices; see kernels/device_bench.h. CUDA events around one launch of a captured graph, so that neither
// the host's launches nor what the cache still holds of the repeat before is in the time.
#include <algorithm>
#include <stdexcept>

#include "kernels/cuda/host.h"
#include "kernels/cuda/rates.cuh"
#include "kernels/device_bench.h"

namespace gdn {
namespace {

constexpr std::size_t kCopy = std::size_t{1} << 30, kFlush = std::size_t{256} << 20;   // bytes; the second is beyond any L2

struct Failure : std::runtime_error { using std::runtime_error::runtime_error; };

void need(cudaError_t status, const char* what) {
  char message[256];
  if (!gdn_cuda::cuda_ok(status, what, message, sizeof message)) throw Failure(message);
}

struct Memory {
  explicit Memory(std::size_t bytes) { need(cudaMalloc(&data, bytes), "device memory"); }
  ~Memory() { cudaFree(data); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  void* data = nullptr;
};

struct Clock {
  Clock() {
    need(cudaStreamCreate(&stream), "stream");
    need(cudaEventCreate(&start), "event");
    need(cudaEventCreate(&stop), "event");
  }
  ~Clock() {
    cudaEventDestroy(start);
    cudaEventDestroy(stop);
    cudaStreamDestroy(stream);
  }
  Clock(const Clock&) = delete;
  Clock& operator=(const Clock&) = delete;
  template <class F> double seconds(F work) {
    need(cudaEventRecord(start, stream), "event");
    work();
    need(cudaEventRecord(stop, stream), "event");
    need(cudaEventSynchronize(stop), "the timed work");
    float milliseconds = 0;
    need(cudaEventElapsedTime(&milliseconds, start, stop), "event");
    return milliseconds * 1e-3;
  }
  template <class F> double median(F work) {
    std::vector<double> all;
    for (int i = 0; i < 9; ++i) all.push_back(seconds(work));
    std::sort(all.begin(), all.end());
    return all[all.size() / 2];
  }
  cudaStream_t stream = nullptr;
  cudaEvent_t start = nullptr, stop = nullptr;
};

DeviceRates rates() {
  char message[256];
  if (!gdn_cuda::device_present(message, sizeof message)) throw Failure(message);
  DeviceRates r;
  int device = 0;
  cudaDeviceProp properties{};
  need(cudaGetDevice(&device), "device");
  need(cudaGetDeviceProperties(&properties, device), "device");
  r.device = properties.name;
  Clock clock;
  {
    const Memory from(kCopy), to(kCopy);
    r.bytes_per_second = 2.0 * kCopy / clock.median([&] { need(cudaMemcpyAsync(to.data, from.data, kCopy, cudaMemcpyDeviceToDevice, clock.stream), "copy"); });
  }
  double work = 0;
  const double tensor = clock.median([&] { work = gdn_cuda::tensor_work(4000, clock.stream); });
  r.bf16_flops_per_second = work / tensor;
  const double fma = clock.median([&] { work = gdn_cuda::fma_work(4000, clock.stream); });
  r.fp32_flops_per_second = work / fma;
  return r;
}

struct Plan {
  Plan(const gdn_kernel& k, const gdn_problem& problem) : kernel(k) {
    char message[512] = "";
    if (k.create(&problem, &plan, message, sizeof message) != GDN_OK) throw Failure(message);
  }
  ~Plan() { kernel.destroy(plan); }
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;
  void run(const gdn_call& call) {
    char message[512] = "";
    if (kernel.run(plan, &call, message, sizeof message) != GDN_OK) throw Failure(message);
  }
  const gdn_kernel& kernel;
  void* plan = nullptr;
};

// The kernel's work as a graph, or nothing where it does something that cannot be captured.
cudaGraphExec_t capture(Plan& plan, const gdn_call& call, cudaStream_t stream) {
  if (cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal) != cudaSuccess) return nullptr;
  bool ran = true;
  try {
    plan.run(call);
  } catch (const Failure&) {
    ran = false;
  }
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  if (cudaStreamEndCapture(stream, &graph) != cudaSuccess || !ran || cudaGraphInstantiate(&exec, graph, 0) != cudaSuccess) exec = nullptr;
  if (graph) cudaGraphDestroy(graph);
  cudaGetLastError();
  return exec;
}

DeviceTiming time(const gdn_kernel& kernel, const CallImage& image, const std::byte* arena, int repeats) {
  DeviceTiming result;
  try {
    const Memory memory(image.size), flush(kFlush);
    Clock clock;
    need(cudaMemcpy(memory.data, arena, image.size, cudaMemcpyHostToDevice), "copy to the device");
    std::vector<std::byte*> data;
    for (const PlacedTensor& t : image.tensors) data.push_back(static_cast<std::byte*>(memory.data) + t.begin);
    const BoundCall bound(image, data, static_cast<std::int32_t>(kernel.device));
    gdn_call call = *bound.get();
    call.stream = clock.stream;
    Plan plan(kernel, image.problem);
    for (int i = 0; i < 3; ++i) plan.run(call);
    need(cudaStreamSynchronize(clock.stream), "the kernel");
    const cudaGraphExec_t graph = capture(plan, call, clock.stream);
    result.graph = graph != nullptr;
    for (int i = 0; i < repeats; ++i) {
      need(cudaMemsetAsync(flush.data, i, kFlush, clock.stream), "overwriting the cache");
      result.seconds.push_back(clock.seconds([&] {
        if (graph) need(cudaGraphLaunch(graph, clock.stream), "graph");
        else plan.run(call);
      }));
    }
    if (graph) cudaGraphExecDestroy(graph);
  } catch (const std::exception& e) {
    result.message = e.what();
    result.seconds.clear();
  }
  return result;
}

const DeviceBench bench{rates, time};
const RegisterDeviceBench registered(GDN_DEVICE_CUDA, &bench);

}  // namespace
}  // namespace gdn
