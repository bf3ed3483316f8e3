// DataFile: random access to the bytes of a file. ByteRange: a part of one, or bytes in memory that came from one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "graphsink/error.h"
#include "graphsink/version.h"

namespace graphsink {

// Where bytes come from, for messages.
struct GRAPHSINK_PUBLIC Origin {
  std::string file;
  Where where{};               // line of the user that named the file
  std::string member{};        // part of an archive; empty: the whole file
  const char* kind = "array";  // kind of these parts

  [[noreturn]] void refuse(const std::string& problem, const std::string& remedy) const;
};

// Size and time of the last change: a file that was written to has others.
struct GRAPHSINK_PUBLIC FileStamp {
  std::uint64_t size = 0;
  std::int64_t seconds = 0, nanoseconds = 0;
  friend bool operator==(const FileStamp&, const FileStamp&) = default;
};

// Reads with pread() and not from a mapping: a mapped page that somebody else cut off while it was read would end the
// process with SIGBUS, which a library cannot catch for its user, whereas pread() returns fewer bytes. A call takes
// about as long as a page fault, the page cache is the same, and no address space is needed for files larger than
// memory. Any number of threads may read at once.
// It is visible outside of the shared library, because graphsink_images, a library of its own, reads with it.
class GRAPHSINK_PUBLIC DataFile {
 public:
  // Throws Error for anything but a regular file that can be opened.
  DataFile(const std::filesystem::path& path, Where where);
  // Throws Error, too, for a file that was changed since it had this stamp.
  DataFile(const std::filesystem::path& path, const FileStamp& expected, Where where);
  ~DataFile();
  DataFile(const DataFile&) = delete;
  DataFile& operator=(const DataFile&) = delete;

  std::uint64_t size() const noexcept { return stamp_.size; }
  const FileStamp& stamp() const noexcept { return stamp_; }  // when it was opened
  const Origin& origin() const noexcept { return origin_; }
  // Fills `to` with the bytes from `begin` on. Throws Error if there are fewer, or if the file was written to since it
  // was opened. If another file took its name, this one is still read.
  void read(std::uint64_t begin, std::span<std::byte> to) const;

 private:
  void require_unchanged(const FileStamp& expected, const FileStamp& seen) const;

  Origin origin_;
  int file_ = -1;
  FileStamp stamp_;
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
