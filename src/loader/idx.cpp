#include <algorithm>
#include <string_view>
#include <utility>

#include "graphsink/loader.h"
#include "loader/file_reader.h"
#include "loader/idx_header.h"

namespace graphsink {
namespace {

constexpr std::string_view kImages = "t10k-images-idx3-ubyte";
constexpr std::string_view kLabels = "t10k-labels-idx1-ubyte";

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
  idx.shape =
      read_idx_shape({[&](std::uint64_t count) { return file.read(count); },
                      [&](const std::string& problem, const std::string& remedy) { file.refuse(problem, remedy); }});
  auto size = static_cast<std::uint64_t>(idx.shape.size());
  const std::uint64_t most = std::min<std::uint64_t>(size, maximum);
  idx.bytes = file.read(most);
  if (idx.bytes.size() < most) {
    file.refuse("is truncated: expected " + std::to_string(size) + " elements for " + to_string(idx.shape) + ", seen " +
                    std::to_string(idx.bytes.size()),
                kIdxAgain);
  }
  if (size > maximum) {
    file.refuse("is too long: expected at most " + std::to_string(maximum) + " elements, seen " + to_string(idx.shape),
                "split the file, or give a larger maximum");
  }
  if (!file.is_at_end()) {
    file.refuse(
        "is too long: expected " + std::to_string(size) + " elements for " + to_string(idx.shape) + ", seen more",
        kIdxAgain);
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
