// ImageReader: what the sources of images have in common.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "graphsink/images.h"
#include "loader/data_file.h"

namespace graphsink {

// Turns image files into samples. Any number of threads may read at once.
class ImageReader {
 public:
  // Throws Error naming `op` for options out of their ranges.
  ImageReader(const char* op, const ImageOptions& options, Where where);

  // Takes what the options leave open from the first image, which need not be given if they leave nothing open.
  bool needs_first() const { return options_.channels == 0 || options_.height == 0 || options_.width == 0; }
  void set_first(std::span<const std::byte> file, const Origin& origin);

  std::vector<Field> fields() const;
  // Decodes a file and writes the elements of the first field. Throws Error for an image of another size that is not to
  // be scaled, and for what decode_image() refuses.
  void read(std::span<const std::byte> file, const Origin& origin, std::span<std::byte> to) const;

 private:
  void require_few_pixels(std::size_t height, std::size_t width, const Origin& origin) const;
  void require_size(std::size_t height, std::size_t width, const Origin& origin) const;

  ImageOptions options_;
};

// `size` bytes of a file from `begin` on, which hold an image. Throws Error if they are too many for one.
std::vector<std::byte> read_image_file(const DataFile& file, std::uint64_t begin, std::uint64_t size,
                                       const Origin& origin);

// Whether a name ends as that of an image does, in letters of any case: "png", "jpg" or "jpeg".
bool is_image_extension(std::string_view extension);

}  // namespace graphsink
