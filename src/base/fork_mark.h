// Tells a child of fork() from its parent. The child has neither the parent's threads nor its CUDA context.
#pragma once

#include <pthread.h>

#include <atomic>
#include <string>
#include <string_view>

#include "graphsink/error.h"

namespace graphsink {

// Remembers the process that constructed it.
class ForkMark {
 public:
  ForkMark() {
    static const int handler = pthread_atfork(nullptr, nullptr, [] { forks_.fetch_add(1); });
    (void)handler;  // without memory for it a fork goes unseen
  }

  bool is_in_child() const noexcept { return forks_.load(std::memory_order_relaxed) != forks_before_; }
  // Throws Error in a child of the process, where a wait for threads of the parent would never end.
  void require_parent(std::string_view call, const Where& where) const {
    if (!is_in_child()) return;
    throw Error(std::string(call), where, "was called in a child of fork(), and the threads that work are the parent's",
                "use it in the parent, or fork() first and compile the program in the child");
  }

 private:
  static inline std::atomic<unsigned> forks_ = 0;  // between the first process and this one
  unsigned forks_before_ = forks_.load();
};

}  // namespace graphsink
