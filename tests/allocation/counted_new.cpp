#include "counted_new.h"

#include <atomic>
#include <cstdlib>

#if defined(GRAPHSINK_EMULATED)
#include "emulator.h"
#endif

namespace {

std::atomic<long> allocations_so_far{0};
thread_local long left_until_failure = -1;  // -1: none is to fail

bool is_of_library() {
#if defined(GRAPHSINK_EMULATED)
  return !emu::is_in_call();
#else
  return true;
#endif
}

// Returns whether it may succeed.
bool count_allocation() {
  allocations_so_far.fetch_add(1);
  if (left_until_failure < 0 || !is_of_library()) return true;
  return left_until_failure-- > 0;
}

void* allocate(std::size_t bytes) { return count_allocation() ? std::malloc(bytes ? bytes : 1) : nullptr; }

void* allocate(std::size_t bytes, std::size_t alignment) {
  return count_allocation() ? std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment) : nullptr;
}

void* or_throw(void* memory) {
  if (!memory) throw std::bad_alloc();
  return memory;
}

}  // namespace

// noinline: g++ warns of a mismatch when it inlines one of a pair.
__attribute__((noinline)) void* operator new(std::size_t bytes) { return or_throw(allocate(bytes)); }
__attribute__((noinline)) void* operator new(std::size_t bytes, std::align_val_t align) {
  return or_throw(allocate(bytes, static_cast<std::size_t>(align)));
}
__attribute__((noinline)) void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  return allocate(bytes);
}
__attribute__((noinline)) void* operator new(std::size_t bytes, std::align_val_t align,
                                             const std::nothrow_t&) noexcept {
  return allocate(bytes, static_cast<std::size_t>(align));
}
__attribute__((noinline)) void operator delete(void* memory, const std::nothrow_t&) noexcept { std::free(memory); }
__attribute__((noinline)) void operator delete(void* memory) noexcept { std::free(memory); }
__attribute__((noinline)) void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
__attribute__((noinline)) void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
__attribute__((noinline)) void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
  std::free(memory);
}

namespace graphsink::testing {

long allocations() { return allocations_so_far.load(); }

FailingAllocation::FailingAllocation(long number) { left_until_failure = number; }
FailingAllocation::~FailingAllocation() { left_until_failure = -1; }
bool FailingAllocation::has_failed() const { return left_until_failure < 0; }

}  // namespace graphsink::testing
