// The ops that passes add to a plan, and the rules by which they compute ops together. Defined in kernels/; passes see
// them as data.
#pragma once

#include <vector>

#include "graphsink/op.h"
#include "ir/fusion_rules.h"

namespace graphsink {

struct SystemOps {
  // First node of every step. Inputs: feed table (addresses), feed strides (i64), both [feeds]. Outputs: one buffer per
  // feed, filled from slice step->slice of its ring (address + stride * slice). Sets ok to 1 unless an earlier error is
  // still unseen (error_node >= 0): then the step commits nothing.
  const OpDef* begin_step = nullptr;
  // Last node of every step. Inputs: the floats of each record, then the conditions of stop_when(), at most
  // kMaxStops. Output: f64, the rings of all records in host memory that the device can write; EndAttrs has their
  // sizes. If ok: stores each record at place records % capacity of its ring, then ++records and ++step; and if a
  // condition holds, leaves an error (StepError::stopped) that makes all later steps fail. Reports in Progress why this
  // step or the next one fails. Always: ++slice, more = this and the next step do not fail && slice < end_slice. If
  // StepState::times is not null, reports how long the step took.
  const OpDef* end_step = nullptr;
  // Commits assigned values: inputs (variable, value) pairs, the variables Access::write. Nothing if ok is 0.
  const OpDef* store = nullptr;
  // No outputs. Fails the step if an element of input 0 (float) is not finite; NodeAttrs names the checked node.
  const OpDef* check = nullptr;
  // No inputs or outputs. Fails the step if a host call failed, as HostFlagAttrs says. Used on devices with separate
  // memory.
  const OpDef* check_host = nullptr;
  // Fails the step if it failed on a further device. Input 0: the step block of that device, as bytes.
  const OpDef* check_device = nullptr;
  // Tells in StepState::stops whether one of the inputs holds, which are the conditions of stop_when().
  const OpDef* mark_stop = nullptr;
  // Fails the step if it failed on another rank, or if StepState::stops differs there. Input 0: the step blocks of all
  // ranks in their order, StepState as bytes. NodeAttrs names the node that is reported; once the plan is bound, the
  // attributes are RankFlagAttrs.
  const OpDef* check_ranks = nullptr;
  // For the CUDA body of the op by which ranks agree. Fails the step at node `node` if the word, in host memory that
  // the device can read, is not 0. The kernel is loaded by check_ranks, which stands in the same plan.
  void (*fail_if_set)(CudaArgs& a, const std::uint32_t* word, int node) = nullptr;
  // Copies the step block to the output, StepState as bytes.
  const OpDef* tell_step = nullptr;
  // The stacks of loops. No inputs; the output becomes zeros.
  const OpDef* clear = nullptr;
  // Inputs: values, and an i32 scalar, their place. The outputs, [places, ...], each take one there, and keep the rest.
  // NodeAttrs names the loop, which fails the step if there is no such place.
  const OpDef* store_at = nullptr;
  // Takes the slices at one place from stacks with equal numbers of slices: see kernels/runtime/stack.h.
  const OpDef* slice_at = nullptr;
  // A group of element-wise ops, as FusedAttrs says. fused[k] is the op whose outputs may be stored in the
  // memory of the first k inputs, for k up to kMaxFusedInPlace.
  const OpDef* fused = nullptr;
  // The same for groups that become a kernel and reduce no rows: it can read operands and write results where they lie
  // within larger tensors (FusionRule::strided).
  const OpDef* fused_kernel = nullptr;
  // Adds the time since the last lap to one of the Laps. Inputs, both of which it changes: the time of the last lap, an
  // i64, and the Lap. Not in plans: see OpClock.
  const OpDef* lap = nullptr;
  // How ops may be computed together. Rules of one op are tried in this order.
  std::span<const std::span<const FusionRule>> rules = {};
};

// In device memory: time that laps measured, and how many of them.
struct Lap {
  std::int64_t ns = 0;
  std::int64_t count = 0;
};

struct NodeAttrs {
  int id = -1;
};

// Host memory that the device can read: whether a host call failed, and at which node.
struct HostFlagAttrs {
  const std::uint32_t* failed = nullptr;
  const std::int32_t* node = nullptr;
};

// A word in host memory that the device can read: it is not 0 once a wait for other ranks was given up, after which the
// step blocks of all ranks may be anything. `id`: as in NodeAttrs.
struct RankFlagAttrs {
  int id = -1;
  const std::uint32_t* given_up = nullptr;
};

// State that end_step reports to the host while later steps run. In memory from DeviceMemory::allocate_host.
struct Progress {
  std::uint32_t records = 0;  // StepState::records; written last: the values are in the rings by then
  std::uint32_t failed = 0;   // a step failed, which was not reported yet; written after the next six members
  std::int32_t error_node = -1;
  std::int32_t error_step = 0;
  StepError error = StepError::unknown;
  std::int64_t error_index = 0;
  std::int32_t size_node = -1;
  std::int64_t size = 0;
  std::int32_t slice = 0;  // that follows the last step that failed: it changes while the steps of a launch fail
};
struct EndAttrs {
  std::vector<std::int64_t> capacities;  // by record: capacity of its ring, a power of two
  Progress* progress = nullptr;          // known when the plan is bound
};

// The built-in ones (kernels/runtime/system.cu).
const SystemOps& system_ops();

}  // namespace graphsink
