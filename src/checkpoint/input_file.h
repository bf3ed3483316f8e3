// InputFile: a regular file that is read once, from its beginning to its end.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>

#include "graphsink/error.h"

namespace graphsink {

// The size of the file is known before it is read, so that memory is never taken for more than that. Throws Error
// naming the path.
class InputFile {
 public:
  InputFile(const std::filesystem::path& path, Where where);

  std::uint64_t size() const { return size_; }
  void read(void* to, std::uint64_t bytes);
  void skip(std::uint64_t bytes) { stream_.seekg(static_cast<std::streamoff>(bytes), std::ios::cur); }
  void rewind() { stream_.seekg(0); }
  const std::string& name() const { return name_; }
  [[noreturn]] void refuse(const std::string& problem, const std::string& remedy) const;

 private:
  std::string name_;
  Where where_;
  std::ifstream stream_;
  std::uint64_t size_ = 0;
};

}  // namespace graphsink
