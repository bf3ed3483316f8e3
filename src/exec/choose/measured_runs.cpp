#include "exec/choose/measured_runs.h"

#include <ctime>

namespace graphsink {
namespace {

// Returns the CPU time of this thread in nanoseconds. Time asleep does not count.
double thread_ns() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e9 + static_cast<double>(now.tv_nsec);
}

}  // namespace

void MeasuredRuns::read_step_times() {
  status_.times().read(times_read_, [&](const StepTime& time) {
    const TimeTag tag(time.tag);
    ShapeEntry* entry = shapes_.numbered(tag.entry());
    if (!entry) return;
    const Mode mode = tag.turn() ? entry->chooser.mode_of(tag.turn()) : tag.is_sunk() ? sink : interactive_serial;
    double ns = step_clock_ ? step_clock_(mode) : static_cast<double>(time.ns);
    if (tag.turn()) entry->chooser.completed(tag.turn(), ns, time.ok != 0);
    if (policy_.wants_times() && time.ok) policy_.completed(entry->times, tag.is_sunk(), ns);
  });
}

void MeasuredRuns::issue_turn(ShapeEntry& entry, const ModeChooser::Turn& turn, std::int64_t first) {
  // The first launch also pays for the capture. If the capture is refused, the step does not sink. Neither is timed.
  bool is_timed = turn.mode == interactive_serial || runner_.is_captured(entry, turn.mode, turn.steps);
  if (!is_timed) entry.chooser.drop();
  runner_.set_times(is_timed ? &status_.times() : nullptr, turn.tag);
  bool is_compared = is_timed && turn.is_compared;
  double begun = is_compared ? thread_ns() : 0;
  runner_.run(entry, turn.mode, first, first + turn.steps);
  if (is_compared) entry.chooser.issued(turn, step_clock_ ? 0 : thread_ns() - begun);
}

void MeasuredRuns::run(ShapeEntry& entry, Mode mode, std::int64_t first, std::int64_t end) {
  if (mode == automatic) return run_automatic(entry, first, end);
  runner_.set_times(policy_.wants_times() ? &status_.times() : nullptr);
  if (policy_.wants_times()) read_step_times();
  runner_.run(entry, mode, first, end);
}

void MeasuredRuns::run_automatic(ShapeEntry& entry, std::int64_t first, std::int64_t end) {
  read_step_times();
  while (first < end) {
    const bool may_sink = entry.is_captured(sink) || policy_.may_capture(entry.times);
    ModeChooser::Turn turn = entry.chooser.next(end - first, may_sink);
    try {
      issue_turn(entry, turn, first);
    } catch (...) {
      entry.chooser.drop();
      throw;
    }
    first += turn.steps;
  }
}

}  // namespace graphsink
