#include "protection.h"

#include <sys/mman.h>

#include <cstdlib>
#include <iterator>
#include <map>
#include <mutex>
#include <string_view>

#include "emulator.h"

namespace emu {
namespace {

constexpr int kReadWrite = PROT_READ | PROT_WRITE;

// Empty: as the processor can.
std::string_view wanted_protection() {
  const char* text = std::getenv("GS_EMU_PROTECT");
  return text == nullptr ? "" : text;
}

#if defined(__x86_64__)
int protection_key() {
  static const int key = wanted_protection().empty() ? pkey_alloc(0, PKEY_DISABLE_ACCESS) : -1;
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
  static const bool is_on = wanted_protection() != "0" && protection_key() < 0;
  return is_on;
}

struct Pages {
  std::mutex mutex;
  int holders = 0;
  bool is_open = false;
  std::map<char*, char*> ranges;  // begin and end; neighbours are one range

  void open(bool on) {
    if (on == is_open) return;
    is_open = on;
    for (const auto& [begin, end] : ranges) mprotect(begin, static_cast<std::size_t>(end - begin), protection());
  }
  int protection() const { return is_open ? kReadWrite : PROT_NONE; }
  void hold() {
    const std::lock_guard guard(mutex);
    ++holders;
    open(true);
  }
  void let_go() {
    const std::lock_guard guard(mutex);
    --holders;
  }
  void close() {
    const std::lock_guard guard(mutex);
    if (holders == 0) open(false);
  }
  int change_range(char* begin, char* end, bool accessible) {
    const std::lock_guard guard(mutex);
    cut(begin, end);
    if (accessible) insert(begin, end);
    return mprotect(begin, static_cast<std::size_t>(end - begin), accessible ? protection() : PROT_NONE);
  }

 private:
  void cut(char* begin, char* end) {
    auto range = ranges.upper_bound(begin);
    if (range != ranges.begin()) --range;
    while (range != ranges.end() && range->first < end) {
      const auto [first, last] = *range;
      if (last <= begin) {
        ++range;
        continue;
      }
      range = ranges.erase(range);
      if (first < begin) ranges[first] = begin;
      if (last > end) ranges[end] = last;
    }
  }
  void insert(char* begin, char* end) {
    auto next = ranges.lower_bound(begin);
    if (next != ranges.end() && next->first == end) {
      end = next->second;
      next = ranges.erase(next);
    }
    if (next != ranges.begin() && std::prev(next)->second == begin) {
      std::prev(next)->second = end;
    } else {
      ranges[begin] = end;
    }
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
    on ? pages().hold() : pages().let_go();
  }
}

}  // namespace

std::string_view memory_protection() { return protection_key() >= 0 ? "keys" : by_pages() ? "pages" : "off"; }

int protect_device(void* address, std::size_t bytes, bool accessible) {
  auto* begin = static_cast<char*>(address);
  if (by_pages()) return pages().change_range(begin, begin + bytes, accessible);
  if (accessible && protection_key() >= 0) return protect_by_key(address, bytes);
  return mprotect(address, bytes, accessible ? kReadWrite : PROT_NONE);
}

DeviceAccess::DeviceAccess() {
  if (access_depth++ == 0) allow(true);
}

DeviceAccess::~DeviceAccess() {
  if (--access_depth == 0) allow(false);
}

void close_device_memory() {
  if (by_pages()) pages().close();
}

}  // namespace emu
