// The members of a zip archive (PKWARE, "APPNOTE.TXT"), with the extensions for large files: stored ones and those that
// are compressed with deflate.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "loader/data_file.h"

namespace graphsink {

struct ZipMember {
  std::string name;
  std::uint64_t begin = 0;     // place of its data in the file
  std::uint64_t packed = 0;    // bytes in the file
  std::uint64_t unpacked = 0;  // bytes that the directory says
  std::uint32_t crc = 0;
  bool is_compressed = false;

  // The bytes of the member, unpacked into memory if it is compressed; memory follows what is really there, and while
  // it grows it may be twice `most`. Throws Error for one that is damaged or larger.
  ByteRange open(const std::shared_ptr<const DataFile>& file, std::uint64_t most) const;
};

// Throws Error for a file that is no zip archive, or whose directory does not fit it: members that lie outside of it or
// over each other, names that occur twice, encryption, several disks, other ways to compress.
std::vector<ZipMember> read_zip_directory(const DataFile& file);

}  // namespace graphsink
