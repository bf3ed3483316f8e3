#include "images/image_reader.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

#include "images/decode.h"
#include "images/resize.h"

namespace graphsink {
namespace {

constexpr std::int64_t kMostSide = std::int64_t{1} << 16, kMostPixels = std::int64_t{1} << 30;
constexpr std::uint64_t kMostImageFile = std::uint64_t{1} << 28;  // bytes

std::string size_text(std::int64_t height, std::int64_t width) {
  return std::to_string(height) + " rows of " + std::to_string(width) + " pixels";
}
std::string size_text(std::size_t height, std::size_t width) {
  return size_text(static_cast<std::int64_t>(height), static_cast<std::int64_t>(width));
}

// Writes the `channels` bytes of a pixel of `components` bytes.
void convert_pixel(const std::uint8_t* from, std::size_t components, std::uint8_t* to, std::size_t channels) {
  const bool is_colour = components >= 3;
  if (channels == 1) {
    *to = is_colour ? static_cast<std::uint8_t>((19595u * from[0] + 38470u * from[1] + 7471u * from[2] + 32768u) >> 16)
                    : from[0];
    return;
  }
  for (std::size_t c = 0; c < 3; ++c) to[c] = from[is_colour ? c : 0];
  if (channels == 4) to[3] = components % 2 == 0 ? from[components - 1] : std::uint8_t{255};
}

DecodedImage converted(DecodedImage image, std::size_t channels) {
  if (image.components == channels) return image;
  DecodedImage result{image.height, image.width, channels, {}};
  const std::size_t pixels = image.height * image.width;
  result.bytes.resize(pixels * channels);
  for (std::size_t i = 0; i < pixels; ++i) {
    convert_pixel(image.bytes.data() + i * image.components, image.components, result.bytes.data() + i * channels,
                  channels);
  }
  return result;
}

// Writes the planes of the image one after the other.
void write_planes(const DecodedImage& image, bool is_scaled, std::span<std::byte> to) {
  const std::size_t pixels = image.height * image.width;
  for (std::size_t c = 0; c < image.components; ++c) {
    for (std::size_t i = 0; i < pixels; ++i) {
      const std::uint8_t byte = image.bytes[i * image.components + c];
      const std::size_t place = c * pixels + i;
      if (is_scaled) {
        const float x = static_cast<float>(byte) / 255.0f;
        std::memcpy(to.data() + sizeof x * place, &x, sizeof x);
      } else {
        to[place] = std::byte{byte};
      }
    }
  }
}

}  // namespace

ImageReader::ImageReader(const char* op, const ImageOptions& options, Where where) : options_(options) {
  auto check = [&](const char* name, std::int64_t seen, std::int64_t low, std::int64_t high) {
    if (seen >= low && seen <= high) return;
    throw Error(op, where,
                std::string("expected ImageOptions::") + name + " from " + std::to_string(low) + " to " +
                    std::to_string(high) + ", seen " + std::to_string(seen),
                "leave it out, or give one of these");
  };
  if (options.channels == 2)
    throw Error(op, where, "expected ImageOptions::channels 1, 3 or 4, seen 2", "leave it out, or give one of these");
  check("channels", options.channels, 0, 4);
  check("height", options.height, 0, kMostSide);
  check("width", options.width, 0, kMostSide);
  check("most_pixels", options.most_pixels, 1, kMostPixels);
}

void ImageReader::set_first(std::span<const std::byte> file, const Origin& origin) {
  const DecodedImage first = decode_image(
      file, origin, [&](std::size_t height, std::size_t width) { require_few_pixels(height, width, origin); });
  if (options_.channels == 0) options_.channels = first.components < 3 ? 1 : 3;
  if (options_.height == 0) options_.height = static_cast<std::int64_t>(first.height);
  if (options_.width == 0) options_.width = static_cast<std::int64_t>(first.width);
}

std::vector<Field> ImageReader::fields() const {
  return {{options_.image, {options_.is_scaled ? f32 : u8, {options_.channels, options_.height, options_.width}}},
          {options_.label, {i32, {}}}};
}

void ImageReader::read(std::span<const std::byte> file, const Origin& origin, std::span<std::byte> to) const {
  DecodedImage image = decode_image(file, origin, [&](std::size_t height, std::size_t width) {
    require_few_pixels(height, width, origin);
    if (!options_.is_resized) require_size(height, width, origin);
  });
  image = converted(std::move(image), static_cast<std::size_t>(options_.channels));
  const auto height = static_cast<std::size_t>(options_.height), width = static_cast<std::size_t>(options_.width);
  if (image.height != height || image.width != width) image = resized(image, height, width);
  write_planes(image, options_.is_scaled, to);
}

void ImageReader::require_few_pixels(std::size_t height, std::size_t width, const Origin& origin) const {
  if (width == 0 || height <= static_cast<std::size_t>(options_.most_pixels) / width) return;
  origin.refuse("expected an image of at most " + std::to_string(options_.most_pixels) + " pixels, seen " +
                    size_text(height, width),
                "scale it down, or raise ImageOptions::most_pixels");
}

void ImageReader::require_size(std::size_t height, std::size_t width, const Origin& origin) const {
  if (height == static_cast<std::size_t>(options_.height) && width == static_cast<std::size_t>(options_.width)) return;
  origin.refuse(
      "expected an image of " + size_text(options_.height, options_.width) + ", seen " + size_text(height, width),
      "set ImageOptions::is_resized, or scale all images to one size");
}

std::vector<std::byte> read_image_file(const DataFile& file, std::uint64_t begin, std::uint64_t size,
                                       const Origin& origin) {
  if (size > kMostImageFile) {
    origin.refuse(
        "expected an image of at most " + std::to_string(kMostImageFile) + " bytes, seen " + std::to_string(size),
        kImageAgain);
  }
  std::vector<std::byte> bytes(static_cast<std::size_t>(size));
  file.read(begin, bytes);
  return bytes;
}

bool is_image_extension(std::string_view extension) {
  auto is = [&](std::string_view name) {
    return std::equal(name.begin(), name.end(), extension.begin(), extension.end(), [](char a, char b) {
      return a == (b >= 'A' && b <= 'Z' ? static_cast<char>(b - 'A' + 'a') : b);
    });
  };
  return is("png") || is("jpg") || is("jpeg");
}

}  // namespace graphsink
