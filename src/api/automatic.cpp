// Runs in the mode `automatic`: issues what the chooser says, and tells it what steps took.
#include <ctime>

#include "api/program_impl.h"

namespace graphsink {
namespace {

constexpr int kChooserBits = 48;  // of a tag; those above are the number of the entry for its shapes
constexpr std::size_t kTimedEntries = std::size_t{1} << (64 - kChooserBits);
constexpr std::uint64_t kChooserMask = (std::uint64_t{1} << kChooserBits) - 1;

// Time that this thread has worked, without the time it slept.
double thread_ns() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e9 + static_cast<double>(now.tv_nsec);
}

}  // namespace

void Program::Impl::read_step_times() {
  step_times().read(step_times_read_, [&](const StepTime& time) {
    ShapeEntry* entry = shapes_.numbered(time.tag >> kChooserBits);
    if (!entry) return;
    std::uint64_t tag = time.tag & kChooserMask;
    double ns = step_clock_ ? step_clock_(entry->chooser.mode_of(tag)) : static_cast<double>(time.ns);
    entry->chooser.completed(tag, ns, time.ok != 0);
  });
}

// Whether so many steps at once are launched without a capture.
bool Program::Impl::is_captured(Mode mode, std::int64_t steps) const {
  if (!current_->is_captured(mode)) return false;
  return !is_one_launch(mode, steps) || current_->loop.is_captured();
}

void Program::Impl::issue_turn(const ModeChooser::Turn& turn, std::int64_t first) {
  ModeChooser& chooser = current_->chooser;
  // A first launch pays for more than itself, and what cannot be captured is no sunk step.
  bool is_timed = turn.mode == interactive_serial || is_captured(turn.mode, turn.steps);
  is_timed = is_timed && current_->number < kTimedEntries;
  if (!is_timed) chooser.drop();
  params_.times = is_timed ? &step_times() : nullptr;
  params_.tag = std::uint64_t{current_->number} << kChooserBits | turn.tag;
  bool is_compared = is_timed && turn.is_compared;
  double begun = is_compared ? thread_ns() : 0;
  if (turn.mode.execution == Mode::Execution::sunk) {
    run_sunk(turn.mode, first, first + turn.steps);
  } else {
    run_interactive(turn.mode, first, first + turn.steps);
  }
  if (is_compared) chooser.issued(turn, step_clock_ ? 0 : thread_ns() - begun);
}

void Program::Impl::run_automatic(std::int64_t steps) {
  read_step_times();
  for (std::int64_t first = 0; first < steps;) {
    ModeChooser::Turn turn = current_->chooser.next(steps - first);
    try {
      issue_turn(turn, first);
    } catch (...) {
      current_->chooser.drop();
      throw;
    }
    first += turn.steps;
  }
}

AutomaticReport Program::Impl::automatic_report() {
  read_step_times();
  return current_ ? current_->chooser.report() : AutomaticReport{};
}

}  // namespace graphsink
