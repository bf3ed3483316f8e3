// Well-formed files of each reader, from which hostile ones are made.
#pragma once

#include <zlib.h>

#include <cstdint>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "graphsink/checkpoint.h"
#include "temporary_directory.h"

namespace graphsink {

inline std::string idx_file(const std::vector<std::uint32_t>& sizes, const std::string& elements, int type = 8) {
  std::string bytes{'\0', '\0', static_cast<char>(type), static_cast<char>(sizes.size())};
  for (std::uint32_t size : sizes)
    for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(size >> shift & 255);
  return bytes + elements;
}

inline std::string safetensors_file(const std::string& json, const std::string& data) {
  std::string bytes;
  for (int shift = 0; shift < 64; shift += 8) bytes += static_cast<char>(std::uint64_t{json.size()} >> shift & 255);
  return bytes + json + data;
}

inline void write_file(const std::filesystem::path& path, const std::string& bytes) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << bytes;
}

inline std::string good_safetensors() {
  return safetensors_file(R"({"__metadata__":{"step":"3"},"w":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]},)"
                          R"("b":{"dtype":"BOOL","shape":[3],"data_offsets":[8,11]}})",
                          std::string("\0\0\x80\x3f\0\0\0\x40\1\0\1", 11));
}
// The index of a checkpoint in the files "first" and "second", which good_shards() has.
inline std::string good_index() {
  return R"({"metadata":{"total_size":11,"step":"3"},"weight_map":{"b":"second","w":"first"}})";
}
inline std::vector<std::pair<std::string, std::string>> good_shards() {
  return {{"first", safetensors_file(R"({"w":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]}})",
                                     std::string("\0\0\x80\x3f\0\0\0\x40", 8))},
          {"second",
           safetensors_file(R"({"b":{"dtype":"BOOL","shape":[3],"data_offsets":[0,3]}})", std::string("\1\0\1", 3))}};
}
// The lowest bytes of a number, little-endian.
inline std::string little(std::uint64_t number, int bytes) {
  std::string text;
  for (int i = 0; i < bytes; ++i) text += static_cast<char>(number >> (8 * i) & 255);
  return text;
}

// An .npy file of any header, which is padded as NumPy pads it.
inline std::string npy_file(std::string header, const std::string& elements, int version = 1) {
  const std::size_t begin = version == 1 ? 10 : 12;
  while ((begin + header.size() + 1) % 64 != 0) header += ' ';
  header += '\n';
  return "\x93NUMPY" + little(static_cast<std::uint64_t>(version), 1) + std::string(1, '\0') +
         little(header.size(), version == 1 ? 2 : 4) + header + elements;
}
inline std::string npy_header(const std::string& descr, const std::string& shape, const std::string& order = "False") {
  return "{'descr': '" + descr + "', 'fortran_order': " + order + ", 'shape': " + shape + ", }";
}

// A raw deflate stream, as zip archives have it.
inline std::string deflated(const std::string& bytes) {
  z_stream stream{};
  if (deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, -15, 8, Z_DEFAULT_STRATEGY) != Z_OK) return {};
  std::string input = bytes, packed(deflateBound(&stream, bytes.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(input.data());
  stream.avail_in = static_cast<uInt>(input.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  deflate(&stream, Z_FINISH);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return packed;
}

// A member of a zip archive. What the directory says about it can be made wrong.
struct ZipPart {
  std::string name;
  std::string bytes{};
  bool is_deflated = false;
  std::uint32_t wrong_crc = 0;  // exclusive or with the right one
  std::uint64_t method = 99;    // 99: the right one
  std::uint64_t flags = 0;
  std::uint64_t unpacked = ~std::uint64_t{0};  // all bits: the right one
  std::uint64_t packed = ~std::uint64_t{0};
  std::uint64_t local = ~std::uint64_t{0};
};
// As numpy.savez() writes it: the headers in front of the data have a field with sizes of 64 bits. `is_wide` writes the
// directory with such fields, too.
inline std::string zip_file(const std::vector<ZipPart>& parts, bool is_wide = false) {
  constexpr std::uint64_t kRight = ~std::uint64_t{0};
  std::string file, directory;
  for (const ZipPart& part : parts) {
    const std::string data = part.is_deflated ? deflated(part.bytes) : part.bytes;
    const auto crc = static_cast<std::uint32_t>(
        crc32(0, reinterpret_cast<const Bytef*>(part.bytes.data()), static_cast<uInt>(part.bytes.size())));
    const std::uint64_t method = part.method == 99 ? (part.is_deflated ? 8 : 0) : part.method;
    const std::uint64_t packed = part.packed == kRight ? data.size() : part.packed;
    const std::uint64_t unpacked = part.unpacked == kRight ? part.bytes.size() : part.unpacked;
    const std::uint64_t local = part.local == kRight ? file.size() : part.local;
    const std::string start =
        little(part.flags, 2) + little(method, 2) + little(0, 4) + little(crc ^ part.wrong_crc, 4);
    file += "PK\3\4" + little(45, 2) + start + little(0xffffffff, 4) + little(0xffffffff, 4) +
            little(part.name.size(), 2) + little(20, 2) + part.name + little(1, 2) + little(16, 2) +
            little(part.bytes.size(), 8) + little(data.size(), 8) + data;
    const std::string wide =
        is_wide ? little(1, 2) + little(24, 2) + little(unpacked, 8) + little(packed, 8) + little(local, 8) : "";
    directory += "PK\1\2" + little(45, 2) + little(45, 2) + start + little(is_wide ? 0xffffffff : packed, 4) +
                 little(is_wide ? 0xffffffff : unpacked, 4) + little(part.name.size(), 2) + little(wide.size(), 2) +
                 little(0, 2) + little(0, 2) + little(0, 2) + little(0, 4) + little(is_wide ? 0xffffffff : local, 4) +
                 part.name + wide;
  }
  const std::uint64_t begin = file.size(), count = parts.size();
  file += directory;
  if (is_wide) {
    const std::uint64_t end = file.size();
    file += "PK\6\6" + little(44, 8) + little(45, 2) + little(45, 2) + little(0, 4) + little(0, 4) + little(count, 8) +
            little(count, 8) + little(directory.size(), 8) + little(begin, 8);
    file += "PK\6\7" + little(0, 4) + little(end, 8) + little(1, 4);
  }
  const std::uint64_t entries = is_wide ? 0xffff : count;
  return file + "PK\5\6" + little(0, 4) + little(entries, 2) + little(entries, 2) +
         little(is_wide ? 0xffffffff : directory.size(), 4) + little(is_wide ? 0xffffffff : begin, 4) + little(0, 2);
}

inline std::string good_npy() {
  return npy_file(npy_header("<f4", "(2, 3)"), std::string("\0\0\0\0\0\0\x80\x3f\0\0\0\x40"
                                                           "\0\0\x40\x40\0\0\x80\x40\0\0\xa0\x40",
                                                           24));
}
inline std::string good_labels_npy() { return npy_file(npy_header("|b1", "(2,)"), std::string("\1\0", 2)); }
inline std::string good_npz() {
  return zip_file(
      {{.name = "x.npy", .bytes = good_npy(), .is_deflated = true}, {.name = "y.npy", .bytes = good_labels_npy()}});
}
// The header of llm.c and 5 tokens.
inline std::string good_tokens() {
  std::string header = little(20240520, 4) + little(1, 4) + little(5, 4);
  header.resize(1024);
  return header + std::string("\0\0\1\0\2\0\3\1\4\0", 10);
}
inline std::string good_idx() { return idx_file({2, 3}, "abcdef"); }

}  // namespace graphsink
