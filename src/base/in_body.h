// Whether the calling thread runs the body of an op, and of which program.
#pragma once

#include <utility>

namespace graphsink {

// While an InBody lives, its thread runs bodies. Calls that wait for steps throw Error in a body, because the body is
// part of a step.
class InBody {
 public:
  // `owner` identifies the program: it is the Device or the HostStatus that only this program uses. May be nested.
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
