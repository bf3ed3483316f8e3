// What this process takes of the machine's memory.
#pragma once

#include <cstddef>
#include <fstream>
#include <string>
#include <string_view>

namespace graphsink::testing {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;  // the sanitizer's own memory and threads would be counted, too
#else
constexpr bool kSanitized = false;
#endif

// `field`: that of /proc/self/status; "RssAnon:" leaves out what is mapped from files.
inline std::size_t resident_bytes(std::string_view field = "VmRSS:") {
  std::ifstream file("/proc/self/status");
  std::string word;
  while (file >> word && word != field) continue;
  std::size_t kib = 0;
  file >> kib;
  return kib * 1024;
}

}  // namespace graphsink::testing
