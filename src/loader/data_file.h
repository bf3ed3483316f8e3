// DataFile: random access to the bytes of a file. ByteRange: a part of one, or bytes in memory that came from one.
#pragma once

#include <sys/stat.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "graphsink/error.h"

namespace graphsink {

// Where bytes come from, for messages.
struct Origin {
  std::string file;
  Where where{};         // line of the user that named the file
  std::string member{};  // part of an archive; empty: the whole file

  [[noreturn]] void refuse(const std::string& problem, const std::string& remedy) const;
};

// Reads with pread() and not from a mapping: a mapped page that somebody else cut off while it was read would end the
// process with SIGBUS, which a library cannot catch for its user, whereas pread() returns fewer bytes. A call takes
// about as long as a page fault, the page cache is the same, and no address space is needed for files larger than
// memory. Any number of threads may read at once.
class DataFile {
 public:
  // Throws Error for anything but a regular file that can be opened.
  DataFile(const std::filesystem::path& path, Where where);
  ~DataFile();
  DataFile(const DataFile&) = delete;
  DataFile& operator=(const DataFile&) = delete;

  std::uint64_t size() const noexcept { return static_cast<std::uint64_t>(opened_.st_size); }
  const Origin& origin() const noexcept { return origin_; }
  // Fills `to` with the bytes from `begin` on. Throws Error if there are fewer, or if the file was written to since it
  // was opened. If another file took its name, this one is still read.
  void read(std::uint64_t begin, std::span<std::byte> to) const;

 private:
  Origin origin_;
  int file_ = -1;
  struct stat opened_ {};  // size and time of the last change when it was opened
};

class ByteRange {
 public:
  // The bytes [begin, begin + size) of a file, which has them.
  ByteRange(std::shared_ptr<const DataFile> file, std::uint64_t begin, std::uint64_t size, Origin origin);
  explicit ByteRange(std::shared_ptr<const DataFile> file);  // all of them
  ByteRange(std::vector<std::uint8_t> memory, Origin origin);

  std::uint64_t size() const noexcept { return size_; }
  const Origin& origin() const noexcept { return origin_; }
  // Fills `to` with the bytes from `begin` on, which must be there. Throws Error as DataFile::read().
  void read(std::uint64_t begin, std::span<std::byte> to) const;

 private:
  std::shared_ptr<const DataFile> file_;  // null: bytes in memory
  std::uint64_t begin_ = 0;
  std::uint64_t size_ = 0;
  std::vector<std::uint8_t> memory_;
  Origin origin_;
};

}  // namespace graphsink
