#include <algorithm>
#include <limits>
#include <map>
#include <set>

#include "base/at.h"
#include "passes/passes.h"

namespace graphsink {
namespace {

// Up to this number of buffers, offsets are also tried largest first, which packs better but takes quadratic time.
constexpr std::size_t kSmallPlan = 2000;

bool in_arena(const Buffer& buffer) {
  return buffer.storage == Storage::arena || buffer.storage == Storage::host_arena;
}

void join(PerStream& a, const PerStream& b) {
  for (std::size_t s = 0; s < a.size(); ++s) a[s] = std::max(a[s], b[s]);
}

// Returns true if `needed` tasks of each stream are complete when the task at `timing` writes. For its own stream, the
// task itself also counts: the order of the tasks in its bodies is known from their serial numbers.
bool is_complete(const PerStream& needed, const Timing& timing) {
  for (std::size_t s = 0; s < needed.size(); ++s) {
    int complete = static_cast<int>(s) == timing.stream ? timing.index + 1 : timing.complete[s];
    if (needed[s] > complete) return false;
  }
  return true;
}

// Walks the schedule and all bodies in issue order, and notes which tasks access each buffer, and when.
class Walk {
 public:
  explicit Walk(const Plan& plan) : plan_(plan), lifetime_of_(plan.buffers.size(), -1) {}

  std::vector<Lifetime> run() {
    std::array<PerStream, kMaxStreams> complete{};  // per stream: the tasks that are complete when its next task starts
    PerStream issued{};
    auto wait = [&](int stream, int other) {
      join(complete[at(stream)], complete[at(other)]);
      complete[at(stream)][at(other)] = issued[at(other)];
    };
    for (const Task& task : plan_.tasks_of(0)) {
      for (const Fork& fork : task.forks) wait(fork.stream, fork.source);
      for (int other : task.after) wait(task.stream, other);
      auto s = at(task.stream);
      complete[s][s] = issued[s];
      Timing timing;
      timing.stream = task.stream;
      timing.index = issued[s]++;
      timing.complete = complete[s];
      visit(task, timing);
    }
    for (const PlanOutput& output : plan_.outputs) {
      if (int i = lifetime_of_[at(output.buffer)]; i >= 0) result_[at(i)].last_end = kForever;
    }
    return std::move(result_);
  }

 private:
  void visit(const Task& task, Timing timing) {
    timing.begin = serial_++;
    if (task.control >= 0)
      for (int buffer : plan_.controls[at(task.control)].filled) use(buffer, timing);
    for (int sequence : task.bodies)
      for (const Task& inner : plan_.tasks_of(sequence)) visit(inner, timing);
    timing.end = task.bodies.empty() ? timing.begin : serial_++;
    // Bodies are visited first. So a buffer that is defined in a body keeps its short lifetime, while a buffer from
    // outside lives until the control task ends.
    touched_ = touched(plan_, task, std::move(touched_));
    for (int buffer : touched_.writes) use(buffer, timing);
    for (int buffer : touched_.reads) use(buffer, timing);
  }

  void use(int buffer, const Timing& timing) {
    if (buffer < 0 || !in_arena(plan_.buffers[at(buffer)])) return;
    int& index = lifetime_of_[at(buffer)];
    if (index < 0) {
      index = static_cast<int>(result_.size());
      Lifetime lifetime;
      lifetime.buffer = buffer;
      lifetime.defined = timing;
      result_.push_back(lifetime);
    }
    Lifetime& lifetime = result_[at(index)];
    bool is_inside = timing.begin < lifetime.defined.begin;  // the control task around the body that defined the buffer
    if (is_inside) return;
    lifetime.last_end = std::max(lifetime.last_end, timing.end);
    auto& needed = lifetime.needed[at(timing.stream)];
    needed = std::max(needed, timing.index + 1);
  }

  const Plan& plan_;
  std::vector<int> lifetime_of_;
  std::vector<Lifetime> result_;
  Touched touched_;  // by the current task; a member, so that its memory is reused
  int serial_ = 0;
};

// Returns true if all tasks that access the buffer are complete when the task at `timing` starts. Within one task of
// the schedule, serial order decides, because its bodies run on one stream.
bool is_over(const Lifetime& lifetime, const Timing& timing) {
  return lifetime.last_end < timing.begin && is_complete(lifetime.needed, timing);
}

// Buffers that share memory for their whole life, because ops work in place. They are placed as one.
struct InPlaceGroup {
  std::size_t bytes = 0;
  Lifetime life;  // from the first definition to the last use
  std::vector<int> buffers;
  std::size_t offset = 0;
};

class InPlace {
 public:
  InPlace(const Plan& plan, const std::vector<Lifetime>& lifetimes) : plan_(plan), group_of_(plan.buffers.size(), -1) {
    for (const Lifetime& life : lifetimes) {
      group_of_[at(life.buffer)] = static_cast<int>(groups_.size());
      groups_.push_back({rounded_block(plan.buffers[at(life.buffer)].bytes), life, {life.buffer}});
    }
    for (std::size_t i = 0; i < plan.sequences.size(); ++i)
      for (const Task& task : plan.tasks_of(static_cast<int>(i)))
        if (task.kind == TaskKind::call) consider(plan.nodes[at(task.node)]);
    std::erase_if(groups_, [](const InPlaceGroup& group) { return group.buffers.empty(); });
  }

  std::vector<InPlaceGroup> take() { return std::move(groups_); }

 private:
  void consider(const PlanNode& node) {
    for (Alias alias : node.op->in_place) {
      if (!may_be_in_place(node, alias)) continue;
      int input = node.operands[at(alias.input)], output = node.operands[at(node.inputs + alias.output)];
      int from = group_of_[at(input)], to = group_of_[at(output)];
      if (from < 0 || to < 0 || from == to) continue;
      const Buffer &a = plan_.buffers[at(input)], &b = plan_.buffers[at(output)];
      if (a.storage != b.storage || a.device != b.device) continue;
      if (merge(groups_[at(from)], groups_[at(to)])) {
        for (int buffer : groups_[at(to)].buffers) group_of_[at(buffer)] = from;
        groups_[at(to)].buffers.clear();
        return;
      }
    }
  }

  // Merges the groups if the input ends at the very task that defines the output, and all other uses of the input are
  // complete by then.
  static bool merge(InPlaceGroup& input, InPlaceGroup& output) {
    const Timing& task = output.life.defined;
    if (input.life.last_end != task.end || input.bytes != output.bytes) return false;
    if (!is_complete(input.life.needed, task)) return false;
    input.life.last_end = output.life.last_end;
    input.life.needed = output.life.needed;
    input.buffers.insert(input.buffers.end(), output.buffers.begin(), output.buffers.end());
    return true;
  }

  const Plan& plan_;
  std::vector<int> group_of_;
  std::vector<InPlaceGroup> groups_;
};

// Places the groups by best fit, in the order of their definition, in O(n log n). The memory of a group is reused by
// later groups.
class BestFit {
 public:
  std::size_t run(std::vector<InPlaceGroup>& groups) {
    std::vector<std::size_t> by_end(groups.size());
    for (std::size_t i = 0; i < groups.size(); ++i) by_end[i] = i;
    std::sort(by_end.begin(), by_end.end(),
              [&](std::size_t a, std::size_t b) { return groups[a].life.last_end < groups[b].life.last_end; });
    std::size_t released = 0;
    for (InPlaceGroup& group : groups) {
      for (; released < by_end.size() && groups[by_end[released]].life.last_end < group.life.defined.begin;
           ++released) {
        const InPlaceGroup& dead = groups[by_end[released]];
        release({dead.offset, dead.bytes, dead.life});
      }
      group.offset = place(group);
    }
    return end_;
  }

 private:
  struct Hole {
    std::size_t offset, bytes;
    Lifetime life;  // lifetime of the groups that were there
  };

  void insert(const Hole& hole) {
    by_offset_.emplace(hole.offset, hole);
    by_size_.emplace(hole.bytes, hole.offset);
  }

  Hole extract(std::map<std::size_t, Hole>::iterator it) {
    Hole hole = it->second;
    by_size_.erase({hole.bytes, hole.offset});
    by_offset_.erase(it);
    return hole;
  }

  void release(Hole hole) {
    if (auto next = by_offset_.find(hole.offset + hole.bytes); next != by_offset_.end()) {
      Hole right = extract(next);
      hole.bytes += right.bytes;
      // In serial order both groups are over. `needed` says which tasks of each stream must be complete for reuse.
      join(hole.life.needed, right.life.needed);
    }
    auto left = by_offset_.lower_bound(hole.offset);
    if (left != by_offset_.begin() && std::prev(left)->second.offset + std::prev(left)->second.bytes == hole.offset) {
      Hole before = extract(std::prev(left));
      before.bytes += hole.bytes;
      join(before.life.needed, hole.life.needed);
      hole = before;
    }
    insert(hole);
  }

  std::size_t place(const InPlaceGroup& group) {
    int tries = 64;  // the number of holes to try; a hole may still be in use on another stream
    for (auto it = by_size_.lower_bound({group.bytes, 0}); it != by_size_.end() && tries-- > 0; ++it) {
      auto entry = by_offset_.find(it->second);
      if (!is_over(entry->second.life, group.life.defined)) continue;
      Hole hole = extract(entry);
      if (hole.bytes > group.bytes) insert({hole.offset + group.bytes, hole.bytes - group.bytes, hole.life});
      return hole.offset;
    }
    std::size_t offset = end_;
    if (!by_offset_.empty()) {
      auto last = std::prev(by_offset_.end());
      bool at_the_end = last->second.offset + last->second.bytes == end_;
      if (at_the_end && is_over(last->second.life, group.life.defined)) offset = extract(last).offset;
    }
    end_ = offset + group.bytes;
    return offset;
  }

  std::map<std::size_t, Hole> by_offset_;
  std::set<std::pair<std::size_t, std::size_t>> by_size_;
  std::size_t end_ = 0;
};

bool may_overlap_in_time(const InPlaceGroup& a, const InPlaceGroup& b) {
  return !is_over(a.life, b.life.defined) && !is_over(b.life, a.life.defined);
}

// Places the largest group first, each at the lowest offset that is free for the group's whole life.
std::size_t largest_first(std::vector<InPlaceGroup>& groups) {
  std::vector<std::size_t> order(groups.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return groups[a].bytes > groups[b].bytes; });
  std::size_t end = 0;
  std::vector<std::size_t> placed;  // indices of the groups, by offset
  for (std::size_t index : order) {
    InPlaceGroup& group = groups[index];
    std::size_t offset = 0;
    for (std::size_t other : placed) {
      if (!may_overlap_in_time(group, groups[other])) continue;
      if (offset + group.bytes <= groups[other].offset) break;
      offset = std::max(offset, groups[other].offset + groups[other].bytes);
    }
    group.offset = offset;
    auto position = std::upper_bound(placed.begin(), placed.end(), offset,
                                     [&](std::size_t o, std::size_t i) { return o < groups[i].offset; });
    placed.insert(position, index);
    end = std::max(end, offset + group.bytes);
  }
  return end;
}

std::size_t place_all(Plan& plan, std::vector<InPlaceGroup> groups) {
  std::size_t bytes = BestFit().run(groups);
  if (groups.size() <= kSmallPlan) {
    std::vector<InPlaceGroup> packed = groups;
    if (std::size_t other = largest_first(packed); other < bytes) {
      bytes = other;
      groups = std::move(packed);
    }
  }
  for (const InPlaceGroup& group : groups)
    for (int buffer : group.buffers) plan.buffers[at(buffer)].offset = group.offset;
  return bytes;
}

// Tells whether the buffer is also another operand, for which the op does not declare that the output may be in place.
bool reads_otherwise(const PlanNode& node, int buffer, int output) {
  for (int i = 0; i < node.inputs; ++i) {
    bool may_be_overwritten = std::any_of(node.op->in_place.begin(), node.op->in_place.end(),
                                          [&](Alias a) { return a.input == i && a.output == output; });
    if (node.operands[at(i)] == buffer && !may_be_overwritten) return true;
  }
  return false;
}

}  // namespace

bool may_be_in_place(const PlanNode& node, Alias alias) {
  const std::size_t input = at(alias.input), output = at(node.inputs + alias.output);
  if (alias.input >= node.inputs || output >= node.operands.size()) return false;
  return node.operands[input] >= 0 && node.operands[output] >= 0 && node.types[input] == node.types[output] &&
         !reads_otherwise(node, node.operands[input], alias.output);
}

std::vector<Lifetime> lifetimes(const Plan& plan) {
  std::vector<Lifetime> result = Walk(plan).run();
  std::stable_sort(result.begin(), result.end(),
                   [](const Lifetime& a, const Lifetime& b) { return a.defined.begin < b.defined.begin; });
  return result;
}

void assign_memory(Plan& plan) {
  std::vector<std::vector<InPlaceGroup>> devices(plan.devices.size());
  std::vector<InPlaceGroup> host;
  plan.value_bytes = 0;
  for (InPlaceGroup& group : InPlace(plan, lifetimes(plan)).take()) {
    const Buffer& first = plan.buffers[at(group.buffers[0])];
    bool is_host = first.storage == Storage::host_arena;
    if (!is_host) plan.value_bytes += group.bytes * group.buffers.size();
    (is_host ? host : devices[at(first.device)]).push_back(std::move(group));
  }
  for (std::size_t i = 0; i < devices.size(); ++i) plan.devices[i].arena_bytes = place_all(plan, std::move(devices[i]));
  plan.host_arena_bytes = place_all(plan, std::move(host));
  plan.host_invariant_bytes = 0;
  for (PlanDevice& device : plan.devices) device.invariant_bytes = 0;
  for (const InvariantCopy& copy : plan.invariant_copies) {
    Buffer& buffer = plan.buffers[at(copy.destination)];
    bool is_on_host = buffer.storage == Storage::invariant;
    std::size_t& end = is_on_host ? plan.host_invariant_bytes : plan.devices[at(buffer.device)].invariant_bytes;
    buffer.offset = end;
    end += rounded_block(buffer.bytes);
  }
}

std::size_t live_bytes(const Plan& plan, int device) {
  // Sweeps over the schedule. At each definition, every buffer counts that is not known to be over.
  std::vector<Lifetime> lives = lifetimes(plan);
  std::erase_if(lives, [&](const Lifetime& l) {
    const Buffer& buffer = plan.buffers[at(l.buffer)];
    return buffer.storage != Storage::arena || buffer.device != device;
  });
  std::vector<const Lifetime*> by_end;
  for (const Lifetime& life : lives) by_end.push_back(&life);
  std::sort(by_end.begin(), by_end.end(),
            [](const Lifetime* a, const Lifetime* b) { return a->last_end < b->last_end; });
  auto bytes_of = [&](const Lifetime& life) { return rounded_block(plan.buffers[at(life.buffer)].bytes); };
  std::size_t peak = 0, alive_bytes = 0, ended = 0;
  std::vector<const Lifetime*> ending;  // over in serial order, but perhaps not yet on another stream
  for (const Lifetime& life : lives) {
    const Timing& now = life.defined;
    for (; ended < by_end.size() && by_end[ended]->last_end < now.begin; ++ended) ending.push_back(by_end[ended]);
    std::erase_if(ending, [&](const Lifetime* other) {
      bool over = is_over(*other, now);
      if (over) alive_bytes -= bytes_of(*other);
      return over;
    });
    alive_bytes += bytes_of(life);
    peak = std::max(peak, alive_bytes);
  }
  return peak;
}

}  // namespace graphsink
