#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "loader/data_file.h"

namespace graphsink {

// A regular file in a tar file, and the place of its bytes; or a link, hard or symbolic, which has none.
struct TarEntry {
  std::string name;
  bool is_link = false;
  std::uint64_t begin = 0, size = 0;
};

// The regular files and links of an uncompressed tar file, in their order. Throws Error for what is none, is damaged or
// truncated, or has files with holes.
std::vector<TarEntry> read_tar_index(const DataFile& file);

}  // namespace graphsink
