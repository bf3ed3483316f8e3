// Images as decoders give them. Nothing is kept between two images, so any number of threads may decode at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "loader/data_file.h"

namespace graphsink {

// Rows of pixels, whose components are side by side.
struct DecodedImage {
  std::size_t height = 0, width = 0;
  std::size_t components = 0;  // 1 grey, 2 grey and alpha, 3 RGB, 4 RGBA
  std::vector<std::uint8_t> bytes;
};

// Called before memory is taken for an image; throws Error for a size that is not wanted.
using SizeCheck = std::function<void(std::size_t height, std::size_t width)>;

// Decodes a PNG or JPEG file, which its first bytes tell, not its name. Throws Error for anything else, and for an
// image that is damaged or truncated.
DecodedImage decode_image(std::span<const std::byte> file, const Origin& origin, const SizeCheck& check);
DecodedImage decode_png(std::span<const std::byte> file, const Origin& origin, const SizeCheck& check);
DecodedImage decode_jpeg(std::span<const std::byte> file, const Origin& origin, const SizeCheck& check);

inline constexpr const char* kImageAgain = "copy the image again, or leave it out";

}  // namespace graphsink
