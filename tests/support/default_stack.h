// Stacks of threads.
#pragma once

#include <pthread.h>

#include <cstddef>

namespace graphsink::testing {

// While it lives, new threads get stacks of this size by default, as a limit of the process (ulimit -s) would have it.
class DefaultStack {
 public:
  explicit DefaultStack(std::size_t bytes) {
    pthread_getattr_default_np(&before_);
    pthread_attr_t wanted;
    pthread_attr_init(&wanted);
    pthread_attr_setstacksize(&wanted, bytes);
    pthread_setattr_default_np(&wanted);
    pthread_attr_destroy(&wanted);
  }
  ~DefaultStack() {
    pthread_setattr_default_np(&before_);
    pthread_attr_destroy(&before_);
  }
  DefaultStack(const DefaultStack&) = delete;
  DefaultStack& operator=(const DefaultStack&) = delete;

 private:
  pthread_attr_t before_;
};

// Of the calling thread.
inline std::size_t own_stack_bytes() {
  pthread_attr_t own;
  std::size_t bytes = 0;
  pthread_getattr_np(pthread_self(), &own);
  pthread_attr_getstacksize(&own, &bytes);
  pthread_attr_destroy(&own);
  return bytes;
}

}  // namespace graphsink::testing
