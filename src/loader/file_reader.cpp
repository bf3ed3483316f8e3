#include "loader/file_reader.h"

#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

namespace graphsink {
namespace {

constexpr std::uint64_t kPiece = 1 << 20;

}  // namespace

FileReader::FileReader(const std::filesystem::path& path, Where where) : name_(path.string()), where_(where) {
  std::error_code code;
  std::filesystem::file_status status = std::filesystem::status(path, code);
  if (!std::filesystem::exists(status)) {
    refuse("cannot open: " + (code ? code.message() : "no such file"), "check the path and its permissions");
  }
  // A directory, or a pipe that would block or never end.
  if (!std::filesystem::is_regular_file(status)) refuse("is not a regular file", "give the path of a data file");
  errno = 0;
  file_ = gzopen(path.c_str(), "rb");
  if (file_ == nullptr) {
    refuse("cannot open: " + std::generic_category().message(errno != 0 ? errno : ENOMEM),
           "check the path and its permissions");
  }
}

FileReader::~FileReader() { gzclose_r(file_); }

std::vector<std::uint8_t> FileReader::read(std::uint64_t count) {
  std::vector<std::uint8_t> bytes;
  while (bytes.size() < count) {
    std::size_t before = bytes.size();
    auto piece = static_cast<std::size_t>(std::min<std::uint64_t>(count - before, kPiece));
    bytes.resize(before + piece);
    int got = gzread(file_, bytes.data() + before, static_cast<unsigned>(piece));
    if (got < 0) refuse_stream();
    bytes.resize(before + static_cast<std::size_t>(got));
    if (static_cast<std::size_t>(got) < piece) break;
  }
  // A gzip stream that ends early is no failure of gzread: it returns what there was, and leaves Z_BUF_ERROR.
  int state = Z_OK;
  gzerror(file_, &state);
  if (bytes.size() < count && state != Z_OK) refuse_stream();
  return bytes;
}

void FileReader::refuse(const std::string& problem, const std::string& remedy) const {
  throw Error(name_, where_, problem, remedy, ErrorCode::io);
}

void FileReader::refuse_stream() const {
  int saved = errno;
  int state = Z_OK;
  const char* text = gzerror(file_, &state);
  if (state == Z_ERRNO) refuse("cannot read: " + std::generic_category().message(saved), "check the disk");
  if (state == Z_BUF_ERROR) {
    refuse("is truncated: expected the end of its gzip stream, seen the end of the file", "download the file again");
  }
  refuse(std::string("is damaged: expected a valid gzip stream, seen: ") + text, "download the file again");
}

}  // namespace graphsink
