#include "loader/zip.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "base/printable.h"

namespace graphsink {
namespace {

constexpr const char* kZipAgain = "copy the file again, or write it again with numpy.savez()";
constexpr std::uint64_t kMostDirectory = 1 << 24;  // bytes; a member takes about 60
constexpr std::uint64_t kInflateBytes = 1 << 16;
constexpr std::uint32_t kEnd = 0x06054b50, kWideEnd = 0x06064b50, kWideLocator = 0x07064b50;
constexpr std::uint32_t kEntry = 0x02014b50, kLocal = 0x04034b50;
constexpr std::uint64_t kEndBytes = 22, kWideEndBytes = 56, kLocatorBytes = 20, kEntryBytes = 46, kLocalBytes = 30;

// Little-endian numbers of a block of bytes; asking for one beyond its end is refused.
class Block {
 public:
  Block(std::vector<std::byte> bytes, const Origin& origin) : bytes_(std::move(bytes)), origin_(&origin) {}

  std::uint64_t size() const { return bytes_.size(); }
  std::uint64_t number(std::uint64_t at, std::uint64_t digits) const {
    need(at, digits);
    std::uint64_t value = 0;
    for (std::uint64_t i = 0; i < digits; ++i) value |= std::to_integer<std::uint64_t>(bytes_[at + i]) << (8 * i);
    return value;
  }
  std::uint64_t u16(std::uint64_t at) const { return number(at, 2); }
  std::uint64_t u32(std::uint64_t at) const { return number(at, 4); }
  std::uint64_t u64(std::uint64_t at) const { return number(at, 8); }
  std::string text(std::uint64_t at, std::uint64_t size) const {
    need(at, size);
    return {reinterpret_cast<const char*>(bytes_.data()) + at, static_cast<std::size_t>(size)};
  }

 private:
  void need(std::uint64_t at, std::uint64_t size) const {
    if (at > bytes_.size() || size > bytes_.size() - at) origin_->refuse("its zip directory is cut off", kZipAgain);
  }

  std::vector<std::byte> bytes_;
  const Origin* origin_;
};

Block read_block(const DataFile& file, std::uint64_t begin, std::uint64_t size) {
  if (begin > file.size() || size > file.size() - begin) {
    file.origin().refuse("its zip directory names bytes " + std::to_string(begin) + " to " +
                             std::to_string(begin + size) + " of a file of " + std::to_string(file.size()),
                         kZipAgain);
  }
  std::vector<std::byte> bytes(static_cast<std::size_t>(size));
  file.read(begin, bytes);
  return {std::move(bytes), file.origin()};
}

struct Directory {
  std::uint64_t begin = 0, size = 0, entries = 0;
};

// The record at the end of an archive, before a comment of up to 65,535 bytes.
Directory find_directory(const DataFile& file) {
  const Origin& origin = file.origin();
  const std::uint64_t tail_size = std::min<std::uint64_t>(file.size(), kEndBytes + 65535);
  const std::uint64_t tail_begin = file.size() - tail_size;
  const Block tail = read_block(file, tail_begin, tail_size);
  std::optional<std::uint64_t> found;
  for (std::uint64_t at = tail_size; at-- > 0 && !found;) {
    if (tail_size - at < kEndBytes || tail.u32(at) != kEnd) continue;
    if (at + kEndBytes + tail.u16(at + 20) == tail_size) found = at;
  }
  if (!found) {
    origin.refuse("is no zip archive, or is truncated: expected the end of its directory",
                  "give a file of numpy.savez(), and copy it again if it is one");
  }
  const std::uint64_t at = *found;
  std::uint64_t end = tail_begin + at;  // where the directory must end
  Directory directory{tail.u32(at + 16), tail.u32(at + 12), tail.u16(at + 10)};
  std::uint64_t disk = tail.u16(at + 4), first_disk = tail.u16(at + 6), here = tail.u16(at + 8);
  const bool is_wide = directory.begin == 0xffffffff || directory.size == 0xffffffff || directory.entries == 0xffff;
  if (is_wide && end >= kLocatorBytes + kWideEndBytes) {
    const Block locator = read_block(file, end - kLocatorBytes, kLocatorBytes);
    if (locator.u32(0) == kWideLocator) {
      const std::uint64_t begin = locator.u64(8);
      if (begin > end - kLocatorBytes - kWideEndBytes)
        origin.refuse("its zip directory lies outside of the file", kZipAgain);
      const Block wide = read_block(file, begin, kWideEndBytes);
      if (wide.u32(0) != kWideEnd) origin.refuse("its zip directory has no end record for large files", kZipAgain);
      directory = {wide.u64(48), wide.u64(40), wide.u64(32)};
      disk = wide.u32(16);
      first_disk = wide.u32(20);
      here = wide.u64(24);
      end = begin;
    }
  }
  if (disk != 0 || first_disk != 0 || here != directory.entries) {
    origin.refuse("is one of several parts of a zip archive", "join the parts");
  }
  if (directory.size > kMostDirectory || directory.begin > end || directory.size != end - directory.begin) {
    origin.refuse("expected a zip directory of at most " + std::to_string(kMostDirectory) +
                      " bytes that ends at byte " + std::to_string(end) + ", seen " + std::to_string(directory.size) +
                      " bytes from " + std::to_string(directory.begin),
                  kZipAgain);
  }
  if (directory.entries > directory.size / kEntryBytes) {
    origin.refuse("its zip directory says " + std::to_string(directory.entries) + " members, and has only " +
                      std::to_string(directory.size) + " bytes",
                  kZipAgain);
  }
  return directory;
}

// An entry's sizes and place that do not fit 32 bits stand in an extra field, in this order.
struct WideNumbers {
  std::uint64_t unpacked, packed, local;
};
void read_wide(const Block& block, std::uint64_t begin, std::uint64_t size, WideNumbers& numbers,
               const Origin& origin) {
  const std::uint64_t end = begin + size;
  for (std::uint64_t at = begin; end - at >= 4;) {
    const std::uint64_t tag = block.u16(at), length = block.u16(at + 2);
    at += 4;
    if (length > end - at) origin.refuse("its zip directory has an extra field that is cut off", kZipAgain);
    if (tag == 1) {
      std::uint64_t next = at;
      for (std::uint64_t* number : {&numbers.unpacked, &numbers.packed, &numbers.local}) {
        if (*number != 0xffffffff || next + 8 > at + length) continue;
        *number = block.u64(next);
        next += 8;
      }
    }
    at += length;
  }
}

// An entry of the directory, without the place of its data; `next` becomes the place of the entry behind it.
struct Entry {
  ZipMember member;
  std::uint64_t local = 0;  // its header in front of the data
};
Entry read_entry(const Block& block, std::uint64_t& next, const DataFile& file) {
  Origin origin = file.origin();
  const std::uint64_t at = next;
  if (block.u32(at) != kEntry) origin.refuse("its zip directory has an entry that begins otherwise", kZipAgain);
  const std::uint64_t flags = block.u16(at + 8), method = block.u16(at + 10);
  const std::uint64_t name = block.u16(at + 28), extra = block.u16(at + 30), comment = block.u16(at + 32);
  Entry entry;
  entry.member.name = origin.member = block.text(at + kEntryBytes, name);
  entry.member.crc = static_cast<std::uint32_t>(block.u32(at + 16));
  entry.member.is_compressed = method != 0;
  WideNumbers numbers{block.u32(at + 24), block.u32(at + 20), block.u32(at + 42)};
  block.text(at + kEntryBytes + name, extra);  // which must be there
  read_wide(block, at + kEntryBytes + name, extra, numbers, origin);
  entry.member.unpacked = numbers.unpacked;
  entry.member.packed = numbers.packed;
  entry.local = numbers.local;
  if ((flags & 1) != 0) origin.refuse("is encrypted", "write it without a password");
  if (method != 0 && method != 8) {
    origin.refuse(
        "expected a member that is stored (0) or deflated (8), seen compression method " + std::to_string(method),
        "write it with numpy.savez() or numpy.savez_compressed()");
  }
  if (method == 0 && numbers.packed != numbers.unpacked) {
    origin.refuse("is stored: expected equal sizes, seen " + std::to_string(numbers.packed) +
                      " bytes in the file and " + std::to_string(numbers.unpacked) + " unpacked",
                  kZipAgain);
  }
  next = at + kEntryBytes + name + extra + comment;
  return entry;
}

// The place of the data, behind the header in front of it, which must have the same name.
void find_data(Entry& entry, const DataFile& file, std::uint64_t directory) {
  Origin origin = file.origin();
  origin.member = entry.member.name;
  auto refuse = [&] { origin.refuse("its zip directory does not say where it is", kZipAgain); };
  if (entry.local > directory || directory - entry.local < kLocalBytes) refuse();
  const Block local = read_block(file, entry.local, kLocalBytes);
  const std::uint64_t name = local.u16(26), extra = local.u16(28);
  entry.member.begin = entry.local + kLocalBytes + name + extra;
  if (local.u32(0) != kLocal || name != entry.member.name.size()) refuse();
  if (entry.member.begin > directory || entry.member.packed > directory - entry.member.begin) refuse();
  if (read_block(file, entry.local + kLocalBytes, name).text(0, name) != entry.member.name) refuse();
}

// A stream of zlib that unpacks the bytes of a member.
class Inflater {
 public:
  Inflater() { is_ready_ = inflateInit2(&stream_, -15) == Z_OK; }  // without a header of zlib
  ~Inflater() { inflateEnd(&stream_); }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;

  bool is_ready() const { return is_ready_; }
  bool is_done() const { return is_done_; }
  bool needs_input() const { return stream_.avail_in == 0; }
  std::uint64_t unused_input() const { return stream_.avail_in; }
  void give(std::span<std::byte> input) {
    stream_.next_in = reinterpret_cast<Bytef*>(input.data());
    stream_.avail_in = static_cast<uInt>(input.size());
  }
  // How many bytes were written; none for a stream that is damaged.
  std::optional<std::size_t> take(std::span<std::uint8_t> output) {
    stream_.next_out = output.data();
    stream_.avail_out = static_cast<uInt>(output.size());
    const int result = inflate(&stream_, Z_NO_FLUSH);
    is_done_ = result == Z_STREAM_END;
    if (!is_done_ && result != Z_OK && result != Z_BUF_ERROR) return std::nullopt;
    return output.size() - stream_.avail_out;
  }

 private:
  z_stream stream_{};
  bool is_ready_ = false, is_done_ = false;
};

std::vector<std::uint8_t> unpack(const ByteRange& packed, std::uint64_t unpacked, const Origin& origin) {
  Inflater inflater;
  if (!inflater.is_ready()) origin.refuse("zlib has no memory to unpack it", "free memory");
  std::vector<std::uint8_t> bytes;
  std::vector<std::byte> input(static_cast<std::size_t>(std::min(kInflateBytes, packed.size())));
  std::uint64_t read = 0;
  std::array<std::uint8_t, kInflateBytes> output;
  while (!inflater.is_done()) {
    if (inflater.needs_input() && read < packed.size()) {
      const std::span<std::byte> piece(input.data(),
                                       static_cast<std::size_t>(std::min(kInflateBytes, packed.size() - read)));
      packed.read(read, piece);
      read += piece.size();
      inflater.give(piece);
    }
    const std::optional<std::size_t> got = inflater.take(output);
    if (!got) origin.refuse("is damaged: expected a valid deflate stream", kZipAgain);
    if (*got > unpacked - bytes.size()) {
      origin.refuse("is damaged: expected " + std::to_string(unpacked) + " bytes unpacked, seen more", kZipAgain);
    }
    if (*got == 0 && !inflater.is_done() && inflater.needs_input() && read == packed.size()) {
      origin.refuse("is truncated: expected the end of its deflate stream", kZipAgain);
    }
    // Twice as much each time, and never more than there is to be.
    if (bytes.capacity() < bytes.size() + *got)
      bytes.reserve(static_cast<std::size_t>(std::min<std::uint64_t>(unpacked, 2 * bytes.capacity() + kInflateBytes)));
    bytes.insert(bytes.end(), output.begin(), output.begin() + static_cast<std::ptrdiff_t>(*got));
  }
  if (bytes.size() != unpacked || inflater.unused_input() != 0 || read != packed.size()) {
    origin.refuse("is damaged: expected " + std::to_string(packed.size()) + " bytes that hold " +
                      std::to_string(unpacked) + ", seen " + std::to_string(read - inflater.unused_input()) +
                      " that hold " + std::to_string(bytes.size()),
                  kZipAgain);
  }
  return bytes;
}

}  // namespace

ByteRange ZipMember::open(const std::shared_ptr<const DataFile>& file, std::uint64_t most) const {
  Origin origin = file->origin();
  origin.member = name;
  ByteRange range(file, begin, packed, origin);
  if (!is_compressed) return range;
  if (unpacked > most) {
    origin.refuse(
        "takes too much memory: expected at most " + std::to_string(most) + " bytes unpacked, seen " +
            std::to_string(unpacked),
        "write it with numpy.savez(), which does not compress, or allow more (NpzSourceOptions::most_unpacked)");
  }
  std::vector<std::uint8_t> bytes = unpack(range, unpacked, origin);
  const auto seen = static_cast<std::uint32_t>(crc32_z(0, bytes.data(), bytes.size()));
  if (seen != crc) origin.refuse("is damaged: its checksum differs", kZipAgain);
  return {std::move(bytes), origin};
}

std::vector<ZipMember> read_zip_directory(const DataFile& file) {
  const Origin& origin = file.origin();
  const Directory directory = find_directory(file);
  const Block block = read_block(file, directory.begin, directory.size);
  std::vector<Entry> entries;
  std::uint64_t next = 0;
  for (std::uint64_t i = 0; i < directory.entries; ++i) {
    entries.push_back(read_entry(block, next, file));
    find_data(entries.back(), file, directory.begin);
  }
  if (next != block.size()) origin.refuse("its zip directory holds more than its members", kZipAgain);

  // Members over each other would be unpacked to many times the size of the file.
  std::vector<const Entry*> sorted;
  for (const Entry& entry : entries) sorted.push_back(&entry);
  std::sort(sorted.begin(), sorted.end(), [](const Entry* a, const Entry* b) { return a->local < b->local; });
  for (std::size_t i = 1; i < sorted.size(); ++i) {
    const ZipMember& before = sorted[i - 1]->member;
    if (sorted[i]->local < before.begin + before.packed) origin.refuse("its members lie over each other", kZipAgain);
  }
  std::sort(sorted.begin(), sorted.end(),
            [](const Entry* a, const Entry* b) { return a->member.name < b->member.name; });
  for (std::size_t i = 1; i < sorted.size(); ++i) {
    if (sorted[i]->member.name == sorted[i - 1]->member.name) {
      origin.refuse("two members have the name \"" + shortened(sorted[i]->member.name) + "\"", kZipAgain);
    }
  }
  std::vector<ZipMember> members;
  for (Entry& entry : entries) members.push_back(std::move(entry.member));
  return members;
}

}  // namespace graphsink
