// FileReader: the bytes of a file, gzipped or plain, read in pieces so that memory follows the data that is really
// there and never a size that a header claims.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "graphsink/error.h"

struct gzFile_s;

namespace graphsink {

class FileReader {
 public:
  // Throws Error for anything but a regular file that can be opened.
  FileReader(const std::filesystem::path& path, Where where);
  ~FileReader();
  FileReader(const FileReader&) = delete;
  FileReader& operator=(const FileReader&) = delete;

  // The next `count` bytes, fewer only at the end of the file. Throws Error for a gzip stream that is cut off or
  // damaged.
  std::vector<std::uint8_t> read(std::uint64_t count);
  // Whether all was read.
  bool is_at_end() { return read(1).empty(); }

  [[noreturn]] void refuse(const std::string& problem, const std::string& remedy) const;

 private:
  [[noreturn]] void refuse_stream() const;

  std::string name_;
  Where where_;
  gzFile_s* file_ = nullptr;
};

}  // namespace graphsink
