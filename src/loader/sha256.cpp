#include <openssl/evp.h>

#include <array>

#include "graphsink/loader.h"

namespace graphsink {

std::string sha256(const void* data, std::size_t bytes) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest;
  unsigned length = 0;
  if (EVP_Digest(data, bytes, digest.data(), &length, EVP_sha256(), nullptr) != 1) {
    throw Error("sha256", Where(), "OpenSSL refuses to compute a SHA-256", "check the OpenSSL configuration");
  }
  std::string text;
  for (unsigned i = 0; i < length; ++i) {
    text += "0123456789abcdef"[digest[i] >> 4];
    text += "0123456789abcdef"[digest[i] & 15];
  }
  return text;
}

}  // namespace graphsink
