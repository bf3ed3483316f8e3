// The memory that all plans of a program share.
#pragma once

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "exec/issue/bound_plan.h"
#include "exec/issue/session.h"
#include "exec/memory/allocator.h"
#include "exec/memory/inputs.h"
#include "ir/step_state.h"

namespace graphsink {

// Data that the host and the steps of a program exchange, in one piece of device memory.
struct Control {
  StepState block;
  FeedTable feeds;
  std::uint32_t next_launch = 0;  // LaunchRing::next
};

class ProgramMemory {
 public:
  ProgramMemory(const GraphData& graph, const Session& session) : graph_(graph), session_(session) {}

  // Makes the arenas, without memory yet, and the control block. Throws OutOfMemory.
  void allocate_control();
  Control* control() const { return static_cast<Control*>(control_.get()); }  // an address of the target
  const Arena& arena(int device) const { return *devices_.at(at(device)).arena; }

  // The addresses of the plan's values, except those of inputs, Variables, records and the program's status. Grows the
  // arenas, uploads constants that are not there yet, and makes room for cached copies and for ops on the host, with
  // the workspaces that `facts` says they need. Throws Error where there is no memory.
  Addresses addresses(const Plan& plan, const PlanFacts& facts, Allocator& allocator, const Where& where);

 private:
  struct OnDevice {
    std::unique_ptr<Arena> arena;
    Memory block;  // the StepState of a further device
  };
  Memory invariant_copies(const PlanDevice& needs, int number, Allocator& allocator, const Where& where);
  DeviceAddresses further_addresses(const PlanDevice& needs, int number, Allocator& allocator, const Where& where);
  void upload_constants(const Plan& plan, Allocator& allocator, const Where& where);

  const GraphData& graph_;
  const Session& session_;
  std::vector<OnDevice> devices_;
  Memory control_;                                   // Control
  std::map<std::pair<int, int>, Memory> constants_;  // by device and node
};

}  // namespace graphsink
