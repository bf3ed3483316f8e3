// Image and tar files that tests read. PNG files are written chunk by chunk, so that the decoder is not tested by its
// own encoder.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "graphsink/images.h"
#include "temporary_directory.h"

namespace graphsink::testing {

struct PngPart {
  std::uint32_t height = 1, width = 1;
  int bits = 8;
  int colour = 0;  // 0 grey, 2 RGB, 3 palette, 4 grey and alpha, 6 RGBA
  std::string rows{};
  std::string interlaced{};  // in the place of rows: the lines of an interlaced image, each behind its filter
  std::string palette{}, transparency{};  // chunks PLTE and tRNS, if there are any
};
std::string packed(const std::string& bytes);  // a zlib stream
// A chunk of a PNG file.
std::string png_chunk(const std::string& type, const std::string& data);
std::string png_file(const PngPart& part);
// Sets the checksum of each chunk right, as far as there are chunks.
void mend_png(std::string& file);

enum class JpegScans { one, progressive, of_each_colour };
// `components` is 1, 3 or 4 (CMYK).
std::string jpeg_file(int height, int width, int components, const std::string& rows, JpegScans scans = JpegScans::one);

using TarFiles =
    std::vector<std::pair<std::string, std::string>>;  // names and bytes; a name with a slash at its end is a folder
// Formats of libarchive: "ustar", "gnutar", "pax". The file named `with_hole` is stored without all but its first byte.
std::string tar_file(const TarFiles& files, const std::string& format = "ustar", const std::string& with_hole = "");

void write_bytes(const std::filesystem::path& path, const std::string& bytes);
// The fields of a sample, each in memory of its own that begins at an odd address.
std::vector<std::string> sample_of(const Source& source, std::int64_t index);
// The label of a sample.
int label_of(const Source& source, std::int64_t index);

// The message of the Error of a call, which has a remedy and a line of the caller's file.
template <class Call>
std::string refusal_of(Call call, ErrorCode code = ErrorCode::io, const char* file = __builtin_FILE()) {
  const std::string path = file, place = path.substr(path.rfind('/') + 1) + ":";
  try {
    call();
  } catch (const Error& error) {
    EXPECT_FALSE(error.remedy().empty()) << error.what();
    EXPECT_EQ(error.code(), code) << error.what();
    EXPECT_NE(std::string(error.what()).find(place), std::string::npos) << error.what();
    return error.what();
  }
  return "no Error";
}
inline void expect_words(const std::string& message, const std::vector<std::string>& words) {
  for (const std::string& word : words) EXPECT_NE(message.find(word), std::string::npos) << word << " in: " << message;
}

}  // namespace graphsink::testing
