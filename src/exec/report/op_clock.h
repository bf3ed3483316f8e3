// Measures how long each op of a step takes, with the clock of the device.
#pragma once

#include <vector>

#include "device/device.h"
#include "exec/capture/capture_slot.h"
#include "ir/bound_node.h"
#include "ir/plan.h"
#include "ir/system_ops.h"

namespace graphsink {

// For the tasks of one plan, on one device, whose work goes to one stream. Behind each task follows a lap, a node that
// adds the time since the last lap to that of the task, so that the host need not wait in between.
class OpClock {
 public:
  // Allocates memory of the device. Throws OutOfMemory.
  OpClock(const Plan& plan, Device& device);
  OpClock(const OpClock&) = delete;
  OpClock& operator=(const OpClock&) = delete;

  // Call it when a step begins: measures what a lap itself takes, and starts the time of the next task.
  void begin_step(Stream& stream);
  // Call it behind a task: `task` is its number in the plan.
  void end_task(Stream& stream, int task) { device_.call(stream, nodes_[static_cast<std::size_t>(task)]); }
  // Starts the time of the next task, where the host has decided something in between.
  void restart(Stream& stream) { device_.call(stream, nodes_[restart_]); }

  // The time of one run, in ns, without that of the lap, and the number of runs.
  struct TaskTime {
    std::int64_t runs = 0;
    double ns = 0;
  };
  // Per task of the plan. Waits for the stream.
  std::vector<TaskTime> times(Stream& stream) const;

  CaptureSlot captured;  // the step with its laps, if it can be captured

 private:
  Device& device_;
  const std::size_t restart_, empty_;  // numbers of Laps: of what is not measured, the first of those with no task
  Memory laps_;                        // Laps of the tasks, then these, then the time of the last lap
  std::vector<void*> pointers_;        // operands of the nodes
  std::vector<BoundNode> nodes_;       // per Lap
};

}  // namespace graphsink
