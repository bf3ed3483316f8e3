// Stackful fibers with no scheduler of their own. Not thread-safe; a fiber is used on one operating-system thread
// between two resets. No standard library containers here: this code must stay free of thread-sanitizer
// instrumentation.
#pragma once

#include <cstddef>

#if !defined(__x86_64__) && !defined(EMU_FIBER_UCONTEXT)
#define EMU_FIBER_UCONTEXT 1
#endif
#ifdef EMU_FIBER_UCONTEXT
#include <ucontext.h>
#endif

namespace emu {

struct Fiber {
  void* stack = nullptr;  // lowest usable address; null for the fiber that stands for the thread's own stack
  std::size_t stack_size = 0;
  void* stack_pointer = nullptr;
  void* fake_stack = nullptr;  // address sanitizer's state while the fiber is not running
  bool abandoned = false;      // left in the middle of a kernel: its frames will never be popped
#ifdef EMU_FIBER_UCONTEXT
  ucontext_t context;
#endif
};

// Maps a stack with a guard page below it. Terminates the process when there is no memory.
void fiber_create(Fiber& fiber);
void fiber_destroy(Fiber& fiber);
// The next switch to the fiber calls entry() on an empty stack; entry must begin with fiber_entered and never return.
void fiber_reset(Fiber& fiber, void (*entry)());
void fiber_switch(Fiber& from, Fiber& to);
// As fiber_switch, but `from` will not be resumed before it is reset.
void fiber_leave(Fiber& from, Fiber& to);
// `from`: the fiber that switched here; learns the bounds of the thread's own stack from it.
void fiber_entered(Fiber& from);

}  // namespace emu
