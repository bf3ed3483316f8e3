#include <algorithm>
#include <map>

#include "base/at.h"
#include "passes/passes.h"

namespace graphsink {
namespace {

// A chain of fewer tasks is not worth a stream of its own, because it needs two events to fork and join it.
constexpr int kShortChain = 3;

void add_node(const Plan& plan, int index, Touched& touched) {
  const PlanNode& node = plan.nodes[at(index)];
  auto operands = static_cast<int>(node.operands.size());
  for (int i = 0; i < operands; ++i) {
    int buffer = node.operands[at(i)];
    if (buffer < 0) continue;
    bool is_view = std::any_of(node.op->views.begin(), node.op->views.end(),
                               [&](Alias view) { return node.inputs + view.output == i; });
    if (is_view) continue;
    bool writes = i >= node.inputs || access_of(*node.op, at(i), at(node.inputs)) == Access::write;
    (writes ? touched.writes : touched.reads).push_back(buffer);
  }
}

void add_task(const Plan& plan, const Task& task, Touched& result) {
  if (task.kind == TaskKind::call) {
    // Any op may report in the step block of its device. Because every op counts as a writer of the block, the copies
    // of the block come before the first op and after the last one.
    if (int device = device_of(plan, task); device > 0) result.writes.push_back(plan.devices[at(device)].step_block);
    return add_node(plan, task.node, result);
  }
  if (task.source >= 0) {
    result.reads.push_back(task.source);
    const Buffer& source = plan.buffers[at(task.source)];
    if (source.storage == Storage::step && source.device > 0)  // part of a step block
      result.reads.push_back(plan.devices[at(source.device)].step_block);
  }
  if (task.destination >= 0) result.writes.push_back(task.destination);
  for (int sequence : task.bodies)
    for (const Task& inner : plan.tasks_of(sequence)) add_task(plan, inner, result);
}

// Tells whether the task or one of its bodies has an effect on the host that the graph does not show.
bool has_effect(const Plan& plan, const Task& task) {
  if (task.kind == TaskKind::call) return plan.nodes[at(task.node)].op->traits.host_effect;
  for (int sequence : task.bodies)
    for (const Task& inner : plan.tasks_of(sequence))
      if (has_effect(plan, inner)) return true;
  return false;
}

}  // namespace

Dependencies dependencies(const Plan& plan, int sequence) {
  const std::vector<int>& schedule = plan.sequences[at(sequence)].tasks;
  Dependencies result(plan.tasks.size());
  std::vector<int> writer(plan.buffers.size(), -1);
  std::vector<std::vector<int>> readers(plan.buffers.size());
  int last_effect = -1;
  Touched t;
  for (int id : schedule) {
    auto& deps = result[at(id)];
    t = touched(plan, plan.tasks[at(id)], std::move(t));
    for (int buffer : t.reads) {
      if (writer[at(buffer)] >= 0) deps.push_back(writer[at(buffer)]);
      readers[at(buffer)].push_back(id);
    }
    for (int buffer : t.writes) {
      if (writer[at(buffer)] >= 0) deps.push_back(writer[at(buffer)]);
      for (int reader : readers[at(buffer)]) deps.push_back(reader);
      writer[at(buffer)] = id;
      readers[at(buffer)].clear();
    }
    if (has_effect(plan, plan.tasks[at(id)])) {
      if (last_effect >= 0) deps.push_back(last_effect);
      last_effect = id;
    }
    std::erase(deps, id);
    if (sequence == 0 && id != schedule[0] && deps.empty()) deps.push_back(schedule[0]);
    std::sort(deps.begin(), deps.end());
    deps.erase(std::unique(deps.begin(), deps.end()), deps.end());
  }
  return result;
}

int first_commit_task(const Plan& plan) {
  const std::vector<int>& schedule = plan.sequences[0].tasks;
  std::size_t first = schedule.size() - 1;  // the end of the step
  while (first > 0) {
    const Task& task = plan.tasks[at(schedule[first - 1])];
    if (task.kind != TaskKind::call) break;
    const PlanNode& node = plan.nodes[at(task.node)];
    bool commits = writes_variables(*node.op, at(node.inputs));
    bool checks_others = node.id < 0 && node.op->traits.host_effect;  // checks the host or the further devices
    if (!commits && !checks_others) break;
    --first;
  }
  return schedule[first];
}

namespace {

class Streams {
 public:
  explicit Streams(Plan& plan)
      : plan_(plan), schedule_(plan.sequences[0].tasks), deps_(dependencies(plan)), commit_(first_commit_task(plan)) {}

  void run() {
    measure_chains();
    plan_.stream_devices = {0};
    place_beside();
    auto further = static_cast<int>(plan_.devices.size()) - 1;
    limit_ = std::min(plan_.target().max_streams, kMaxStreams) - further;
    stream_of_.assign(plan_.tasks.size(), 0);
    depth_.assign(plan_.tasks.size(), 0);
    for (int i : schedule_) {
      if (auto found = early_.find(i); found != early_.end())
        for (const Island& island : found->second) fork(i, island);
      for (int d : deps_[at(i)]) depth_[at(i)] = std::max(depth_[at(i)], depth_[at(d)] + 1);
      place(i, i >= commit_ ? 0 : beside_[at(i)] >= 0 ? beside_[at(i)] : choose(i));
    }
    plan_.streams = used_;
  }

 private:
  // The islands that the host drives beside a launch get a separate stream, so that they wait only for what they depend
  // on. Those of split_sink get another stream, because the stream of sink does not wait for them.
  void place_beside() {
    beside_.assign(plan_.tasks.size(), -1);
    place_beside(plan_.islands);
    place_beside(plan_.split_islands);
    last_beside_ = used_ - 1;
  }

  void place_beside(const std::vector<Island>& islands) {
    int stream = -1;
    for (const Island& island : islands) {
      if (!island.beside || beside_[at(island.tasks[0])] >= 0) continue;  // or it is an island of both modes
      if (stream < 0) stream = new_stream(0);
      for (int i : island.tasks) beside_[at(i)] = stream;
      std::size_t next = 0;  // the first island after all those it waits for on other streams
      for (int i : island.after)
        if (!islands[at(i)].beside) next = at(i) + 1;
      early_[islands[next].tasks[0]].push_back(island);
    }
  }

  // Adds the early waits of an island that runs beside others: before task `here`, its stream waits for the tasks that
  // the island depends on.
  void fork(int here, const Island& island) {
    int stream = beside_[at(island.tasks[0])];
    for (int i : island.tasks) {
      for (int d : deps_[at(i)]) {
        if (d >= here || !must_wait(stream, stream_of_[at(d)], d)) continue;
        plan_.tasks[at(here)].forks.push_back({stream, stream_of_[at(d)], island.tasks[0]});
      }
    }
  }

  // Returns true if `stream` must wait until task `upto` of stream `other` is complete, and notes this wait.
  bool must_wait(int stream, int other, int upto) {
    auto& seen = seen_[at(stream)];
    if (other == stream || seen[at(other)] >= upto || tail_[at(other)] < 0) return false;
    for (std::size_t s = 0; s < seen.size(); ++s) seen[s] = std::max(seen[s], seen_[at(other)][s]);
    seen[at(other)] = tail_[at(other)];
    return true;
  }

  // Measures the length of the chain that starts at each task. A chain continues as long as a task has one successor,
  // and that successor has one dependency.
  void measure_chains() {
    std::vector<int> successors(plan_.tasks.size(), 0);
    std::vector<int> next(plan_.tasks.size(), -1);
    for (int i : schedule_) {
      if (i >= commit_) break;
      for (int d : deps_[at(i)]) {
        ++successors[at(d)];
        next[at(d)] = i;
      }
    }
    chain_.assign(plan_.tasks.size(), 1);
    for (auto it = schedule_.rbegin(); it != schedule_.rend(); ++it) {
      int i = *it;
      if (i >= commit_) continue;
      bool continues = successors[at(i)] == 1 && deps_[at(next[at(i)])].size() == 1;
      if (continues) chain_[at(i)] = chain_[at(next[at(i)])] + 1;
    }
  }

  static PerStream none() {
    PerStream result;
    result.fill(-1);
    return result;
  }

  int new_stream(int device) {
    plan_.stream_devices.push_back(device);
    return used_++;
  }

  int device_of_stream(int stream) const { return plan_.stream_devices[at(stream)]; }

  int choose(int i) {
    if (i == 0) return 0;
    // All work of a further device is on one stream.
    if (int device = device_of(plan_, plan_.tasks[at(i)]); device > 0) {
      auto& devices = plan_.stream_devices;
      auto found = std::find(devices.begin(), devices.end(), device);
      return found != devices.end() ? static_cast<int>(found - devices.begin()) : new_stream(device);
    }
    int best = -1;  // the deepest dependency that is still the last task of its stream
    int nearest = 0;
    for (int d : deps_[at(i)]) {
      if (device_of_stream(stream_of_[at(d)]) != 0) continue;
      if (beside_[at(d)] >= 0) continue;
      nearest = d;
      if (tail_[at(stream_of_[at(d)])] == d && d != 0 && (best < 0 || depth_[at(d)] > depth_[at(best)])) best = d;
    }
    if (best >= 0) return stream_of_[at(best)];
    if (chain_[at(i)] < kShortChain) return stream_of_[at(nearest)];
    if (tail_[0] <= 0) return 0;
    if (std::count(plan_.stream_devices.begin(), plan_.stream_devices.end(), 0) < limit_) return new_stream(0);
    int least = 0;
    for (int s = 1; s < used_; ++s)
      if (device_of_stream(s) == 0 && s > last_beside_ && load_[at(s)] < load_[at(least)]) least = s;
    return least;
  }

  void place(int i, int stream) {
    Task& task = plan_.tasks[at(i)];
    task.stream = stream_of_[at(i)] = stream;
    auto wait_for = [&](int other, int upto) {
      if (must_wait(stream, other, upto)) task.after.push_back(other);
    };
    if (i >= commit_) {
      for (int other = 0; other < used_; ++other) wait_for(other, tail_[at(other)]);
    } else {
      for (auto d = deps_[at(i)].rbegin(); d != deps_[at(i)].rend(); ++d) wait_for(stream_of_[at(*d)], *d);
    }
    tail_[at(stream)] = i;
    ++load_[at(stream)];
  }

  Plan& plan_;
  const std::vector<int>& schedule_;
  Dependencies deps_;  // ids ascend along the schedule, so a task depends only on smaller ids
  int commit_;
  int limit_ = 1;  // the maximal number of streams on the target
  int used_ = 1;
  // Per task: the stream of an island that runs beside others, or -1 if the task is in no such island.
  std::vector<int> beside_;
  int last_beside_ = 0;                       // the streams of these islands are 1 to this one
  std::map<int, std::vector<Island>> early_;  // these islands, by the task before which they may begin
  std::vector<int> chain_, stream_of_, depth_;
  PerStream tail_ = none();
  PerStream load_{};
  // seen_[stream][other]: the last task of `other` that `stream` knows to be complete.
  std::vector<PerStream> seen_ = std::vector<PerStream>(kMaxStreams, none());
};

}  // namespace

int device_of(const Plan& plan, const Task& task) {
  if (task.kind == TaskKind::call) {
    const PlanNode& node = plan.nodes[at(task.node)];
    return node.on_host ? 0 : node.device;
  }
  if (task.kind != TaskKind::copy) return 0;
  int destination = plan.buffers[at(task.destination)].device;
  return destination > 0 ? destination : plan.buffers[at(task.source)].device;
}

Touched touched(const Plan& plan, const Task& task, Touched reused) {
  reused.reads.clear();
  reused.writes.clear();
  add_task(plan, task, reused);
  return reused;
}

void assign_streams(Plan& plan) { Streams(plan).run(); }

}  // namespace graphsink
