// The plans of a program, one for each set of input shapes, with everything that was made for them.
#pragma once

#include <bit>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "base/function_ref.h"
#include "base/log.h"
#include "exec/capture/capture_policy.h"
#include "exec/capture/capture_slot.h"
#include "exec/capture/slot_cache.h"
#include "exec/choose/mode_chooser.h"
#include "exec/issue/bound_plan.h"
#include "exec/issue/launch_queue.h"
#include "ir/agreement.h"
#include "ir/bound_node.h"
#include "ir/graph_data.h"

namespace graphsink {

// Captured graphs for one set of shapes.
struct Captures {
  // One slot for each of Plan::islands and Plan::split_islands; the slots of islands that the host drives stay empty.
  std::vector<CaptureSlot> islands, split_islands;
  std::vector<std::vector<CaptureSlot>> bodies;  // per sequence of the plan: of its islands, for all modes that sink
  CaptureSlot loop;                              // many steps in one launch
  std::vector<CaptureSlot> unrolled;             // [i]: 2^(i+1) steps in one launch; see Plan::unrolled_steps

  // The position in `unrolled` of launches with so many steps: a power of two above 1.
  static std::size_t unrolled_place(std::int64_t steps) {
    return static_cast<std::size_t>(std::bit_width(static_cast<std::uint64_t>(steps)) - 2);
  }

  std::vector<CaptureSlot>& slots_of(Mode mode) { return mode == split_sink ? split_islands : islands; }
  void for_each_slot_of_a_step(FunctionRef<void(const CaptureSlot&)> visit) const;  // those of launches of one step
  void for_each_slot(FunctionRef<void(const CaptureSlot&)> visit) const;
  void for_each(FunctionRef<void(const CapturedGraph&)> visit) const;
  bool is_empty() const;
  std::size_t bytes() const;
};

// Entry of a program for one set of shapes of its inputs: the bound plan, its captures and its step times.
struct ShapeEntry {
  // Captures may use up what `spares` holds, which must outlive this.
  ShapeEntry(std::size_t number, std::shared_ptr<const Plan> plan, std::shared_ptr<const PreparedNodes> nodes,
             const Addresses& addresses, Devices devices, bool begins_interactive, Captures& spares);

  const Plan& plan() const { return bound.plan(); }
  bool has_run() const { return times.interactive_steps > 0; }
  // Whether every island of that mode, and of the bodies that the host drives, that can be captured is.
  bool is_captured(Mode mode) const;
  // Facts about the plan that the plan itself does not hold: workspaces, and why captures were refused or not made yet.
  PlanFacts facts(const CapturePolicy& policy) const;
  // Contents of the capture of several steps if `several_steps`, else of all captures that a step of `sink` launches,
  // added up. Empty if there are none.
  std::optional<CaptureInfo> captured(bool several_steps) const;
  // An estimate of all memory that goes with these shapes.
  std::size_t bytes() const;
  // The problem of the capture that failed last, for which a step of that mode is issued op by op, or "".
  std::string why_not_launched(Mode mode) const;

  std::size_t number;  // in the cache of the program
  BoundPlan bound;
  ShapeTimes times;
  std::uint64_t last_launch = 0;     // LaunchQueue::pushed() then
  bool is_in_callers_graph = false;  // which the caller may launch at any time: never dropped
  int refused_by_ranks = 0;          // captures that were dropped because a rank had none; equal on all ranks
  std::int64_t unrolled_steps = 0;   // the least Plan::unrolled_steps of all ranks, once they have captured a step
  Captures captures;                 // made when CapturePolicy says so
  Captures& spares;                  // captures of dropped shapes; the next captures may change them in place
  ModeChooser chooser;               // mode chooser of run(automatic)
  // For the argument audit: what each kernel of an op was given when it was captured last, and ops with a warning.
  std::map<std::pair<const BoundNode*, std::size_t>, Arguments> arguments;
  std::set<const BoundNode*> warned;
  // The ranks with which the plan exchanges values on a device; null if there are none. And a bit for each mode:
  // whether all of them have captured a step for it.
  const std::shared_ptr<const RankWait> ranks;
  std::uint8_t captured_by_ranks = 0;
  bool unrolls_split_sink = false;  // no rank has anything to split, and several steps may be one launch
};

// Text for messages: how work runs that could not be captured.
constexpr const char *kOpByOp = "a step runs op by op", *kStepByStep = "a run of several steps takes several launches";

// The entries, and the plan for the shapes that were written last before it has an entry. Used by one thread at a time.
class ProgramShapes {
 public:
  ProgramShapes(std::size_t most_bytes, std::size_t most_shapes, const CapturePolicy& policy, const Log& log)
      : policy_(policy), cache_(most_bytes, most_shapes), log_(log) {}

  // Selects other input shapes. Their plan is made when plan() is called, because the shapes of several inputs may have
  // to change together.
  void select(const InputShapes& shapes);
  // The entry for the shapes selected last; null as long as their plan is not bound.
  ShapeEntry* current() const { return current_; }

  // The plan for the shapes selected last, made by `make` on the first call.
  const Plan& plan(FunctionRef<Plan()> make);
  // Facts about that plan that the plan itself does not hold.
  PlanFacts facts() const;
  // Lets the ops of that plan choose what they need. Preconditions of both: plan() was called, and there is no
  // current() entry.
  void prepare(Devices devices);
  bool is_prepared() const { return prepared_ != nullptr; }
  // Makes the entry, which add() takes. Precondition: it is prepared.
  std::unique_ptr<ShapeEntry> bind(const Addresses& addresses, Devices devices);
  // The entry is current() from now on.
  void add(const InputShapes& shapes, std::unique_ptr<ShapeEntry> entry);

  // Drops entries, the least recently used first, until the rest has room in the cache, and says so the first time;
  // never the current one, nor one of which a launch may be running. The captures of the last dropped entry that has
  // any are kept if there is room, so that the next capture can change them in place. `is_done`: no launch of the
  // program is running.
  void trim(const LaunchQueue& launches, bool is_done);
  // How many entries have room in the cache: of those that are there, the ones that were used last; or as many as the
  // limits allow, if all of them have.
  std::int64_t with_room() const;
  // From then on trim() keeps so many entries, whatever they take.
  void keep(std::int64_t most) { kept_ = static_cast<std::size_t>(most); }
  // Drops all but the current one. Precondition of both: no launch of the program is running.
  void drop_others();
  // Drops all, and the plan: what they were bound to has changed. Precondition: !is_in_callers_graph().
  void drop_all();
  // Whether a graph of the caller's uses one of them.
  bool is_in_callers_graph() const;

  void for_each_captured(FunctionRef<void(const CapturedGraph&)> visit) const {
    cache_.for_each([&](const ShapeEntry& entry) { entry.captures.for_each(visit); });
  }
  ShapeEntry* numbered(std::size_t number) const { return cache_.numbered(number); }
  std::size_t size() const { return cache_.size(); }
  // Whether trim() drops what it may.
  bool is_full() const { return kept_ ? size() > *kept_ : !cache_.is_within_limits(); }
  std::size_t bytes() const { return cache_.bytes() + spares_.bytes(); }
  std::uint64_t evicted() const { return cache_.evicted(); }

 private:
  const CapturePolicy& policy_;
  Captures spares_;  // before the entries, which refer to it
  SlotCache<InputShapes, ShapeEntry> cache_;
  Log log_;
  std::optional<std::size_t> kept_;  // see keep()
  bool has_said_full_ = false;
  ShapeEntry* current_ = nullptr;
  // Plan for the shapes selected last, before it is bound to memory; null until plan() makes it, and while an entry is
  // current.
  std::shared_ptr<const Plan> unbound_;
  // Choices of the nodes of unbound_, made by prepare(); null before that.
  std::shared_ptr<const PreparedNodes> prepared_;
};

}  // namespace graphsink
