// FileWriter: writes a file that replaces another one as a whole, or not at all.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>

#include "graphsink/error.h"

namespace graphsink {

class FileWriter {
 public:
  // Creates "<path>.partial.<16 hex digits>". If `path` is a symbolic link, the file is created beside the file that it
  // leads to. All calls throw Error naming the path and the reason. Throws Error, too, if `path` is a directory, a
  // device, a pipe or a socket.
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
  std::filesystem::path target_;   // what it leads to
  std::filesystem::path partial_;  // beside the target
  Where where_;
  int file_ = -1;
};

}  // namespace graphsink
