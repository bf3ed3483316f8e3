#include "fiber.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "sanitizers.h"

#ifdef EMU_ASAN
#include <sanitizer/common_interface_defs.h>
#endif

#ifndef EMU_FIBER_UCONTEXT
// Saves the registers a call preserves. Processors predict where `ret` leads from the calls before it, which is right
// here: nearly all fibers are left in one function, and for one reason.
__asm__(
    ".text\n"
    ".type emu_fiber_swap,@function\n"
    "emu_fiber_swap:\n"
    "  pushq %rbp\n  pushq %rbx\n  pushq %r12\n  pushq %r13\n  pushq %r14\n  pushq %r15\n"
    "  movq %rsp, (%rdi)\n"
    "  movq %rsi, %rsp\n"
    "  popq %r15\n  popq %r14\n  popq %r13\n  popq %r12\n  popq %rbx\n  popq %rbp\n"
    "  ret\n"
    ".size emu_fiber_swap,.-emu_fiber_swap\n");
extern "C" void emu_fiber_swap(void** save, void* load) __asm__("emu_fiber_swap");
#endif

namespace emu {
namespace {

std::size_t guard_bytes() {
  static const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return page;
}
#ifdef EMU_ASAN
constexpr std::size_t kStack = 512 << 10;
#else
constexpr std::size_t kStack = 256 << 10;
#endif

void raw_switch(Fiber& from, Fiber& to) {
#ifdef EMU_FIBER_UCONTEXT
  swapcontext(&from.context, &to.context);
#else
  emu_fiber_swap(&from.stack_pointer, to.stack_pointer);
#endif
}

}  // namespace

void fiber_create(Fiber& fiber) {
  void* base =
      mmap(nullptr, guard_bytes() + kStack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED || mprotect(base, guard_bytes(), PROT_NONE) != 0) {
    std::fputs("cuda emulator: cannot map a fiber stack\n", stderr);
    std::abort();
  }
  fiber.stack = static_cast<char*>(base) + guard_bytes();
  fiber.stack_size = kStack;
}

void fiber_destroy(Fiber& fiber) {
  if (fiber.stack != nullptr) munmap(static_cast<char*>(fiber.stack) - guard_bytes(), guard_bytes() + kStack);
  fiber = Fiber();
}

void fiber_reset(Fiber& fiber, void (*entry)()) {
#ifdef EMU_ASAN
  // The entry frame is never popped, and an abandoned kernel leaves all of its frames poisoned.
  const std::size_t used = fiber.abandoned ? fiber.stack_size : 4096;
  __asan_unpoison_memory_region(static_cast<char*>(fiber.stack) + fiber.stack_size - used, used);
#endif
  fiber.abandoned = false;
  fiber.fake_stack = nullptr;
#ifdef EMU_FIBER_UCONTEXT
  getcontext(&fiber.context);
  fiber.context.uc_stack.ss_sp = fiber.stack;
  fiber.context.uc_stack.ss_size = fiber.stack_size;
  fiber.context.uc_link = nullptr;
  makecontext(&fiber.context, entry, 0);
#else
  // At entry the stack pointer must be 8 modulo 16, as after a call.
  auto* top = reinterpret_cast<void**>(static_cast<char*>(fiber.stack) + fiber.stack_size);
  top[-1] = nullptr;
  top[-2] = reinterpret_cast<void*>(entry);
  for (int i = 3; i <= 8; ++i) top[-i] = nullptr;
  fiber.stack_pointer = top - 8;
#endif
}

void fiber_switch(Fiber& from, Fiber& to) {
#ifdef EMU_ASAN
  __sanitizer_start_switch_fiber(&from.fake_stack, to.stack, to.stack_size);
#endif
  raw_switch(from, to);
#ifdef EMU_ASAN
  __sanitizer_finish_switch_fiber(from.fake_stack, nullptr, nullptr);
#endif
}

void fiber_leave(Fiber& from, Fiber& to) {
#ifdef EMU_ASAN
  __sanitizer_start_switch_fiber(nullptr, to.stack, to.stack_size);
#endif
  raw_switch(from, to);
}

void fiber_entered([[maybe_unused]] Fiber& from) {
#ifdef EMU_ASAN
  const void* bottom = nullptr;
  std::size_t size = 0;
  __sanitizer_finish_switch_fiber(nullptr, &bottom, &size);
  if (from.stack == nullptr || from.stack_size == 0) {
    from.stack = const_cast<void*>(bottom);
    from.stack_size = size;
  }
#endif
}

}  // namespace emu
