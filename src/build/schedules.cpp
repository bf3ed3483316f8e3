// Learning rates as ordinary nodes of Graph::step().
#include <cmath>
#include <utility>
#include <vector>

#include "base/convert.h"
#include "base/number_text.h"
#include "build/optimizer_checks.h"
#include "graphsink/ops.h"
#include "graphsink/optim.h"

namespace graphsink {
namespace {

class Schedule {
 public:
  Schedule(const char* function, const Graph& graph, DType dtype, const Where& where)
      : function_(function), graph_(graph), dtype_(dtype), where_(where) {
    if (dtype != f32 && dtype != f64) refuse("the dtype is " + std::string(to_string(dtype)), "use f32 or f64");
    step_ = step_as(dtype);
  }

  [[noreturn]] void refuse(const std::string& problem, const char* remedy) const {
    throw Error(function_, where_, problem, remedy);
  }
  void expect_finite(const char* names, std::initializer_list<double> numbers) const {
    for (double x : numbers)
      if (!std::isfinite(x) || !holds(dtype_, x))
        refuse(std::string(names) + " is " + number_text(x), "give finite numbers of the dtype");
  }
  void expect(bool fits, const char* name, double value, const char* remedy) const {
    if (!fits) refuse(std::string(name) + " is " + number_text(value), remedy);
  }
  void expect_not_negative(const char* name, double value) const {
    expect(value >= 0, name, value, "give a number of at least 0");
  }
  // For a rate that falls from step `warmup` to step `steps`.
  void expect_order(std::int64_t warmup, std::int64_t steps) const {
    if (warmup < 0 || steps < 0)
      refuse("warmup is " + std::to_string(warmup) + " and steps is " + std::to_string(steps),
             "give numbers of at least 0");
    if (steps > 0 && steps <= warmup)
      refuse("the schedule of " + std::to_string(steps) + " steps ends before its warm-up of " +
                 std::to_string(warmup) + " does",
             "give more steps than the warm-up has, or steps = 0 to stay at the peak");
  }

  // An operand of an op that stands at the user's line. A Value that is given as it is would have the line here.
  template <class T>
  Arg arg(const T& value) const {
    return {value, where_};
  }
  Value constant(Tensor tensor) { return graph_.constant(std::move(tensor), where_); }
  Value constant(double number) { return constant(Tensor::full(dtype_, {}, number)); }
  Value step_as(DType dtype) { return cast(arg(graph_.step(where_)), dtype); }

  // The share of the way from step `first` to step `last`, 0 before it and 1 behind it.
  Value done(std::int64_t first, std::int64_t last) const {
    const double length = static_cast<double>(last - first);
    const Value share = arg(arg(step_) - static_cast<double>(first)) / length;
    return minimum(arg(maximum(arg(share), 0.0)), 1.0);
  }
  // From 1 to 0 along half a cosine, while `done` goes from 0 to 1.
  Value falling_cosine(const Value& done) const { return arg(arg(cos(arg(arg(done) * M_PI))) * 0.5) + 0.5; }
  Value falling(Annealing annealing, const Value& done) const {
    return annealing == Annealing::cosine ? falling_cosine(done) : arg(1.0) - arg(done);
  }
  // A rate that rises linearly in the first `warmup` steps.
  Value warmed(const Value& rate, std::int64_t warmup) const {
    if (warmup == 0) return rate;
    const Value risen = minimum(arg(arg(arg(step_) + 1.0) / static_cast<double>(warmup)), 1.0);
    return arg(rate) * arg(risen);
  }

 private:
  const char* function_;
  Graph graph_;
  DType dtype_;
  const Where& where_;
  Value step_;  // in the dtype of the rate
};

// A rate of a warm-up and a fall, as CosineSchedule and LinearSchedule describe them.
template <class Options>
Value warmed_and_falling(Schedule schedule, const Options& options, Annealing annealing) {
  schedule.expect_order(options.warmup, options.steps);
  schedule.expect_finite("peak or final", {options.peak, options.final});
  schedule.expect_not_negative("peak", options.peak);
  schedule.expect_not_negative("final", options.final);
  Value rate = schedule.constant(options.peak);
  if (options.steps > 0) {
    const Value share = schedule.falling(annealing, schedule.done(options.warmup, options.steps));
    rate = schedule.arg(schedule.arg(schedule.arg(share) * (1 - options.final)) + options.final) * options.peak;
  }
  return schedule.warmed(rate, options.warmup);
}

void check(const Schedule& schedule, const StepSchedule& options) {
  schedule.expect_finite("peak or factor", {options.peak, options.factor});
  schedule.expect(options.factor > 0, "factor", options.factor, "give a factor above 0");
  schedule.expect(options.interval >= 0, "interval", static_cast<double>(options.interval), "give at least 1 step");
  if ((options.interval > 0) == !options.at.empty())
    schedule.refuse("expected either an interval or steps in `at`", "give one of the two");
  std::int64_t last = 0;
  for (const std::int64_t step : options.at) {
    if (step <= last)
      schedule.refuse("step " + std::to_string(step) + " of `at` comes after " + std::to_string(last),
                      "give steps above 0 in ascending order");
    last = step;
  }
}

// How often the rate has been multiplied, as f64, in which every step is exact.
Value count_of_factors(Schedule& schedule, const StepSchedule& options) {
  if (options.interval > 0)
    return floor(schedule.arg(schedule.arg(schedule.step_as(f64)) / static_cast<double>(options.interval)));
  Tensor at(f64, {static_cast<std::int64_t>(options.at.size())});
  std::span<double> steps = at.as<double>();
  for (std::size_t i = 0; i < steps.size(); ++i) steps[i] = static_cast<double>(options.at[i]);
  const Value reached = greater_equal(schedule.arg(schedule.step_as(f64)), schedule.arg(schedule.constant(at)));
  return sum(schedule.arg(cast(schedule.arg(reached), f64)));
}

}  // namespace

Value cosine_schedule(const Graph& graph, const CosineSchedule& options, Where where) {
  return warmed_and_falling({"cosine_schedule", graph, options.dtype, where}, options, Annealing::cosine);
}

Value linear_schedule(const Graph& graph, const LinearSchedule& options, Where where) {
  return warmed_and_falling({"linear_schedule", graph, options.dtype, where}, options, Annealing::linear);
}

Value step_schedule(const Graph& graph, const StepSchedule& options, Where where) {
  Schedule schedule("step_schedule", graph, options.dtype, where);
  check(schedule, options);
  const Value factors = pow(schedule.arg(schedule.constant(Tensor::scalar(options.factor))),
                            schedule.arg(count_of_factors(schedule, options)));
  return cast(schedule.arg(schedule.arg(factors) * options.peak), options.dtype);
}

Value one_cycle_schedule(const Graph& graph, const OneCycleSchedule& options, Where where) {
  Schedule schedule("one_cycle_schedule", graph, options.dtype, where);
  schedule.expect(options.warmup >= 1, "warmup", static_cast<double>(options.warmup), "give at least 1 step");
  schedule.expect_finite("peak, initial or final", {options.peak, options.initial, options.final});
  for (auto [name, x] : {std::pair{"peak", options.peak}, {"initial", options.initial}, {"final", options.final}})
    schedule.expect_not_negative(name, x);
  if (options.steps <= options.warmup)
    schedule.refuse("steps is " + std::to_string(options.steps) + " and warmup " + std::to_string(options.warmup),
                    "give more steps than the warm-up has");
  // Both parts are 1 where the other one changes.
  const Value unrisen = schedule.falling(options.annealing, schedule.done(0, options.warmup));
  const Value left = schedule.falling(options.annealing, schedule.done(options.warmup, options.steps));
  const Value rise = schedule.arg(1.0) - schedule.arg(schedule.arg(unrisen) * (1 - options.initial));
  const Value fall = schedule.arg(schedule.arg(left) * (1 - options.final)) + options.final;
  return schedule.arg(schedule.arg(rise) * schedule.arg(fall)) * options.peak;
}

}  // namespace graphsink
