#include "base/thread.h"

#include <algorithm>
#include <exception>
#include <memory>
#include <system_error>
#include <utility>

namespace graphsink {
namespace {

void check(int code) {
  if (code != 0) throw std::system_error(code, std::generic_category());
}

class Attributes {
 public:
  Attributes() { check(pthread_attr_init(&attributes_)); }
  ~Attributes() { pthread_attr_destroy(&attributes_); }
  Attributes(const Attributes&) = delete;
  Attributes& operator=(const Attributes&) = delete;
  pthread_attr_t* get() { return &attributes_; }

 private:
  pthread_attr_t attributes_;
};

void* call(void* function) {
  (*std::unique_ptr<std::function<void()>>(static_cast<std::function<void()>*>(function)))();
  return nullptr;
}

}  // namespace

Thread::Thread(std::function<void()> function) {
  Attributes attributes;
  std::size_t bytes = 0;
  check(pthread_attr_getstacksize(attributes.get(), &bytes));
  check(pthread_attr_setstacksize(attributes.get(), std::max(bytes, kLeastStack)));
  auto kept = std::make_unique<std::function<void()>>(std::move(function));
  pthread_t handle;
  check(pthread_create(&handle, attributes.get(), call, kept.get()));
  (void)kept.release();
  handle_ = handle;
}

Thread::Thread(Thread&& other) noexcept : handle_(std::exchange(other.handle_, std::nullopt)) {}

Thread& Thread::operator=(Thread&& other) noexcept {
  if (joinable()) std::terminate();
  handle_ = std::exchange(other.handle_, std::nullopt);
  return *this;
}

Thread::~Thread() {
  if (joinable()) std::terminate();
}

void Thread::join() { check(pthread_join(*std::exchange(handle_, std::nullopt), nullptr)); }

void Thread::detach() { check(pthread_detach(*std::exchange(handle_, std::nullopt))); }

}  // namespace graphsink
