// What a Program does because others use its Variables, too.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <thread>

#include "api/program_impl.h"

namespace graphsink {
namespace {

constexpr int kPatientTries = 8;

// Programs that take Variables from each other at the same pace would do so for ever.
void fall_out_of_step(int tries, const void* program) {
  if (tries < kPatientTries) return std::this_thread::yield();
  auto factor = static_cast<int>(reinterpret_cast<std::uintptr_t>(program) / 64 % 7) + 1;
  std::this_thread::sleep_for(std::chrono::microseconds(factor << std::min(tries - kPatientTries, 8)));
}

}  // namespace

// Programs that share a Variable follow one another: when this returns, this one was the last to take each of its
// Variables, and whoever wants one waits for the end of this run. Programs that run at the same time in several threads
// and share several Variables may take them from each other while they are at it, and begin again. An order in which
// all programs take their Variables would make that impossible, and belongs into order_variables().
void Program::Impl::enter_run(std::optional<RunGate::Inside>& inside) {
  for (int tries = 0;; ++tries) {
    inside.emplace(*gate_);
    std::uint64_t epoch = gate_->epoch();
    if (epoch == ordered_epoch_) return;
    inside.reset();  // nobody takes the mutex of a Variable inside
    if (tries > 0) fall_out_of_step(tries, this);
    require_whole_variables();
    order_variables();
    ordered_epoch_ = epoch;
  }
}

void Program::Impl::order_variables() {
  shares_variables_ = false;
  for (Used& used : variables_) {
    std::lock_guard lock(used.variable.data()->mutex);
    used.version = used.home->version();
    used.home->used_by(*device_, streams_[0], gate_);
    used.is_shared = used.home->is_shared();
    shares_variables_ = shares_variables_ || used.is_shared;
  }
}

Program::Impl::WrittenVariables::~WrittenVariables() {
  bool is_touched = program_.gate_->epoch() != program_.ordered_epoch_;  // there may be new users
  if (!program_.shares_variables_ && !is_touched) return;
  for (const Used& used : program_.variables_) {
    if (!used.is_written || !(used.is_shared || is_touched)) continue;
    std::lock_guard lock(used.variable.data()->mutex);
    used.home->was_written(*program_.gate_);
  }
}

std::uint64_t Program::Impl::version_of(const Buffer& source) {
  if (source.storage == Storage::input) return inputs_->version(source.index);
  return used(current_->plan().variables[static_cast<std::size_t>(source.index)]).version;
}

void Program::Impl::refresh_hoisted() {
  const Plan& plan = current_->plan();
  for (std::size_t i = 0; i < plan.hoisted.size(); ++i) {
    const HoistedCopy& copy = plan.hoisted[i];
    std::uint64_t version = version_of(plan.buffers[static_cast<std::size_t>(copy.origin)]);
    if (current_->is_fresh(i, version)) continue;
    int there = plan.buffers[static_cast<std::size_t>(copy.destination)].device;
    if (there == 0) {
      current_->refresh(i, version, *device_, *streams_[0]);
      continue;
    }
    const FurtherDevice& further = further_[static_cast<std::size_t>(there - 1)];
    further.device->fence(*further.stream, *streams_[0]);  // behind what wrote the origin
    current_->refresh(i, version, *further.device, *further.stream);
    device_->fence(*streams_[0], *further.stream);  // before what writes it next
  }
}

void Program::Impl::require_whole_variables() {
  if (gate_->epoch() == ordered_epoch_) return;  // nobody has touched them since they were found whole
  for (const Used& used : variables_) {
    std::lock_guard lock(used.variable.data()->mutex);
    used.home->require_whole();
  }
}

void Program::Impl::break_variables(const BrokenCommit& why) {
  Error broken(why.op(), why.where(), why.problem(),
               "write their values from before the step to all Variables that the program assigns; " + why.remedy());
  for (const Used& used : variables_) {
    if (!used.is_written) continue;
    std::lock_guard lock(used.variable.data()->mutex);
    used.home->set_broken(broken);
  }
}

}  // namespace graphsink
