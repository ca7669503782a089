// The golden store: what is written is read back bit for bit, twice the same bytes, readable by h5py and h5dump.
#include <chrono>
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
  const std::string first = bytes_of_file(write_golden(a.path, g));
  std::this_thread::sleep_for(std::chrono::milliseconds(1100));   // HDF5 keeps times in seconds
  const std::string second = bytes_of_file(write_golden(b.path, g));
  CHECK(first.size() > 10000);
  CHECK((first == second));                        // not printed when they differ
  CHECK((first == bytes_of_file(write_golden(a.path, g))));   // and when it replaces itself
  sort_manifest(a.path);
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
  g.the_case.problem = parse_problem("backward/n1_t1_h1_hv1_k1_v1/bf16");
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

TEST_CASE("a case with a long name has a file, too") {
  const Scratch dir;
  std::string lengths = "1";
  for (int i = 2; i <= 100; ++i) lengths += "+" + std::to_string(i % 7);
  const Golden g = small_golden("prefill/n100_t" + lengths + "_h1_hv1_k2_v2/bf16"), h = small_golden("prefill/n100_t" + lengths + "_h1_hv1_k2_v3/bf16");
  const fs::path file = write_golden(dir.path, g), other = write_golden(dir.path, h);
  CHECK(file != other);
  CHECK(file.filename().string().size() < 250);
  CHECK(same(g, read_golden(file)));
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

namespace {
// Output of a command, both streams; ok says whether it ended with status 0.
std::string output_of(const std::string& command, bool& ok) {
  std::string text;
  FILE* p = ::popen((command + " 2>&1").c_str(), "r");
  REQUIRE(p);
  char block[4096];
  for (std::size_t n; (n = std::fread(block, 1, sizeof block, p)) > 0;) text.append(block, n);
  ok = ::pclose(p) == 0;
  return text;
}
// A Python that has h5py, or "".
std::string python() {
  for (const char* p : {"python3", "/usr/bin/python3"}) {
    bool ok = false;
    output_of(std::string(p) + " -c 'import h5py, numpy'", ok);
    if (ok) return p;
  }
  return "";
}
}  // namespace

TEST_CASE("h5py reads every bf16, fp16 and e5m2 code exactly, and what it writes is read back") {
  if (python().empty()) {
    WARN("no Python with h5py: not checked");
    return;
  }
  const Scratch dir;
  TensorSet set;
  for (DType t : {DType::bf16, DType::f16, DType::e4m3, DType::e5m2}) {
    const std::int64_t n = 1ll << (8 * size_of(t));
    Tensor x(t, {n});
    for (std::int64_t i = 0; i < n; ++i) x.set_bits(i, static_cast<std::uint64_t>(i));
    set[name(t)] = x;
  }
  write_tensors(dir / "all.h5", "x", Problem{}, set);
  put_file(dir / "check.py", R"(
import h5py, numpy as np, sys
f = h5py.File(sys.argv[1], 'r')
def equal(a, b):
    assert a.shape == b.shape
    assert ((a == b) | (np.isnan(a) & np.isnan(b))).all(), np.flatnonzero(~((a == b) | (np.isnan(a) & np.isnan(b))))[:5]
    nan = np.isnan(b)
    assert (np.signbit(a) == np.signbit(b))[~nan].all()
b = f['bf16'][...]
assert b.dtype == np.float32
equal(b, (np.arange(65536, dtype=np.uint32) << 16).view(np.float32))
h = f['fp16'][...]
assert h.dtype == np.float16
equal(h, np.arange(65536, dtype=np.uint16).view(np.float16))
e = f['fp8_e5m2'][...]
equal(e.astype(np.float16), (np.arange(256, dtype=np.uint16) << 8).view(np.float16))
assert f['fp8_e4m3'].dtype == np.uint8 and f['fp8_e4m3'].attrs['dtype'] == b'fp8_e4m3'
assert f.attrs['schema'].decode() == 'gdn-tensors'
with h5py.File(sys.argv[2], 'w') as w:
    w['float32'] = b
    w['float16'] = h
    w['codes'] = np.arange(65536, dtype=np.uint16)
    w['codes'].attrs['dtype'] = 'bf16'
    w.create_dataset('squeezed', data=np.arange(1000, dtype=np.float32).reshape(10, 100), compression='gzip', shuffle=True, fletcher32=True)
    w['int64'] = np.arange(3)
    w['deep/er/than/needed'] = np.arange(3)
    w['group/o'] = np.float32([1, 2])
    w['wide'] = np.float64([0.5, 1e300])
print('good')
)");
  bool ok = false;
  const std::string said = output_of(python() + " " + (dir / "check.py").string() + " " + (dir / "all.h5").string() + " " + (dir / "back.h5").string(), ok);
  INFO(said);
  REQUIRE(ok);
  const TensorSet back = read_tensors(dir / "back.h5");
  CHECK(back.size() == 6);
  CHECK(back.at("float32").dtype == DType::f32);
  CHECK(back.at("float16") == set.at("fp16"));
  CHECK(back.at("codes") == set.at("bf16"));
  CHECK(back.at("squeezed").at(999) == 999);
  CHECK(back.at("int64").dtype == DType::i64);
  CHECK(back.at("wide").at(1) == 1e300);
  CHECK(read_tensors(dir / "back.h5", "/group").at("o").at(1) == 2);
  // Every finite bf16 that went through h5py as float32 is the same bf16 again.
  const Tensor again = coerce(back.at("float32"), DType::bf16);
  for (std::int64_t i = 0; i < again.size(); ++i)
    if (!std::isnan(again.at(i)) && again.bits(i) != static_cast<std::uint64_t>(i)) FAIL("bf16 code " << i << " came back as " << again.bits(i));
}

TEST_CASE("a golden opens in h5py and h5dump with readable attributes") {
  const Scratch dir;
  const Golden g = small_golden();
  const fs::path file = write_golden(dir.path, g);
  bool ok = false;
  output_of("h5dump --version", ok);
  if (ok) {
    const std::string dump = output_of("h5dump '" + file.string() + "'", ok);
    INFO(dump.substr(0, 4000));
    CHECK(ok);
    for (const char* part : {"selftest:prefill/n3_t5+0+2_h1_hv2_k3_v4/bf16/h0", "gdn-golden", "content_sha256", "\"o_radius\"", "\"/types/bf16\"", "natural logarithm of a factor"})
      CHECK(contains(dump, part));
  } else {
    WARN("no h5dump: not checked");
  }
  if (python().empty()) return;
  put_file(dir / "check.py", R"(
import h5py, hashlib, sys
f = h5py.File(sys.argv[1], 'r')
a = {k: v.decode() if isinstance(v, bytes) else v for k, v in f.attrs.items()}
assert a['schema'] == 'gdn-golden' and a['schema_version'] == 1 and a['runs'] == 'base negated' and a['seed'] == 7, a
text = 'gdn-golden 1\nedition %s\ncase %s\n' % (a['edition'], a['case_id'])
for i, run in enumerate(a['runs'].split()):
    r = f['inputs'][run].attrs
    text += 'run %d %s %s truth=%d\n' % (i, run, r['problem'].decode(), r['truth'] == b'yes')
text += 'stats ' + ' '.join('%s=%d' % (k, a[k]) for k in ('elements', 'uncertified_fp64', 'balls', 'multiprecision_heads', 'exact_heads')) + '\n'
paths = []
f.visititems(lambda name, x: paths.append('/' + name) if isinstance(x, h5py.Dataset) else None)
for p in sorted(paths):
    d = f[p]
    assert d.attrs['description'] and d.attrs['units'] and d.attrs['axes']
    t = d.attrs['dtype'].decode()
    if t not in ('bf16',):    # numpy has no bf16: its bytes are the upper halves of the float32
        raw = d[...].tobytes()
    else:
        raw = (d[...].view('uint32') >> 16).astype('uint16').tobytes()
    sha = hashlib.sha256(raw).hexdigest()
    assert sha == d.attrs['sha256'].decode(), p
    text += 'dataset %s %s [%s] %s\n' % (p, t, ','.join(map(str, d.shape)), sha)
assert hashlib.sha256(text.encode()).hexdigest() == a['content_sha256']
print('good')
)");
  const std::string said = output_of(python() + " " + (dir / "check.py").string() + " '" + file.string() + "'", ok);
  INFO(said);
  CHECK(ok);
}
