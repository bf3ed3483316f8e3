// FileWriter: a file that replaces another one at once, or not at all.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>

#include "graphsink/error.h"

namespace graphsink {

class FileWriter {
 public:
  // Opens "<path>.partial.<16 hex digits>", a new file beside `path`; beside the file that `path` leads to where it is
  // a symbolic link. All calls throw Error naming the path and the reason. Refused is a path to anything that exists
  // and is not a regular file: a directory, a device, a pipe, a socket.
  FileWriter(std::filesystem::path path, Where where);
  // Removes what was not committed.
  ~FileWriter();
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;

  void write(const void* data, std::size_t bytes);
  // Everything written is on the disk, and then it is `path`. Of several writers the last to commit wins.
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
