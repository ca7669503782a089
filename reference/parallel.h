// Loops over independent indices, side by side on all processors: OpenMP, or std::thread in builds for the thread
// sanitizer (GDN_STD_THREADS), which takes OpenMP's own barriers for races. One place, so that the exceptions of loop
// bodies, thread counts and nesting are handled one way.
#pragma once
#include <cstdint>
#include <exception>
#include <mutex>

#if defined(GDN_STD_THREADS)
#include <atomic>
#include <thread>
#include <vector>
#elif defined(_OPENMP)
#include <omp.h>
#endif

namespace gdn {

#if defined(GDN_STD_THREADS)
namespace parallel_detail {
inline std::atomic<int> limit{3};                  // more than the processors of a small machine, so that threads do meet
inline thread_local bool inside = false;           // of a loop: inner loops run on their own thread, as OpenMP's do
}  // namespace parallel_detail
inline int max_threads() { return parallel_detail::inside ? 1 : parallel_detail::limit.load(); }
inline void set_max_threads(int n) { parallel_detail::limit = n; }
#elif defined(_OPENMP)
inline int max_threads() { return omp_in_parallel() ? 1 : omp_get_max_threads(); }
inline void set_max_threads(int n) { omp_set_num_threads(n); }
#else
inline int max_threads() { return 1; }
inline void set_max_threads(int) {}
#endif

// Sets the number of threads while it lives; 0 leaves it.
class Threads {
 public:
  explicit Threads(int n) {
    if (n > 0) {
      before_ = max_threads();
      set_max_threads(n);
    }
  }
  ~Threads() {
    if (before_ > 0) set_max_threads(before_);
  }
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

 private:
  [[maybe_unused]] int before_ = 0;
};

// f(i, thread) for every i in [0, count), thread in [0, threads), then finish() once on every thread that took part. Which
// thread takes which i is left open. When a body throws, the others still run and one of the exceptions is thrown again.
template <class F, class Finish>
void parallel_for(std::int64_t count, int threads, F f, Finish finish) {
  std::exception_ptr error;
  std::mutex mutex;
  const auto one = [&](std::int64_t i, int thread) {
    try {
      f(i, thread);
    } catch (...) {
      const std::lock_guard lock(mutex);
      error = std::current_exception();
    }
  };
  if (threads <= 1 || count <= 1) {
    for (std::int64_t i = 0; i < count; ++i) one(i, 0);
    finish();
  } else {
#if defined(GDN_STD_THREADS)
    std::atomic<std::int64_t> next{0};
    std::vector<std::thread> team;
    for (int t = 0; t < threads; ++t)
      team.emplace_back([&, t] {
        parallel_detail::inside = true;
        for (std::int64_t i; (i = next++) < count;) one(i, t);
        finish();
      });
    for (std::thread& t : team) t.join();
#elif defined(_OPENMP)
#pragma omp parallel num_threads(threads)
    {
#pragma omp for schedule(dynamic)
      for (std::int64_t i = 0; i < count; ++i) one(i, omp_get_thread_num());
      finish();
    }
#else
    for (std::int64_t i = 0; i < count; ++i) one(i, 0);
    finish();
#endif
  }
  if (error) std::rethrow_exception(error);
}

// f(i) for every i in [0, count). worth: whether the loop is worth starting threads for.
template <class F>
void parallel_for(std::int64_t count, F f, bool worth = true) {
  parallel_for(count, worth ? max_threads() : 1, [&](std::int64_t i, int) { f(i); }, [] {});
}

}  // namespace gdn
