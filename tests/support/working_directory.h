// The process is in another folder as long as this lives.
#pragma once

#include <filesystem>
#include <system_error>

namespace graphsink {

class WorkingDirectory {
 public:
  explicit WorkingDirectory(const std::filesystem::path& folder) { std::filesystem::current_path(folder); }
  ~WorkingDirectory() {
    std::error_code ignored;
    std::filesystem::current_path(before_, ignored);
  }
  WorkingDirectory(const WorkingDirectory&) = delete;
  WorkingDirectory& operator=(const WorkingDirectory&) = delete;

 private:
  const std::filesystem::path before_ = std::filesystem::current_path();
};

}  // namespace graphsink
