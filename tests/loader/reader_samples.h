// Well-formed files of each reader, from which hostile ones are made.
#pragma once

#include <cstdint>
#include <fstream>
#include <string>
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
inline std::string good_idx() { return idx_file({2, 3}, "abcdef"); }

}  // namespace graphsink
