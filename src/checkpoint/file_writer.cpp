#include "checkpoint/file_writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <random>
#include <system_error>
#include <utility>

namespace graphsink {
namespace {

namespace fs = std::filesystem;

// write() takes no more than this on Linux.
constexpr std::size_t kMostAtOnce = 0x7ffff000;
constexpr int kMostLinks = 40;  // as many as the kernel follows

const char* kind_of(fs::file_type type) {
  switch (type) {
    case fs::file_type::directory:
      return "a directory";
    case fs::file_type::block:
    case fs::file_type::character:
      return "a device";
    case fs::file_type::fifo:
      return "a pipe";
    case fs::file_type::socket:
      return "a socket";
    default:
      return "not a regular file";
  }
}

// The file, there or not, that a path leads to through symbolic links.
fs::path follow_links(fs::path path, std::error_code& code) {
  for (int links = 0; fs::is_symlink(fs::symlink_status(path, code)); ++links) {
    if (links == kMostLinks) {
      code = std::make_error_code(std::errc::too_many_symbolic_link_levels);
      return path;
    }
    fs::path target = fs::read_symlink(path, code);
    if (code) return path;
    path = path.parent_path() / target;  // which is `target` where that is absolute
  }
  if (code == std::errc::no_such_file_or_directory) code.clear();
  return path;
}

std::string random_name() {
  std::random_device random;
  char name[32];
  std::snprintf(name, sizeof name, ".partial.%08x%08x", random(), random());
  return name;
}

}  // namespace

FileWriter::FileWriter(fs::path path, Where where) : path_(std::move(path)), where_(where) {
  std::error_code code;
  target_ = follow_links(path_, code);
  if (code) refuse("open", code.value());
  fs::file_status status = fs::status(target_, code);
  bool is_directory = fs::is_directory(status) || !target_.has_filename();
  if (is_directory || (fs::exists(status) && !fs::is_regular_file(status))) {
    throw Error(
        path_.string(), where_,
        "cannot be written: it is " + std::string(kind_of(is_directory ? fs::file_type::directory : status.type())),
        "name a file");
  }
  open_partial();
}

void FileWriter::open_partial() {
  do {
    partial_ = target_;
    partial_ += random_name();
    // O_EXCL follows no symbolic link, and opens nothing that is there.
    file_ = open(partial_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  } while (file_ < 0 && errno == EEXIST);
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
  if (rename(partial_.c_str(), target_.c_str()) != 0) refuse("rename", errno);
  close(std::exchange(file_, -1));
  // The name is durable when its directory is. Some file systems cannot sync one, and then nothing better can be done.
  fs::path directory = target_.has_parent_path() ? target_.parent_path() : ".";
  int handle = open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (handle < 0) return;
  int code = fsync(handle) == 0 ? 0 : errno;
  close(handle);
  if (code != 0 && code != EINVAL && code != ENOTSUP) refuse("fsync of the directory", code);
}

void FileWriter::refuse(const char* call, int code) const {
  throw Error(path_.string(), where_,
              std::string("cannot be written: ") + call + ": " + std::generic_category().message(code),
              code == ENOENT ? "make its directory first" : "check the directory, its permissions and its free space");
}

}  // namespace graphsink
