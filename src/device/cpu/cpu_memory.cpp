#include "device/cpu/cpu_memory.h"

#include <sys/mman.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "graphsink/memory.h"
#include "passes/plan_queries.h"

namespace graphsink {
namespace {

[[noreturn]] void throw_out_of_memory(const std::string& problem) {
  throw OutOfMemory("cpu", cpu(), "out of memory: " + problem, "use smaller shapes or batches");
}

// More than the machine has would end the process when it is touched, not now.
void require_host_memory(std::size_t bytes) {
  struct sysinfo info = {};
  if (sysinfo(&info) != 0) return;
  std::size_t total = (std::size_t{info.totalram} + info.totalswap) * info.mem_unit;
  if (bytes <= total) return;
  throw_out_of_memory(bytes_text(bytes) + " are needed, and the host has " + bytes_text(total));
}

// Its addresses are reserved in small pieces, one behind the other, where there is room for many: a process with a
// limit on its addresses (ulimit -v, valgrind) can have as many arenas as it has memory for.
class CpuArena : public Arena {
 public:
  explicit CpuArena(std::shared_ptr<HeldBytes> held) : held_(std::move(held)) {
    for (std::size_t room = kRoom; room >= kPiece; room /= 2) {
      void* found = mmap(nullptr, room, PROT_NONE, kReserve, -1, 0);
      if (found == MAP_FAILED) continue;
      base_ = static_cast<std::byte*>(found);
      reserved_ = kPiece;
      // The kernel makes its next mappings at the other end of this hole, and those of further arenas where a hole is
      // as large.
      if (room > kPiece) munmap(base_ + kPiece, room - kPiece);
      return;
    }
    throw OutOfMemory("arena", cpu(), "no addresses are left for an arena", kRemedy);
  }
  ~CpuArena() override {
    munmap(base_, reserved_);
    held_->device -= size_;
  }
  CpuArena(const CpuArena&) = delete;
  CpuArena& operator=(const CpuArena&) = delete;

  std::byte* base() const override { return base_; }
  std::size_t size() const override { return size_; }
  std::size_t size_for(std::size_t bytes) const override {
    static const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));  // 4 to 64 KiB on ARM
    return std::max(size_, (bytes + page - 1) / page * page);
  }
  void grow(std::size_t bytes) override {
    require_host_memory(bytes);
    std::size_t size = size_for(bytes);
    if (size <= size_) return;
    if (size > reserved_) reserve(size);
    if (mprotect(base_ + size_, size - size_, PROT_READ | PROT_WRITE) != 0) {
      throw_out_of_memory("the host has not enough memory for " + bytes_text(bytes));
    }
    held_->device += size - size_;
    size_ = size;
  }

 private:
  static constexpr std::size_t kPiece = std::size_t{1} << 20;
  // Arenas lie that far apart, which must not be a power of two. AMD processors look for a line of the first-level
  // cache by a hash of the bits 12 to 27 of its address (Lipp et al. 2020, "Take A Way: Exploring the Security
  // Implications of AMD's Cache Way Predictors"), and lines with the same hash drive each other out: on Zen 4, an
  // addition of two tensors, each in an arena of its own, took 1.2 times as long.
  static constexpr std::size_t kRoom = (std::size_t{1} << 36) + 38 * kPiece;
  static constexpr int kReserve = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  static constexpr const char* kRemedy =
      "raise the limit on virtual memory (ulimit -v), or bind the largest shapes first, before memory is allocated";

  // At least `size` addresses from base_ on: twice as many as before where they are free, else as many as are asked
  // for.
  void reserve(std::size_t size) {
    for (std::size_t wanted : {std::max(size, 2 * reserved_), size}) {
      std::byte* end = base_ + reserved_;
      void* found = mmap(end, wanted - reserved_, PROT_NONE, kReserve | MAP_FIXED_NOREPLACE, -1, 0);
      if (found == end) {
        reserved_ = wanted;
        return;
      }
      if (found != MAP_FAILED) munmap(found, wanted - reserved_);  // a kernel before 4.17 takes the address as a hint
    }
    throw OutOfMemory("arena", cpu(),
                      "cannot grow from " + bytes_text(size_) + " to " + bytes_text(size) +
                          ": no addresses are left, or those behind it are taken",
                      kRemedy);
  }

  std::shared_ptr<HeldBytes> held_;
  std::byte* base_ = nullptr;
  std::size_t reserved_ = 0;  // addresses
  std::size_t size_ = 0;      // bytes with memory, from base_ on
};

}  // namespace

Memory allocate_counted(std::size_t bytes, const std::shared_ptr<HeldBytes>& held,
                        std::atomic<std::size_t> HeldBytes::*kind) {
  require_host_memory(bytes);
  constexpr std::size_t kAlignment = 256;
  std::size_t size = rounded_block(bytes), space = size + kAlignment;
  void* memory = std::calloc(1, space);  // pages of a large block take no memory before they are used
  if (memory == nullptr) throw_out_of_memory("the host has not enough memory for " + bytes_text(bytes));
  void* aligned = memory;
  std::align(kAlignment, size, aligned, space);
  (*held).*kind += size;
  return Memory(aligned, [memory, held, kind, size](void*) {
    std::free(memory);
    (*held).*kind -= size;
  });
}

std::unique_ptr<Arena> reserve_arena(std::shared_ptr<HeldBytes> held) {
  return std::make_unique<CpuArena>(std::move(held));
}

}  // namespace graphsink
