// Reading training data: IDX files (MNIST) and text. Files are untrusted: every header is checked against the size.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "graphsink/error.h"
#include "graphsink/tensor.h"
#include "graphsink/version.h"

namespace GRAPHSINK_PUBLIC graphsink {

// An IDX file of unsigned bytes (http://yann.lecun.com/exdb/mnist/: magic 0x000008RR, RR dimensions, big-endian
// sizes), gzipped or not.
struct IdxFile {
  Shape shape;                      // sizes that the header gives
  std::vector<std::uint8_t> bytes;  // row-major
};
inline constexpr std::size_t kMostIdxBytes = std::size_t{1} << 30;  // limit of read_idx(), unless another is given
// Throws Error naming the file for one that cannot be opened, is truncated, damaged, too long, empty, of another
// element type, or of more than `maximum` elements. Memory follows the data that is there, not the sizes that the
// header claims; but a small gzipped file may hold a thousand times its size.
IdxFile read_idx(const std::filesystem::path& path, std::size_t maximum = kMostIdxBytes,
                 Where where = Where::current());

// Images as f32 [n, rows * columns] in [0, 1] and their labels i32 [n].
struct Digits {
  Tensor images;       // f32 [n, rows * columns], from 0 to 1
  Tensor labels;       // i32 [n], from 0 to 9
  std::string source;  // "t10k-images-idx3-ubyte.gz", or "seeded digits"
};
// Reads t10k-images-idx3-ubyte and t10k-labels-idx1-ubyte in `directory`, or the same with .gz. Throws Error naming the
// file if one is missing or bad, if their counts differ, or for a label above 9.
Digits read_digits(const std::filesystem::path& directory, Where where = Where::current());
// `count` made-up 28 x 28 digits that a small network can learn: seven-segment figures, shifted, with noise. For
// machines without the real ones. The same seed gives the same bits, and fewer digits are the first of more. Throws
// Error unless 1 <= count <= 1,000,000.
Digits seeded_digits(std::int64_t count, std::uint64_t seed);

// A text and the vocabulary of the bytes in it.
struct Text {
  std::vector<std::int32_t> tokens;  // indices into `vocabulary`
  std::string vocabulary;            // the distinct bytes, sorted
  std::string source;                // the file's name

  // Throws Error for a token outside the vocabulary.
  std::string decode(const std::vector<std::int32_t>& tokens) const;
};
inline constexpr std::size_t kMostTextBytes = std::size_t{1} << 28;  // limit of read_text(), unless another is given
// Reads a file, gzipped or not; takes up to about 6 bytes of memory for each of the text. Throws Error naming the file
// if it cannot be read, or if the text, unpacked, has fewer than `minimum` or more than `maximum` bytes.
Text read_text(const std::filesystem::path& path, std::size_t minimum = 256, std::size_t maximum = kMostTextBytes,
               Where where = Where::current());

// The CRC-32 of bytes (that of zlib and gzip) as 8 hex digits. It tells data or results apart that differ by accident;
// it is no protection against forgery.
std::string checksum(const void* data, std::size_t bytes);

}  // namespace graphsink
