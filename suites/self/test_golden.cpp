// The golden store: what is written is read back bit for bit, twice the same bytes, readable by h5py and h5dump.
#include <cstdlib>
#include <limits>
#include <thread>

#include "golden/manifest.h"
#include "golden/stream.h"
#include "suites/self/catch.h"
#include "suites/self/golden_fixture.h"

using namespace gdn;
using namespace gdn::test;

TEST_CASE("a golden is read back as it was written") {
  const Scratch dir;
  const Golden g = small_golden();
  const fs::path file = write_golden(dir.path, g);
  CHECK(file == dir / (file_stem(case_id(g.the_case)) + ".h5"));
  const Golden r = read_golden(file);
  CHECK(same(g, r));
  CHECK(r.stats.elements == 70);
  CHECK(content_hash(r) == content_hash(g));
  const Manifest m = read_manifest(dir.path);
  REQUIRE(m.size() == 1);
  CHECK(m.begin()->first == file.filename().string());
  CHECK(m.begin()->second.sha256 == content_hash(g));
  CHECK(m.begin()->second.bytes == fs::file_size(file));
  for (const auto& e : fs::directory_iterator(dir.path)) CHECK(e.path().filename().string().find("tmp") == std::string::npos);
}

TEST_CASE("the same golden gives the same bytes") {
  const Scratch a, b;
  const Golden g = small_golden("prefill/n2_t300+41_h1_hv2_k16_v24/bf16/h0");
  const std::string first = bytes_of_file(write_golden(a.path, g)), second = bytes_of_file(write_golden(b.path, g));
  CHECK(first.size() > 10000);
  CHECK(first == second);
  CHECK(first == bytes_of_file(write_golden(a.path, g)));   // and when it replaces itself
  CHECK(bytes_of_file(a / kManifestName) == bytes_of_file(b / kManifestName));
}

TEST_CASE("the content hash sees every part") {
  const Golden g = small_golden();
  const std::string h = content_hash(g);
  const auto changed = [&](const std::function<void(Golden&)>& f) {
    Golden c = small_golden();
    f(c);
    return content_hash(c) != h;
  };
  CHECK(content_hash(small_golden()) == h);
  CHECK(changed([](Golden& c) { c.the_case.seed++; }));
  CHECK(changed([](Golden& c) { c.the_case.family += "x"; }));
  CHECK(changed([](Golden& c) { c.edition = "2026.2"; }));
  CHECK(changed([](Golden& c) { c.stats.balls++; }));
  CHECK(changed([](Golden& c) { c.the_case.runs[0].name = "bass"; }));
  CHECK(changed([](Golden& c) { c.the_case.runs[1].truth = true; }));
  CHECK(changed([](Golden& c) { c.the_case.runs[0].inputs["q"].set_bits(3, 1); }));
  CHECK(changed([](Golden& c) { c.the_case.runs[0].inputs["q"].dtype = DType::f16; }));
  CHECK(changed([](Golden& c) { std::swap(c.the_case.runs[0].inputs["q"].shape[0], c.the_case.runs[0].inputs["q"].shape[2]); }));
  CHECK(changed([](Golden& c) { c.truths[0]["o"].hi[1] = -c.truths[0]["o"].hi[1]; }));
  CHECK(changed([](Golden& c) { c.truths[0]["ht"].lo[1] = 0; }));
  CHECK(changed([](Golden& c) { c.truths[0]["ht"].radius[0] = 0; }));
}

TEST_CASE("every storage dtype and special value keeps its bits") {
  const Scratch dir;
  TensorSet set;
  for (DType t : {DType::f16, DType::bf16, DType::e4m3, DType::e5m2}) {
    const std::int64_t n = 1ll << (8 * size_of(t));
    Tensor x(t, {n});
    for (std::int64_t i = 0; i < n; ++i) x.set_bits(i, static_cast<std::uint64_t>(i));
    set[name(t)] = x;
  }
  Tensor wide(DType::f32, {2, 3});
  const std::uint32_t patterns[] = {0x7f800001u, 0xffc12345u, 0x80000000u, 0x00000001u, 0x7f7fffffu, 0xff800000u};
  for (std::int64_t i = 0; i < 6; ++i) wide.set_bits(i, patterns[i]);
  set["wide"] = wide;
  set["empty"] = Tensor(DType::bf16, {0, 2, 3});
  set["scalar"] = Tensor(DType::f64, {});
  set["scalar"].set(0, 0.1);
  Tensor i32(DType::i32, {2}), i64(DType::i64, {2});
  i32.set_bits(0, 0x80000000u);
  i64.set_bits(1, 0x8000000000000000u);
  set["i32"] = i32;
  set["i64"] = i64;
  write_tensors(dir / "t.h5", "selftest:x:1", parse_problem("prefill/n1_t1_h1_hv1_k1_v1/bf16"), set);
  CHECK(read_tensors(dir / "t.h5") == set);

  // The same through the compressed path of a golden, as free inputs of an operation that brings its own tensors.
  Golden g;
  g.the_case.family = "selftest";
  g.the_case.problem = parse_problem("stages/n1_t1_h1_hv1_k1_v1/bf16");
  g.the_case.runs.push_back({"base", g.the_case.problem, set, false});
  g.truths.resize(1);
  CHECK(read_golden(write_golden(dir.path, g)).the_case.runs[0].inputs == set);
}

TEST_CASE("coerce is exact or names the element") {
  Tensor t(DType::f32, {2, 3});
  for (std::int64_t i = 0; i < 6; ++i) t.set(i, 0.5 * static_cast<double>(i));
  t.set(1, std::numeric_limits<double>::infinity());
  t.set(2, std::nan(""));
  const Tensor b = coerce(t, DType::bf16);
  CHECK(b.dtype == DType::bf16);
  CHECK(b.at(5) == 2.5);
  CHECK(std::isinf(b.at(1)));
  CHECK(std::isnan(b.at(2)));
  CHECK(coerce(b, DType::f32).at(3) == 1.5);
  t.set(4, 0.1);
  const std::string line = refusal<std::invalid_argument>([&] { coerce(t, DType::bf16); });
  CHECK(contains(line, "element [1,1] is 0.1"));
  CHECK(contains(line, "bf16 cannot hold"));
  CHECK_THROWS_AS(coerce(t, DType::i64), std::invalid_argument);
}

TEST_CASE("goldens written head by head equal goldens written whole") {
  const Scratch a, b;
  const Golden g = small_golden("prefill/n3_t70+0+5_h1_hv2_k8_v4/bf16/h0");
  write_golden(a.path, g);
  GoldenWriter w(b.path, g.the_case, g.edition);
  const Problem& p = g.the_case.problem;
  const auto slice = [&](const TruthTensor& t, std::int64_t first, std::int64_t rows, std::int64_t heads, std::int64_t head, std::int64_t width) {
    TruthTensor s;
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t c = 0; c < width; ++c) {
        const std::size_t i = static_cast<std::size_t>(((first + r) * heads + head) * width + c);
        s.hi.push_back(t.hi[i]);
        s.lo.push_back(t.lo[i]);
        s.radius.push_back(t.radius[i]);
      }
    return s;
  };
  CHECK_THROWS_AS(GoldenWriter(b.path, g.the_case, g.edition).finish(g.stats), std::logic_error);
  for (std::int64_t hv = 1; hv >= 0; --hv)
    for (std::int64_t n = 2; n >= 0; --n)
      w.put_head(0, n, hv, {slice(g.truths[0].at("o"), p.offsets()[static_cast<std::size_t>(n)], p.lengths[static_cast<std::size_t>(n)], 2, hv, 4),
                            slice(g.truths[0].at("ht"), n, 1, 2, hv, 32)});
  const fs::path file = w.finish(g.stats);
  const Golden r = read_golden(file);
  CHECK(same(g, r));
  CHECK(read_manifest(a.path) .begin()->second.sha256 == read_manifest(b.path).begin()->second.sha256);
  GoldenReader reader(file);
  const HeadTruth h = reader.head_truth(0, 2, 1);
  CHECK(h.o.shape == std::vector<std::int64_t>{5, 4});
  CHECK(h.o.hi == slice(g.truths[0].at("o"), 70, 5, 2, 1, 4).hi);
  CHECK(h.ht.radius == slice(g.truths[0].at("ht"), 2, 1, 2, 1, 32).radius);
  CHECK_NOTHROW(reader.verify_hashes());
}

TEST_CASE("two writers share one manifest") {
  const Scratch dir;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (std::uint64_t i = 0; i < 6; ++i) write_golden(dir.path, small_golden("prefill/n1_t2_h1_hv1_k2_v2/fp32", 100 * static_cast<std::uint64_t>(t) + i));
    });
  for (auto& t : threads) t.join();
  const Manifest m = read_manifest(dir.path);
  CHECK(m.size() == 24);
  for (const auto& [file, e] : m) CHECK(content_hash(read_golden(dir / file)) == e.sha256);
}
