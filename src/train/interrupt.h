// Interrupt: a training that Ctrl-C ends behind a launch, and not in the middle of one.
#pragma once

#include <csignal>

namespace graphsink {

// While one exists, and nobody else handles SIGINT, the first SIGINT is noted, and the next ends the process. There may
// be several at a time, in any threads: the first that was made sets the handler, and all see the signal.
class Interrupt {
 public:
  explicit Interrupt(bool is_wanted) noexcept;
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  bool was_seen() const noexcept;

 private:
  bool handles_ = false;  // this one has set the handler
  bool sees_ = false;
  struct sigaction before_ = {};
};

}  // namespace graphsink
