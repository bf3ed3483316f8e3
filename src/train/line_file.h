// LineFile: a file to which lines are appended so that a kill leaves whole ones.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <string>
#include <string_view>

namespace graphsink {

class LineFile {
 public:
  // Opens the file, or makes it. All lines begin with `first`. A last line without an end, if it begins so, was left by
  // a writer that was killed in its midst, or whose disk was full, and is removed; behind another one a line is ended.
  // That is for regular files alone, which have one LineFile at a time (flock), where the file system has locks. Throws
  // std::system_error if the file cannot be opened: with EWOULDBLOCK if another LineFile has it, also of another
  // process.
  LineFile(const std::filesystem::path& path, std::string_view first);
  ~LineFile();  // does not write: call flush()
  LineFile(const LineFile&) = delete;
  LineFile& operator=(const LineFile&) = delete;

  // Takes a line, without its end. It is written with the next ones, some thousand bytes at once. Returns the code of
  // an error, or 0.
  int append(const std::string& line);
  // Gives all lines to the system, with one call of write(). Returns the code of an error, or 0.
  int flush();

 private:
  void end_last_line(const std::filesystem::path& path, std::string_view first);

  const pid_t process_;
  int file_ = -1;
  std::string lines_;  // those that are not written yet
};

}  // namespace graphsink
