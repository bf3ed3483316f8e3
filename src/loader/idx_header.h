// The header of an IDX file: a magic number with the rank, then the sizes, big-endian.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "graphsink/type.h"

namespace graphsink {

// How the header is read, whichever way the file is: `read` returns the next bytes, fewer at the end of the file, and
// `refuse` throws Error.
struct IdxInput {
  std::function<std::vector<std::uint8_t>(std::uint64_t count)> read;
  std::function<void(const std::string& problem, const std::string& remedy)> refuse;
};
constexpr const char* kIdxAgain = "download the file again, or check that it is an IDX file";

// Bytes of a header of this rank.
constexpr std::uint64_t idx_header_bytes(int rank) { return 4 + 4 * static_cast<std::uint64_t>(rank); }
// Throws Error for a header that is cut off, of another element type, without elements or with 2^53 and more.
Shape read_idx_shape(const IdxInput& input);

}  // namespace graphsink
