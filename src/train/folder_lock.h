// FolderLock: the folder of a training's files has one training that writes them.
#pragma once

#include <sys/types.h>

#include <filesystem>

#include "base/log.h"
#include "graphsink/error.h"

namespace graphsink {

// Holds a lock (flock) on a file in the folder, ".train.lock". The system releases it when the process ends, however it
// does, and all children of fork() that have it open. A file that a kill has left behind is taken by the next one.
class FolderLock {
 public:
  // Throws Error if another one holds it, of this process or another. Where the file system has no locks, the lock is
  // not there, which is logged.
  FolderLock(const std::filesystem::path& folder, const Log& log, const Where& where);
  ~FolderLock();  // in a child of fork() leaves it to the process that has made it
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  bool lock();                // false: another one holds it; throws std::system_error if there are no locks
  bool is_in_folder() const;  // nobody has removed the file, or put another in its place
  void release() noexcept;

  const pid_t process_;
  int folder_ = -1, file_ = -1;
};

}  // namespace graphsink
