#include "exec/capture/capture_policy.h"

#include <algorithm>
#include <cmath>

#include "base/number_text.h"

namespace graphsink {
namespace {

constexpr double kWeight = 0.25;  // weight of a new value in a moving average

void average(double& mean, std::int64_t& count, double value) {
  mean = count++ == 0 ? value : mean + kWeight * (value - mean);
}

std::string microseconds(double ns) { return fixed_text(ns / 1000, 1) + " us"; }

}  // namespace

std::int64_t CapturePolicy::steps_to_pay() const {
  if (gain_ns_ <= 0 || cost_ns_ >= gain_ns_ * static_cast<double>(kMostSteps)) return kMostSteps;
  return std::max<std::int64_t>(1, static_cast<std::int64_t>(std::ceil(cost_ns_ / gain_ns_)));
}

std::int64_t CapturePolicy::steps_to_wait(const ShapeTimes& shape) const {
  std::int64_t wanted = 1;
  if (is_asked_) wanted = after_ > 0 ? after_ : is_known() ? steps_to_pay() : kUnknownSteps;
  return std::max<std::int64_t>(0, wanted - shape.interactive_steps);
}

bool CapturePolicy::may_capture(const ShapeTimes& shape) const {
  if (steps_to_wait(shape) > 0) return false;
  if (!wants_times() || captures_ == 0) return true;
  if (spent_ns_ - saved_ns_ + cost_ns_ > kAutomaticShare * all_ns_) return false;
  const double steps = static_cast<double>(shape.interactive_steps);
  return gains_ == 0 || shape.interactive_steps >= kAnywaySteps || steps * gain_ns_ >= cost_ns_;
}

void CapturePolicy::captured(double ns) {
  average(cost_ns_, captures_, ns);
  spent_ns_ += ns;
}

void CapturePolicy::completed(ShapeTimes& shape, bool sunk, double ns) {
  all_ns_ += ns;
  ShapeTimes::Kind& kind = sunk ? shape.sunk : shape.interactive;
  ++kind.seen;
  if (!kind.counts()) return;
  kind.sum_ns += ns;
  if (!sunk) return;
  if (shape.interactive.counts()) average(gain_ns_, gains_, shape.interactive.mean_ns() - shape.sunk.mean_ns());
  saved_ns_ += shape.interactive.counts() ? shape.interactive.mean_ns() - ns : gain_ns_;
}

std::string CapturePolicy::reason(const ShapeTimes& shape) const {
  if (after_ > 0) return "captured after " + std::to_string(after_) + " steps (Tuning::capture_after)";
  std::string text = std::to_string(shape.interactive_steps) + (shape.interactive_steps == 1 ? " step" : " steps") +
                     " op by op so far; ";
  if (!is_known()) return text + "what a capture takes and saves is not measured yet";
  return text + "a capture takes " + microseconds(cost_ns_) + " and saves " + microseconds(gain_ns_) + " a step";
}

}  // namespace graphsink
