// The child's side of an isolated session; see worker.h.
#include "kernels/worker.h"

#include <dirent.h>
#include <dlfcn.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "kernels/device.h"
#include "kernels/registry.h"
#include "kernels/session_common.h"
#include "kernels/worker_protocol.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define GDN_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define GDN_SANITIZED 1
#endif
#endif

namespace gdn {
namespace {

using protocol::Kind;

// ---- what the signal handler needs: plain data only ----
struct Watched {
  std::uintptr_t reserved, reserved_end, begin, end;  // with guards; the data
  std::int64_t shape[8];
  int dims;
  std::size_t element;
  bool writable;
  char name[24];
};
Watched watched[64];
volatile sig_atomic_t watched_count = 0;
int socket_fd = -1;

struct Line {                                      // text without the heap
  char text[400];
  std::size_t size = 0;
  void add(const char* s) {
    while (*s && size + 1 < sizeof text) text[size++] = *s++;
  }
  void add(std::uint64_t x, unsigned base = 10) {
    char digits[24];
    int n = 0;
    do digits[n++] = "0123456789abcdef"[x % base];
    while (x /= base);
    while (n > 0 && size + 1 < sizeof text) text[size++] = digits[--n];
  }
};

bool is_write([[maybe_unused]] const void* context, bool& known) {
#if defined(__x86_64__) && defined(__linux__)
  known = true;                                    // bit 1 of the page fault error code
  return (static_cast<const ucontext_t*>(context)->uc_mcontext.gregs[REG_ERR] & 2) != 0;
#else
  known = false;
  return false;
#endif
}

void describe(Line& line, std::uintptr_t at, const void* context) {
  bool known = false;
  const bool write = is_write(context, known);
  const char* verb = !known ? "accessed" : write ? "wrote" : "read";
  for (int i = 0; i < watched_count; ++i) {
    const Watched& w = watched[i];
    if (at < w.reserved || at >= w.reserved_end) continue;
    if (at >= w.end) {
      line.add(verb);
      line.add(" past the end of ");
      line.add(w.name);
      line.add(", at byte ");
      line.add(at - w.end);
      line.add(" past it");
    } else if (at < w.begin) {
      line.add(verb);
      line.add(" ");
      line.add(w.begin - at);
      line.add(" bytes before the start of ");
      line.add(w.name);
    } else {
      line.add(w.writable ? "fault in " : "wrote to input ");
      line.add(w.name);
      line.add(" at element [");
      std::uint64_t index = (at - w.begin) / w.element, below = 1;
      for (int d = 0; d < w.dims; ++d) below *= static_cast<std::uint64_t>(w.shape[d]);
      for (int d = 0; d < w.dims; ++d) {
        below /= static_cast<std::uint64_t>(w.shape[d]);
        if (d) line.add(",");
        line.add(index / below);
        index %= below;
      }
      line.add("]");
    }
    return;
  }
  line.add(at < 65536 ? "null pointer, address 0x" : "at an address outside every tensor, 0x");
  line.add(at, 16);
}

void on_fault(int signal, siginfo_t* info, void* context) {
  Line line;
  line.text[line.size++] = static_cast<char>(Kind::fault);
  describe(line, reinterpret_cast<std::uintptr_t>(info->si_addr), context);
  (void)!send(socket_fd, line.text, line.size, MSG_NOSIGNAL);
  ::signal(signal, SIG_DFL);                       // the same access faults again and ends the process,
  if (info->si_code <= 0) raise(signal);           // unless somebody only sent the signal
}

void install_handlers() {
  static std::vector<char> stack(std::size_t{1} << 16);
  stack_t alternative{};
  alternative.ss_sp = stack.data();
  alternative.ss_size = stack.size();
  sigaltstack(&alternative, nullptr);
  struct sigaction action {};
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigemptyset(&action.sa_mask);
  sigaction(SIGSEGV, &action, nullptr);
  sigaction(SIGBUS, &action, nullptr);
}

// ---- kernels ----
const gdn_kernel* from_library(const std::string& library, const std::string& name, std::string& why) {
  void* handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!handle) {
    why = dlerror();
    return nullptr;
  }
  const auto get = reinterpret_cast<gdn_get_kernel_fn>(dlsym(handle, "gdn_get_kernel"));
  if (!get) {
    why = library + " exports no gdn_get_kernel";
    return nullptr;
  }
  std::vector<const gdn_kernel*> kernels;
  for (std::int32_t i = 0; i < 1000; ++i) {
    const gdn_kernel* k = get(i);
    if (!k) break;
    if (why = unusable_reason(k); !why.empty()) {
      why = library + ": kernel " + std::to_string(i) + ": " + why;
      return nullptr;
    }
    kernels.push_back(k);
  }
  std::string names;
  for (const gdn_kernel* k : kernels) {
    if (name == k->name || (name.empty() && kernels.size() == 1)) return k;
    names += (names.empty() ? "" : ", ") + std::string(k->name);
  }
  why = kernels.empty() ? library + " has no kernels"
        : name.empty()  ? library + " has several kernels, name one of them: " + names
                        : library + " has no kernel '" + name + "' (it has: " + names + ")";
  return nullptr;
}

bool say(const std::string& packet) { return send(socket_fd, packet.data(), packet.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(packet.size()); }

std::string hello(const gdn_kernel& k) {
  protocol::Writer w(Kind::hello);
  w.put(k.device);
  for (const char* s : {k.name, k.description, k.version, k.convention, k.contract, k.capabilities, k.properties}) w.text(s ? s : "");
  return w.bytes;
}

// The next packet and the memory file that came with it; empty when the parent hung up.
std::string receive(int& file) {
  std::string packet(protocol::kMaxPacket, 0);
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))];
  iovec part{packet.data(), packet.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  ssize_t n;
  do n = recvmsg(socket_fd, &message, MSG_CMSG_CLOEXEC);
  while (n < 0 && errno == EINTR);
  if (n <= 0) return "";
  packet.resize(static_cast<std::size_t>(n));
  for (cmsghdr* c = CMSG_FIRSTHDR(&message); c; c = CMSG_NXTHDR(&message, c))
    if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS) std::memcpy(&file, CMSG_DATA(c), sizeof file);
  return packet;
}

Invocation failed(std::string why) { return {Outcome::error, std::move(why), 0}; }

void limit_memory([[maybe_unused]] std::uint64_t bytes) {
#ifndef GDN_SANITIZED                              // a sanitizer reserves terabytes
  if (bytes == 0) return;
  rlimit limit{};
  getrlimit(RLIMIT_AS, &limit);
  limit.rlim_cur = std::min<rlim_t>(bytes, limit.rlim_max);
  setrlimit(RLIMIT_AS, &limit);
#endif
}
std::uint64_t memory_limit = 0;                    // bytes of address space; 0: none

struct Mapping {
  void* at;
  std::size_t size;
};
// Addresses of the call before: kept without access, so that a kernel that still uses its pointers is caught at it, whatever it does with
// them: reads old inputs, or writes into outputs that the caller has long taken.
std::vector<Mapping> old_addresses;

// Maps every tensor of the memory file between guards, runs the kernel and takes the mappings away again.
Invocation guarded_call(const gdn_kernel& kernel, const CallImage& image, int file) {
  if (memory_limit) limit_memory(memory_limit + (image.sparse() ? image.size + image.tensors.size() * 2 * protocol::kGuard : 0));
  std::vector<Mapping> mappings;
  std::vector<std::byte*> data;
  Invocation result;
  if (image.tensors.size() > std::size(watched)) return failed("more tensors than the worker can watch");
  for (const PlacedTensor& t : image.tensors) {
    const std::size_t size = t.region_size + 2 * protocol::kGuard;
    void* reserved = mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (reserved == MAP_FAILED) {
      result = failed("out of memory for tensor " + t.name);
      break;
    }
    mappings.push_back({reserved, size});
    std::byte* const region = static_cast<std::byte*>(reserved) + protocol::kGuard;
    const int access = t.writable ? PROT_READ | PROT_WRITE : PROT_READ;
    if (mmap(region, t.region_size, access, MAP_SHARED | MAP_FIXED, file, static_cast<off_t>(t.region)) == MAP_FAILED) {
      result = failed("out of memory for tensor " + t.name);
      break;
    }
    data.push_back(region + (t.begin - t.region));
    Watched& w = watched[data.size() - 1];
    w.reserved = reinterpret_cast<std::uintptr_t>(reserved);
    w.reserved_end = w.reserved + size;
    w.begin = reinterpret_cast<std::uintptr_t>(data.back());
    w.end = w.begin + t.bytes;
    w.dims = static_cast<int>(std::min<std::size_t>(t.shape.size(), std::size(w.shape)));
    std::copy_n(t.shape.begin(), w.dims, w.shape);
    w.element = size_of(t.dtype);
    if (t.byte_offset) {                           // strided: counted from its first element, gaps included
      w.dims = 1;
      w.shape[0] = static_cast<std::int64_t>(t.bytes / w.element);
    }
    w.writable = t.writable;
    w.name[t.name.copy(w.name, sizeof w.name - 1)] = 0;
  }
  if (result.outcome == Outcome::ok) {
    watched_count = static_cast<sig_atomic_t>(data.size());
    result = invoke(kernel, image, data);
    watched_count = 0;
  }
  for (const Mapping& m : old_addresses) munmap(m.at, m.size);
  old_addresses.clear();
  for (const Mapping& m : mappings)
    if (image.sparse() || mmap(m.at, m.size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED) munmap(m.at, m.size);
    else old_addresses.push_back(m);
  return result;
}

Invocation device_call(const gdn_kernel& kernel, const CallImage& image, int file) {
  const DeviceCall device = find_device(kernel.device);
  if (!device) return failed("this build has no support for the device of this kernel");
  void* arena = mmap(nullptr, image.size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (arena == MAP_FAILED) return failed("out of memory for the tensors");
  const Invocation result = device(kernel, image, static_cast<std::byte*>(arena));
  munmap(arena, image.size);
  return result;
}

// Ends this process and those it started when the parent is gone, even while a kernel hangs.
void watch_parent() {
  std::thread([] {
    pollfd p{socket_fd, 0, 0};
    while (poll(&p, 1, -1) < 0 && errno == EINTR) {
    }
    if (getpgrp() == getpid()) kill(0, SIGKILL);
    _exit(1);
  }).detach();
}

// Leaks of file descriptors: more of them open after each of this many calls in succession than after the call before. A kernel
// that opens what it needs once, or once for each kept plan, never does that: one plan lives at a time.
constexpr int kLeakingCalls = 8;

std::size_t open_files() {
  std::size_t n = 0;
  if (DIR* const d = opendir("/proc/self/fd")) {
    while (readdir(d)) ++n;
    closedir(d);
  }
  return n;
}

int serve(const std::string& library, const std::string& name, std::uint64_t memory) {
  for (int fd = 3; fd < 1024; ++fd)                // whatever the parent had open is no business of a kernel
    if (fd != socket_fd) close(fd);
  signal(SIGPIPE, SIG_IGN);
  install_handlers();
  watch_parent();
  std::string why = no_builtin(name);
  const gdn_kernel* kernel = library.empty() ? find_builtin(name) : from_library(library, name, why);
  if (!kernel) {
    protocol::Writer w(Kind::refused);
    w.text(why);
    say(w.bytes);
    return 2;
  }
  if (kernel->device == GDN_DEVICE_CPU) limit_memory(memory_limit = memory);
  if (!say(hello(*kernel))) return 1;
  std::size_t files = 0;
  int growing = 0;
  while (true) {
    int file = -1;
    const std::string packet = receive(file);
    if (packet.empty()) return 0;
    protocol::Reader r(packet);
    if (r.get<Kind>() != Kind::request || file < 0) return 1;
    const CallImage image = protocol::read_image(r);
    Invocation result = kernel->device == GDN_DEVICE_CPU ? guarded_call(*kernel, image, file) : device_call(*kernel, image, file);
    close(file);
    const std::size_t now = open_files();
    growing = now > files && files > 0 ? growing + 1 : 0;
    files = now;
    if (growing >= kLeakingCalls && result.outcome == Outcome::ok)
      result = failed("leaks file descriptors: more are open after each of the last " + std::to_string(growing) + " calls, " + std::to_string(now) + " now");
    protocol::Writer w(Kind::result);
    w.put(result.outcome);
    w.text(result.message);
    w.put(result.seconds);
    if (!say(w.bytes)) return 1;
  }
}

}  // namespace

std::optional<int> run_as_worker(int argc, char** argv) {
  if (argc < 2 || std::string_view(argv[1]) != "worker") return std::nullopt;
  std::string library, name;
  std::uint64_t memory = 0;
  bool understood = argc % 2 == 0;
  for (int i = 2; understood && i < argc; i += 2) {
    const std::string_view option = argv[i];
    if (option == "--fd") socket_fd = std::atoi(argv[i + 1]);
    else if (option == "--kernel") name = argv[i + 1];
    else if (option == "--plugin") library = argv[i + 1];
    else if (option == "--memory") memory = std::strtoull(argv[i + 1], nullptr, 10);
    else understood = false;
  }
  if (!understood || socket_fd < 3) {
    std::fprintf(stderr, "worker: started by the program itself, with a socket and a kernel\n");
    return 2;
  }
  return serve(library, name, memory);
}

}  // namespace gdn
