// What this process takes of the machine's memory.
#pragma once

#include <unistd.h>

#include <cstddef>
#include <fstream>

namespace graphsink::testing {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;  // the sanitizer's own memory and threads would be counted, too
#else
constexpr bool kSanitized = false;
#endif

inline std::size_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  std::size_t pages = 0;
  file >> pages >> pages;
  return pages * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

}  // namespace graphsink::testing
