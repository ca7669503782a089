// SHA-256 through libcrypto; see sha256.h.
#include "golden/sha256.h"

#include <openssl/evp.h>

#include <stdexcept>

namespace gdn {

Sha256::Sha256() : context_(EVP_MD_CTX_new()) {
  if (!context_ || !EVP_DigestInit_ex(static_cast<EVP_MD_CTX*>(context_), EVP_sha256(), nullptr)) {
    EVP_MD_CTX_free(static_cast<EVP_MD_CTX*>(context_));
    throw std::runtime_error("libcrypto has no SHA-256");
  }
}

Sha256::~Sha256() { EVP_MD_CTX_free(static_cast<EVP_MD_CTX*>(context_)); }

void Sha256::add(const void* data, std::size_t bytes) {
  if (bytes && !EVP_DigestUpdate(static_cast<EVP_MD_CTX*>(context_), data, bytes)) throw std::runtime_error("libcrypto: SHA-256 failed");
}

std::string Sha256::hex() {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int n = 0;
  if (!EVP_DigestFinal_ex(static_cast<EVP_MD_CTX*>(context_), digest, &n)) throw std::runtime_error("libcrypto: SHA-256 failed");
  constexpr char digits[] = "0123456789abcdef";
  std::string text;
  for (unsigned int i = 0; i < n; ++i) {
    text += digits[digest[i] >> 4];
    text += digits[digest[i] & 15];
  }
  return text;
}

std::string sha256_hex(const void* data, std::size_t bytes) {
  Sha256 h;
  h.add(data, bytes);
  return h.hex();
}

}  // namespace gdn
