// Process adapters: what a program does wrong is a verdict on that case with the reason in one line, and every other
// case still runs. Adapters here are shell one-liners where the protocol alone matters, suites/self/adapters/
// misbehaving.py where tensors do, and the shipped numpy and C++ recurrences.
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "golden/store.h"
#include "kernels/session.h"
#include "suites/self/catch.h"

using namespace gdn;
namespace fs = std::filesystem;

namespace {

const std::string kSource = GDN_SOURCE_DIR;
const std::string kPython = "/usr/bin/python3";

std::string quoted(const std::string& path) { return "'" + path + "'"; }

bool have_h5py() {
  static const bool have = std::system((kPython + " -c 'import h5py, numpy' >/dev/null 2>&1").c_str()) == 0;
  if (!have) WARN("SKIPPED: " << kPython << " cannot import h5py and numpy (Debian: python3-h5py)");
  return have;
}

// Values that are exact in bf16, so that "o = v" is right in every dtype.
Run make_run(const std::string& text) {
  Run run;
  run.problem = parse_problem(text);
  const Problem& p = run.problem;
  const std::int64_t T = p.tokens() + p.padding, N = p.sequences();
  auto fill = [&](const char* name, DType t, std::vector<std::int64_t> shape, double least, double step, int period) {
    Tensor x(t, std::move(shape));
    for (std::int64_t i = 0; i < x.size(); ++i) x.set(i, least + step * static_cast<double>((i * 7 + i / 5) % period));
    run.inputs.emplace(name, std::move(x));
  };
  fill("q", p.io, {T, p.heads, p.key_dim}, -1, 0.125, 17);
  fill("k", p.io, {T, p.heads, p.key_dim}, -0.5, 0.0625, 17);
  fill("v", p.io, {T, p.value_heads, p.value_dim}, -2, 0.25, 19);
  fill("g", p.gate, {T, p.value_heads}, -1, 0.125, 9);
  fill("beta", p.beta, {T, p.value_heads}, 0, 0.125, 9);
  if (p.initial_state) fill("h0", p.state, {N, p.value_heads, p.key_dim, p.value_dim}, -1, 0.0625, 33);
  Tensor cu(DType::i64, {N + 1});
  const auto offsets = p.offsets();
  for (std::size_t i = 0; i < offsets.size(); ++i) cu.set_bits(static_cast<std::int64_t>(i), static_cast<std::uint64_t>(offsets[i]));
  run.inputs.emplace("cu_seqlens", std::move(cu));
  return run;
}

const char* const kProblem = "prefill/n2_t3+0_h1_hv2_k4_v5/bf16/h0";

SessionOptions impatient(double timeout = 20) {
  SessionOptions o;
  o.timeout_seconds = timeout;
  return o;
}

std::unique_ptr<KernelSession> misbehaving(double timeout = 20) {
  return open_process("exec " + kPython + " " + quoted(kSource + "/suites/self/adapters/misbehaving.py"), impatient(timeout));
}

// A shell adapter: declares itself, then runs `body` with the request's id in $id.
std::string shell_adapter(const std::string& body) {
  return "read hello; echo '{\"gdn_cts\":1,\"name\":\"sh\",\"contract\":\"fp32-recurrent\",\"capabilities\":\"\"}'; "
         "while read request; do id=${request##*'\"id\":'}; id=${id%%,*}; id=${id%%'}'*}; " + body + "; done";
}

std::string opening_fails(const std::string& command, double start_seconds = 20) {
  SessionOptions o;
  o.start_seconds = o.timeout_seconds = start_seconds;
  try {
    open_process(command, o);
  } catch (const BadInput& e) {
    CHECK(std::string(e.what()).find('\n') == std::string::npos);
    return e.what();
  }
  return "opened";
}

bool contains(const std::string& text, const std::string& part) {
  INFO(text);
  INFO(part);
  const bool found = text.find(part) != std::string::npos;
  CHECK(found);
  return found;
}

std::size_t scratch_files() {
  std::size_t n = 0;
  for (const auto& entry : fs::recursive_directory_iterator(std::getenv("TMPDIR"))) n += entry.path().filename() != "lock" && entry.is_regular_file();
  return n;
}

// Every test looks into a TMPDIR of its own.
struct OwnTemporaries {
  std::string path = "/tmp/gdn-test-process-XXXXXX";
  OwnTemporaries() {
    REQUIRE(::mkdtemp(path.data()));
    ::setenv("TMPDIR", path.c_str(), 1);
  }
  ~OwnTemporaries() {
    ::unsetenv("TMPDIR");
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
};

// The canonical recurrence in double.
TensorSet recurrence(const Run& run) {
  const Problem& p = run.problem;
  Tensor o(DType::f64, {p.tokens(), p.value_heads, p.value_dim}), ht(DType::f64, {p.sequences(), p.value_heads, p.key_dim, p.value_dim});
  const auto at = [&](const char* name, std::int64_t i) { return run.inputs.at(name).at(i); };
  const auto offsets = p.offsets();
  for (std::int64_t n = 0; n < p.sequences(); ++n)
    for (std::int64_t hv = 0; hv < p.value_heads; ++hv)
      for (std::int64_t j = 0; j < p.value_dim; ++j) {
        std::vector<double> s(static_cast<std::size_t>(p.key_dim));
        const std::int64_t state = (n * p.value_heads + hv) * p.key_dim;
        for (std::int64_t i = 0; i < p.key_dim; ++i) s[static_cast<std::size_t>(i)] = p.initial_state ? at("h0", (state + i) * p.value_dim + j) : 0;
        for (std::int64_t t = offsets[static_cast<std::size_t>(n)]; t < offsets[static_cast<std::size_t>(n) + 1]; ++t) {
          const std::int64_t row = (t * p.heads + hv / (p.value_heads / p.heads)) * p.key_dim, cell = t * p.value_heads + hv;
          double read = 0, out = 0;
          for (std::int64_t i = 0; i < p.key_dim; ++i) read += (s[static_cast<std::size_t>(i)] *= std::exp(at("g", cell))) * at("k", row + i);
          const double y = at("beta", cell) * (at("v", cell * p.value_dim + j) - read);
          for (std::int64_t i = 0; i < p.key_dim; ++i) {
            s[static_cast<std::size_t>(i)] += at("k", row + i) * y;
            out += s[static_cast<std::size_t>(i)] * at("q", row + i);
          }
          o.set(cell * p.value_dim + j, p.effective_scale() * out);
        }
        for (std::int64_t i = 0; i < p.key_dim; ++i) ht.set((state + i) * p.value_dim + j, s[static_cast<std::size_t>(i)]);
      }
  return {{"o", std::move(o)}, {"ht", std::move(ht)}};
}

double greatest_error(const Tensor& got, const Tensor& want) {
  double worst = 0;
  for (std::int64_t i = 0; i < want.size(); ++i) worst = std::max(worst, std::abs(got.at(i) - want.at(i)) / (1 + std::abs(want.at(i))));
  return worst;
}

}  // namespace

TEST_CASE("programs that never become an adapter are refused in one line") {
  OwnTemporaries temporaries;
  contains(opening_fails("/nonexistent/program --now"), "before its declaration: ended with exit status 127; last line on stderr: ");
  contains(opening_fails("echo 'no licence' >&2; exit 4"), "ended with exit status 4; last line on stderr: no licence");
  contains(opening_fails("kill -9 $$"), "killed by signal 9 (SIGKILL)");
  contains(opening_fails("exec sleep 60", 0.3), "no answer within 0.3 s; nothing on stderr");
  contains(opening_fails("exec >&-; sleep 5"), "closed its stdout without an answer");
  contains(opening_fails("read x; echo hello world"), "its declaration is no JSON object: 'hello world'");
  contains(opening_fails("read x; echo '{\"gdn_cts\":2,\"name\":\"x\"}'"), "protocol version 2, this suite speaks 1");
  contains(opening_fails("read x; echo '{\"name\":\"x\"}'"), "\"gdn_cts\" (protocol version) is missing");
  contains(opening_fails("read x; echo '{\"gdn_cts\":1}'"), "\"name\" is missing");
  contains(opening_fails("read x; echo '{\"gdn_cts\":1,\"name\":\"x\",\"contract\":\"fp31\"}'"), "fp31");
  contains(opening_fails("read x; echo '{\"gdn_cts\":1,\"name\":\"x\",\"contract\":\"fp32-recurrent\",\"convention\":\"state=diagonal\"}'"), "diagonal");
  contains(opening_fails("read x; echo '{\"gdn_cts\":1,\"error\":\"ImportError: no torch\"}'"), "ImportError: no torch");
  CHECK(scratch_files() == 0);
  CHECK(fs::is_empty(temporaries.path));
}

TEST_CASE("protocol slips of a shell adapter") {
  OwnTemporaries temporaries;
  const Run run = make_run(kProblem);
  auto outcome = [&](const std::string& body, double timeout = 20) {
    auto session = open_process(shell_adapter(body), impatient(timeout));
    Execution first = session->run(run, "typical:x:1");
    const Execution second = session->run(run, "typical:x:2");   // started again: the same thing happens again
    CHECK(first.outcome == second.outcome);
    return first;
  };
  Execution e = outcome("echo 'out of memory' >&2; exit 9");
  CHECK(e.outcome == Outcome::crashed);
  contains(e.message, "adapter ended with exit status 9; last line on stderr: out of memory");
  e = outcome("kill -SEGV $$");
  CHECK(e.outcome == Outcome::crashed);
  contains(e.message, "killed by signal 11 (SIGSEGV)");
  e = outcome("sh -c 'kill -ABRT $$'; exit $?");
  contains(e.message, "exit status 134, a shell's word for signal 6 (SIGABRT)");
  e = outcome("printf 'half a li'; exit 1");
  contains(e.message, "in the middle of a line on stdout ('half a li')");
  e = outcome("sleep 30", 0.2);
  CHECK(e.outcome == Outcome::timeout);
  contains(e.message, "no answer within 0.2 s");
  e = outcome("printf 'Loading\\tweights \\303\\251 %0100d\\n' 7");
  CHECK(e.outcome == Outcome::error);
  contains(e.message, "no JSON object: 'Loading\\x09weights \\xc3\\xa9 0000");
  CHECK(e.message.size() < 200);
  e = outcome("echo \"{\\\"id\\\":$((id+1)),\\\"status\\\":\\\"ok\\\"}\"");
  CHECK(e.outcome == Outcome::error);
  contains(e.message, "adapter answered id 2 to request 1");
  e = outcome("echo \"{\\\"id\\\":$id,\\\"status\\\":\\\"not_supported\\\",\\\"message\\\":\\\"only on Mondays\\\"}\"");
  CHECK(e.outcome == Outcome::not_supported);
  CHECK(e.message == "only on Mondays");
  e = outcome("yes | tr -d '\\n'");
  CHECK(e.outcome == Outcome::error);
  contains(e.message, "more than 1 MiB on stdout without a line end: 'yyyy");
  e = outcome("yes >&2", 0.3);                     // a flood on stderr alone is only silence
  CHECK(e.outcome == Outcome::timeout);
  CHECK(fs::is_empty(temporaries.path));
}

TEST_CASE("what an adapter does wrong on one case leaves the others alone") {
  if (!have_h5py()) return;
  OwnTemporaries temporaries;
  const std::string child_file = temporaries.path + "/child";
  ::setenv("MISBEHAVING_CHILD", child_file.c_str(), 1);
  const Run run = make_run(kProblem);
  auto session = misbehaving(20);
  auto quick = misbehaving(1);                     // for the ones that never answer
  CHECK(session->info().name == "misbehaving");
  CHECK(session->info().how.rfind("--exec 'exec ", 0) == 0);
  CHECK(session->info().packages.count("numpy") == 1);

  auto check_good = [&](KernelSession& s) {
    const Execution good = s.run(run, "typical:x:1");
    INFO(good.message);
    REQUIRE(good.outcome == Outcome::ok);
    CHECK(good.outputs.at("o") == run.inputs.at("v"));
    CHECK(good.outputs.at("ht") == run.inputs.at("h0"));
    CHECK(good.seconds == 0.25);
    CHECK(s.info().packages.count("pid") == 1);
    return s.info().packages.at("pid");
  };
  const std::string pid = check_good(*session);
  CHECK(check_good(*session) == pid);              // started once

  struct Slip { const char* how; Outcome outcome; const char* message; bool restarts; };
  for (const Slip& slip : {
           Slip{"exits", Outcome::crashed, "adapter ended with exit status 3; last line on stderr: no more memory", true},
           Slip{"killed", Outcome::crashed, "adapter killed by signal 11 (SIGSEGV)", true},
           Slip{"garbage", Outcome::error, "no JSON object: 'Loading weights:\\x09100%'", true},
           Slip{"flood", Outcome::error, "more than 1 MiB on stdout without a line end: 'xxx", true},
           Slip{"wrong_id", Outcome::error, "adapter answered id ", true},
           Slip{"strange_status", Outcome::error, "status 'fine'; known: ok, not_supported, error", true},
           Slip{"no_file", Outcome::error, "wrote no output file", false},
           Slip{"wrong_name", Outcome::error, "output file has no dataset o (it has: ht, result)", false},
           Slip{"text_file", Outcome::error, "output file: ", false},
           Slip{"wrong_shape", Outcome::error, "output o has shape [3,2,4], expected [3,2,5]", false},
           Slip{"transposed", Outcome::error, "output ht has shape [2,2,5,4], expected [2,2,4,5]", false},
           Slip{"wrong_dtype", Outcome::error, "output o is int32, not bf16", false},
           Slip{"unrounded", Outcome::error, "which bf16 cannot hold; round it in the adapter", false},
           Slip{"not_supported", Outcome::not_supported, "not on Sundays", false},
           Slip{"error", Outcome::error, "ValueError: bad\\x0aluck", false}}) {
    INFO(slip.how);
    const std::string before = check_good(*session);
    const Execution e = session->run(run, std::string(slip.how) + ":x:1");
    CHECK(e.outcome == slip.outcome);
    contains(e.message, slip.message);
    CHECK(e.message.find('\n') == std::string::npos);
    CHECK(e.outputs.empty());
    CHECK((check_good(*session) != before) == slip.restarts);
    CHECK(scratch_files() == (fs::exists(child_file) ? 1 : 0));
  }

  // Unasked answers and silent deaths are noticed with the next case, and never taken for its result.
  for (const char* how : {"twice", "dies_after"}) {
    CHECK(session->run(run, std::string(how) + ":x:1").outcome == Outcome::ok);
    ::usleep(300000);
    const Execution next = session->run(run, "typical:x:1");
    CHECK(next.outcome != Outcome::ok);
    contains(next.message, how[0] == 't' ? "wrote to stdout unasked" : "adapter ended with exit status 0");
    check_good(*session);
  }

  const Execution removed = session->run(run, "removes_folder:x:1");
  CHECK(removed.outcome == Outcome::error);
  contains(removed.message, "the folder of exchange files is gone");
  check_good(*session);

  // Not errors: a flood on stderr, half precision that is exact, a violation that the adapter itself found.
  CHECK(session->run(run, "chatty:x:1").outcome == Outcome::ok);
  CHECK(session->run(run, "half:x:1").outputs.at("o") == run.inputs.at("v"));
  CHECK(session->run(run, "violation:x:1").violations == std::vector<std::string>{"input k changed"});

  // A hang ends in time, with the child that left the process group.
  check_good(*quick);
  const auto begin = std::chrono::steady_clock::now();
  const Execution hung = quick->run(run, "hangs:x:1");
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(10));
  CHECK(hung.outcome == Outcome::timeout);
  contains(hung.message, "no answer within 1 s");
  check_good(*quick);
  std::ifstream child(child_file);
  pid_t stray = 0;
  REQUIRE(child >> stray);
  for (int i = 0; i < 100 && ::kill(stray, 0) == 0; ++i) {   // a zombie until its new parent reaps it
    std::ifstream stat("/proc/" + std::to_string(stray) + "/stat");
    std::string text((std::istreambuf_iterator<char>(stat)), {});
    if (text.find(") Z ") != std::string::npos) break;
    REQUIRE(i < 99);
    ::usleep(20000);
  }

  session.reset();
  quick.reset();
  fs::remove(child_file);
  CHECK(fs::is_empty(temporaries.path));
}

TEST_CASE("the Python package: conventions, refusals, errors, prints, changed inputs") {
  if (!have_h5py()) return;
  OwnTemporaries temporaries;
  const std::string program = temporaries.path + "/adapter.py";
  std::ofstream(program) << R"(
import numpy as np
from gdn_cts_adapter import NotSupported, round_output, serve
def run(problem, q, k, v, g, beta, scale, h0, cu_seqlens):
    print("to stdout")
    assert v.shape[:2] == (len(problem.lengths), problem.lengths[0]) and cu_seqlens is None and scale == 0.5
    if problem.lengths[0] == 3: raise NotSupported("three tokens")
    if problem.lengths[0] == 4: raise ValueError("four\ntokens")
    if problem.lengths[0] == 5: k += 1
    return round_output(problem, v.astype(np.float64) * (1 + 2.0**-30)), h0
serve(run, {"name": "batched", "convention": "layout=BTHD", "contract": "fp32-recurrent", "capabilities": "h0;ht", "module": lambda: "a.b"})
)";
  SessionOptions options = impatient();
  options.python_path = kSource + "/tools/adapters";
  auto session = open_process(kPython + " " + quoted(program), options);
  const auto run = [&](int tokens) {
    const Run r = make_run("prefill/n2_t" + std::to_string(tokens) + "_h1_hv2_k4_v5/bf16/h0");
    Execution e = session->run(r, "typical:x:1");
    if (e.outcome == Outcome::ok) {
      CHECK(e.outputs.at("o") == r.inputs.at("v"));
      CHECK(e.outputs.at("ht") == r.inputs.at("h0"));
    }
    return e;
  };
  CHECK(run(2).violations.empty());
  CHECK(session->info().module == "a.b");
  CHECK(run(3).outcome == Outcome::not_supported);
  CHECK(run(3).message == "three tokens");
  CHECK(run(4).outcome == Outcome::error);
  CHECK(run(4).message == "ValueError: four tokens (adapter.py:8)");
  CHECK(run(5).violations == std::vector<std::string>{"input k changed"});

  std::ofstream(program) << "from gdn_cts_adapter import serve\ndef d():\n  import no_such_module\nserve(None, d)\n";
  contains(opening_fails("PYTHONPATH=" + quoted(kSource + "/tools/adapters") + " " + kPython + " " + quoted(program)),
           "its declaration: ModuleNotFoundError: No module named 'no_such_module' (adapter.py:3)");
}

TEST_CASE("split runs hand the state over through the adapter") {
  if (!have_h5py()) return;
  OwnTemporaries temporaries;
  auto session = misbehaving();
  const Run run = make_run("prefill/n2_t3+1_h1_hv2_k4_v5/fp32/h0,split=1.2");
  const Execution e = session->run(run, "typical:x:1");
  CHECK(e.outputs.at("o") == run.inputs.at("v"));
  CHECK(e.outputs.at("ht") == run.inputs.at("h0"));
  const Execution bad = session->run(run, "error:x:1");
  contains(bad.message, "call 1 of 3: ValueError");
}

TEST_CASE("files left by a killed session are removed by the next, those of a living one are not") {
  OwnTemporaries temporaries;
  const fs::path abandoned = fs::path(temporaries.path) / "gdn-cts-adapter-abcdef";
  fs::create_directory(abandoned);
  std::ofstream(abandoned / "lock").close();
  std::ofstream(abandoned / "inputs-3.h5") << "x";
  const auto first = open_process(shell_adapter("exit"), impatient());
  CHECK(!fs::exists(abandoned));
  const auto second = open_process(shell_adapter("exit"), impatient());
  CHECK(std::distance(fs::directory_iterator(temporaries.path), fs::directory_iterator()) == 2);
  CHECK(first->run(make_run(kProblem), "typical:x:1").outcome == Outcome::crashed);   // its directory is still there
}

TEST_CASE("shipped adapters compute the recurrence") {
  OwnTemporaries temporaries;
  std::vector<std::string> commands{quoted(std::string(GDN_BINARY_DIR) + "/tools/adapters/gdn-cts-cpp-recurrence")};
  if (have_h5py()) commands.push_back(kPython + " " + quoted(kSource + "/tools/adapters/numpy_recurrence.py"));
  for (const std::string& command : commands) {
    auto session = open_process(command, impatient(60));
    for (const char* text : {"prefill/n1_t9_h1_hv1_k8_v8/fp32/h0", "prefill/n3_t5+0+1_h2_hv4_k6_v3/bf16/pad=2,g=bf16,beta=bf16",
                             "prefill/n2_t7_h1_hv3_k4_v5/bf16/h0,noht", "prefill/n2_t7+3_h2_hv2_k4_v5/fp32/h0,split=2.6"}) {
      INFO(command << " " << text);
      const Run run = make_run(text);
      CHECK(unsupported_reason(session->info().capabilities, session->info().contract, run) == "");
      const Execution e = session->run(run, "typical:x:1");
      INFO(e.message);
      REQUIRE(e.outcome == Outcome::ok);
      const TensorSet want = recurrence(run);
      CHECK(greatest_error(e.outputs.at("o"), want.at("o")) < (run.problem.io == DType::bf16 ? 0x1p-8 : 0x1p-20));
      CHECK(e.outputs.count("ht") == (run.problem.final_state ? 1 : 0));
      if (run.problem.final_state) CHECK(greatest_error(e.outputs.at("ht"), want.at("ht")) < 0x1p-20);
      Run other = run;                             // and not some other one
      other.inputs.at("beta").set(0, 0.75);
      CHECK(greatest_error(session->run(other, "typical:x:1").outputs.at("o"), want.at("o")) > 0x1p-8);
    }
  }
}
