// absolute_path(): a path that leads to the same file when the process goes to another folder (chdir()).
#pragma once

#include <filesystem>
#include <system_error>

namespace graphsink {

// The path as it is where nobody knows the folder of the process.
inline std::filesystem::path absolute_path(const std::filesystem::path& path) {
  std::error_code code;
  std::filesystem::path absolute = std::filesystem::absolute(path, code);
  return code ? path : absolute;
}

}  // namespace graphsink
