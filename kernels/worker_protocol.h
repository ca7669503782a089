// What the parent and the worker say to each other: one packet per message on a SOCK_SEQPACKET pair, tensors in a
// memory file that travels with the request. Both ends are the same program, so plain bytes will do.
#pragma once
#include <cstring>
#include <stdexcept>
#include <string>
#include <string_view>

#include "kernels/call_image.h"

namespace gdn::protocol {

enum class Kind : std::uint8_t { hello = 1, refused, request, result, fault };
constexpr std::size_t kMaxPacket = 65536;
constexpr std::size_t kGuard = std::size_t{1} << 20;  // bytes without access before and behind every tensor

class Writer {
 public:
  explicit Writer(Kind k) { put(k); }
  template <class T>
  void put(const T& x) {
    static_assert(std::is_trivially_copyable_v<T>);
    bytes.append(reinterpret_cast<const char*>(&x), sizeof x);
  }
  void text(const std::string& s) {
    put(static_cast<std::uint32_t>(s.size()));
    bytes += s;
  }
  std::string bytes;
};

class Reader {                                     // of a message that outlives it
 public:
  explicit Reader(std::string_view s) : bytes_(s) {}
  template <class T>
  T get() {
    T x{};
    need(sizeof x);
    std::memcpy(&x, bytes_.data() + at_, sizeof x);
    at_ += sizeof x;
    return x;
  }
  std::string text() {
    const auto n = get<std::uint32_t>();
    need(n);
    at_ += n;
    return std::string(bytes_.substr(at_ - n, n));
  }

 private:
  void need(std::size_t n) const {
    if (bytes_.size() - at_ < n) throw std::runtime_error("a message from the worker is cut short");
  }
  std::string_view bytes_;
  std::size_t at_ = 0;
};

inline std::string write_image(const CallImage& image) {
  Writer w(Kind::request);
  w.put(image.problem);
  w.put(image.size);
  w.put(image.threads);
  w.put(static_cast<std::uint32_t>(image.tensors.size()));
  for (const PlacedTensor& t : image.tensors) {
    w.text(t.name);
    w.put(t.role);
    w.put(t.writable);
    w.put(t.dtype);
    w.put(static_cast<std::uint32_t>(t.shape.size()));
    for (std::int64_t d : t.shape) w.put(d);
    for (std::int64_t s : t.strides) w.put(s);
    w.put(t.far);
    w.put(t.byte_offset);
    w.put(t.region);
    w.put(t.region_size);
    w.put(t.begin);
    w.put(t.bytes);
  }
  return w.bytes;
}

inline CallImage read_image(Reader& r) {
  CallImage image;
  image.problem = r.get<gdn_problem>();
  image.size = r.get<std::size_t>();
  image.threads = r.get<int>();
  image.tensors.resize(r.get<std::uint32_t>());
  for (PlacedTensor& t : image.tensors) {
    t.name = r.text();
    t.role = r.get<std::int32_t>();
    t.writable = r.get<bool>();
    t.dtype = r.get<DType>();
    t.shape.resize(r.get<std::uint32_t>());
    for (std::int64_t& d : t.shape) d = r.get<std::int64_t>();
    t.strides.resize(t.shape.size());
    for (std::int64_t& s : t.strides) s = r.get<std::int64_t>();
    t.far = r.get<bool>();
    t.byte_offset = r.get<std::size_t>();
    t.region = r.get<std::size_t>();
    t.region_size = r.get<std::size_t>();
    t.begin = r.get<std::size_t>();
    t.bytes = r.get<std::size_t>();
  }
  return image;
}

}  // namespace gdn::protocol
