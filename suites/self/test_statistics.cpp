// The statistical check: correct kernels of every preset pass it, kernels below their declaration fail it with the point
// named where no bound sees them, and its nulls are the same fresh and from the cache.
#include <filesystem>
#include <fstream>

#include "kernels/contract_file.h"
#include "suites/family.h"
#include "suites/power.h"
#include "suites/runner.h"
#include "suites/self/catch.h"
#include "suites/simulated.h"

using namespace gdn;
namespace fs = std::filesystem;

namespace {

const char* const kSmall = "random_tokens:prefill/n1_t150_h1_hv2_k32_v32/bf16/h0:";

struct Bench {
  Case c;
  Golden g;
  explicit Bench(const std::string& id) : c(make_case(parse_case_id(id))), g(make_golden(c)) {}
  Record judge(const std::string& carried_out, const std::string& declared, const fs::path& cache = {}) const {
    return judge_case(g, c, *open_simulated(parse_contract(carried_out), parse_contract(declared)), {false, cache});
  }
};

RecordCheck check_of(const Record& r, const char* name) {
  for (const RecordCheck& c : r.checks)
    if (c.check == name) return c;
  throw std::runtime_error("no such check");
}

}  // namespace

TEST_CASE("correct kernels of every preset pass, with room") {
  for (const char* problem : {kSmall, "random_tokens:prefill/n1_t150_h1_hv2_k32_v32/fp32/h0:"}) {
    const Bench b(problem + std::string("1"));
    for (const std::string& preset : contract_presets()) {
      if (problem != kSmall && preset.find("chunk") == std::string::npos) continue;
      const Record r = b.judge(preset, preset);
      const RecordCheck& s = check_of(r, "statistics");
      INFO(preset << " " << s.status << " " << s.message);
      CHECK(r.verdict == "PASSED");
      CHECK(s.status == "PASSED");
      CHECK(s.metrics.at("closest") < 0.8);
      CHECK(s.metrics.at("greatest_share") < 0.5);
    }
  }
}

TEST_CASE("correct kernels with arithmetic of their own pass") {
  for (const char* kernel : {"cpu_recurrent_fp32", "cpu_recurrent_bf16", "cpu_chunk_fp32", "cpu_chunk_bf16"})
    for (std::uint64_t seed = 11; seed <= 12; ++seed) {
      const Bench b(kSmall + std::to_string(seed));
      const Record r = judge_case(b.g, b.c, *open_inline(kernel, {}));
      INFO(kernel << ": " << r.reason);
      CHECK(r.verdict == "PASSED");
      CHECK(check_of(r, "statistics").status == "PASSED");
    }
  // Products accumulated onto what they are added to, which rounds at the size of the sum: a value channel of a state then errs by a few
  // numbers that all its elements share.
  {
    const Bench b("random_tokens:prefill/n1_t200_h1_hv2_k128_v128/fp32/h0:1");
    const Record r = judge_case(b.g, b.c, *open_inline("faulty/none/chunk-fp32", {}));
    INFO(r.reason);
    CHECK(r.verdict == "PASSED");
    CHECK(check_of(r, "statistics").metrics.at("closest") < 0.8);
  }
  // Products fused, sums in the other order of key channels, an exp that is off by two ulp: all within the contract.
  const Bench b(kSmall + std::string("3"));
  for (const char* contract : {"fp32-recurrent", "fp32-chunk", "bf16-chunk"}) {
    Contract fused = parse_contract(contract);
    fused.fma = true;
    CHECK(judge_case(b.g, b.c, *open_simulated(fused, parse_contract(contract)), {false, {}}).verdict == "PASSED");
  }
}

TEST_CASE("a kernel below its declared precision fails with the point named") {
  const Bench fp32("random_tokens:prefill/n1_t150_h1_hv2_k64_v32/fp32/h0:1"), bf16("random_tokens:prefill/n1_t300_h1_hv2_k64_v64/bf16/h0:1");
  struct Below { const Bench& b; const char *carried_out, *declared, *named; bool bound; };
  const Below all[] = {
      // TF32 declared as fp32
      {fp32, "fp32-chunk;k_in=tf32", "fp32-chunk", "k_in in tf32", true},
      {fp32, "fp32-chunk;W=tf32", "fp32-chunk", "W in tf32", true},
      {bf16, "fp32-chunk;M=tf32;solve=block_inverse", "fp32-chunk;solve=block_inverse", "M in tf32", true},
      // bf16 state declared as fp32
      {fp32, "fp32-recurrent;S_carried=bf16", "fp32-recurrent", "S_carried in bf16", true},
      {fp32, "fp32-chunk;S_carried=bf16", "fp32-chunk", "S_carried in bf16", true},
      // truncation declared as nearest
      {bf16, "bf16-chunk;P=bf16/rz", "bf16-chunk", "P in bf16/rz", false},
      {bf16, "bf16-chunk;S_op=bf16/rz", "bf16-chunk", "S_op in bf16/rz", false},
      {bf16, "bf16-chunk;M=bf16/rz", "bf16-chunk", "M in bf16/rz", false},
      {bf16, "bf16-recurrent;out=bf16/rz", "bf16-recurrent", "out in bf16/rz", true},
      // points kept short
      {bf16, "bf16-chunk;beta=bf16", "bf16-chunk", "beta in bf16", false},
      {bf16, "bf16-chunk;G=bf16", "bf16-chunk", "G in bf16", true},
      {bf16, "bf16-chunk;D=bf16", "bf16-chunk", "D in bf16", false},
      {bf16, "bf16-chunk;gram=bf16", "bf16-chunk", "gram in bf16", false}};
  for (const Below& x : all) {
    const Record r = x.b.judge(x.carried_out, x.declared);
    const RecordCheck& s = check_of(r, "statistics");
    INFO(x.carried_out << " as " << x.declared << ": " << s.message);
    CHECK(r.verdict == "FAILED");
    CHECK(s.status == "FAILED");
    CHECK(s.message.find("pattern that " + std::string(x.named) + " makes") != std::string::npos);
    CHECK(check_of(r, "bound").status == (x.bound ? "FAILED" : "PASSED"));
  }
  CHECK(bf16.judge("bf16-chunk;P=bf16/rz", "bf16-chunk;P=bf16/rz").verdict == "PASSED");   // what is declared is allowed
  CHECK(fp32.judge("fp32-recurrent;S_carried=bf16", "fp32-recurrent;S_carried=bf16").verdict == "PASSED");
  const Record as_fp32 = fp32.judge("tf32-chunk", "fp32-chunk"), as_tf32 = fp32.judge("tf32-chunk", "tf32-chunk");
  CHECK(as_fp32.verdict == "FAILED");
  CHECK(check_of(as_fp32, "statistics").message.find("in tf32 makes") != std::string::npos);
  CHECK(as_tf32.verdict == "PASSED");
  // Sums that are cut, where the contract rounds them: too large or one-sided errors, of no point in particular.
  CHECK(check_of(fp32.judge("fp32-chunk;accumulator=tensor_core", "fp32-chunk"), "statistics").status == "FAILED");
}

TEST_CASE("faults that only this check sees") {
  PowerOptions o;
  o.case_ids = {"random_tokens:prefill/n1_t300_h1_hv2_k64_v64/bf16/h0:1"};
  o.faults = {"beta_in_bf16", "scores_truncated"};
  o.measure_survivors = false;
  const PowerResult r = measure_power(o);
  CHECK(r.alarms.empty());
  for (const FaultPower& f : r.faults)
    for (const VariantPower& v : f.variants) {
      if (v.name() != "chunk-bf16") continue;
      INFO(f.fault->name << " " << v.name());
      REQUIRE(v.killed());
      CHECK(v.kills[0].check == "statistics");
    }
}

TEST_CASE("where it does not apply it says so and decides nothing") {
  const Bench other("typical:prefill/n1_t20_h1_hv2_k16_v16/bf16/h0:1");
  const RecordCheck& s = check_of(other.judge("bf16-chunk", "bf16-chunk"), "statistics");
  CHECK(s.status == "NOT_APPLICABLE");
  CHECK(s.judged == 0);
  const Bench b(kSmall + std::string("1"));
  Contract c = parse_contract("fp32-recurrent");
  KernelInfo info = open_simulated(c, c)->info();
  info.convention.l2norm = L2Norm::in_kernel;
  std::vector<Execution> e{open_simulated(c, c)->run(b.c.runs[0], "")};
  const Record normalised = judge_results(b.g, b.c, info, e);
  CHECK(check_of(normalised, "statistics").status == "NOT_APPLICABLE");
  CHECK(check_of(normalised, "statistics").message.find("normalised") != std::string::npos);
  // A NaN is no statistic that passes.
  e[0].outputs.at("o").set(5, std::nan(""));
  info.convention.l2norm = L2Norm::caller;
  CHECK(check_of(judge_results(b.g, b.c, info, e), "statistics").status == "FAILED");
  // Nothing to compare with where an output is missing.
  e[0].outputs.erase("ht");
  CHECK(check_of(judge_results(b.g, b.c, info, e), "statistics").judged == 0);
}

TEST_CASE("nulls are the same fresh and from the cache, and a damaged file is made again") {
  const Bench b(kSmall + std::string("1"));
  const fs::path dir = fs::path(GDN_BINARY_DIR) / "test_statistics_cache";
  fs::remove_all(dir);
  const Record fresh = b.judge("bf16-chunk", "bf16-chunk", dir), again = b.judge("bf16-chunk", "bf16-chunk", dir);
  CHECK(check_of(fresh, "statistics").metrics.at("sigma_seconds") > 0);
  CHECK(check_of(again, "statistics").metrics.at("sigma_seconds") == 0);
  for (const char* metric : {"closest", "greatest_share", "tests", "o_rms"})
    CHECK(check_of(fresh, "statistics").metrics.at(metric) == check_of(again, "statistics").metrics.at(metric));
  std::vector<fs::path> files;
  for (const auto& f : fs::directory_iterator(dir))
    if (f.path().extension() == ".h5") files.push_back(f.path());
  REQUIRE(files.size() == 1);
  fs::resize_file(files[0], 1000);
  CHECK(check_of(b.judge("bf16-chunk", "bf16-chunk", dir), "statistics").metrics.at("sigma_seconds") > 0);
  b.judge("fp16-chunk", "fp16-chunk", dir);        // another contract, another file
  std::size_t count = 0;
  for (const auto& f : fs::directory_iterator(dir)) count += f.path().extension() == ".h5";
  CHECK(count == 2);
  fs::remove_all(dir);
}

TEST_CASE("a gate at level ci stays within the number of tests and token-heads that the rate is stated for") {
  double size = 0;
  std::size_t cases = 0;
  for (const CaseId& id : cases_of(Level::ci, 1))
    if (find_family(id.family)->random()) {
      size += id.problem.token_heads();
      ++cases;
    }
  CHECK(cases > 0);
  CHECK(size <= 20000);
  std::size_t most = 0;
  for (const std::string& preset : contract_presets()) most = std::max(most, departures(parse_contract(preset)).size());
  CHECK(cases * (statistic_names().size() + most) <= static_cast<std::size_t>(kStatisticalTests));
}

TEST_CASE("departures are what the contract rules out, each once") {
  const std::vector<Departure> all = departures(parse_contract("bf16-chunk"));
  const auto has = [&](const char* name) { return std::count_if(all.begin(), all.end(), [&](const Departure& d) { return d.name == name; }); };
  CHECK(has("beta in bf16") == 1);
  CHECK(has("beta in tf32") == 1);
  CHECK(has("P in bf16/rz") == 1);
  CHECK(has("P in bf16") == 0);                    // declared
  CHECK(has("P in tf32") == 0);                    // finer
  CHECK(has("g before its sum in bf16") == 1);
  CHECK(departures(parse_contract("fp32-recurrent")).size() < all.size());
  for (const Departure& d : all) CHECK(has(d.name.c_str()) == 1);
}

TEST_CASE("contracts are read from files") {
  const fs::path file = fs::path(GDN_BINARY_DIR) / "test.contract";
  const auto with = [&](const char* text) {
    std::ofstream(file) << text;
    return "@" + file.string();
  };
  CHECK(read_contract(with("# mine\n  bf16-chunk # preset\n\n M = fp32\nchunk=32\r\n")) == parse_contract("bf16-chunk;M=fp32;chunk=32"));
  CHECK(read_contract("fp32-chunk;fma=yes") == parse_contract("fp32-chunk;fma=yes"));
  const auto fails = [&](const std::string& text, const char* says) {
    try {
      read_contract(text);
      FAIL("no error");
    } catch (const std::invalid_argument& e) {
      CHECK(std::string(e.what()).find(says) != std::string::npos);
      CHECK(std::string(e.what()).find('\n') == std::string::npos);
    }
  };
  fails(with(""), "is empty");
  fails(with("bf16-chunk\nM fp32\n"), "test.contract");
  fails(with("bf16-chunk\nM fp32\n"), "not key=value");
  fails("@/no/such/file", "cannot be read");
  fs::remove(file);
}
