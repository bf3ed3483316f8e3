#include "loader/file_reader.h"

#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <new>
#include <system_error>

namespace graphsink {
namespace {

constexpr std::size_t kPiece = 1 << 20;   // bytes that are added to a result at once
constexpr std::size_t kBuffer = 1 << 16;  // bytes that are read from the file at once
constexpr std::uint8_t kMemberMagic[] = {
    0x1f, 0x8b};  // the first bytes of a gzip stream, and of each of its members (RFC 1952)

bool begins_a_member(std::span<const std::uint8_t> bytes) {
  return bytes.size() >= 2 && bytes[0] == kMemberMagic[0] && bytes[1] == kMemberMagic[1];
}

}  // namespace

struct FileReader::Gzip {
  z_stream stream{};
  bool has_ended = false;  // all members were read

  Gzip() {
    constexpr int kOnlyGzip = 16;  // a flag of zlib, added to the size of the window
    if (inflateInit2(&stream, MAX_WBITS + kOnlyGzip) != Z_OK) throw std::bad_alloc();
  }
  ~Gzip() { inflateEnd(&stream); }
  Gzip(const Gzip&) = delete;
  Gzip& operator=(const Gzip&) = delete;
};

FileReader::FileReader(const std::filesystem::path& path, Where where) : name_(path.string()), where_(where) {
  std::error_code code;
  std::filesystem::file_status status = std::filesystem::status(path, code);
  if (!std::filesystem::exists(status)) {
    refuse("cannot open: " + (code ? code.message() : "no such file"), "check the path and its permissions");
  }
  // A directory, or a pipe that would block or never end.
  if (!std::filesystem::is_regular_file(status)) refuse("is not a regular file", "give the path of a data file");
  errno = 0;
  file_.open(path, std::ios::binary);
  if (!file_) {
    refuse("cannot open: " + std::generic_category().message(errno != 0 ? errno : ENOMEM),
           "check the path and its permissions");
  }
  buffer_.resize(kBuffer);
  if (begins_a_member(piece())) gzip_ = std::make_unique<Gzip>();
}

FileReader::~FileReader() = default;

std::vector<std::uint8_t> FileReader::read(std::uint64_t count) {
  std::vector<std::uint8_t> bytes;
  while (bytes.size() < count) {
    const std::size_t before = bytes.size();
    bytes.resize(before + static_cast<std::size_t>(std::min<std::uint64_t>(count - before, kPiece)));
    const std::span<std::uint8_t> to = std::span(bytes).subspan(before);
    const std::size_t got = gzip_ ? read_gzip(to) : read_plain(to);
    if (got == to.size()) continue;
    bytes.resize(before + got);
    break;
  }
  return bytes;
}

std::span<const std::uint8_t> FileReader::piece() {
  if (unread_.empty()) fill(0);
  return unread_;
}

void FileReader::fill(std::size_t kept) {
  errno = 0;
  file_.read(reinterpret_cast<char*>(buffer_.data() + kept), static_cast<std::streamsize>(buffer_.size() - kept));
  if (file_.bad())
    refuse("cannot read: " + std::generic_category().message(errno != 0 ? errno : EIO), "check the disk");
  unread_ = std::span(buffer_).first(kept + static_cast<std::size_t>(file_.gcount()));
}

std::size_t FileReader::read_plain(std::span<std::uint8_t> to) {
  std::size_t got = 0;
  while (got < to.size() && !piece().empty()) {
    const std::size_t part = std::min(to.size() - got, unread_.size());
    std::copy_n(unread_.begin(), part, to.begin() + static_cast<std::ptrdiff_t>(got));
    unread_ = unread_.subspan(part);
    got += part;
  }
  return got;
}

std::size_t FileReader::read_gzip(std::span<std::uint8_t> to) {
  z_stream& stream = gzip_->stream;
  stream.next_out = to.data();
  stream.avail_out = static_cast<unsigned>(to.size());
  while (stream.avail_out > 0 && !gzip_->has_ended) {
    if (piece().empty())
      refuse("is truncated: expected the end of its gzip stream, seen the end of the file", "download the file again");
    stream.next_in = const_cast<std::uint8_t*>(unread_.data());  // zlib only reads it
    stream.avail_in = static_cast<unsigned>(unread_.size());
    const int code = inflate(&stream, Z_NO_FLUSH);
    unread_ = unread_.last(stream.avail_in);
    if (code == Z_STREAM_END) {
      gzip_->has_ended = !begin_next_member();
    } else if (code == Z_MEM_ERROR) {
      throw std::bad_alloc();
    } else if (code != Z_OK) {
      refuse("is damaged: expected a valid gzip stream, seen: " +
                 std::string(stream.msg != nullptr ? stream.msg : zError(code)),
             "download the file again");
    }
  }
  return to.size() - stream.avail_out;
}

bool FileReader::begin_next_member() {
  if (piece().empty()) return false;
  if (unread_.size() == 1) {  // the two bytes that tell may lie in two pieces
    buffer_[0] = unread_[0];
    fill(1);
  }
  if (begins_a_member(unread_)) {
    inflateReset(&gzip_->stream);
    return true;
  }
  // Tapes and disks of fixed blocks leave zeros.
  for (; !piece().empty(); unread_ = {})
    if (std::any_of(unread_.begin(), unread_.end(), [](std::uint8_t byte) { return byte != 0; }))
      refuse("is damaged: expected another gzip stream or the end of the file behind one, seen other bytes",
             "download the file again");
  return false;
}

void FileReader::refuse(const std::string& problem, const std::string& remedy) const {
  throw Error(name_, where_, problem, remedy, ErrorCode::io);
}

}  // namespace graphsink
