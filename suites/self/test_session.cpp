// Isolated sessions: whatever a kernel does to its process is the outcome of that call, and the next call works again.
#include <signal.h>

#include <cstdlib>
#include <filesystem>
#include <thread>

#include "kernels/call_image.h"
#include "kernels/session.h"
#include "suites/self/catch.h"

using namespace gdn;

namespace {

const std::string kPlugin = GDN_TEST_PLUGIN;
const int worker_named = setenv("GDN_CTS_PROGRAM", GDN_TEST_WORKER, 0);  // where CTest has not done so

SessionOptions options(double timeout = 60, std::uint64_t memory = 0) {
  SessionOptions o;
  o.timeout_seconds = timeout;
  o.memory_bytes = memory;
  return o;
}

// o has 5 * 2 * V floats: with V=8 they end where their page ends.
Run small_run(const std::string& text = "prefill/n1_t5_h1_hv2_k3_v8/fp32/h0,scale=0x1p+0") {
  Run run;
  run.problem = parse_problem(text);
  const Problem& p = run.problem;
  const std::int64_t T = p.tokens() + p.padding;
  run.inputs.emplace("q", Tensor(p.io, {T, p.heads, p.key_dim}));
  run.inputs.emplace("k", Tensor(p.io, {T, p.heads, p.key_dim}));
  run.inputs.emplace("v", Tensor(p.io, {T, p.value_heads, p.value_dim}));
  run.inputs.emplace("g", Tensor(p.gate, {T, p.value_heads}));
  run.inputs.emplace("beta", Tensor(p.beta, {T, p.value_heads}));
  if (p.initial_state) run.inputs.emplace("h0", Tensor(p.state, {p.sequences(), p.value_heads, p.key_dim, p.value_dim}));
  Tensor cu(DType::i64, {p.sequences() + 1});
  for (std::int64_t n = 0; n <= p.sequences(); ++n) cu.set(n, static_cast<double>(p.offsets()[static_cast<std::size_t>(n)]));
  run.inputs.emplace("cu_seqlens", std::move(cu));
  for (auto& [name, t] : run.inputs)
    if (name != "cu_seqlens")
      for (std::int64_t i = 0; i < t.size(); ++i) t.set(i, name == "g" ? 0.0 : static_cast<double>(i % 7) / 4);
  return run;
}

void check_good(const Run& run, const Execution& e) {
  REQUIRE(e.message == "");
  CHECK(e.outcome == Outcome::ok);
  CHECK(e.violations.empty());
  const Tensor &v = run.inputs.at("v"), &o = e.outputs.at("o");
  for (std::int64_t i = 0; i < v.size(); ++i) CHECK(o.at(i) == 2 * v.at(i));
  CHECK(e.outputs.at("ht") == run.inputs.at("h0"));
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

template <class F>
std::string thrown_by(F f) {
  try {
    f();
  } catch (const std::invalid_argument& e) {
    return e.what();
  }
  return "nothing was thrown";
}

struct Bad {
  const char* kernel;
  Outcome outcome;
  const char* message;
  const char* violation;                           // of the only one; "" for none
};

}  // namespace

TEST_CASE("a kernel that leaves files open after every call is told so, one that keeps a file is not") {
  const Run run = small_run();
  for (const char* kernel : {"leak_files", "open_one_file", "good"}) {
    const auto session = open_plugin(kPlugin, kernel, options());
    int leaks = 0;
    for (int i = 0; i < 20; ++i) {
      const Execution e = session->run(run, "x");
      leaks += e.outcome == Outcome::error && e.message.find("leaks file descriptors") != std::string::npos;
    }
    INFO(kernel);
    CHECK(leaks == (kernel[0] == 'l' ? 12 : 0));
  }
}

TEST_CASE("a good plugin kernel, again and again") {
  auto s = open_plugin(kPlugin, "good", options());
  CHECK(s->info().name == "good");
  CHECK(s->info().how == "--plugin " + kPlugin + " --kernel good");
  const Run run = small_run();
  for (int i = 0; i < 3; ++i) check_good(run, s->run(run, "x"));
  const Run split = small_run("prefill/n2_t5+2_h1_hv2_k3_v8/fp32/h0,split=1.3,scale=0x1p+0");
  check_good(split, s->run(split, "x"));
  const Run none = small_run("prefill/n2_t0_h1_hv2_k3_v8/fp32/h0,scale=0x1p+0");
  check_good(none, s->run(none, "x"));
}

TEST_CASE("whatever a kernel does wrong is an outcome, and the session goes on") {
  const Bad all[] = {
      {"null", Outcome::crashed, "killed by SIGSEGV: null pointer, address 0x0", "null pointer, address 0x0"},
      {"abort", Outcome::crashed, "killed by SIGABRT, after printing 'assertion failed: tile == 64'", ""},
      {"exit", Outcome::crashed, "exited with status 3", ""},
      {"divide", Outcome::crashed, "killed by SIGFPE", ""},
      {"recurse", Outcome::crashed, "killed by SIGSEGV", "outside every tensor"},
      {"one_past", Outcome::crashed, "past the end of o, at byte 0 past it", "past the end of o, at byte 0 past it"},
      {"far_past", Outcome::crashed, "past the end of o, at byte 20000 past it", "past the end of o, at byte 20000 past it"},
      {"before", Outcome::ok, "", "wrote 4 bytes before the start of o, first 4 bytes before it"},
      {"read_past", Outcome::crashed, "past the end of v, at byte 12000 past it", "past the end of v, at byte 12000 past it"},
      {"write_input", Outcome::crashed, "wrote to input k at element [4,0,2]", "wrote to input k at element [4,0,2]"},
      {"refuse", Outcome::not_supported, "V=8 is odd", ""},
      {"fail_create", Outcome::error, "no plan for this", ""},
      {"fail_run", Outcome::error, "launch failed: 700", ""},
      {"silent_error", Outcome::error, "run returned 17 without a message", ""},
      {"close_all", Outcome::crashed, "", ""},
  };
  const Run run = small_run();
  for (const Bad& bad : all) {
    INFO(bad.kernel);
    auto s = open_plugin(kPlugin, bad.kernel, options());
    for (int repeat = 0; repeat < 2; ++repeat) {   // the second time in a new child
      const Execution e = s->run(run, "x");
      CHECK(static_cast<int>(e.outcome) == static_cast<int>(bad.outcome));
      CHECK(contains(e.message, bad.message));
      CHECK(e.message.find('\n') == std::string::npos);
      const std::string violation = e.violations.empty() ? "" : e.violations[0];
      CHECK(e.violations.size() == (*bad.violation ? 1u : 0u));
      CHECK(contains(violation, bad.violation));
      CHECK(e.outputs.empty() == (bad.outcome != Outcome::ok));
    }
  }
}

TEST_CASE("outputs of a call are out of reach for the next one") {
  auto s = open_plugin(kPlugin, "old_pointer", options());
  const Run run = small_run();
  CHECK(static_cast<int>(s->run(run, "x").outcome) == static_cast<int>(Outcome::ok));
  const Execution e = s->run(run, "x");            // writes where o was
  CHECK(static_cast<int>(e.outcome) == static_cast<int>(Outcome::crashed));
  CHECK(contains(e.message, "outside every tensor"));
}

TEST_CASE("a run may ask for a number of threads") {
  auto s = open_plugin(kPlugin, "by_threads", options());
  Run run = small_run();
  for (const int threads : {1, 3, 2, 3}) {
    run.threads = threads;
    const double seen = s->run(run, "x").outputs.at("o").at(0);
    CHECK((seen == threads || seen == 0));         // 0: a build without OpenMP
  }
}

TEST_CASE("tensors begin where the declared alignment says, and lie far apart without taking room") {
  for (const bool inside : {false, true}) {
    const std::string name = "faulty/none/recurrent-fp32";   // declares align=4
    const auto s = inside ? open_inline(name, options()) : open_builtin(name, options());
    Run run = small_run();
    const TensorSet want = s->run(run, "x").outputs;
    run.least_aligned = true;
    CHECK(s->run(run, "x").outputs == want);
    run.problem.strided = run.problem.far = true;
    const Execution far = s->run(run, "x");
    CHECK(far.message == "");
    CHECK(far.outputs == want);
    CHECK(far.violations.empty());
  }
}

TEST_CASE("a hang ends at the timeout, with everything that the kernel started") {
  const Run run = small_run();
  auto s = open_plugin(kPlugin, "hang", options(0.5));
  for (int i = 0; i < 2; ++i) {
    const Execution e = s->run(run, "x");
    CHECK(e.outcome == Outcome::timeout);
    CHECK(e.message == "no result within 0.5 s");
  }
  Execution e;
  auto quote = std::string::npos;
  for (double seconds = 1; quote == std::string::npos; seconds *= 4) {  // until it came as far as having a child
    e = open_plugin(kPlugin, "hang_with_child", options(seconds))->run(run, "x");
    REQUIRE(e.outcome == Outcome::timeout);
    quote = e.message.find('\'');
  }
  const pid_t child = std::atoi(e.message.c_str() + quote + 1);
  REQUIRE(child > 1);
  bool gone = false;
  for (int i = 0; i < 3000 && !gone; ++i) {         // until whoever inherits it has reaped it, or it is a zombie
    gone = kill(child, 0) != 0;
    if (!gone) {
      std::string stat(4096, 0);
      if (FILE* f = std::fopen(("/proc/" + std::to_string(child) + "/stat").c_str(), "r")) {
        stat.resize(std::fread(stat.data(), 1, stat.size(), f));
        std::fclose(f);
        gone = stat.find(") Z ") != std::string::npos;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }
  CHECK(gone);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST_CASE("memory without end hits the limit") {
  auto s = open_plugin(kPlugin, "eat_memory", options(60, std::uint64_t{1} << 30));
  const Execution e = s->run(small_run(), "x");
  CHECK(e.outcome == Outcome::error);
  CHECK(e.message == "out of memory");
}
#endif

TEST_CASE("what a kernel prints disturbs nothing") {
  auto s = open_plugin(kPlugin, "print", options());
  const Run run = small_run();
  for (int i = 0; i < 2; ++i) check_good(run, s->run(run, "x"));
}

TEST_CASE("elements that were not written hold poison") {
  const Run run = small_run();
  const Execution nothing = open_plugin(kPlugin, "unwritten", options())->run(run, "x");
  const Execution half = open_plugin(kPlugin, "half_written", options())->run(run, "x");
  REQUIRE(nothing.outcome == Outcome::ok);
  REQUIRE(half.outcome == Outcome::ok);
  for (const char* name : {"o", "ht"}) {
    const Tensor& t = nothing.outputs.at(name);
    for (std::int64_t i = 0; i < t.size(); ++i) CHECK(t.bits(i) == poison_bits(t.dtype));
  }
  const Tensor& o = half.outputs.at("o");
  for (std::int64_t i = 0; i < o.size(); ++i) CHECK((o.bits(i) == poison_bits(o.dtype)) == (i >= o.size() / 2));
}

TEST_CASE("a short write past an end that is not a page's lands in the canary") {
  const Run run = small_run("prefill/n1_t5_h1_hv1_k3_v3/fp32/h0,scale=0x1p+0");
  const Execution e = open_plugin(kPlugin, "one_past", options())->run(run, "x");
  CHECK(e.outcome == Outcome::ok);
  CHECK(e.violations == std::vector<std::string>{"wrote 1 bytes past the end of o, first at byte 0 past it"});
}

TEST_CASE("plugins that cannot be used are refused in one line") {
  const auto refused = [](const std::string& library, const std::string& kernel, const char* why) {
    const std::string said = thrown_by([&] { open_plugin(library, kernel, options()); });
    INFO(said);
    CHECK(contains(said, why));
    CHECK_FALSE(contains(said, "\n"));
  };
  refused(kPlugin, "nonsense", "has no kernel 'nonsense' (it has: good, null,");
  refused(kPlugin, "", "has several kernels, name one of them: good,");
  refused("/nonexistent/libkernel.so", "x", "/nonexistent/libkernel.so");
  refused(GDN_SOURCE_DIR "/CMakeLists.txt", "x", "CMakeLists.txt");
  const auto builtin = [](const char* name) { return thrown_by([&] { open_builtin(name, options()); }); };
  CHECK(builtin("nonsense") == "no built-in kernel 'nonsense' (`gdn-cts list kernels` prints them)");
  const char* before = std::getenv("GDN_CTS_PROGRAM");
  const std::string program = before ? before : "";
  setenv("GDN_CTS_PROGRAM", "/bin/true", 1);
  CHECK(contains(builtin("cpu_chunk_fp32"), "the worker exited with status 0"));
  setenv("GDN_CTS_PROGRAM", "/nonexistent/program", 1);
  CHECK(contains(builtin("cpu_chunk_fp32"), "/nonexistent/program"));
  setenv("GDN_CTS_PROGRAM", program.c_str(), 1);
}

TEST_CASE("a built-in kernel gives the same in a child and in this process") {
  for (const char* name : {"cpu_recurrent_fp32", "cpu_recurrent_bf16", "cpu_chunk_fp32", "cpu_chunk_bf16"}) {
    auto here = open_inline(name, options());
    auto there = open_builtin(name, options());
    for (const char* text : {"prefill/n2_t70+0_h2_hv4_k7_v5/bf16/h0,pad=2", "prefill/n1_t9_h1_hv1_k1_v1/bf16/h0,split=4"}) {
      const Run run = small_run(text);
      const Execution a = here->run(run, "x"), b = there->run(run, "x");
      INFO(name << " " << text);
      REQUIRE(b.message == "");
      CHECK(a.outputs == b.outputs);
      CHECK(b.violations.empty());
    }
  }
}

TEST_CASE("an image finds every byte that changed") {
  const Run run = small_run();
  const TensorSet outputs{{"o", Tensor(DType::f32, {5, 2, 8})}};
  const CallImage image = make_image({}, run, run.inputs, outputs, 16, 4096);
  std::vector<std::byte> arena(image.size);
  std::vector<std::string> violations;
  fill_image(image, run.inputs, arena.data());
  collect_image(image, run.inputs, arena.data(), violations);
  REQUIRE(violations.empty());
  for (const PlacedTensor& t : image.tensors)
    for (std::size_t i = t.region; i < t.region + t.region_size; ++i) {
      if (t.writable && i >= t.begin && i < t.begin + t.bytes) continue;
      arena[i] ^= std::byte{1};
      violations.clear();
      collect_image(image, run.inputs, arena.data(), violations);
      if (violations.size() != 1) FAIL("byte " << i << " of " << t.name);
      arena[i] ^= std::byte{1};
      i += 36;                                     // every byte of a line in turn
    }
}

namespace {
int created, ran, destroyed;
int count_create(const gdn_problem*, void** plan, char*, std::size_t) { return *plan = &created, ++created, GDN_OK; }
int count_run(void* plan, const gdn_call*, char*, std::size_t) { return ++ran, plan == &created ? GDN_OK : GDN_ERROR; }
void count_destroy(void*) { ++destroyed; }
}  // namespace

TEST_CASE("a plan is run again for the same problem, and made anew for another") {
  static const gdn_kernel kernel{GDN_ABI_VERSION, GDN_DEVICE_CPU, sizeof(gdn_kernel), "counts", "", "", "", "fp32-recurrent", "", "", count_create, count_run, count_destroy};
  Run run = small_run();
  const auto call = [&] {
    const TensorSet outputs{{"o", Tensor(run.problem.io, {run.problem.tokens(), run.problem.value_heads, run.problem.value_dim})}};
    const CallImage image = make_image({}, run, run.inputs, outputs, 64, 4096);
    std::vector<std::byte> arena(image.size);
    std::vector<std::byte*> data;
    for (const PlacedTensor& t : image.tensors) data.push_back(arena.data() + t.begin);
    CHECK(invoke(kernel, image, data).outcome == Outcome::ok);
  };
  call();
  call();
  CHECK(created == 1);
  CHECK(ran == 2);
  CHECK(destroyed == 0);
  run.problem.scale = 0.5;
  call();
  CHECK(created == 2);
  CHECK(destroyed == 1);
}
