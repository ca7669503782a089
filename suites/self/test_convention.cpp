// Conventions: text form, and a kernel per convention that reads and writes its tensors in that layout by its own index
// arithmetic. After conversion its results are exactly those of the canonical operation.
#include "kernels/convention.h"

#include "kernels/schedule.h"
#include "reference/strand.h"
#include "suites/family.h"
#include "suites/self/catch.h"
#include "suites/self/exact_run.h"

using namespace gdn;
using namespace gdn::exact;

namespace {

// The recurrence on the kernel's own tensors, in double. Shares nothing with convention.cpp: it knows the axes from
// their definition only.
struct KernelInConvention {
  Convention c;
  const Run& run;
  const Problem& p = run.problem;
  std::int64_t r = p.value_heads / p.heads;
  bool batch = c.layout != TensorLayout::THD && p.padding == 0 &&
               std::all_of(p.lengths.begin(), p.lengths.end(), [&](std::int64_t n) { return n == p.lengths[0]; });

  std::int64_t token(std::int64_t n, std::int64_t t, std::int64_t h, std::int64_t heads, std::int64_t d, std::int64_t width) const {
    const std::int64_t row = p.offsets()[static_cast<std::size_t>(n)] + t, L = p.lengths[static_cast<std::size_t>(n)];
    if (c.layout != TensorLayout::BHTD) return (row * heads + h) * width + d;
    if (batch) return ((n * heads + h) * L + t) * width + d;
    return (h * (p.tokens() + p.padding) + row) * width + d;
  }
  std::int64_t state(std::int64_t n, std::int64_t hv, std::int64_t d, std::int64_t v) const {
    const std::int64_t at = n * p.value_heads + hv;
    return c.state == StateLayout::KV ? (at * p.key_dim + d) * p.value_dim + v : (at * p.value_dim + v) * p.key_dim + d;
  }

  TensorSet operator()(const TensorSet& in, TensorSet out, double scale) const {
    const std::int64_t K = p.key_dim, V = p.value_dim;
    const bool verify = p.operation == Operation::verify;
    if (p.pool()) out["ht"] = in.at("h0");         // in place
    for (std::int64_t n = 0; n < p.sequences(); ++n)
      for (std::int64_t hv = 0; hv < p.value_heads; ++hv) {
        const std::int64_t slot = p.pool() ? in.at("state_indices").int_at(n) : n, accepted = in.count("accepted") ? in.at("accepted").int_at(n) : 0;
        if (slot < 0) continue;
        const std::int64_t L = p.lengths[static_cast<std::size_t>(n)];
        if (L == 0 && c.empty == EmptySequence::untouched) continue;
        const std::int64_t H = c.heads == HeadMap::repeated ? p.value_heads : p.heads;
        const std::int64_t h = c.heads == HeadMap::grouped ? hv / r : c.heads == HeadMap::tiled ? hv % p.heads : hv;
        std::vector<double> S(static_cast<std::size_t>(K * V)), k(static_cast<std::size_t>(K)), q(k);
        const auto s = [&](std::int64_t d, std::int64_t v) -> double& { return S[static_cast<std::size_t>(d * V + v)]; };
        for (std::int64_t d = 0; d < K && p.initial_state; ++d)
          for (std::int64_t v = 0; v < V; ++v) {
            s(d, v) = accepted > 0 ? in.at("snapshots").at(state(n * p.draft + accepted - 1, hv, d, v)) : in.at("h0").at(state(slot, hv, d, v));
            if (verify && accepted > 0) out.at("ht").set(state(slot, hv, d, v), s(d, v));
          }
        for (std::int64_t t = 0; t < L; ++t) {
          double kk = 0, qq = 0;
          for (std::int64_t d = 0; d < K; ++d) {
            k[static_cast<std::size_t>(d)] = in.at("k").at(token(n, t, h, H, d, K));
            q[static_cast<std::size_t>(d)] = in.at("q").at(token(n, t, h, H, d, K));
            kk += k[static_cast<std::size_t>(d)] * k[static_cast<std::size_t>(d)];
            qq += q[static_cast<std::size_t>(d)] * q[static_cast<std::size_t>(d)];
          }
          if (c.l2norm == L2Norm::in_kernel)
            for (std::int64_t d = 0; d < K; ++d) {
              k[static_cast<std::size_t>(d)] = static_cast<float>(k[static_cast<std::size_t>(d)] / std::sqrt(kk + 1e-6));
              q[static_cast<std::size_t>(d)] = static_cast<float>(q[static_cast<std::size_t>(d)] / std::sqrt(qq + 1e-6));
            }
          const double g = in.at("g").at(token(n, t, hv, p.value_heads, 0, 1)), beta = in.at("beta").at(token(n, t, hv, p.value_heads, 0, 1));
          const double alpha = c.gate == GateDomain::log ? std::exp(g) : c.gate == GateDomain::linear ? g : std::exp2(g);
          for (std::int64_t v = 0; v < V; ++v) {
            double read = 0, o = 0;
            for (std::int64_t d = 0; d < K; ++d) read += (s(d, v) *= alpha) * k[static_cast<std::size_t>(d)];
            const double y = beta * (in.at("v").at(token(n, t, hv, p.value_heads, v, V)) - read);
            for (std::int64_t d = 0; d < K; ++d) o += (s(d, v) += k[static_cast<std::size_t>(d)] * y) * q[static_cast<std::size_t>(d)];
            out.at("o").set(token(n, t, hv, p.value_heads, v, V), scale * o);
          }
          for (std::int64_t d = 0; d < K && verify; ++d)
            for (std::int64_t v = 0; v < V; ++v) out.at("snapshots").set(state(n * L + t, hv, d, v), s(d, v));
        }
        for (std::int64_t d = 0; d < K && p.final_state && !verify; ++d)
          for (std::int64_t v = 0; v < V; ++v) out.at("ht").set(state(slot, hv, d, v), s(d, v));
      }
    return out;
  }
};

// What a kernel of convention `real` returns when the suite believes it to be of convention `declared`.
TensorSet through(const Convention& declared, const Convention& real, const Run& run) {
  TensorSet out = output_shapes(declared, run);
  for (auto& [name, t] : out)
    for (std::int64_t i = 0; i < t.size(); ++i) t.set_bits(i, poison_bits(t.dtype));
  double scale = kernel_scale(declared, run);
  if (real.scale == ScaleHandling::folded) scale = 1;
  if (real.scale == ScaleHandling::fixed) scale = 1 / std::sqrt(static_cast<double>(run.problem.key_dim));
  const KernelInConvention kernel{real, run};
  return from_kernel(declared, run, kernel(to_kernel(declared, run), std::move(out), scale));
}

const char* const kAll[] = {"", "layout=BTHD", "layout=BHTD", "state=VK", "gate=linear", "gate=log2", "scale=fixed", "scale=folded",
                            "heads=tiled", "heads=repeated", "empty=untouched",
                            "layout=BHTD;state=VK;gate=linear;scale=folded;heads=tiled;empty=untouched",
                            "layout=BTHD;state=VK;gate=log2;scale=fixed;heads=repeated"};

template <class F>
std::string thrown_by(F f) {
  try {
    f();
  } catch (const std::invalid_argument& e) {
    return e.what();
  }
  return "nothing was thrown";
}

}  // namespace

TEST_CASE("convention texts are fixed points") {
  for (const char* text : kAll) CHECK(to_string(parse_convention(text)) == text);
  CHECK(to_string(parse_convention(" state = VK ; layout=BTHD;; gate=log ")) == "layout=BTHD;state=VK");
  const std::string all = describe_conventions();
  for (const char* word : {"layout=BHTD", "state=VK", "gate=log2", "scale=folded", "heads=repeated", "l2norm=in_kernel", "empty=untouched"})
    CHECK(all.find(word) != std::string::npos);
}

TEST_CASE("wrong convention texts are refused by axis and value") {
  CHECK(thrown_by([] { parse_convention("colour=red"); }) ==
        "unknown convention axis 'colour' (axes: layout, state, gate, scale, heads, l2norm, empty, triangle, projections, history, norm_in)");
  CHECK(thrown_by([] { parse_convention("state=VK;gate=natural"); }) == "convention axis 'gate' has no value 'natural' (values: log, linear, log2)");
  CHECK(thrown_by([] { parse_convention("state"); }) == "convention axis 'state' has no value '' (values: KV, VK)");
}

TEST_CASE("a kernel of every convention returns the canonical results") {
  // K=16: the fixed scale is 1/4, a power of two away from 1/2.
  for (const char* problem : {"prefill/n2_t7_h2_hv6_k16_v3/fp32/h0,scale=0x1p-1", "prefill/n3_t4+0+6_h2_hv4_k16_v5/fp32/h0,pad=2,scale=0x1p-1",
                              "prefill/n2_t0_h2_hv4_k16_v5/bf16/h0,scale=0x1p-1", "prefill/n2_t3+0_h3_hv3_k16_v2/bf16/scale=0x1p-1",
                              "prefill/n1_t9_h1_hv4_k16_v17/fp16/h0,noht,scale=0x1p-1"}) {
    const Run run = exact_run(problem, 11);
    const TensorSet want = expected(run);
    for (const char* text : kAll) {
      const Convention c = parse_convention(text);
      INFO(problem << " " << text);
      CHECK(differing(run, through(c, c, run), want) == 0);
    }
  }
}

TEST_CASE("pools, snapshots and index lists reach a kernel of every convention") {
  for (const char* id : {"decode_pool:decode/n4_t4_h2_hv4_k6_v5/fp32/h0,slots=9:1", "verify_snapshots:verify/n4_t10_h2_hv4_k6_v5/fp32/h0,slots=7,draft=3:1"}) {
    const Run run = make_case(parse_case_id(id)).runs[0];
    const auto results = [&](const Convention& c) {
      return run_schedule(run, [&](const Run& call) {
        Execution e;
        e.outputs = through(c, c, call);
        return e;
      }).outputs;
    };
    const TensorSet want = results({});
    for (const char* text : {"layout=BTHD", "layout=BHTD", "state=VK", "heads=tiled", "heads=repeated", "layout=BHTD;state=VK;heads=tiled"}) {
      INFO(id << " " << text);
      const TensorSet got = results(parse_convention(text));
      for (const Strand& s : strands(run)) {       // what is nobody's is not compared
        const auto same = [&](const char* tensor, std::int64_t row) {
          const Tensor &a = got.at(tensor), &b = want.at(tensor);
          const std::int64_t width = b.size() / b.shape[0];
          std::int64_t n = 0;
          for (std::int64_t i = row * width; i < (row + 1) * width; ++i) n += a.bits(i) != b.bits(i);
          return n;
        };
        for (std::size_t t = static_cast<std::size_t>(s.outputs); t < s.rows.size(); ++t) CHECK(same("o", s.rows[t]) == 0);
        CHECK(same(s.state, s.state_row) == 0);
      }
    }
  }
}

TEST_CASE("a wrong declaration shows, axis by axis") {
  const Run run = exact_run("prefill/n3_t4+0+6_h2_hv4_k16_v16/fp32/h0,scale=0x1p-1", 11);
  const TensorSet want = expected(run);
  for (const char* text : {"layout=BHTD", "state=VK", "gate=linear", "scale=fixed", "scale=folded", "heads=tiled", "heads=repeated", "empty=untouched"}) {
    const Convention c = parse_convention(text);
    INFO(text);
    if (c.heads != HeadMap::repeated)              // would read past q and k
      CHECK(differing(run, through({}, c, run), want) != 0);
    // An empty state is filled in either way, and a kernel that takes a scale applies the one it is given.
    if (c.empty != EmptySequence::untouched && c.scale == ScaleHandling::argument)
      CHECK(differing(run, through(c, {}, run), want) != 0);
  }
}

TEST_CASE("l2norm inside the kernel is judged on rows of length 1 or 0") {
  const Convention c = parse_convention("l2norm=in_kernel");
  Run run = exact_run("prefill/n2_t8_h2_hv4_k16_v3/bf16/h0,scale=0x1p+0", 5);
  CHECK(thrown_by([&] { to_kernel(c, run); }).find("l2norm=in_kernel: row ") == 0);
  run.inputs["q"] = run.inputs.at("k");
  CHECK(differing(run, through(c, c, run), expected(run)) == 0);
  CHECK(differing(run, through({}, c, run), expected(run)) != 0);  // without the factor the epsilon shows
  run.inputs.at("k").set(16, 0.75);
  CHECK(thrown_by([&] { to_kernel(c, run); }).find("l2norm=in_kernel: row 1 of k has squared length") == 0);
}

TEST_CASE("what a convention cannot express is refused with the reason") {
  const Run run = exact_run("prefill/n1_t3_h1_hv1_k8_v2/bf16/scale=0x1p+0", 5);
  const std::string fixed = thrown_by([&] { to_kernel(parse_convention("scale=fixed"), run); });
  CHECK(fixed == "scale=fixed: scale 1 cannot be put into q exactly, its ratio to 0.353553385 is not a power of two");
  const Run usual = exact_run("prefill/n1_t3_h1_hv1_k8_v2/bf16", 5);
  CHECK(thrown_by([&] { to_kernel(parse_convention("scale=folded"), usual); }).find("scale=folded: scale 0.353553385") == 0);
  CHECK(kernel_scale(parse_convention("scale=fixed"), usual) == usual.problem.effective_scale());
  const Run large = exact_run("prefill/n1_t3_h1_hv1_k8_v2/fp16/scale=0x1p+14", 5);
  CHECK(thrown_by([&] { to_kernel(parse_convention("scale=folded"), large); }) ==
        "scale=folded: q[1]=-4 times 16384 is not exact in fp16");
  const Run small = exact_run("prefill/n1_t3_h1_hv1_k8_v2/fp32/scale=0x1p-130", 5);
  const std::string subnormal = thrown_by([&] { to_kernel(parse_convention("scale=folded"), small); });
  CHECK(subnormal.find("scale=folded: q[") == 0);
  CHECK(subnormal.find("is subnormal") != std::string::npos);
  const Run least = exact_run("prefill/n1_t3_h1_hv1_k8_v2/fp32/scale=0x1p-100", 5);
  CHECK_NOTHROW(to_kernel(parse_convention("scale=folded"), least));
}

TEST_CASE("gates convert with one rounding from the exact value") {
  Run run = exact_run("prefill/n1_t4_h1_hv1_k1_v1/bf16/g=bf16", 5);
  Tensor& g = run.inputs.at("g");
  const double gates[] = {-0.5, -kInf, -20, 0};
  for (int i = 0; i < 4; ++i) g.set(i, gates[i]);
  const Tensor linear = to_kernel(parse_convention("gate=linear"), run).at("g"), log2 = to_kernel(parse_convention("gate=log2"), run).at("g");
  REQUIRE(linear.dtype == DType::f32);
  REQUIRE(log2.dtype == DType::f32);
  const float alpha[] = {0.60653066f, 0, 2.06115362e-9f, 1}, two[] = {-0.72134752f, static_cast<float>(-kInf), -28.8539009f, 0};
  for (int i = 0; i < 4; ++i) {
    CHECK(linear.at(i) == alpha[i]);
    CHECK(log2.at(i) == two[i]);
  }
}
