// FileWriter: a file that replaces another one at once, or not at all.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>

#include "graphsink/error.h"

namespace graphsink {

class FileWriter {
 public:
  // Opens "<path>.partial", emptied if it is there. All calls throw Error naming the path and the system's reason.
  FileWriter(std::filesystem::path path, Where where);
  // Removes what was not committed.
  ~FileWriter();
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;

  void write(const void* data, std::size_t bytes);
  // Everything written is on the disk, and then it is `path`.
  void commit();

 private:
  [[noreturn]] void refuse(const char* call, int code) const;

  std::filesystem::path path_;
  std::filesystem::path partial_;
  Where where_;
  int file_ = -1;
};

}  // namespace graphsink
