// Case families `combinations` (prefill), `combinations_packed`, `combinations_raw`, `combinations_decode`, `combinations_verify` and
// `combinations_raw_decode`: covering arrays over all options of a problem, drawn anew for every seed.
// There to catch faults that need two or three options at once, which lists of cases made for one option each do not meet.
#include "suites/families/combinations.h"

#include <algorithm>
#include <limits>
#include <map>
#include <mutex>
#include <stdexcept>
#include <utility>

#include "suites/families/pool.h"
#include "suites/families/relate.h"

namespace gdn::combinations {
namespace {

using I = std::int64_t;
using covering::Block;
using covering::Row;

// Axes; every option of a problem is one. Lists of levels are in the order of what they cost.
enum : int { kIo, kGate, kBeta, kState, kK, kV, kRatio, kHeads, kSequences, kReach, kTail, kStates, kCalls, kPadding, kLayout, kOffsets, kRule, kScale, kSteps, kDraft, kSlots, kAxes };
std::size_t z(int i) { return static_cast<std::size_t>(i); }
constexpr DType kIoTypes[] = {DType::bf16, DType::f32, DType::f16};
constexpr DType kTypes[] = {DType::f32, DType::bf16, DType::f16};

struct Range { I least, most; };
// Greatest members come last; of K and V the members are drawn from lists.
constexpr I kSizes[] = {8, 16, 24, 32, 40, 48, 64, 72, 80, 96, 112, 128, 136, 160, 192, 256, 320};
constexpr Range kKeyDims[] = {{16, 48}, {64, 64}, {72, 112}, {128, 128}, {136, 256}};
constexpr Range kValueDims[] = {{8, 48}, {64, 64}, {72, 128}, {136, 192}, {256, 320}};
constexpr Range kRatios[] = {{1, 1}, {2, 2}, {3, 4}, {5, 6}};
constexpr Range kKeyHeads[] = {{1, 1}, {2, 5}, {33, 36}};                         // the last: value heads
constexpr Range kSequenceCounts[] = {{1, 1}, {2, 2}, {3, 8}, {12, 16}, {71, 90}, {602, 640}};
constexpr I kReached[] = {0, 64, 130, 192, 258, 640, 1024};                       // the longest sequence has tokens behind this one
constexpr Range kStepCounts[] = {{1, 1}, {2, 8}, {9, 20}, {66, 70}};    // of decode; of verify calls, of which there are fewer
constexpr Range kDrafts[] = {{1, 1}, {2, 4}, {5, 8}, {11, 17}};
constexpr Range kSpare[] = {{0, 0}, {1, 5}, {25, 40}};                            // slots that no row has; the first: none

template <std::size_t n>
int class_of(const Range (&ranges)[n], I x) {
  int level = 0;
  while (z(level) + 1 < n && x >= ranges[z(level) + 1].least) ++level;
  return level;
}

template <std::size_t n>
std::vector<std::string> names(const Range (&ranges)[n]) {
  std::vector<std::string> list;
  for (const Range& r : ranges) list.push_back(std::to_string(r.least) + (r.most > r.least ? ".." + std::to_string(r.most) : ""));
  return list;
}

bool is_pool(Part p) { return p == Part::decode || p == Part::verify || p == Part::raw_decode; }
bool is_raw(Part p) { return p == Part::raw || p == Part::raw_decode; }
bool is_packed(Part p) { return p == Part::packed || p == Part::raw; }
constexpr I kVerifyCalls = 3;                      // at most; the last one is a plain step

I heads_of(const Row& r, I ratio, I drawn) { return r[kHeads] == 2 ? (drawn + ratio - 1) / ratio : drawn; }

std::vector<int> first(int n) {
  std::vector<int> list;
  for (int i = 0; i < n; ++i) list.push_back(i);
  return list;
}

std::vector<int> all(int axis) { return first(static_cast<int>(axes()[z(axis)].levels.size())); }

}  // namespace

const char* family_name(Part part) {
  constexpr const char* kNames[] = {"combinations", "combinations_packed", "combinations_raw", "combinations_decode", "combinations_verify", "combinations_raw_decode"};
  return kNames[static_cast<int>(part)];
}

const std::vector<covering::Axis>& axes() {
  static const std::vector<covering::Axis> list = [] {
    std::vector<covering::Axis> a(kAxes);
    const auto axis = [&](int i, const char* name, std::vector<std::string> levels, bool reaches = false) { a[z(i)] = {name, std::move(levels), reaches}; };
    axis(kIo, "dtype", {"bf16", "fp32", "fp16"});
    axis(kGate, "gate", {"fp32", "bf16", "fp16"});
    axis(kBeta, "beta", {"fp32", "bf16", "fp16"});
    axis(kState, "state", {"fp32", "bf16", "fp16"});
    axis(kK, "K", names(kKeyDims));
    axis(kV, "V", names(kValueDims));
    axis(kRatio, "HV/H", names(kRatios));
    axis(kHeads, "H", {"1", "2..5", "HV>32"});
    axis(kSequences, "sequences", names(kSequenceCounts));
    std::vector<std::string> reached;
    for (I t : kReached) reached.push_back("past " + std::to_string(t));
    axis(kReach, "tokens", reached, true);
    axis(kTail, "last chunk", {"some rows", "63, 64 or 1 row"});
    axis(kStates, "states", {"h0 and ht", "ht", "h0", "none"});
    axis(kCalls, "calls", {"1", "2 or 3"});
    axis(kPadding, "padding", {"no", "yes"});
    axis(kLayout, "layout", {"dense", "strided"});
    axis(kOffsets, "offsets", {"int64", "int32"});
    axis(kRule, "rule", {"gated_delta", "delta", "gated_linear", "retention", "linear"});
    axis(kScale, "scale", {"K^-1/2", "other"});
    axis(kSteps, "calls of a pool", names(kStepCounts), true);
    axis(kDraft, "drafts", names(kDrafts));
    axis(kSlots, "spare slots", names(kSpare));
    return a;
  }();
  return list;
}

namespace {

constexpr double kPerState = 3;                    // tokens that reading, writing and judging a state costs as much as
constexpr int kOptions[] = {kState, kLayout, kRule, kGate, kBeta, kScale, kOffsets};   // what a kernel need not declare

}  // namespace

double cost(Part part, const Row& r) {
  int options = 0;
  for (int axis : kOptions) options += r[z(axis)] != 0 && !(axis == kBeta && r[kGate]);
  if (options > 2) return std::numeric_limits<double>::infinity();
  // Nothing is forgotten, and everything rounded at every step: a bound above all signal.
  if (is_pool(part) && r[kRule] && r[kState] && r[kSteps] == 3) return std::numeric_limits<double>::infinity();
  const I ratio = kRatios[z(r[kRatio])].least, heads = heads_of(r, ratio, kKeyHeads[z(r[kHeads])].least), N = kSequenceCounts[z(r[kSequences])].least;
  const double state = static_cast<double>(heads * ratio * kKeyDims[z(r[kK])].least * kValueDims[z(r[kV])].least) / 16384;
  if (is_pool(part)) {
    const I calls = part == Part::verify ? std::min<I>(kStepCounts[z(r[kSteps])].least, kVerifyCalls) : kStepCounts[z(r[kSteps])].least;
    const double tokens = static_cast<double>(N * (part == Part::verify ? calls * kDrafts[z(r[kDraft])].least + 1 : calls));
    return state * (tokens * (part == Part::verify ? 1 + kPerState : 1) + kPerState * static_cast<double>(N + kSpare[z(r[kSlots])].least));
  }
  const I longest = std::max<I>(kReached[z(r[kReach])] + 1, !r[kCalls] ? 1 : r[kTail] ? 63 : 2);
  return state * (static_cast<double>(is_packed(part) ? longest + 2 * (N - 1) : N * longest) + kPerState * static_cast<double>(N));
}

namespace {

// Ways to draw the members of levels: those of a case, or where these are too large the least ones.
class Draw {
 public:
  Draw(std::uint64_t seed, const std::string& name, bool least) : random_(seed, name), least_(least) {}
  I of(Range r) { return least_ ? r.least : r.least + static_cast<I>(random_.below(drawn_++, static_cast<std::uint64_t>(r.most - r.least + 1))); }
  I size(Range r) {
    std::vector<I> in;
    for (I s : kSizes)
      if (r.least <= s && s <= r.most) in.push_back(s);
    return in[static_cast<std::size_t>(of({0, static_cast<I>(in.size()) - 1}))];
  }

 private:
  Random random_;
  std::uint64_t drawn_ = 0;
  bool least_;
};

// The size of a problem as cost() counts it.
double size_of_problem(const Problem& p) {
  const double states = static_cast<double>(p.states() + (p.operation == Operation::verify ? p.tokens() : 0));
  return p.token_heads() + kPerState * states * static_cast<double>(p.value_heads * p.key_dim * p.value_dim) / 16384;
}

// A length past the level of kReach that ends in a chunk as the level of kTail says.
I length_for(Draw& draw, int reach, int tail, bool calls) {
  const I reached = kReached[z(reach)], from = reached + 1;
  if (tail == 0) {
    const I drawn = from + draw.of({1, reach == 0 ? 18 : 40}), rest = drawn % 64;
    return rest >= 2 && rest <= 62 ? drawn : drawn + 3;
  }
  constexpr I kRests[] = {1, 63, 0};
  const I rest = kRests[draw.of({0, 2})], length = from + (rest - from % 64 + 64) % 64;
  return length == 1 && calls ? 63 : length;       // one token is no two calls
}

Problem problem_of(Part part, const Row& r, std::uint64_t seed, const std::string& name, bool least) {
  Draw draw(seed, name, least);
  Problem p;
  p.operation = !is_pool(part) ? Operation::prefill : part == Part::verify ? Operation::verify : Operation::decode;
  p.io = kIoTypes[z(r[kIo])];
  p.gate = kTypes[z(r[kGate])];
  p.beta = kTypes[z(r[kBeta])];
  p.state = kTypes[z(r[kState])];
  p.key_dim = draw.size(kKeyDims[z(r[kK])]);
  p.value_dim = r[kK] == r[kV] && p.key_dim == 64 ? 64 : draw.size(kValueDims[z(r[kV])]);
  const I ratio = draw.of(kRatios[z(r[kRatio])]);
  p.heads = heads_of(r, ratio, draw.of(kKeyHeads[z(r[kHeads])]));
  p.value_heads = p.heads * ratio;
  p.strided = r[kLayout] == 1;
  p.short_offsets = r[kOffsets] == 1;
  p.rule = static_cast<Rule>(r[kRule]);
  p.raw = is_raw(part);
  constexpr double kScales[] = {0x1p-2, 0x1p+0, 0x1.4p-3, -0x1.8p-1};
  if (r[kScale]) p.scale = kScales[draw.of({0, 3})];
  const I N = draw.of(kSequenceCounts[z(r[kSequences])]);
  if (is_pool(part)) {
    p.initial_state = true;
    p.slots = N + draw.of(kSpare[z(r[kSlots])]);
    const I steps = draw.of(kStepCounts[z(r[kSteps])]);
    p.draft = part == Part::verify ? draw.of(kDrafts[z(r[kDraft])]) : 0;
    p.lengths.assign(z(static_cast<int>(N)), part == Part::verify ? std::min(steps, kVerifyCalls) * p.draft + 1 : steps);
    return p;
  }
  p.initial_state = r[kStates] == 0 || r[kStates] == 2;
  p.final_state = r[kStates] < 2;
  const I longest = length_for(draw, r[kReach], r[kTail], r[kCalls]);
  p.lengths.assign(z(static_cast<int>(N)), longest);
  if (is_packed(part) && N > 1) {
    // One long sequence, never the first; the others are short, some of them empty, in groups as long as many of them print in one line.
    const I at = 1 + draw.of({0, std::min<I>(N - 2, 5)});
    I same = draw.of({0, 3});
    for (I n = 0; n < N; ++n) {
      if (N <= 16 || n <= at + 2 || n % 13 == 0) same = N > 60 ? draw.of({0, 3}) : draw.of({0, N > 8 ? 5 : 17});
      if (least && N <= 16) same = n % 4 == 3 ? 0 : 1 + n % 2;   // few tokens, but not none
      if (n != at) p.lengths[z(static_cast<int>(n))] = std::min(same, longest);
    }
    if (I& last = p.lengths.back(); N > 16 && last == 0) last = 1;
  }
  if (is_packed(part) && r[kPadding]) p.padding = draw.of({1, 9});
  const I cuts = r[kCalls] ? std::min(draw.of({1, 2}), longest - 1) : 0;
  for (I c = 1; c <= cuts; ++c) {                  // a call ends at a chunk's end or anywhere
    const I anywhere = std::max<I>(longest * c / (cuts + 1), 1), whole = anywhere / 64 * 64;
    const I cut = whole > 0 && draw.of({0, 1}) ? whole : anywhere;
    p.split.push_back(std::max(cut, p.split.empty() ? I{0} : p.split.back()));
  }
  return p;
}

struct Rows { std::vector<Row> rows; std::vector<Problem> problems; };

// Made once per part, level and seed.
const Rows& rows_of(Part part, Level level, std::uint64_t seed) {
  static std::mutex mutex;
  static std::map<std::tuple<Part, Level, std::uint64_t>, Rows> made;
  const std::lock_guard held(mutex);
  Rows& result = made[{part, level, seed}];
  if (!result.rows.empty()) return result;
  for (const Block& block : blocks(part, level)) {
    for (Row& row : covering::cover(axes(), block, [&](const Row& r) { return cost(part, r); }, result.rows, seed)) {
      const std::string name = block.name + std::to_string(result.rows.size());
      Problem p = problem_of(part, row, seed, name, false);
      if (size_of_problem(p) > std::max(20.0, 1.25 * cost(part, row))) p = problem_of(part, row, seed, name, true);
      result.problems.push_back(std::move(p));
      result.rows.push_back(std::move(row));
    }
  }
  return result;
}

}  // namespace

Row levels_of(const Problem& p) {
  Row r(kAxes, 0);
  const auto at = [](const auto& list, DType t) { return static_cast<int>(std::find(std::begin(list), std::end(list), t) - std::begin(list)); };
  r[kIo] = at(kIoTypes, p.io);
  r[kGate] = at(kTypes, p.gate);
  r[kBeta] = at(kTypes, p.beta);
  r[kState] = at(kTypes, p.state);
  r[kK] = class_of(kKeyDims, p.key_dim);
  r[kV] = class_of(kValueDims, p.value_dim);
  r[kRatio] = class_of(kRatios, p.value_heads / p.heads);
  r[kHeads] = p.value_heads > 32 ? 2 : std::min(class_of(kKeyHeads, p.heads), 1);
  r[kSequences] = class_of(kSequenceCounts, p.sequences());
  r[kLayout] = p.strided;
  r[kOffsets] = p.short_offsets;
  r[kRule] = static_cast<int>(p.rule);
  r[kScale] = p.scale != 0;
  if (p.pool()) {
    r[kSteps] = class_of(kStepCounts, p.operation == Operation::verify ? (p.lengths[0] - 1) / p.draft : p.lengths[0]);
    r[kDraft] = p.draft ? class_of(kDrafts, p.draft) : 0;
    r[kSlots] = class_of(kSpare, p.slots - p.sequences());
    return r;
  }
  const I longest = *std::max_element(p.lengths.begin(), p.lengths.end()), rest = longest % 64;
  while (z(r[kReach]) + 1 < std::size(kReached) && longest > kReached[z(r[kReach]) + 1]) ++r[kReach];
  r[kTail] = rest <= 1 || rest == 63;
  r[kStates] = (p.final_state ? 0 : 2) + (p.initial_state ? 0 : 1);
  r[kCalls] = static_cast<int>(std::min<std::size_t>(p.split.size(), 1));
  r[kPadding] = p.padding > 0;
  return r;
}

std::vector<Block> blocks(Part part, Level level) {
  const double more = level == Level::ci ? 1 : 12;
  std::vector<Block> list;
  Block shapes;                                    // all that a kernel has to declare, or nearly, and none of the options
  shapes.allowed.assign(kAxes, {0});
  for (int axis : {kRatio, kHeads}) shapes.allowed[z(axis)] = all(axis);
  if (is_pool(part)) {
    for (int axis : {kSteps, kSlots}) shapes.allowed[z(axis)] = all(axis);
    shapes.allowed[kSequences] = first(4);
    if (part == Part::verify) {
      shapes.allowed[kSteps] = first(2);
      shapes.allowed[kDraft] = all(kDraft);
    }
  } else {
    for (int axis : {kReach, kTail, kStates, kCalls}) shapes.allowed[z(axis)] = all(axis);
    if (part == Part::prefill) shapes.allowed[kSequences] = first(3);
    else for (int axis : {kSequences, kPadding}) shapes.allowed[z(axis)] = all(axis);
    if (part == Part::packed) shapes.allowed[kSequences].erase(shapes.allowed[kSequences].begin());
  }
  const auto add = [&](const char* name, double most, const std::function<void(Block&)>& change) {
    Block b = shapes;
    b.name = std::string(family_name(part)) + ", " + name;
    b.most = most * more;
    change(b);
    list.push_back(std::move(b));
  };
  const int length = is_pool(part) ? kSteps : kReach;
  // What a kernel for one model declares: one dtype, K = V = 64 or 128.
  if (!is_raw(part))
    for (int size : {1, 3})
      add(size == 1 ? "bf16 and K=V=64" : "bf16 and K=V=128", size == 1 ? 70 : 140, [&](Block& b) {
        for (int axis : {kRatio, kHeads}) b.allowed[z(axis)] = first(2);
        b.allowed[kK] = {size};
        b.allowed[kV] = {size == 1 ? 1 : 2};
      });
  add("plain", 140, [&](Block& b) {
    for (int axis : {kIo, kK, kV}) b.allowed[z(axis)] = all(axis);
    if (!is_raw(part)) b.triples.push_back({kIo, kK, length});
    if (part == Part::prefill) b.triples.push_back({kK, kStates, kReach});
    if (part == Part::packed) b.triples.push_back({kK, kSequences, kReach});
  });
  // One or two options that a kernel may declare.
  add("options", 60, [&](Block& b) {
    for (int axis : kOptions) b.allowed[z(axis)] = all(axis);
    b.allowed[kRule] = {0, is_raw(part) ? 2 : 1};
    if (is_pool(part)) b.allowed[kOffsets] = {0};
    b.allowed[kHeads] = first(2);
    if (part == Part::packed) b.allowed[kSequences] = {0, 1, 2, 4};
    b.allowed[kIo] = all(kIo);
    b.allowed[kK] = {0, 1, 3};
    b.allowed[kV] = {0, 1, 2};
    b.triples.push_back({kState, kIo, kK});
    if (part == Part::packed)
      for (int option : {kLayout, kRule, kOffsets}) {
        b.triples.push_back({option, kIo, kK});
        b.triples.push_back({option, kSequences, kK});
      }
  });
  if (!is_pool(part) && !is_raw(part))
    add("rules", 40, [&](Block& b) {
      b.allowed[kRule] = {2, 3, 4};
      b.allowed[kIo] = all(kIo);
      b.allowed[kK] = {0, 1, 3};
      b.allowed[kRatio] = b.allowed[kHeads] = first(2);
      b.allowed[kSequences] = {part == Part::packed ? 2 : 0};
    });
  return list;
}

namespace {

struct Combinations final : Family {
  explicit Combinations(Part part) : part_(part) {}
  std::string name() const override { return family_name(part_); }
  std::string profile() const override {
    constexpr const char* kProfiles[] = {"core", "varlen", "raw_gates", "decode", "verify", "raw_decode"};
    return kProfiles[static_cast<int>(part_)];
  }
  std::string rationale() const override {
    return "Kernels have paths: one for wide keys, one for long contexts, one for fp16, for strided tensors, for many sequences. What is wrong on one of them "
           "needs two or three options at once, and a list of cases made for each option alone never has them together. Here covering arrays are drawn, "
           "anew for every seed: all pairs of dtypes, K, V, HV/H, H, sequences, positions that tokens reach, rows of the last chunk, states, calls, padding, layouts, offsets, "
           "rules and scales occur, and triples of the most telling ones; once among what every kernel declares and again with every option that it may. "
           "A case id says all of it. Tokens everywhere have gates and betas that show.";
  }
  std::string own_fault() const override {
    constexpr const char* kFaults[] = {"half_precision_value_tile_repeated", "many_wide_sequences_share_gates", "raw_bias_of_key_head_when_packed", "short_pool_stride_of_wide_keys",
                                       "half_precision_snapshots", "raw_gates_of_eight_rows"};
    return kFaults[static_cast<int>(part_)];
  }
  std::vector<std::string> kinds() const override {
    switch (part_) {
      case Part::prefill:
        return {"head-map-wrong", "key-channels-dropped", "value-channels-dropped", "tile-from-wrong-dim", "initial-state-ignored", "final-state-unwritten", "offset-overflow",
                "state-zeroed-at-chunk-border", "tail-tokens-dropped", "output-unwritten", "layout-stride-ignored", "state-narrowed"};
      case Part::packed:
        return {"state-leaks-into-next-sequence", "sequence-state-mixed", "sequence-gates-cross", "empty-sequence-mishandled", "initial-state-ignored", "state-stride-wrong",
                "offset-overflow", "layout-stride-ignored", "padding-used"};
      case Part::raw: return {"head-map-wrong", "state-leaks-into-next-sequence", "layout-stride-ignored"};
      case Part::decode: return {"slot-wrong", "slot-padding-mishandled", "state-stride-wrong", "head-map-wrong", "output-unwritten", "layout-stride-ignored"};
      case Part::verify: return {"snapshot-wrong", "acceptance-wrong", "slot-wrong", "state-narrowed", "layout-stride-ignored"};
      case Part::raw_decode: return {"head-map-wrong", "slot-wrong", "sequence-gates-cross"};
    }
    return {};
  }
  std::vector<Problem> problems(Level level) const override { return drawn(level, 1); }
  std::vector<Problem> drawn(Level level, std::uint64_t seed) const override {
    if (level == Level::smoke) return small();
    std::vector<Problem> list = rows_of(part_, level, seed).problems;
    for (Problem& more : extended(level)) list.push_back(std::move(more));
    return list;
  }
  Case make(const Problem& p, std::uint64_t seed) const override {
    const bool pool = is_pool(part_);
    if (pool) fill::require_pool(name(), p, part_ == Part::verify ? Operation::verify : Operation::decode);
    else fill::require_prefill(name(), p);
    if (is_raw(part_) && !p.raw) throw std::invalid_argument("family " + name() + " needs the option raw: '" + to_string(p) + "'");
    Case c = fill::single(name(), p, seed, pool ? on_pool(p, seed) : inputs(p, seed));
    if (!pool) relate::add_negated_values(c);
    return c;
  }

 private:
  // Contexts that are too long to be drawn.
  std::vector<Problem> extended(Level level) const {
    if (part_ == Part::prefill && level == Level::ci)
      return fill::problems({"prefill/n1_t700_h1_hv1_k128_v128/bf16/h0", "prefill/n1_t1100_h1_hv1_k64_v64/bf16/h0", "prefill/n1_t8192_h1_hv1_k128_v8/bf16/h0",
                             "prefill/n1_t8192_h1_hv1_k128_v8/fp32", "prefill/n1_t4500_h1_hv1_k64_v8/fp32/h0", "prefill/n1_t4500_h1_hv2_k16_v8/fp16"});
    if (part_ == Part::prefill)
      return fill::problems({"prefill/n1_t131072_h1_hv1_k128_v8/bf16/h0", "prefill/n1_t131072_h1_hv1_k128_v8/fp32/h0", "prefill/n1_t131072_h1_hv1_k64_v16/fp16",
                             "prefill/n1_t40000_h1_hv2_k128_v64/bf16/h0", "prefill/n1_t9000_h2_hv4_k128_v128/bf16", "prefill/n1_t5000_h1_hv1_k256_v64/fp32/h0"});
    if (part_ == Part::packed && level == Level::ci)
      return fill::problems({"prefill/n3_t2+5+4500_h1_hv1_k16_v8/bf16/h0", "prefill/n3_t2+5+1400_h1_hv1_k128_v16/fp32/h0"});
    if (part_ == Part::packed)
      return fill::problems({"prefill/n3_t2+70000+131_h1_hv1_k128_v16/bf16/h0", "prefill/n70000_t1x30000+0x9+1x39990+66_h1_hv1_k16_v8/fp32"});
    return {};
  }
  std::vector<Problem> small() const {
    switch (part_) {
      case Part::prefill: return fill::problems({"prefill/n1_t66_h1_hv1_k128_v8/bf16/h0"});
      case Part::packed: return fill::problems({"prefill/n3_t3+66+2_h1_hv1_k64_v8/bf16"});
      case Part::raw: return fill::problems({"prefill/n2_t3+20_h1_hv2_k64_v8/bf16/h0,raw"});
      case Part::decode: return fill::problems({"decode/n3_t3_h1_hv2_k64_v16/bf16/h0,slots=30"});
      case Part::verify: return fill::problems({"verify/n2_t11_h1_hv2_k32_v16/bf16/h0,slots=3,draft=10"});
      case Part::raw_decode: return fill::problems({"decode/n3_t3_h1_hv2_k64_v16/bf16/h0,slots=5,raw"});
    }
    return {};
  }
  // Every token of the first of two heads writes and decays what a coarse contract can see, the second one remembers.
  static TensorSet inputs(const Problem& p, std::uint64_t seed) {
    fill::Style style;
    style.gates = {fill::Gates::mild, fill::Gates::slow, fill::Gates::mild};
    style.betas = {fill::Betas::unit, fill::Betas::sparse};
    style.keys = {fill::Keys::independent, fill::Keys::correlated, fill::Keys::positive};
    TensorSet t = fill::inputs(p, seed, style);
    const Random random(seed, "combinations");
    const I HV = p.value_heads;
    const auto each = [&](const char* name, auto&& value) {
      if (const auto x = t.find(name); x != t.end())
        for (I i = 0; i < p.tokens() * HV; ++i)
          if (i % HV % 2 == 0) x->second.set(i, value(static_cast<std::uint64_t>(i)));
    };
    if (p.rule == Rule::gated_delta || p.rule == Rule::gated_linear) each("g", [&](std::uint64_t i) { return random.uniform(i, -0.5, -0.05); });
    each("beta", [&](std::uint64_t i) { return random.uniform(i | 1ull << 40, 0.25, 1); });
    if (p.raw) {
      // g from -1 to -0.02 in even heads, slower by 2^-6 and more in odd ones.
      for (I h = 0; h < HV; ++h) {
        t.at("A_log").set(h, h % 2 ? -4.25 - 0x1p-4 * static_cast<double>(h % 5) : 0x1p-3 * static_cast<double>(h % 3));
        t.at("dt_bias").set(h, 0x1p-2 * static_cast<double>(h % 4) - 0.5);
      }
      for (I i = 0; i < p.tokens() * HV; ++i) t.at("a").set(i, random.uniform(static_cast<std::uint64_t>(i), -3.5, 0.25));
      fill::poison_padding(p, t);
    }
    return t;
  }
  static TensorSet on_pool(const Problem& p, std::uint64_t seed) {
    const I N = p.sequences(), calls = static_cast<I>(p.cuts().size()) + 1;
    // A row in five has no sequence.
    std::vector<I> slots = pool::live_slots(p, seed, N);
    slots.resize(z(static_cast<int>(N)), -1);
    Tensor indices(DType::i32, {calls, N}), accepted(DType::i32, {calls, N});
    for (I c = 0; c < calls; ++c)
      for (I n = 0; n < N; ++n) {
        const I slot = n % 5 == (N > 2 ? 2 : 1) ? -1 : slots[static_cast<std::size_t>(n)];
        indices.set(c * N + n, static_cast<double>(slot));
        if (c > 0 && slot >= 0 && p.draft) accepted.set(c * N + n, static_cast<double>((c * p.draft + n + static_cast<I>(seed % 97)) % (p.draft + 1)));
      }
    TensorSet t = inputs(p, seed);
    t["state_indices"] = indices;
    if (p.operation == Operation::verify) t["accepted"] = accepted;
    pool::put_canaries(p, t);
    fill::poison_idle_rows(p, t);
    return t;
  }
  const Part part_;
};

const Combinations prefill(Part::prefill), packed(Part::packed), raw(Part::raw), decode(Part::decode), verify(Part::verify), raw_decode(Part::raw_decode);
const RegisterFamily registered[] = {RegisterFamily(&prefill), RegisterFamily(&packed), RegisterFamily(&raw), RegisterFamily(&decode), RegisterFamily(&verify), RegisterFamily(&raw_decode)};

}  // namespace
}  // namespace gdn::combinations
