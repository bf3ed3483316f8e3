// A Plan with concrete addresses, and the function that issues it.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/at.h"
#include "base/function_ref.h"
#include "base/trace.h"
#include "device/device.h"
#include "exec/report/op_clock.h"
#include "graphsink/mode.h"
#include "ir/bound_node.h"
#include "ir/plan.h"
#include "ir/system_ops.h"

namespace graphsink {

class RankWait;

// Addresses of memory that a bound plan uses on one of its devices.
struct DeviceAddresses {
  std::byte* arena = nullptr;
  StepState* block = nullptr;
  Memory invariant{};  // the bound plan's own
};

// The addresses from which those of the plan's buffers follow. The program owns all of this memory, except what a
// Memory here owns.
struct Addresses {
  std::vector<DeviceAddresses> devices;  // as in the plan
  Memory host_arena;                     // the bound plan's own
  Memory host_invariant;                 // likewise
  const void** feed_table = nullptr;
  std::int64_t* feed_strides = nullptr;
  void* record_ring = nullptr;
  HostStatus* host_status = nullptr;
  Progress* progress = nullptr;
  std::vector<void*> sources;                      // per node of the graph: inputs
  std::map<std::pair<int, int>, void*> constants;  // by device and node of the graph
  std::vector<void*> host_constants;               // per node of the graph, in host memory
  std::vector<void*> variables;                    // per variable of the plan
  std::map<int, void*> outputs;                    // by buffer: those that live in memory of the caller's
};

// The devices of a program: the target, then the further devices.
using Devices = std::span<Device* const>;

// Issuing failed in the middle of a commit, so that the Variables hold values of two steps.
class BrokenCommit : public Error {
 public:
  using Error::Error;
};

// Lets every node of every body choose and load what it needs: what each of plan.nodes returned. Throws Error; the plan
// can be prepared again.
using PreparedNodes = std::vector<Prepared>;
PreparedNodes prepare(const Plan& plan, Devices devices);

// The workspaces that the nodes asked for.
PlanFacts facts_of(const PreparedNodes& nodes);

// Launches island `island` of Plan::sequences[sequence], which is the body of a loop or branch that the host drives.
using LaunchInBody = FunctionRef<void(int sequence, std::size_t island, Stream&)>;

// How a bound plan is issued.
struct Issuing {
  bool is_split = false;  // see Mode
  // Adds a lap behind each task, unless it is null: then all streams must be the same one, and is_split false.
  OpClock* clock = nullptr;
  // Takes the place of the tasks of sunk islands of bodies; null: bodies are issued op by op. Only for live streams.
  const LaunchInBody* launch_in_body = nullptr;
};

class BoundPlan {
 public:
  // `nodes` are those of prepare(). Allocates the workspaces.
  BoundPlan(std::shared_ptr<const Plan> plan, std::shared_ptr<const PreparedNodes> nodes, const Addresses& addresses,
            Devices devices);
  BoundPlan(const BoundPlan&) = delete;
  BoundPlan& operator=(const BoundPlan&) = delete;

  const Plan& plan() const { return *plan_; }
  PlanFacts facts() const { return facts_of(*prepared_); }
  // The bytes of all memory that belongs to this plan alone: exact for workspaces, values on the host and invariant
  // copies, an estimate for the plan itself.
  std::size_t bytes() const { return bytes_; }
  void* host_arena() const { return host_arena_.get(); }  // host_arena_bytes() of it
  void* address(int buffer) const { return addresses_[at(buffer)]; }
  const BoundNode& node(int number) const { return nodes_[at(number)]; }  // bound form of plan().nodes[number]

  // Gives these tasks, of the schedule or of an island of it or of a body, to the streams, of which there are
  // plan().streams (possibly one and the same for each device); all work is joined in streams[0]. Whether the streams
  // are live or capturing makes no difference here. Throws BrokenCommit if the streams are live and part of the commit
  // was issued, else what the device throws: then the step has committed wholly or not at all.
  void issue(std::span<const int> tasks, Devices devices, Streams streams, const Issuing& how = {}) const;
  void issue_all(Devices devices, Streams streams, const Issuing& how = {}) const;

  // Whether copy `index` of plan().invariant_copies was made since its origin became `version`, which is not 0.
  bool is_fresh(std::size_t index, std::uint64_t version) const { return versions_[index] == version; }
  // Enqueues invariant copy `index` on a live stream of `device`, so that steps issued after this read the value that
  // the origin has now. This is not part of a step.
  void refresh(std::size_t index, std::uint64_t version, DeviceQueue& device, Stream& stream);

  // How long the collectives of the plan wait for other ranks on a device; null if there are none.
  std::shared_ptr<const RankWait> rank_wait() const;

  // The islands of `mode`, which is one of those that sink. For split_sink the list is empty if there is nothing to
  // split.
  const std::vector<Island>& islands_of(Mode mode) const {
    return mode == split_sink ? plan_->split_islands : plan_->islands;
  }

 private:
  void bind_nodes(const Addresses& addresses, Devices devices);
  void bind_workspaces(Devices devices);
  void run_on_host(const Task& task, DeviceNodes& device) const;
  void issue_task(int id, Devices devices, Streams streams, const Issuing& how) const;
  void issue_body(int sequence, Devices devices, Streams streams, const Issuing& how) const;

  std::shared_ptr<const Plan> plan_;
  std::shared_ptr<const PreparedNodes> prepared_;
  // Attributes that hold addresses, which the plan does not know.
  Attrs check_host_, check_ranks_, end_step_;
  Memory host_arena_;
  std::vector<Memory> invariant_;        // on the host and on devices
  std::vector<std::uint64_t> versions_;  // per invariant copy: the version of the origin that was copied; 0: none yet
  int first_store_;                      // id of the first task that writes a Variable; -1: none does
  std::vector<void*> addresses_;         // per buffer
  std::vector<void*> pointers_;          // operands of all nodes
  std::vector<BoundNode> nodes_;
  std::vector<TraceName> names_;  // names of their ops, for traces
  std::size_t bytes_ = 0;
  std::vector<Memory> workspaces_;  // per stream, of its device; those of the host are in host_arena_
};

}  // namespace graphsink
