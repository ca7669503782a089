// The fault bank: the twin is the algorithm in every form, every fault changes something somewhere, and each is what
// its table row says (form, kind). Exists because a fault that does nothing would count as a weakness of the suite.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <set>

#include "kernels/faulty/faults.h"
#include "kernels/faulty/narrow.h"
#include "reference/format.h"
#include "reference/rng.h"
#include "suites/family.h"
#include "suites/kinds.h"
#include "suites/self/catch.h"

using namespace gdn;

namespace {

// A run with random inputs; gates cycle through `gates`, keys have length `norm`, or are all equal.
Run probe(const std::string& text, const std::vector<double>& gates, double norm, double value, double beta_max, bool equal_keys = false) {
  Run run;
  run.problem = parse_problem(text);
  const Problem& p = run.problem;
  const std::int64_t T = p.tokens() + p.padding;
  auto fill = [&](const char* name, DType type, std::vector<std::int64_t> shape, auto f) {
    Tensor t(type, std::move(shape));
    const Random random(7, name);
    for (std::int64_t i = 0; i < t.size(); ++i) t.set(i, f(random, i));
    run.inputs[name] = std::move(t);
  };
  auto normal = [](const Random& r, std::int64_t i) { return r.normal(static_cast<std::uint64_t>(i)); };
  fill("q", p.io, {T, p.heads, p.key_dim}, normal);
  fill("k", p.io, {T, p.heads, p.key_dim}, [&](const Random& r, std::int64_t i) {
    const std::int64_t c = equal_keys ? i % p.key_dim : i;
    return norm * r.normal(static_cast<std::uint64_t>(c)) / std::sqrt(static_cast<double>(p.key_dim));
  });
  fill("v", p.io, {T, p.value_heads, p.value_dim}, [&](const Random& r, std::int64_t i) { return value * normal(r, i); });
  if (p.rule == Rule::gated_delta) fill("g", p.gate, {T, p.value_heads}, [&](const Random& r, std::int64_t i) {
    return gates[r.below(static_cast<std::uint64_t>(i), gates.size())];
  });
  fill("beta", DType::f32, {T, p.value_heads}, [&](const Random& r, std::int64_t i) {
    return equal_keys ? beta_max : beta_max * r.uniform(static_cast<std::uint64_t>(i));
  });
  if (p.initial_state) fill("h0", DType::f32, {p.sequences(), p.value_heads, p.key_dim, p.value_dim}, normal);
  Tensor cu(DType::i64, {p.sequences() + 1});
  for (std::int64_t i = 0; i <= p.sequences(); ++i) cu.set(i, static_cast<double>(p.offsets()[static_cast<std::size_t>(i)]));
  run.inputs["cu_seqlens"] = std::move(cu);
  return run;
}

std::vector<Run> probes() {
  const double inf = std::numeric_limits<double>::infinity();
  std::vector<Run> all{
      probe("prefill/n4_t70+0+1+130_h2_hv6_k48_v80/fp32/h0,pad=5", {0, -1e-5, -1e-3, -0.02, -0.5, -5}, 0.9, 1, 1.9),
      probe("prefill/n2_t64+67_h2_hv6_k16_v24/fp32/h0,pad=3,scale=0x1p-1", {0, -0.01, -0.01, -0.01, -20, -88, -1e4, -inf}, 1.2, 1, 1),
      probe("prefill/n1_t130_h1_hv3_k32_v16/fp32/h0", {-0.02, -90, -3e-3}, 1, 1e6, 1),
      probe("prefill/n1_t64_h1_hv1_k32_v16/fp32/h0", {-1e-3}, 1, 1, 0.835, true),
      probe("prefill/n10_t7+64+3x8_h1_hv1_k8_v8/fp32", {-1e-3, -0.1}, 1, 1, 1),
      probe("prefill/n1_t330_h1_hv2_k16_v16/bf16/h0,split=65", {-1e-4, -1e-3, 0}, 1, 1, 1),
      probe("prefill/n2_t40+9_h1_hv1_k16_v16/fp32/split=10", {-0.1}, 1, 1, 1),
      probe("prefill/n1_t20_h1_hv1_k16_v16/fp32/split=10", {-0.1}, 1, 1, 1),
      probe("prefill/n1_t1_h1_hv1_k16_v16/fp32/h0", {-88}, 1, 1, 0),
      probe("prefill/n1_t70_h1_hv2_k80_v16/fp32/h0,noht,scale=0x1p+0", {-0.1, -0.01}, 1, 1, 1),
      probe("prefill/n1_t20_h1_hv18_k20_v8/fp32/h0,state=bf16", {-0.1, -0.01}, 1, 1, 1),
      probe("prefill/n1_t1030_h1_hv1_k8_v8/fp32", {-0.01}, 1, 1, 1),
      probe("prefill/n1_t3_h1_hv1_k8_v8/fp32/h0", {-0.01}, 0, 1, 1),
      probe("prefill/n1_t3_h1_hv1_k8_v8/fp32/h0", {-0.01}, 1e-4, 1, 1),
      probe("prefill/n300_t1_h1_hv1_k2_v2/fp32/h0", {-0.01}, 1, 1, 1),
      probe("prefill/n1_t4100_h1_hv1_k2_v2/fp32", {-0.01}, 1, 1, 1),
      probe("prefill/n1_t9_h1_hv1_k8_v8/fp16/h0,g=bf16", {-0.01}, 1, 0x1p-16, 1),
      probe("prefill/n1_t9_h1_hv1_k8_v8/fp32/h0,rule=delta", {0}, 1, 1, 1),
      probe("prefill/n2_t9_h1_hv1_k8_v8/fp32/h0,cu=i32", {-0.01}, 1, 1, 1),
      probe("prefill/n3_t9+2+5_h1_hv1_k8_v8/fp32/h0,cu=i32", {-0.01}, 1, 1, 1),
      probe("prefill/n2_t3+140_h1_hv1_k33_v130/fp32/h0", {-0.01}, 1, 1, 1),
      probe("prefill/n1_t520_h1_hv1_k66_v2/fp32/h0", {-0.01}, 1, 1, 1),
      probe("prefill/n6_t2_h1_hv1_k66_v2/fp32/h0", {-0.01}, 1, 1, 1),
      probe("prefill/n2_t9+4_h2_hv6_k8_v8/fp32/rule=delta", {0}, 1, 1, 1),
      probe("prefill/n1_t3_h2_hv10_k8_v8/fp32", {-0.01}, 1, 1, 1),
      probe("prefill/n2_t9+4_h1_hv1_k8_v8/fp16/h0,g=bf16,state=bf16", {-0.01, -0.02, -0.03}, 1, 1, 1),
      probe("prefill/n70_t1_h1_hv2_k64_v2/fp32/h0", {-0.01}, 1, 1, 1),
      probe("prefill/n1_t5_h1_hv1_k8_v66/fp16/h0", {-0.01}, 1, 1, 1),
      probe("prefill/n10_t2_h1_hv1_k96_v2/fp32/h0", {-0.01, -0.3, -0.7}, 1, 1, 1),
      probe("prefill/n1_t9_h1_hv1_k8_v8/fp32/h0,scale=0x1p-130", {-0.01}, 1, 1, 1),
      probe("prefill/n1_t70_h1_hv1_k8_v8/fp16", {-0.01}, 1, 1, 1),
      probe("prefill/n1_t70_h2_hv4_k8_v8/fp32/noht", {-0.01}, 1, 1, 1),
      probe("prefill/n1_t263_h1_hv26_k8_v2/bf16/h0,scale=-0x1p-1", {-0.01, -0.3}, 1, 1, 1),
      probe("prefill/n3_t65+1+2_h1_hv1_k200_v260/bf16", {-0.01}, 1, 1, 1),
      probe("prefill/n4100_t1_h1_hv1_k2_v2/fp32/h0", {-0.01}, 1, 1, 1),
  };
  all.push_back(probe("prefill/n1_t50_h1_hv1_k8_v8/fp32/h0", {-0.1}, 1, 1, 1));     // one write, then none
  for (std::int64_t t = 1; t < 50; ++t) all.back().inputs.at("beta").set(t, 0);
  return all;
}

// Largest difference in units of the largest expected value; infinite where finiteness differs.
double difference(const TensorSet& a, const TensorSet& b, const Problem& p) {
  double worst = 0;
  for (const auto& [name, expected] : b) {
    const Tensor& got = a.at(name);
    double peak = 0, error = 0;
    const std::int64_t n = name == "o" ? p.tokens() * p.value_heads * p.value_dim : expected.size();
    for (std::int64_t i = 0; i < n; ++i) {
      const double x = got.at(i), y = expected.at(i);
      if (std::isfinite(x) != std::isfinite(y)) return std::numeric_limits<double>::infinity();
      if (!std::isfinite(y)) continue;             // rows without a sequence, canaries
      peak = std::max(peak, std::fabs(y));
      error = std::max(error, std::fabs(x - y));
    }
    if (peak > 0) worst = std::max(worst, error / peak);
  }
  return worst;
}

// Calls a kernel of the C ABI on canonical dense tensors, with `past` guard elements behind o.
int call(const gdn_kernel& kernel, void*& plan, const Run& run, TensorSet& tensors, TensorSet& outputs) {
  const Problem& p = run.problem;
  gdn_problem problem{};
  problem.struct_size = sizeof problem;
  problem.operation = GDN_PREFILL;
  problem.rule = GDN_RULE_GATED_DELTA;
  problem.N = p.sequences();
  problem.T = p.tokens() + p.padding;
  problem.H = p.heads;
  problem.HV = p.value_heads;
  problem.K = p.key_dim;
  problem.V = p.value_dim;
  problem.scale = p.effective_scale();
  char message[200] = "";
  if (!plan && kernel.create(&problem, &plan, message, sizeof message) != GDN_OK) return GDN_ERROR;
  std::vector<gdn_tensor> list;
  std::vector<std::vector<std::int64_t>> strides;
  strides.reserve(16);
  auto add = [&](int role, Tensor& t, int writable) {
    strides.emplace_back(t.shape.size(), 1);
    for (std::size_t d = t.shape.size() - 1; d > 0; --d) strides.back()[d - 1] = strides.back()[d] * t.shape[d];
    gdn_tensor g{};
    g.struct_size = sizeof g;
    g.role = role;
    g.writable = writable;
    g.t.data = t.data.data();
    g.t.ndim = static_cast<std::int32_t>(t.shape.size());
    g.t.dtype.code = t.dtype == DType::bf16 ? GDN_CODE_BFLOAT : t.dtype == DType::i64 ? GDN_CODE_INT : GDN_CODE_FLOAT;
    g.t.dtype.bits = static_cast<std::uint8_t>(8 * size_of(t.dtype));
    g.t.dtype.lanes = 1;
    g.t.shape = t.shape.data();
    g.t.strides = strides.back().data();
    list.push_back(g);
  };
  const std::pair<const char*, int> inputs[] = {{"q", GDN_Q}, {"k", GDN_K}, {"v", GDN_V}, {"g", GDN_G}, {"beta", GDN_BETA}, {"h0", GDN_H0}, {"cu_seqlens", GDN_CU_SEQLENS}};
  for (const auto& [name, role] : inputs)
    if (tensors.count(name)) add(role, tensors.find(name)->second, 0);
  add(GDN_O, outputs.find("o")->second, 1);
  if (outputs.count("ht")) add(GDN_HT, outputs.find("ht")->second, 1);
  gdn_call c{};
  c.struct_size = sizeof c;
  c.problem = &problem;
  c.tensors = list.data();
  c.num_tensors = static_cast<std::int32_t>(list.size());
  return kernel.run(plan, &c, message, sizeof message);
}
TensorSet empty_outputs(const Problem& p) {
  TensorSet out;
  out["o"] = Tensor(p.io, {p.tokens() + p.padding, p.value_heads, p.value_dim});
  out["ht"] = Tensor(p.state, {p.sequences(), p.value_heads, p.key_dim, p.value_dim});
  for (auto& [name, t] : out) std::fill(t.data.begin(), t.data.end(), std::byte{0xff});
  return out;
}

}  // namespace

TEST_CASE("fast rounding equals the one of reference/format.h") {
  const Random random(1, "narrow");
  std::int64_t wrong = 0;
  for (const Format f : {Format::bf16, Format::fp16, Format::tf32, Format::fp8_e4m3, Format::fp32}) {
    for (std::uint64_t i = 0; i < 60000; ++i) {
      std::uint64_t bits = random.bits(i);
      if (i % 3 == 0) bits = (bits & 0x800fffffffffffffu) | (std::uint64_t{1023 - 20 + i % 40} << 52);
      if (i % 7 == 0) bits = (bits >> (52 - info(f).precision)) << (52 - info(f).precision);      // ties
      const double x = std::bit_cast<double>(bits), expected = round_to(x, Store{f}), got = faulty::narrow(x, f);
      wrong += !(std::isnan(expected) ? std::isnan(got) : std::bit_cast<std::uint64_t>(got) == std::bit_cast<std::uint64_t>(expected));
    }
  }
  for (std::uint64_t i = 0; i < 200000; ++i) {
    std::uint32_t bits = static_cast<std::uint32_t>(random.bits(i));
    if (i % 5 == 0) bits = (bits & 0xffff0000u) | 0x8000u;
    const float x = std::bit_cast<float>(bits);
    const double expected = round_to(static_cast<double>(x), Store{Format::bf16});
    const float got = faulty::to_bf16(x);
    wrong += !(std::isnan(expected) ? std::isnan(got) : static_cast<double>(got) == expected);
  }
  CHECK(wrong == 0);
}

TEST_CASE("the table is in order: names, kinds, forms, size") {
  CHECK(fault_bank().size() >= 100);
  std::set<std::string> names;
  for (const Fault& f : fault_bank()) {
    INFO(f.name);
    CHECK(names.insert(f.name).second);
    CHECK(is_kind(f.kind));
    CHECK(f.forms != 0);
    CHECK(std::strlen(f.mechanism) > 10);
    CHECK(std::strlen(f.origin) > 3);
    CHECK(find_fault(f.name) == &f);
    for (const Form form : {Form::recurrent, Form::chunkwise})
      for (const FaultScalar s : {FaultScalar::fp32, FaultScalar::bf16}) CHECK((faulty_kernel(f, form, s) != nullptr) == f.has(form));
  }
  CHECK(find_fault("no such fault") == nullptr);
  CHECK(find_faulty_kernel("faulty/gate_clamped/chunk-bf16") != nullptr);
  CHECK(find_faulty_kernel("faulty/none/recurrent-fp32") != nullptr);
  CHECK(find_faulty_kernel("faulty/decay_after_write/chunk-bf16") == nullptr);
}

TEST_CASE("the twin is one algorithm in both forms, and every fault changes it") {
  const Fault& none = *find_fault("none");
  // Visible only from one run of a plan to the next, or outside the outputs.
  const std::set<std::string> elsewhere{"scale_cached_in_plan", "stale_state_as_initial", "writes_past_the_end", "query_scaled_in_place",
                                           "values_scaled_by_row_peak", "tail_masked_by_multiplication", "slot_state_cached",
                                           "output_dtype_of_first_call", "scale_of_first_key_dim", "input_strides_taken_as_dense",
                                           "output_strides_taken_as_dense", "byte_offset_ignored", "key_strides_of_query", "beta_strides_of_gate", "output_strides_of_value", "final_state_strides_of_initial",
                                           "vector_loads_aligned_down", "sums_split_by_threads", "corrected_values_cast_by_cutting", "zero_decay_replaced", "element_offsets_in_31_bits", "element_offsets_in_32_bits", "positive_gate_accepted", "score_rows_masked_by_multiplication"};
  // Change the order of sums or products only.
  const std::set<std::string> order{"summation_order_by_batch", "summation_order_by_head", "summation_order_by_position", "mild_chunk_factored", "ragged_tail_summed_backwards", "query_scaled_first_in_decode"};
  std::vector<Run> runs = probes();
  for (const char* id : {"memory_semantics:prefill/n1_t40_h6_hv6_k16_v8/fp32:1", "typical:prefill/n1_t2_h16_hv64_k16_v16/fp32/h0:1", "exact_dictionary:prefill/n1_t18_h1_hv4_k16_v8/fp32/h0:1", "packed_sequences:prefill/n1_t0_h1_hv1_k8_v8/fp32/h0:1", "typical:prefill/n1_t1_h33_hv33_k128_v64/fp32/h0:1", "raw_gates:prefill/n1_t40_h2_hv4_k16_v8/fp32/h0,raw:1", "raw_gates:prefill/n1_t36_h2_hv4_k16_v8/fp32/h0,raw:1", "raw_gate_extremes:prefill/n1_t36_h1_hv3_k16_v8/fp32/h0,raw:1",
                         "combinations_raw:prefill/n2_t9+4_h1_hv2_k64_v2/fp32/h0,raw:1",
                         "inverse_steps:prefill/n1_t12_h2_hv2_k8_v8/fp32/h0:1", "pass_through:prefill/n1_t3_h1_hv1_k8_v8/fp32/h0,scale=0x1p+120:1"})
    runs.push_back(make_case(parse_case_id(id)).runs[0]);
  std::vector<TensorSet> exact;
  for (const Run& run : runs) {
    exact.push_back(run_fault(none, Form::recurrent, run));
    // Both forms in double: 2^-53 times the growth of sums over hundreds of terms stays far below 2^-30.
    CHECK(difference(run_fault(none, Form::chunkwise, run), exact.back(), run.problem) < 0x1p-30);
  }
  // Pools are there in the recurrent form alone.
  std::vector<Run> pools;
  for (const char* id : {"decode_pool:decode/n4_t6_h2_hv4_k16_v24/fp32/h0,slots=9:1", "decode_pool:decode/n9_t3_h1_hv1_k8_v8/fp32/h0,slots=30:1",
                         "verify_snapshots:verify/n3_t13_h1_hv1_k8_v8/fp32/h0,slots=5,draft=6:1", "verify_snapshots:verify/n1_t5_h1_hv2_k16_v16/fp32/h0,slots=3,draft=2:1",
                         "verify_snapshots:verify/n2_t5_h1_hv2_k16_v16/fp32/h0,slots=3,draft=1:1", "verify_snapshots:verify/n4_t13_h2_hv4_k16_v24/fp32/h0,slots=7,draft=3:1",
                         "combinations_decode:decode/n2_t3_h1_hv1_k128_v2/fp32/h0,state=bf16,slots=5:1", "combinations_verify:verify/n2_t5_h1_hv1_k64_v2/fp16/h0,slots=4,draft=2:1",
                         "combinations_raw_decode:decode/n10_t3_h1_hv1_k8_v2/fp32/h0,slots=12,raw:1",
                         "decode_steps:decode/n1_t129_h1_hv1_k8_v8/fp32/h0,slots=2:1", "decode_pool:decode/n70_t2_h1_hv1_k8_v8/fp32/h0,slots=300:1", "verify_snapshots:verify/n2_t7_h1_hv2_k64_v64/fp32/h0,slots=2,draft=2:1"})
    pools.push_back(make_case(parse_case_id(id)).runs[0]);
  std::vector<TensorSet> exact_pools;
  for (const Run& run : pools) exact_pools.push_back(run_fault(none, Form::recurrent, run));
  for (const Fault& f : fault_bank()) {
    if (elsewhere.count(f.name) || f.stage >= 0) continue;   // those of stages: test_stages
    for (const Form form : {Form::recurrent, Form::chunkwise}) {
      if (!f.has(form)) continue;
      double worst = 0;
      for (std::size_t i = 0; i < runs.size() && worst < 0x1p-24; ++i)
        worst = std::max(worst, difference(run_fault(f, form, runs[i]), exact[i], runs[i].problem));
      for (std::size_t i = 0; form == Form::recurrent && i < pools.size() && worst < 0x1p-24; ++i)
        worst = std::max(worst, difference(run_fault(f, form, pools[i]), exact_pools[i], pools[i].problem));
      INFO(f.name << " form " << static_cast<int>(form) << " largest change " << worst);
      if (order.count(f.name)) CHECK(worst > 0);
      else CHECK(worst >= 0x1p-30);
    }
  }
}

TEST_CASE("a NaN in one value spreads where a fault lets it, and not in the twin") {
  Run run = probe("prefill/n2_t10+5_h1_hv1_k8_v8/fp32", {-0.1}, 1, 1, 1);
  run.inputs["v"].set(10 * 8 + 3, std::numeric_limits<double>::quiet_NaN());      // second sequence, token 0, channel 3
  auto wrong = [&](const char* name, Form form) {
    const TensorSet out = run_fault(*find_fault(name), form, run);
    std::int64_t n = 0;
    for (std::int64_t e = 0; e < 15 * 8; ++e) n += std::isnan(out.at("o").at(e)) && !(e >= 80 && e % 8 == 3);
    for (std::int64_t e = 0; e < 2 * 64; ++e) n += std::isnan(out.at("ht").at(e)) && !(e >= 64 && e % 8 == 3);
    return n;
  };
  for (const Form form : {Form::recurrent, Form::chunkwise}) {
    CHECK(wrong("none", form) == 0);
    CHECK(wrong("values_scaled_by_row_peak", form) > 0);
  }
  CHECK(wrong("tail_masked_by_multiplication", Form::chunkwise) > 0);
  // Planted two tokens later, it must not reach the rows before it.
  run.inputs["v"].set(10 * 8 + 3, 1);
  run.inputs["v"].set(12 * 8 + 3, std::numeric_limits<double>::quiet_NaN());
  for (const char* name : {"none", "score_rows_masked_by_multiplication"})
    CHECK(std::isnan(run_fault(*find_fault(name), Form::chunkwise, run).at("o").at(10 * 8 + 3)) == (std::string_view(name) != "none"));
}

TEST_CASE("a head alone gives what the run gives") {
  const Run run = probe("prefill/n2_t70+9_h2_hv4_k16_v24/fp32/h0", {-0.1, -2, 0}, 1, 1, 1);
  const Fault& f = *find_fault("correction_before_decay");
  for (const Form form : {Form::recurrent, Form::chunkwise}) {
    const TensorSet whole = run_fault(f, form, run);
    const HeadResult head = run_fault(f, form, head_inputs(run, 1, 3));
    for (std::int64_t t = 0; t < 9; ++t)
      for (std::int64_t c = 0; c < 24; ++c) REQUIRE(head.o[static_cast<std::size_t>(t * 24 + c)] == whole.at("o").at(((70 + t) * 4 + 3) * 24 + c));
    for (std::int64_t i = 0; i < 16 * 24; ++i) REQUIRE(head.ht[static_cast<std::size_t>(i)] == whole.at("ht").at((4 + 3) * 16 * 24 + i));
  }
}

TEST_CASE("kernels of the bank write through the C ABI what the plain function says") {
  const Run run = probe("prefill/n3_t70+0+9_h2_hv4_k16_v24/bf16/h0,pad=2", {-0.1, -2, 0}, 1, 1, 1);
  const TensorSet exact = run_fault(*find_fault("none"), Form::recurrent, run);
  for (const char* name : {"faulty/none/recurrent-fp32", "faulty/none/recurrent-bf16", "faulty/none/chunk-fp32", "faulty/none/chunk-bf16"}) {
    const gdn_kernel* kernel = find_faulty_kernel(name);
    REQUIRE(kernel != nullptr);
    TensorSet inputs = run.inputs, outputs = empty_outputs(run.problem);
    void* plan = nullptr;
    REQUIRE(call(*kernel, plan, run, inputs, outputs) == GDN_OK);
    kernel->destroy(plan);
    CHECK(inputs == run.inputs);
    // Three bf16 significant digits and the dozen storage points of the chunk form; the bound proper is judged by the families.
    CHECK(difference(outputs, exact, run.problem) < 0x1p-4);
  }
}

TEST_CASE("faults of memory and order show through the C ABI") {
  Run run = probe("prefill/n1_t5_h1_hv1_k16_v16/fp32", {-0.1}, 1, 1, 1);
  auto results = [&](const char* name, std::vector<double> scales, std::int64_t guard = 0) {
    forget_calls();
    const gdn_kernel* kernel = faulty_kernel(*find_fault(name), Form::recurrent, FaultScalar::fp32);
    std::vector<TensorSet> all;
    void* plan = nullptr;
    for (double s : scales) {
      Run again = run;
      again.problem.scale = s;
      TensorSet inputs = run.inputs, outputs = empty_outputs(run.problem);
      auto& o = outputs["o"];
      o.data.resize(o.data.size() + static_cast<std::size_t>(guard) * 4, std::byte{0x77});
      REQUIRE(call(*kernel, plan, again, inputs, outputs) == GDN_OK);
      for (auto& [n, t] : inputs) outputs["in " + n] = t;
      all.push_back(outputs);
    }
    kernel->destroy(plan);
    return all;
  };
  CHECK(results("none", {1, 1})[0] == results("none", {1, 1})[1]);
  CHECK_FALSE(results("repeat_differs", {1, 1})[0] == results("repeat_differs", {1, 1})[1]);
  CHECK(results("scale_cached_in_plan", {1, 2})[1].at("o") == results("none", {1})[0].at("o"));
  CHECK_FALSE(results("stale_state_as_initial", {1, 1})[1].at("o") == results("none", {1})[0].at("o"));
  CHECK_FALSE(results("query_scaled_in_place", {0.5})[0].at("in q") == run.inputs.at("q"));
  CHECK(results("none", {1}, 4)[0].at("o").data.back() == std::byte{0x77});
  CHECK(results("writes_past_the_end", {1}, 1)[0].at("o").data.back() != std::byte{0x77});
  CHECK(std::isnan(results("outputs_unwritten_at_first_launch", {1})[0].at("o").at(3)));
}
