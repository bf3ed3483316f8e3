#include "simt.h"
#include "simt_state.h"

// Weak: present only in a program linked with thread sanitizer, whatever flags this file had.
extern "C" {
void* __tsan_get_current_fiber() __attribute__((weak));
void* __tsan_create_fiber(unsigned flags) __attribute__((weak));
void __tsan_destroy_fiber(void* fiber) __attribute__((weak));
void __tsan_switch_to_fiber(void* fiber, unsigned flags) __attribute__((weak));
void __tsan_acquire(void* address) __attribute__((weak));
void __tsan_release(void* address) __attribute__((weak));
}

namespace emu {
namespace {

constexpr unsigned kNoSync = 1;
void* contexts[kMaxThreadsPerBlock];
void* main_context;
char block_begins, block_ends;

}  // namespace

bool race_enabled() { return __tsan_switch_to_fiber != nullptr; }

void race_grid_begin() {
  if (race_enabled()) main_context = __tsan_get_current_fiber();
}

void race_block_begin(int threads) {
  if (!race_enabled()) return;
  // Here, because a context is ordered after the one that creates it.
  for (int i = 0; i < threads; ++i) {
    if (contexts[i] == nullptr) contexts[i] = __tsan_create_fiber(0);
  }
  race_release(&block_begins);
}
void race_block_end() { race_acquire(&block_ends); }

void race_thread_begin(int thread) {
  if (!race_enabled()) return;
  __tsan_switch_to_fiber(contexts[thread], kNoSync);
  race_acquire(&block_begins);
}

void race_thread_end() { race_release(&block_ends); }

void race_resume(int thread) {
  if (race_enabled()) __tsan_switch_to_fiber(contexts[thread], kNoSync);
}

void race_resume_main() {
  if (race_enabled()) __tsan_switch_to_fiber(main_context, kNoSync);
}

void race_release(const void* address) {
  if (race_enabled()) __tsan_release(const_cast<void*>(address));
}

void race_acquire(const void* address) {
  if (race_enabled()) __tsan_acquire(const_cast<void*>(address));
}

void race_forget_threads() {
  if (!race_enabled()) return;
  for (void*& context : contexts) {
    if (context == nullptr) continue;
    // A thread that was left in the middle has not said that it is done with its memory.
    __tsan_switch_to_fiber(context, kNoSync);
    race_thread_end();
    __tsan_switch_to_fiber(main_context, kNoSync);
    __tsan_destroy_fiber(context);
    context = nullptr;
  }
  race_block_end();
}

}  // namespace emu
