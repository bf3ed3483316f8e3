// Removes copies of values that are computed only to be copied: of the results of a body to the state of its loop, or
// to the results of its branch, and of initial values to the state. The op that computes such a value writes it to
// where the copy would. (Known as copy coalescing in register allocation: Chaitin et al. 1981, "Register allocation via
// coloring".)
#include <algorithm>
#include <optional>

#include "base/at.h"
#include "passes/passes.h"

namespace graphsink {
namespace {

class Coalescing {
 public:
  explicit Coalescing(Plan& plan)
      : plan_(plan), owners_(plan.sequences.size()), accesses_(plan.buffers.size()), is_fixed_(plan.buffers.size()) {
    for (std::size_t s = 0; s < plan.sequences.size(); ++s)
      for (std::size_t p = 0; p < plan.sequences[s].tasks.size(); ++p) note(static_cast<int>(s), static_cast<int>(p));
    for (const PlanOutput& output : plan.outputs) is_fixed_[at(output.buffer)] = true;
    for (const PlanFeed& feed : plan.feeds) is_fixed_[at(feed.buffer)] = true;
    for (const PlanControl& control : plan.controls)
      for (int buffer : control.filled) is_fixed_[at(buffer)] = true;
  }

  void run() {
    for (std::size_t s = 0; s < plan_.sequences.size(); ++s) {
      std::vector<int>& tasks = plan_.sequences[s].tasks;
      std::vector<bool> is_removed(tasks.size());
      for (std::size_t p = 0; p < tasks.size(); ++p)
        if (plan_.tasks[at(tasks[p])].kind == TaskKind::copy)
          is_removed[p] = remove({static_cast<int>(s), static_cast<int>(p)});
      std::size_t next = 0;
      std::erase_if(tasks, [&](int) { return is_removed[next++]; });
    }
  }

 private:
  // A task by its place.
  struct Position {
    int sequence = 0;
    int index = 0;
    friend bool operator==(const Position&, const Position&) = default;
  };
  struct BufferAccess {
    Position task;  // not a branch or loop for what its bodies do
    bool writes = false;
  };

  const Task& task_at(Position p) const { return plan_.tasks[at(plan_.sequences[at(p.sequence)].tasks[at(p.index)])]; }
  Task& task_at(Position p) { return plan_.tasks[at(plan_.sequences[at(p.sequence)].tasks[at(p.index)])]; }

  void note(int sequence, int index) {
    const Position here{sequence, index};
    const Task& task = task_at(here);
    for (int body : task.bodies) owners_[at(body)] = here;
    if (!task.bodies.empty()) {
      accesses_[at(task.source)].push_back({here, false});
      return;
    }
    touched_ = touched(plan_, task, std::move(touched_));
    for (int buffer : touched_.reads) accesses_[at(buffer)].push_back({here, false});
    for (int buffer : touched_.writes) accesses_[at(buffer)].push_back({here, true});
  }

  // The index, in this sequence, of the task that is or contains the one at `p`, if any.
  std::optional<int> index_in(int sequence, Position p) const {
    while (p.sequence != sequence) {
      if (p.sequence == 0) return {};
      p = owners_[at(p.sequence)];
    }
    return p.index;
  }

  // Removes the copy, if the op that computes its source can write to its destination instead: if nothing accesses the
  // destination from there to the copy, and nothing else writes the source, or accesses it behind the copy.
  bool remove(Position copy) {
    const int source = task_at(copy).source, destination = task_at(copy).destination;
    const Buffer &from = plan_.buffers[at(source)], &to = plan_.buffers[at(destination)];
    const bool are_alike = from.storage == Storage::arena && to.storage == Storage::arena && from.device == to.device &&
                           from.bytes == to.bytes;
    if (!are_alike || source == destination || is_fixed_[at(source)]) return false;
    const std::optional<int> computed = only_write(source, copy);
    if (!computed) return false;
    for (const BufferAccess& access : accesses_[at(source)]) {
      const std::optional<int> index = index_in(copy.sequence, access.task);
      if (!index || *index < *computed || *index > copy.index) return false;
    }
    for (const BufferAccess& access : accesses_[at(destination)]) {
      const std::optional<int> index = index_in(copy.sequence, access.task);
      if (index == computed && (access.writes || !computes_in_place(access.task, source, destination))) return false;
      if (index && *computed < *index && *index < copy.index) return false;
    }
    replace(source, destination, copy);
    return true;
  }

  // The index of the call in the sequence of the copy that alone writes the buffer.
  std::optional<int> only_write(int buffer, Position copy) const {
    std::optional<int> found;
    for (const BufferAccess& access : accesses_[at(buffer)]) {
      if (!access.writes) continue;
      if (found || access.task.sequence != copy.sequence || task_at(access.task).kind != TaskKind::call) return {};
      found = access.task.index;
    }
    return found;
  }

  // Whether the call may store its output `to` where it reads its input `from`.
  bool computes_in_place(Position call, int to, int from) const {
    const PlanNode& node = plan_.nodes[at(task_at(call).node)];
    return std::any_of(node.op->in_place.begin(), node.op->in_place.end(), [&](Alias alias) {
      return may_be_in_place(node, alias) && node.operands[at(alias.input)] == from &&
             node.operands[at(node.inputs + alias.output)] == to;
    });
  }

  void replace(int buffer, int replacement, Position copy) {
    std::erase_if(accesses_[at(replacement)], [&](const BufferAccess& access) { return access.task == copy; });
    for (const BufferAccess& access : accesses_[at(buffer)]) {
      if (access.task == copy) continue;
      Task& task = task_at(access.task);
      if (task.source == buffer) task.source = replacement;
      if (task.kind == TaskKind::call) {
        std::vector<int>& operands = plan_.nodes[at(task.node)].operands;
        std::replace(operands.begin(), operands.end(), buffer, replacement);
      }
      accesses_[at(replacement)].push_back(access);
    }
    accesses_[at(buffer)].clear();
  }

  Plan& plan_;
  std::vector<Position> owners_;                     // by body: the branch or loop
  std::vector<std::vector<BufferAccess>> accesses_;  // by buffer
  std::vector<bool> is_fixed_;                       // by buffer: the plan names it elsewhere than in a task
  Touched touched_;                                  // a member, so that its memory is reused
};

}  // namespace

void coalesce_copies(Plan& plan) { Coalescing(plan).run(); }

}  // namespace graphsink
