// --shard auto: several ranks on one folder make what one process makes, whatever their number, and one that dies leaves the rest.
#include <cstdlib>
#include <filesystem>
#include <string>

#include "reports/file.h"
#include "reports/record.h"
#include "suites/self/catch.h"

using namespace gdn;
namespace fs = std::filesystem;

namespace {

struct Directory {
  fs::path path = fs::temp_directory_path() / ("gdn_ranks" + temporary_suffix());
  Directory() { fs::create_directories(path); }
  ~Directory() { fs::remove_all(path); }
  std::string operator/(const std::string& name) const { return (path / name).string(); }
};

int shell(const std::string& line) { return std::system(("( unset GDN_CTS_PROGRAM; " + line + " ) >/dev/null 2>&1").c_str()); }

// Slurm's variables: they count in builds with MPI and without.
std::string rank(int i, int n) { return "SLURM_PROCID=" + std::to_string(i) + " SLURM_NTASKS=" + std::to_string(n) + " '" GDN_PROGRAM "' "; }

std::string generate(const std::string& folder) { return "generate --level smoke --family chunk_boundary --family decode_pool --shard auto -o '" + folder + "'"; }

}  // namespace

TEST_CASE("ranks of any number make the same manifest, and a rank that died is made up for by itself") {
  const Directory dir;
  REQUIRE(shell(rank(0, 1) + generate(dir / "one")) == 0);
  const std::string whole = read_file(dir / "one/manifest.jsonl");
  CHECK(whole.size() > 1000);
  for (const int n : {2, 4}) {
    const std::string folder = dir / std::to_string(n);
    std::string together;                          // all but rank 1, at once; a golden that was being written does not count
    for (int i = 0; i < n; ++i)
      if (i != 1) together += rank(i, n) + generate(folder) + " & ";
    REQUIRE(shell(together + "wait") == 0);
    const std::string without = read_file(folder + "/manifest.jsonl");
    CHECK(without.size() < whole.size());
    REQUIRE(shell(rank(1, n) + generate(folder)) == 0);
    CHECK(read_file(folder + "/manifest.jsonl") == whole);
  }
}

TEST_CASE("the same from mpirun, where it is installed") {
  if (shell("command -v mpirun") != 0) return;
  const Directory dir;
  REQUIRE(shell(rank(0, 1) + generate(dir / "one")) == 0);
  for (const char* n : {"1", "2", "4"}) {
    const std::string folder = dir / n;
    REQUIRE(shell(std::string("mpirun --allow-run-as-root --oversubscribe --enable-recovery -n ") + n + " '" GDN_PROGRAM "' " + generate(folder)) == 0);
    CHECK(read_file(folder + "/manifest.jsonl") == read_file(dir / "one/manifest.jsonl"));
  }
}

TEST_CASE("records of ranks, put together, are those of one gate and get its verdict") {
  const Directory dir;
  const std::string gate = "verify --kernel cpu_recurrent_fp32 --level smoke --golden '" + (dir / "golden") + "'", journal = dir / "all.jsonl";
  for (int i = 0; i < 3; ++i) REQUIRE(shell(rank(i, 3) + gate + " --shard auto --resume '" + (dir / "part") + "'") == 0);
  REQUIRE(shell("cat '" + (dir / "part") + "'.?-3 > '" + journal + "'") == 0);
  const std::size_t known = read_records(journal).size();
  REQUIRE(shell("'" GDN_PROGRAM "' " + gate + " --resume '" + journal + "' --json '" + (dir / "whole.jsonl") + "'") == 0);
  CHECK(read_records(journal).size() == known);    // nothing was left to run
  CHECK(read_records(dir / "whole.jsonl").size() == known);
  CHECK(known > 100);
}

TEST_CASE("auto without a launcher, and reports of a rank, are refused") {
  const Directory dir;
  const std::string none = "env -u SLURM_PROCID -u PMI_RANK -u OMPI_COMM_WORLD_RANK '" GDN_PROGRAM "' ";
  CHECK(shell(none + generate(dir / "x")) != 0);
  CHECK(shell(rank(0, 2) + "verify --kernel cpu_recurrent_fp32 --shard auto") != 0);
  CHECK(shell(rank(0, 2) + "verify --kernel cpu_recurrent_fp32 --shard auto --resume '" + (dir / "j") + "' --json '" + (dir / "k") + "'") != 0);
  CHECK(shell(rank(2, 2) + generate(dir / "x")) != 0);
}
