// Interrupt: a training that Ctrl-C ends behind a launch, and not in the middle of one.
#pragma once

namespace graphsink {

// While one exists, and nobody else handled SIGINT when the first was made, the first SIGINT is noted, and the next
// ends the process. There may be several at a time, in any threads: all see the signal.
class Interrupt {
 public:
  explicit Interrupt(bool is_wanted) noexcept;
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  bool was_seen() const noexcept;

 private:
  const bool is_wanted_;
  unsigned seen_before_ = 0;  // signals
};

}  // namespace graphsink
