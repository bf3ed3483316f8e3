// Whether the thread at hand runs the body of an op.
#pragma once

namespace graphsink {

// The thread runs bodies while one lives. Calls that wait for a step refuse to do so in a body, which is part of one.
class InBody {
 public:
  InBody() noexcept { ++depth_; }
  ~InBody() { --depth_; }
  InBody(const InBody&) = delete;
  InBody& operator=(const InBody&) = delete;

  static bool here() noexcept { return depth_ > 0; }

 private:
  static inline thread_local int depth_ = 0;
};

}  // namespace graphsink
