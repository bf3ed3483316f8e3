// The header of a safetensors file: a little-endian 64-bit size, that number of bytes of JSON, then the data.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "graphsink/checkpoint.h"

namespace graphsink {

constexpr std::uint64_t kMaxHeader = 100'000'000;  // of the reference implementation

struct TensorEntry {
  std::string name;
  TensorType type;
  std::uint64_t begin = 0;  // in the data
};

struct SafetensorsHeader {
  std::vector<TensorEntry> entries;  // in the order of their data
  std::map<std::string, std::string, std::less<>> metadata;
};

// Checks everything against `data_bytes`, the bytes after the header. Throws Error(file, where, ...).
SafetensorsHeader parse_header(std::string_view json, std::uint64_t data_bytes, const std::string& file, Where where);

// The header of a checkpoint, its size included, and the order of its tensors' data: the larger dtypes first, so that
// all are aligned, then by name.
struct FileLayout {
  std::string header;
  std::vector<const Tensor*> tensors;
};
FileLayout lay_out(const Checkpoint& checkpoint, const std::string& file, Where where);

}  // namespace graphsink
