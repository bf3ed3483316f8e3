// FileWriter: writes a file that replaces another one as a whole, or not at all, and shards that belong to it.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "graphsink/error.h"

namespace graphsink {

class FileWriter {
 public:
  // Creates "<path>.partial.<16 hex digits>", where the name of `path` is cut if the whole would be too long, and keeps
  // it locked (flock). Removes such files of this `path` that nobody has locked, because their writers have died, and
  // the shards of these. If `path` is a symbolic link, files are created beside the file that it leads to. A file that
  // replaces another one has its permissions from the beginning, and its owner and group where the system allows that.
  // All calls throw Error naming the path and the reason. Throws Error, too, if `path` is a directory, a device, a pipe
  // or a socket.
  FileWriter(std::filesystem::path path, Where where);
  // Removes what was not committed.
  ~FileWriter();
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;

  // Name of the file that `path` leads to.
  std::string file_name() const { return target_.filename().string(); }

  void write(const void* data, std::size_t bytes) { write_to(file_, data, bytes); }
  // Writes another file beside `path` and waits until it is on the disk. Returns its name, shard_name() with the digits
  // of this writer, to which only what is written to `path` can refer. Needs a name of `path` short enough for that.
  using Bytes = std::span<const std::byte>;
  std::string write_shard(std::size_t number, std::size_t count, std::span<const Bytes> parts);
  // Waits until everything is on the disk, then renames the file to `path`. If there are several writers, the last to
  // commit wins. Removes the shards of the index that was there.
  void commit();

 private:
  void open_partial();
  void write_to(int file, const void* data, std::size_t bytes) const;
  [[noreturn]] void refuse(const char* call, int code) const;

  std::filesystem::path path_;  // as given
  Where where_;
  std::filesystem::path target_;               // file that `path_` leads to
  std::filesystem::path partial_;              // beside the target
  std::string digits_;                         // at the end of the name of `partial_`
  std::vector<std::filesystem::path> shards_;  // that were not committed
  int file_ = -1;
};

// Removes the file that `path` leads to, and its shards if it is an index. Returns false if there is none. Files that
// killed writers of `path` left behind are removed in any case. Throws Error naming the path and the reason.
bool remove_file(const std::filesystem::path& path, Where where);

}  // namespace graphsink
