// Runs in the modes that sink: captures a step once, then launches what was captured and drives the rest.
#include <utility>

#include "api/program_impl.h"
#include "base/trace.h"
#include "passes/passes.h"

namespace graphsink {
namespace {

// What becomes of work that could not be captured.
constexpr const char *kOpByOp = "a step runs op by op", *kStepByStep = "a run of several steps takes several launches";

}  // namespace

// The first step for each set of input shapes is a real one, issued op by op; then it is captured.
void Program::Impl::run_sunk(Mode mode, std::int64_t first, std::int64_t end) {
  if (!current_->ran_once) {
    run_interactive(interactive_serial, first, first + 1);
    ++first;
  }
  if (!capture_islands(mode)) {
    fallbacks_ += static_cast<std::uint64_t>(end - first);
    if (first < end) run_interactive(interactive_serial, first, end);
    return;
  }
  if (is_one_launch(mode, end - first) && capture_loop(mode)) {
    TraceRange range("launch");
    push_params(first, end);
    current_->loop.launch(device(), stream(), end - first);
    return;
  }
  for (std::int64_t step = first; step < end; ++step) launch_islands(mode, step);
}

bool Program::Impl::is_one_launch(Mode mode, std::int64_t steps) const {
  return mode == sink && current_->bound.plan().loop_over_steps && steps > 1;
}

// What the host drives beside a launch goes to the stream beside the program's, which nothing else uses then: streams
// of a launch are part of its capture.
void Program::Impl::launch_islands(Mode mode, std::int64_t step) {
  TraceRange range("launch");
  push_params(step, step + 1);
  const auto& islands = current_->bound.islands_of(mode);
  auto& slots = current_->slots_of(mode);
  bool is_beside = false;  // some work there was not joined
  auto join = [&] {
    if (std::exchange(is_beside, false)) device().fence(stream(), session_.stream_beside());
  };
  auto issue = [&](const Island& island, Session::Spread spread) {
    current_->bound.issue(island.first, island.last, session_.devices(), streams(spread), mode.host_ops);
  };
  for (std::size_t i = 0; i < islands.size(); ++i) {
    if (Mark* mark = current_->bound.mark_of(islands[i])) {
      device().wait_for_mark(session_.stream_beside(), *mark);
      is_beside = true;
      issue(islands[i], Session::Spread::serial_beside);
      continue;
    }
    join();
    if (islands[i].sunk) {
      slots[i].launch(device(), stream());
    } else {
      if (i == 0) device().begin(stream(), launches_.ring());
      issue(islands[i], Session::Spread::serial);
    }
  }
  join();
}

bool Program::Impl::capture(CaptureSlot& slot, Mode mode, FunctionRef<void(Streams)> issue, const char* otherwise) {
  if (slot.is_captured()) return true;
  if (slot.is_refused()) return false;
  TraceRange range("capture");
  if (!slot.capture(device(), streams(mode), issue)) {
    log_.warn({otherwise, ", its capture failed: ", slot.failure()->what()});
    return false;
  }
  has_captured_ = true;
  if (options_.guards.arguments) audit_arguments(slot.graph());
  return true;
}

bool Program::Impl::capture_islands(Mode mode) {
  const auto& islands = current_->bound.islands_of(mode);
  auto& slots = current_->slots_of(mode);
  Marks marks = mode == sink ? Marks::of_islands : Marks::of_split_islands;
  for (std::size_t i = 0; i < islands.size(); ++i) {
    if (!islands[i].sunk) continue;
    auto issue = [&](Streams all) {
      if (i == 0) device().begin(*all[0], launches_.ring());
      current_->bound.issue(islands[i].first, islands[i].last, session_.devices(), all, Mode::HostOps::in_stream,
                            marks);
    };
    if (!capture(slots[i], mode, issue, kOpByOp)) return false;
  }
  return true;
}

bool Program::Impl::capture_loop(Mode mode) {
  auto issue = [&](Streams all) {
    device().begin(*all[0], launches_.ring());
    device().loop(all, &control()->block.more,
                  [&](Streams inner) { current_->bound.issue_all(session_.devices(), inner); });
  };
  return capture(current_->loop, mode, issue, kStepByStep);
}

PlanFacts Program::Impl::facts() const {
  if (!current_) return prepared_ ? facts_of(*prepared_) : PlanFacts();
  PlanFacts facts = current_->bound.facts();
  auto add = [&](const CaptureSlot& slot, const char* what, const char* cost) {
    if (!slot.is_refused()) return;
    const CaptureFailed& why = *slot.failure();
    facts.reasons.push_back({what, why.where(), why.problem(), cost, why.remedy()});
  };
  for (const auto* slots : {&current_->islands, &current_->split_islands})
    for (const CaptureSlot& slot : *slots) add(slot, kOpByOp, "one launch for each op");
  add(current_->loop, kStepByStep, "one launch for each step");
  return facts;
}

}  // namespace graphsink
