// Thread: a thread with enough stack for the bodies of ops.
#pragma once

#include <pthread.h>

#include <cstddef>
#include <functional>
#include <optional>

namespace graphsink {

// As std::thread, except that a small limit of the process on its stack (ulimit -s) does not make the stack of the
// thread small. A larger limit than kLeastStack holds.
class Thread {
 public:
  static constexpr std::size_t kLeastStack = std::size_t{8} << 20;  // bytes; memory is taken for those that are used

  Thread() = default;
  // Throws std::system_error if the system has no thread.
  explicit Thread(std::function<void()> function);
  Thread(Thread&& other) noexcept;
  // This one must not be joinable.
  Thread& operator=(Thread&& other) noexcept;
  ~Thread();  // ends the process if it is joinable

  bool joinable() const noexcept { return handle_.has_value(); }
  void join();
  void detach();

 private:
  std::optional<pthread_t> handle_;
};

}  // namespace graphsink
