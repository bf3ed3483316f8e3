#include "loader/idx_header.h"

#include <algorithm>
#include <cstdio>
#include <span>

namespace graphsink {
namespace {

constexpr std::uint8_t kUnsignedByte = 0x08;

std::string hex(const std::vector<std::uint8_t>& bytes) {
  std::string text = "0x";
  char digits[3];
  for (std::uint8_t byte : bytes) {
    std::snprintf(digits, sizeof digits, "%02x", unsigned{byte});
    text += digits;
  }
  return text;
}

int read_rank(const IdxInput& file) {
  std::vector<std::uint8_t> magic = file.read(4);
  if (magic.size() < 4) {
    file.refuse("is truncated: expected a magic number of 4 bytes, seen " + std::to_string(magic.size()), kIdxAgain);
  }
  if (magic[0] != 0 || magic[1] != 0) {
    file.refuse("is not an IDX file: expected magic number 0x000008RR, seen " + hex(magic), kIdxAgain);
  }
  if (magic[2] != kUnsignedByte) {
    file.refuse("has another element type: expected magic number 0x000008RR (unsigned bytes), seen " + hex(magic),
                "convert the elements to unsigned bytes");
  }
  int rank = magic[3];
  if (rank < 1 || rank > Shape::kMaxRank) {
    file.refuse("expected 1 to " + std::to_string(Shape::kMaxRank) + " dimensions, seen " + std::to_string(rank),
                kIdxAgain);
  }
  return rank;
}

Shape read_shape(const IdxInput& file, int rank) {
  std::vector<std::uint8_t> sizes = file.read(4 * static_cast<std::uint64_t>(rank));
  if (sizes.size() < 4 * static_cast<std::size_t>(rank)) {
    file.refuse("is truncated: expected " + std::to_string(4 * rank) + " bytes of sizes for " + std::to_string(rank) +
                    " dimensions, seen " + std::to_string(sizes.size()),
                kIdxAgain);
  }
  constexpr std::int64_t kMostElements = std::int64_t{1} << 53;  // times 8 bytes: what a TensorType can have
  Shape shape;
  std::int64_t elements = 1;
  bool overflows = false;
  for (std::size_t i = 0; i < sizes.size(); i += 4) {
    std::int64_t dim = std::int64_t{sizes[i]} << 24 | sizes[i + 1] << 16 | sizes[i + 2] << 8 | sizes[i + 3];
    shape.push_back(dim);
    overflows = overflows || (dim != 0 && elements > (kMostElements - 1) / dim);
    if (!overflows) elements *= dim;
  }
  std::span<const std::int64_t> dims = shape.dims();
  if (std::find(dims.begin(), dims.end(), 0) != dims.end()) {
    file.refuse("is empty: expected sizes of at least 1, seen " + to_string(shape), kIdxAgain);
  }
  if (overflows) file.refuse("expected fewer than 2^53 elements, seen " + to_string(shape), kIdxAgain);
  return shape;
}

}  // namespace

Shape read_idx_shape(const IdxInput& input) { return read_shape(input, read_rank(input)); }

}  // namespace graphsink
