#include "images/decode.h"

#include <algorithm>
#include <array>
#include <string>

namespace graphsink {
namespace {

template <std::size_t n>
bool begins_with(std::span<const std::byte> file, const std::array<std::uint8_t, n>& magic) {
  return file.size() >= n && std::equal(magic.begin(), magic.end(), file.begin(),
                                        [](std::uint8_t a, std::byte b) { return std::byte{a} == b; });
}

}  // namespace

DecodedImage decode_image(std::span<const std::byte> file, const Origin& origin, const SizeCheck& check) {
  constexpr std::array<std::uint8_t, 8> kPng = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};
  constexpr std::array<std::uint8_t, 3> kJpeg = {0xff, 0xd8, 0xff};
  if (begins_with(file, kPng)) return decode_png(file, origin, check);
  if (begins_with(file, kJpeg)) return decode_jpeg(file, origin, check);
  origin.refuse("expected a PNG or JPEG image, seen " + std::to_string(file.size()) + " bytes that begin as neither",
                kImageAgain);
}

}  // namespace graphsink
