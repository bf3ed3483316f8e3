#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "graphsink/loader.h"
#include "graphsink/source.h"
#include "loader/data_file.h"
#include "loader/idx_header.h"

namespace graphsink {
namespace {

// The elements of a file and their shape.
struct IdxBytes {
  Shape shape;
  ByteRange elements;
};

bool is_gzipped(const DataFile& file) {
  std::array<std::byte, 2> magic{};
  if (file.size() < magic.size()) return false;
  file.read(0, magic);
  return magic[0] == std::byte{0x1f} && magic[1] == std::byte{0x8b};
}

IdxBytes open_idx(const std::filesystem::path& path, Where where) {
  const auto file = std::make_shared<DataFile>(path, where);
  const Origin& origin = file->origin();
  if (is_gzipped(*file)) {
    IdxFile idx = read_idx(path, kMostIdxBytes, where);
    return {idx.shape, ByteRange(std::move(idx.bytes), origin)};
  }
  std::uint64_t at = 0;
  auto read = [&](std::uint64_t count) {
    std::vector<std::uint8_t> bytes(static_cast<std::size_t>(std::min(count, file->size() - at)));
    file->read(at, std::as_writable_bytes(std::span(bytes)));
    at += bytes.size();
    return bytes;
  };
  const Shape shape = read_idx_shape(
      {read, [&](const std::string& problem, const std::string& remedy) { origin.refuse(problem, remedy); }});
  const auto expected = static_cast<std::uint64_t>(shape.size());
  const std::uint64_t seen = file->size() - at;
  if (seen != expected) {
    origin.refuse(std::string(seen < expected ? "is truncated" : "is too long") + ": expected " +
                      std::to_string(expected) + " elements for " + to_string(shape) + ", seen " + std::to_string(seen),
                  kIdxAgain);
  }
  return {shape, ByteRange(file, at, expected, origin)};
}

class IdxSource : public Source {
 public:
  IdxSource(std::int64_t size, std::vector<Field> fields, ByteRange images, std::vector<std::uint8_t> labels,
            Where where)
      : Source(size, std::move(fields), where), images_(std::move(images)), labels_(std::move(labels)) {
    for (int byte = 0; byte < 256; ++byte) scaled_[static_cast<std::size_t>(byte)] = static_cast<float>(byte) / 255.0f;
  }

 private:
  void fill(std::int64_t index, SampleMemory to) const override {
    if (fields()[0].type.dtype == u8) {
      images_.read(static_cast<std::uint64_t>(index) * to[0].size(), to[0]);
    } else {
      fill_scaled(index, to[0]);
    }
    const std::int32_t label = labels_[static_cast<std::size_t>(index)];
    std::memcpy(to[1].data(), &label, sizeof label);
  }

  void fill_scaled(std::int64_t index, std::span<std::byte> to) const {
    std::array<std::byte, 4096> bytes;
    const std::size_t pixels = to.size() / sizeof(float);
    const std::uint64_t begin = static_cast<std::uint64_t>(index) * pixels;
    for (std::size_t done = 0; done < pixels;) {
      const std::span<std::byte> piece = std::span(bytes).first(std::min(bytes.size(), pixels - done));
      images_.read(begin + done, piece);
      for (std::byte byte : piece) {
        std::memcpy(to.data() + sizeof(float) * done, &scaled_[std::to_integer<std::size_t>(byte)], sizeof(float));
        ++done;
      }
    }
  }

  ByteRange images_;
  std::vector<std::uint8_t> labels_;
  std::array<float, 256> scaled_{};  // each byte divided by 255
};

}  // namespace

std::shared_ptr<const Source> idx_source(const std::filesystem::path& images_path,
                                         const std::filesystem::path& labels_path, const IdxSourceOptions& options,
                                         Where where) {
  if (options.classes < 1 || options.classes > 256) {
    throw Error("idx_source", where, "expected 1 to 256 classes, seen " + std::to_string(options.classes),
                "labels are bytes from 0 on");
  }
  IdxBytes images = open_idx(images_path, where);
  const Origin& origin = images.elements.origin();
  if (images.shape.rank() < 2) {
    origin.refuse("expected images [n, ...], seen " + to_string(images.shape), "give a file of images");
  }
  const std::int64_t count = images.shape[0];
  IdxFile labels = read_idx(labels_path, kMostIdxBytes, where);
  const Origin labels_origin{labels_path.string(), where};
  if (labels.shape.rank() != 1) {
    labels_origin.refuse("expected labels [n], seen " + to_string(labels.shape), "give a file of labels");
  }
  if (labels.shape[0] != count) {
    labels_origin.refuse("expected " + std::to_string(count) + " labels, one for each image of " + origin.file +
                             ", seen " + std::to_string(labels.shape[0]),
                         "use the two files of one set");
  }
  for (std::size_t i = 0; i < labels.bytes.size(); ++i) {
    if (labels.bytes[i] < options.classes) continue;
    labels_origin.refuse("expected labels 0 to " + std::to_string(options.classes - 1) + ", seen " +
                             std::to_string(labels.bytes[i]) + " at " + std::to_string(i),
                         "give IdxSourceOptions the number of classes");
  }
  Shape sample(images.shape.dims().subspan(1));
  if (options.is_flat) sample = {sample.size()};
  std::vector<Field> fields = {{options.image, {options.is_scaled ? f32 : u8, sample}}, {options.label, {i32, {}}}};
  return std::make_shared<IdxSource>(count, std::move(fields), std::move(images.elements), std::move(labels.bytes),
                                     where);
}

}  // namespace graphsink
