// FileReader: the bytes of a file, gzipped or plain, read in pieces so that memory follows the data that is really
// there and never a size that a header claims.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "graphsink/error.h"

namespace graphsink {

class FileReader {
 public:
  // Throws Error for anything but a regular file that can be opened.
  FileReader(const std::filesystem::path& path, Where where);
  ~FileReader();
  FileReader(const FileReader&) = delete;
  FileReader& operator=(const FileReader&) = delete;

  // The next `count` bytes, fewer only at the end of the file. Throws Error for a gzip stream that is cut off or
  // damaged, and for what follows one and is neither another one nor zeros.
  std::vector<std::uint8_t> read(std::uint64_t count);
  // Whether all was read.
  bool is_at_end() { return read(1).empty(); }

  [[noreturn]] void refuse(const std::string& problem, const std::string& remedy) const;

 private:
  struct Gzip;

  // Bytes of the file as they are, of which none was used; empty at its end.
  std::span<const std::uint8_t> piece();
  // Reads a piece behind the first `kept` bytes of the buffer, which belong to it.
  void fill(std::size_t kept);
  // Fill `to`, from its begin on, and return how many bytes there were: fewer only at the end.
  std::size_t read_plain(std::span<std::uint8_t> to);
  std::size_t read_gzip(std::span<std::uint8_t> to);
  // Behind a member of a gzip stream: begins the next one. Returns false at the end of the file.
  bool begin_next_member();

  std::string name_;
  Where where_;
  std::ifstream file_;
  std::vector<std::uint8_t> buffer_;        // the piece of the file that was read last
  std::span<const std::uint8_t> unread_{};  // the part of it that was not used yet
  std::unique_ptr<Gzip> gzip_;              // null: the file is plain
};

}  // namespace graphsink
