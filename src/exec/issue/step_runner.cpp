#include "exec/issue/step_runner.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <exception>
#include <utility>

#include "base/at.h"
#include "base/trace.h"
#include "exec/issue/capture_votes.h"
#include "ir/agreement.h"
#include "passes/plan_queries.h"

namespace graphsink {
namespace {

std::uint8_t bit_of(Mode mode) { return static_cast<std::uint8_t>(1u << static_cast<unsigned>(mode)); }

// The same mode, or sink where split_sink has nothing to split.
Mode mode_of_launches(const ShapeEntry& entry, Mode mode) {
  return mode == split_sink && entry.bound.islands_of(split_sink).empty() ? sink : mode;
}

// Tells whether several steps run as one launch.
bool is_one_launch(const ShapeEntry& entry, Mode mode, std::int64_t steps) {
  return mode == sink && entry.plan().loop_over_steps && steps > 1;
}

// How many of `steps` steps the next launch holds. All ranks find the same: which captures were refused is equal on
// all of them.
std::int64_t next_unrolled(const ShapeEntry& entry, std::int64_t steps) {
  auto next =
      static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(std::min(steps, entry.unrolled_steps))));
  while (next > 1 && entry.captures.unrolled[Captures::unrolled_place(next)].is_refused()) next /= 2;
  return next;
}

// Whether a run of `steps` steps needs no further capture.
bool are_captured(const ShapeEntry& entry, std::int64_t steps) {
  while (steps > 0) {
    const std::int64_t next = next_unrolled(entry, steps);
    if (next > 1 && !entry.captures.unrolled[Captures::unrolled_place(next)].is_captured()) return false;
    steps -= next;
  }
  return true;
}

double host_ns() {
  return std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

StepRunner::StepRunner(Session& session, const StepStatus& status, CapturePolicy& policy, const Log& log,
                       OnCapture on_capture)
    : session_(session),
      status_(status),
      policy_(policy),
      log_(log),
      on_capture_(std::move(on_capture)),
      host_clock_(host_ns) {}

void StepRunner::allocate(Control* control) {
  launches_.allocate(device(), &control->block, &control->next_launch);
  more_ = &control->block.more;
}

Streams StepRunner::streams(const ShapeEntry& entry, Mode mode) {
  return streams(entry, is_serial(mode) ? Session::Spread::serial : Session::Spread::parallel);
}

void StepRunner::push_params(ShapeEntry& entry, bool is_sunk, std::int64_t first_slice, std::int64_t end_slice) {
  params_.first_slice = static_cast<std::int32_t>(first_slice);
  params_.end_slice = static_cast<std::int32_t>(end_slice);
  params_.acknowledged = status_.acknowledged();
  params_.times = TimeTag::can_name(entry.number) ? times_ : nullptr;
  params_.tag = TimeTag(entry.number, is_sunk, turn_).value();
  launches_.push(params_, device(), stream());
  entry.last_launch = launches_.pushed();
}

// The steps that were issued before have ended when the ranks meet: see capture_on_all_ranks().
void StepRunner::agree_on(const ShapeEntry& entry, Mode mode) {
  if ((known_modes_ & bit_of(mode)) != 0) return;
  if (entry.ranks) {
    device().wait(stream());
    CaptureVotes(*entry.ranks, mode).begin_mode();
  }
  known_modes_ |= bit_of(mode);
}

// Ranks of other plans may have nothing to split, and so may have captured a step for another mode before.
bool StepRunner::can_launch(const ShapeEntry& entry, Mode mode) const {
  if (entry.ranks) return (entry.captured_by_ranks & bit_of(mode)) != 0;
  return entry.is_captured(mode_of_launches(entry, mode));
}

void StepRunner::run(ShapeEntry& entry, Mode mode, std::int64_t first, std::int64_t end) {
  agree_on(entry, mode);
  if (is_sunk(mode)) {
    run_sunk(entry, mode, first, end);
  } else {
    run_interactive(entry, mode, first, end);
  }
}

void StepRunner::enqueue(ShapeEntry& entry, Stream& callers, std::shared_ptr<void> owner) {
  GRAPHSINK_TRACE(capture, "capture");
  struct Inside {
    DeviceCapture& device;
    Streams streams;
    ~Inside() { device.leave_capture(streams); }
  } inside{device(), streams(entry, sink)};
  const Streams all = inside.streams;
  device().enter_capture(all, callers, std::move(owner));
  device().begin(*all[0], launches_.standing_ring());
  entry.bound.issue_all(session_.devices(), all);
  entry.is_in_callers_graph = true;
}

bool StepRunner::is_captured(const ShapeEntry& entry, Mode mode, std::int64_t steps) const {
  if (!entry.is_captured(mode)) return false;
  if (mode == sink && entry.unrolled_steps > 1) return are_captured(entry, steps);
  return !is_one_launch(entry, mode, steps) || entry.captures.loop.is_captured();
}

void StepRunner::run_interactive(ShapeEntry& entry, Mode mode, std::int64_t first, std::int64_t end) {
  Streams all = streams(entry, mode);
  push_params(entry, false, first, end);
  device().begin(*all[0], launches_.ring());
  for (std::int64_t step = first; step < end; ++step) entry.bound.issue_all(session_.devices(), all, {is_split(mode)});
  entry.times.interactive_steps += end - first;
}

void StepRunner::run_timed(ShapeEntry& entry, OpClock& clock, std::int64_t first, std::int64_t end) {
  agree_on(entry, interactive_serial);
  auto issue = [&](Streams all) {
    device().begin(*all[0], launches_.ring());
    entry.bound.issue_all(session_.devices(), all, {.clock = &clock});
  };
  CaptureSlot& slot = clock.captured;
  // With ranks, all would have to capture it.
  if (sinks_whole(entry.plan()) && !entry.ranks && !slot.capture(device(), streams(entry, interactive_serial), issue))
    log_.warn({"time_ops() issues the steps op by op, their capture failed: ", slot.failure()->what()});
  for (std::int64_t step = first; step < end; ++step) {
    push_params(entry, false, step, step + 1);
    if (slot.is_captured()) {
      slot.launch(device(), stream());
    } else {
      issue(streams(entry, interactive_serial));
    }
  }
}

// Runs steps [first, end) as launches. The first steps for each set of input shapes are issued op by op; then the step
// is captured.
void StepRunner::run_sunk(ShapeEntry& entry, Mode asked, std::int64_t first, std::int64_t end) {
  const bool captured = can_launch(entry, asked);
  const std::int64_t op_by_op = captured ? 0 : std::min(policy_.steps_to_wait(entry.times), end - first);
  if (op_by_op > 0) {
    run_interactive(entry, interactive_serial, first, first + op_by_op);
    first += op_by_op;
    if (policy_.steps_to_wait(entry.times) > 0 || (first == end && policy_.wants_times())) return;
  }
  if (!captured && !capture_on_all_ranks(entry, asked)) {
    GRAPHSINK_TRACE(fallback, "op by op");
    fallbacks_ += static_cast<std::uint64_t>(end - first);
    if (first < end) run_interactive(entry, interactive_serial, first, end);
    return;
  }
  const Mode mode = mode_of_launches(entry, asked);
  const bool may_unroll = asked == sink || entry.unrolls_split_sink;
  if (mode == sink && may_unroll && entry.unrolled_steps > 1) return launch_unrolled(entry, first, end);
  if (is_one_launch(entry, mode, end - first) && capture_loop(entry, mode)) {
    GRAPHSINK_TRACE(launch, "launch");
    push_params(entry, true, first, end);
    entry.captures.loop.launch(device(), stream(), end - first);
    return;
  }
  for (std::int64_t step = first; step < end; ++step) launch_islands(entry, mode, step);
}

// Runs one step island by island. Islands that run beside launches go to a second stream, and so do the launches of
// bodies in them. No other launch uses that stream, because all streams of a launch are part of its capture.
void StepRunner::launch_islands(ShapeEntry& entry, Mode mode, std::int64_t step) {
  GRAPHSINK_TRACE(launch, "launch");
  push_params(entry, true, step, step + 1);
  const auto& islands = entry.bound.islands_of(mode);
  auto& slots = entry.captures.slots_of(mode);
  int last_beside = -1;  // the last island on the second stream for which the program's stream has not waited
  auto join = [&] {
    if (std::exchange(last_beside, -1) >= 0) device().make_wait(stream(), session_.stream_beside());
  };
  auto launch_of_body = [&](int sequence, std::size_t island, Stream& on) {
    entry.captures.bodies[at(sequence)][island].launch(device(), on);
  };
  const LaunchInBody launch_in_body(launch_of_body);
  auto issue = [&](const Island& island, Session::Spread spread) {
    entry.bound.issue(island.tasks, session_.devices(), streams(entry, spread),
                      {is_split(mode), nullptr, &launch_in_body});
  };
  for (int i = 0; i < static_cast<int>(islands.size()); ++i) {
    const Island& island = islands[at(i)];
    if (island.beside) {
      issue(island, Session::Spread::serial_beside);
      last_beside = i;
      continue;
    }
    for (int before : island.after)
      if (islands[at(before)].beside) join();
    if (island.sunk) {
      slots[at(i)].launch(device(), stream());
    } else {
      if (i == 0) device().begin(stream(), launches_.ring());
      issue(island, Session::Spread::serial);
    }
    if (island.starts_beside) device().make_wait(session_.stream_beside(), stream());
  }
  join();
}

bool StepRunner::capture(ShapeEntry& entry, CaptureSlot& slot, std::unique_ptr<CapturedGraph> spare, Mode mode,
                         FunctionRef<void(Streams)> issue, const char* otherwise) {
  if (slot.is_captured()) return true;
  if (slot.is_refused()) return false;
  GRAPHSINK_TRACE(capture, "capture");
  if (!slot.capture(device(), streams(entry, mode), issue, std::move(spare))) {
    log_.warn({otherwise, ", its capture failed: ", slot.failure()->what()});
    return false;
  }
  has_captured_ = true;
  if (on_capture_) on_capture_(entry, slot.graph());
  return true;
}

bool StepRunner::capture_islands(ShapeEntry& entry, Mode mode) {
  const double begun = host_clock_();
  auto capture_all = [&](const std::vector<Island>& islands, bool begin_step, std::vector<CaptureSlot>& slots,
                         std::vector<CaptureSlot>& spares) {
    for (std::size_t i = 0; i < islands.size(); ++i) {
      if (!islands[i].sunk) continue;
      auto issue = [&](Streams all) {
        if (i == 0 && begin_step) device().begin(*all[0], launches_.ring());
        entry.bound.issue(islands[i].tasks, session_.devices(), all);
      };
      auto spare = i < spares.size() ? spares[i].take() : nullptr;
      if (!capture(entry, slots[i], std::move(spare), mode, issue, kOpByOp)) return false;
    }
    return true;
  };
  if (!capture_all(entry.bound.islands_of(mode), true, entry.captures.slots_of(mode), entry.spares.slots_of(mode)))
    return false;
  std::vector<CaptureSlot> none;
  for (std::size_t i = 0; i < entry.captures.bodies.size(); ++i) {
    auto& spares = i < entry.spares.bodies.size() ? entry.spares.bodies[i] : none;
    if (!capture_all(entry.plan().sequences[i].islands, false, entry.captures.bodies[i], spares)) return false;
  }
  policy_.captured(host_clock_() - begun);
  return true;
}

bool StepRunner::capture_on_all_ranks(ShapeEntry& entry, Mode asked) {
  const Mode mode = mode_of_launches(entry, asked);
  if (!entry.ranks) return capture_islands(entry, mode);
  if (entry.refused_by_ranks >= CaptureSlot::kMaxFailures) return false;
  bool is_captured = false;
  std::exception_ptr thrown;
  try {
    is_captured = capture_islands(entry, mode);
  } catch (...) {
    thrown = std::current_exception();  // the others wait for what this rank has to tell
  }
  // A device whose work goes on only while the host waits for it, as that of the software device may, would keep the
  // steps of other ranks from ending, and so these ranks from coming here.
  device().wait(stream());
  const std::int64_t can_unroll = mode == split_sink ? 1 : std::max<std::int64_t>(entry.plan().unrolled_steps, 1);
  const CaptureVotes votes(*entry.ranks, asked);
  const std::int64_t least = votes.least(1, is_captured ? can_unroll : 0);
  // A second vote, on how many sets of input shapes all ranks keep: they drop the others behind this run.
  keep_shapes_(votes.least(1, shapes_with_room_()));
  has_captured_ = true;
  if (thrown) std::rethrow_exception(thrown);
  if (least > 0) {
    if (asked == sink || least > 1) entry.unrolled_steps = least;
    if (asked == split_sink) entry.unrolls_split_sink = least > 1;
    entry.captured_by_ranks |= bit_of(asked);
    return true;
  }
  entry.captured_by_ranks = 0;
  ++entry.refused_by_ranks;
  const CaptureFailed reason = CaptureVotes::refused();
  const auto drop = [&](std::vector<CaptureSlot>& slots) {
    for (CaptureSlot& slot : slots)
      if (slot.is_captured()) slot.drop(reason);
  };
  drop(entry.captures.slots_of(mode));
  for (std::vector<CaptureSlot>& slots : entry.captures.bodies) drop(slots);
  log_.warn({kOpByOp, ": ", reason.what()});
  return false;
}

bool StepRunner::capture_loop(ShapeEntry& entry, Mode mode) {
  auto issue = [&](Streams all) {
    device().begin(*all[0], launches_.ring());
    device().control(all, TaskKind::loop, more_, 1,
                     [&](std::size_t, Streams inner) { entry.bound.issue_all(session_.devices(), inner); });
  };
  return capture(entry, entry.captures.loop, nullptr, mode, issue, kStepByStep);
}

bool StepRunner::capture_unrolled(ShapeEntry& entry, CaptureSlot& slot, std::int64_t steps) {
  device().wait(stream());  // see capture_on_all_ranks()
  const CaptureVotes votes(*entry.ranks, sink);
  votes.least(steps, 1);  // before the collectives are captured, for which NCCL may need the other ranks
  std::vector<CaptureSlot>& spares = entry.spares.unrolled;
  const std::size_t place = Captures::unrolled_place(steps);
  auto issue = [&](Streams all) {
    device().begin(*all[0], launches_.ring());
    for (std::int64_t step = 0; step < steps; ++step) entry.bound.issue_all(session_.devices(), all);
  };
  bool is_captured = false;
  std::exception_ptr thrown;
  try {
    auto spare = place < spares.size() ? spares[place].take() : nullptr;
    is_captured = capture(entry, slot, std::move(spare), sink, issue, kStepByStep);
  } catch (...) {
    thrown = std::current_exception();  // the others wait for what this rank has to tell
  }
  const bool all_have = votes.least(steps, is_captured ? 1 : 0) > 0;
  if (!all_have && (is_captured || thrown)) {  // where the capture failed, the slot has counted that
    const CaptureFailed reason = CaptureVotes::refused();
    slot.drop(reason);
    log_.warn({kStepByStep, ": ", reason.what()});
  }
  if (thrown) std::rethrow_exception(thrown);
  return all_have;
}

void StepRunner::launch_unrolled(ShapeEntry& entry, std::int64_t first, std::int64_t end) {
  bool may_capture = true;  // after a capture that failed, the run goes on step by step
  while (first < end) {
    std::int64_t steps = may_capture ? next_unrolled(entry, end - first) : 1;
    if (steps > 1) {
      CaptureSlot& slot = entry.captures.unrolled[Captures::unrolled_place(steps)];
      if (slot.is_captured() || capture_unrolled(entry, slot, steps)) {
        GRAPHSINK_TRACE(launch, "launch");
        push_params(entry, true, first, first + steps);
        slot.launch(device(), stream());
        first += steps;
        continue;
      }
      may_capture = false;
    }
    launch_islands(entry, sink, first++);
  }
}

}  // namespace graphsink
