// Case family `decode_pool`: steps on a pool of states, in place, with index lists, rows without a sequence and reuse.
// There to catch states that are read from or written to a slot that is not theirs, and slots that remember.
#include "reference/recurrence.h"
#include "suites/families/pool.h"
#include "suites/families/relate.h"
#include "suites/family.h"

namespace gdn {
namespace {

using I = std::int64_t;

struct DecodePool final : Family {
  std::string name() const override { return "decode_pool"; }
  std::string profile() const override { return "decode"; }
  std::string rationale() const override {
    return "A serving engine hands a decode kernel a pool of states and a list that says which slot each row of the batch "
           "has, -1 for rows without a sequence. Here slots are out of order and change rows from call to call, idle rows "
           "move through the batch, slot 0, the last slot and others are used by nobody and must keep their bits, and K "
           "differs from V. Single gates reach from -60 to -1e4, which erases a state, single keys are 0 or short. Further runs put the rows in another order, give the same slots to other sequences, and come back "
           "to the first ones.";
  }
  std::string own_fault() const override { return "rows_past_32_skipped"; }
  std::vector<std::string> kinds() const override {
    return {"slot-padding-mishandled", "slot-wrong", "slot-reuse-leaks", "state-stride-wrong", "workspace-stale",
            "state-shared-between-heads", "initial-state-transposed", "final-state-transposed", "initial-state-ignored",
            "gate-clamped", "gate-reset-lost", "scale-wrong", "output-unwritten", "head-map-wrong", "key-channels-dropped", "value-channels-dropped",
            "subnormals-flushed", "nan-in-output", "unwanted-normalisation"};
  }
  std::vector<Problem> problems(Level level) const override {
    if (level == Level::smoke)
      return fill::problems({"decode/n4_t4_h2_hv4_k32_v48/bf16/h0,slots=24", "decode/n4_t4_h2_hv4_k32_v48/fp32/h0,slots=24",
                             "decode/n3_t2_h1_hv2_k64_v64/bf16/h0,slots=6", "decode/n3_t2_h1_hv2_k64_v64/fp32/h0,slots=6",
                             "decode/n3_t2_h1_hv2_k128_v128/bf16/h0,slots=3", "decode/n3_t2_h1_hv2_k128_v128/fp32/h0,slots=3",
                             "decode/n70_t2_h1_hv1_k8_v8/bf16/h0,slots=300", "decode/n70_t2_h1_hv1_k8_v8/fp32/h0,slots=300"});
    std::vector<Problem> list;
    for (const char* dtype : {"bf16", "fp32"})
      for (const char* text : {"n4_t6_h2_hv4_k32_v48/*/h0,slots=9", "n5_t4_h1_hv3_k48_v32/*/h0,slots=12", "n4_t4_h2_hv4_k64_v64/*/h0,slots=7",
                               "n4_t4_h2_hv4_k128_v128/*/h0,slots=7", "n1_t3_h1_hv2_k64_v32/*/h0,slots=3", "n4_t5_h1_hv2_k16_v24/*/h0,slots=6,state=bf16",
                               "n6_t3_h1_hv2_k16_v16/*/h0,slots=6", "n11_t5_h1_hv1_k44_v28/*/h0,slots=24", "n3_t4_h4_hv16_k16_v20/*/h0,slots=20",
                               "n2_t3_h4_hv20_k16_v16/*/h0,slots=4,scale=0x1p-1", "n3_t3_h3_hv9_k24_v8/*/h0,slots=5,scale=0x1p+0",
                               "n70_t2_h2_hv8_k16_v40/*/h0,slots=90"}) {   // as many states as a kernel may want that goes through them in one launch
        std::string t = text;
        t.replace(t.find('*'), 1, dtype);
        list.push_back(parse_problem("decode/" + t));
      }
    for (Problem& more : fill::problems({"decode/n3_t5_h2_hv4_k32_v24/fp16/h0,slots=5", "decode/n3_t4_h1_hv2_k32_v16/fp16/h0,slots=4,g=fp16,beta=fp16,state=fp16",
                                         "decode/n3_t4_h1_hv2_k16_v16/bf16/h0,slots=4,g=bf16,beta=bf16"}))
      list.push_back(std::move(more));
    if (level != Level::ci)
      for (Problem& more : fill::problems({"decode/n64_t8_h2_hv4_k64_v64/bf16/h0,slots=200", "decode/n33_t5_h16_hv32_k128_v128/bf16/h0,slots=40",
                                           "decode/n256_t2_h1_hv2_k16_v16/fp32/h0,slots=1000", "decode/n7_t9_h4_hv8_k128_v64/fp16/h0,slots=12,state=fp16"}))
        list.push_back(std::move(more));
    return list;
  }
  Case make(const Problem& p, std::uint64_t seed) const override {
    fill::require_pool(name(), p, Operation::decode);
    fill::Style style;
    style.gates = {fill::Gates::mild, fill::Gates::slow, fill::Gates::zero, fill::Gates::mixed};
    style.betas = {fill::Betas::unit, fill::Betas::high, fill::Betas::sparse};
    const I N = p.sequences(), calls = static_cast<I>(p.cuts().size()) + 1;
    const std::vector<I> slots = pool::live_slots(p, seed, N);
    const I live = static_cast<I>(slots.size());
    // Call c: one row idle (of a single row every second call), the slots moved on by one row each call.
    Tensor indices(DType::i32, {calls, N});
    for (I c = 0; c < calls; ++c)
      for (I n = 0; n < N; ++n) {
        const bool idle = N > 1 ? (n == (c + 1 + static_cast<I>(seed % 7)) % N) : c % 2 == 1;
        const I at = (n + c) % N;
        indices.set(c * N + n, idle || at >= live ? -1 : static_cast<double>(slots[static_cast<std::size_t>(at)]));
      }
    Case c = fill::single(name(), p, seed, pool::inputs(p, seed, style, indices));
    prepare(p, seed, c.runs[0].inputs);

    if (N > 1) {
      const I HV = p.value_heads, V = p.value_dim;
      std::vector<I> from;                         // batch row n of the new run was row N-1-n
      for (I n = 0; n < N; ++n)
        for (I t = 0; t < calls; ++t) from.push_back((N - 1 - n) * calls + t);
      const std::size_t other = relate::add_run(c, "rows in another order", [&](Run& r) {
        for (const char* tensor : {"q", "k", "v", "g", "beta"})
          if (const auto t = r.inputs.find(std::string_view(tensor)); t != r.inputs.end())
            t->second = relate::gathered(t->second, t->second.size() / p.tokens(), from);
        Tensor& list = r.inputs.at("state_indices");
        for (I i = 0; i < calls; ++i)
          for (I n = 0; n < N; ++n) list.set(i * N + n, static_cast<double>(indices.int_at(i * N + N - 1 - n)));
      }, true);
      relate::add(c, 25, RelationClass::shape_invariant, other, "the rows of a batch in another order give the same numbers in that order",
                  [=](const std::vector<TensorSet>& results) {
                    TensorSet e = results[0];
                    e["o"] = relate::gathered(results[0].at("o"), HV * V, from);
                    return e;
                  });
    }
    relate::add_run(c, "other sequences in the same slots", [&](Run& r) {
      r.inputs = pool::inputs(p, seed + 0x9e3779b97f4a7c15u, style, indices);
      prepare(p, seed, r.inputs);
    }, true);
    const std::size_t again = relate::add_run(c, "the first ones again", [](Run&) {});
    relate::add(c, 36, RelationClass::deterministic, again, "the same calls give the same numbers after the slots were used by others", relate::base_times(again, 1, 1));
    return c;
  }

 private:
  // What every token of a pool may be, and first tokens that decay the state they were given, differently per head.
  static void prepare(const Problem& p, std::uint64_t seed, TensorSet& t) {
    pool::put_extremes(p, seed, t);
    const auto g = t.find("g");
    if (g == t.end() || gate_per_key_channel(p.rule)) return;
    const auto offsets = p.offsets();
    for (std::size_t n = 0; n < p.lengths.size(); ++n)
      for (I h = 0; h < p.value_heads; ++h) {
        const I at = offsets[n] * p.value_heads + h;
        if (g->second.at(at) <= 0) g->second.set(at, h % 2 ? -0.25 : -0.75);   // not in idle rows, which hold NaN
      }
  }
};

const DecodePool family;
const RegisterFamily registered(&family);

}  // namespace
}  // namespace gdn
