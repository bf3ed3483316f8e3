#include "image_files.h"

#include <archive.h>
#include <archive_entry.h>

#include <cstdio>  // jpeglib.h needs it

#include <jpeglib.h>
#include <zlib.h>

#include <cstdlib>
#include <cstring>
#include <fstream>

namespace graphsink::testing {
namespace {

std::string big_endian(std::uint32_t number) {
  std::string text;
  for (int shift = 24; shift >= 0; shift -= 8) text += static_cast<char>(number >> shift & 255);
  return text;
}
std::uint32_t number_at(const std::string& text, std::size_t at) {
  std::uint32_t number = 0;
  for (std::size_t i = 0; i < 4; ++i) number = number << 8 | static_cast<std::uint8_t>(text[at + i]);
  return number;
}
std::string checksum_of(const std::string& bytes) {
  return big_endian(static_cast<std::uint32_t>(crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size())));
}

}  // namespace

std::string packed(const std::string& bytes) {
  std::string to(compressBound(bytes.size()), '\0');
  uLongf size = to.size();
  EXPECT_EQ(
      compress(reinterpret_cast<Bytef*>(to.data()), &size, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()),
      Z_OK);
  to.resize(size);
  return to;
}

std::string png_chunk(const std::string& type, const std::string& data) {
  return big_endian(static_cast<std::uint32_t>(data.size())) + type + data + checksum_of(type + data);
}

std::string png_file(const PngPart& part) {
  const std::string form{static_cast<char>(part.bits), static_cast<char>(part.colour), '\0', '\0',
                         static_cast<char>(part.interlaced.empty() ? 0 : 1)};
  std::string file = "\x89PNG\r\n\x1a\n" + png_chunk("IHDR", big_endian(part.width) + big_endian(part.height) + form);
  if (!part.palette.empty()) file += png_chunk("PLTE", part.palette);
  if (!part.transparency.empty()) file += png_chunk("tRNS", part.transparency);
  std::string filtered = part.interlaced;
  const std::size_t row = part.rows.size() / part.height;
  for (std::uint32_t y = 0; y < part.height && part.interlaced.empty(); ++y)
    filtered += '\0' + part.rows.substr(y * row, row);
  return file + png_chunk("IDAT", packed(filtered)) + png_chunk("IEND", "");
}

void mend_png(std::string& file) {
  for (std::size_t at = 8; at + 12 <= file.size();) {
    const std::size_t size = number_at(file, at);
    if (size > file.size() - at - 12) return;
    file.replace(at + 8 + size, 4, checksum_of(file.substr(at + 4, size + 4)));
    at += size + 12;
  }
}

std::string jpeg_file(int height, int width, int components, const std::string& rows, JpegScans scans) {
  jpeg_compress_struct info{};
  jpeg_error_mgr errors{};
  info.err = jpeg_std_error(&errors);
  jpeg_create_compress(&info);
  unsigned char* memory = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&info, &memory, &size);
  info.image_height = static_cast<JDIMENSION>(height);
  info.image_width = static_cast<JDIMENSION>(width);
  info.input_components = components;
  info.in_color_space = components == 1 ? JCS_GRAYSCALE : components == 3 ? JCS_RGB : JCS_CMYK;
  jpeg_set_defaults(&info);
  jpeg_set_quality(&info, 100, TRUE);
  const jpeg_scan_info apart[3] = {{1, {0}, 0, 63, 0, 0}, {1, {1}, 0, 63, 0, 0}, {1, {2}, 0, 63, 0, 0}};
  if (scans == JpegScans::progressive) jpeg_simple_progression(&info);
  if (scans == JpegScans::of_each_colour) info.scan_info = apart, info.num_scans = components;
  jpeg_start_compress(&info, TRUE);
  std::string pixels = rows;
  while (info.next_scanline < info.image_height) {
    JSAMPROW row = reinterpret_cast<JSAMPROW>(pixels.data()) +
                   std::size_t{info.next_scanline} * static_cast<std::size_t>(width * components);
    jpeg_write_scanlines(&info, &row, 1);
  }
  jpeg_finish_compress(&info);
  jpeg_destroy_compress(&info);
  std::string file(reinterpret_cast<char*>(memory), size);
  std::free(memory);
  return file;
}

std::string tar_file(const TarFiles& files, const std::string& format, const std::string& with_hole) {
  std::size_t most = 1 << 16, used = 0;
  for (const auto& [name, bytes] : files) most += bytes.size() + 8192;
  std::string memory(most, '\0');
  archive* tar = archive_write_new();
  EXPECT_EQ(archive_write_set_format_by_name(tar, format.c_str()), ARCHIVE_OK);
  archive_write_set_bytes_in_last_block(tar, 1);
  EXPECT_EQ(archive_write_open_memory(tar, memory.data(), memory.size(), &used), ARCHIVE_OK);
  for (const auto& [name, bytes] : files) {
    archive_entry* entry = archive_entry_new();
    archive_entry_set_pathname(entry, name.c_str());
    archive_entry_set_filetype(entry, name.ends_with('/') ? AE_IFDIR : AE_IFREG);
    archive_entry_set_perm(entry, 0644);
    archive_entry_set_size(entry, static_cast<la_int64_t>(bytes.size()));
    if (name == with_hole) archive_entry_sparse_add_entry(entry, 0, 1);
    // Names that the locale does not know are written as they are, with a warning.
    EXPECT_GE(archive_write_header(tar, entry), ARCHIVE_WARN) << archive_error_string(tar);
    EXPECT_EQ(archive_write_data(tar, bytes.data(), bytes.size()), static_cast<la_ssize_t>(bytes.size()));
    archive_entry_free(entry);
  }
  EXPECT_EQ(archive_write_close(tar), ARCHIVE_OK);
  archive_write_free(tar);
  memory.resize(used);
  return memory;
}

void write_bytes(const std::filesystem::path& path, const std::string& bytes) {
  std::filesystem::create_directories(path.parent_path());
  std::filesystem::remove(path);  // a file system may wait for the disk when a file is overwritten
  std::ofstream file(path, std::ios::binary);
  file << bytes;
}

std::vector<std::string> sample_of(const Source& source, std::int64_t index) {
  std::vector<std::string> memory;
  std::vector<std::span<std::byte>> to;
  for (const Field& field : source.fields()) memory.emplace_back(field.type.bytes() + 1, '\xee');
  for (std::string& field : memory) to.push_back(std::as_writable_bytes(std::span(field)).subspan(1));
  source.read(index, to);
  for (std::string& field : memory) field.erase(0, 1);
  return memory;
}

int label_of(const Source& source, std::int64_t index) {
  std::int32_t label = -1;
  std::memcpy(&label, sample_of(source, index)[1].data(), sizeof label);
  return label;
}

}  // namespace graphsink::testing
