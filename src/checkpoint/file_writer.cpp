#include "checkpoint/file_writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <system_error>
#include <utility>

namespace graphsink {
namespace {

// write() takes no more than this on Linux.
constexpr std::size_t kMostAtOnce = 0x7ffff000;

}  // namespace

FileWriter::FileWriter(std::filesystem::path path, Where where)
    : path_(std::move(path)), partial_(path_.string() + ".partial"), where_(where) {
  file_ = open(partial_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (file_ < 0) refuse("open", errno);
}

FileWriter::~FileWriter() {
  if (file_ < 0) return;
  close(file_);
  unlink(partial_.c_str());
}

void FileWriter::write(const void* data, std::size_t bytes) {
  const auto* next = static_cast<const char*>(data);
  while (bytes > 0) {
    ssize_t written = ::write(file_, next, std::min(bytes, kMostAtOnce));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) refuse("write", errno);
    next += written;
    bytes -= static_cast<std::size_t>(written);
  }
}

void FileWriter::commit() {
  if (fsync(file_) != 0) refuse("fsync", errno);
  if (rename(partial_.c_str(), path_.c_str()) != 0) refuse("rename", errno);
  close(std::exchange(file_, -1));
  // The name is durable when its directory is. Some file systems cannot sync one, and then nothing better can be done.
  std::filesystem::path directory = path_.has_parent_path() ? path_.parent_path() : ".";
  int handle = open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (handle < 0) return;
  int code = fsync(handle) == 0 ? 0 : errno;
  close(handle);
  if (code != 0 && code != EINVAL && code != ENOTSUP) refuse("fsync of the directory", code);
}

void FileWriter::refuse(const char* call, int code) const {
  throw Error(path_.string(), where_,
              std::string("cannot be written: ") + call + ": " + std::generic_category().message(code),
              "check the directory, its permissions and its free space");
}

}  // namespace graphsink
