// Broken, hostile and unlucky: every kind of bad golden file is refused in one line that names file and dataset,
// no changed byte goes unnoticed, and a writer that fails or is killed leaves nothing that looks finished.
#include <fcntl.h>
#include <hdf5.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "golden/atomic_file.h"
#include "golden/manifest.h"
#include "golden/stream.h"
#include "suites/self/catch.h"
#include "suites/self/golden_fixture.h"

using namespace gdn;
using namespace gdn::test;

namespace {

bool one_line(const std::string& s) { return !s.empty() && s.find('\n') == std::string::npos && s.size() < 1000; }

Golden tiny_golden() {
  Golden g = small_golden("prefill/n1_t3_h1_hv1_k2_v3/bf16/h0");
  g.the_case.runs.resize(1);
  g.truths.resize(1);
  return g;
}

// A golden, edited through the HDF5 library as a careless or hostile program would.
std::string edited(const std::function<void(hid_t file)>& edit, const Golden& g = tiny_golden()) {
  const Scratch dir;
  const fs::path file = write_golden(dir.path, g);
  const hid_t f = H5Fopen(file.c_str(), H5F_ACC_RDWR, H5P_DEFAULT);
  REQUIRE(f >= 0);
  edit(f);
  H5Fclose(f);
  const std::string line = refusal([&] { read_golden(file); });
  INFO(line);
  if (!line.empty()) {
    CHECK(one_line(line));
    CHECK(line.rfind(file.string() + ": ", 0) == 0);
  }
  return line;
}

void replace(hid_t f, const char* path, hid_t type, std::vector<hsize_t> dims, hid_t creation = H5P_DEFAULT) {
  H5Ldelete(f, path, H5P_DEFAULT);
  const hid_t space = H5Screate_simple(static_cast<int>(dims.size()), dims.data(), nullptr);
  const hid_t d = H5Dcreate2(f, path, type, space, H5P_DEFAULT, creation, H5P_DEFAULT);
  REQUIRE(d >= 0);
  H5Dclose(d);
  H5Sclose(space);
}

void set_int(hid_t f, const char* name, std::int64_t value) {
  const hid_t a = H5Aopen(f, name, H5P_DEFAULT);
  H5Awrite(a, H5T_NATIVE_INT64, &value);
  H5Aclose(a);
}

struct Extent { std::string dataset; std::uint64_t first, bytes; };
// Where the data of every dataset lies in the file.
std::vector<Extent> extents(const fs::path& file, const Golden& g) {
  std::vector<Extent> out;
  const hid_t f = H5Fopen(file.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT);
  const auto add = [&](const std::string& path) {
    const hid_t d = H5Dopen2(f, path.c_str(), H5P_DEFAULT), s = H5Dget_space(d);
    hsize_t n = 0;
    H5Dget_num_chunks(d, s, &n);
    for (hsize_t i = 0; i < n; ++i) {
      hsize_t offset[8], size = 0;
      unsigned mask = 0;
      haddr_t at = 0;
      H5Dget_chunk_info(d, s, i, offset, &mask, &at, &size);
      out.push_back({path, at, size});
    }
    H5Sclose(s);
    H5Dclose(d);
  };
  for (const auto& [name, t] : g.the_case.runs[0].inputs) add("/inputs/base/" + name);
  for (const char* t : {"o", "ht"})
    for (const char* part : {"hi", "lo", "radius"}) add("/truth/base/" + std::string(t) + "_" + part);
  H5Fclose(f);
  return out;
}

// Runs f in a child; its exit status, or 128 + signal.
template <class F>
int in_child(F f) {
  const pid_t child = ::fork();
  if (child == 0) {
    int status = 99;
    try {
      status = f();
    } catch (...) {
    }
    ::_exit(status);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

std::vector<std::string> names_in(const fs::path& dir) {
  std::vector<std::string> names;
  for (const auto& e : fs::directory_iterator(dir))
    if (!is_lock_name(e.path().filename().string())) names.push_back(e.path().filename().string());
  return names;
}

}  // namespace

TEST_CASE("what is no golden file at all is refused") {
  const Scratch dir;
  const auto line = [&](const fs::path& f) {
    const std::string l = refusal([&] { read_golden(f); });
    INFO(l);
    CHECK(one_line(l));
    CHECK(l.rfind(f.string() + ": ", 0) == 0);
    CHECK(refusal([&] { read_tensors(f); }) == l);
    return l;
  };
  CHECK(contains(line(dir / "none.h5"), "No such file"));
  CHECK(contains(line(dir.path), "is a directory"));
  put_file(dir / "empty.h5", "");
  CHECK(contains(line(dir / "empty.h5"), "is empty"));
  put_file(dir / "text.h5", "these are not the tensors you are looking for\n");
  CHECK(contains(line(dir / "text.h5"), "not an HDF5 file"));
  ::mkfifo((dir / "pipe.h5").c_str(), 0600);
  CHECK(contains(line(dir / "pipe.h5"), "not a regular file"));
  put_file(dir / "signature.h5", std::string("\x89HDF\r\n\x1a\n", 8) + std::string(200, '\3'));
  CHECK(contains(line(dir / "signature.h5"), "damaged or truncated"));

  write_tensors(dir / "tensors.h5", "x:prefill/n1_t1_h1_hv1_k1_v1/bf16:1", Problem{}, {{"o", Tensor(DType::f32, {2})}});
  CHECK(contains(refusal([&] { read_golden(dir / "tensors.h5"); }), "is not a golden file"));
  CHECK(contains(refusal([&] { read_tensors(dir / "tensors.h5", "/base"); }), "/base: missing"));

  const fs::path secret = write_golden(dir.path, tiny_golden());
  fs::permissions(secret, fs::perms::none);
  CHECK(in_child([&] {
          if (::geteuid() == 0 && ::seteuid(65534) != 0) return 1;
          return contains(refusal([&] { read_golden(secret); }), "Permission denied") ? 0 : 2;
        }) == 0);
}

TEST_CASE("a truncated golden is refused wherever it ends") {
  const Scratch dir;
  const std::string whole = bytes_of_file(write_golden(dir.path, tiny_golden()));
  for (std::size_t n = 1; n < whole.size(); n += 1 + whole.size() / 150) {
    put_file(dir / "cut.h5", whole.substr(0, n));
    const std::string line = refusal([&] { read_golden(dir / "cut.h5"); });
    INFO(n << " of " << whole.size() << ": " << line);
    REQUIRE(one_line(line));
  }
}

TEST_CASE("every changed byte of content is noticed, and the dataset named") {
  const Scratch dir;
  const Golden g = tiny_golden();
  const fs::path file = write_golden(dir.path, g), copy = dir / "copy.h5";
  const std::string whole = bytes_of_file(file);
  const auto where = extents(file, g);
  REQUIRE(where.size() == 13);
  int with_reason = 0;
  for (const Extent& e : where)
    for (std::uint64_t i = 0; i < e.bytes; ++i) {
      std::string bytes = whole;
      bytes[e.first + i] = static_cast<char>(bytes[e.first + i] ^ (1 << (i % 8)));
      put_file(copy, bytes);
      const std::string line = refusal([&] { read_golden(copy); });
      INFO(e.dataset << " byte " << i << ": " << line);
      REQUIRE(contains(line, copy.string() + ": dataset " + e.dataset + ": "));
      REQUIRE(one_line(line));
      with_reason += contains(line, "cannot be read (");
    }
  CHECK(with_reason > 0);                          // HDF5's own words are passed on
}

TEST_CASE("a changed byte anywhere in the file is noticed or harmless") {
  const Scratch dir;
  const Golden g = tiny_golden();
  const std::string whole = bytes_of_file(write_golden(dir.path, g));
  const fs::path copy = dir / "copy.h5";
  int noticed = 0, harmless = 0;
  for (std::size_t i = 0; i < whole.size(); i += 1 + whole.size() / 1500) {
    std::string bytes = whole;
    bytes[i] = static_cast<char>(bytes[i] ^ (1 << (i % 8)));
    put_file(copy, bytes);
    Golden r;
    const std::string line = refusal([&] { r = read_golden(copy); });
    if (line.empty()) {
      ++harmless;                                  // space that nobody uses, and descriptions
      INFO("byte " << i);
      REQUIRE(content_hash(r) == content_hash(g));
    } else {
      ++noticed;
      INFO("byte " << i << ": " << line);
      REQUIRE(one_line(line));
    }
  }
  CHECK(noticed > harmless);
}

TEST_CASE("a golden that contradicts its schema is refused") {
  CHECK(edited([](hid_t) {}).empty());             // the twin that is left alone
  CHECK(contains(edited([](hid_t f) { set_int(f, "schema_version", 2); }), "schema version 2 is newer than 1"));
  CHECK(contains(edited([](hid_t f) { set_int(f, "seed", 8); }), "contradict"));
  CHECK(contains(edited([](hid_t f) { set_int(f, "balls", 1); }), "do not match content_sha256"));
  CHECK(contains(edited([](hid_t f) { H5Adelete(f, "edition"); }), "attribute edition is missing"));
  CHECK(contains(edited([](hid_t f) { H5Ldelete(f, "/truth/base/o_lo", H5P_DEFAULT); }), "dataset /truth/base/o_lo: missing"));
  CHECK(contains(edited([](hid_t f) { H5Ldelete(f, "/truth/base", H5P_DEFAULT); }), "/truth/base: missing"));
  CHECK(contains(edited([](hid_t f) { H5Ldelete(f, "/inputs/base/cu_seqlens", H5P_DEFAULT); }), "dataset /inputs/base/cu_seqlens: missing"));
  CHECK(contains(edited([](hid_t f) { replace(f, "/truth/base/o_hi", H5T_IEEE_F64LE, {3, 1, 4}); }), "dataset /truth/base/o_hi: "));
  CHECK(contains(edited([](hid_t f) { replace(f, "/truth/base/o_hi", H5T_IEEE_F32LE, {3, 1, 3}); }), "dataset /truth/base/o_hi: "));
  CHECK(contains(edited([](hid_t f) { replace(f, "/inputs/base/q", H5T_STD_U16LE, {3, 1, 2}); }), "dataset /inputs/base/q: uint16 without an attribute dtype"));
  CHECK(contains(edited([](hid_t f) { replace(f, "/inputs/base/q", H5T_IEEE_F32BE, {3, 1, 2}); }), "dataset /inputs/base/q: type is none of"));
  CHECK(contains(edited([](hid_t f) {
          H5Ldelete(f, "/inputs/base/q", H5P_DEFAULT);
          H5Gclose(H5Gcreate2(f, "/inputs/base/q", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
        }), "dataset /inputs/base/q: is not a dataset"));
}

TEST_CASE("right types with wrong shape or dtype are refused by the problem") {
  const auto with = [](const char* path, DType t, std::vector<std::int64_t> shape) {
    const Scratch dir;
    TensorSet set{{"x", Tensor(t, std::move(shape))}};
    set["x"].set_bits(0, 1);
    const fs::path other = dir / "other.h5";
    write_tensors(other, "x", Problem{}, set);
    return edited([&](hid_t f) {
      H5Ldelete(f, path, H5P_DEFAULT);
      const hid_t o = H5Fopen(other.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT);
      REQUIRE(H5Ocopy(o, "/x", f, path, H5P_DEFAULT, H5P_DEFAULT) >= 0);
      H5Fclose(o);
    });
  };
  CHECK(contains(with("/truth/base/o_hi", DType::f64, {3, 1, 4}), "dataset /truth/base/o_hi: shape [3,1,4], but the problem needs [3,1,3]"));
  CHECK(contains(with("/truth/base/ht_radius", DType::f64, {1, 1, 2, 3}), "dataset /truth/base/ht_radius: stored as fp64, but the problem needs fp32"));
  CHECK(contains(with("/inputs/base/k", DType::f16, {3, 1, 2}), "dataset /inputs/base/k: stored as fp16, but the problem needs bf16"));
  CHECK(contains(with("/inputs/base/cu_seqlens", DType::i32, {2}), "dataset /inputs/base/cu_seqlens: stored as int32"));
  CHECK(contains(with("/truth/base/o_lo", DType::f64, {3, 1, 3}), "dataset /truth/base/o_lo: attribute sha256 is missing"));
}

TEST_CASE("hostile storage is refused before anything is allocated") {
  const auto huge = [](bool chunked) {
    return edited([&](hid_t f) {
      const hid_t creation = H5Pcreate(H5P_DATASET_CREATE);
      if (chunked) {
        const hsize_t chunk[] = {1, 1, 1024};
        H5Pset_chunk(creation, 3, chunk);
        H5Pset_deflate(creation, 1);
      } else {
        H5Pset_alloc_time(creation, H5D_ALLOC_TIME_LATE);
      }
      replace(f, "/truth/base/o_hi", H5T_IEEE_F64LE, {1 << 14, 1 << 10, 1 << 10}, creation);
      H5Pclose(creation);
    });
  };
  CHECK(contains(huge(false), "dataset /truth/base/o_hi: declares shape [16384,1024,1024], more than a file of"));
  CHECK(contains(huge(true), "dataset /truth/base/o_hi: declares shape [16384,1024,1024], more than a file of"));
  CHECK(contains(edited([](hid_t f) { replace(f, "/truth/base/o_hi", H5T_IEEE_F64LE, {3, 1, 3}); }), "holds no data"));
  CHECK(contains(edited([](hid_t f) {
          const hid_t creation = H5Pcreate(H5P_DATASET_CREATE);
          const hsize_t chunk[] = {1 << 10, 1 << 10, 1 << 8};
          H5Pset_chunk(creation, 3, chunk);
          hsize_t dims[] = {3, 1, 3}, most[] = {H5S_UNLIMITED, H5S_UNLIMITED, H5S_UNLIMITED};
          H5Ldelete(f, "/truth/base/o_hi", H5P_DEFAULT);
          const hid_t space = H5Screate_simple(3, dims, most);
          H5Dclose(H5Dcreate2(f, "/truth/base/o_hi", H5T_IEEE_F64LE, space, H5P_DEFAULT, creation, H5P_DEFAULT));
          H5Sclose(space);
          H5Pclose(creation);
        }), "dataset /truth/base/o_hi: "));
  CHECK(contains(edited([](hid_t f) {
          H5Ldelete(f, "/truth/base/o_hi", H5P_DEFAULT);
          H5Lcreate_soft("/truth/base/o_lo", f, "/truth/base/o_hi", H5P_DEFAULT, H5P_DEFAULT);
        }), "dataset /truth/base/o_hi: is a soft or external link"));
  CHECK(contains(edited([](hid_t f) {
          H5Ldelete(f, "/inputs/base", H5P_DEFAULT);
          H5Lcreate_external("elsewhere.h5", "/inputs/base", f, "/inputs/base", H5P_DEFAULT, H5P_DEFAULT);
        }), "/inputs/base: is a soft or external link"));
  CHECK(contains(edited([](hid_t f) {
          const hid_t creation = H5Pcreate(H5P_DATASET_CREATE);
          H5Pset_external(creation, "/etc/passwd", 0, 72);
          replace(f, "/truth/base/o_hi", H5T_IEEE_F64LE, {3, 1, 3}, creation);
          H5Pclose(creation);
        }), "dataset /truth/base/o_hi: external storage"));
  CHECK(contains(edited([](hid_t f) {
          const hid_t creation = H5Pcreate(H5P_DATASET_CREATE);
          const hsize_t dims[] = {3, 1, 3};
          const hid_t space = H5Screate_simple(3, dims, nullptr);
          H5Pset_virtual(creation, space, "elsewhere.h5", "/x", space);
          replace(f, "/truth/base/o_hi", H5T_IEEE_F64LE, {3, 1, 3}, creation);
          H5Sclose(space);
          H5Pclose(creation);
        }), "dataset /truth/base/o_hi: virtual"));
  CHECK(contains(edited([](hid_t f) {
          const hid_t creation = H5Pcreate(H5P_DATASET_CREATE);
          const hsize_t chunk[] = {3, 1, 3};
          H5Pset_chunk(creation, 3, chunk);
          H5Pset_scaleoffset(creation, H5Z_SO_INT, 0);
          replace(f, "/truth/base/o_hi", H5T_STD_I64LE, {3, 1, 3}, creation);
          H5Pclose(creation);
        }), "dataset /truth/base/o_hi: uses a filter other than"));
  // What nobody asked for is not looked at: deep nesting, cycles, links that lead nowhere.
  CHECK(edited([](hid_t f) {
          std::string path = "/inputs/base/deep";
          for (int i = 0; i < 200; ++i) {
            H5Gclose(H5Gcreate2(f, path.c_str(), H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
            path += "/deep";
          }
          H5Lcreate_hard(f, "/", f, "/inputs/base/cycle", H5P_DEFAULT, H5P_DEFAULT);
          H5Lcreate_external("none.h5", "/", f, "/truth/base/gone", H5P_DEFAULT, H5P_DEFAULT);
        }).empty());
}

TEST_CASE("a problem of any size in the text of a file allocates nothing") {
  Golden g = tiny_golden();
  const std::string line = edited([](hid_t f) {
    for (const char* at : {"/", "/inputs/base"}) {
      const std::string text = "prefill/n1_t4000000_h1_hv1_k512_v512/bf16/h0";
      H5Adelete_by_name(f, at, "problem", H5P_DEFAULT);
      const hid_t type = H5Tcopy(H5T_C_S1), space = H5Screate(H5S_SCALAR);
      H5Tset_size(type, text.size());
      const hid_t o = H5Oopen(f, at, H5P_DEFAULT), a = H5Acreate2(o, "problem", type, space, H5P_DEFAULT, H5P_DEFAULT);
      H5Awrite(a, type, text.data());
      H5Aclose(a);
      H5Oclose(o);
      H5Sclose(space);
      H5Tclose(type);
    }
  }, g);
  CHECK(!line.empty());
}

TEST_CASE("radius and value must be consistent, in the file and when written") {
  const Scratch dir;
  for (int kind = 0; kind < 3; ++kind) {
    Golden g = tiny_golden();
    TruthTensor& o = g.truths[0]["o"];
    if (kind == 0) o.radius[1] = -1;
    if (kind == 1) o.radius[1] = std::nanf("");
    if (kind == 2) o.lo[1] = o.hi[1];
    CHECK_THROWS_AS(write_golden(dir.path, g), std::invalid_argument);
  }
  Golden g = tiny_golden();
  g.the_case.runs[0].inputs["q"] = Tensor(DType::bf16, {3, 1, 3});
  CHECK(contains(refusal<std::invalid_argument>([&] { write_golden(dir.path, g); }), "run base, input q: shape [3,1,3], but the problem needs [3,1,2]"));
  g = tiny_golden();
  g.the_case.runs[0].inputs["cu_seqlens"].set_bits(1, 2);
  CHECK(contains(refusal<std::invalid_argument>([&] { write_golden(dir.path, g); }), "cu_seqlens: element [1] is 2"));
  g = tiny_golden();
  g.truths[0].erase("ht");
  CHECK_THROWS_AS(write_golden(dir.path, g), std::invalid_argument);
  CHECK(names_in(dir.path).empty());
}

TEST_CASE("no permission, no directory, no space: one line and nothing left") {
  const Scratch dir;
  const Golden g = small_golden("prefill/n1_t400_h1_hv2_k32_v32/bf16/h0");
  put_file(dir / "file", "x");
  CHECK(one_line(refusal([&] { write_golden(dir / "file", g); })));
  fs::create_directories(dir / (file_stem(case_id(g.the_case)) + ".h5"));
  CHECK(contains(refusal([&] { write_golden(dir.path, g); }), "is a directory"));
  fs::create_directories(dir / "locked");
  fs::permissions(dir / "locked", fs::perms::owner_read | fs::perms::owner_exec | fs::perms::others_read | fs::perms::others_exec);
  CHECK(in_child([&] {
          if (::geteuid() == 0 && ::seteuid(65534) != 0) return 1;
          const std::string line = refusal([&] { write_golden(dir / "locked", g); });
          return one_line(line) && contains(line, "Permission denied") ? 0 : 2;
        }) == 0);
  CHECK(names_in(dir / "locked").empty());

  // The same process goes on after a full disk.
  {
    const Scratch full;
    CHECK(in_child([&] {
            for (int round = 0; round < 3; ++round) {
              const rlimit small{50000, RLIM_INFINITY}, none{RLIM_INFINITY, RLIM_INFINITY};
              ::setrlimit(RLIMIT_FSIZE, &small);
              if (refusal([&] { write_golden(full.path, g); }).empty() || !names_in(full.path).empty()) return 1;
              ::setrlimit(RLIMIT_FSIZE, &none);
            }
            return same(g, read_golden(write_golden(full.path, g))) ? 0 : 2;
          }) == 0);
  }
  // Every size of a full disk, from no byte to nearly enough: the limit stands in for it.
  const Scratch probe;
  const auto whole = fs::file_size(write_golden(probe.path, g));
  for (std::uintmax_t limit = 1; limit < whole; limit += 1 + whole / 13) {
    const Scratch full;
    const int status = in_child([&] {
      const rlimit r{limit, limit};
      if (::setrlimit(RLIMIT_FSIZE, &r) != 0) return 1;
      const std::string line = refusal([&] { write_golden(full.path, g); });
      if (!one_line(line) || !contains(line, full.path.string())) return 2;
      return names_in(full.path).empty() ? 0 : 3;
    });
    INFO("limit " << limit << " of " << whole);
    CHECK(status == 0);
    CHECK(names_in(full.path).empty());
  }
}

TEST_CASE("a writer that is killed leaves a temporary file, which the next one removes") {
  const Scratch dir;
  const Golden g = small_golden();
  const int status = in_child([&] {
    GoldenWriter w(dir.path, g.the_case, g.edition);
    ::raise(SIGKILL);
    return 0;
  });
  CHECK(status == 128 + SIGKILL);
  auto names = names_in(dir.path);
  REQUIRE(names.size() == 1);
  CHECK(is_temporary_name(names[0]));

  // One that is alive keeps its file.
  GoldenWriter alive(dir.path, small_golden("prefill/n1_t2_h1_hv1_k2_v2/fp32").the_case, "x");
  names = names_in(dir.path);
  REQUIRE(names.size() == 1);
  const std::string mine = names[0];
  write_golden(dir.path, g);
  names = names_in(dir.path);
  CHECK(names.size() == 3);                        // the living one, the golden, the manifest
  CHECK(std::count(names.begin(), names.end(), mine) == 1);
}

TEST_CASE("a damaged foreign file is refused or read, never a crash") {
  // In the old format, as h5py writes it, where most metadata has no checksum: HDF5 1.10 crashes on some of these.
  const Scratch dir;
  const fs::path file = dir / "foreign.h5";
  const hid_t f = H5Fcreate(file.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
  const hid_t creation = H5Pcreate(H5P_DATASET_CREATE);
  const hsize_t dims[] = {4, 6}, chunk[] = {2, 3};
  const hid_t space = H5Screate_simple(2, dims, nullptr);
  H5Pset_chunk(creation, 2, chunk);
  H5Pset_deflate(creation, 4);
  const std::vector<float> data(24, 1.5f);
  for (const char* name : {"o", "ht", "extra"}) {
    const hid_t d = H5Dcreate2(f, name, H5T_IEEE_F32LE, space, H5P_DEFAULT, *name == 'o' ? H5P_DEFAULT : creation, H5P_DEFAULT);
    H5Dwrite(d, H5T_IEEE_F32LE, H5S_ALL, H5S_ALL, H5P_DEFAULT, data.data());
    H5Dclose(d);
  }
  H5Pclose(creation);
  H5Sclose(space);
  H5Fclose(f);
  REQUIRE(read_tensors(file).size() == 3);
  const std::string whole = bytes_of_file(file);
  int read = 0, refused = 0, crashed = 0;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const Random r(seed, "damage");
    std::string bytes = whole;
    for (std::uint64_t i = 0; i < 1 + seed % 4; ++i) bytes[r.below(2 * i, seed % 2 ? whole.size() : std::min<std::size_t>(2500, whole.size()))] = static_cast<char>(r.bits(2 * i + 1));
    put_file(file, bytes);
    const std::string line = refusal([&] { read_tensors(file); });
    INFO(seed << ": " << line);
    if (line.empty()) ++read;
    else ++refused;
    crashed += contains(line, "crashed");
    REQUIRE((line.empty() || (one_line(line) && line.rfind(file.string() + ": ", 0) == 0)));
  }
  INFO(read << " read, " << refused << " refused, of these " << crashed << " crashed HDF5");
  CHECK(refused > 20);
}

TEST_CASE("a wrong manifest is refused, not overwritten") {
  const Scratch dir;
  for (const char* text : {"hello", "[]\n", "{\"schema\":\"gdn-manifest\"}\n", "{\"schema\":\"gdn-manifest\",\"schema_version\":1,\"files\":{}}\n",
                           "{\"schema\":\"gdn-manifest\",\"schema_version\":3}\n"}) {
    put_file(dir / kManifestName, text);
    const std::string line = refusal([&] { write_golden(dir.path, tiny_golden()); });
    INFO(text << " -> " << line);
    CHECK(one_line(line));
    CHECK(contains(line, std::string(kManifestName) + ": "));
    CHECK(bytes_of_file(dir / kManifestName) == text);
  }
  put_file(dir / kManifestName, "{\"schema\":\"gdn-manifest\",\"schema_version\":2}\n{\"file\":\"a.h5\",\"case_id\":1}\n");
  CHECK(contains(refusal([&] { read_manifest(dir.path); }), "line 2 needs "));
}

TEST_CASE("a manifest whose writer was killed loses the line that breaks off, and no other") {
  const Scratch dir;
  write_golden(dir.path, tiny_golden());
  const std::string whole = bytes_of_file(dir / kManifestName);
  const Manifest one = read_manifest(dir.path);
  REQUIRE(one.size() == 1);
  const std::size_t head = whole.find('\n') + 1;
  for (std::size_t cut = 0; cut < whole.size(); ++cut) {
    put_file(dir / kManifestName, whole.substr(0, cut));
    CHECK(read_manifest(dir.path).empty());
    if (cut % 16 == 0 || cut + 2 > head) {
      add_to_manifest(dir.path, one.begin()->first, one.begin()->second);
      CHECK(bytes_of_file(dir / kManifestName) == whole);
    }
  }
  add_to_manifest(dir.path, "b.h5", one.begin()->second);
  add_to_manifest(dir.path, one.begin()->first, one.begin()->second);
  CHECK(read_manifest(dir.path).size() == 2);
  sort_manifest(dir.path);
  const std::string sorted = bytes_of_file(dir / kManifestName);
  CHECK(std::count(sorted.begin(), sorted.end(), '\n') == 3);
  CHECK(read_manifest(dir.path).size() == 2);
}
