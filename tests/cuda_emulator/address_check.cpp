// What a kernel may be given: on a GPU, an address of anything else is found out only when a thread uses it, or never.
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

#include "runtime.h"

namespace emu {
namespace {

// Where programs have their stacks, heaps and code. Below are numbers, and shadow memory of sanitizers.
#if defined(__x86_64__)
constexpr std::uintptr_t kLowestHostAddress = 0x500000000000;
#else
constexpr std::uintptr_t kLowestHostAddress = std::uintptr_t{1} << 38;  // ARM kernels may have addresses of 39 bits
#endif

bool is_mapped(const void* address) {
  const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  const std::uintptr_t value = reinterpret_cast<std::uintptr_t>(address);
  if (value < kLowestHostAddress) return false;
  unsigned char resident = 0;
  return mincore(reinterpret_cast<void*>(value / page * page), 1, &resident) == 0;
}

}  // namespace

const char* refuse_address(Runtime& r, const void* address, int device) {
  switch (r.memory.place(address)) {
    case Place::kPinned:
      return nullptr;
    case Place::kPageable:
      return is_mapped(address) ? "a kernel was given an address of host memory that is neither pinned nor mapped"
                                : nullptr;  // a number, for all one can tell
    case Place::kDevice:
      break;
  }
  if (!r.memory.is_inside_or_at_end(address)) return "a kernel was given an address of memory that is not allocated";
  const std::optional<int> owner = r.memory.device_of(address);  // none: it is mapped, with access of its own
  const bool is_foreign = owner && *owner != device && !r.peers.contains({device, *owner});
  if (is_foreign || !r.memory.is_reachable(address, device)) {
    return "a kernel was given memory that its device has no access to";
  }
  return nullptr;
}

const char* refuse_arguments(Runtime& r, const KernelWork& kernel) {
  if (!r.checks_addresses) return nullptr;
  for (const std::vector<std::byte>& argument : kernel.arguments) {
    if (argument.size() > sizeof(void*) && !kernel.has_clear_padding) continue;
    // The addresses in a structure stand where addresses are aligned.
    for (std::size_t at = 0; at + sizeof(void*) <= argument.size(); at += sizeof(void*)) {
      void* address = nullptr;
      std::memcpy(&address, argument.data() + at, sizeof address);
      if (address == nullptr) continue;  // as in the unused places of a table of operands
      if (const char* why = refuse_address(r, address, kernel.device); why != nullptr) return why;
    }
  }
  return nullptr;
}

}  // namespace emu
