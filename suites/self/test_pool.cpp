// Decode and verify end to end: the truth against the calls replayed one by one, the kernels, golden files, and what a
// wrong slot, canary or index list leads to. Exists because strands fold many calls into one recurrence, which must be right.
#include <algorithm>
#include <cmath>

#include "golden/check.h"
#include "golden/stream.h"
#include "kernels/faulty/faults.h"
#include "reference/strand.h"
#include "suites/power.h"
#include "suites/runner.h"
#include "suites/self/catch.h"
#include "suites/self/golden_fixture.h"

using namespace gdn;

namespace {

const char* const kDecode = "decode_pool:decode/n4_t4_h2_hv4_k8_v12/fp32/h0,slots=9:1";
const char* const kVerify = "verify_snapshots:verify/n4_t10_h2_hv4_k8_v12/fp32/h0,slots=7,draft=3:1";

struct Replay { std::vector<double> o, pool, snapshots; };

// What an engine does, call by call, in double, straight from clause 1.8. Elements that are nobody's stay NaN.
Replay replay(const Run& run) {
  const Problem& p = run.problem;
  const std::int64_t N = p.sequences(), HV = p.value_heads, K = p.key_dim, V = p.value_dim, T = p.lengths[0], KV = K * V;
  const auto in = [&](const char* name) -> const Tensor& { return run.inputs.at(name); };
  const double none = std::nan("");
  Replay r;
  r.o.assign(static_cast<std::size_t>(N * T * HV * V), none);
  r.snapshots.assign(static_cast<std::size_t>(N * T * HV * KV), none);
  for (std::int64_t i = 0; i < in("h0").size(); ++i) r.pool.push_back(in("h0").at(i));
  const bool verify = p.operation == Operation::verify;
  const std::int64_t step = verify ? p.draft : 1, calls = (T + step - 1) / step;
  for (std::int64_t c = 0; c < calls; ++c)
    for (std::int64_t n = 0; n < N; ++n) {
      const std::int64_t slot = in("state_indices").int_at(c * N + n);
      if (slot < 0) continue;
      const std::int64_t accepted = verify ? in("accepted").int_at(c * N + n) : 0, first = n * T + c * step, last = n * T + std::min(T, (c + 1) * step);
      for (std::int64_t hv = 0; hv < HV; ++hv) {
        double* kept = &r.pool[static_cast<std::size_t>((slot * HV + hv) * KV)];
        if (accepted > 0) std::copy_n(&r.snapshots[static_cast<std::size_t>(((first - step + accepted - 1) * HV + hv) * KV)], KV, kept);
        std::vector<double> S(kept, kept + KV);
        for (std::int64_t row = first; row < last; ++row) {
          const std::int64_t key = (row * p.heads + hv / (HV / p.heads)) * K;
          const double alpha = std::exp(in("g").at(row * HV + hv)), beta = in("beta").at(row * HV + hv);
          for (std::int64_t v = 0; v < V; ++v) {
            double w = 0, o = 0;
            for (std::int64_t d = 0; d < K; ++d) w += alpha * S[static_cast<std::size_t>(d * V + v)] * in("k").at(key + d);
            const double y = beta * (in("v").at((row * HV + hv) * V + v) - w);
            for (std::int64_t d = 0; d < K; ++d) {
              double& s = S[static_cast<std::size_t>(d * V + v)];
              s = alpha * s + in("k").at(key + d) * y;
              o += s * in("q").at(key + d);
            }
            r.o[static_cast<std::size_t>((row * HV + hv) * V + v)] = p.effective_scale() * o;
          }
          if (verify && last - first == step && (c == 0 || c + 1 < calls)) std::copy(S.begin(), S.end(), r.snapshots.begin() + (row * HV + hv) * KV);
        }
        if (!verify || (c > 0 && c + 1 == calls)) std::copy(S.begin(), S.end(), kept);
      }
    }
  return r;
}

std::int64_t wrong(const TruthTensor& truth, const std::vector<double>& want) {
  REQUIRE(truth.hi.size() == want.size());
  std::int64_t n = 0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    const bool nobody = std::isinf(truth.radius[i]) && truth.hi[i] == 0;
    if (std::isnan(want[i]) && !nobody) n += !std::isnan(truth.hi[i]);         // a canary may be NaN
    else if (!nobody) n += !(std::fabs(truth.hi[i] - want[i]) <= 1e-12 * (1 + std::fabs(want[i])));
    else n += !std::isnan(want[i]);
  }
  return n;
}

Execution execute(const char* kernel, const Run& run) { return open_inline(kernel, {})->run(run, ""); }

}  // namespace

TEST_CASE("the truth is what the calls give one by one") {
  for (const char* id : {kDecode, kVerify, "decode_steps:decode/n2_t30_h1_hv2_k8_v6/fp32/h0,slots=4:3", "decode_pool:decode/n1_t3_h1_hv2_k8_v8/bf16/h0,slots=1:2",
                         "verify_snapshots:verify/n3_t7_h1_hv2_k8_v6/bf16/h0,slots=4,draft=1:2", "verify_snapshots:verify/n2_t4_h1_hv2_k8_v6/bf16/h0,slots=4,draft=4:2"}) {
    const Case c = make_case(parse_case_id(id));
    for (const Run& run : c.runs) {
      INFO(id << " " << run.name);
      const Truth truth = oracle(run);
      const Replay want = replay(run);
      CHECK(wrong(truth.at("o"), want.o) == 0);
      CHECK(wrong(truth.at("ht"), want.pool) == 0);
      if (run.problem.operation == Operation::verify) CHECK(wrong(truth.at("snapshots"), want.snapshots) == 0);
    }
  }
}

TEST_CASE("every acceptance from none to all occurs, with and without a state to fall back on") {
  const Case c = make_case(parse_case_id(kVerify));
  const Tensor& accepted = c.runs[0].inputs.at("accepted");
  const std::int64_t N = c.problem.sequences();
  std::vector<int> seen(4, 0);
  int kept_then_none = 0;
  for (std::int64_t i = N; i < accepted.size(); ++i) {
    if (c.runs[0].inputs.at("state_indices").int_at(i) < 0) continue;
    ++seen[static_cast<std::size_t>(accepted.int_at(i))];
    kept_then_none += accepted.int_at(i) == 0 && accepted.int_at(i - N) > 0;
  }
  for (const int n : seen) CHECK(n > 0);
  CHECK(kept_then_none > 0);
}

TEST_CASE("contradictory index lists are refused in one line") {
  const auto refused = [](const char* id, const char* tensor, std::int64_t at, double value, const std::string& what) {
    Run run = make_case(parse_case_id(id)).runs[0];
    run.inputs.at(tensor).set(at, value);
    std::string message;
    try {
      strands(run);
    } catch (const std::invalid_argument& e) {
      message = e.what();
    }
    INFO(message);
    CHECK(message.find(what) != std::string::npos);
    CHECK(message.find('\n') == std::string::npos);
  };
  refused(kDecode, "state_indices", 0, 9, "9 slots");
  refused(kDecode, "state_indices", 0, -2, "holds -2");
  const Run decode = make_case(parse_case_id(kDecode)).runs[0];
  std::int64_t live = 0;
  while (decode.inputs.at("state_indices").int_at(live) < 0) ++live;
  refused(kDecode, "state_indices", live == 0 ? 1 : 0, static_cast<double>(decode.inputs.at("state_indices").int_at(live)), "twice in call 1");
  refused(kVerify, "accepted", 0, 1, "no such draft tokens");
  refused(kVerify, "accepted", 4, 4, "no such draft tokens");
  Run none = decode;
  none.inputs.erase("state_indices");
  CHECK_THROWS_AS(strands(none), std::invalid_argument);
}

TEST_CASE("the CPU kernels step as they prefill, and pass the families") {
  for (const char* kernel : {"cpu_recurrent_fp32", "cpu_recurrent_bf16"}) {
    const auto session = open_inline(kernel, {});
    for (const CaseId& id : cases_of(Level::smoke, 2, {"decode_pool", "decode_steps", "relation_steps", "verify_snapshots"})) {
      const Case c = make_case(id);
      const Record r = judge_case(make_golden(c), c, *session);
      INFO(kernel << " " << r.case_id << ": " << r.reason);
      const bool declared = c.problem.io != DType::f16 || kernel == std::string_view("cpu_recurrent_fp32");
      CHECK(r.verdict == (declared ? "PASSED" : "NOT_SUPPORTED"));
    }
    const Case c = make_case(parse_case_id("relation_steps:decode/n3_t20_h2_hv4_k16_v24/fp32/h0,slots=5:5"));
    const TensorSet steps = session->run(c.runs[0], "").outputs, whole = session->run(c.runs[1], "").outputs;
    CHECK(steps.at("o") == whole.at("o"));
    CHECK(c.relations[0].expected({steps, whole}).at("ht") == whole.at("ht"));
  }
  // One that does not claim them is not asked, and says so.
  const Case c = make_case(parse_case_id(kVerify));
  CHECK(execute("cpu_chunk_fp32", c.runs[0]).message == "ops=verify not in declared ops=prefill,stages");
}

TEST_CASE("a changed canary, a wrong slot and a lost snapshot are named") {
  const auto judged = [](const char* id, auto spoil) {
    const Case c = make_case(parse_case_id(id));
    const auto session = open_inline("cpu_recurrent_fp32", {});
    std::vector<Execution> executions;
    for (const Run& run : c.runs) executions.push_back(session->run(run, ""));
    spoil(executions[0].outputs, c.runs[0]);
    return judge_results(make_golden(c), c, session->info(), executions);
  };
  CHECK(judged(kDecode, [](TensorSet&, const Run&) {}).verdict == "PASSED");
  const auto idle = [](const Run& run) {
    for (const Strand& s : strands(run))
      if (s.idle) return s.state_row;
    return std::int64_t{-1};
  };
  const Record canary = judged(kDecode, [&](TensorSet& out, const Run& run) {
    Tensor& pool = out.at("ht");
    const std::int64_t at = idle(run) * pool.size() / run.problem.slots + 3;
    pool.set_bits(at, pool.bits(at) ^ 1);
  });
  CHECK(canary.verdict == "FAILED");
  CHECK(canary.reason.find("slots that no sequence uses") != std::string::npos);
  const Record slot = judged(kDecode, [](TensorSet& out, const Run& run) {
    Tensor& pool = out.at("ht");
    for (const Strand& s : strands(run)) {
      if (s.idle) continue;
      const std::int64_t at = s.state_row * pool.size() / run.problem.slots;
      pool.set(at, pool.at(at) + 1);
      break;
    }
  });
  CHECK(slot.verdict == "FAILED");
  CHECK(slot.reason.find("slot ") != std::string::npos);
  const Record snapshot = judged(kVerify, [](TensorSet& out, const Run&) { out.at("snapshots").set(5, out.at("snapshots").at(5) + 1); });
  CHECK(snapshot.verdict == "FAILED");
  CHECK(snapshot.reason.find("snapshots, sequence 0 after token 0 head 0 row 0 column 5") != std::string::npos);
}

TEST_CASE("golden files of a pool are written, audited and read back") {
  for (const char* id : {kDecode, kVerify}) {
    INFO(id);
    const test::Scratch streamed, whole;
    const Case c = make_case(parse_case_id(id));
    const auto file = generate_golden(streamed.path, c);
    const Golden made = make_golden(c);
    write_golden(whole.path, made);
    CHECK(GoldenReader(file).content_hash() == content_hash(made));
    const CheckSummary s = check_directory(streamed.path, [](const std::string& line) { FAIL_CHECK(line); });
    CHECK(s.heads > 0);
    CHECK(s.audited_heads == s.heads);
    // A value that is not the truth is found.
    Golden spoilt = made;
    auto& pool = spoilt.truths[0].at("ht");
    for (const Strand& strand : strands(c.runs[0]))
      if (strand.state[0] == 'h' && !strand.idle) pool.hi[static_cast<std::size_t>(strand.state_row) * pool.hi.size() / static_cast<std::size_t>(pool.shape[0])] *= 1 + 0x1p-20;
    const test::Scratch bad;
    write_golden(bad.path, spoilt);
    int lines = 0;
    check_directory(bad.path, [&](const std::string&) { ++lines; });
    CHECK(lines > 0);
  }
}

TEST_CASE("every fault of the pools is caught by these families alone, and the twin passes") {
  PowerOptions o;
  o.level = Level::smoke;
  o.families = {"decode_pool", "verify_snapshots"};
  for (const char* kind : {"slot-padding-mishandled", "slot-wrong", "slot-reuse-leaks", "snapshot-wrong", "acceptance-wrong"}) o.faults.push_back(kind);
  for (const char* fault : {"pool_stride_of_key_heads", "slot_list_cached_in_plan", "snapshot_in_bf16"}) o.faults.push_back(fault);
  const PowerResult r = measure_power(o);
  INFO(power_table(r));
  CHECK(r.alarms.empty());
  CHECK(r.faults.size() >= 30);
  for (const FaultPower& f : r.faults) {
    INFO(f.fault->name);
    CHECK(f.killed());
  }
}
