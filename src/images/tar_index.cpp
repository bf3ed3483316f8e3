#include "images/tar_index.h"

#include <archive.h>
#include <archive_entry.h>

#include <algorithm>
#include <array>
#include <memory>
#include <new>
#include <utility>

namespace graphsink {
namespace {

constexpr std::uint64_t kTarBlock = 512;
constexpr std::size_t kTarRead = 1 << 14;  // bytes that libarchive reads at a time
constexpr const char* kTarAgain = "copy the tar file again, or write it again";

struct FreeArchive {
  void operator()(archive* tar) const noexcept { archive_read_free(tar); }
};

[[noreturn]] void refuse_tar(archive* tar, const Origin& origin) {
  const char* text = archive_error_string(tar);
  origin.refuse(std::string("is no tar file, or is damaged: ") + (text ? text : "unknown reason"),
                "write it again; unpack a compressed one with gunzip or the like");
}

std::string name_of(archive_entry* entry) {
  const char* name = archive_entry_pathname(entry);
  return name ? name : "";
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
  const std::unique_ptr<archive, FreeArchive> tar(archive_read_new());
  if (!tar) throw std::bad_alloc();
  archive_read_support_format_tar(tar.get());
  if (archive_read_open_filename(tar.get(), file.origin().file.c_str(), kTarRead) != ARCHIVE_OK) {
    refuse_tar(tar.get(), file.origin());
  }
  std::vector<TarEntry> entries;
  std::uint64_t end = 0;  // where the last entry ends
  for (archive_entry* entry = nullptr; true;) {
    const int result = archive_read_next_header(tar.get(), &entry);
    if (result == ARCHIVE_EOF) break;
    if (result != ARCHIVE_OK && result != ARCHIVE_WARN) refuse_tar(tar.get(), file.origin());
    // The header was read, so this is where its data begin.
    TarEntry found{name_of(entry), static_cast<std::uint64_t>(archive_filter_bytes(tar.get(), 0)),
                   static_cast<std::uint64_t>(archive_entry_size(entry))};
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
    if (archive_entry_filetype(entry) == AE_IFREG && archive_entry_hardlink(entry) == nullptr) {
      entries.push_back(std::move(found));
    }
  }
  require_end(file, end);
  return entries;
}

}  // namespace graphsink
