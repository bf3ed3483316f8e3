// The part of a thread's stack that the functions use which are called from here.
#pragma once

#include <pthread.h>

#include <cstddef>
#include <cstdint>

namespace graphsink {

// Made in a function on the calling thread. Variables that lie in this part are gone when the called function has
// returned. Holds nothing on a stack that is not the thread's own, such as a fiber's.
class CalledStack {
 public:
  CalledStack() = default;
  // `frame`: __builtin_frame_address(0) of the function.
  explicit CalledStack(const void* frame) : frame_(reinterpret_cast<std::uintptr_t>(frame)) {
    // Looked up once: for the first thread of a process, glibc reads all of /proc/self/maps.
    thread_local const Stack own = stack_of_this_thread();
    if (frame_ >= own.begin && frame_ - own.begin < own.bytes) begin_ = own.begin;
  }

  // The stack grows towards lower addresses.
  bool holds(const void* address) const {
    const auto at = reinterpret_cast<std::uintptr_t>(address);
    return begin_ != 0 && at >= begin_ && at < frame_;
  }

 private:
  struct Stack {
    std::uintptr_t begin = 0;
    std::size_t bytes = 0;  // 0: not known
  };
  static Stack stack_of_this_thread() {
    pthread_attr_t attributes;
    if (pthread_getattr_np(pthread_self(), &attributes) != 0) return {};
    void* low = nullptr;
    std::size_t bytes = 0;
    const bool is_known = pthread_attr_getstack(&attributes, &low, &bytes) == 0;
    pthread_attr_destroy(&attributes);
    return is_known ? Stack{reinterpret_cast<std::uintptr_t>(low), bytes} : Stack{};
  }

  std::uintptr_t begin_ = 0;  // 0: not known
  std::uintptr_t frame_ = 0;
};

}  // namespace graphsink
