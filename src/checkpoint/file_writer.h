// FileWriter: writes a file that replaces another one as a whole, or not at all.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>

#include "graphsink/error.h"

namespace graphsink {

class FileWriter {
 public:
  // Creates "<path>.partial.<16 hex digits>", where the name of `path` is cut if the whole would be too long, and keeps
  // it locked (flock). Removes such files of this `path` that nobody has locked: their writers have died. If `path` is
  // a symbolic link, the file is created beside the file that it leads to. A file that replaces another one has its
  // permissions from the beginning, and its owner and group where the system allows that. All calls throw Error naming
  // the path and the reason. Throws Error, too, if `path` is a directory, a device, a pipe or a socket.
  FileWriter(std::filesystem::path path, Where where);
  // Removes what was not committed.
  ~FileWriter();
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;

  void write(const void* data, std::size_t bytes);
  // Waits until everything is on the disk, then renames the file to `path`. If there are several writers, the last to
  // commit wins.
  void commit();

 private:
  void open_partial();
  [[noreturn]] void refuse(const char* call, int code) const;

  std::filesystem::path path_;     // as given
  std::filesystem::path target_;   // file that `path_` leads to
  std::filesystem::path partial_;  // beside the target
  Where where_;
  int file_ = -1;
};

}  // namespace graphsink
