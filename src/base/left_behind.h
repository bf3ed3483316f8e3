// Objects that must not be freed where their last owner goes.
#pragma once

#include <atomic>
#include <memory>
#include <utility>

#include "base/in_body.h"
#include "base/in_capture.h"

namespace graphsink {

// Keeps an owner alive until the next call of the library. For threads of CUDA, which may call no CUDA function and so
// free nothing. The list is the process's, because such a thread knows no object of the library that still lives.
class LeftBehind {
 public:
  explicit LeftBehind(std::shared_ptr<void> owner) noexcept : owner_(std::move(owner)) {}

  // May be called by any thread. Allocates nothing and takes no lock.
  static void leave(std::unique_ptr<LeftBehind> one) noexcept {
    LeftBehind* added = one.release();
    added->next_ = first_.load(std::memory_order_relaxed);
    while (!first_.compare_exchange_weak(added->next_, added, std::memory_order_release, std::memory_order_relaxed)) {
    }
  }

  // Lets go of all that was left until now; one load where that is nothing. Calls of the library that may wait begin
  // with it. Does nothing in the body of an op and in a function that a SinkCache captures, where CUDA calls would be
  // refused.
  static void free_all() noexcept {
    if (first_.load(std::memory_order_relaxed) == nullptr || InBody::here() || InCapture::here()) return;
    std::unique_ptr<LeftBehind> one(first_.exchange(nullptr, std::memory_order_acquire));
    while (one) one.reset(one->next_);
  }

 private:
  std::shared_ptr<void> owner_;
  LeftBehind* next_ = nullptr;
  static inline std::atomic<LeftBehind*> first_ = nullptr;
};

}  // namespace graphsink
