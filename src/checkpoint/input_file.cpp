#include "checkpoint/input_file.h"

#include <cerrno>
#include <system_error>

#include "checkpoint/safetensors.h"

namespace graphsink {

InputFile::InputFile(const std::filesystem::path& path, Where where) : name_(path.string()), where_(where) {
  std::error_code code;
  std::filesystem::file_status status = std::filesystem::status(path, code);
  if (!std::filesystem::exists(status))
    refuse("cannot be opened: " + (code ? code.message() : "no such file"), "check the path");
  if (!std::filesystem::is_regular_file(status)) refuse("is not a regular file", "give the path of a checkpoint");
  errno = 0;
  stream_.open(path, std::ios::binary);
  // The size of the file that was opened, which a writer may have replaced since.
  stream_.seekg(0, std::ios::end);
  size_ = static_cast<std::uint64_t>(stream_.tellg());
  rewind();
  if (!stream_) {
    refuse("cannot be opened: " + std::generic_category().message(errno != 0 ? errno : EIO),
           "check the path and its permissions");
  }
}

void InputFile::read(void* to, std::uint64_t bytes) {
  stream_.read(static_cast<char*>(to), static_cast<std::streamsize>(bytes));
  if (!stream_) refuse("is truncated: it shrank while it was read", kWriteAgain);
}

void InputFile::refuse(const std::string& problem, const std::string& remedy) const {
  throw Error(name_, where_, problem, remedy, ErrorCode::io);
}

}  // namespace graphsink
