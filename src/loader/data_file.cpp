#include "loader/data_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "base/printable.h"

namespace graphsink {
namespace {

constexpr const char* kLeaveIt = "write a new file and rename it to this name, and leave the one that is read as it is";

FileStamp stamp_of(const struct stat& status) {
  return {static_cast<std::uint64_t>(status.st_size), status.st_mtim.tv_sec, status.st_mtim.tv_nsec};
}

}  // namespace

void Origin::refuse(const std::string& problem, const std::string& remedy) const {
  throw Error(file, where, member.empty() ? problem : kind + (" \"" + shortened(member)) + "\": " + problem, remedy,
              ErrorCode::io);
}

DataFile::DataFile(const std::filesystem::path& path, Where where) : origin_{path.string(), where} {
  // Without O_NONBLOCK, opening a pipe would wait for a writer.
  file_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file_ < 0) {
    origin_.refuse("cannot open: " + std::generic_category().message(errno), "check the path and its permissions");
  }
  struct stat opened {};
  if (::fstat(file_, &opened) != 0 || !S_ISREG(opened.st_mode)) {
    ::close(file_);
    origin_.refuse("is not a regular file", "give the path of a data file");
  }
  stamp_ = stamp_of(opened);
}

DataFile::DataFile(const std::filesystem::path& path, const FileStamp& expected, Where where) : DataFile(path, where) {
  require_unchanged(expected, stamp_);
}

DataFile::~DataFile() { ::close(file_); }

void DataFile::read(std::uint64_t begin, std::span<std::byte> to) const {
  const std::uint64_t end = begin + to.size();
  while (!to.empty()) {
    const ssize_t got = ::pread(file_, to.data(), to.size(), static_cast<off_t>(begin));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) origin_.refuse("cannot read: " + std::generic_category().message(errno), "check the disk");
    if (got == 0) {
      origin_.refuse("is truncated: expected " + std::to_string(end) + " bytes, seen the end of the file at " +
                         std::to_string(begin),
                     kLeaveIt);
    }
    to = to.subspan(static_cast<std::size_t>(got));
    begin += static_cast<std::uint64_t>(got);
  }
  struct stat now {};
  require_unchanged(stamp_, ::fstat(file_, &now) == 0 ? stamp_of(now) : FileStamp());
}

void DataFile::require_unchanged(const FileStamp& expected, const FileStamp& seen) const {
  if (seen == expected) return;
  origin_.refuse("was changed while it was in use: expected the " + std::to_string(expected.size) +
                     " bytes that it had when it was opened, seen another time of change and " +
                     std::to_string(seen.size) + " bytes",
                 kLeaveIt);
}

ByteRange::ByteRange(std::shared_ptr<const DataFile> file, std::uint64_t begin, std::uint64_t size, Origin origin)
    : file_(std::move(file)), begin_(begin), size_(size), origin_(std::move(origin)) {}

ByteRange::ByteRange(std::shared_ptr<const DataFile> file)
    : file_(std::move(file)), size_(file_->size()), origin_(file_->origin()) {}

ByteRange::ByteRange(std::vector<std::uint8_t> memory, Origin origin)
    : size_(memory.size()), memory_(std::move(memory)), origin_(std::move(origin)) {}

void ByteRange::read(std::uint64_t begin, std::span<std::byte> to) const {
  if (file_) {
    file_->read(begin_ + begin, to);
  } else if (!to.empty()) {
    std::memcpy(to.data(), memory_.data() + begin, to.size());
  }
}

}  // namespace graphsink
