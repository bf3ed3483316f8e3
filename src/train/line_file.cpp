#include "train/line_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

namespace graphsink {
namespace {

constexpr std::size_t kAtOnce = 4096;

// Fills `to` with the bytes from `begin` on. Returns false if there are fewer, or they cannot be read.
bool read_at(int file, off_t begin, std::string& to) {
  return pread(file, to.data(), to.size(), begin) == static_cast<ssize_t>(to.size());
}

// Where the last line of a file of `size` bytes begins: behind the last '\n'. `size` if that cannot be read.
off_t begin_of_last_line(int file, off_t size) {
  for (off_t end = size; end > 0;) {
    std::string piece(static_cast<std::size_t>(std::min<off_t>(end, kAtOnce)), '\0');
    const off_t begin = end - static_cast<off_t>(piece.size());
    if (!read_at(file, begin, piece)) return size;
    const std::size_t last = piece.rfind('\n');
    if (last != std::string::npos) return begin + static_cast<off_t>(last) + 1;
    end = begin;
  }
  return 0;
}

}  // namespace

LineFile::LineFile(const std::filesystem::path& path, std::string_view first)
    : process_(getpid()), file_(::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666)) {
  if (file_ < 0) throw std::system_error(errno, std::generic_category());
  struct stat status;
  if (fstat(file_, &status) != 0 || !S_ISREG(status.st_mode)) return;
  if (flock(file_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    close(file_);
    throw std::system_error(EWOULDBLOCK, std::generic_category());
  }
  end_last_line(path, first);
}

LineFile::~LineFile() {
  if (process_ == getpid()) flock(file_, LOCK_UN);  // children of fork() have the file open, too
  close(file_);
}

void LineFile::end_last_line(const std::filesystem::path& path, std::string_view first) {
  struct stat status;
  if (fstat(file_, &status) != 0) return;
  const int reader = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (reader < 0) return;  // it may be written, and not read
  const off_t begin = begin_of_last_line(reader, status.st_size);
  std::string last(std::min(first.size(), static_cast<std::size_t>(status.st_size - begin)), '\0');
  const bool is_unfinished = !last.empty() && read_at(reader, begin, last);
  close(reader);
  if (!is_unfinished) return;
  const bool is_torn = first.starts_with(last);
  if (!is_torn || ftruncate(file_, begin) != 0) lines_ += '\n';
}

int LineFile::append(const std::string& line) {
  lines_ += line;
  lines_ += '\n';
  return lines_.size() < kAtOnce ? 0 : flush();
}

int LineFile::flush() {
  std::string_view left = lines_;
  while (!left.empty()) {
    const ssize_t written = ::write(file_, left.data(), left.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno;
    left.remove_prefix(static_cast<std::size_t>(written));
  }
  lines_.clear();
  return 0;
}

}  // namespace graphsink
