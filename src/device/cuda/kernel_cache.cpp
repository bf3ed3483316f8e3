#include "device/cuda/kernel_cache.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>

namespace graphsink {
namespace {

constexpr char kMagic[8] = {'g', 's', 'k', 'e', 'r', 'n', '0', '1'};

// No kernel is as large: a file that says so, such as a sparse one, takes no memory.
constexpr std::uint64_t kMostCode = std::uint64_t{1} << 26;

// A file is this, then the key, then the code.
struct Header {
  char magic[8];
  std::uint64_t key_bytes, code_bytes, checksum;  // sizes of key and code in bytes; checksum of both
};

// FNV-1a.
std::uint64_t hash(const std::string& bytes, std::uint64_t from = 0xcbf29ce484222325u) {
  for (unsigned char byte : bytes) from = (from ^ byte) * 0x100000001b3u;
  return from;
}

std::string default_folder() {
  if (const char* folder = std::getenv("GRAPHSINK_KERNEL_CACHE")) return folder;
  const char* cache = std::getenv("XDG_CACHE_HOME");
  if (cache && *cache) return std::string(cache) + "/graphsink/kernels";
  const char* home = std::getenv("HOME");
  return home && *home ? std::string(home) + "/.cache/graphsink/kernels" : "";
}

class File {
 public:
  explicit File(int descriptor) : descriptor_(descriptor) {}
  ~File() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  int get() const { return descriptor_; }

  bool read(void* to, std::size_t bytes) const {
    for (auto* at = static_cast<char*>(to); bytes > 0;) {
      const ssize_t n = ::read(descriptor_, at, bytes);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return false;
      at += n;
      bytes -= static_cast<std::size_t>(n);
    }
    return true;
  }
  bool write(const void* from, std::size_t bytes) const {
    for (const auto* at = static_cast<const char*>(from); bytes > 0;) {
      const ssize_t n = ::write(descriptor_, at, bytes);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return false;
      at += n;
      bytes -= static_cast<std::size_t>(n);
    }
    return true;
  }

 private:
  int descriptor_;
};

}  // namespace

KernelCache::KernelCache(const Log& log) : folder_(default_folder()), log_(log) {}

std::string KernelCache::path_of(const std::string& key) const {
  std::array<char, 17> name;
  std::snprintf(name.data(), name.size(), "%016llx", static_cast<unsigned long long>(hash(key)));
  return folder_ + "/" + name.data();
}

std::optional<std::string> KernelCache::find(const std::string& key) const {
  if (folder_.empty()) return {};
  const File file(::open(path_of(key).c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat info;
  if (file.get() < 0 || ::fstat(file.get(), &info) != 0 || !S_ISREG(info.st_mode)) return {};
  // The code will run in this process: nobody else may have written it.
  if (info.st_uid != ::geteuid() || (info.st_mode & (S_IWGRP | S_IWOTH)) != 0) return {};
  Header header;
  const auto size = static_cast<std::uint64_t>(info.st_size);
  if (!file.read(&header, sizeof header) || std::memcmp(header.magic, kMagic, sizeof kMagic) != 0) return {};
  if (header.key_bytes != key.size() || size < sizeof header + key.size()) return {};
  if (header.code_bytes != size - sizeof header - key.size() || header.code_bytes > kMostCode) return {};
  std::string stored(key.size(), '\0'), code(static_cast<std::size_t>(header.code_bytes), '\0');
  if (!file.read(stored.data(), stored.size()) || stored != key || !file.read(code.data(), code.size())) return {};
  if (hash(code, hash(key)) != header.checksum) return {};
  return code;
}

void KernelCache::add(const std::string& key, const std::string& code) {
  if (folder_.empty() || is_readable_only_) return;
  std::error_code error;
  std::filesystem::create_directories(folder_, error);
  Header header;
  std::memcpy(header.magic, kMagic, sizeof kMagic);
  header.key_bytes = key.size();
  header.code_bytes = code.size();
  header.checksum = hash(code, hash(key));
  // Readers see the file under its name only when it is complete.
  const std::string path = path_of(key);
  std::string temporary = path + ".XXXXXX";
  const File file(::mkostemp(temporary.data(), O_CLOEXEC));  // only its owner may read and write it
  const bool is_made = file.get() >= 0;
  if (is_made && file.write(&header, sizeof header) && file.write(key.data(), key.size()) &&
      file.write(code.data(), code.size()) && std::rename(temporary.c_str(), path.c_str()) == 0)
    return;
  const std::string reason = std::system_category().message(errno);
  if (is_made) ::unlink(temporary.c_str());
  is_readable_only_ = true;
  log_.warn({"kernels that are compiled at run time are not kept in ", folder_, ": ", reason,
             "; GRAPHSINK_KERNEL_CACHE names another folder"});
}

}  // namespace graphsink
