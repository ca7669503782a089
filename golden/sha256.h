// SHA-256 (FIPS 180-4) through OpenSSL's libcrypto, for content hashes.
#pragma once
#include <cstddef>
#include <string>
#include <string_view>

namespace gdn {

class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;
  void add(const void* data, std::size_t bytes);
  std::string hex();                               // finishes; call once
 private:
  void* context_;
};
std::string sha256_hex(const void* data, std::size_t bytes);
inline std::string sha256_hex(std::string_view text) { return sha256_hex(text.data(), text.size()); }

}  // namespace gdn
