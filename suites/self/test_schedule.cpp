// Schedules: a split run gives the numbers of the whole run, through states handed from call to call.
#include "kernels/schedule.h"
#include "suites/self/catch.h"

using namespace gdn;

namespace {

// A memory of one number per head: s <- s + v_t, o_t = s. Exact, order matters, and any lost or mixed row shows.
Execution running_sum(const Run& call) {
  const Problem& p = call.problem;
  const std::int64_t cells = p.value_heads * p.value_dim;
  Execution e;
  e.seconds = 1;
  Tensor o(DType::f32, {p.tokens() + p.padding, p.value_heads, p.value_dim});
  Tensor ht(DType::f32, {p.sequences(), p.value_heads, p.key_dim, p.value_dim});
  const auto offsets = p.offsets();
  REQUIRE(call.inputs.at("v").shape[0] == p.tokens() + p.padding);
  REQUIRE((call.inputs.count("h0") == 1) == p.initial_state);
  for (std::int64_t n = 0; n < p.sequences(); ++n) {
    REQUIRE(call.inputs.at("cu_seqlens").int_at(n + 1) == offsets[static_cast<std::size_t>(n) + 1]);
    for (std::int64_t c = 0; c < cells; ++c) {
      double s = p.initial_state ? call.inputs.at("h0").at(n * cells + c) : 0;
      for (std::int64_t t = offsets[static_cast<std::size_t>(n)]; t < offsets[static_cast<std::size_t>(n) + 1]; ++t) {
        s += call.inputs.at("v").at(t * cells + c);
        o.set(t * cells + c, s);
      }
      ht.set(n * cells + c, s);
    }
  }
  e.outputs.emplace("o", std::move(o));
  if (p.final_state) e.outputs.emplace("ht", std::move(ht));
  return e;
}

Run sum_run(const std::string& text) {
  Run run;
  run.problem = parse_problem(text);
  const Problem& p = run.problem;
  Tensor v(DType::f32, {p.tokens() + p.padding, p.value_heads, p.value_dim});
  for (std::int64_t i = 0; i < v.size(); ++i) v.set(i, static_cast<double>((i * 7919) % 1009));
  run.inputs.emplace("v", std::move(v));
  Tensor cu(DType::i64, {p.sequences() + 1});
  for (std::size_t i = 0; i < p.offsets().size(); ++i) cu.set_bits(static_cast<std::int64_t>(i), static_cast<std::uint64_t>(p.offsets()[i]));
  run.inputs.emplace("cu_seqlens", std::move(cu));
  if (p.initial_state) {
    Tensor h0(DType::f32, {p.sequences(), p.value_heads, p.key_dim, p.value_dim});
    for (std::int64_t i = 0; i < h0.size(); ++i) h0.set(i, static_cast<double>(100000 + i));
    run.inputs.emplace("h0", std::move(h0));
  }
  return run;
}

}  // namespace

TEST_CASE("a split run is the whole run") {
  for (const char* cuts : {"1", "17", "0", "99", "0.0.3", "2.5.5.40"})
    for (const char* options : {"", "h0,", "noht,", "h0,pad=3,"}) {
      const std::string shape = "prefill/n3_t23+0+5_h1_hv2_k1_v3/fp32";
      std::string whole = options;
      if (!whole.empty()) whole.pop_back();
      const Run split = sum_run(shape + "/" + options + "split=" + cuts);
      Execution got = run_schedule(split, running_sum);
      Execution want = running_sum(sum_run(shape + (whole.empty() ? "" : "/" + whole)));
      INFO(to_string(split.problem));
      CHECK(got.outcome == Outcome::ok);
      CHECK(got.outputs.at("o") == want.outputs.at("o"));
      CHECK(got.outputs.count("ht") == want.outputs.count("ht"));
      if (want.outputs.count("ht")) CHECK(got.outputs.at("ht") == want.outputs.at("ht"));
      CHECK(got.seconds == static_cast<double>(split.problem.split.size() + 1));
    }
}

TEST_CASE("a lost state shows, and the call that fails is named") {
  const Run run = sum_run("prefill/n1_t9_h1_hv1_k1_v2/fp32/split=3.6");
  int calls = 0;
  const Execution lost = run_schedule(run, [&](const Run& call) {
    Run forgetful = call;
    if (++calls == 2) forgetful.inputs.at("h0") = Tensor(DType::f32, {1, 1, 1, 2});
    return running_sum(forgetful);
  });
  CHECK(lost.outputs.at("ht") != running_sum(sum_run("prefill/n1_t9_h1_hv1_k1_v2/fp32")).outputs.at("ht"));

  calls = 0;
  const Execution failed = run_schedule(run, [&](const Run& call) {
    Execution e = running_sum(call);
    if (++calls == 2) e.outcome = Outcome::crashed, e.message = "killed by signal 9";
    return e;
  });
  CHECK(calls == 2);
  CHECK(failed.outcome == Outcome::crashed);
  CHECK(failed.message == "call 2 of 3: killed by signal 9");
  CHECK(failed.outputs.empty());

  const Execution stateless = run_schedule(run, [](const Run& call) {
    Execution e = running_sum(call);
    e.outputs.erase("ht");
    return e;
  });
  CHECK(stateless.message == "call 1 of 3: no final state");
}
