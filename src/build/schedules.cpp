#include <cmath>
#include <utility>
#include <vector>

#include "base/convert.h"
#include "base/number_text.h"
#include "graphsink/ops.h"
#include "graphsink/optim.h"

namespace graphsink {
namespace {

void check(const CosineSchedule& schedule, const Where& where) {
  auto refuse = [&](const std::string& problem, const char* remedy) {
    throw Error("cosine_schedule", where, problem, remedy);
  };
  if (schedule.warmup < 0 || schedule.steps < 0)
    refuse("warmup is " + std::to_string(schedule.warmup) + " and steps is " + std::to_string(schedule.steps),
           "give numbers of at least 0");
  if (schedule.steps > 0 && schedule.steps <= schedule.warmup)
    refuse("the schedule of " + std::to_string(schedule.steps) + " steps ends before its warm-up of " +
               std::to_string(schedule.warmup) + " does",
           "give more steps than the warm-up has, or steps = 0 to stay at the peak");
  if (schedule.dtype != f32 && schedule.dtype != f64)
    refuse("the dtype is " + std::string(to_string(schedule.dtype)), "use f32 or f64");
  for (double x : {schedule.peak, schedule.final})
    if (!std::isfinite(x) || !holds(schedule.dtype, x))
      refuse("peak or final is " + number_text(x), "give finite numbers of the dtype");
}

}  // namespace

Value cosine_schedule(const Graph& graph, const CosineSchedule& schedule, Where where) {
  check(schedule, where);
  auto arg = [&](const Value& value) { return Arg(value, where); };
  Value step = cast(arg(Graph(graph).step(where)), schedule.dtype);
  Value rate = Graph(graph).constant(Tensor::full(schedule.dtype, {}, schedule.peak), where);
  if (schedule.steps > schedule.warmup) {
    double length = static_cast<double>(schedule.steps - schedule.warmup);
    Value done = (arg(step) - static_cast<double>(schedule.warmup)) / length;
    Value half = cos(arg(minimum(arg(maximum(arg(done), 0.0)), 1.0)) * M_PI) * 0.5 + 0.5;
    rate = (half * (1 - schedule.final) + schedule.final) * schedule.peak;
  }
  if (schedule.warmup == 0) return rate;
  Value risen = minimum((arg(step) + 1.0) / static_cast<double>(schedule.warmup), 1.0);
  return arg(rate) * risen;
}

}  // namespace graphsink
