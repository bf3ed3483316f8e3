// Which of several ways to run the iterations of a loop is the fastest, by measurement.
#pragma once

#include <chrono>

#include "device/cpu/schedule_choice.h"

namespace graphsink {

// A launch may run a loop for minutes, while other programs come and go. The cost of these comes in quanta, the
// milliseconds that the system gives to each: most iterations lose nothing, and a few lose much. So ScheduleChoice
// compares means over windows of time that are longer than that. A window may go on in the loop's next launch.
class LoopChoice {
 public:
  using Time = std::chrono::steady_clock::time_point;
  static constexpr std::chrono::milliseconds kWindow{4};

  explicit LoopChoice(int ways) : choice_(ways) {}

  // At the beginning of the loop, at that of each iteration, which gets its way, and at the end.
  void begin(Time now) { last_ = now; }
  int next(Time now) {
    measure(now);
    ++iterations_;
    return choice_.next();
  }
  void end(Time now) { measure(now); }

 private:
  void measure(Time now) {
    elapsed_ += now - last_;
    last_ = now;
    if (elapsed_ < kWindow || iterations_ == 0) return;
    choice_.took(std::chrono::duration<double>(elapsed_).count() / iterations_);
    elapsed_ = {};
    iterations_ = 0;
  }

  ScheduleChoice choice_;
  Time last_{};
  Time::duration elapsed_{};  // in the window
  int iterations_ = 0;        // likewise
};

}  // namespace graphsink
