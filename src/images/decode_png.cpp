#include <png.h>
#include <zlib.h>

#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "images/decode.h"

namespace graphsink {
namespace {

constexpr std::size_t kPngSignature = 8, kPngChunk = 12;  // bytes; a chunk has so many beside its data

std::uint32_t big_endian(const std::byte* bytes) {
  std::uint32_t value = 0;
  for (int i = 0; i < 4; ++i) value = value << 8 | std::to_integer<std::uint32_t>(bytes[i]);
  return value;
}

// Whether pixels may depend on the chunks of a type. This bit of its first letter, which makes it a small one, says
// that a decoder may pass over them; of those, only transparency and gamma are of use.
bool affects_pixels(const std::byte* type) {
  if ((type[0] & std::byte{0x20}) == std::byte{0}) return true;
  const std::string_view name(reinterpret_cast<const char*>(type), 4);
  return name == "tRNS" || name == "gAMA" || name == "sRGB";
}

// The file without the chunks on which no pixel depends: the decoder would unpack every compressed text and keep it,
// though a few bytes may become megabytes. Throws Error unless the file consists of whole chunks with the right
// checksums, up to the one that ends an image: the decoder stops when it has all pixels, and takes no notice of what
// comes behind them.
std::vector<std::byte> chunks_of_pixels(std::span<const std::byte> file, const Origin& origin) {
  std::vector<std::byte> chunks(file.begin(), file.begin() + kPngSignature);
  for (std::size_t at = kPngSignature; true;) {
    const std::size_t left = file.size() - at;
    const std::uint32_t size = left < kPngChunk ? 0 : big_endian(file.data() + at);
    if (left < kPngChunk || size > left - kPngChunk) {
      origin.refuse(
          "is truncated: expected another chunk of a PNG image, seen the end at byte " + std::to_string(file.size()),
          kImageAgain);
    }
    const std::byte* type = file.data() + at + 4;
    if (crc32_z(0, reinterpret_cast<const Bytef*>(type), size + 4) != big_endian(type + 4 + size)) {
      origin.refuse("is damaged: the chunk at byte " + std::to_string(at) + " of the PNG image has another checksum",
                    kImageAgain);
    }
    const auto chunk = file.subspan(at, kPngChunk + size);
    if (affects_pixels(type)) chunks.insert(chunks.end(), chunk.begin(), chunk.end());
    if (std::memcmp(type, "IEND", 4) == 0) return chunks;
    at += chunk.size();
  }
}

// The decoder of libpng that reports errors by what it returns, so that nothing is left by longjmp().
struct PngReader {
  png_image image{};
  PngReader() { image.version = PNG_IMAGE_VERSION; }
  ~PngReader() { png_image_free(&image); }
  PngReader(const PngReader&) = delete;
  PngReader& operator=(const PngReader&) = delete;

  [[noreturn]] void refuse(const Origin& origin) const {
    origin.refuse(std::string("is damaged: expected a PNG image, seen: ") + image.message, kImageAgain);
  }
};

}  // namespace

DecodedImage decode_png(std::span<const std::byte> file, const Origin& origin, const SizeCheck& check) {
  const std::vector<std::byte> chunks = chunks_of_pixels(file, origin);
  PngReader reader;
  png_image& image = reader.image;
  if (png_image_begin_read_from_memory(&image, chunks.data(), chunks.size()) == 0) reader.refuse(origin);
  check(image.height, image.width);
  // Eight bits for each component, without a palette; numbers of 16 bits have the same gamma as those of 8.
  image.format &= PNG_FORMAT_FLAG_COLOR | PNG_FORMAT_FLAG_ALPHA;
  image.flags |= PNG_IMAGE_FLAG_16BIT_sRGB;
  DecodedImage decoded{image.height, image.width, PNG_IMAGE_SAMPLE_CHANNELS(image.format), {}};
  decoded.bytes.resize(decoded.height * decoded.width * decoded.components);
  if (png_image_finish_read(&image, nullptr, decoded.bytes.data(), 0, nullptr) == 0) reader.refuse(origin);
  return decoded;
}

}  // namespace graphsink
