#include <zlib.h>

#include <array>
#include <cstdio>

#include "graphsink/loader.h"

namespace graphsink {

std::string checksum(const void* data, std::size_t bytes) {
  std::array<char, 9> text;
  std::snprintf(text.data(), text.size(), "%08lx", crc32_z(0, static_cast<const Bytef*>(data), bytes));
  return text.data();
}

}  // namespace graphsink
