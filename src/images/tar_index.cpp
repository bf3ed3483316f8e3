#include "images/tar_index.h"

#include <archive.h>
#include <archive_entry.h>

#include <algorithm>
#include <array>
#include <exception>
#include <memory>
#include <new>
#include <utility>

namespace graphsink {
namespace {

constexpr std::uint64_t kTarBlock = 512;
constexpr std::size_t kTarRead = 1 << 14;  // bytes that libarchive reads at a time
constexpr const char* kTarAgain = "copy the tar file again, or write it again";

// The bytes that libarchive reads: those of the file that is open, because another one may have taken its name since.
struct TarBytes {
  const DataFile& file;
  std::uint64_t at = 0;
  std::array<std::byte, kTarRead> block{};
  std::exception_ptr error{};  // error of the last read, which must not leave through functions of C
};

la_ssize_t read_block(archive*, void* client, const void** block) {
  auto& bytes = *static_cast<TarBytes*>(client);
  const std::uint64_t size = std::min<std::uint64_t>(bytes.block.size(), bytes.file.size() - bytes.at);
  *block = bytes.block.data();
  try {
    bytes.file.read(bytes.at, std::span(bytes.block).first(static_cast<std::size_t>(size)));
  } catch (...) {
    bytes.error = std::current_exception();
    return ARCHIVE_FATAL;
  }
  bytes.at += size;
  return static_cast<la_ssize_t>(size);
}

la_int64_t skip_bytes(archive*, void* client, la_int64_t request) {
  auto& bytes = *static_cast<TarBytes*>(client);
  const std::uint64_t size = std::min(static_cast<std::uint64_t>(request), bytes.file.size() - bytes.at);
  bytes.at += size;
  return static_cast<la_int64_t>(size);
}

struct FreeArchive {
  void operator()(archive* tar) const noexcept { archive_read_free(tar); }
};

[[noreturn]] void refuse_tar(archive* tar, const TarBytes& bytes) {
  if (bytes.error) std::rethrow_exception(bytes.error);
  const char* text = archive_error_string(tar);
  bytes.file.origin().refuse(std::string("is no tar file, or is damaged: ") + (text ? text : "unknown reason"),
                             "write it again; unpack a compressed one with gunzip or the like");
}

std::string name_of(archive_entry* entry) {
  const char* name = archive_entry_pathname(entry);
  return name ? name : "";
}

bool is_link(archive_entry* entry) {
  return archive_entry_filetype(entry) == AE_IFLNK || archive_entry_hardlink(entry) != nullptr;
}

// Throws Error unless an empty block is where the last entry ends: a file that was cut off between two entries has
// none.
void require_end(const DataFile& file, std::uint64_t end) {
  std::array<std::byte, kTarBlock> block{};
  const bool is_there = end <= file.size() && file.size() - end >= block.size();
  if (is_there) file.read(end, block);
  if (is_there && std::all_of(block.begin(), block.end(), [](std::byte b) { return b == std::byte{0}; })) return;
  file.origin().refuse("is truncated: expected an empty block behind the last entry, at byte " + std::to_string(end),
                       kTarAgain);
}

}  // namespace

std::vector<TarEntry> read_tar_index(const DataFile& file) {
  TarBytes bytes{file};
  const std::unique_ptr<archive, FreeArchive> tar(archive_read_new());
  if (!tar) throw std::bad_alloc();
  archive_read_support_format_tar(tar.get());
  if (archive_read_open2(tar.get(), &bytes, nullptr, read_block, skip_bytes, nullptr) != ARCHIVE_OK) {
    refuse_tar(tar.get(), bytes);
  }
  std::vector<TarEntry> entries;
  std::uint64_t end = 0;  // where the last entry ends
  for (archive_entry* entry = nullptr; true;) {
    const int result = archive_read_next_header(tar.get(), &entry);
    if (result == ARCHIVE_EOF) break;
    if (result != ARCHIVE_OK && result != ARCHIVE_WARN) refuse_tar(tar.get(), bytes);
    // The header was read, so this is where its data begin.
    TarEntry found{.name = name_of(entry),
                   .is_link = is_link(entry),
                   .begin = static_cast<std::uint64_t>(archive_filter_bytes(tar.get(), 0)),
                   .size = static_cast<std::uint64_t>(archive_entry_size(entry))};
    Origin origin = file.origin();
    origin.member = found.name;
    origin.kind = "entry";
    if (archive_entry_sparse_count(entry) > 0) {
      origin.refuse("is stored with holes", "write the tar file without --sparse");
    }
    if (found.begin > file.size() || found.size > file.size() - found.begin) {
      origin.refuse("is truncated: expected " + std::to_string(found.size) + " bytes from byte " +
                        std::to_string(found.begin) + " on, seen a file of " + std::to_string(file.size()),
                    kTarAgain);
    }
    end = (found.begin + found.size + kTarBlock - 1) / kTarBlock * kTarBlock;
    if (found.is_link || archive_entry_filetype(entry) == AE_IFREG) entries.push_back(std::move(found));
  }
  require_end(file, end);
  return entries;
}

}  // namespace graphsink
