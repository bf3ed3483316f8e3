// LaunchSize: how many steps a launch has, given or found by measurement.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

namespace graphsink {

// Found like this: launches of 1, 2, 4, ... steps are measured, until twice as many steps would take longer than a
// launch may take, or no longer make a step faster. Which it is changes no result.
class LaunchSize {
 public:
  using Seconds = std::chrono::duration<double>;

  // `given`: 0 to find it.
  LaunchSize(std::int64_t given, Seconds longest)
      : longest_(longest), steps_(given > 0 ? given : 1), is_found_(given > 0) {}

  std::int64_t steps() const { return steps_; }
  bool is_found() const { return is_found_; }

  // A launch of `steps` steps took so long, from the call until it was done. The first of each size does not count: it
  // may have been captured then.
  void measured(std::int64_t steps, Seconds launch) {
    if (is_found_ || steps != steps_) return;
    if (!is_warm_) {
      is_warm_ = true;
      return;
    }
    const Seconds step = launch / static_cast<double>(steps);
    const bool is_faster = !before_ || step < kWorth * *before_;
    if (!is_faster && steps_ > 1) steps_ /= 2;
    is_found_ = !is_faster || 2 * launch > longest_ || steps_ >= kMost;
    if (is_found_) return;
    before_ = step;
    steps_ *= 2;
    is_warm_ = false;
  }

 private:
  static constexpr double kWorth = 0.98;  // of the time of a step with half as many steps in a launch
  static constexpr std::int64_t kMost = 1024;

  const Seconds longest_;
  std::int64_t steps_;
  bool is_found_, is_warm_ = false;
  std::optional<Seconds> before_;  // a step, with half as many in a launch
};

}  // namespace graphsink
