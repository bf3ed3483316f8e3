// When to capture a set of input shapes. A program whose graph has open dimensions meets many sets. Each capture takes
// the host some time, which pays only if enough steps with these shapes follow. Knows no device and no clock; it is
// told.
//
// A shape that has run n steps is expected to run n more, as in the ski rental problem (Karlin, Manasse, Rudolph and
// Sleator, "Competitive snoopy caching", Algorithmica 3, 1988): it is captured once its steps so far would have saved,
// sunk, what a capture takes. Then the total is at most twice that of somebody who knows the future. The time that a
// sunk step saves is measured on the shapes that were captured before, as the difference of the mean step op by op and
// the mean sunk step of the same shape.
//
// The modes that sink do what they are asked for: they capture after kMostSteps steps at the latest. The mode
// `automatic` promises not to be slower than op by op: it captures only as long as what captures took, less what sunk
// steps have saved, is a small share of the time of all steps.
#pragma once

#include <cstdint>
#include <string>

namespace graphsink {

// Step count and step times of one set of shapes.
struct ShapeTimes {
  std::int64_t interactive_steps = 0;  // issued so far
  // The steps that were measured. The first kWarmUp of each kind warm caches up and do not count.
  struct Kind {
    static constexpr std::int64_t kWarmUp = 2;
    std::int64_t seen = 0;
    double sum_ns = 0;  // time of the steps that count
    bool counts() const { return seen > kWarmUp; }
    double mean_ns() const { return sum_ns / static_cast<double>(seen - kWarmUp); }
  };
  Kind interactive, sunk;
};

class CapturePolicy {
 public:
  static constexpr std::int64_t kMostSteps = 8;  // before a mode that sinks captures
  static constexpr std::int64_t kUnknownSteps =
      ShapeTimes::Kind::kWarmUp + 2;                // the same while it is not known what a capture takes or saves
  static constexpr std::int64_t kAnywaySteps = 64;  // `automatic` may capture then although it did not pay before
  static constexpr double kAutomaticShare = 0.01;   // share of the time of all steps that captures may cost `automatic`

  // `has_open_shapes`: whether there can be several sets of shapes; else the second step is captured. `after`:
  // Tuning::capture_after.
  CapturePolicy(bool has_open_shapes, std::int64_t after) : is_asked_(has_open_shapes), after_(after) {}

  // Whether there can be several sets of shapes.
  bool is_asked() const { return is_asked_; }
  // Whether the times of steps are of use.
  bool wants_times() const { return is_asked_ && after_ == 0; }
  // How many further steps of these shapes run op by op before a mode that sinks captures; 0: none.
  std::int64_t steps_to_wait(const ShapeTimes& shape) const;
  // Whether `automatic` may capture these shapes now.
  bool may_capture(const ShapeTimes& shape) const;
  // Whether sunk steps were not faster than steps op by op so far.
  bool is_slower_sunk() const { return wants_times() && gains_ > 0 && gain_ns_ <= 0; }

  // Notes how long the captures for one set of shapes took, in ns.
  void captured(double ns);
  // A step of these shapes is done.
  void completed(ShapeTimes& shape, bool sunk, double ns);

  // Why the shapes are not captured yet, for explain().
  std::string reason(const ShapeTimes& shape) const;

 private:
  bool is_known() const { return captures_ > 0 && gains_ > 0; }
  // After how many steps a capture has paid, at most kMostSteps.
  std::int64_t steps_to_pay() const;

  const bool is_asked_;
  const std::int64_t after_;
  // Moving averages of what a capture takes and of what a sunk step saves, and how many values they are of.
  double cost_ns_ = 0, gain_ns_ = 0;
  std::int64_t captures_ = 0, gains_ = 0;
  // Sums: of all steps, of all captures, of what sunk steps have saved.
  double all_ns_ = 0, spent_ns_ = 0, saved_ns_ = 0;
};

}  // namespace graphsink
