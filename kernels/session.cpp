// Sessions that call a gdn_kernel: declarations, conventions, and the inline session; see session.h.
#include "kernels/session.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <new>
#include <stdexcept>

#include "kernels/contract_file.h"
#include "kernels/registry.h"
#include "kernels/schedule.h"
#include "kernels/session_common.h"
#include "reference/parallel.h"

namespace gdn {
namespace {

constexpr std::size_t kPage = 4096;

// Behind the last tensor lies the page that a child process guards; here a pattern has to do.
constexpr std::byte kBehind{0x5a};
void check_behind(const CallImage& image, const std::byte* arena, std::vector<std::string>& violations) {
  const std::byte *const end = arena + image.size, *const last = end + kPage;
  const std::byte* const changed = std::find_if(end, last, [](std::byte b) { return b != kBehind; });
  if (changed < last)
    violations.push_back("wrote past the end of " + (image.tensors.empty() ? std::string("nothing") : image.tensors.back().name) +
                         ", first at byte " + std::to_string(changed - end) + " past its memory");
}

// Memory of one call; that of a sparse image is reserved only, and what is not touched takes no room.
struct Arena {
  Arena(std::size_t n, bool is_sparse) : size(n), sparse(is_sparse) {
    if (!sparse) {
      bytes = static_cast<std::byte*>(::operator new(n, std::align_val_t{kPage}));
      return;
    }
    void* const at = mmap(nullptr, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at != MAP_FAILED) bytes = static_cast<std::byte*>(at);
  }
  ~Arena() {
    if (!sparse) ::operator delete(bytes, std::align_val_t{kPage});
    else if (bytes) munmap(bytes, size);
  }
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  std::size_t size;
  bool sparse;
  std::byte* bytes = nullptr;
};

class InlineSession : public KernelSession {
 public:
  InlineSession(const gdn_kernel* kernel, const SessionOptions& o) : kernel_(kernel), options_(o), info_(read_declarations(*kernel)) {
    info_.how = "--kernel " + info_.name;
    if (o.alignment) info_.capabilities.alignment = o.alignment;
  }
  const KernelInfo& info() const override { return info_; }

  Execution run(const Run& run, const std::string&) override {
    const Threads threads(options_.threads);
    return run_in_convention(info_, run, kPage, [&](const CallImage& image, const TensorSet& inputs) {
      const Arena arena(image.size + kPage, image.sparse());
      if (!arena.bytes) {
        Execution e;
        e.outcome = Outcome::error;
        e.message = "not enough address space for the tensors of this case";
        return e;
      }
      std::fill_n(arena.bytes + image.size, kPage, kBehind);
      fill_image(image, inputs, arena.bytes);
      std::vector<std::byte*> data;
      for (const PlacedTensor& t : image.tensors) data.push_back(arena.bytes + t.begin);
      const Invocation result = invoke(*kernel_, image, data);
      Execution e;
      e.outcome = result.outcome;
      e.message = result.message;
      e.seconds = result.seconds;
      e.outputs = collect_image(image, inputs, arena.bytes, e.violations);
      check_behind(image, arena.bytes, e.violations);
      if (e.outcome != Outcome::ok) e.outputs.clear();
      return e;
    });
  }

 private:
  const gdn_kernel* kernel_;
  SessionOptions options_;
  KernelInfo info_;
};

}  // namespace

std::string unusable_reason(const gdn_kernel* k) {
  if (!k) return "no such kernel";
  if (k->abi_version != GDN_ABI_VERSION)
    return "made for version " + std::to_string(k->abi_version) + " of the kernel interface, this is version " + std::to_string(GDN_ABI_VERSION);
  if (k->struct_size < sizeof(gdn_kernel))
    return "its gdn_kernel has " + std::to_string(k->struct_size) + " bytes, needed are " + std::to_string(sizeof(gdn_kernel));
  if (!k->name || !*k->name) return "it has no name";
  if (!k->create || !k->run || !k->destroy) return "create, run or destroy is missing";
  if (k->device != GDN_DEVICE_CPU && k->device != GDN_DEVICE_CUDA) return "unknown device type " + std::to_string(k->device);
  return "";
}

KernelInfo read_declarations(const std::string& name, const std::string& description, const std::string& version, bool cuda,
                             const std::string& convention, const std::string& contract, const std::string& capabilities,
                             const std::string& properties) {
  KernelInfo info;
  info.name = name;
  info.description = description;
  info.version = version;
  info.device = cuda ? "cuda" : "cpu";
  try {
    info.convention = parse_convention(convention);
    info.contract = read_contract(contract);
    info.capabilities = parse_capabilities(capabilities);
    info.properties = parse_properties(properties);
  } catch (const std::invalid_argument& e) {
    throw std::invalid_argument("kernel '" + name + "': " + e.what());
  }
  return info;
}

KernelInfo read_declarations(const gdn_kernel& k) {
  if (const std::string why = unusable_reason(&k); !why.empty()) throw std::invalid_argument("kernel: " + why);
  const auto text = [](const char* s) { return std::string(s ? s : ""); };
  return read_declarations(k.name, text(k.description), text(k.version), k.device == GDN_DEVICE_CUDA, text(k.convention),
                           text(k.contract), text(k.capabilities), text(k.properties));
}

Execution run_in_convention(const KernelInfo& info, const Run& run, std::size_t page, const CallFunction& call) {
  Execution e;
  const auto refuse = [&](const std::string& why) {
    e.outcome = Outcome::not_supported;
    e.message = why;
    return e;
  };
  if (const std::string why = unsupported_reason(info.capabilities, info.contract, run); !why.empty()) return refuse(why);
  if (run.problem.far && info.device != "cpu") return refuse("element offsets past 2^32: there is no sparse memory on a device");
  if (info.convention.layout == TensorLayout::THD && !info.capabilities.varlen && run.problem.sequences() > 1 && !run.problem.pool())
    return refuse("several sequences, and varlen not declared for layout=THD");
  return run_schedule(run, [&](const Run& whole) {
    // A kernel that always returns a final state gets room for it, and nobody reads it.
    const bool extra_state = whole.problem.operation != Operation::stages && !whole.problem.final_state && info.capabilities.ht && !info.capabilities.noht;
    Run one = whole;
    if (extra_state) one.problem.final_state = true;
    Execution result;
    try {
      const TensorSet inputs = to_kernel(info.convention, one);
      const TensorSet outputs = output_shapes(info.convention, one);
      const CallImage image = make_image(info.convention, one, inputs, outputs, info.capabilities.alignment, page);
      result = call(image, inputs);
    } catch (const std::invalid_argument& why) {
      result.outcome = Outcome::not_supported;
      result.message = why.what();
    }
    if (result.outcome != Outcome::ok) return result;
    result.outputs = from_kernel(info.convention, one, std::move(result.outputs));
    if (extra_state) result.outputs.erase("ht");
    return result;
  });
}

std::unique_ptr<KernelSession> open_inline(const std::string& name, const SessionOptions& o) {
  const gdn_kernel* kernel = find_builtin(name);
  if (!kernel) throw std::invalid_argument(no_builtin(name));
  return std::make_unique<InlineSession>(kernel, o);
}

}  // namespace gdn
