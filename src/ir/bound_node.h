// BoundNode: what the library knows of a node that has addresses, beside what its bodies see.
#pragma once

#include <cstdint>

#include "graphsink/body.h"

namespace graphsink {

// Which kernels of a node a captured graph launches programmatically: the GPU may begin them before the one in front
// has ended. See Tuning::programmatic_launch.
enum class ProgrammaticLaunch : std::uint8_t {
  none,
  all_but_first,  // as what is in front of the node is not one kernel of such a node
  all,
};

struct BoundNode : BodyNode {
  using BodyNode::attrs;
  using BodyNode::id;
  using BodyNode::inputs;
  using BodyNode::local;
  using BodyNode::outputs;
  using BodyNode::pointers;
  using BodyNode::step;
  using BodyNode::types;
  using BodyNode::where;
  using BodyNode::workspace;
  using BodyNode::workspace_bytes;

  const struct OpDef* op = nullptr;
  struct HostStatus* status = nullptr;  // where a CPU body that throws is reported
  bool on_host = false;                 // the CPU body runs, although the device has separate memory
  ProgrammaticLaunch programmatic = ProgrammaticLaunch::none;
};

// The node of a body, each of which is given a BoundNode.
inline const BoundNode& bound_node(const BodyArgs& args) { return static_cast<const BoundNode&>(args.node()); }

}  // namespace graphsink
