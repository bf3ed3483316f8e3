// Runs in the modes that sink: records a step once, then launches what was recorded and drives the rest.
#include <utility>

#include "api/program_impl.h"
#include "base/trace.h"
#include "passes/passes.h"

namespace graphsink {
namespace {

constexpr int kMaxFailedRecordings = 3;

}  // namespace

// The first step of a binding is a real one, issued op by op; then it is recorded.
void Program::Impl::run_sunk(Mode mode, std::int64_t first, std::int64_t end) {
  if (!current_->ran_once) {
    run_interactive(Mode::interactive_serial, first, first + 1);
    ++first;
  }
  if (current_->recordings_of(mode).empty() && !record(mode, false)) {
    fallbacks_ += static_cast<std::uint64_t>(end - first);
    if (first < end) run_interactive(Mode::interactive_serial, first, end);
    return;
  }
  bool in_one = is_one_launch(mode, end - first);
  if (in_one && !current_->loop) in_one = record(mode, true);
  if (in_one) {
    TraceRange range("launch");
    push_params(first, end);
    device_->launch(*streams_[0], *current_->loop, end - first);
    return;
  }
  for (std::int64_t step = first; step < end; ++step) launch_islands(mode, step);
}

bool Program::Impl::is_one_launch(Mode mode, std::int64_t steps) const {
  return mode == sink && current_->plan().loop_over_steps && steps > 1;
}

// What the host drives beside a launch goes to streams_[1], which nothing else uses then: streams of a launch are part
// of its recording.
void Program::Impl::launch_islands(Mode mode, std::int64_t step) {
  TraceRange range("launch");
  push_params(step, step + 1);
  const auto& islands = current_->islands_of(mode);
  const auto& recordings = current_->recordings_of(mode);
  bool is_beside = false;  // work on streams_[1] that streams_[0] has not joined
  auto join = [&] {
    if (std::exchange(is_beside, false)) device_->fence(*streams_[0], *streams_[1]);
  };
  HostCalls host_calls = is_split(mode) ? HostCalls::waiting : HostCalls::in_stream;
  auto issue = [&](const Island& island, std::size_t on) {
    current_->issue(island.first, island.last, devices_, streams(Mode::interactive_serial, on), host_calls);
  };
  for (std::size_t i = 0; i < islands.size(); ++i) {
    if (Mark* mark = current_->mark_of(islands[i])) {
      device_->wait_for_mark(*streams_[1], *mark);
      is_beside = true;
      issue(islands[i], 1);
      continue;
    }
    join();
    if (recordings[i]) {
      device_->launch(*streams_[0], *recordings[i]);
    } else {
      if (i == 0) device_->begin(*streams_[0], launches_.ring());
      issue(islands[i], 0);
    }
  }
  join();
}

bool Program::Impl::record(Mode mode, bool several_steps) {
  if (current_->failed_recordings >= kMaxFailedRecordings) return false;
  TraceRange range("record");
  Streams all = streams(mode);
  try {
    if (several_steps) {
      device_->begin_recording(all);
      device_->begin(*all[0], launches_.ring());
      device_->loop(all, &control()->block.more, [&](Streams inner) { current_->issue_all(devices_, inner); });
      current_->loop = device_->end_recording(all);
      if (options_.guards.arguments) audit_arguments(*current_->loop);
    } else {
      record_islands(mode);
    }
    return true;
  } catch (const RecordingFailed& e) {
    device_->cancel_recording(all);
    if (!several_steps) current_->recordings_of(mode).clear();
    log_.warn({"a step runs op by op, its recording failed: ", e.what()});
    if (++current_->failed_recordings == kMaxFailedRecordings) {
      current_->plan().reasons.push_back(
          {"runs op by op", e.where(), e.problem(), "one launch for each op", e.remedy()});
    }
    return false;
  } catch (...) {
    device_->cancel_recording(all);
    throw;
  }
}

void Program::Impl::record_islands(Mode mode) {
  auto& recordings = current_->recordings_of(mode);
  Marks marks = mode == sink ? Marks::of_islands : Marks::of_split_islands;
  Streams all = streams(mode);
  for (const Island& island : current_->islands_of(mode)) {
    recordings.push_back(nullptr);
    if (!island.sunk) continue;
    device_->begin_recording(all);
    if (recordings.size() == 1) device_->begin(*all[0], launches_.ring());  // the first island begins the step
    current_->issue(island.first, island.last, devices_, all, HostCalls::in_stream, marks);
    recordings.back() = device_->end_recording(all);
    if (options_.guards.arguments) audit_arguments(*recordings.back());
  }
}

}  // namespace graphsink
