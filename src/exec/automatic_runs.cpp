#include "exec/automatic_runs.h"

#include <ctime>

namespace graphsink {
namespace {

constexpr int kChooserBits = 48;  // the lower bits of a tag; the bits above hold the number of the shape entry
constexpr std::size_t kTimedEntries = std::size_t{1} << (64 - kChooserBits);
constexpr std::uint64_t kChooserMask = (std::uint64_t{1} << kChooserBits) - 1;

// Returns the CPU time of this thread in nanoseconds. Time asleep does not count.
double thread_ns() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e9 + static_cast<double>(now.tv_nsec);
}

}  // namespace

void AutomaticRuns::read_step_times() {
  status_.times().read(times_read_, [&](const StepTime& time) {
    ShapeEntry* entry = shapes_.numbered(time.tag >> kChooserBits);
    if (!entry) return;
    std::uint64_t tag = time.tag & kChooserMask;
    double ns = step_clock_ ? step_clock_(entry->chooser.mode_of(tag)) : static_cast<double>(time.ns);
    entry->chooser.completed(tag, ns, time.ok != 0);
  });
}

void AutomaticRuns::issue_turn(ShapeEntry& entry, const ModeChooser::Turn& turn, std::int64_t first) {
  // The first launch also pays for the capture. If the capture is refused, the step does not sink. Neither is timed.
  bool is_timed = turn.mode == interactive_serial || runner_.is_captured(entry, turn.mode, turn.steps);
  is_timed = is_timed && entry.number < kTimedEntries;
  if (!is_timed) entry.chooser.drop();
  runner_.set_times(is_timed ? &status_.times() : nullptr, std::uint64_t{entry.number} << kChooserBits | turn.tag);
  bool is_compared = is_timed && turn.is_compared;
  double begun = is_compared ? thread_ns() : 0;
  runner_.run(entry, turn.mode, first, first + turn.steps);
  if (is_compared) entry.chooser.issued(turn, step_clock_ ? 0 : thread_ns() - begun);
}

void AutomaticRuns::run(ShapeEntry& entry, std::int64_t steps) {
  read_step_times();
  for (std::int64_t first = 0; first < steps;) {
    ModeChooser::Turn turn = entry.chooser.next(steps - first);
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
