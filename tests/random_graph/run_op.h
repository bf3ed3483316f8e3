// Runs single ops on tensors of the host, by the bodies of a device.
#pragma once

#include <vector>

#include "device/device.h"
#include "graphsink/graphsink.h"
#include "ir/bound_node.h"
#include "ir/step_state.h"

namespace graphsink::testing {

class OpRunner {
 public:
  explicit OpRunner(DeviceId id) : device_(open_device(id)), stream_(device_->make_stream()) {}

  struct Call {
    const OpDef& op;
    const Attrs& attrs;
    Where where;
    std::vector<const Tensor*> inputs;  // null: only its type is looked at
    std::vector<TensorType> types;      // of the inputs, then of the outputs
    int id = -1;                        // what the body finds as the number of its node
    bool on_host = false;
  };
  // The outputs. Precondition: the op writes no Variables.
  std::vector<Tensor> run(const Call& call, StepState block);

  bool has_own_memory() const { return device_->target().separate_memory; }

 private:
  void run_on_host(BoundNode& node, const std::vector<Tensor*>& operands, StepState& block) const;
  void run_on_device(BoundNode& node, const std::vector<Tensor*>& operands, const StepState& block);

  std::shared_ptr<Device> device_;
  std::unique_ptr<Stream> stream_;
  Memory memory_;
  std::size_t bytes_ = 0;
};

}  // namespace graphsink::testing
