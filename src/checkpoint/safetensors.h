// The header of a safetensors file: a little-endian 64-bit size, that number of bytes of JSON, then the data.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "graphsink/checkpoint.h"

namespace graphsink {

constexpr std::uint64_t kMaxHeader = 100'000'000;  // limit of the reference implementation, in bytes

// Remedy for a file that cannot be read.
constexpr const char* kWriteAgain = "copy the file again, or write it again with write_checkpoint()";

// An element type of the format.
struct FileDType {
  std::string_view name;
  unsigned bits;               // bits of an element
  std::optional<DType> dtype;  // none: tensors of this library cannot have it
};

struct TensorEntry {
  std::string name;
  const FileDType* dtype = nullptr;
  Shape shape;
  std::uint64_t begin = 0, end = 0;  // in the data
};

using Metadata = std::map<std::string, std::string, std::less<>>;
struct SafetensorsHeader {
  std::vector<TensorEntry> entries;  // in the order of their data
  Metadata metadata;
};

// Checks everything against `data_bytes`, the bytes after the header. Takes memory in proportion to the header, and
// time in proportion to n log n. Throws Error(file, where, ...).
SafetensorsHeader parse_header(std::string_view json, std::uint64_t data_bytes, const std::string& file, Where where);

// Throws Error(file, where, ...) for what read_checkpoint() would refuse.
void check_writable(const Checkpoint& checkpoint, const std::string& file, Where where);

// The header of one file, its size included, and the order of its tensors' data: the larger dtypes first, so that all
// are aligned, then by name. Throws Error(file, where, ...) for a header that is too large.
struct FileLayout {
  std::string header;
  std::vector<const Tensor*> tensors;
};
using NamedTensors = std::map<std::string_view, const Tensor*>;  // borrowed
FileLayout lay_out(const NamedTensors& tensors, const Metadata& metadata, const std::string& file, Where where);

// The first element that is neither 0 nor 1, of a tensor of booleans: any other byte in a bool is undefined behaviour.
// None in tensors of other types.
std::optional<std::size_t> find_bad_boolean(const Tensor& tensor);

// `tensor "layers.0.weight"`, for messages; names of files may be long.
std::string tensor_text(std::string_view name);

}  // namespace graphsink
