#include "checkpoint/file_writer.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <memory>
#include <random>
#include <string_view>
#include <system_error>
#include <utility>

namespace graphsink {
namespace {

namespace fs = std::filesystem;

// write() takes no more than this on Linux.
constexpr std::size_t kMostAtOnce = 0x7ffff000;
constexpr int kMostLinks = 40;  // as many as the kernel follows
constexpr int kMostTries = 100;
constexpr std::string_view kPartial = ".partial.";
constexpr std::size_t kDigits = 16;  // behind it

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

std::string random_digits() {
  std::random_device random;
  char digits[kDigits + 1];
  std::snprintf(digits, sizeof digits, "%08x%08x", random(), random());
  return digits;
}

fs::path directory_of(const fs::path& path) { return path.has_parent_path() ? path.parent_path() : "."; }

// With what the names of temporary files begin: the name of the file, as much of it as leaves room for the rest.
std::string partial_prefix(const fs::path& target) {
  std::string name = target.filename().string();
  const long most = pathconf(directory_of(target).c_str(), _PC_NAME_MAX);
  const std::size_t room = static_cast<std::size_t>(most > 0 ? most : NAME_MAX) - kPartial.size() - kDigits;
  if (name.size() > room) {
    std::size_t end = room;
    while (end > 0 && (static_cast<unsigned char>(name[end]) & 0xc0) == 0x80) --end;  // between characters of UTF-8
    name.resize(end);
  }
  return name += kPartial;
}

// A writer keeps a lock on its file for as long as it lives. Returns false if another writer has taken the file for
// left behind, between its creation and this.
bool lock_new(int file) {
  struct stat status;
  if (flock(file, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) return false;
  return fstat(file, &status) == 0 && status.st_nlink > 0;
}

// Removes a temporary file whose writer has died: nobody has it locked.
void remove_if_left_behind(const fs::path& path) {
  const int file = ::open(path.c_str(), O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (file < 0) return;
  struct stat status;
  if (fstat(file, &status) == 0 && S_ISREG(status.st_mode) && flock(file, LOCK_EX | LOCK_NB) == 0) unlink(path.c_str());
  close(file);
}

void remove_left_behind(const fs::path& directory, const std::string& prefix) {
  // Not by std::filesystem, whose iterators end the process when there is no memory for them.
  auto close_directory = [](DIR* open) { closedir(open); };
  const std::unique_ptr<DIR, decltype(close_directory)> entries(opendir(directory.c_str()));
  if (!entries) return;  // a directory that cannot be listed can still be written
  while (const dirent* entry = readdir(entries.get())) {
    const std::string_view name = entry->d_name;
    if (name.starts_with(prefix) && name.size() == prefix.size() + kDigits &&
        name.find_first_not_of("0123456789abcdef", prefix.size()) == name.npos)
      remove_if_left_behind(directory / name);
  }
}

// Gives a new file the permissions of the one that it replaces, and its owner and group where the system allows that.
// If it does not, the members of the new group may do no more than everybody could.
void keep_access(int file, const struct stat& old) {
  mode_t mode = old.st_mode & 0777;
  struct stat now;
  if (fstat(file, &now) != 0) return;
  if (now.st_gid != old.st_gid && fchown(file, static_cast<uid_t>(-1), old.st_gid) != 0)
    mode &= 0707u | (mode & 7u) << 3;
  if (now.st_uid == old.st_uid || fchown(file, old.st_uid, static_cast<gid_t>(-1)) == 0 || errno == EPERM)
    fchmod(file, mode);
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
        "name a file", ErrorCode::io);
  }
  open_partial();
}

void FileWriter::open_partial() {
  const fs::path directory = directory_of(target_);
  const std::string prefix = partial_prefix(target_);
  remove_left_behind(directory, prefix);
  struct stat old;
  const bool is_replaced = stat(target_.c_str(), &old) == 0;
  for (int tries = 0; tries < kMostTries; ++tries) {
    partial_ = directory / (prefix + random_digits());
    // O_EXCL follows no symbolic link, and opens nothing that is there. Whoever may not read the old file may not read
    // the new one either, at no time.
    const int file = ::open(partial_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, is_replaced ? 0600 : 0666);
    if (file < 0 && errno == EEXIST) continue;
    if (file < 0) refuse("open", errno);
    if (lock_new(file)) {
      if (is_replaced) keep_access(file, old);
      file_ = file;
      return;
    }
    unlink(partial_.c_str());
    close(file);
  }
  refuse("lock", EWOULDBLOCK);
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
  int handle = ::open(directory_of(target_).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (handle < 0) return;
  int code = fsync(handle) == 0 ? 0 : errno;
  close(handle);
  if (code != 0 && code != EINVAL && code != ENOTSUP) refuse("fsync of the directory", code);
}

void FileWriter::refuse(const char* call, int code) const {
  throw Error(path_.string(), where_,
              std::string("cannot be written: ") + call + ": " + std::generic_category().message(code),
              code == ENOENT ? "make its directory first" : "check the directory, its permissions and its free space",
              ErrorCode::io);
}

}  // namespace graphsink
