#include "train/interrupt.h"

#include <atomic>
#include <csignal>
#include <mutex>

namespace graphsink {
namespace {

// A handler of signals belongs to the process, and reaches nothing but what is static.
std::atomic<unsigned> signals_seen = 0;
static_assert(std::atomic<unsigned>::is_always_lock_free);
std::mutex interrupts_mutex;
int interrupts = 0;  // that exist and are wanted

extern "C" void note_interrupt(int) { ++signals_seen; }

void (*handler_of_sigint())(int) {
  struct sigaction now = {};
  return sigaction(SIGINT, nullptr, &now) == 0 && (now.sa_flags & SA_SIGINFO) == 0 ? now.sa_handler : SIG_ERR;
}

void set_handler_of_sigint(void (*handler)(int), int flags) {
  struct sigaction action = {};
  action.sa_handler = handler;
  action.sa_flags = flags;
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, nullptr);
}

}  // namespace

Interrupt::Interrupt(bool is_wanted) noexcept : is_wanted_(is_wanted) {
  if (!is_wanted) return;
  const std::lock_guard lock(interrupts_mutex);
  seen_before_ = signals_seen;
  if (interrupts++ == 0 && handler_of_sigint() == SIG_DFL)
    set_handler_of_sigint(note_interrupt, SA_RESTART | static_cast<int>(SA_RESETHAND));
}

Interrupt::~Interrupt() {
  if (!is_wanted_) return;
  const std::lock_guard lock(interrupts_mutex);
  if (--interrupts == 0 && handler_of_sigint() == note_interrupt) set_handler_of_sigint(SIG_DFL, 0);
}

bool Interrupt::was_seen() const noexcept { return is_wanted_ && signals_seen != seen_before_; }

}  // namespace graphsink
