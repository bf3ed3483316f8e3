#include "protection.h"

#include <sys/mman.h>

#include <cstdlib>
#include <map>
#include <mutex>

#include "emulator.h"

namespace emu {
namespace {

constexpr int kReadWrite = PROT_READ | PROT_WRITE;

#if defined(__x86_64__)
int protection_key() {
  static const int key = pkey_alloc(0, PKEY_DISABLE_ACCESS);
  return key;
}
int protect_by_key(void* address, std::size_t bytes) {
  return pkey_mprotect(address, bytes, kReadWrite, protection_key());
}
void allow_by_key(bool on) { pkey_set(protection_key(), on ? 0 : PKEY_DISABLE_ACCESS); }
#else
int protection_key() { return -1; }
int protect_by_key(void*, std::size_t) { return -1; }
void allow_by_key(bool) {}
#endif

bool by_pages() {
  static const bool wanted = [] {
    const char* text = std::getenv("GS_EMU_PROTECT");
    return text != nullptr && text[0] == '1' && protection_key() < 0;
  }();
  return wanted;
}

struct Pages {
  std::mutex mutex;
  int holders = 0;
  std::map<char*, std::size_t> ranges;

  int protection() const { return holders > 0 ? kReadWrite : PROT_NONE; }
  void change_holders(int by) {
    const std::lock_guard guard(mutex);
    const int before = protection();
    holders += by;
    if (protection() == before) return;
    for (const auto& [address, bytes] : ranges) mprotect(address, bytes, protection());
  }
  int change_range(char* address, std::size_t bytes, bool accessible) {
    const std::lock_guard guard(mutex);
    ranges.erase(ranges.lower_bound(address), ranges.lower_bound(address + bytes));
    if (accessible) ranges[address] = bytes;
    return mprotect(address, bytes, accessible ? protection() : PROT_NONE);
  }
};

Pages& pages() {
  static Pages* const instance = new Pages;
  return *instance;
}

thread_local int access_depth = 0;

void allow(bool on) {
  if (protection_key() >= 0) {
    allow_by_key(on);
  } else if (by_pages()) {
    pages().change_holders(on ? 1 : -1);
  }
}

}  // namespace

bool memory_is_protected() { return protection_key() >= 0 || by_pages(); }

int protect_device(void* address, std::size_t bytes, bool accessible) {
  if (by_pages()) return pages().change_range(static_cast<char*>(address), bytes, accessible);
  if (accessible && protection_key() >= 0) return protect_by_key(address, bytes);
  return mprotect(address, bytes, accessible ? kReadWrite : PROT_NONE);
}

DeviceAccess::DeviceAccess() {
  if (access_depth++ == 0) allow(true);
}

DeviceAccess::~DeviceAccess() {
  if (--access_depth == 0) allow(false);
}

}  // namespace emu
