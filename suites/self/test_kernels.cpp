// Built-in kernels: registered, and exactly right on inputs for which fp32 arithmetic is exact; the C ABI in C and C++.
#include <cmath>
#include <cstddef>
#include <cstring>

#include "kernels/call_image.h"
#include "kernels/cpu/chunk.h"
#include "kernels/cpu/convert.h"
#define GDN_ISA test
#include "kernels/cpu/products.h"
#undef GDN_ISA
#include "kernels/cpu/recurrent.h"
#include "kernels/registry.h"
#include "kernels/session.h"
#include "reference/bound.h"
#include "reference/format.h"
#include "reference/rng.h"
#include "reference/truth.h"
#include "suites/self/catch.h"
#include "suites/self/exact_run.h"

using namespace gdn;
using namespace gdn::exact;

namespace {

const std::vector<std::string> kExactProblems{
    "prefill/n1_t1_h1_hv1_k1_v1/{io}/h0,scale=0x1p+0",
    "prefill/n1_t70_h2_hv4_k7_v3/{io}/h0,scale=0x1p-1",
    "prefill/n1_t129_h1_hv3_k16_v21/{io}/scale=0x1p+0",
    "prefill/n4_t64+0+1+130_h2_hv4_k5_v9/{io}/h0,pad=3,scale=0x1p+0",
    "prefill/n3_t0_h1_hv2_k3_v2/{io}/h0,scale=0x1p+0",
    "prefill/n2_t0+5_h1_hv1_k4_v4/{io}/noht,scale=0x1p+0",
    "prefill/n3_t33+0+100_h1_hv2_k6_v5/{io}/h0,split=1.17.64,pad=2,scale=0x1p+0",
    "prefill/n2_t90+20_h2_hv2_k8_v8/{io}/h0,g=bf16,beta=fp16,state=bf16,scale=0x1p+0"};

std::string with_io(std::string text, const std::string& io) {
  return text.replace(text.find("{io}"), 4, io);
}

const std::vector<std::string> kCpu{"cpu_chunk_bf16", "cpu_chunk_fp32", "cpu_recurrent_bf16", "cpu_recurrent_fp32"};

}  // namespace

TEST_CASE("the CPU kernels are registered and can be opened") {
  for (const std::string& name : kCpu) {
    REQUIRE(find_builtin(name));
    CHECK(open_inline(name, {})->info().name == name);
  }
  CHECK(find_builtin("nonsense") == nullptr);
  CHECK_THROWS_AS(open_inline("nonsense", {}), std::invalid_argument);
}

TEST_CASE("every CPU kernel is exact where arithmetic is") {
  for (const std::string& name : kCpu) {
    auto kernel = open_inline(name, {});
    for (const DType io : kernel->info().capabilities.io)
      for (const std::string& problem : kExactProblems)
        for (const double reset : {-1000.0, -kInf}) {
          const Run run = exact_run(with_io(problem, gdn::name(io)), 3, reset);
          INFO(name << " " << to_string(run.problem) << " reset " << reset);
          const Execution e = kernel->run(run, "");
          REQUIRE(e.message == "");
          CHECK(e.violations.empty());
          CHECK(differing(run, e.outputs, expected(run)) == 0);
        }
  }
}

TEST_CASE("every rule that a CPU kernel claims") {
  for (const std::string& name : kCpu) {
    auto kernel = open_inline(name, {});
    for (const Rule rule : kernel->info().capabilities.rules) {
      const std::string text = rule == Rule::gated_delta ? "" : std::string(",rule=") + gdn::name(rule);
      const Run run = exact_run("prefill/n2_t80+7_h1_hv2_k6_v5/bf16/h0" + text + ",scale=0x1p+0", 5);
      INFO(name << " " << to_string(run.problem));
      const Execution e = kernel->run(run, "");
      REQUIRE(e.message == "");
      CHECK(differing(run, e.outputs, expected(run)) == 0);
    }
  }
}

TEST_CASE("a different head, gate or state shows in these runs") {
  auto kernel = open_inline("cpu_recurrent_fp32", {});
  const Run run = exact_run("prefill/n2_t80+7_h2_hv4_k6_v5/fp32/h0,scale=0x1p+0", 5);
  const TensorSet want = expected(run);
  for (const char* tensor : {"q", "k", "v", "g", "beta", "h0"}) {
    Run other = run;
    Tensor& t = other.inputs.at(tensor);
    t.set(3, t.at(3) == 0 ? (std::string(tensor) == "g" ? -1000 : 1) : 0);
    INFO(tensor);
    CHECK(differing(run, kernel->run(other, "").outputs, want) > 0);
  }
}

// ---- what the kernels promise, on inputs with full mantissas ----
namespace {

Run random_run(const std::string& text, std::uint64_t seed = 1) {
  Run run = exact_run(text, seed);
  const Problem& p = run.problem;
  for (auto& [name, t] : run.inputs) {
    if (name == "cu_seqlens" || t.shape[0] == 0) continue;
    const Random random(seed, "full " + name);
    const std::int64_t width = t.shape.back();
    for (std::int64_t i = 0; i < t.size() / t.shape[0] * (name == "h0" ? t.shape[0] : p.tokens()); ++i) {
      const auto u = static_cast<std::uint64_t>(i);
      if (name == "g") t.set(i, random.below(u, 9) == 0 ? -200 : -random.uniform(u));
      else if (name == "beta") t.set(i, 2 * random.uniform(u));
      else t.set(i, random.normal(u) / (name == "k" ? std::sqrt(static_cast<double>(width)) : 1));
    }
  }
  return run;
}

TensorSet run_of(const std::string& kernel, const Run& run, int threads = 0) {
  SessionOptions o;
  o.threads = threads;
  const Execution e = open_inline(kernel, o)->run(run, "");
  REQUIRE(e.message == "");
  REQUIRE(e.violations.empty());
  return e.outputs;
}

// A problem with {io} as the first dtype that the kernel takes.
std::string native(const std::string& kernel, const std::string& text) {
  return with_io(text, gdn::name(open_inline(kernel, {})->info().capabilities.io[0]));
}

// Rows [first, first + count) along the first axis.
Tensor rows(const Tensor& t, std::int64_t first, std::int64_t count) {
  auto shape = t.shape;
  const std::size_t bytes = t.data.size() / static_cast<std::size_t>(shape[0]);
  shape[0] = count;
  Tensor r(t.dtype, shape);
  std::memcpy(r.data.data(), t.data.data() + static_cast<std::size_t>(first) * bytes, r.data.size());
  return r;
}

// Columns [first, first + count) along the last axis.
Tensor columns(const Tensor& t, std::int64_t first, std::int64_t count) {
  auto shape = t.shape;
  const std::int64_t width = shape.back();
  shape.back() = count;
  Tensor r(t.dtype, shape);
  for (std::int64_t i = 0; i < r.size(); ++i) r.set_bits(i, t.bits(i / count * width + first + i % count));
  return r;
}

bool promises(const std::string& kernel, bool Properties::*property) { return open_inline(kernel, {})->info().properties.*property; }

}  // namespace

TEST_CASE("the same bits at any number of threads and in a second run") {
  for (const std::string& name : kCpu) {
    const Run run = random_run(native(name, "prefill/n5_t70+0+130+1+64_h2_hv6_k33_v19/{io}/h0,pad=1"));
    REQUIRE(promises(name, &Properties::deterministic));
    const TensorSet one = run_of(name, run, 1);
    for (const int threads : {1, 2, 3, 7}) CHECK(run_of(name, run, threads) == one);
  }
}

TEST_CASE("shape_invariant: sequences, heads, columns and aligned splits alone give the same bits") {
  for (const std::string& name : kCpu) {
    if (!promises(name, &Properties::shape_invariant)) continue;
    INFO(name);
    const std::string tail = native(name, "_h1_hv2_k20_v37/{io}/h0");
    const Run all = random_run("prefill/n3_t70+130+7" + tail);
    const TensorSet whole = run_of(name, all);
    Run second = all, narrow = all, split = all;
    second.problem = parse_problem("prefill/n1_t130" + tail);
    for (auto& [tensor, t] : second.inputs)
      t = tensor == "h0" ? rows(t, 1, 1) : tensor == "cu_seqlens" ? exact_run(to_string(second.problem)).inputs.at("cu_seqlens") : rows(t, 70, 130);
    const TensorSet alone = run_of(name, second);
    CHECK(alone.at("o") == rows(whole.at("o"), 70, 130));
    CHECK(alone.at("ht") == rows(whole.at("ht"), 1, 1));
    narrow.problem = parse_problem(native(name, "prefill/n3_t70+130+7_h1_hv2_k20_v3/{io}/h0"));
    narrow.inputs.at("v") = columns(all.inputs.at("v"), 30, 3);
    narrow.inputs.at("h0") = columns(all.inputs.at("h0"), 30, 3);
    const TensorSet slice = run_of(name, narrow);
    CHECK(slice.at("o") == columns(whole.at("o"), 30, 3));
    CHECK(slice.at("ht") == columns(whole.at("ht"), 30, 3));
    split.problem.split = {64};
    CHECK(run_of(name, split) == whole);
  }
}

TEST_CASE("the recurrent kernels do not care where a run is cut") {
  Run run = random_run("prefill/n2_t70+9_h1_hv2_k20_v5/bf16/h0");
  for (const char* name : {"cpu_recurrent_fp32", "cpu_recurrent_bf16"}) {
    run.problem.split.clear();
    const TensorSet whole = run_of(name, run);
    run.problem.split = {1, 8, 9, 50};
    CHECK(run_of(name, run) == whole);
  }
}

TEST_CASE("masks_select: what is not finite reaches neither earlier rows nor other channels") {
  const std::int64_t t0 = 37, V = 37, HV = 2, K = 20;
  for (const std::string& name : kCpu) {
    REQUIRE(promises(name, &Properties::masks_select));
    const Run clean = random_run(native(name, "prefill/n2_t70+66_h1_hv2_k20_v37/{io}/h0"));
    const TensorSet want = run_of(name, clean);
    for (const double bad : {std::nan(""), kInf, -kInf})
      for (const char* tensor : {"q", "k", "v", "g", "beta"}) {
        Run run = clean;
        Tensor& t = run.inputs.at(tensor);
        const std::int64_t row = t.size() / t.shape[0];
        t.set(t0 * row + std::min<std::int64_t>(row - 1, 5), bad);
        if (std::string(tensor) == "g" && bad < 0) continue;  // legal
        const TensorSet got = run_of(name, run);
        std::int64_t before = 0, other = 0, hit = 0;
        const auto same = [](const Tensor& a, const Tensor& b, std::int64_t i) { return a.bits(i) == b.bits(i); };
        for (std::int64_t i = 0; i < want.at("o").size(); ++i) {
          const std::int64_t at = i / (HV * V), channel = i % V, head = i / V % HV;
          const bool equal = same(got.at("o"), want.at("o"), i);
          if (at < t0 || at >= 70) before += !equal;
          else if (std::string(tensor) == "v" && (channel != 5 || head != 0)) other += !equal;
          else if (std::string(tensor) == "q" && at != t0) other += !equal;
          else hit += !equal;
        }
        if (std::string(tensor) == "v")
          for (std::int64_t i = 0; i < HV * K * V; ++i) other += i % V == 5 && i < K * V ? 0 : !same(got.at("ht"), want.at("ht"), i);
        for (std::int64_t i = HV * K * V; i < 2 * HV * K * V; ++i) other += !same(got.at("ht"), want.at("ht"), i);
        INFO(name << " " << tensor << " " << bad);
        CHECK(before == 0);
        CHECK(other == 0);
        CHECK(hit > 0);
      }
  }
}

// Largest |result - truth| / bound over all elements of a run, under a contract.
double worst_ratio(const Run& run, const TensorSet& got, const Contract& contract) {
  const Problem& p = run.problem;
  const Contract c = for_problem(contract, p);
  double worst = 0;
  for (std::int64_t n = 0; n < p.sequences(); ++n)
    for (std::int64_t hv = 0; hv < p.value_heads; ++hv) {
      const HeadInputs in = head_inputs(run, n, hv);
      const HeadTruth truth = oracle_head(in);
      const HeadResult bound = bound_head(c, in, p.split);
      const auto judge = [&](const Tensor& t, std::int64_t at, const TruthTensor& x, double limit, std::size_t i) {
        worst = std::max(worst, std::fabs((t.at(at) - x.hi[i]) - x.lo[i]) / (limit + static_cast<double>(x.radius[i])));
      };
      for (std::int64_t i = 0; i < in.T * in.V; ++i)
        judge(got.at("o"), ((p.offsets()[static_cast<std::size_t>(n)] + i / in.V) * p.value_heads + hv) * in.V + i % in.V, truth.o,
              bound.o[static_cast<std::size_t>(i)], static_cast<std::size_t>(i));
      for (std::int64_t i = 0; i < in.K * in.V; ++i)
        judge(got.at("ht"), (n * p.value_heads + hv) * in.K * in.V + i, truth.ht, bound.ht[static_cast<std::size_t>(i)], static_cast<std::size_t>(i));
    }
  return worst;
}

TEST_CASE("every kernel keeps the contract it declares, and not a tighter one") {
  for (const std::string& name : kCpu) {
    const KernelInfo info = open_inline(name, {})->info();
    double tighter = 0;
    for (const DType io : info.capabilities.io)
      for (const char* options : {"/h0", "/h0,split=37", "", "/h0,state=bf16"}) {
        const Run run = random_run("prefill/n2_t70+33_h1_hv2_k24_v9/" + std::string(gdn::name(io)) + options, 4);
        const TensorSet got = run_of(name, run);
        INFO(name << " " << to_string(run.problem));
        CHECK(worst_ratio(run, got, info.contract) <= 1);
        const bool narrow = info.contract.at(Point::out).format == Format::bf16;
        tighter = std::max(tighter, worst_ratio(run, got, parse_contract(narrow ? "fp32-chunk;out=fp16" : "fp64-recurrent;out=fp32")));
      }
    INFO(name);
    CHECK(tighter > 1);
  }
}

TEST_CASE("gates: a reset hides everything before it, and a huge gate no later one") {
  for (const std::string& name : kCpu)
    for (const double reset : {-105.0, -1e4, -1e30, -kInf}) {
      Run run = random_run(native(name, "prefill/n1_t60_h1_hv1_k20_v5/{io}/h0"));
      run.inputs.at("g").set(32, reset);
      Run after = run;                             // tokens from the reset on, from nothing
      after.problem = parse_problem(native(name, "prefill/n1_t28_h1_hv1_k20_v5/{io}/h0"));
      for (auto& [tensor, t] : after.inputs)
        if (tensor == "h0") t = Tensor(t.dtype, t.shape);
        else if (tensor == "cu_seqlens") t.set(1, 28);
        else t = rows(t, 32, 28);
      INFO(name << " " << reset);
      const TensorSet whole = run_of(name, run), fresh = run_of(name, after);
      if (promises(name, &Properties::shape_invariant)) {
        // -105 is within fp32 a reset too: its decay rounds to 0.
        CHECK(rows(whole.at("o"), 32, 28) == fresh.at("o"));
        CHECK(whole.at("ht") == fresh.at("ht"));
      }
      for (std::int64_t i = 0; i < whole.at("o").size(); ++i) CHECK(std::isfinite(whole.at("o").at(i)));
    }
}

TEST_CASE("strides are honoured and memory between the elements is left alone") {
  const Run run = random_run("prefill/n2_t66+5_h2_hv4_k6_v7/bf16/h0");
  const Problem& p = run.problem;
  const TensorSet outputs{{"o", Tensor(p.io, {p.tokens(), 4, 7})}, {"ht", Tensor(p.state, {2, 4, 6, 7})}};
  const CallImage image = make_image({}, run, run.inputs, outputs, 64, 4096);
  for (const std::string& name : kCpu) {
    const TensorSet want = run_of(name, run);
    // Axes stored in reverse order, every element two elements apart from the next.
    std::vector<std::vector<std::byte>> memory;
    std::vector<std::vector<std::int64_t>> shapes, strides;
    std::vector<gdn_tensor> tensors;
    for (const PlacedTensor& x : image.tensors) {
      const bool input = !x.writable;
      const Tensor filled = input ? run.inputs.at(x.name) : Tensor(x.dtype, x.shape);
      const std::size_t w = size_of(x.dtype);
      memory.emplace_back(filled.data.size() * 2 + w, std::byte{0xee});
      shapes.push_back(x.shape);
      std::vector<std::int64_t> s(x.shape.size());
      std::int64_t step = x.name == "cu_seqlens" ? 1 : 2;
      for (std::size_t d = 0; d < s.size(); ++d) {
        s[d] = step;
        step *= x.shape[d];
      }
      strides.push_back(s);
      for (std::int64_t i = 0; i < filled.size() && input; ++i) {
        std::int64_t rest = i, at = 0;
        for (std::size_t d = s.size(); d-- > 0;) {
          at += rest % x.shape[d] * s[d];
          rest /= x.shape[d];
        }
        std::memcpy(memory.back().data() + w + static_cast<std::size_t>(at) * w, filled.data.data() + static_cast<std::size_t>(i) * w, w);
      }
    }
    for (std::size_t i = 0; i < image.tensors.size(); ++i) {
      const PlacedTensor& x = image.tensors[i];
      tensors.push_back({sizeof(gdn_tensor), x.role, x.writable,
                         {memory[i].data(), {GDN_DEVICE_CPU, 0}, static_cast<std::int32_t>(x.shape.size()), dl_dtype(x.dtype), shapes[i].data(),
                          strides[i].data(), size_of(x.dtype)}});
    }
    const gdn_kernel& kernel = *find_builtin(name);
    void* plan = nullptr;
    char message[200] = "";
    const gdn_call call{sizeof(gdn_call), &image.problem, tensors.data(), static_cast<std::int32_t>(tensors.size()), 0, nullptr};
    REQUIRE(kernel.create(&image.problem, &plan, message, sizeof message) == GDN_OK);
    REQUIRE(kernel.run(plan, &call, message, sizeof message) == GDN_OK);
    kernel.destroy(plan);
    for (std::size_t n = 0; n < image.tensors.size(); ++n) {
      const PlacedTensor& x = image.tensors[n];
      if (!x.writable) continue;
      const std::size_t w = size_of(x.dtype);
      std::vector<std::byte> expected_bytes(memory[n].size(), std::byte{0xee});
      const Tensor& t = want.at(x.name);
      for (std::int64_t i = 0; i < t.size(); ++i) {
        std::int64_t rest = i, at = 0;
        for (std::size_t d = x.shape.size(); d-- > 0;) {
          at += rest % x.shape[d] * strides[n][d];
          rest /= x.shape[d];
        }
        std::memcpy(expected_bytes.data() + w + static_cast<std::size_t>(at) * w, t.data.data() + static_cast<std::size_t>(i) * w, w);
      }
      INFO(name << " " << x.name);
      CHECK(memory[n] == expected_bytes);
    }
  }
}

TEST_CASE("wrong calls are answered with an error, not with results") {
  const Run run = exact_run("prefill/n2_t6+5_h2_hv4_k6_v7/bf16/h0");
  const auto answer = [&](auto change) {
    Run wrong = run;
    TensorSet outputs{{"o", Tensor(DType::bf16, {11, 4, 7})}};
    change(wrong.inputs, outputs);
    const CallImage image = make_image({}, run, wrong.inputs, outputs, 64, 4096);
    std::vector<std::byte> arena(image.size + 64);
    std::byte* base = arena.data() + (64 - reinterpret_cast<std::uintptr_t>(arena.data()) % 64);
    fill_image(image, wrong.inputs, base);
    std::vector<std::byte*> data;
    for (const PlacedTensor& t : image.tensors) data.push_back(base + t.begin);
    return invoke(*find_builtin("cpu_chunk_bf16"), image, data).message;
  };
  CHECK(answer([](TensorSet&, TensorSet&) {}) == "");
  CHECK(answer([](TensorSet& in, TensorSet&) { in.erase("g"); }) == "g is missing");
  CHECK(answer([](TensorSet&, TensorSet& out) { out.clear(); }) == "o is missing");
  CHECK(answer([](TensorSet& in, TensorSet&) { in["k"] = Tensor(DType::bf16, {11, 2, 7}); }) == "k has the wrong shape");
  CHECK(answer([](TensorSet& in, TensorSet&) { in["v"] = Tensor(DType::e4m3, {11, 4, 7}); }) == "v has a dtype this kernel does not take");
  CHECK(answer([](TensorSet& in, TensorSet&) { in["cu_seqlens"] = Tensor(DType::i32, {3}); }) == "");
  CHECK(answer([](TensorSet& in, TensorSet&) { in["cu_seqlens"].set(1, 12); }) == "cu_seqlens does not rise from 0 to at most T");
  CHECK(answer([](TensorSet& in, TensorSet&) { in["cu_seqlens"].set(2, 12); }) == "cu_seqlens does not rise from 0 to at most T");
}

TEST_CASE("fast conversions are those of reference/format.h") {
  for (std::uint32_t h = 0; h < 65536; ++h) {
    const auto bits = static_cast<std::uint16_t>(h);
    const double b = decode(h, Format::bf16), f = decode(h, Format::fp16);
    const float fb = cpu::from_bf16(bits), ff = cpu::from_fp16(bits);
    if (!(std::isnan(b) ? std::isnan(fb) : fb == b && std::signbit(fb) == std::signbit(b))) FAIL("from_bf16 " << h);
    if (!(std::isnan(f) ? std::isnan(ff) : ff == f && std::signbit(ff) == std::signbit(f))) FAIL("from_fp16 " << h);
  }
  // Every upper half with lower halves around every place where a bf16 or an fp16 rounding could turn.
  for (std::uint32_t top = 0; top < 65536; ++top)
    for (const std::uint32_t low : {0x0000u, 0x0001u, 0x0fffu, 0x1000u, 0x1001u, 0x2fffu, 0x3000u, 0x3001u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu}) {
      const float x = std::bit_cast<float>(top << 16 | low);
      if (encode(x, Format::bf16) != cpu::to_bf16(x) && !std::isnan(x)) FAIL("to_bf16 " << x);
      if (encode(x, Format::fp16) != cpu::to_fp16(x) && !std::isnan(x)) FAIL("to_fp16 " << x);
      if (std::isnan(x)) {
        if (!std::isnan(cpu::from_bf16(cpu::to_bf16(x))) || !std::isnan(cpu::from_fp16(cpu::to_fp16(x)))) FAIL("NaN lost " << top);
      } else if (std::bit_cast<std::uint32_t>(cpu::round_bf16(x)) != static_cast<std::uint32_t>(cpu::to_bf16(x)) << 16) {
        FAIL("round_bf16 " << x);
      }
    }
}

TEST_CASE("the chunk kernels give the same bits at every vector width, whatever surrounds a row or column") {
  std::vector<const cpu::ChunkFunctions*> all{&cpu::portable::kChunkFunctions};
#ifdef GDN_HAVE_AVX2
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) all.push_back(&cpu::avx2::kChunkFunctions);
#endif
#ifdef GDN_HAVE_AVX512
  if (__builtin_cpu_supports("avx512f")) all.push_back(&cpu::avx512::kChunkFunctions);
#endif
  for (const auto [rows_, K, V] : {std::array<std::int64_t, 3>{64, 32, 40}, {63, 5, 7}, {1, 1, 1}, {18, 21, 9}, {47, 130, 70}, {9, 16, 16}}) {
    const auto n = [](std::int64_t floats) { return static_cast<std::size_t>(floats); };
    std::vector<float> q(n(rows_ * K)), k(q), v(n(rows_ * V)), g(n(rows_)), beta(g), S(n(K * V));
    const Random random(7, "block");
    std::uint64_t i = 0;
    for (auto* x : {&q, &k, &v, &S})
      for (float& y : *x) y = cpu::round_bf16(static_cast<float>(random.normal(i++) / 4));
    for (float& y : g) y = static_cast<float>(-random.uniform(i++));
    if (rows_ > 20) g[11] = -200;                  // forgets what was before
    for (float& y : beta) y = static_cast<float>(random.uniform(i++));
    for (const bool narrow : {false, true}) {
      CAPTURE(rows_, K, V, narrow);
      const auto run = [&](const cpu::ChunkFunctions& functions, std::int64_t columns, std::vector<float>& after) {
        std::vector<float> state(n(K * columns)), o(n(rows_ * columns)), memory(functions.workspace(64, K, columns));
        for (std::int64_t d = 0; d < K; ++d)
          for (std::int64_t j = 0; j < columns; ++j) state[n(d * columns + j)] = S[n(d * V + j)];
        cpu::Block block{rows_, K, columns, 0.25f, true, false, q.data(), k.data(), v.data(), g.data(), beta.data(), state.data(), o.data(), memory.data()};
        block.ldv = V;                             // the first value channels
        (narrow ? functions.bf16 : functions.fp32)(block);
        after = state;
        after.insert(after.end(), o.begin(), o.end());
      };
      std::vector<float> first, other;
      run(*all[0], V, first);
      for (const cpu::ChunkFunctions* functions : all) {
        run(*functions, V, other);
        CHECK(std::memcmp(first.data(), other.data(), first.size() * 4) == 0);
      }
      std::vector<float> one;                      // a single value channel
      run(*all.back(), 1, one);
      for (std::int64_t d = 0; d < K + rows_; ++d)
        if (one[n(d)] != first[n(d * V)]) FAIL("row " << d);
    }
  }
}

TEST_CASE("the exponential of the chunk kernels keeps within its 1.25 units in the last place, subnormal results included") {
  const auto check = [](float x) {
    const float got = cpu::test::exp_of(cpu::test::all(x))[0];
    const double exact = std::exp(static_cast<double>(x));
    const double unit = std::ldexp(1.0, std::max(std::ilogb(exact), -126) - 23);
    if (!(std::fabs(static_cast<double>(got) - exact) <= 1.25 * unit)) FAIL(x << " gives " << got);
  };
  for (int i = 0; i <= 2'000'000; ++i) check(static_cast<float>(-104 + i * (192.0 / 2'000'000)));
  for (int e = -149; e < 0; ++e) check(-std::ldexp(1.0f, e)), check(std::ldexp(1.0f, e));
  const auto at = [](float x) { return cpu::test::exp_of(cpu::test::all(x))[0]; };
  CHECK(at(0.0f) == 1);
  CHECK(at(-0.0f) == 1);
  CHECK(at(-1e30f) == 0);
  CHECK(at(-std::numeric_limits<float>::infinity()) == 0);
  CHECK(std::isinf(at(90.0f)));
  CHECK(std::isnan(at(std::numeric_limits<float>::quiet_NaN())));
}

TEST_CASE("the recurrence in strips gives the bits of the recurrence written down, at every vector width") {
  std::vector<const cpu::RecurrentFunctions*> all{&cpu::portable::kRecurrentFunctions};
#ifdef GDN_HAVE_AVX2
  if (__builtin_cpu_supports("avx2")) all.push_back(&cpu::avx2::kRecurrentFunctions);
#endif
#ifdef GDN_HAVE_AVX512
  if (__builtin_cpu_supports("avx512f")) all.push_back(&cpu::avx512::kRecurrentFunctions);
#endif
  struct Sizes { std::int64_t rows, K, V; bool delta; };
  for (const Sizes s : {Sizes{1, 16, 64, true}, {3, 5, 32, true}, {1, 8, 7, true}, {9, 7, 1, true}, {5, 6, 16, false}, {64, 19, 17, true}, {6, 12, 33, true}, {7, 8, 100, true}, {4, 4, 200, false}}) {
    const auto drawn = [&](const char* name, std::int64_t n, double lo, double hi) {
      std::vector<float> x(static_cast<std::size_t>(n));
      const Random r(static_cast<std::uint64_t>(s.rows * s.V), name);
      for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(r.uniform(i, lo, hi));
      return x;
    };
    const auto q = drawn("q", s.rows * s.K, -1, 1), k = drawn("k", s.rows * s.K, -1, 1), v = drawn("v", s.rows * s.V, -1, 1), g = drawn("g", s.rows, -1, 0),
               beta = drawn("beta", s.rows, 0, 1), S0 = drawn("S", s.K * s.V, -1, 1);
    std::vector<float> S = S0, o(v.size());
    for (std::int64_t t = 0; t < s.rows; ++t)
      for (std::int64_t j = 0; j < s.V; ++j) {
        const auto at = [](std::int64_t i) { return static_cast<std::size_t>(i); };
        const float alpha = std::exp(g[at(t)]);
        float w = 0, y = v[at(t * s.V + j)], out = 0;
        for (std::int64_t d = 0; d < s.K; ++d) w += k[at(t * s.K + d)] * S[at(d * s.V + j)];
        if (s.delta) y -= alpha * w;
        y *= beta[at(t)];
        for (std::int64_t d = 0; d < s.K; ++d) {
          float& x = S[at(d * s.V + j)];
          x = alpha * x + k[at(t * s.K + d)] * y;
          out += q[at(t * s.K + d)] * x;
        }
        o[at(t * s.V + j)] = 0.25f * out;
      }
    for (const cpu::RecurrentFunctions* f : all) {
      std::vector<float> state = S0, got(o.size()), work(static_cast<std::size_t>(f->floats(s.K)));
      f->rows({s.rows, s.K, s.V, 0.25f, s.delta, false, q.data(), k.data(), v.data(), g.data(), beta.data(), state.data(), got.data(), work.data()});
      CHECK(got == o);
      CHECK(state == S);
    }
  }
}

TEST_CASE("tensors of the ABI are laid out as DLPack 1.x lays them out") {
  STATIC_REQUIRE(sizeof(gdn_dtype) == 4);
  STATIC_REQUIRE(sizeof(gdn_device) == 8);
  if constexpr (sizeof(void*) == 8) {
    STATIC_REQUIRE(sizeof(gdn_dltensor) == 48);
    STATIC_REQUIRE(offsetof(gdn_dltensor, device) == 8);
    STATIC_REQUIRE(offsetof(gdn_dltensor, ndim) == 16);
    STATIC_REQUIRE(offsetof(gdn_dltensor, dtype) == 20);
    STATIC_REQUIRE(offsetof(gdn_dltensor, shape) == 24);
    STATIC_REQUIRE(offsetof(gdn_dltensor, strides) == 32);
    STATIC_REQUIRE(offsetof(gdn_dltensor, byte_offset) == 40);
  }
  for (int i = 0; i < 8; ++i) CHECK(from_dl(dl_dtype(static_cast<DType>(i))) == static_cast<DType>(i));
  CHECK_THROWS_AS(from_dl({5, 64, 1}), std::invalid_argument);
}

TEST_CASE("capabilities: what is not listed is not claimed") {
  const Capabilities c = parse_capabilities("ops=prefill;io=bf16,fp32;state=fp32;K=64,128;V=1..512;ratio=1..8;varlen;h0;g_min=-80;beta_max=1;align=16");
  CHECK(c.varlen);
  CHECK(c.h0);
  CHECK_FALSE(c.ht);
  CHECK_FALSE(c.empty);
  CHECK(c.key_dims == std::vector<std::int64_t>{64, 128});
  CHECK(c.g_min == -80);
  CHECK(parse_capabilities("g_min=-inf").g_min == 0);
  CHECK(parse_capabilities("").empty);
  for (const char* wrong : {"io=int32", "io=", "K=0..4", "K=9..4", "K=x", "speed=3", "fast", "g_min=1", "align=3", "rules=magic", "beta_max=nan"})
    CHECK_THROWS_AS(parse_capabilities(wrong), std::invalid_argument);
  CHECK_THROWS_WITH(parse_capabilities("fast"), "capabilities: unknown flag 'fast' (flags: varlen, h0, ht, noht, empty, equal_kv, raw_gates, strides, short_offsets, refuses_growth, any_beta)");
  for (const CapabilityKey& key : capability_keys()) {   // every value that is said to exist does
    CAPTURE(key.name, key.values);
    CHECK_FALSE(key.meaning.empty());
    if (key.values.empty()) CHECK_NOTHROW(parse_capabilities(key.name));
    if (!key.values.starts_with("list of ") || key.values.find(',') == std::string::npos) continue;
    const std::string list = key.values.substr(8);
    for (std::size_t i = 0; i < list.size();) {
      const std::size_t end = std::min(list.find(", ", i), list.size());
      const std::string value = list.substr(i, end - i), stages = key.name == "stages" ? "ops=stages;" : value == "stages" ? "stages=uw;" : "";
      CHECK_NOTHROW(parse_capabilities(stages + key.name + "=" + value));
      i = end + 2;
    }
  }
  CHECK(parse_properties("masks_select;deterministic").masks_select);
  CHECK_FALSE(parse_properties("masks_select").deterministic);
  CHECK_THROWS_AS(parse_properties("fast"), std::invalid_argument);
}

TEST_CASE("a run outside the declared domain is refused with what and the limit") {
  const auto reason = [](const char* capabilities, const std::string& problem, double reset = -1000) {
    return unsupported_reason(parse_capabilities(capabilities), parse_contract("fp32-recurrent"), exact_run(problem, 1, reset));
  };
  const std::string usual = "prefill/n1_t40_h1_hv2_k8_v4/bf16/h0";
  CHECK(reason("io=bf16;h0;ht", usual) == "");
  CHECK(reason("io=fp32;h0;ht", usual) == "io=bf16 not in declared io=fp32");
  CHECK(reason("K=64,128;h0;ht", usual) == "K=8 not in declared K=64,128");
  CHECK(reason("V=5..512;h0;ht", usual) == "V=4 not in declared V=5..512");
  CHECK(reason("ratio=1..1;h0;ht", usual) == "ratio=2 not in declared ratio=1..1");
  CHECK(reason("equal_kv;h0;ht", usual) == "K=8 differs from V=4, declared equal_kv");
  CHECK(reason("ht", usual) == "an initial state, h0 not declared");
  CHECK(reason("h0", usual) == "a final state, ht not declared");
  CHECK(reason("ht", "prefill/n1_t40_h1_hv2_k8_v4/bf16/split=7") == "an initial state, h0 not declared");
  CHECK(reason("h0", "prefill/n1_t40_h1_hv2_k8_v4/bf16/noht") == "");
  CHECK(reason("h0;ht", "prefill/n2_t40+3_h1_hv2_k8_v4/bf16") == "sequences of different lengths, varlen not declared");
  CHECK(reason("h0;ht", "prefill/n1_t40_h1_hv2_k8_v4/bf16/pad=1") == "sequences of different lengths, varlen not declared");
  CHECK(reason("h0;ht;varlen", "prefill/n2_t40+0_h1_hv2_k8_v4/bf16") == "a sequence without tokens, empty not declared");
  CHECK(reason("h0;ht;varlen", "prefill/n2_t40+3_h1_hv2_k8_v4/bf16/split=5") == "a sequence without tokens, empty not declared");
  CHECK(reason("g_min=-80;h0;ht", usual) == "g=-1000 below declared g_min=-80");
  CHECK(reason("g_min=-80;h0;ht", usual, -kInf) == "g=-inf below declared g_min=-80");
  CHECK(reason("beta_max=0.5;h0;ht", usual) == "beta=1 above declared beta_max=0.5");
  CHECK(reason("h0;ht", "prefill/n1_t4_h1_hv1_k8_v4/bf16/rule=delta") == "rules=delta not in declared rules=gated_delta");
  CHECK(unsupported_reason(parse_capabilities(""), parse_contract("fp32-chunk;gate_sum=prefix_seq;g_min=-50"), exact_run(usual)) ==
        "g=-1000 below declared g_min=-50");
}
