// Case family `verify_snapshots`: draft tokens with a snapshot of the state after each, some accepted, then a plain step.
// There to catch snapshots under the wrong token, and continuations from a state that was not accepted.
#include <algorithm>

#include "suites/families/pool.h"
#include "suites/families/relate.h"
#include "suites/family.h"

namespace gdn {
namespace {

using I = std::int64_t;

struct VerifySnapshots final : Family {
  std::string name() const override { return "verify_snapshots"; }
  std::string profile() const override { return "verify"; }
  std::string rationale() const override {
    return "Speculative decoding runs a few draft tokens at once and keeps as many of them as were right: none, some or all. "
           "Every call of these runs accepts another number per row, so each next call starts from another snapshot, or from the "
           "pool where nothing was accepted; the last call is a plain step. Outputs, every snapshot and the pool are judged, "
           "rows without a sequence and slots that nobody uses are there as well.";
  }
  std::string own_fault() const override { return "rows_past_32_skipped"; }
  std::vector<std::string> kinds() const override {
    return {"snapshot-wrong", "acceptance-wrong", "slot-wrong", "slot-padding-mishandled", "slot-reuse-leaks", "gate-clamped", "gate-reset-lost",
            "scale-wrong", "output-unwritten", "head-map-wrong", "key-channels-dropped", "subnormals-flushed", "nan-in-output"};
  }
  std::vector<Problem> problems(Level level) const override {
    if (level == Level::smoke)
      return fill::problems({"verify/n4_t11_h2_hv4_k16_v24/bf16/h0,slots=7,draft=5", "verify/n4_t11_h2_hv4_k16_v24/fp32/h0,slots=7,draft=5",
                             "verify/n2_t7_h1_hv2_k64_v64/bf16/h0,slots=2,draft=2", "verify/n2_t7_h1_hv2_k64_v64/fp32/h0,slots=2,draft=2",
                             "verify/n70_t3_h1_hv1_k8_v8/bf16/h0,slots=300,draft=2", "verify/n70_t3_h1_hv1_k8_v8/fp32/h0,slots=300,draft=2",
                             "verify/n1_t3_h1_hv2_k128_v128/bf16/h0,slots=3,draft=2", "verify/n1_t3_h1_hv2_k128_v128/fp32/h0,slots=3,draft=2",
                             "verify/n1_t5_h1_hv2_k16_v16/bf16/h0,slots=3,draft=2", "verify/n1_t5_h1_hv2_k16_v16/fp32/h0,slots=3,draft=2",
                             "verify/n2_t5_h1_hv2_k16_v16/bf16/h0,slots=3,draft=1", "verify/n2_t5_h1_hv2_k16_v16/fp32/h0,slots=3,draft=1"});
    std::vector<Problem> list;
    for (const char* dtype : {"bf16", "fp32"})
      for (const char* text : {"n4_t13_h2_hv4_k16_v24/*/h0,slots=7,draft=4", "n5_t10_h1_hv3_k32_v16/*/h0,slots=9,draft=3", "n3_t9_h1_hv2_k64_v64/*/h0,slots=5,draft=2",
                               "n3_t5_h1_hv2_k128_v128/*/h0,slots=5,draft=4", "n3_t7_h1_hv2_k16_v16/*/h0,slots=5,draft=1", "n3_t4_h1_hv2_k32_v32/*/h0,slots=5,draft=4",
                               "n4_t9_h1_hv2_k16_v16/*/h0,slots=6,draft=2,state=bf16", "n10_t13_h1_hv1_k44_v12/*/h0,slots=24,draft=6",
                               "n3_t9_h4_hv16_k8_v12/*/h0,slots=5,draft=4,scale=0x1p-1", "n2_t19_h4_hv20_k8_v8/*/h0,slots=4,draft=9,scale=0x1p+0"}) {
        std::string t = text;
        t.replace(t.find('*'), 1, dtype);
        list.push_back(parse_problem("verify/" + t));
      }
    list.push_back(parse_problem("verify/n3_t9_h1_hv2_k24_v20/fp16/h0,slots=5,draft=2"));
    list.push_back(parse_problem("verify/n3_t9_h1_hv2_k16_v16/bf16/h0,g=bf16,beta=bf16,slots=5,draft=2"));
    list.push_back(parse_problem("verify/n3_t10_h1_hv2_k16_v16/fp16/h0,slots=5,draft=3,state=fp16"));
    if (level != Level::ci)
      for (Problem& more : fill::problems({"verify/n16_t33_h4_hv8_k64_v64/bf16/h0,slots=40,draft=4", "verify/n5_t29_h2_hv4_k128_v128/bf16/h0,slots=9,draft=7"}))
        list.push_back(std::move(more));
    return list;
  }
  Case make(const Problem& p, std::uint64_t seed) const override {
    fill::require_pool(name(), p, Operation::verify);
    fill::Style style;
    style.gates = {fill::Gates::mild, fill::Gates::slow, fill::Gates::zero, fill::Gates::mixed};
    style.betas = {fill::Betas::unit, fill::Betas::high, fill::Betas::sparse};
    const I N = p.sequences(), calls = static_cast<I>(p.cuts().size()) + 1;
    // Of three rows and more the second has no sequence.
    std::vector<I> slots = pool::live_slots(p, seed, N > 2 ? N - 1 : N);
    slots.resize(static_cast<std::size_t>(N), -1);
    if (N > 2) std::rotate(slots.begin() + 1, slots.end() - 1, slots.end());
    Tensor indices(DType::i32, {calls, N}), accepted(DType::i32, {calls, N});
    for (I c = 0; c < calls; ++c)
      for (I n = 0; n < N; ++n) {
        const I slot = slots[static_cast<std::size_t>(n)];
        indices.set(c * N + n, static_cast<double>(slot));
        if (c > 0 && slot >= 0) accepted.set(c * N + n, static_cast<double>((c * p.draft + n + static_cast<I>(seed % 97)) % (p.draft + 1)));
      }
    const auto filled = [&](std::uint64_t s) {
      TensorSet t = pool::inputs(p, s, style, indices);
      t["accepted"] = accepted;
      pool::put_extremes(p, s, t);
      return t;
    };
    Case c = fill::single(name(), p, seed, filled(seed));
    relate::add_run(c, "other sequences in the same slots", [&](Run& r) { r.inputs = filled(seed + 0x9e3779b97f4a7c15u); }, true);
    const std::size_t again = relate::add_run(c, "the first ones again", [](Run&) {});
    relate::add(c, 36, RelationClass::deterministic, again, "the same calls give the same numbers after the slots were used by others", relate::base_times(again, 1, 1));
    return c;
  }
};

const VerifySnapshots family;
const RegisterFamily registered(&family);

}  // namespace
}  // namespace gdn
