#include "train/interrupt.h"

#include <atomic>

namespace graphsink {
namespace {

// A handler of signals belongs to the process and reaches nothing but what is static.
std::atomic<bool> was_interrupted = false;
static_assert(std::atomic<bool>::is_always_lock_free);

extern "C" void note_interrupt(int) { was_interrupted = true; }

}  // namespace

Interrupt::Interrupt(bool is_wanted) noexcept {
  if (!is_wanted || sigaction(SIGINT, nullptr, &before_) != 0 || (before_.sa_flags & SA_SIGINFO) != 0) return;
  sees_ = before_.sa_handler == note_interrupt;
  if (before_.sa_handler != SIG_DFL) return;
  was_interrupted = false;
  struct sigaction noting = {};
  noting.sa_handler = note_interrupt;
  noting.sa_flags = SA_RESTART | static_cast<int>(SA_RESETHAND);
  sigemptyset(&noting.sa_mask);
  sees_ = handles_ = sigaction(SIGINT, &noting, nullptr) == 0;
}

Interrupt::~Interrupt() {
  if (handles_) sigaction(SIGINT, &before_, nullptr);
}

bool Interrupt::was_seen() const noexcept { return sees_ && was_interrupted; }

}  // namespace graphsink
