// Recorded inputs: every layout of the same numbers becomes the same canonical case, what cannot be converted exactly is
// refused with the element.
#include <hdf5.h>

#include <limits>

#include "golden/import.h"
#include "golden/stream.h"
#include "suites/self/catch.h"
#include "suites/self/golden_fixture.h"

using namespace gdn;
using namespace gdn::test;

namespace {

// Element at canonical position, moved to where a layout has it: out[index(i...)] = in[i...].
Tensor moved(const Tensor& t, std::vector<std::int64_t> shape, const std::function<std::int64_t(std::int64_t)>& to) {
  Tensor x(t.dtype, std::move(shape));
  for (std::int64_t i = 0; i < t.size(); ++i) x.set_bits(to(i), t.bits(i));
  return x;
}

const Problem kProblem = parse_problem("prefill/n2_t5_h2_hv4_k3_v6/bf16/h0,g=fp16,beta=bf16");

Imported import_of(const TensorSet& t, const ImportOptions& o = {}, const std::function<void(hid_t)>& edit = {}) {
  const Scratch dir;
  write_tensors(dir / "r.h5", "x", kProblem, t);
  if (edit) {
    const hid_t f = H5Fopen((dir / "r.h5").c_str(), H5F_ACC_RDWR, H5P_DEFAULT);
    edit(f);
    H5Fclose(f);
  }
  return import_inputs(dir / "r.h5", o);
}

std::string refused(const TensorSet& t, const ImportOptions& o = {}, const std::function<void(hid_t)>& edit = {}) {
  const std::string line = refusal([&] { import_of(t, o, edit); });
  INFO(line);
  CHECK(!line.empty());
  CHECK(line.find('\n') == std::string::npos);
  return line;
}

void put_scale(hid_t f, double scale) {
  const hid_t s = H5Screate(H5S_SCALAR), a = H5Acreate2(f, "scale", H5T_IEEE_F64LE, s, H5P_DEFAULT, H5P_DEFAULT);
  H5Awrite(a, H5T_NATIVE_DOUBLE, &scale);
  H5Aclose(a);
  H5Sclose(s);
}

// Tensors [T,heads,width] of two sequences of T/2 tokens, as [B,T,heads,width] or [B,heads,T,width].
Tensor batched(const Tensor& t, std::int64_t heads, std::int64_t width, bool heads_first, bool tail) {
  const std::int64_t T = t.shape[0] / 2;
  std::vector<std::int64_t> shape{2, heads_first ? heads : T, heads_first ? T : heads};
  if (tail) shape.push_back(width);
  return moved(t, shape, [&](std::int64_t i) {
    const std::int64_t c = i % width, h = i / width % heads, token = i / width / heads, b = token / T, r = token % T;
    return heads_first ? ((b * heads + h) * T + r) * width + c : i;
  });
}

}  // namespace

TEST_CASE("every layout of the same recording is the same case") {
  const Run run = random_run("base", kProblem, 11);
  const TensorSet& canonical = run.inputs;
  const Imported plain = import_of(canonical);
  CHECK(plain.the_case.runs[0].inputs == canonical);
  CHECK(plain.the_case.problem == kProblem);
  CHECK(plain.the_case.family == "recorded");
  CHECK(plain.the_case.runs.size() == 1);
  CHECK(plain.notes.empty());
  const std::string id = case_id(plain.the_case);
  CHECK_NOTHROW(parse_case_id(id));

  TensorSet other = canonical;
  other["v"].set_bits(0, other["v"].bits(0) ^ 1);
  CHECK(case_id(import_of(other).the_case) != id);   // other inputs, other case

  TensorSet t = canonical;                         // int32 offsets
  Tensor cu(DType::i32, {3});
  cu.set_bits(1, 5);
  cu.set_bits(2, 10);
  t["cu_seqlens"] = cu;
  CHECK(case_id(import_of(t).the_case) == id);

  for (const bool heads_first : {false, true}) {
    TensorSet b;
    b["q"] = batched(canonical.at("q"), 2, 3, heads_first, true);
    b["k"] = batched(canonical.at("k"), 2, 3, heads_first, true);
    b["v"] = batched(canonical.at("v"), 4, 6, heads_first, true);
    b["g"] = batched(canonical.at("g"), 4, 1, heads_first, false);
    b["beta"] = batched(canonical.at("beta"), 4, 1, heads_first, false);
    b["h0"] = canonical.at("h0");
    ImportOptions o;
    o.layout = heads_first ? RecordedLayout::BHTD : RecordedLayout::BTHD;
    CHECK(case_id(import_of(b, o).the_case) == id);
    CHECK(contains(refused(b), "axes, but layout [T,H,D] needs 3"));
    b["cu_seqlens"] = canonical.at("cu_seqlens");
    CHECK(contains(refused(b, o), "packed sequences need a batch of 1"));
  }

  t = canonical;
  t["h0"] = moved(canonical.at("h0"), {2, 4, 6, 3}, [](std::int64_t i) { return i / 18 * 18 + i % 6 * 3 + i % 18 / 6; });
  ImportOptions vk;
  vk.state = RecordedState::VK;
  CHECK(case_id(import_of(t, vk).the_case) == id);
  CHECK(contains(refused(t), "dataset /h0: shape [2,4,6,3], but state [N,HV,K,V] is [2,4,3,6]"));

  // Tiled: recorded value head j*H + h is canonical value head h*(HV/H) + j.
  t = canonical;
  const auto tile = [](std::int64_t canonical_head) { return canonical_head % 2 * 2 + canonical_head / 2; };
  t["v"] = moved(canonical.at("v"), {10, 4, 6}, [&](std::int64_t i) { return (i / 24 * 4 + tile(i / 6 % 4)) * 6 + i % 6; });
  for (const char* name : {"g", "beta"}) t[name] = moved(canonical.at(name), {10, 4}, [&](std::int64_t i) { return i / 4 * 4 + tile(i % 4); });
  t["h0"] = moved(canonical.at("h0"), {2, 4, 3, 6}, [&](std::int64_t i) { return (i / 72 * 4 + tile(i / 18 % 4)) * 18 + i % 18; });
  ImportOptions tiled;
  tiled.heads = RecordedHeads::tiled;
  CHECK(case_id(import_of(t, tiled).the_case) == id);
  CHECK(case_id(import_of(t).the_case) != id);

  // Repeated: q and k per value head.
  t = canonical;
  for (const char* name : {"q", "k"}) {
    Tensor x(DType::bf16, {10, 4, 3});
    for (std::int64_t i = 0; i < x.size(); ++i) x.set_bits(i, canonical.at(name).bits((i / 12 * 2 + i / 3 % 4 / 2) * 3 + i % 3));
    t[name] = x;
  }
  ImportOptions repeated;
  repeated.heads = RecordedHeads::repeated;
  CHECK(case_id(import_of(t, repeated).the_case) == id);
  t["k"].set_bits(3, t["k"].bits(3) ^ 1);          // not repeated any more: four key heads
  CHECK(import_of(t, repeated).the_case.problem.heads == 4);
  CHECK(contains(refused(canonical, repeated), "with heads=repeated it needs those of v, 4"));
}

TEST_CASE("recorded dtypes are kept, or converted exactly, or refused by element") {
  const Run run = random_run("base", kProblem, 12);
  TensorSet t = run.inputs;
  for (const char* name : {"q", "k", "v"}) t[name] = coerce(t[name], DType::f32);
  const Imported wide = import_of(t);
  CHECK(wide.the_case.problem.io == DType::f32);
  REQUIRE(wide.notes.size() == 1);
  CHECK(contains(wide.notes[0], "hold only bf16 values"));
  ImportOptions bf16;
  bf16.io = DType::bf16;
  CHECK(import_of(t, bf16).the_case.runs[0].inputs == run.inputs);
  t["v"].set(9, 0.1);
  CHECK(contains(refused(t, bf16), "dataset /v: element [0,1,3] is 0.1"));
  t["q"] = coerce(run.inputs.at("q"), DType::f64);
  CHECK(import_of(t).the_case.runs[0].inputs.at("q").dtype == DType::f32);
  t["q"].set(4, 0.1);                              // a double that fp32 cannot hold
  CHECK(contains(refused(t), "dataset /q: element [0,1,1] is 0.1"));
  t = run.inputs;
  t["k"] = coerce(t["k"], DType::f32);             // mixed: all become fp32
  CHECK(import_of(t).the_case.problem.io == DType::f32);
  t = run.inputs;
  t["beta"] = Tensor(DType::i64, {10, 4});
  CHECK(contains(refused(t), "dataset /beta: is int64"));
  t = run.inputs;
  t["g"] = coerce(t["g"], DType::f64);
  CHECK(import_of(t).the_case.problem.gate == DType::f32);
}

TEST_CASE("values and shapes that no canonical case has are refused") {
  const Run run = random_run("base", kProblem, 13);
  const auto with = [&](const std::function<void(TensorSet&)>& f) {
    TensorSet t = run.inputs;
    f(t);
    return refused(t);
  };
  CHECK(contains(with([](TensorSet& t) { t.erase("beta"); }), "dataset /beta: missing"));
  CHECK(contains(with([](TensorSet& t) { t["g"].set(6, 0.25); }), "dataset /g: element [1,2] is 0.25"));
  CHECK(contains(with([](TensorSet& t) { t["beta"].set(6, 2.5); }), "dataset /beta: element [1,2] is 2.5"));
  CHECK(contains(with([](TensorSet& t) { t["q"].set(0, std::nan("")); }), "dataset /q: element [0,0,0] is nan"));
  CHECK(contains(with([](TensorSet& t) { t["h0"].set(1, std::numeric_limits<double>::infinity()); }), "dataset /h0: element [0,0,0,1] is inf"));
  CHECK(contains(with([](TensorSet& t) { t["k"] = Tensor(DType::bf16, {10, 2, 4}); }), "dataset /k: shape [10,2,4] differs from q"));
  CHECK(contains(with([](TensorSet& t) { t["v"] = Tensor(DType::bf16, {10, 3, 6}); }), "dataset /v: has 3 heads, not a multiple of the 2 of q"));
  CHECK(contains(with([](TensorSet& t) { t["g"] = Tensor(DType::f32, {10, 2}); }), "dataset /g: shape [10,2] does not go with v"));
  CHECK(contains(with([](TensorSet& t) { t["cu_seqlens"].set_bits(1, 11); }), "dataset /cu_seqlens: element [1] is 11"));
  CHECK(contains(with([](TensorSet& t) { t["cu_seqlens"].set_bits(0, 1); }), "dataset /cu_seqlens: element [0] is 1"));
  CHECK(contains(with([](TensorSet& t) { t["h0"] = Tensor(DType::f32, {1, 4, 3, 6}); }), "dataset /h0: shape"));

  TensorSet t = run.inputs;                        // offsets that end early: the rest is padding
  t["cu_seqlens"].set_bits(2, 8);
  const Imported padded = import_of(t);
  CHECK(to_string(padded.the_case.problem) == "prefill/n2_t5+3_h2_hv4_k3_v6/bf16/h0,g=fp16,beta=bf16,pad=2");
  t.erase("cu_seqlens");                           // one sequence; h0 of two does not fit then
  CHECK(contains(refused(t), "dataset /h0: shape"));
  t.erase("h0");
  CHECK(import_of(t).the_case.problem.sequences() == 1);
}

TEST_CASE("gates in other domains are exact, or refused, or the nearest when asked") {
  Run run = random_run("base", kProblem, 14);
  TensorSet t = run.inputs;
  t["g"] = Tensor(DType::f32, {10, 4});
  for (std::int64_t i = 0; i < 40; ++i) t["g"].set(i, i % 3 ? 1 : 0);
  ImportOptions linear, log2;
  linear.gate = RecordedGate::linear;
  log2.gate = RecordedGate::log2;
  const Tensor g = import_of(t, linear).the_case.runs[0].inputs.at("g");
  CHECK(g.at(0) == -std::numeric_limits<double>::infinity());
  CHECK(g.at(1) == 0);
  CHECK_FALSE(std::signbit(g.at(1)));
  CHECK(import_of(g.dtype == DType::f32 ? [&] { TensorSet x = t; x["g"] = g; return x; }() : t, log2).the_case.runs[0].inputs.at("g") == g);
  t["g"].set(7, 0.5);
  CHECK(contains(refused(t, linear), "dataset /g: element [1,3] is 0.5, whose natural logarithm is no fp32 number"));
  linear.nearest_gates = true;
  const Imported near = import_of(t, linear);
  CHECK(near.the_case.runs[0].inputs.at("g").at(7) == static_cast<double>(-0.693147180559945309417f));
  CHECK(near.notes.size() == 1);
  CHECK(contains(near.source, "nearest gates"));
  t["g"].set(7, 1.5);
  CHECK(contains(refused(t, linear), "a linear gate is in 0..1"));
}

TEST_CASE("scale comes from the option, the file, or the default") {
  const TensorSet t = random_run("base", kProblem, 15).inputs;
  CHECK(import_of(t).the_case.problem.scale == 0);
  CHECK(import_of(t, {}, [](hid_t f) { put_scale(f, 0.25); }).the_case.problem.scale == 0.25);
  CHECK(import_of(t, {}, [](hid_t f) { put_scale(f, 1 / std::sqrt(3.0)); }).the_case.problem.scale == 0);   // the default, as a double
  CHECK(import_of(t, {}, [](hid_t f) { put_scale(f, std::nextafter(std::pow(3.0, -0.5), 1.0)); }).the_case.problem.scale == 0);
  CHECK(contains(refused(t, {}, [](hid_t f) { put_scale(f, 0.1); }), "scale 0.1"));
  CHECK(contains(refused(t, {}, [](hid_t f) { put_scale(f, 0); }), "scale 0 is not"));
  ImportOptions o;
  o.scale = 0.5;
  CHECK(import_of(t, o, [](hid_t f) { put_scale(f, 0.25); }).the_case.problem.scale == 0.5);
}

TEST_CASE("a gate per key channel is rule kda, and a recorded case becomes a golden") {
  TensorSet t = random_run("base", kProblem, 16).inputs;
  t["g"] = random_tensor(DType::f32, {10, 4, 3}, 1, "g", -1, 0);
  const Imported kda = import_of(t);
  CHECK(kda.the_case.problem.rule == Rule::kda);
  CHECK(kda.the_case.runs[0].inputs == t);
  const Scratch dir;
  const fs::path file = generate_golden(dir.path, kda.the_case, nullptr, {}, kda.source);
  CHECK(same(read_golden(file), [&] { Golden g = read_golden(file); g.the_case.runs = kda.the_case.runs; return g; }()));
  CHECK(recorded_convention(file).empty());
}
