#include "train/folder_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

namespace graphsink {
namespace {

constexpr const char* kName = ".train.lock";
constexpr int kMostTries = 100;

[[noreturn]] void fail() { throw std::system_error(errno, std::generic_category()); }

int open_lock(int folder) {
  constexpr int kMode = O_CREAT | O_NOFOLLOW | O_CLOEXEC;
  const int file = openat(folder, kName, O_RDWR | kMode, 0666);  // NFS locks for writers alone
  return file < 0 && errno == EACCES ? openat(folder, kName, O_RDONLY | O_NOFOLLOW | O_CLOEXEC) : file;
}

}  // namespace

FolderLock::FolderLock(const std::filesystem::path& folder, const Log& log, const Where& where)
    : process_(getpid()), folder_(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
  bool is_mine = true;
  try {
    is_mine = lock();
  } catch (const std::system_error& e) {
    log.warn({folder.string(), " cannot be locked, so that nothing else may train in it: ", e.code().message()});
    release();
  }
  if (is_mine) return;
  release();
  throw Error(folder.string(), where, "another training writes its files in this folder",
              "choose another SaveOptions::folder, or wait until that one has ended, and the processes that it forked",
              ErrorCode::io);
}

FolderLock::~FolderLock() {
  if (file_ >= 0 && process_ == getpid()) {
    // Who has opened the file before sees that it is gone, and makes a new one.
    if (is_in_folder()) unlinkat(folder_, kName, 0);
    flock(file_, LOCK_UN);  // children of fork() have the file open, too
  }
  release();
}

bool FolderLock::lock() {
  if (folder_ < 0) fail();
  for (int tries = 0; tries < kMostTries; ++tries) {
    file_ = open_lock(folder_);
    if (file_ < 0) fail();
    if (flock(file_, LOCK_EX | LOCK_NB) != 0) {
      if (errno == EWOULDBLOCK) return false;
      fail();
    }
    if (is_in_folder()) return true;
    close(std::exchange(file_, -1));  // its holder has removed it between the two calls
  }
  return false;
}

bool FolderLock::is_in_folder() const {
  struct stat mine, there;
  return fstat(file_, &mine) == 0 && fstatat(folder_, kName, &there, AT_SYMLINK_NOFOLLOW) == 0 &&
         mine.st_dev == there.st_dev && mine.st_ino == there.st_ino;
}

void FolderLock::release() noexcept {
  if (file_ >= 0) close(std::exchange(file_, -1));
  if (folder_ >= 0) close(std::exchange(folder_, -1));
}

}  // namespace graphsink
