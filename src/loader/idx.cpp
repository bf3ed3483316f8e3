#include <algorithm>
#include <cstdio>
#include <string_view>
#include <utility>

#include "graphsink/loader.h"
#include "loader/file_reader.h"

namespace graphsink {
namespace {

constexpr std::uint8_t kUnsignedByte = 0x08;
constexpr std::string_view kImages = "t10k-images-idx3-ubyte";
constexpr std::string_view kLabels = "t10k-labels-idx1-ubyte";
constexpr const char* kAgain = "download the file again, or check that it is an IDX file";

std::string hex(const std::vector<std::uint8_t>& bytes) {
  std::string text = "0x";
  char digits[3];
  for (std::uint8_t byte : bytes) {
    std::snprintf(digits, sizeof digits, "%02x", unsigned{byte});
    text += digits;
  }
  return text;
}

int read_rank(FileReader& file) {
  std::vector<std::uint8_t> magic = file.read(4);
  if (magic.size() < 4) {
    file.refuse("is truncated: expected a magic number of 4 bytes, seen " + std::to_string(magic.size()), kAgain);
  }
  if (magic[0] != 0 || magic[1] != 0) {
    file.refuse("is not an IDX file: expected magic number 0x000008RR, seen " + hex(magic), kAgain);
  }
  if (magic[2] != kUnsignedByte) {
    file.refuse("has another element type: expected magic number 0x000008RR (unsigned bytes), seen " + hex(magic),
                "convert the elements to unsigned bytes");
  }
  int rank = magic[3];
  if (rank < 1 || rank > Shape::kMaxRank) {
    file.refuse("expected 1 to " + std::to_string(Shape::kMaxRank) + " dimensions, seen " + std::to_string(rank),
                kAgain);
  }
  return rank;
}

Shape read_shape(FileReader& file, int rank) {
  std::vector<std::uint8_t> sizes = file.read(4 * static_cast<std::uint64_t>(rank));
  if (sizes.size() < 4 * static_cast<std::size_t>(rank)) {
    file.refuse("is truncated: expected " + std::to_string(4 * rank) + " bytes of sizes for " + std::to_string(rank) +
                    " dimensions, seen " + std::to_string(sizes.size()),
                kAgain);
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
    file.refuse("is empty: expected sizes of at least 1, seen " + to_string(shape), kAgain);
  }
  if (overflows) file.refuse("expected fewer than 2^53 elements, seen " + to_string(shape), kAgain);
  return shape;
}

std::filesystem::path find_in(const std::filesystem::path& directory, std::string_view name, Where where) {
  std::filesystem::path plain = directory / name;
  std::filesystem::path gzipped = plain;
  gzipped += ".gz";
  std::error_code ignored;
  if (std::filesystem::exists(plain, ignored)) return plain;
  if (std::filesystem::exists(gzipped, ignored)) return gzipped;
  throw Error(plain.string(), where, "no such file, and none with .gz",
              "get " + std::string(kImages) + ".gz and " + std::string(kLabels) +
                  ".gz from https://ossci-datasets.s3.amazonaws.com/mnist/, or use seeded_digits()",
              ErrorCode::io);
}

IdxFile read_ranked(const std::filesystem::path& path, int rank, const char* what, Where where) {
  IdxFile file = read_idx(path, kMostIdxBytes, where);
  if (file.shape.rank() != rank) {
    throw Error(path.string(), where, std::string("expected ") + what + ", seen " + to_string(file.shape),
                "give an MNIST file", ErrorCode::io);
  }
  return file;
}

}  // namespace

IdxFile read_idx(const std::filesystem::path& path, std::size_t maximum, Where where) {
  FileReader file(path, where);
  IdxFile idx;
  idx.shape = read_shape(file, read_rank(file));
  auto size = static_cast<std::uint64_t>(idx.shape.size());
  const std::uint64_t most = std::min<std::uint64_t>(size, maximum);
  idx.bytes = file.read(most);
  if (idx.bytes.size() < most) {
    file.refuse("is truncated: expected " + std::to_string(size) + " elements for " + to_string(idx.shape) + ", seen " +
                    std::to_string(idx.bytes.size()),
                kAgain);
  }
  if (size > maximum) {
    file.refuse("is too long: expected at most " + std::to_string(maximum) + " elements, seen " + to_string(idx.shape),
                "split the file, or give a larger maximum");
  }
  if (!file.is_at_end()) {
    file.refuse(
        "is too long: expected " + std::to_string(size) + " elements for " + to_string(idx.shape) + ", seen more",
        kAgain);
  }
  return idx;
}

Digits read_digits(const std::filesystem::path& directory, Where where) {
  std::filesystem::path images_path = find_in(directory, kImages, where);
  std::filesystem::path labels_path = find_in(directory, kLabels, where);
  IdxFile images = read_ranked(images_path, 3, "images [n, rows, columns]", where);
  IdxFile labels = read_ranked(labels_path, 1, "labels [n]", where);
  std::int64_t count = images.shape[0];
  if (labels.shape[0] != count) {
    throw Error(labels_path.string(), where,
                "expected " + std::to_string(count) + " labels, one for each image of " + images_path.string() +
                    ", seen " + std::to_string(labels.shape[0]),
                "use the two files of one set", ErrorCode::io);
  }
  for (std::size_t i = 0; i < labels.bytes.size(); ++i) {
    if (labels.bytes[i] > 9) {
      throw Error(labels_path.string(), where,
                  "expected labels 0 to 9, seen " + std::to_string(labels.bytes[i]) + " at " + std::to_string(i),
                  "give the labels of digits", ErrorCode::io);
    }
  }

  Digits digits{Tensor(f32, {count, images.shape[1] * images.shape[2]}), Tensor(i32, {count}),
                images_path.filename().string()};
  std::transform(images.bytes.begin(), images.bytes.end(), digits.images.as<float>().begin(),
                 [](std::uint8_t byte) { return static_cast<float>(byte) / 255.0f; });
  std::copy(labels.bytes.begin(), labels.bytes.end(), digits.labels.as<std::int32_t>().begin());
  return digits;
}

}  // namespace graphsink
