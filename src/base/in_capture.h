// Whether the calling thread runs a function whose work a SinkCache captures.
#pragma once

namespace graphsink {

// While an InCapture lives, its thread calls such a function. Work that the thread gives to streams that take no part
// in the capture happens at the capture alone, and is missing from every launch: so calls of the library that give work
// to streams of its own throw Error there.
class InCapture {
 public:
  InCapture() noexcept { ++depth_; }
  ~InCapture() { --depth_; }
  InCapture(const InCapture&) = delete;
  InCapture& operator=(const InCapture&) = delete;

  static bool here() noexcept { return depth_ > 0; }

 private:
  static inline thread_local int depth_ = 0;
};

}  // namespace graphsink
