// The plain interface of libjpeg tells warnings apart, which turbojpeg.h does not, and is in the same Debian package as
// the library. It reports an error by longjmp(): the functions that set its mark have no objects with destructors.
#include <cstdio>  // jpeglib.h needs it

#include <jerror.h>
#include <jpeglib.h>

#include <array>
#include <csetjmp>
#include <string>

#include "images/decode.h"

namespace graphsink {
namespace {

// Each scan takes as long as one of a whole image, but may have a few bytes only.
constexpr int kMostScans = 500;

struct JpegReader {
  jpeg_decompress_struct info{};
  jpeg_error_mgr errors{};
  jpeg_progress_mgr progress{};
  std::jmp_buf mark{};
  std::array<char, JMSG_LENGTH_MAX> message{};
  bool reads_pixels = false;

  JpegReader();
  ~JpegReader() { jpeg_destroy_decompress(&info); }
  JpegReader(const JpegReader&) = delete;
  JpegReader& operator=(const JpegReader&) = delete;
};

[[noreturn]] void leave(j_common_ptr info) {
  auto& reader = *static_cast<JpegReader*>(info->client_data);
  info->err->format_message(info, reader.message.data());
  std::longjmp(reader.mark, 1);
}

// A warning means that pixels are missing or made up, except for one about colours, and for bytes between the parts of
// the header: between those of the pixels they are mostly what damage left over.
void on_message(j_common_ptr info, int level) {
  const int code = info->err->msg_code;
  const bool reads_pixels = static_cast<JpegReader*>(info->client_data)->reads_pixels;
  const bool is_harmless = code == JWRN_ADOBE_XFORM || (code == JWRN_EXTRANEOUS_DATA && !reads_pixels);
  if (level < 0 && !is_harmless) leave(info);
}

void on_progress(j_common_ptr info) {
  if (reinterpret_cast<j_decompress_ptr>(info)->input_scan_number <= kMostScans) return;
  auto& reader = *static_cast<JpegReader*>(info->client_data);
  std::snprintf(reader.message.data(), reader.message.size(), "more than %d scans", kMostScans);
  std::longjmp(reader.mark, 1);
}

JpegReader::JpegReader() {
  info.err = jpeg_std_error(&errors);
  info.client_data = this;
  errors.error_exit = leave;
  errors.emit_message = on_message;
  progress.progress_monitor = on_progress;
}

bool read_header(JpegReader& reader, std::span<const std::byte> file) {
  if (setjmp(reader.mark) != 0) return false;
  jpeg_create_decompress(&reader.info);
  reader.info.progress = &reader.progress;
  jpeg_mem_src(&reader.info, reinterpret_cast<const unsigned char*>(file.data()), file.size());
  jpeg_read_header(&reader.info, TRUE);
  return true;
}

bool read_pixels(JpegReader& reader, std::uint8_t* to, std::size_t row_bytes) {
  if (setjmp(reader.mark) != 0) return false;
  reader.reads_pixels = true;
  jpeg_start_decompress(&reader.info);
  while (reader.info.output_scanline < reader.info.output_height) {
    JSAMPROW row = to + reader.info.output_scanline * row_bytes;
    jpeg_read_scanlines(&reader.info, &row, 1);
  }
  jpeg_finish_decompress(&reader.info);
  return true;
}

[[noreturn]] void refuse_jpeg(const JpegReader& reader, const Origin& origin) {
  origin.refuse(std::string("is damaged or truncated: expected a JPEG image, seen: ") + reader.message.data(),
                kImageAgain);
}

}  // namespace

DecodedImage decode_jpeg(std::span<const std::byte> file, const Origin& origin, const SizeCheck& check) {
  JpegReader reader;
  if (!read_header(reader, file)) refuse_jpeg(reader, origin);
  check(reader.info.image_height, reader.info.image_width);
  const auto components = static_cast<std::size_t>(reader.info.num_components);
  if (components != 1 && components != 3) {
    origin.refuse(
        "expected a JPEG image of grey or of three colours, seen " + std::to_string(components) + " components",
        "convert it to RGB");
  }
  reader.info.out_color_space = components == 1 ? JCS_GRAYSCALE : JCS_RGB;
  DecodedImage decoded{reader.info.image_height, reader.info.image_width, components, {}};
  decoded.bytes.resize(decoded.height * decoded.width * components);
  if (!read_pixels(reader, decoded.bytes.data(), decoded.width * components)) refuse_jpeg(reader, origin);
  return decoded;
}

}  // namespace graphsink
