// StepsPerLaunch: how many steps a launch has, given or found by measurement.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>

namespace graphsink {

// Found like this: launches of 1, 2, 4, ... steps are measured, until twice as many steps would take longer than a
// launch may take, or no longer make a step faster, or no launch comes that is so long. Which it is changes no result.
class StepsPerLaunch {
 public:
  using Seconds = std::chrono::duration<double>;

  // `given`: 0 to find it.
  StepsPerLaunch(std::int64_t given, Seconds longest)
      : longest_(longest), steps_(given > 0 ? given : 1), is_found_(given > 0) {}

  std::int64_t steps() const { return steps_; }
  bool is_found() const { return is_found_; }

  // A launch of `steps` steps took so long, from the call until it was done. `is_captured`: nothing of it was issued op
  // by op or captured meanwhile; others do not count, unless there are too many in a row.
  void measured(std::int64_t steps, Seconds launch, bool is_captured) {
    if (is_found_) return;
    if (steps != steps_) {  // an epoch or what comes between launches has cut it
      if (++shorter_ == kPatience) find(std::max<std::int64_t>(steps_ / 2, 1));
      return;
    }
    shorter_ = 0;
    if (!is_captured && ++uncaptured_ < kPatience) return;
    uncaptured_ = 0;
    const Seconds step = launch / static_cast<double>(steps);
    const bool is_faster = !before_ || step < kWorth * *before_;
    if (!is_faster) return find(std::max<std::int64_t>(steps_ / 2, 1));
    if (2 * launch > longest_ || steps_ >= kMost) return find(steps_);
    before_ = step;
    steps_ *= 2;
  }

 private:
  void find(std::int64_t steps) {
    steps_ = steps;
    is_found_ = true;
  }

  static constexpr int kPatience = 8;     // launches in a row
  static constexpr double kWorth = 0.98;  // share of the time of a step with half as many steps in a launch
  static constexpr std::int64_t kMost = 1024;

  const Seconds longest_;
  std::int64_t steps_;
  bool is_found_;
  int shorter_ = 0, uncaptured_ = 0;  // launches in a row
  std::optional<Seconds> before_;     // a step, with half as many in a launch
};

}  // namespace graphsink
