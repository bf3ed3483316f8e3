// Whether the thread at hand runs the body of an op, and whose.
#pragma once

#include <utility>

namespace graphsink {

// The thread runs bodies while one lives. Calls that wait for a step refuse to do so in a body, which is part of one.
class InBody {
 public:
  // `owner`: the Device or the HostStatus of the body's program, which has them for itself. May be nested.
  explicit InBody(const void* owner) noexcept : outer_(std::exchange(owner_, owner)) {}
  ~InBody() { owner_ = outer_; }
  InBody(const InBody&) = delete;
  InBody& operator=(const InBody&) = delete;

  static bool here() noexcept { return owner_ != nullptr; }
  static const void* owner() noexcept { return owner_; }  // null outside of bodies

 private:
  static inline thread_local const void* owner_ = nullptr;
  const void* outer_;
};

}  // namespace graphsink
