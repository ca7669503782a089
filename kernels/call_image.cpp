// The tensors of one kernel call as bytes; see call_image.h.
#include "kernels/call_image.h"

#include <algorithm>
#include <bit>
#include <utility>
#include <chrono>
#include <cstring>
#include <functional>
#include <new>
#include <numeric>
#include <stdexcept>

#include "reference/parallel.h"

namespace gdn {
namespace {

constexpr std::size_t kLine = 64;                  // least canary in front of a tensor

constexpr std::pair<const char*, std::int32_t> kRoles[] = {
    {"q", GDN_Q}, {"k", GDN_K}, {"v", GDN_V}, {"g", GDN_G}, {"angle", GDN_ANGLE}, {"beta", GDN_BETA}, {"h0", GDN_H0}, {"cu_seqlens", GDN_CU_SEQLENS},
    {"a", GDN_A}, {"A_log", GDN_A_LOG}, {"dt_bias", GDN_DT_BIAS}, {"state_indices", GDN_STATE_INDICES},
    {"accepted", GDN_ACCEPTED}, {"do", GDN_DO}, {"dht", GDN_DHT}, {"o", GDN_O}, {"ht", GDN_HT}, {"snapshots", GDN_SNAPSHOTS},
    {"G", GDN_STAGE_GSUM}, {"L", GDN_STAGE_L}, {"M", GDN_STAGE_M}, {"U", GDN_STAGE_U}, {"W", GDN_STAGE_W}, {"Vn", GDN_STAGE_VN},
    {"states", GDN_STAGE_STATES},
    {"x", GDN_X}, {"norm_in_w", GDN_NORM_IN_W}, {"w_qkv", GDN_W_QKV}, {"w_z", GDN_W_Z}, {"w_a", GDN_W_A}, {"w_b", GDN_W_B}, {"w_conv", GDN_W_CONV},
    {"w_out", GDN_W_OUT}, {"norm_w", GDN_NORM_W}, {"conv_state", GDN_CONV_STATE}, {"y", GDN_Y}, {"dq", GDN_DQ}, {"dk", GDN_DK}, {"dv", GDN_DV}, {"dg", GDN_DG}, {"dbeta", GDN_DBETA}, {"dh0", GDN_DH0}};

std::size_t round_up(std::size_t x, std::size_t to) { return (x + to - 1) / to * to; }

// Eight bytes of the poison of a dtype, from byte `phase` of an element on; little-endian hosts.
std::uint64_t poison_word(DType t, std::ptrdiff_t phase) {
  const int bits = static_cast<int>(8 * size_of(t));
  std::uint64_t word = poison_bits(t);
  for (int have = bits; have < 64; have *= 2) word |= word << have;
  const auto w = static_cast<std::ptrdiff_t>(size_of(t));
  return std::rotr(word, static_cast<int>(8 * (((phase % w) + w) % w)));
}

// Fills whole elements counted from `begin` in both directions, so that an element read outside is poison as well.
void fill_pattern(std::byte* first, std::byte* last, DType t, std::ptrdiff_t phase) {
  const std::uint64_t word = poison_word(t, phase);
  for (; last - first >= 8; first += 8) std::memcpy(first, &word, 8);
  if (first < last) std::memcpy(first, &word, static_cast<std::size_t>(last - first));
}

// Bytes from first to last that are not the pattern; `at` is the first of them.
std::size_t damaged(const std::byte* first, const std::byte* last, DType t, std::ptrdiff_t phase, const std::byte** at) {
  const std::uint64_t word = poison_word(t, phase);
  std::byte wanted[8];
  std::memcpy(wanted, &word, 8);
  std::size_t count = 0;
  for (; first < last; first += 8) {
    const std::ptrdiff_t n = std::min<std::ptrdiff_t>(8, last - first);
    if (std::memcmp(first, wanted, static_cast<std::size_t>(n)) == 0) continue;
    for (std::ptrdiff_t i = 0; i < n; ++i)
      if (first[i] != wanted[i] && count++ == 0) *at = first + i;
  }
  return count;
}

bool dense(const PlacedTensor& x) { return x.byte_offset == 0; }

// Strides of the tensor in memory, and the number of elements from the first to behind the last. Gaps between rows are multiples of `unit`, as
// many as no tensor of the same shape has, and of outputs more than of inputs, so that what is addressed wrongly stays in the tensor.
std::vector<std::int64_t> strides_of(const std::vector<std::int64_t>& shape, const Problem& p, std::int32_t role, std::int64_t unit, std::int64_t& extent) {
  const bool spread = p.strided && shape.size() > 1;
  const std::int64_t gap = spread ? unit * (1 + role % 7 + (role >= GDN_O ? 7 : 0)) : 0;
  std::vector<std::int64_t> strides(shape.size());
  const bool outwards = !(spread && shape.size() == 2 && (role == GDN_G || role == GDN_A));   // the last dimension is the inner one
  std::size_t outermost = shape.size();
  std::int64_t step = 1;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    const std::size_t d = outwards ? shape.size() - 1 - i : i;
    strides[d] = step;
    step = step * shape[d] + gap;
    if (shape[d] > 1) outermost = d;
  }
  if (constexpr std::int64_t past = (std::int64_t{1} << 32) + 4096; p.far && spread && outermost < shape.size())
    strides[outermost] = (past / (shape[outermost] - 1) + unit) / unit * unit;
  extent = 1;
  for (std::size_t d = 0; d < shape.size(); ++d) extent = shape[d] == 0 || extent == 0 ? 0 : extent + (shape[d] - 1) * strides[d];
  return strides;
}

// Of a far tensor: f(first, last) for the elements beside its outermost slices, canaries in front and behind included, counted from its first.
template <class F>
void each_neighbourhood(const PlacedTensor& x, F f) {
  const auto w = static_cast<std::int64_t>(size_of(x.dtype)), line = static_cast<std::int64_t>(kLine) / w, total = static_cast<std::int64_t>(x.bytes) / w;
  const auto outermost = static_cast<std::size_t>(std::max_element(x.strides.begin(), x.strides.end()) - x.strides.begin());
  std::int64_t slice = 1;
  for (std::size_t d = 0; d < x.shape.size(); ++d)
    if (d != outermost) slice += (x.shape[d] - 1) * x.strides[d];
  for (std::int64_t i = 0; i < x.shape[outermost] && total > 0; ++i) {
    const std::int64_t first = i * x.strides[outermost];
    f(first - line, std::min(first + slice + line, total + static_cast<std::int64_t>((x.region + x.region_size - x.begin - x.bytes) / size_of(x.dtype))));
  }
}

// f(i, at): element i of the tensor, in row-major order, sits `at` elements behind the first.
template <class F>
void each_element(const PlacedTensor& x, F f) {
  std::vector<std::int64_t> index(x.shape.size(), 0);
  const std::int64_t count = std::accumulate(x.shape.begin(), x.shape.end(), std::int64_t{1}, std::multiplies<>());
  std::int64_t at = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    f(static_cast<std::size_t>(i), static_cast<std::size_t>(at));
    for (std::size_t d = index.size(); d-- > 0;) {
      at += x.strides[d];
      if (++index[d] < x.shape[d]) break;
      at -= x.shape[d] * x.strides[d];
      index[d] = 0;
    }
  }
}

// The tensor's elements put together, whatever lies between them.
std::vector<std::byte> gathered(const PlacedTensor& x, const std::byte* data) {
  const std::size_t w = size_of(x.dtype);
  if (dense(x)) return {data, data + x.bytes};
  std::vector<std::byte> all(w * static_cast<std::size_t>(std::accumulate(x.shape.begin(), x.shape.end(), std::int64_t{1}, std::multiplies<>())));
  each_element(x, [&](std::size_t i, std::size_t at) { std::memcpy(all.data() + i * w, data + at * w, w); });
  return all;
}

// Elements between the rows of a strided tensor that no longer hold the pattern.
std::size_t damaged_gaps(const PlacedTensor& x, const std::byte* data) {
  if (dense(x)) return 0;
  const std::size_t w = size_of(x.dtype);
  if (x.far) {
    std::vector<std::size_t> owned;
    each_element(x, [&](std::size_t, std::size_t at) { owned.push_back(at); });
    std::sort(owned.begin(), owned.end());
    std::size_t count = 0;
    each_neighbourhood(x, [&](std::int64_t from, std::int64_t to) {
      const std::byte* at = nullptr;
      for (std::int64_t i = from; i < to; ++i)
        if (i < 0 || !std::binary_search(owned.begin(), owned.end(), static_cast<std::size_t>(i)))
          count += damaged(data + i * static_cast<std::int64_t>(w), data + (i + 1) * static_cast<std::int64_t>(w), x.dtype, 0, &at) > 0;
    });
    return count;
  }
  std::vector<bool> owned(x.bytes / w, false);
  each_element(x, [&](std::size_t, std::size_t at) { owned[at] = true; });
  std::size_t count = 0;
  const std::byte* first = nullptr;
  for (std::size_t i = 0; i < owned.size(); ++i)
    if (!owned[i]) count += damaged(data + i * w, data + (i + 1) * w, x.dtype, 0, &first) > 0;
  return count;
}

}  // namespace

std::uint64_t poison_bits(DType t) {
  switch (t) {
    case DType::f64: return 0x7ff4a5a5a5a5a5a5u;   // signalling: quiet bit clear, mantissa not zero
    case DType::f32: return 0x7fa5a5a5u;
    case DType::f16: return 0x7da5u;
    case DType::bf16: return 0x7fa5u;
    case DType::e4m3: return 0xffu;                // its only NaN with this sign
    case DType::e5m2: return 0xfdu;
    case DType::i32: return 0xa5a5a5a5u;
    case DType::i64: return 0xa5a5a5a5a5a5a5a5u;
  }
  return 0;
}

std::int32_t role_of(std::string_view name) {
  for (const auto& [text, role] : kRoles)
    if (name == text) return role;
  return -1;
}

gdn_dtype dl_dtype(DType t) {
  constexpr std::uint8_t codes[] = {GDN_CODE_FLOAT, GDN_CODE_FLOAT, GDN_CODE_FLOAT, GDN_CODE_BFLOAT, GDN_CODE_FLOAT8_E4M3FN,
                                    GDN_CODE_FLOAT8_E5M2, GDN_CODE_INT, GDN_CODE_INT};
  return {codes[static_cast<int>(t)], static_cast<std::uint8_t>(8 * size_of(t)), 1};
}

DType from_dl(gdn_dtype d) {
  for (int i = 0; i < 8; ++i) {
    const gdn_dtype t = dl_dtype(static_cast<DType>(i));
    if (t.code == d.code && t.bits == d.bits && d.lanes == 1) return static_cast<DType>(i);
  }
  throw std::invalid_argument("dtype code " + std::to_string(d.code) + " with " + std::to_string(d.bits) + " bits and " +
                              std::to_string(d.lanes) + " lanes");
}

CallImage make_image(const Convention& convention, const Run& run, const TensorSet& inputs, const TensorSet& outputs,
                     int alignment, std::size_t page) {
  const Problem& p = run.problem;
  CallImage image;
  gdn_problem& g = image.problem;
  g.struct_size = sizeof g;
  g.operation = static_cast<std::int32_t>(p.operation);
  g.rule = static_cast<std::int32_t>(p.rule);
  g.N = p.sequences();
  g.T = p.tokens() + p.padding;
  g.H = kernel_heads(convention, p);
  g.HV = p.value_heads;
  g.K = p.key_dim;
  g.V = p.value_dim;
  g.max_length = *std::max_element(p.lengths.begin(), p.lengths.end());
  g.scale = kernel_scale(convention, run);
  g.chunk = static_cast<std::int32_t>(p.chunk);
  g.stage = static_cast<std::int32_t>(p.stage);
  g.l2norm = static_cast<std::int32_t>(p.l2);
  g.hidden = p.hidden;
  g.conv = p.conv;
  g.initial_state = inputs.count("h0") ? 1 : 0;
  g.final_state = outputs.count("ht") ? 1 : 0;
  g.io = dl_dtype(p.io);
  const auto dtype_of = [&](const char* name, DType otherwise) {
    const auto t = inputs.find(name);
    return dl_dtype(t == inputs.end() ? otherwise : t->second.dtype);
  };
  g.gate = dtype_of(p.raw ? "a" : "g", p.gate);
  g.beta = dtype_of("beta", p.beta);
  g.state = dl_dtype(p.state);

  image.threads = run.threads;
  const auto place = [&](const std::string& name, const Tensor& t, const std::string& output) {
    PlacedTensor x;
    const bool writable = !output.empty();
    x.name = name;
    x.output = output;
    x.role = role_of(name);
    if (x.role < 0) throw std::invalid_argument("tensor '" + name + "' has no role in the kernel interface");
    x.writable = writable;
    x.dtype = t.dtype;
    x.shape = t.shape;
    const std::size_t w = size_of(x.dtype), a = std::max(static_cast<std::size_t>(alignment), w);
    std::int64_t extent = 0;
    x.strides = strides_of(x.shape, p, x.role, a >= 16 ? 8 : static_cast<std::int64_t>(a / w), extent);
    x.far = p.far && extent > std::int64_t{1} << 32;
    x.byte_offset = p.strided ? a : 0;
    x.bytes = static_cast<std::size_t>(extent) * w;
    x.region = image.size;
    x.region_size = round_up(x.bytes + 2 * a + kLine, page);
    x.begin = x.region + (x.region_size - x.bytes) / a * a;
    if ((p.strided || run.least_aligned) && x.begin / a % 2 == 0) x.begin -= a;
    image.size += x.region_size;
    image.tensors.push_back(std::move(x));
  };
  const auto in_place = [&](const std::string& name) -> std::string {
    if (p.pool() && name == "h0") return "ht";
    return outputs.count(name) ? name : "";
  };
  for (const auto& [name, t] : inputs) place(name, t, in_place(name));
  for (const auto& [name, t] : outputs)
    if (!inputs.count(name) && !(p.pool() && name == "ht")) place(name, t, name);
  return image;
}

bool CallImage::sparse() const {
  return std::any_of(tensors.begin(), tensors.end(), [](const PlacedTensor& x) { return x.far; });
}

void fill_image(const CallImage& image, const TensorSet& inputs, std::byte* arena) {
  for (const PlacedTensor& x : image.tensors) {
    std::byte* const data = arena + x.begin;
    const auto given = inputs.find(x.name);
    if (x.far) {
      const auto w = static_cast<std::int64_t>(size_of(x.dtype));
      each_neighbourhood(x, [&](std::int64_t from, std::int64_t to) { fill_pattern(data + from * w, data + to * w, x.dtype, 0); });
    } else {
      fill_pattern(arena + x.region, data, x.dtype, static_cast<std::ptrdiff_t>(x.region) - static_cast<std::ptrdiff_t>(x.begin));
      fill_pattern(data + x.bytes, arena + x.region + x.region_size, x.dtype, static_cast<std::ptrdiff_t>(x.bytes));
      if (given == inputs.end() || !dense(x)) fill_pattern(data, data + x.bytes, x.dtype, 0);
    }
    if (given == inputs.end() || x.bytes == 0) continue;
    const std::byte* const from = given->second.data.data();
    const std::size_t w = size_of(x.dtype);
    if (dense(x)) std::memcpy(data, from, x.bytes);
    else each_element(x, [&](std::size_t i, std::size_t at) { std::memcpy(data + at * w, from + i * w, w); });
  }
}

TensorSet collect_image(const CallImage& image, const TensorSet& inputs, const std::byte* arena,
                        std::vector<std::string>& violations) {
  TensorSet outputs;
  for (const PlacedTensor& x : image.tensors) {
    const std::byte* const data = arena + x.begin;
    const std::byte* at = nullptr;
    const bool whole = !x.far;                     // of a far tensor damaged_gaps sees what there is to see
    if (const std::size_t n = !whole ? 0 : damaged(arena + x.region, data, x.dtype,
                                      static_cast<std::ptrdiff_t>(x.region) - static_cast<std::ptrdiff_t>(x.begin), &at))
      violations.push_back("wrote " + std::to_string(n) + " bytes before the start of " + x.name + ", first " +
                           std::to_string(data - at) + " bytes before it");
    if (const std::size_t n = !whole ? 0 : damaged(data + x.bytes, arena + x.region + x.region_size, x.dtype, static_cast<std::ptrdiff_t>(x.bytes), &at))
      violations.push_back("wrote " + std::to_string(n) + " bytes past the end of " + x.name + ", first at byte " +
                           std::to_string(at - (data + x.bytes)) + " past it");
    if (const std::size_t n = damaged_gaps(x, data))
      violations.push_back("wrote " + std::to_string(n) + " elements between the rows of " + x.name);
    if (x.writable) {
      Tensor t(x.dtype, x.shape);
      if (x.bytes) t.data = gathered(x, data);
      outputs.emplace(x.output, std::move(t));
    } else if (x.bytes) {
      const Tensor& given = inputs.find(x.name)->second;
      const std::vector<std::byte> held = gathered(x, data);
      const auto [mine, now] = std::mismatch(given.data.begin(), given.data.end(), held.begin());
      if (mine != given.data.end())
        violations.push_back("input " + x.name + " changed at element " +
                             index_text(x.shape, (mine - given.data.begin()) / static_cast<std::ptrdiff_t>(size_of(x.dtype))));
    }
  }
  return outputs;
}

BoundCall::BoundCall(const CallImage& image, std::span<std::byte* const> data, std::int32_t device_type) {
  std::size_t dims = 0;
  for (const PlacedTensor& x : image.tensors) dims += x.shape.size();
  numbers_.resize(2 * dims);
  std::int64_t* next = numbers_.data();
  for (std::size_t i = 0; i < image.tensors.size(); ++i) {
    const PlacedTensor& x = image.tensors[i];
    const std::size_t n = x.shape.size();
    gdn_tensor t{};
    t.struct_size = sizeof t;
    t.role = x.role;
    t.writable = x.writable;
    t.t.data = data[i] - x.byte_offset;
    t.t.byte_offset = x.byte_offset;
    t.t.device = {device_type, 0};
    t.t.ndim = static_cast<std::int32_t>(n);
    t.t.dtype = dl_dtype(x.dtype);
    t.t.shape = next;
    t.t.strides = next + n;
    std::copy(x.shape.begin(), x.shape.end(), t.t.shape);
    std::copy(x.strides.begin(), x.strides.end(), t.t.strides);
    next += 2 * n;
    tensors_.push_back(t);
  }
  call_.struct_size = sizeof call_;
  call_.problem = &image.problem;
  call_.tensors = tensors_.data();
  call_.num_tensors = static_cast<std::int32_t>(tensors_.size());
}

namespace {

// The plan of the call before: kept for calls of the same problem, as models keep theirs, because stale workspaces show
// from the second run of a plan on. One per thread; destroyed before the next plan is made.
struct KeptPlan {
  const gdn_kernel* kernel = nullptr;
  gdn_problem problem{};
  void* plan = nullptr;
  int threads = 0;                                 // of the call that it was made for
  bool is_for(const gdn_kernel& k, const CallImage& i) const { return kernel == &k && threads == i.threads && std::memcmp(&problem, &i.problem, sizeof problem) == 0; }
  void drop() {
    if (const gdn_kernel* k = std::exchange(kernel, nullptr)) k->destroy(plan);
  }
  ~KeptPlan() {
    try {
      drop();
    } catch (...) {                                // of no call any more
    }
  }
};
thread_local KeptPlan kept;

}  // namespace

Invocation invoke(const gdn_kernel& kernel, const CallImage& image, std::span<std::byte* const> data) {
  Invocation result;
  char message[1024] = "";
  const auto finish = [&](int status, const char* where) {
    if (status == GDN_OK) return true;
    result.outcome = status == GDN_NOT_SUPPORTED ? Outcome::not_supported : Outcome::error;
    message[sizeof message - 1] = 0;
    result.message = message;
    for (char& c : result.message)
      if (static_cast<unsigned char>(c) < ' ') c = ' ';
    if (result.message.empty()) result.message = std::string(where) + " returned " + std::to_string(status) + " without a message";
    return false;
  };
  try {
    const Threads threads(image.threads);
    if (!kept.is_for(kernel, image)) {
      kept.drop();
      void* plan = nullptr;
      kept.problem = image.problem;                // what the plan may point to lives as long as it
      if (!finish(kernel.create(&kept.problem, &plan, message, sizeof message), "create")) return result;
      kept.plan = plan;
      kept.threads = image.threads;
      kept.kernel = &kernel;
    }
    const BoundCall call(image, data, static_cast<std::int32_t>(kernel.device));
    const auto start = std::chrono::steady_clock::now();
    const int status = kernel.run(kept.plan, call.get(), message, sizeof message);
    result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (!finish(status, "run")) kept.drop();
  } catch (const std::bad_alloc&) {
    result.outcome = Outcome::error;
    result.message = "out of memory (std::bad_alloc)";
  } catch (const std::exception& e) {
    result.outcome = Outcome::error;
    result.message = std::string("C++ exception: ") + e.what();
  } catch (...) {
    result.outcome = Outcome::error;
    result.message = "C++ exception of unknown type";
  }
  return result;
}

std::string index_text(const std::vector<std::int64_t>& shape, std::int64_t i) {
  std::vector<std::int64_t> index(shape.size());
  for (std::size_t d = shape.size(); d-- > 0;) {
    index[d] = shape[d] ? i % shape[d] : 0;
    if (shape[d]) i /= shape[d];
  }
  return shape_text(index);
}

}  // namespace gdn
