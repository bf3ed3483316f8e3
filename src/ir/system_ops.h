// The ops that passes add to a plan. Defined in kernels/; passes see them as data.
#pragma once

#include "graphsink/op.h"

namespace graphsink {

struct SystemOps {
  // First node of every step. Inputs: feed table (addresses), feed strides (i64), both [feeds]. Outputs: one buffer per
  // feed, filled from slice step->slice of its ring (address + stride * slice). Sets ok to 1 unless an earlier error is
  // still unseen (error_node >= 0): then the step commits nothing.
  const OpDef* begin_step = nullptr;
  // Last node of every step. Inputs: one float scalar per record. Output: the record ring f64 [records, capacity], in
  // host memory that the device can write. If ok: appends the records at column records % capacity, then ++records and
  // ++step. Always: ++slice, more = ok && slice < end_slice. ProgressAttrs tells where the host looks. Says what the
  // step took if StepBlock::times asks.
  const OpDef* end_step = nullptr;
  // Commits assigned values: inputs (variable, value) pairs, the variables Access::write. Nothing if ok is 0.
  const OpDef* store = nullptr;
  // No outputs. Fails the step if an element of input 0 (float) is not finite; NodeAttrs names the checked node.
  const OpDef* check = nullptr;
  // No inputs or outputs. Fails the step if a host call failed, as HostFlagAttrs tells. For devices with separate
  // memory.
  const OpDef* check_host = nullptr;
  // Fails the step if one of a further device failed. Input 0: that one's step block, as bytes.
  const OpDef* check_device = nullptr;
};

struct NodeAttrs {
  int id = -1;
};

// Host memory that the device can read: whether a host call failed, and at which node.
struct HostFlagAttrs {
  const std::uint32_t* failed = nullptr;
  const std::int32_t* node = nullptr;
};

// What end_step tells the host while later steps run. In memory from Device::allocate_host.
struct Progress {
  std::uint32_t records = 0;  // StepBlock::records; written last: the values are in the ring by then
  std::uint32_t failed = 0;   // a step committed nothing, and no sync() has said so yet
};
struct ProgressAttrs {
  Progress* progress = nullptr;
};

// The built-in ones (kernels/system.cu).
const SystemOps& system_ops();

}  // namespace graphsink
