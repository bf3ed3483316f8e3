#include "exec/report/op_clock.h"

#include <algorithm>

namespace graphsink {
namespace {

// Laps with no task before them, whose times are those of a lap itself. There are several, because any of them may be
// interrupted: the shortest counts.
constexpr std::size_t kEmptyLaps = 16;
const TensorType kTypes[] = {{DType::i64, {}}, {DType::i64, {2}}};

}  // namespace

OpClock::OpClock(const Plan& plan, Device& device)
    : device_(device),
      restart_(plan.tasks.size()),
      empty_(restart_ + 1),
      laps_(device.allocate((empty_ + kEmptyLaps) * sizeof(Lap) + sizeof(std::int64_t))),
      pointers_(2 * (empty_ + kEmptyLaps)),
      nodes_(empty_ + kEmptyLaps) {
  Lap* laps = static_cast<Lap*>(laps_.get());
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    pointers_[2 * i] = laps + nodes_.size();
    pointers_[2 * i + 1] = laps + i;
    nodes_[i].op = system_ops().lap;
    nodes_[i].pointers = &pointers_[2 * i];
    nodes_[i].types = kTypes;
    nodes_[i].inputs = 2;
  }
}

void OpClock::begin_step(Stream& stream) {
  restart(stream);
  for (std::size_t i = 0; i < kEmptyLaps; ++i) device_.call(stream, nodes_[empty_ + i]);
}

std::vector<OpClock::TaskTime> OpClock::times(Stream& stream) const {
  const Memory copy = device_.allocate_host(nodes_.size() * sizeof(Lap));
  device_.copy(stream, copy.get(), laps_.get(), nodes_.size() * sizeof(Lap));
  device_.wait(stream);
  const Lap* laps = static_cast<const Lap*>(copy.get());
  auto mean = [](const Lap& lap) {
    return lap.count == 0 ? 0.0 : static_cast<double>(lap.ns) / static_cast<double>(lap.count);
  };
  double of_lap = mean(laps[empty_]);
  for (std::size_t i = 1; i < kEmptyLaps; ++i) of_lap = std::min(of_lap, mean(laps[empty_ + i]));
  std::vector<TaskTime> times(restart_);
  for (std::size_t i = 0; i < times.size(); ++i) times[i] = {laps[i].count, std::max(0.0, mean(laps[i]) - of_lap)};
  return times;
}

}  // namespace graphsink
